"""Random scenarios in which anything may be switched on."""

from dataclasses import replace

import numpy as np
from batches import with_batches
from hypothesis import strategies as st
from scenarios import Job, price, small_scenario

from clustergym.cluster.spec import Fabric
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.disturbances.reservations import PlannedJobs, Reservation
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario

GROUPS = {"X": (3, 4), "Y": (2, 2), "Z": (4, 1)}
TIMES = {
    "m": {"X": {1: 3.0, 2: 1.7, 4: 1.0, 8: 0.7}, "Y": {1: 5.0, 2: 3.1, 4: 2.0}, "Z": {1: 4.0, 2: 2.2}},
    "big": {"X": {4: 2.3, 8: 1.3}, "Y": {}},
    "slow": {"X": {1: 2.0, 2: 2.5, 4: 3.0}, "Z": {1: 9.0}},
}
SLOWER = np.array([1.0, 1.125, 1.25, 1.5])
"""How much longer an iteration takes inside a node, a leaf, a minipod and across."""

moments = st.floats(0, 300).map(lambda t: round(t, 3))
informed = st.sampled_from(
    [
        InformationClass.PROFILED,
        InformationClass.PROFILED,
        InformationClass.CLAIRVOYANT,
        InformationClass.NONE,
    ]
)
rows = st.lists(
    st.tuples(
        moments,
        st.integers(1, 200),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from(["m", "m", "big", "slow"]),
        st.sampled_from(["", "X"]),
        st.sampled_from([float("nan"), 30.0, 900.0]),
    ),
    min_size=2,
    max_size=10,
)
profiles = st.builds(
    price,
    st.just("profiled"),
    st.sampled_from([33.0, 120.0]),
    st.sampled_from([1, 3]),
    st.sampled_from(("each", "requested")),
    st.sampled_from(("job", "configuration")),
)
prices = st.builds(
    Costs,
    search=st.sampled_from(["proxy", "pruned", "full"]),
    profile=st.one_of(st.just({}), profiles),
    profile_reuse=st.sampled_from(("job", "model")),
    first_launch=st.booleans(),
)
failures = st.lists(st.tuples(moments, st.integers(0, 8), st.floats(1, 90)), max_size=12)


EVERYTHING = ("contention", "failures", "planned", "batches")


@st.composite
def wild_scenarios(draw: st.DrawFn, extras: tuple[str, ...] = EVERYTHING) -> Scenario:
    """Draw a scenario in which any of the extras may be switched on."""
    jobs = [
        Job(f"j{at}", submit, iterations, min(gpus, 4) if kind == "slow" else gpus, kind, family, submit + s)
        for at, (submit, iterations, gpus, family, kind, s) in enumerate(
            sorted(draw(rows), key=lambda row: row[0])
        )
    ]
    scenario = small_scenario(
        jobs,
        GROUPS,
        TIMES,
        checkpoint_s={"m": 11.0, "big": 23.5, "slow": 3.0},
        costs=draw(prices),
        rounds=draw(st.sampled_from(["event", "event", 60.0, 7.5])),
        horizon_s=draw(st.sampled_from([None, None, 250.0])),
        oversize="drop",
    )
    tables = replace(scenario.tables, execution=scenario.tables.execution * SLOWER)
    fabric = Fabric(2, 1, spine_oversubscription=2.0, core_oversubscription=4.0)
    scenario = replace(scenario, tables=tables, cluster=replace(scenario.cluster, fabric=fabric))
    on = draw(st.sets(st.sampled_from(extras)))
    if "contention" in on:
        half = np.where(np.isfinite(scenario.execution), scenario.execution / 2, 0.0)
        scenario = replace(scenario, communication_s=half)
    if "batches" in on:
        scenario = with_batches(scenario, [16, 32, 64, 256], np.array([[30.0, 500.0, 90.0]]))
    if "failures" in on:
        scenario = replace(scenario, disturbances=(schedule(draw(failures)),))
    if "planned" in on:
        submit_s, lead_s = scenario.trace.submit_s, draw(st.sampled_from([0.0, 40.0]))
        planned = (Reservation(row, float(submit_s[row]) + 20.0, lead_s) for row in range(0, len(jobs), 3))
        scenario = replace(scenario, disturbances=(*scenario.disturbances, PlannedJobs(tuple(planned))))
    return scenario


def schedule(drawn: list[tuple[float, int, float]]) -> Failures:
    """Return the failures drawn, without those of a node that is down, each at a microsecond of its own."""
    back_s, kept = dict[int, float](), []
    for at, (time_s, node, repair_s) in enumerate(sorted(drawn), 1):
        if time_s > back_s.get(node, -1.0):
            kept.append(NodeFailure(round(time_s + at * 13e-6, 6), node, round(repair_s, 3)))
            back_s[node] = time_s + repair_s + 1e-3
    return Failures(tuple(kept), checkpoint_every_s=15.0)


def with_extras(scenario, extras, seed):
    """Add traffic of half of each iteration, nodes down a tenth of the time, every third job planned."""
    if "contention" in extras:
        half = np.where(np.isfinite(scenario.execution), scenario.execution / 2, 0.0)
        fabric = Fabric(1, 2, spine_oversubscription=2.0, core_oversubscription=4.0)
        cluster = replace(scenario.cluster, fabric=fabric)
        scenario = replace(scenario, cluster=cluster, communication_s=half)
    if "batches" in extras:
        scenario = with_batches(scenario, [16, 32, 64, 256], np.array([[30.0, 500.0, 90.0]]))
    if "failures" in extras:
        failures = Failures(mtbf_s=300.0, mttr_s=30.0, seed=seed, checkpoint_every_s=15.0)
        scenario = replace(scenario, disturbances=(failures,))
    if "planned" in extras:
        submit_s = scenario.trace.submit_s
        planned = (Reservation(row, submit_s[row] + 20.0, 40.0) for row in range(0, len(submit_s), 3))
        scenario = replace(scenario, disturbances=(*scenario.disturbances, PlannedJobs(tuple(planned))))
    return scenario
