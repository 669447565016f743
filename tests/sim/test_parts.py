"""Jobs that ask for parts of GPUs, CPU and memory, on nodes that can be divided."""

import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import clustergym
from clustergym.cluster.allocation import AllocationError, PartAllocations
from clustergym.cluster.parts import WHOLE, Place
from clustergym.common.errors import InputError
from clustergym.results.bounds.bounds import build_programme, lower_bounds
from clustergym.results.folder_replay import replay_folder
from clustergym.results.measured_run import make_result, measure_run
from clustergym.results.placement_log import (
    PlacementError,
    ReplayingPlacer,
    answer_lines,
    simulate_recorded,
)
from clustergym.results.run_job import run_policy
from clustergym.scenario.by_name import compose
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.policy import Decision
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import drive, replay, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import LAUNCHES, EventType
from clustergym.sim.state import Phase

HEADER = (
    "job_id,submit_s,model_family,global_batch,iterations,gpus,gpu_milli,cpu_milli,memory_mib,gpu_models\n"
)
PLACERS = {
    **{name: {"name": "parts", "score": name} for name in ("dot-product", "gpu-clustering", "fgd")},
    **{
        name: {"name": "minipod", "algorithm": name.replace("-", "_")}
        for name in ("random-fit", "gpu-packing", "best-fit")
    },
}
"""What conf/placer/NAME.yaml says."""


@cache
def base(*overrides):
    return compose(["scenario=sharing", *overrides])


@pytest.mark.slow
def test_placers_have_presets_of_these_names():
    for name, parameters in PLACERS.items():
        assert compose([f"placer={name}"])["placer"] == {**parameters, "defragment_s": None}


def scenario_of(tmp_path, nodes, jobs, *overrides):
    """Return a scenario of (model, GPUs, cores) nodes with 1,000 MiB each, and of rows of `HEADER`."""
    listed = [
        {"gpu_type": model, "count": 1, "gpus_per_node": gpus, "cpu_milli": 1000 * cores, "memory_mib": 1000}
        for model, gpus, cores in nodes
    ]
    trace, cluster = tmp_path / "jobs.csv", tmp_path / "nodes.yaml"
    trace.write_text(HEADER + "\n".join(jobs) + "\n")
    cluster.write_text(f"name: small\nnodes: {listed}\n")
    files = ["cluster=file", f"cluster.path={cluster}", "trace=file", f"trace.path={trace}"]
    return build_scenario(compose(["scenario=sharing", *files, *overrides]))


def run_of(scenario, policy="fcfs", placer="best-fit", seed=0, **parameters):
    chosen = make_placer(PLACERS[placer])
    return simulate(scenario, make_policy({"name": policy, **parameters}), chosen, seed)


@cache
def generated():
    """Return a scenario of generated jobs on 9 nodes, which are too few for them."""
    shapes = [("G2", 8, 96_000, 393_216, 4), ("T4", 2, 104_000, 524_288, 5)]
    names = ("gpu_type", "gpus_per_node", "cpu_milli", "memory_mib", "count")
    nodes = [dict(zip(names, shape, strict=True)) for shape in shapes]
    config = base("trace.jobs=120", "trace.load=2.0")
    return build_scenario({**config, "cluster": {"name": "nine", "nodes": nodes}})


def starts(run):
    return {
        run.simulation.scenario.trace.job_id[e.job]: (e.time_s, e.nodes[0][0], e.devices)
        for e in run.simulation.log.events
        if e.event_type == EventType.START
    }


def test_parts_of_one_gpu_by_hand(tmp_path):
    # One GPU. a has 0.6 of it from 0 to 10 s, b 0.4 from 1 to 6 s. c asks for 0.5 at 2 s: 0.4 are free after
    # b, so it waits for a and runs from 10 to 20 s.
    jobs = ["a,0,recorded,1,10,1,600,0,0,", "b,1,recorded,1,5,1,400,0,0,", "c,2,recorded,1,10,1,500,0,0,"]
    result = make_result(run_of(scenario_of(tmp_path, [("T4", 1, 8)], jobs)))
    assert result.jobs.jct_s.tolist() == [10, 5, 18]
    assert result.jobs.queue_s.tolist() == [0, 0, 8]
    assert result.jobs.held_gpu_s == pytest.approx([6, 2, 5], abs=1e-9)
    # From the first to the last submission, 0 to 2 s, 0.6 and then all of the GPU are allocated.
    metrics = result.metrics
    assert metrics["gpu_allocation"] == pytest.approx(0.8, abs=1e-9)
    # (6 + 2 + 5) GPU-seconds of 20.
    assert metrics["gpu_utilization"] == pytest.approx(13 / 20, abs=1e-9)
    assert metrics["queue_mean_part"] == pytest.approx(8 / 3, abs=1e-9)
    assert metrics["queue_mean_one_gpu"] is None
    # Partly used from 0 to 1 s.
    assert metrics["partly_used_nodes"] == pytest.approx(0.5, abs=1e-9)
    assert result.timeline.held_gpus[:, 0].tolist() == [0.6, 1.0, 1.0, 0.6, 0.5, 0.0]


def test_a_bound_counts_parts_as_such(tmp_path):
    # Two halves of a GPU for 10 s each run beside each other: no bound is above their mean JCT of 10 s.
    jobs = ["a,0,recorded,1,10,1,500,0,0,", "b,0,recorded,1,10,1,500,0,0,", "c,0,recorded,1,10,0,0,1000,0,"]
    scenario = scenario_of(tmp_path, [("T4", 1, 8)], jobs)
    assert lower_bounds(scenario) == (10, 10)
    assert make_result(run_of(scenario)).metrics["jct_mean"] == 10
    with pytest.raises(InputError, match="parts of GPUs, which the bound counts whole"):
        build_programme(scenario, "jct_mean")


def test_fragmentation_by_hand(tmp_path):
    # a has 0.7 of the GPU from 0 s on, b asks for all of it at 10 s. Both are usual, each of half the jobs:
    # of the 0.3 idle neither can use anything. At b's submission the average ends.
    jobs = ["a,0,recorded,1,20,1,700,0,0,", "b,10,recorded,1,5,1,1000,0,0,"]
    metrics = make_result(run_of(scenario_of(tmp_path, [("T4", 1, 8)], jobs))).metrics
    assert metrics["fragmentation"] == pytest.approx(0.3, abs=1e-9)
    # With 0.2 more for c, which fits in the 0.3, two of three jobs cannot use them.
    jobs.append("c,40,recorded,1,5,1,200,0,0,")
    metrics = make_result(run_of(scenario_of(tmp_path, [("T4", 1, 8)], jobs))).metrics
    # 20 s at 2/3 of 0.3; then b has all for 5 s, then nothing is asked for until 40 s: nobody lacks anything.
    assert metrics["fragmentation"] == pytest.approx(20 * 0.2 / 40, abs=1e-9)


@pytest.mark.slow
def test_cpu_memory_and_models_by_hand(tmp_path):
    # Node 0: 1 T4, 8 cores. Node 1: 1 P100, 4 cores. Both 1,000 MiB.
    jobs = [
        "cores,0,recorded,1,10,0,0,6000,0,",  # fits on node 0 alone
        "p100,0,recorded,1,10,1,1000,0,0,P100",  # on node 1, though node 0 is tighter
        "more,0,recorded,1,10,1,500,3000,0,T4|P100",  # node 0 has 2 cores left, node 1 no GPU: waits
        "memory,1,recorded,1,10,0,0,0,1001,",  # no node has 1,001 MiB
    ]
    run = run_of(scenario_of(tmp_path, [("T4", 1, 8), ("P100", 1, 4)], jobs), backfill="aggressive")
    assert starts(run) == {"cores": (0, 0, 0), "p100": (0, 1, 1), "more": (10, 1, 1)}
    dropped = [e for e in run.simulation.log.events if e.event_type == EventType.DROP]
    assert [(e.time_s, e.reason) for e in dropped] == [(1.0, "fits nowhere")]
    assert make_result(run).metrics["jobs_dropped"] == 1


def test_the_head_of_the_queue_blocks_unless_backfilled(tmp_path):
    jobs = ["a,0,recorded,1,10,1,600,0,0,", "b,1,recorded,1,10,1,1000,0,0,", "c,2,recorded,1,4,1,400,0,0,"]
    scenario = scenario_of(tmp_path, [("T4", 1, 8)], jobs)
    assert {job: at[0] for job, at in starts(run_of(scenario)).items()} == {"a": 0, "b": 10, "c": 20}
    aggressive = starts(run_of(scenario, backfill="aggressive"))
    assert {job: at[0] for job, at in aggressive.items()} == {"a": 0, "c": 2, "b": 10}


def test_a_shorter_job_takes_the_place_of_the_longest_on_one_node(tmp_path):
    # Two nodes of one GPU. long has 0.5 of node 0 beside short, other all of node 1. new asks for 0.5 and is
    # shorter than long and other. Without them node 0 is the fuller one, so long is stopped, and goes on when
    # short ends.
    jobs = [
        "other,0,recorded,1,90,1,1000,0,0,",
        "long,0,recorded,1,100,1,500,0,0,",
        "short,0,recorded,1,8,1,500,0,0,",
        "new,5,recorded,1,10,1,500,0,0,",
    ]
    run = run_of(scenario_of(tmp_path, [("T4", 1, 8), ("T4", 1, 8)], jobs), policy="srtf")
    kinds = (EventType.PREEMPT, EventType.RESUME)
    names = run.simulation.scenario.trace.job_id
    seen = [
        (e.event_type, names[e.job], e.time_s) for e in run.simulation.log.events if e.event_type in kinds
    ]
    assert seen == [(EventType.PREEMPT, "long", 5.0), (EventType.RESUME, "long", 8.0)]
    # It had worked for 5 s: 95 are left from 8 s on.
    assert make_result(run).jobs.end_s.tolist() == [90, 103, 8, 15]


@pytest.mark.slow
@pytest.mark.parametrize("placer", PLACERS)
def test_replays_are_equal(placer):
    scenario = generated()
    policy = make_policy({"name": "srtf" if placer == "fgd" else "fcfs"})
    chosen = make_placer(PLACERS[placer])
    run, recorded = simulate_recorded(scenario, policy, chosen, 3)
    digest = run.simulation.log.digest
    again = replay(scenario, chosen, policy.information_class, None, 3, run.simulation.changes)
    assert again.log.digest == digest

    def follow_answers():
        placer = ReplayingPlacer(recorded.answers, None)
        told = Simulation(scenario, placer, policy.information_class, policy.round_s, 3)
        placer.clock = lambda: told.now_s
        drive(told, policy, 3)
        placer.finish()
        return told.log.digest, placer.asked

    assert follow_answers() == (digest, len(recorded.answers))
    devices = [line.get("device") for line in answer_lines(scenario, recorded.answers)]
    assert any(device is not None for device in devices)
    taken = next(n for n, answer in enumerate(recorded.answers) if answer.device >= 0)
    recorded.answers[taken] = replace(recorded.answers[taken], device=31)
    with pytest.raises(PlacementError, match="GPU 31 of node"):
        follow_answers()


def test_random_fit_depends_on_the_seed():
    scenario = generated()
    digests = [run_of(scenario, placer="random-fit", seed=seed).simulation.log.digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_result_files_replay(tmp_path):
    config = compose(["scenario=sharing", "trace.jobs=60", "progress=false"])
    scenario = build_scenario(config)
    result, _ = run_policy(
        scenario, make_policy({"name": "fcfs"}), make_placer(config["placer"]), config, tmp_path
    )
    assert result["metrics"]["gpu_allocation"] > 0
    assert replay_folder(tmp_path)["equal"]


def check_account(account, running):
    """What is free and what running jobs have are all there is; nobody shares a whole device."""
    whole = account.spec.empty_nodes()
    cpu, memory, gpu = whole.cpu_milli.copy(), whole.memory_mib.copy(), whole.gpu_milli.copy()
    for row in running:
        cpu_milli, memory_mib, gpus, milli, models = account.parts.requests.unpack_row(
            int(account.parts.request[row])
        )
        (node, _), *_ = account.holding(row)
        devices = int(account.devices_of[row])
        assert bin(devices).count("1") == gpus
        assert not gpus or (models >> int(whole.model[node])) & 1
        cpu[node] -= cpu_milli
        memory[node] -= memory_mib
        for device in range(gpu.shape[1]):
            gpu[node, device] -= milli if (devices >> device) & 1 else 0
    for node in account.down:
        cpu[node] = memory[node] = gpu[node] = 0
    for name, expected in (("cpu_milli", cpu), ("memory_mib", memory), ("gpu_milli", gpu)):
        assert np.array_equal(getattr(account.nodes, name), expected), name
        assert expected.min() >= 0
    untouched = (account.nodes.gpu_milli == WHOLE).sum(axis=1)
    assert np.array_equal(account.free_on_node, untouched)
    assert account.free.tolist() == [untouched.sum()]


@pytest.mark.slow
def test_nothing_is_booked_twice():
    """Random places are tried, possible or not; `SHARING_ACTIONS=100000` tries more of them."""
    scenario, rng = generated(), np.random.default_rng(0)
    account, running = PartAllocations(scenario.cluster, scenario.parts), set()
    nodes, refused, given = len(scenario.cluster.node_gpus), 0, 0
    for _ in range(int(os.environ.get("SHARING_ACTIONS", "1500"))):
        row, node = int(rng.integers(len(scenario.trace))), int(rng.integers(-1, nodes + 1))
        action = rng.random()
        if row in running and action < 0.7:
            account.release(row)
            running.remove(row)
        elif action < 0.03 and 0 <= node < nodes:
            change = account.repair if node in account.down else account.fail
            idle = all(account.holding(held)[0][0] != node for held in running)
            if change == account.repair or idle:
                change(node)
        else:
            try:
                account.allocate(row, account.intend(row, Place(node, int(rng.integers(-1, 9)))))
                assert row not in running
                running.add(row)
                given += 1
            except AllocationError:
                refused += 1
        check_account(account, running)
    assert min(refused, given) > 100


@settings(max_examples=int(os.environ.get("SHARING_EXAMPLES", "12")), deadline=None)
@given(
    seed=st.integers(0, 1000),
    nodes=st.lists(
        st.tuples(st.integers(1, 8), st.integers(4, 100), st.integers(8, 400)), min_size=1, max_size=5
    ),
    policy=st.sampled_from(("fcfs", "sjf", "srtf", "las", "tiresias")),
    placer=st.sampled_from(sorted(PLACERS)),
    failures=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 900)), max_size=3),
)
def test_what_jobs_hold_is_there_after_every_decision(seed, nodes, policy, placer, failures):
    shapes = [
        {"gpu_type": "T4", "count": 1, "gpus_per_node": g, "cpu_milli": 1000 * c, "memory_mib": 1024 * m}
        for g, c, m in nodes
    ]
    config = base("trace.jobs=40", "trace.load=2.0")
    scenario = build_scenario({**config, "seed": seed, "cluster": {"name": "drawn", "nodes": shapes}})
    down = tuple(NodeFailure(float(at), n % len(nodes), float(s)) for n, (at, s) in enumerate(failures))
    if down:
        scenario = replace(scenario, disturbances=(Failures(down, checkpoint_every_s=60.0),))
    decides = make_policy({"name": policy})
    simulation = Simulation(scenario, make_placer(PLACERS[placer]), decides.information_class, None, seed)
    decides.reset(simulation.setting, np.random.default_rng(seed))
    while (view := simulation.advance()) is not None:
        simulation.apply(decides.schedule(view))
        account, phases = simulation.allocations, simulation.jobs
        running = np.flatnonzero(phases.phase == Phase.RUNNING).tolist()
        assert sorted(account.holders) == running
        check_account(account, running)
    measured = measure_run(simulation).metrics
    # A job that fits no node is dropped; all others end.
    assert measured["jobs_dropped"] == int((~scenario.parts.fits).sum())
    assert measured["jobs_finished"] == int(scenario.parts.fits.sum())
    assert measured["gpu_allocation"] <= 1


def test_nodes_fail_under_parts():
    scenario = generated()
    # Node 0 is out from 60 to 600 s, node 5 from 100 to 200 s.
    failures = Failures((NodeFailure(60.0, 0, 540.0), NodeFailure(100.0, 5, 100.0)), checkpoint_every_s=30.0)
    scenario = replace(scenario, disturbances=(failures,))
    run = run_of(scenario, placer="fgd")
    check_account(run.simulation.allocations, [])
    failed = [e for e in run.simulation.log.events if e.event_type == EventType.FAIL]
    assert len(failed) > 3
    for event in run.simulation.log.events:
        if event.event_type in LAUNCHES and 60 <= event.time_s < 600:
            assert event.nodes[0][0] != 0
    assert make_result(run).metrics["jobs_finished"] == len(scenario.trace)


def test_jobs_have_what_they_ask_for(tmp_path):
    jobs = ["a,0,recorded,1,10,1,600,0,0,", "b,0,recorded,1,10,1,600,0,0,"]
    scenario = scenario_of(tmp_path, [("T4", 2, 8)], jobs)
    placer = make_placer({"name": "parts"})
    simulation = Simulation(scenario, placer, make_policy({"name": "fcfs"}).information_class)
    view = simulation.advance()
    assert view.feasible[:, 0].sum(axis=1).tolist() == [1, 1]
    assert (view.parts.node.tolist(), view.parts.devices.tolist()) == ([-1, -1], [0, 0])
    assert view.parts.requests.gpu_milli[view.parts.request].tolist() == [600, 600]
    view.parts.nodes().gpu_milli[:] = 0
    assert view.parts.nodes().gpu_milli.tolist() == [[1000, 1000]]
    with pytest.raises(DecisionError, match="job a"):
        simulation.apply(Decision.of([(0, 0, 2)]))


@refused("divisible", words=True)
def test_who_cannot_divide_says_so(given, said):
    config = compose(["scenario=sharing", "trace.jobs=20", "policy=fcfs", *given])
    with said.of_error():
        simulate(build_scenario(config), make_policy(config["policy"]), make_placer(config["placer"]))


def test_requests_that_no_node_has(tmp_path):
    with pytest.raises(
        InputError, match=r"jobs.csv:2: gpus: job a asks for 3 x 1000 .*scenario.oversize=drop"
    ):
        _ = scenario_of(
            tmp_path, [("T4", 2, 8)], ["a,0,recorded,1,10,3,1000,0,0,"], "scenario.oversize=error"
        ).request_gpus
    with pytest.raises(InputError, match=r"jobs.csv:2: gpu_models: job a asks for A10.*did you mean A100"):
        scenario_of(tmp_path, [("A100", 2, 8)], ["a,0,recorded,1,10,1,500,0,0,A10"])


def test_the_api_runs_the_scenario():
    scenario = clustergym.load_scenario("sharing", ["trace.jobs=30"])
    assert clustergym.simulate(scenario, "fcfs", "parts").metrics["jobs_finished"] == 30
