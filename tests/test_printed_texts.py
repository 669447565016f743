"""What commands print about small, fixed inputs: the whole text, but for times of this machine and paths.

`GOLDEN=write python -m pytest -n 0 tests/test_printed_texts.py` writes `golden/texts/` anew.
"""

import re
from pathlib import Path

import pytest
from golden_texts import check_lines

from clustergym.__main__ import main

ROOT = Path(__file__).parents[1]
RUN = "run trace=philly-like cluster=arena-16 progress=false report=false trace.jobs=6"
TEXTS = {
    "trace": f"trace describe {ROOT}/traces/philly-like-160.csv",
    "trace-valid": f"trace validate {ROOT}/traces/philly-like-160-distributed.csv",
    "cluster": "cluster describe arena-a",
    "cluster-of-racks": "cluster describe llm-2026",
    "tree": "cluster draw llm-2026",
    "plans": "oracle explain --model llama3-8B --gpus 16xH100 --batch 256",
    "run": f"{RUN} policy=srtf hydra.run.dir=OUT/a",
    "run-of-parts": "run scenario=sharing trace.jobs=40 progress=false report=false hydra.run.dir=OUT/a",
}
AFTER = {"run": ["collect OUT/a", "replay OUT/a", "trace describe OUT/a/../a/none.csv"]}
"""Commands on what an earlier one wrote."""


def printed(words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that a command prints, without what is different in each run."""
    status = main(words.replace("OUT", str(folder)).split())
    shown = capsys.readouterr()
    lines = [f"$ {words.replace(str(ROOT), '.')}: {status}", *shown.out.splitlines()]
    lines += [f"stderr: {line}" for line in shown.err.splitlines()]
    text = "\n".join(lines).replace(str(folder), "OUT").replace(str(ROOT), ".")
    text = re.sub(r"[^ ]*/bin/clustergym", "clustergym", text)
    text = re.sub(r"[━─]{2,}", "─", text)
    return [re.sub(r" {3,}", "  ", line) for line in text.splitlines()]


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_command_prints(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    lines = []
    for words in (TEXTS[name], *AFTER.get(name, ())):
        lines += printed(words, tmp_path, capsys)
    check_lines(f"texts/{name}.txt", lines)
