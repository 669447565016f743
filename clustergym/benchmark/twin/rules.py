"""Read the rules of a cluster from its scheduler's own output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from clustergym.common.errors import InputError
from clustergym.common.text_files import first_lines
from clustergym.scenario.tenants.cohorts import read_kueue_rules
from clustergym.scenario.tenants.slurm_rules import Rules, one_queue, read_accounts, read_config

REMEDY = "give what scontrol show config, sacctmgr -P show assoc or kubectl get clusterqueues -o json prints"


def read_rules(sources: Sequence[Path], by: Literal["account", "user"], fair_sharing: bool) -> Rules:
    """Read scheduling rules from files of Slurm or Kueue; a Slurm queue is an account or a user (`by`).

    Without Slurm's configuration jobs start by age and backfill, Slurm's defaults; without its accounts all
    jobs are in one queue.

    Raises
    ------
    InputError
        If a file is none of these.
    """
    rules = Rules(one_queue(), {"name": "slurm-multifactor", "round_s": None})
    kueue = [path for path in sources if "".join(first_lines(path)).lstrip()[:1] in ("{", "[", "a", "i")]
    if kueue:
        if len(kueue) < len(sources):
            raise InputError("mixes Kueue with Slurm", file=sources[0], remedy=REMEDY)
        return read_kueue_rules(kueue, fair_sharing)
    for path in sources:
        lines = first_lines(path)
        head = [cell.strip().lower() for cell in lines[0].split("|")] if lines else []
        if {"account", "user"} <= set(head):
            rules.queues, guessed = read_accounts(path, by)
        else:
            rules.policy, guessed = read_config(path)
        rules.guessed += guessed
    return rules
