"""`python .ci/skips.py FILE…` compares the tests that were skipped, by reason, with `skips.txt`.

A FILE is what pytest's `--junitxml` writes. `--write` takes its skips instead, after a change that is meant.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

DATA = re.compile("CLUSTERGYM_DATA|published (data|step times)")
EXPECTED = Path(__file__).with_name("skips.txt")


def skips(path: Path) -> list[str]:
    """Return one line for each reason: the run, how many tests were skipped, and why."""
    # Written by pytest itself, one step before.
    messages = [str(one.get("message")) for one in ElementTree.parse(path).iter("skipped")]
    told = (re.sub(r"^.*?Skipped: ", "", message) for message in messages)
    found = Counter("needs the public data" if DATA.search(one) else one for one in told)
    return [f"{path.stem}: {number} {reason}" for reason, number in sorted(found.items())]


def main(argv: list[str]) -> int:
    """Compare, or write; the exit status is 1 if a number or a reason is another."""
    found = [line for name in argv if name != "--write" for line in skips(Path(name))]
    if "--write" in argv:
        EXPECTED.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        return 0
    expected = EXPECTED.read_text(encoding="utf-8").splitlines()
    others = sorted({*found} ^ {*expected})
    for line in others:
        print(f"skipped {'unexpectedly' if line in found else 'no more (see .ci/skips.txt)'}: {line}")
    return int(bool(others))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
