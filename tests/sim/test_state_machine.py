"""Random legal decisions under failures, planned jobs, shared links and profiles, checked from the event log.

FUZZ_STEPS=100000 python -m pytest tests/sim/test_state_machine.py -s -p no:xdist
"""

import contextlib
import os
import time
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from accountant import Accountant
from clustergym.policies.placers.buddy import Buddy
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from wild_scenarios import informed, wild_scenarios

from clustergym.scenario.policy import Decision, Infeasible, InformationClass, Placer, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import replay
from clustergym.sim.engine import Simulation, StalledError

STEPS = int(os.environ.get("FUZZ_STEPS", "1200"))
EPISODE = 50

picks = st.integers(0, 2**16)
placers = st.sampled_from(["buddy", "scattering"])


class Scattering(Placer):
    """Places on random nodes, often proposes to move jobs, and now and then finds no nodes."""

    name, defragment_s = "scattering", 20.0

    def reset(self, cluster, rng):
        self.rng = rng

    def place(self, allocations, gpu_type, gpus):
        if self.rng.random() < 0.1:
            return Infeasible("it would not")
        return self._anywhere(allocations, allocations.free_on_node.copy(), gpu_type, gpus)

    def _anywhere(self, allocations, free, gpu_type, gpus):
        free[allocations.spec.node_type != gpu_type] = 0
        units = self.rng.permutation(np.repeat(np.arange(len(free)), free))[:gpus]
        nodes, counts = np.unique(units, return_counts=True)
        return tuple(zip(nodes.tolist(), counts.tolist(), strict=True))

    def defragment(self, allocations):
        moves = []
        for holder in [row for row in allocations.holders if row >= 0]:
            nodes, free = allocations.holding(holder), allocations.free_on_node.copy()
            for node, gpus in nodes:
                free[node] += gpus
            kind, gpus = int(allocations.spec.node_type[nodes[0][0]]), sum(count for _, count in nodes)
            moves.append((holder, self._anywhere(allocations, free, kind, gpus)))
        return moves


PLACERS = {"buddy": lambda: Buddy(defragment_s=100.0), "scattering": Scattering}


class Cluster(RuleBasedStateMachine):
    """Every step is a decision on one run, or begins the next run."""

    counted: ClassVar[Counter[str]] = Counter()

    @initialize(scenario=wild_scenarios(), information=informed, placer=placers, seed=st.integers(0, 3))
    def begin(self, scenario: Scenario, information: InformationClass, placer: str, seed: int) -> None:
        self.scenario, self.information, self.placer, self.seed = scenario, information, placer, seed
        self.simulation = self.fresh()
        self.books = Accountant(scenario, information)
        self.decisions: list[Decision] = []
        self.counted["runs"] += 1
        self.continue_run()

    @precondition(lambda self: self.view is None)
    @rule(scenario=wild_scenarios(), information=informed, placer=placers, seed=st.integers(0, 3))
    def begin_another(self, **chosen: Any) -> None:
        self.begin(**chosen)

    def fresh(self) -> Simulation:
        return Simulation(self.scenario, PLACERS[self.placer](), self.information, None, self.seed)

    # Decisions

    @precondition(lambda self: self.view is not None and self.view.gpus.any())
    @rule()
    def keep(self) -> None:
        self.decide("keep", Decision.keep(self.view))

    @precondition(lambda self: self.view is not None and (self.view.gpus == 0).any())
    @rule(chosen=st.lists(st.tuples(picks, picks), min_size=1, max_size=4))
    def launch(self, chosen: list[tuple[int, int]]) -> None:
        waiting = np.flatnonzero(self.view.gpus == 0)
        self.give("launch", {int(waiting[job % len(waiting)]): option for job, option in chosen})

    @precondition(lambda self: self.view is not None and self.view.gpus.any())
    @rule(chosen=st.lists(st.tuples(picks, picks), min_size=1, max_size=3))
    def rescale(self, chosen: list[tuple[int, int]]) -> None:
        running = np.flatnonzero(self.view.gpus)
        self.give("rescale", {int(running[job % len(running)]): option for job, option in chosen})

    @precondition(lambda self: self.view is not None and (self.view.gpus > 0).sum() > 1)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3))
    def preempt(self, chosen: list[int]) -> None:
        running = np.flatnonzero(self.view.gpus)
        leave = {int(running[job % len(running)]) for job in chosen}
        self.decide("preempt", self.of(self.kept(leave)))

    @precondition(lambda self: self.view is not None and len(self.view) > 3)
    @rule(job=picks)
    def drop(self, job: int) -> None:
        at = job % len(self.view)
        self.decide("drop", self.of(self.kept({at}), [int(self.view.job[at])]))

    @precondition(lambda self: self.view is not None and len(self.view))
    @rule(draw=picks)
    def retarget(self, draw: int) -> None:
        """Give every job a new allotment or none."""
        rng, free, target = np.random.default_rng(draw), self.view.available.copy(), {}
        for at in rng.permutation(len(self.view)).tolist():
            options = self.options(at, free)
            if options and rng.random() < 0.8:
                target[at] = options[rng.integers(len(options))]
                free[target[at][0]] -= target[at][1]
        self.decide("retarget", self.of(target))

    @precondition(
        lambda self: (
            self.view is not None and self.view.gpus.any() and self.scenario.tables.batches is not None
        )
    )
    @rule(job=picks, size=st.sampled_from([0, 16, 64, 256]))
    def change_batch(self, job: int, size: int) -> None:
        decision = Decision.keep(self.view)
        batch = decision.batch.copy()
        batch[job % len(batch)] = size
        self.decide("batch", replace(decision, batch=batch))

    @precondition(lambda self: self.view is not None and len(self.view))
    @rule(job=picks, wrong=st.sampled_from(["count", "type", "twice", "stranger", "too many"]))
    def refused(self, job: int, wrong: str) -> None:
        """What is not legal is refused, and leaves no trace."""
        row, kept = int(self.view.job[job % len(self.view)]), list(self.kept(set(range(len(self.view)))))
        bad = {
            "count": [(row, 0, 3)],
            "type": [(row, 9, 1)],
            "twice": [(row, 0, 1), (row, 0, 1)],
            "stranger": [(len(self.scenario.trace), 0, 1)],
            "too many": [(int(one), 0, 8) for one in self.view.job] + [(row, 0, 8)],
        }[wrong]
        before = self.simulation.log.digest
        with pytest.raises(DecisionError):
            self.simulation.apply(Decision.of([*kept, *bad]))
        assert self.simulation.log.digest == before
        self.counted["refused"] += 1

    # Their parts

    def kept(self, without: set[int]) -> dict[int, tuple[int, int]]:
        held = np.flatnonzero(self.view.gpus).tolist()
        return {
            at: (int(self.view.gpu_type[at]), int(self.view.gpus[at])) for at in held if at not in without
        }

    def options(self, at: int, free: Any) -> list[tuple[int, int]]:
        counts = self.view.setting.counts
        fits = np.argwhere(self.view.feasible[at])
        return [(int(kind), int(counts[k])) for kind, k in fits if counts[k] <= free[kind]]

    def give(self, what: str, chosen: dict[int, int]) -> None:
        """Give the chosen jobs allotments that fit beside what the others keep."""
        target, free = self.kept(set(chosen)), self.view.available.copy()
        for kind, gpus in target.values():
            free[kind] -= gpus
        for at, option in chosen.items():
            options = self.options(at, free)
            if options:
                target[at] = options[option % len(options)]
                free[target[at][0]] -= target[at][1]
        self.decide(what, self.of(target))

    def of(self, target: dict[int, tuple[int, int]], drop: Any = ()) -> Decision:
        decision = Decision.of(((int(self.view.job[at]), *one) for at, one in target.items()), drop)
        batches = self.view.batch[list(target)] if self.scenario.tables.batches is not None else None
        return replace(decision, batch=batches)

    def decide(self, what: str, decision: Decision) -> None:
        self.counted[what] += 1
        self.counted["decisions"] += 1
        self.decisions.append(decision)
        self.simulation.apply(decision)
        self.books.follow(self.simulation.log.events)
        self.check_enacted(decision)
        self.continue_run()

    def continue_run(self) -> None:
        try:
            self.view = self.simulation.advance()
        except StalledError:
            self.view = None
            self.counted["stalled"] += 1
            self.check_end(stalled=True)
            return
        self.books.follow(self.simulation.log.events)
        if self.view is None:
            self.check_end(stalled=False)
        else:
            self.check_view(self.view)

    # Checks

    def check_enacted(self, decision: Decision) -> None:
        """Each job holds what was decided, or found no nodes."""
        wanted = {
            int(row): (int(kind), int(gpus))
            for row, kind, gpus in zip(decision.job, decision.gpu_type, decision.gpus, strict=True)
        }
        for row in self.view.job.tolist():
            job = self.books.jobs[row]
            holds = (job.gpu_type, job.gpus) if job.gpus else None
            nodes_missed = holds is None and job.unplaced_at == self.books.now
            assert holds == wanted.get(row) or nodes_missed
        assert all(self.books.jobs[int(row)].phase == "left" for row in decision.drop)

    def check_view(self, view: View) -> None:
        """What a policy is shown is what the books say."""
        books = self.books
        assert round(view.now_s * 1e6) >= books.now
        books.now = max(round(view.now_s * 1e6), books.now)
        assert view.free.tolist() == books.free()
        there = [row for row, job in enumerate(books.jobs) if job.phase in ("queued", "running")]
        kinds = range(len(view.setting.gpu_types))
        seen = [row for row in there if row not in books.planned and any(books.knows(row, k) for k in kinds)]
        assert view.job.tolist() == seen
        for at, row in enumerate(seen):
            job = books.jobs[row]
            assert (view.gpu_type[at], view.gpus[at], view.restarts[at]) == (
                job.gpu_type,
                job.gpus,
                job.restarts,
            )
            left = job.left_at(books.now) if job.gpus else job.left
            assert abs(view.remaining_iterations[at] - left) <= (job.slack(books.now) if job.gpus else 1e-3)
            assert abs(view.attained_gpu_s[at] - books.held_gpu_s(row)) < 1e-6
            assert [bool(fits.any()) for fits in view.feasible[at]] == [
                bool(fits.any()) and books.knows(row, kind)
                for kind, fits in enumerate(self.scenario.feasible[self.scenario.class_of[row]])
            ]

    def check_end(self, stalled: bool) -> None:
        """The log adds up to its end, and the decision log gives it again."""
        simulation, books = self.simulation, self.books
        books.follow(simulation.log.events)
        books.close_instant()
        times = [change.time_s for change in simulation.changes]
        assert times == sorted(set(times)), "an instant has two decisions"
        horizon_s = self.scenario.horizon_s
        if not stalled and (horizon_s is None or simulation.end_s < horizon_s):
            assert {job.phase for job in books.jobs} == {"left"}
        assert horizon_s is None or books.now <= horizon_s * 1e6
        self.counted["replayed"] += 1
        if stalled:
            self.check_again()
            return
        placer, changes = PLACERS[self.placer](), simulation.changes
        again = replay(self.scenario, placer, self.information, None, self.seed, changes)
        assert again.log.events == simulation.log.events
        assert again.log.digest == simulation.log.digest

    def check_again(self) -> None:
        """The same decisions give the same log."""
        again = self.fresh()
        for decision in self.decisions:
            again.advance()
            again.apply(decision)
        with contextlib.suppress(StalledError):
            again.advance()
        assert again.log.events == self.simulation.log.events
        assert again.log.digest == self.simulation.log.digest

    def teardown(self) -> None:
        if getattr(self, "view", None) is not None:
            self.check_again()


def test_any_decisions() -> None:
    began, batch = time.process_time(), 0
    Cluster.counted = Counter()
    rounds = settings(
        max_examples=20,
        stateful_step_count=EPISODE,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    while Cluster.counted["decisions"] < STEPS:
        run_state_machine_as_test(seed(batch)(Cluster), settings=rounds)
        batch += 1
    print(f"\n{dict(Cluster.counted)} in {time.process_time() - began:.0f} s of CPU")
