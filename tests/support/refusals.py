"""What is refused, and the whole line that is said of it: `tests/golden/refused/NAME.txt`.

A line of such a file is an input, as YAML or as a command's words; the indented one below it is what is said.
`GOLDEN=write python -m pytest -n 0 FILE` writes what is said anew: look at the diff.
"""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from clustergym.common.errors import InputError

FOLDER = Path(__file__).parents[1] / "golden" / "refused"
INDENT = "    "
OF_LIBRARIES = re.compile(
    r"(is not valid YAML|broken JSON|\(choose from|was raised from the environment creator).*"
)
"""What libraries word, each version in its own way."""


class Said(NamedTuple):
    """The line that is said of an input."""

    path: Path
    given: str
    line: str

    def check(self, found: str, folder: Path | None = None) -> None:
        """Compare with the line that was said, without the name of a folder that is another in each run."""
        found = found.rstrip("\n").removeprefix("error: ")
        found = found.replace(f"{folder}/", "").replace(f"{folder}", "") if folder else found
        assert "\n" not in found
        found = OF_LIBRARIES.sub(r"\1 …", found)
        if os.environ.get("GOLDEN") == "write":
            lines = self.path.read_text(encoding="utf-8").split("\n")
            at = lines.index(self.given)
            lines[at + 1 : at + 1 + lines[at + 1].startswith(INDENT)] = [INDENT + found]
            self.path.write_text("\n".join(lines), encoding="utf-8")
        else:
            assert found == self.line, f"{self.path.name}: GOLDEN=write writes it anew"

    @contextmanager
    def of_error(self, folder: Path | None = None) -> Iterator[None]:
        """Expect the error whose line this is."""
        with pytest.raises(InputError) as refused:
            yield
        self.check(str(refused.value), folder)


def refused(name: str, *, words: bool = False) -> pytest.MarkDecorator:
    """Return a mark that gives a test each `given` of a file, and `said`."""
    path = FOLDER / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    cases = list[object]()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and not line.startswith(INDENT):
            given = shlex.split(line) if words else yaml.safe_load(line)
            told = below.removeprefix(INDENT) if below.startswith(INDENT) else ""
            cases.append(pytest.param(given, Said(path, line, told), id=line))
    return pytest.mark.parametrize(("given", "said"), cases)
