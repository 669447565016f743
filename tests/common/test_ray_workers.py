"""Work on a Ray cluster of two workers gives what it gives in this process."""

import hashlib
import json
import os
import sys
import time
from functools import partial

import pytest
from error_lines import error_line

from clustergym.commands import evaluate as evaluate_command
from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.common.processes import check_processes, in_order, workers

TRAIN = [
    "agent=auction_es", "agent.scenarios.origin=synthetic", "agent.scenarios.jobs=[10, 20]",
    "agent.generations=2", "agent.population=4", "agent.episodes=2", "agent.validation=2",
    "agent.validate_every=1", "progress=false", "seed=3",
]  # fmt: skip
EVALUATE = [
    "policies=[fcfs, srtf]", "windows=3", "tuning_windows=1", "scenarios.origin=synthetic",
    "scenarios.jobs=[10, 20]", "ratios=[jct_mean]",
]  # fmt: skip


@pytest.fixture(scope="module")
def two_workers():
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'clustergym[ray]'")
    from ray.cluster_utils import Cluster

    # The workers need not find this file.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    cluster.shutdown()


def name_node(seconds: float) -> tuple[str, int]:
    import ray

    time.sleep(seconds)
    return ray.get_runtime_context().get_node_id(), os.getpid()


def refuse(number: int) -> int:
    if number == 2:
        raise InputError("is even", field="number", remedy="give another")
    return -number


def end_itself(number: int) -> None:
    os._exit(1)


@pytest.mark.slow
def test_tasks_run_on_both_workers_and_come_back_in_order(two_workers):
    with workers("ray") as run:
        nodes = {node for node, process in run(name_node, [1.0] * 4) if process != os.getpid()}
        assert list(run(partial(pow, 2), range(6))) == [1, 2, 4, 8, 16, 32]
    assert len(nodes) == 2
    assert list(in_order(refuse, [1, 3], "ray")) == [-1, -3]


@pytest.mark.slow
def test_what_a_task_refuses_is_said_as_if_it_ran_here(two_workers):
    with pytest.raises(InputError) as caught:
        list(in_order(refuse, [1, 2], "ray"))
    with pytest.raises(InputError) as here:
        list(in_order(refuse, [1, 2], 1))
    assert str(caught.value) == str(here.value)


@pytest.mark.slow
def test_a_worker_that_ends_is_one_line(two_workers):
    with pytest.raises(InputError, match="ended before its work was done"):
        list(in_order(end_itself, [1], "ray"))


@pytest.mark.slow
def test_a_population_on_ray_gives_the_same_bytes(two_workers, tmp_path):
    digests = []
    for name, processes in (("here", "1"), ("ray", "ray")):
        folder = tmp_path / name / "same"
        assert train_command.main([*TRAIN, f"processes={processes}", f"output={folder}"]) == 0
        digests.append(hashlib.sha256((folder / "same.safetensors").read_bytes()).hexdigest())
    assert digests[0] == digests[1]


@pytest.mark.slow
def test_an_evaluation_on_ray_gives_the_same_figures(two_workers, tmp_path):
    found = []
    for processes in ("1", "ray"):
        path = tmp_path / f"{processes}.json"
        assert evaluate_command.main([*EVALUATE, f"processes={processes}", f"json={path}"]) == 0
        found.append(json.loads(path.read_text(encoding="utf-8"))["groups"])
    assert found[0] == found[1]


def test_what_is_no_count_and_not_ray_is_refused():
    assert check_processes("ray") == "ray"
    assert check_processes(0) == 0
    for wrong in (-1, "many", 1.5, True):
        with pytest.raises(InputError, match="or ray"):
            check_processes(wrong)


def test_an_agent_without_a_population_is_not_trained_on_ray(tmp_path, capsys):
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    words = ["agent=ppo", "processes=ray", f"output={tmp_path / 'a'}"]
    assert train_command.main(words) == 2
    assert "has no population" in error_line(capsys)
