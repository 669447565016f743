"""`env=NAME` and mappings like it make environments, and their mistakes are one line."""

import pytest
from refusals import refused

from clustergym.common.errors import InputError
from clustergym.envs.families import ElasticEnv
from clustergym.envs.placement.environment import PlacementEnv
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


@pytest.mark.parametrize("made_by", [ElasticEnv, PlacementEnv])
def test_an_unknown_mode_of_drawing(made_by):
    with pytest.raises(InputError, match="render_mode: unknown mode 'human'"):
        made_by("human")


@refused("environments")
def test_mistakes(given, said):
    with said.of_error():
        make_env(given)
