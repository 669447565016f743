"""`env=NAME` and mappings like it make environments, and their mistakes are one line."""

from __future__ import annotations

import pytest

from clustergym.common.errors import InputError
from clustergym.envs.registration import make_env
from clustergym.scenario.configuration.hydra_edge import compose_config
from clustergym.scenario.environments import ENVIRONMENTS


def test_every_environment_has_a_short_name():
    for row in ENVIRONMENTS:
        given = compose_config("train", ["agent=ppo", f"env={row.short_name}", "~env.baseline"])["env"]
        assert given == {"id": row.id}
        env = make_env(given)
        assert (env.spec.id, env.reset(seed=1)[0] in env.observation_space) == (row.id, True)


def test_a_file_of_ones_own_may_start_from_a_short_name(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text("defaults: [elastic-16]\njobs: 20\n")
    given = compose_config("train", ["agent=ppo", "env=mine", f"hydra.searchpath=[file://{tmp_path}]"])
    assert given["env"]["id"] == "ClusterGym/Elastic-16-v1"
    assert given["env"]["jobs"] == 20


@pytest.mark.parametrize(
    ("mapping", "line"),
    [
        ({}, "env.id: is missing"),
        ({"id": "ClusterGym/Placment-v0"}, "did you mean ClusterGym/Placement-v0"),
        ({"id": ["x"]}, "unknown environment"),
        (
            {"id": "ClusterGym/Placement-v0", "stepp": "node"},
            "env.stepp: unexpected keyword argument 'stepp' (did you mean step",
        ),
        ({"id": "ClusterGym/Placement-v0", "step": 3}, "env.step: 3 is not a str"),
        (
            {"id": "ClusterGym/Placement-v0", "step": "nodes"},
            "env.step: unknown value 'nodes' (did you mean node",
        ),
    ],
)
def test_mistakes(mapping, line):
    with pytest.raises(InputError) as caught:
        make_env(mapping)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
