"""What other libraries ask of environments: TorchRL's constructor, methods of Gymnasium's vectors."""

import gymnasium
import numpy as np
import pytest

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError
from clustergym.envs.vector.environment import SchedulingVectorEnv

SMALL = {"jobs": 4, "rows": 4}


@pytest.mark.parametrize(
    "name", ["Elastic-16-v1", "Auction-16-v1", "Placement-small-v0", "Sharing-small-v1", "Rack-576-v0"]
)
def test_torchrl_makes_an_environment_by_its_id(name):
    libs = pytest.importorskip("torchrl.envs.libs.gym")
    env = libs.GymEnv(f"ClusterGym/{name}", categorical_action_encoding=True)
    assert env.reset()["done"].tolist() == [False]


def test_an_unknown_keyword_is_a_type_error_of_one_line():
    line = r"^env\.job: unexpected keyword argument 'job' \(did you mean jobs"
    with pytest.raises(TypeError, match=line) as caught:
        gymnasium.make("ClusterGym/Elastic-16-v1", job=3)
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("making", [gymnasium.make, gymnasium.make_vec])
def test_an_auction_without_times_is_refused_when_it_is_made(making):
    line = r"env\.information: data_parallel leaves \d+ of \d+ jobs without times here"
    with pytest.raises(InputError, match=line):
        making("ClusterGym/Auction-16-v1", information="data_parallel")
    plain = {"cluster": "ares-16", "rule": "ares"}
    making("ClusterGym/Auction-16-v1", information="data_parallel", **plain).reset(seed=0)


@pytest.mark.parametrize("name", ["Elastic-16-v1", "Auction-16-v1"])
def test_the_fall_back_of_a_vector_environment_has_its_methods_and_draws(name):
    compiled, stepped = (
        gymnasium.make_vec(f"ClusterGym/{name}", 2, engine=engine, **SMALL)
        for engine in ("compiled", "simpy")
    )
    assert isinstance(compiled, SchedulingVectorEnv)
    assert not isinstance(stepped, SchedulingVectorEnv)
    for _ in range(2):
        for envs in (compiled, stepped):
            envs.reset(seed=[3, 8])
        for _ in range(5):
            np.testing.assert_array_equal(compiled.action_masks(), stepped.action_masks())
            of_each = [np.stack(envs.call("action_masks")) for envs in (compiled, stepped)]
            np.testing.assert_array_equal(*of_each)
            drawn = [envs.sample_actions() for envs in (compiled, stepped)]
            np.testing.assert_array_equal(*drawn)
            for envs, actions in zip((compiled, stepped), drawn, strict=True):
                envs.step(actions)


def test_what_single_environments_alone_have_is_refused_by_a_compiled_vector_environment():
    envs = gymnasium.make_vec("ClusterGym/Elastic-16-v1", 2, **SMALL)
    assert [parameters.jobs for parameters in envs.get_attr("parameters")] == [4, 4]
    with pytest.raises(InputError, match=r"^view: this vector environment has no view .*'simpy'"):
        envs.call("view")
