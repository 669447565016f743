"""Every YAML in conf/env makes its environment, and its mistakes are one line."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from clustergym.envs.config import make_env
from clustergym.envs.placement_parameters import PlacementParameters
from clustergym.envs.registration import ENVIRONMENTS
from clustergym.errors import InputError
from clustergym.paths import conf_dir

FILES = sorted((conf_dir() / "env").glob("*.yaml"))


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_makes_its_environment(path):
    env = make_env(load(path))
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert env.spec.id == load(path)["id"]


def test_every_id_has_a_file():
    assert sorted(load(path)["id"] for path in FILES) == sorted(row.id for row in ENVIRONMENTS)


def test_placement_yaml_states_every_parameter_at_its_default():
    given = load(conf_dir() / "env" / "placement.yaml")
    assert given == {"id": "ClusterGym/Placement-v0", **dataclasses.asdict(PlacementParameters())}


@pytest.mark.parametrize(
    ("mapping", "line"),
    [
        ({}, "env.id: is missing"),
        ({"id": "ClusterGym/Placment-v0"}, "did you mean ClusterGym/Placement-v0"),
        ({"id": ["x"]}, "unknown environment"),
        (
            {"id": "ClusterGym/Placement-v0", "stepp": "node"},
            "env.stepp: unknown key 'stepp' (did you mean step",
        ),
        ({"id": "ClusterGym/Placement-v0", "step": 3}, "env.step: 3 is no str"),
    ],
)
def test_mistakes(mapping, line):
    with pytest.raises(InputError) as caught:
        make_env(mapping)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
