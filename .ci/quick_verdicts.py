"""`python .ci/quick_verdicts.py FILE…` holds the verdicts of quick comparisons against `quick-verdicts.json`.

A FILE is what `clustergym reproduce PAPER --quick --json FILE` writes. `--write` takes its verdicts instead,
after a change that is meant to alter them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

EXPECTED = Path(__file__).with_name("quick-verdicts.json")
NONE = "no such claim"


def verdicts(path: Path) -> tuple[str, dict[str, str]]:
    """Return the paper of a comparison, and the verdict of each of its claims."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["paper"], {
        f"{row['claim']} ({row['source']})": row["verdict"] for row in content["claims"]
    }


def differences(paper: str, expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return one line for each claim with another verdict than expected, or that only one of both has."""
    return [
        f"{paper}: {claim}: {found.get(claim, NONE)}, expected {expected.get(claim, NONE)}"
        for claim in sorted({*expected, *found})
        if expected.get(claim) != found.get(claim)
    ]


def main(argv: list[str]) -> int:
    """Compare, or write; the exit status is 1 if a verdict is another."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    lines: list[str] = []
    for paper, found in (verdicts(Path(name)) for name in argv if name != "--write"):
        lines += differences(paper, expected.get(paper, {}), found)
        expected[paper] = found
    if "--write" in argv:
        text = json.dumps(dict(sorted(expected.items())), indent=1, ensure_ascii=False)
        EXPECTED.write_text(f"{text}\n", encoding="utf-8")
        return 0
    print(*lines, sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
