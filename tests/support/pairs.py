"""Small scenarios with pairs, and policies that pair jobs."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from clustergym.scenario.pairs import PairSpeeds
from clustergym.scenario.policy import Decision, InformationClass, Policy
from clustergym.scenario.scenario import Scenario


def with_pairs(
    scenario: Scenario,
    kept: Mapping[tuple[str, str], tuple[float, float]],
    missing: tuple[tuple[str, str], ...] = (),
) -> Scenario:
    """Let families share at every type and count: (family, family) -> what each keeps of its speed."""
    row = {model.family: at for at, model in enumerate(scenario.tables.classes)}
    shape = len(row), len(row), *scenario.feasible.shape[1:]
    table, lacks = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    for (first, second), (mine, theirs) in kept.items():
        if first in row and second in row:
            table[row[first], row[second]], table[row[second], row[first]] = mine, theirs
    for first, second in missing:
        lacks[row[first], row[second]] = lacks[row[second], row[first]] = True
    return replace(scenario, pairs=PairSpeeds(table, lacks, "free"))


class PairScript(Policy):
    """Decides what a table says: time -> ({job id: (type, count)}, pairs of job ids); between, keeps."""

    name = "pair-script"
    information_class = InformationClass.CLAIRVOYANT

    def __init__(self, scenario, entries):
        self.row = {name: row for row, name in enumerate(scenario.trace.job_id)}
        self.kind = {name: kind for kind, name in enumerate(scenario.cluster.gpu_types)}
        self.entries, self.views = dict(entries), []

    def schedule(self, view):
        self.views.append(view)
        if view.now_s not in self.entries:
            return Decision.keep(view)
        table, pairs = self.entries[view.now_s]
        decision = Decision.of((self.row[job], self.kind[kind], gpus) for job, (kind, gpus) in table.items())
        return decision.paired((self.row[first], self.row[second]) for first, second in pairs)


class RandomPairs(Policy):
    """Starts, moves, preempts and pairs jobs at random."""

    name = "random-pairs"
    information_class = InformationClass.CLAIRVOYANT

    def reset(self, setting, rng):
        self.rng = rng

    def schedule(self, view):
        free, chosen, pairs = view.available.copy(), {}, []
        options = view.pair_options()
        counts, rng = view.setting.counts, self.rng
        keep = Decision.keep(view)
        if len(keep.job) and rng.random() < 0.3:
            return keep
        for at in rng.permutation(len(view)).tolist():
            row = int(view.job[at])
            beside = [
                (other, kind, level)
                for other, (kind, level) in chosen.items()
                if not any(other in pair for pair in pairs)
                and options.allowed[
                    options.job_class[at],
                    options.job_class[np.searchsorted(view.job, other)],
                    kind,
                    level,
                ]
                and view.feasible[at, kind, level]
            ]
            if beside and rng.random() < 0.7:
                other, kind, level = beside[rng.integers(len(beside))]
                chosen[row] = (kind, level)
                pairs.append((row, other))
                continue
            allowed = [(t, k) for t, k in np.argwhere(view.feasible[at]).tolist() if counts[k] <= free[t]]
            if allowed and (not chosen or rng.random() < 0.9):
                kind, level = allowed[rng.integers(len(allowed))]
                free[kind] -= counts[level]
                chosen[row] = (kind, level)
        decision = Decision.of((row, kind, int(counts[level])) for row, (kind, level) in chosen.items())
        return decision.paired(pairs)
