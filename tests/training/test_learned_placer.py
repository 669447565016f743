"""The learned placer in any run: it repeats itself, all jobs end, and what is no checkpoint is refused."""

import numpy as np
import pytest
from error_lines import error_line
from scenarios import Job, small_scenario
from trainings import repeated

from clustergym.agents.minipods import NAMES
from clustergym.commands import run as run_command
from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.results.measured_run import simulate
from clustergym.results.result_writing import run_key
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.training.placer_checkpoints import NODES


@pytest.fixture
def always_waits(tmp_path):
    path = tmp_path / "waits.safetensors"
    NODES.save(path, np.array([100.0 if name == "wait" else 0.0 for name in NAMES]), {})
    return str(path)


@pytest.mark.parametrize("policy", ["sjf", "optimus"])
def test_jobs_that_wait_for_a_minipod_all_end(always_waits, policy):
    scenario = load_scenario("pretraining", ["costs=default", "trace.jobs=60", "trace.load=2.0"])
    chosen = {"name": "learned", "checkpoint": always_waits}
    one, two = (simulate(scenario, make_policy({"name": policy}), make_placer(chosen)) for _ in range(2))
    assert one.metrics["jobs_finished"] == 60
    assert one.digest == two.digest


def test_parts_of_nodes_are_placed_as_by_buddy():
    # Nodes of 4 GPUs: jobs of 1 and 2 never need a whole one.
    jobs = [Job(f"j{at}", 7 * at, 20 + at % 5, gpus=1 + at % 2) for at in range(30)]
    scenario = small_scenario(jobs, {"X": (3, 4)}, {"m": {"X": {1: 2.0, 2: 1.0}}})
    names = "learned", "buddy"
    runs = [simulate(scenario, make_policy({"name": "fcfs"}), make_placer({"name": name})) for name in names]
    assert runs[0].digest == runs[1].digest


def test_other_weights_are_another_run(tmp_path):
    scenario, policy = load_scenario("pretraining", ["trace.jobs=5"]), make_policy({"name": "sjf"})
    path, keys = tmp_path / "one.safetensors", set()
    for wait in (0.0, 1.0):
        NODES.save(path, np.full(len(NAMES), wait), {})
        keys.add(run_key(scenario, policy, make_placer({"name": "learned", "checkpoint": str(path)}), 0))
    assert len(keys) == 2


def test_what_is_no_checkpoint_of_a_placer_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["policy=sjf", "placer=learned", "scenario=pretraining", "trace.jobs=5", "hydra.run.dir=out"]
    assert run_command.main([*args, "placer.checkpoint=nowhere"]) == 2
    assert "no checkpoint 'nowhere'" in error_line(capsys)
    assert run_command.main([*args, "placer.checkpoint=elastic"]) == 2
    assert "want clustergym.placer/1" in error_line(capsys)
    NODES.save(tmp_path / "short.safetensors", np.zeros(3), {})
    with pytest.raises(InputError, match="train it anew"):
        NODES.load(str(tmp_path / "short.safetensors"))


SMALL = [
    "agent=placer_es", "progress=false", "agent.generations=3", "agent.population=4", "agent.episodes=2",
    "agent.seeds=2", "agent.validation=1", "agent.validate_every=2",
    "agent.scenarios=['scenario=pretraining trace.jobs=30']",
]  # fmt: skip


def test_training_repeats_itself_and_goes_on(tmp_path):
    assert len(repeated(SMALL, tmp_path, NODES)) == len(NAMES)


def test_training_on_parts_of_nodes_is_refused(tmp_path, capsys):
    words = "agent.scenarios=['scenario=testbed']"
    assert train_command.main([*SMALL, words, f"output={tmp_path / 'a'}"]) == 2
    assert "take jobs of whole nodes" in error_line(capsys)
