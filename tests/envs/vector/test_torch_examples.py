"""The examples on vector environments in plain PyTorch, and TorchRL's wrapper of a vector environment."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import clustergym  # noqa: F401  registers the environments

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'clustergym[rl]'")
EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_times(text: str) -> str:
    return re.sub(r"[\d,]+ steps/s", "", text)


def test_masked_ppo_trains_and_repeats_itself(capsys: pytest.CaptureFixture[str]) -> None:
    play = example("masked_ppo")
    given = ["--steps", "2048", "--envs", "4", "--jobs", "3"]
    assert play.main(given) == 0
    first = capsys.readouterr().out
    assert len(re.findall(r"^step [\d,]+: return [+-]\d", first, re.MULTILINE)) >= 2
    assert play.main(given) == 0
    assert without_times(capsys.readouterr().out) == without_times(first)


def test_an_update_makes_what_paid_likelier() -> None:
    play = example("masked_ppo")
    torch.manual_seed(0)
    envs = gymnasium.make_vec("ClusterGym/Elastic-16-v1", 2, jobs=3, rows=3, observation="flat")
    agent = play.Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    rollout = play.Rollout(envs)
    rollout.mask[:] = True
    rollout.action[:, 1], rollout.over[:] = 1, 1.0
    # Action 0 paid, action 1 did not.
    rollout.reward[:, 0] = 1.0
    before = agent.policy(rollout.seen, rollout.mask)
    rollout.log_probability[:] = before.log_prob(rollout.action).detach()
    play.update(agent, torch.optim.Adam(agent.parameters(), lr=1e-3), rollout, torch.zeros(2))
    after = agent.policy(rollout.seen, rollout.mask)
    assert after.probs[0, 0, 0] > before.probs[0, 0, 0]
    assert after.probs[0, 0, 1] < before.probs[0, 0, 1]


def test_group_rollouts_train_and_repeat_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    play = example("group_rollouts")
    given = ["--updates", "2", "--groups", "2", "--size", "3", "--jobs", "3"]
    assert play.main(given) == 0
    first = capsys.readouterr().out
    assert len(re.findall(r"^update \d: return -\d", first, re.MULTILINE)) == 2
    assert play.main(given) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("name", "option"),
    [("masked_ppo", "--envs"), ("group_rollouts", "--size")],
)
def test_bad_input_is_one_line(name: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert example(name).main([option, "0"]) == 2
    assert option in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_torchrl_wraps_a_vector_environment_with_its_masks() -> None:
    pytest.importorskip("torchrl", reason="TorchRL is not installed: pip install 'clustergym[torchrl]'")
    from tensordict.nn import TensorDictModule
    from torchrl.data import Bounded, Composite
    from torchrl.envs import GymWrapper
    from torchrl.envs.libs.gym import default_info_dict_reader

    envs = gymnasium.make_vec(
        "ClusterGym/Elastic-16-v1", 3, jobs=3, rows=3, observation="flat", on_illegal="raise",
        autoreset_mode="Disabled", summaries=False,
    )  # fmt: skip
    wrapped = GymWrapper(envs, categorical_action_encoding=True)
    shape = (3, int(envs.single_action_space.n))
    mask = Composite(action_mask=Bounded(0, 1, shape, dtype=torch.int8), shape=(3,))
    wrapped.set_info_dict_reader(default_info_dict_reader(["action_mask"], spec=mask))

    def draw(legal: Any) -> Any:
        # An illegal action would raise.
        return torch.distributions.Categorical(probs=legal.float()).sample()

    policy = TensorDictModule(draw, in_keys=["action_mask"], out_keys=["action"])
    torch.manual_seed(0)
    wrapped.set_seed(0)
    played = wrapped.rollout(150, policy, break_when_any_done=False)
    assert played.shape == (3, 150)
    assert played["next", "done"].sum() > 2
    assert (played["next", "reward"][played["next", "done"]] < 0).all()
