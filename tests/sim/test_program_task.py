"""Tasks of programs: what a score is, by hand, what comes back with it, and what a task may not say."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from clustergym.commands import evaluate
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.sim.program import Limits, Program
from clustergym.training import program_task
from clustergym.training.program_task import describe_worst_jobs, evaluate_program, load_task

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "program_srtf.py"
WRAPPED = "from clustergym.policies.{} import {}\nclass Mine({}):\n    pass\n"


def wrapped(tmp_path: Path, module: str, name: str) -> Path:
    """Write a program that is a policy of this project."""
    file = tmp_path / f"{module}.py"
    file.write_text(WRAPPED.format(module, name, name), encoding="utf-8")
    return file


def test_the_score_is_the_geometric_mean_of_reference_over_program(monkeypatch, tmp_path) -> None:
    """References 4 and 2 times the program's metric: sqrt(4 x 2) = 2.828..., the worst is 2."""
    task, file = load_task("elastic"), wrapped(tmp_path, "srtf", "ShortestRemainingTimeFirst")
    own = [program_task.compute_reference(task, seed) for seed in task.train[:2]]
    given = dict(zip(task.train, (4 * own[0], 2 * own[1]), strict=False))
    monkeypatch.setattr(program_task, "compute_reference", lambda task, seed: given[seed])
    outcome = evaluate_program(file, task, traces=2)
    assert outcome["artifacts"]["score"] == pytest.approx([4.0, 2.0])
    assert outcome["combined_score"] == outcome["metrics"]["combined_score"] == pytest.approx(8**0.5)
    assert outcome["metrics"]["score_worst"] == pytest.approx(2.0)
    assert outcome["metrics"]["jct_mean"] == pytest.approx(np.mean(own))


def test_the_example_is_scored(capsys) -> None:
    assert evaluate.main(["--policy-file", str(EXAMPLE), "--traces", "1"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    artifacts = outcome["artifacts"]
    assert outcome["status"] == "success"
    assert 1.0 < outcome["combined_score"] == pytest.approx(artifacts["score"][0])
    assert outcome["combined_score"] == artifacts["reference_jct_mean"][0] / artifacts["jct_mean"][0]
    assert all(isinstance(one, float | int) for one in outcome["metrics"].values())
    assert [len(one) for one in artifacts.values() if isinstance(one, list)] == [1] * 7
    assert len(artifacts["worst_jobs"][0]) == 3
    assert "seed" not in json.dumps(outcome)


def test_the_worst_jobs_have_their_reasons_by_hand() -> None:
    """Three jobs take 100 s alone; a fourth has no time alone, as none of the cluster's types holds it.

    a waited 50 of 150 s; b ran 300 s, on half of its GPUs, so 200 s longer; c ran 160 s: of its 160
    GPU-seconds it stood still for 40, and 20 were lost.
    """
    jobs = {
        "queue_s": [50.0, 0.0, 0.0, 9.0],
        "run_s": [100.0, 300.0, 160.0, 9.0],
        "held_gpu_s": [100.0, 300.0, 160.0, 9.0],
        "overhead_gpu_s": [0.0, 0.0, 40.0, 0.0],
        "lost_gpu_s": [0.0, 0.0, 20.0, 0.0],
        "iterations_done": [10.0] * 4,
    }
    columns = {name: np.array(one) for name, one in jobs.items()} | {"profile_s": np.zeros(4)}
    columns |= {"restarts": np.array([0, 1, 2, 0]), "failures": np.array([0, 0, 1, 0])}
    trace = SimpleNamespace(job_id=list("abcd"), model_family=["bert"] * 4, gpus=[2] * 4, gpu_type=[""] * 4)
    scenario = SimpleNamespace(trace=trace, reference_iteration_time_s=np.array([10.0, 10.0, 10.0, np.nan]))
    run = SimpleNamespace(simulation=SimpleNamespace(scenario=scenario))
    assert describe_worst_jobs(SimpleNamespace(run=run, jobs=SimpleNamespace(**columns))) == [
        "job b (bert, asks for 2 of any type): 300 s in the system, alone 100 s; waited 0 s, restarts: 1, "
        "failures: 0; most of it: fewer or slower GPUs than requested",
        "job c (bert, asks for 2 of any type): 160 s in the system, alone 100 s; waited 0 s, restarts: 2, "
        "failures: 1; most of it: standing still after launches",
        "job a (bert, asks for 2 of any type): 150 s in the system, alone 100 s; waited 50 s, restarts: 0, "
        "failures: 0; most of it: waiting for GPUs",
    ]


def test_queues_and_costs_of_stops_reach_a_program(tmp_path) -> None:
    """A policy that divides GPUs among queues, and one that weighs what stops cost, decide the same there."""
    task = load_task("tenants")
    scenario = program_task._make_scenario(task, task.train[0])
    # A dataclass sets its fields when it is made, so that one of the class alone counts for nothing.
    made = "    def __init__(self):\n        super().__init__(victims='cheapest')\n"
    text = WRAPPED.format("capacity", "Capacity", "Capacity") + made
    with Program(text, Limits()) as program:
        found = simulate(scenario, program, make_placer(task.placer))
    alone = make_policy({"name": "capacity", "victims": "cheapest"})
    log = simulate(scenario, alone, make_placer(task.placer)).simulation.log
    assert found.simulation.log.digest == log.digest
    without = simulate(scenario, make_policy({"name": "capacity"}), make_placer(task.placer)).simulation.log
    assert without.digest != log.digest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "elastik"], "unknown task 'elastik' (did you mean elastic?)"),
        (["--mode", "dev"], "unknown mode 'dev'"),
        (["--traces", "9"], "the task has 8 of mode train"),
        (["--task", "no/such.yaml"], "no such file"),
        (["--user", "nobody-at-all"], "--user"),
    ],
)
def test_words_that_are_wrong_are_refused(words, said, capsys) -> None:
    assert evaluate.main(["--policy-file", str(EXAMPLE), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"metric": "gpu_utilization"}, "metric: unknown metric where lower is better 'gpu_utilization'"),
        ({"test": [1]}, "test: [1] is not valid"),
        ({"train": []}, "train: no seed is not valid (list seeds"),
        ({"limits": {"cpu_s": 0}}, "limits.cpu_s"),
        ({"reference": {"name": "srtff"}}, "did you mean srtf"),
    ],
)
def test_a_task_that_is_wrong_is_refused_with_its_line(keys, said, tmp_path) -> None:
    content = yaml.safe_load((conf_dir() / "task" / "elastic.yaml").read_text(encoding="utf-8"))
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content | keys), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_task(str(file))
    assert said in str(error.value)
    assert str(error.value).startswith(f"{file}:")
