"""Random scenarios for the agreement of compiled episodes with the SimPy engine; every number is given."""

import numpy as np
from hypothesis import strategies as st
from scenarios import Job, small_trace

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.oracle.base import OracleTables
from clustergym.scenario.costs import Costs, ProfilePrice
from clustergym.scenario.scenario import Scenario, list_allowed_counts, model_classes
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, Settings, Tenants, UsageWindow

KINDS = ("A100", "A40", "V100")
FAMILIES = ("a", "b", "c")
MOST = 12
"""Levels from which a class may begin to fit; beyond the last count it fits nowhere."""

groups = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 3, 4, 8])), min_size=1, max_size=len(KINDS)
)
fabrics = st.builds(
    Fabric,
    nodes_per_leaf=st.sampled_from([2, 1, 3, 4, 16]),
    leaves_per_minipod=st.sampled_from([8, 1, 2]),
    minipods=st.sampled_from([None, None, 1, 2, 3]),
)
models = st.tuples(
    st.sampled_from([1.0, 1e-7, 0.0333333, 2.71828, 60.0, 60.0, 400.0]),  # seconds an iteration on one GPU
    st.sampled_from([1.0, 0.7, 0.0, -0.5]),  # how much faster it is on more GPUs
    st.sampled_from([1.125, 3.0, 1.0]),  # how much slower it is with each tier of the network
    st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, MOST]), min_size=len(KINDS), max_size=len(KINDS)),
    st.sampled_from([0.0, 0.5, 11.0, 1234.567891]),  # checkpoint, s
)
jobs = st.tuples(
    st.sampled_from([0.0, 0.0, 0.0, 1e-6, 0.5, 30.0, 300.0, 4000.0]),  # seconds after the job before it
    st.sampled_from([1, 7, 60, 200, 200]),  # iterations
    st.sampled_from([1, 1, 1, 2, 3, 4, 8, 16]),  # GPUs
    st.sampled_from([-1, -1, 0, 1, 2]),  # type
    st.sampled_from([0, 0, 1, 2]),  # family
    st.sampled_from([float("nan"), 0.0, 100.0, 5000.0]),  # seconds from submission to deadline
)
sizes = st.sampled_from([*range(1, 13), 16, 20, 25])


def _lists(size: int) -> st.SearchStrategy[list[tuple[float, int, int, int, int, float]]]:
    return st.lists(jobs, min_size=size, max_size=size)


profiles = st.builds(
    ProfilePrice,
    st.sampled_from([400.0, 30.0, 1e-7, 1e-6, 4000.0]),
    st.sampled_from([1, 1, 1, 2, 3, 5]),
    st.sampled_from(("each", "requested")),
    st.sampled_from(("job", "configuration")),
)
prices = st.builds(
    Costs,
    search=st.sampled_from(["proxy", "pruned", "full"]),
    search_s_per_gpu=st.sampled_from([{"pruned": 10.0, "full": 150.0}, {"pruned": 0.1, "full": 1e-6}]),
    profile=st.one_of(
        st.just({}), st.fixed_dictionaries({name: profiles for name in ("profiled", "bootstrap")})
    ),
    profile_reuse=st.sampled_from(["job", "model", "model"]),
    first_launch=st.booleans(),
)
rounds = st.sampled_from(["event", "event", 60.0, 300.0, 7.3, 1e-3, 1e-6, 3600.0])
horizons = st.sampled_from([None, None, None, 3700.0, 250.5, 60.0, 0.0])


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSpec:
    """Draw a small cluster of one to three GPU types."""
    made = (
        NodeGroup(GpuType(name, 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0), nodes, per_node)
        for name, (nodes, per_node) in zip(KINDS, draw(groups), strict=False)
    )
    return ClusterSpec("drawn", tuple(made), draw(fabrics))


queues = st.tuples(
    st.integers(-3, 5),  # parent; below 0, or no earlier queue: none
    st.sampled_from([0.0, 0.0, 1.0, 2.5, 8.0, None]),  # quota
    st.sampled_from([None, None, 8.0, 9.5]),  # limit
    st.sampled_from([1.0, 1.0, 0.0, 2.5]),  # weight
    st.sampled_from([100, 100, 50]),  # priority
    st.sampled_from([None, None, None, 2.0]),  # borrowing limit
    st.sampled_from([None, None, None, 1.0]),  # lending limit
)


@st.composite
def tenants(draw: st.DrawFn, jobs: int) -> Tenants:
    """Draw a tree of queues, and the leaf of each of so many jobs."""
    made: dict[str, Queue] = {}
    for at, (parent, quota, limit, weight, priority, borrowing, lending) in enumerate(
        draw(st.lists(queues, min_size=1, max_size=7))
    ):
        above = f"q{parent}" if 0 <= parent < at else None
        # A queue without siblings may not weigh nothing.
        weight = weight if above is None and at > 0 else 1.0
        made[f"q{at}"] = Queue(
            above,
            (),
            quota,
            None if quota is None else limit,
            weight,
            priority,
            lending_limit=lending,
            borrowing_limit=borrowing,
        )
    history = UsageWindow(weight=draw(st.sampled_from([1.0, 0.0, 2.0])))
    tree = QueueTree(made, Settings(oversubscribe=True, history=history))
    leaves = st.integers(0, len(tree.leaves) - 1)
    return Tenants(tree, np.array(draw(st.lists(leaves, min_size=jobs, max_size=jobs)), dtype=np.int64))


def _execution(
    cluster: ClusterSpec, counts: list[int], chosen: tuple[float, float, float, list[int], float]
) -> np.ndarray:
    """Return the times of one model class, shape (T, K, 4)."""
    base_s, gain, farther, first, _ = chosen
    gpus, tiers = np.array(counts, dtype=np.float64), farther ** np.arange(4)
    time_s = (base_s * gpus**-gain)[None, :, None] * (1.0 + np.arange(len(cluster.groups)))[:, None, None]
    fits = np.arange(len(counts)) >= np.array(first[: len(cluster.groups)])[:, None]
    fits &= gpus <= cluster.capacity[:, None]
    return np.where(fits[..., None], time_s * tiers, np.inf)


@st.composite
def agreement_scenarios(draw: st.DrawFn, cluster: ClusterSpec | None = None) -> Scenario:
    """Draw a scenario, on a given cluster or a drawn one."""
    spec = draw(clusters()) if cluster is None else cluster
    rule = "power_of_two" if cluster is not None else draw(st.sampled_from(["power_of_two", "any"]))
    rule = rule if spec.capacity.max() <= 24 else "power_of_two"
    counts, drawn = list_allowed_counts(spec, rule), draw(sizes.flatmap(_lists))
    chosen, longer = [draw(models) for _ in FAMILIES], draw(st.sampled_from([1.0, 100.0]))
    submit, rows = 0.0, []
    for at, (gap, iterations, gpus, kind, family, allowed_s) in enumerate(drawn):
        submit = round(submit + gap, 6)
        name = KINDS[kind] if 0 <= kind < len(spec.groups) else ""
        rows.append(Job(f"j{at}", submit, iterations, gpus, name, FAMILIES[family], submit + allowed_s))
    trace = small_trace(rows)
    classes = model_classes(trace)
    models_of = [chosen[FAMILIES.index(model.family)] for model in classes]
    execution = longer * np.stack([_execution(spec, counts, model) for model in models_of])
    data_parallel = execution.copy()
    data_parallel[:, :, 1::3] = np.inf
    return Scenario(
        name="drawn",
        version=0,
        cluster=spec,
        trace=trace,
        tables=OracleTables(
            classes, spec.gpu_types, np.array(counts), execution, execution * 1.25, data_parallel
        ),
        checkpoint_s=np.array([model[4] for model in models_of]),
        costs=draw(prices),
        rounds=draw(rounds),
        horizon_s=draw(horizons),
        oversize="drop",
        counts_rule=rule,
    )
