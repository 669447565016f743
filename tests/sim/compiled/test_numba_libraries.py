"""Parts of compiled functions are optimised with the entries that call them, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

PARTS = """
from clustergym.sim.compiled.numba_cache import compile_part

@compile_part
def halve(number):
    if number % 2:
        raise ValueError("odd", number)
    return number // 2

@compile_part
def quarter(number):
    return halve(halve(number))
"""
ENTRY = """
import numpy as np
from parts import halve, quarter
from clustergym.sim.compiled.numba_cache import compile_entry
from clustergym.sim.compiled.numba_libraries import PartLibrary

@compile_entry
def quarters(numbers):
    total = 0
    for number in numbers:
        total += quarter(number)
    return total

print(quarters(np.array([8, 12])))
try:
    quarters(np.array([8, 6]))
except ValueError as error:
    print(error.args)
for part in (halve, quarter):
    print(part.__name__, [type(found.library) is PartLibrary for found in part.overloads.values()])
"""


def run(folder: Path, entry: str) -> list[str]:
    """Run an entry and its parts in a process of their own; return what it prints."""
    (folder / "parts.py").write_text(PARTS, encoding="utf-8")
    (folder / "entry.py").write_text(entry, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(folder / "entry.py")],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_part_has_no_machine_code_and_raises_its_errors_also_from_the_cache(tmp_path: Path) -> None:
    # 8 / 4 + 12 / 4 = 5; half of 6 is 3, which is odd.
    assert run(tmp_path, ENTRY) == ["5", "('odd', 3)", "halve [True]", "quarter [True]"]
    # An entry that comes from the cache does not even load its parts.
    assert run(tmp_path, ENTRY) == ["5", "('odd', 3)", "halve []", "quarter []"]
    # A changed entry is compiled from parts in the cache.
    changed = ENTRY.replace("total += quarter(number)", "total += 2 * quarter(number)")
    assert run(tmp_path, changed) == ["10", "('odd', 3)", "halve []", "quarter [False]"]
