"""Modules are found by their other names: commands by `python -m`, and what pickles and plugins name."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from clustergym.__main__ import COMMANDS
from clustergym.common.other_names import CLASSES, MODULES, PACKAGES, own_name

STORED = (
    "clustergym.cluster.divisible DivisibleCluster",
    "clustergym.cluster.spec ClusterSpec",
    "clustergym.envs.families ElasticEnv",
    "clustergym.envs.placement PlacementEnv",
    "clustergym.envs.placement_parameters PlacementParameters",
    "clustergym.envs.queue_costs QueueCourse",
    "clustergym.envs.scheduling_parameters SchedulingParameters",
    "clustergym.envs.sharing SharingEnv",
    "clustergym.envs.sharing_parameters SharingParameters",
    "clustergym.interface.policy InformationClass",
    "clustergym.models.catalog Catalog",
    "clustergym.oracle.base OracleTables",
    "clustergym.placement.instances Instance",
    "clustergym.scenarios.costs Costs",
    "clustergym.scenarios.scenario Scenario",
    "clustergym.scenarios.scenario_config Conditions",
    "clustergym.sharing.desk Desk",
    "clustergym.sharing.fragmentation Usual",
    "clustergym.sharing.streams Stream",
    "clustergym.workload.trace Trace",
)
"""Earlier module and name of what pickles of environments of each family store, and of their specs."""


@pytest.mark.parametrize("name", [*PACKAGES, *MODULES])
def test_every_other_name_is_of_a_module_that_is_there(name):
    own = own_name(f"clustergym.{name}")
    assert find_spec(own) is not None
    assert own_name(own) is None


def test_one_module_has_all_its_names():
    for other, own in (
        ("clustergym.interface.policy", "clustergym.scenario.policy"),
        ("clustergym.scenarios.disturbances.failures", "clustergym.scenario.disturbances.failures"),
        ("clustergym.inputs.errors", "clustergym.common.errors"),
        ("clustergym.terminal", "clustergym.common"),
        ("clustergym.learn.checkpoints", "clustergym.agents.checkpoints"),
        ("clustergym.envs.sharing_state", "clustergym.envs.sharing.state"),
    ):
        assert importlib.import_module(other) is importlib.import_module(own)
        assert importlib.import_module(own).__spec__.name == own
    with pytest.raises(ModuleNotFoundError, match=r"clustergym\.interface\.nothing"):
        importlib.import_module("clustergym.interface.nothing")


@pytest.mark.processes
def test_a_class_is_one_class_by_whatever_name_it_comes_first():
    code = (
        "from clustergym.interface.policy import Policy; from clustergym.scenario import policy; "
        "import clustergym; assert Policy is policy.Policy is clustergym.Policy; "
        "assert Policy.__module__ == 'clustergym.scenario.policy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.processes
@pytest.mark.parametrize("command", ["run", "trace", "oracle", "report"])
def test_python_m_runs_a_command(command):
    """As a file of its own, a room of that name, and a room of the command's name in another room."""
    call = [sys.executable, "-m", f"clustergym.{command}", "--help"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: clustergym {command} ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_door(command):
    own = own_name(f"clustergym.{command}.__main__") or own_name(f"clustergym.{command}")
    assert own == COMMANDS[command][0] == f"clustergym.commands.{command}"


@pytest.mark.parametrize("stored", STORED)
def test_what_a_pickle_stores_loads(stored):
    module, name = stored.split()
    loaded = pickle.loads(f"c{module}\n{name}\n.".encode())
    others = CLASSES.get(loaded.__module__.removeprefix("clustergym."), {})
    assert loaded.__name__ == others.get(name, name)
    assert own_name(loaded.__module__) is None


def test_a_class_is_found_by_its_other_name_in_a_module_by_either_name(monkeypatch):
    monkeypatch.setitem(CLASSES, "common.version", {"Earlier": "__version__"})
    monkeypatch.delitem(sys.modules, "clustergym.common.version")
    module = importlib.import_module("clustergym.terminal.version")
    assert module.Earlier is module.__version__
    assert module is importlib.import_module("clustergym.common.version")


@pytest.mark.parametrize("module", CLASSES)
def test_every_class_that_has_another_name_is_there(module):
    found = importlib.import_module(f"clustergym.{module}")
    for other, own in CLASSES[module].items():
        assert getattr(found, other) is getattr(found, own)


@pytest.mark.parametrize("name", ["ClusterGym/Placement-small-v0", "ClusterGym/Sharing-small-v1"])
def test_entry_points_are_names_that_stay(name):
    import gymnasium

    room, _, cls = gymnasium.spec(name).entry_point.partition(":")
    assert room in ("clustergym.envs.placement", "clustergym.envs.sharing")
    assert getattr(importlib.import_module(room), cls).__module__ == f"{room}.environment"
    with pytest.raises(AttributeError, match="nothing"):
        importlib.import_module(room).nothing  # noqa: B018


def test_a_command_by_its_other_name_has_a_file() -> None:
    spec = find_spec("clustergym.run")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).parts[-2:] == ("commands", "run.py")
