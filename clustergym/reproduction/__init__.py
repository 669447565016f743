"""Published figures held against ours, one module for each paper.

A module has `SUMMARY`, a line for `--help`, and `reproduce(options) -> Report`, which raises an `InputError`
if the published data is not there or a policy is unknown.
"""

from __future__ import annotations

PAPERS = {
    "arena": "clustergym.reproduction.arena",
    "ares": "clustergym.reproduction.ares",
    "arnold": "clustergym.reproduction.arnold",
    "crius": "clustergym.reproduction.crius",
    "gavel": "clustergym.reproduction.gavel",
    "sia": "clustergym.reproduction.sia",
}
"""Module by the name that `python -m clustergym.reproduce` takes."""
