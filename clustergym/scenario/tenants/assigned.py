"""The queues of a scenario, and whose each job is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.scenario.tenants.queue_tree import QueueTree, amounts_of, load_queues, queues_by_member
from clustergym.trace.trace import Trace

BY_COLUMN = ("virtual_cluster", "user")
"""Columns of a trace of which each value may be a queue."""


def named_queues() -> dict[str, Path]:
    """Return the files of conf/queues by name."""
    return {path.stem: path for path in sorted((conf_dir() / "queues").glob("*.yaml"))}


@dataclass(frozen=True, eq=False)
class Tenants:
    """A tree of queues, and the queue of each of n jobs.

    Attributes
    ----------
    tree : QueueTree
    leaf : ndarray of int, shape (n,)
        Index into `tree.leaves`.
    """

    tree: QueueTree
    leaf: Ints

    @classmethod
    def of(cls, queues: str, trace: Trace, gpu_types: Sequence[str]) -> Tenants:
        """Return the queues that a configuration names.

        Parameters
        ----------
        queues : str
            A YAML file of queues, a name of conf/queues, or a column of `BY_COLUMN`: then each of its values
            is a queue, without quota and of equal weight.
        trace : Trace
        gpu_types : sequence of str
            The cluster's.

        Raises
        ------
        InputError
            If the file is wrong or names a GPU type that the cluster lacks, or a job has no queue.
        """
        if queues in BY_COLUMN:
            tree, by = queues_by_member(getattr(trace, queues)), queues
        else:
            tree = load_queues(named_queues().get(queues, Path(queues)))
            by = tree.settings.assign_by
        if not all(getattr(trace, by)) and tree.settings.unknown is None:
            row = getattr(trace, by).index("")
            remedy = "name a column that all jobs have, or in a file of queues unknown: QUEUE"
            raise InputError(f"job {trace.job_id[row]} has no {by}", field="scenario.queues", remedy=remedy)
        for name, queue in tree.queues.items():
            for unknown in set(amounts_of(queue)) - set(gpu_types):
                where, remedy = f"queues.{name}", nearest(unknown, gpu_types)
                raise InputError(f"the cluster has no {unknown}", file=queues, field=where, remedy=remedy)
        at = {name: place for place, name in enumerate(tree.leaves)}
        members = zip(getattr(trace, by), trace.job_id, strict=True)
        leaf = np.array([at[tree.leaf(member, job)] for member, job in members], dtype=np.int64)
        return cls(tree, leaf)

    def fingerprint(self) -> Any:
        """Return all that may change a run, as plain values."""
        return [self.tree.plain(), self.leaf.tolist()]
