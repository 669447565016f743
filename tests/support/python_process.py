"""Running Python in a process of its own."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_python(
    *words: Any, most_bytes: int | None = None, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` with this package, environment variables besides, in at most so many bytes."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))

    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}", **variables}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, preexec_fn=limit
    )


def printed_by(*words: Any, **variables: str) -> str:
    """Return what `python WORDS` prints; it must succeed."""
    done = run_python(*words, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout
