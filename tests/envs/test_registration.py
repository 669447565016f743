"""Environments are known to Gymnasium in any order of imports, and `import clustergym` stays light."""

import subprocess
import sys

import gymnasium
import pytest

import clustergym  # noqa: F401  enters the environments
from clustergym.envs.registration import register_envs, register_when_gymnasium_loads
from clustergym.scenario.environments import ENVIRONMENTS

KNOWN = "assert 'ClusterGym/Placement-v0' in gymnasium.registry"
MADE = "assert gymnasium.make('ClusterGym/Placement-v0').reset(seed=1)"
ORDERS = {
    "clustergym first": f"import clustergym; import gymnasium; {MADE}",
    "gymnasium first": f"import gymnasium; import clustergym; {KNOWN}",
    "in between": f"import gymnasium.spaces; import clustergym; import gymnasium; {KNOWN}",
    "by module": "import gymnasium; gymnasium.make('clustergym:ClusterGym/Placement-v0')",
    "clustergym first, by module": (
        f"import clustergym, gymnasium, importlib; importlib.reload(clustergym); {KNOWN};"
        "importlib.reload(clustergym.envs.registration).register_when_gymnasium_loads();"
        "gymnasium.make('clustergym:ClusterGym/Placement-v0')"
    ),
    "gymnasium again": (
        "import clustergym, gymnasium, sys;"
        "[sys.modules.pop(n) for n in list(sys.modules) if n.split('.')[0] == 'gymnasium'];"
        f"import gymnasium; {KNOWN}"
    ),
}


@pytest.mark.processes
@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_imports(order):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ORDERS[order]], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_the_registry_module_keeps_what_its_loader_can_do():
    code = (
        "import clustergym, gymnasium, inspect, importlib.resources;"
        "assert 'def register' in inspect.getsource(gymnasium.envs.registration);"
        "assert importlib.resources.files('gymnasium').joinpath('core.py').is_file()"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_table_is_the_registry():
    mine = {name for name in gymnasium.registry if name.startswith("ClusterGym/")}
    assert mine == {row.id for row in ENVIRONMENTS}
    for row in ENVIRONMENTS:
        spec = gymnasium.spec(row.id)
        assert (spec.entry_point, spec.kwargs) == (row.entry_point, dict(row.kwargs))
        assert spec.reward_threshold == row.reward_threshold


def test_registering_again_changes_nothing():
    before, finders = dict(gymnasium.registry), list(sys.meta_path)
    for _ in range(3):
        register_when_gymnasium_loads()
        register_envs()
    assert gymnasium.registry == before
    assert sys.meta_path == finders


def test_what_a_user_registered_under_our_id_stays(monkeypatch):
    mine = gymnasium.envs.registration.EnvSpec("ClusterGym/Placement-v0", entry_point="mine:Mine")
    monkeypatch.setitem(gymnasium.registry, mine.id, mine)
    register_envs()
    assert gymnasium.registry[mine.id] is mine
