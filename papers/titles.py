"""Holds published figures against ours; each paper has a module.

A module has `SUMMARY`, a line for `--help`, and `reproduce(options) -> Report`, which raises an `InputError`
if the published data is not there or a policy is unknown. `texts/` has the prose of the pages.
"""

PAPERS = {
    "arena": "Arena (EuroSys '26)",
    "ares": "Ares (TACO 2025)",
    "arnold": "Arnold",
    "crius": "Crius (Arena's preprint)",
    "fgd": "FGD (ATC '23)",
    "gavel": "Gavel (OSDI '20)",
    "sia": "Sia (SOSP '23)",
}
"""The title of each paper, by its module, which is the name that `clustergym reproduce` takes."""
BY_WORKLOAD = ("fgd",)
"""Papers that take `--workloads` and `--seeds`."""
