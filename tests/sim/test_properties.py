"""Properties of any run: GPUs conserved, work conserved, replay identical."""

import itertools
from dataclasses import replace

import numpy as np
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, replays, small_scenario
from wild_scenarios import profiles, with_extras

from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.failures import NODE_FAIL
from clustergym.scenario.policy import Decision, InformationClass, Policy
from clustergym.sim.drive import simulate
from clustergym.sim.log import LAUNCHES, NO_JOB, EventType

GROUPS = {"X": (3, 4), "Y": (2, 2)}
TIMES = {
    "m": {"X": {1: 3.0, 2: 1.7, 4: 1.0, 8: 0.7}, "Y": {1: 5.0, 2: 3.1, 4: 2.0}},
    "big": {"X": {4: 2.3, 8: 1.3}, "Y": {}},
}


class RandomLegal(Policy):
    """Any legal decision may come out, drops included; jobs are started often enough to end."""

    name = "random"
    information_class = InformationClass.PROFILED

    def reset(self, setting, rng):
        self.rng = rng

    def schedule(self, view):
        free, chosen, drop = view.available.copy(), [], []
        for at in self.rng.permutation(len(view)):
            if self.rng.random() < 0.02:
                drop.append(int(view.job[at]))
                continue
            if view.gpus[at] and self.rng.random() < 0.6:
                options = [(int(view.gpu_type[at]), int(view.gpus[at]))]
            else:
                options = [(int(t), int(view.setting.counts[k])) for t, k in np.argwhere(view.feasible[at])]
            options = [(t, c) for t, c in options if c <= free[t]]
            if options:
                kind, gpus = options[self.rng.integers(len(options))]
                free[kind] -= gpus
                chosen.append((int(view.job[at]), kind, gpus))
        decision, options = Decision.of(chosen, drop), view.batch_options()
        if options is None:
            return decision
        sizes = options.sizes[np.searchsorted(view.job, decision.job)]
        return replace(decision, batch=self.rng.permuted(sizes, axis=1)[:, 0])


jobs_strategy = st.lists(
    st.tuples(
        st.floats(0, 300).map(lambda t: round(t, 3)),
        st.integers(1, 200),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from(["m", "m", "big"]),
    ),
    min_size=1,
    max_size=12,
)


profiling_strategy = st.one_of(
    st.just({"profile": {}}),
    st.fixed_dictionaries({"profile": profiles, "profile_reuse": st.sampled_from(("job", "model"))}),
)


def make(rows, rounds, profiling, horizon_s, search):
    jobs = [
        Job(f"j{i}", submit, iterations, gpus=gpus, family=family)
        for i, (submit, iterations, gpus, family) in enumerate(sorted(rows))
    ]
    return small_scenario(
        jobs,
        GROUPS,
        TIMES,
        checkpoint_s={"m": 11.0, "big": 23.5},
        costs=Costs(search=search, **profiling),
        rounds=rounds,
        horizon_s=horizon_s,
    )


@settings(max_examples=100, deadline=None)
@given(
    jobs_strategy,
    st.sampled_from(["event", 60.0, 7.5]),
    profiling_strategy,
    st.sampled_from([None, 250.0]),
    st.sampled_from(["proxy", "pruned"]),
    st.integers(0, 5),
    st.sets(st.sampled_from(["contention", "failures", "planned", "batches"])),
)
def test_any_run(rows, rounds, profiling, horizon_s, search, seed, extras):
    scenario = with_extras(make(rows, rounds, profiling, horizon_s, search), extras, seed)
    run = simulate(scenario, RandomLegal(), Buddy(defragment_s=100.0), seed)
    events = run.simulation.log.events
    assert_gpus_conserved(scenario, events)
    # Raises if a finished job did not do exactly its work, or any job more than it.
    measured = measure_run(run.simulation).metrics
    assert measured["jobs_submitted"] == sum(
        measured[name] for name in ("jobs_finished", "jobs_unfinished", "jobs_dropped")
    )
    assert replays(run.simulation, Buddy(defragment_s=100.0), seed)


GIVES_UP = (*LAUNCHES, "complete", "preempt", "fail", "drop", "profile_end")
TAKES = (*LAUNCHES, EventType.PROFILE_START)


def holder_of(event):
    profiling = event.event_type in (EventType.PROFILE_START, EventType.PROFILE_END)
    return ("profile", event.job, event.gpu_type) if profiling else event.job


def assert_gpus_conserved(scenario, events):
    """Account for every GPU anew, from the event log alone."""
    free, held, clock, down = scenario.cluster.node_gpus.copy(), {}, 0.0, set()
    for time_s, group in itertools.groupby(events, key=lambda event: event.time_s):
        assert time_s >= clock
        clock, batch = time_s, list(group)
        # Within an instant GPUs change hands: first all that is given up, then what is held at its end.
        for event in batch:
            if event.event_type in GIVES_UP:
                for node, gpus in held.pop(holder_of(event), ()):
                    free[node] += gpus
        last = {holder_of(event): event for event in batch if event.event_type in (*TAKES, *GIVES_UP)}
        for holder, event in last.items():
            if event.event_type in TAKES:
                held[holder] = event.nodes
                take(scenario, event, free)
        assert free.min() >= 0
        for event in batch:
            if event.job == NO_JOB:
                (down.add if event.event_type == NODE_FAIL else down.discard)(event.nodes[0][0])
        assert not down & {node for nodes in held.values() for node, _ in nodes}
    ended = {e.job for e in events if e.event_type in (EventType.COMPLETE, EventType.DROP)}
    assert not ended & set(held)


def take(scenario, event, free):
    assert sum(gpus for _, gpus in event.nodes) == event.gpus
    for node, gpus in event.nodes:
        assert scenario.cluster.node_type[node] == event.gpu_type
        free[node] -= gpus
