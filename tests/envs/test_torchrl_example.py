"""The TorchRL example: it plays what it says, learns something, repeats itself, and names mistakes."""

import re

import pytest
from example_files import import_file

# TorchRL warns of what of itself and of PyTorch is old.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("torchrl", reason="TorchRL is not installed: pip install 'clustergym[torchrl]'")
    return import_file("examples/torchrl_ppo.py")


def test_training_is_compared_with_policies(example, capsys):
    given = ["--steps", "150", "--jobs", "6"]
    assert example.main(given) == 0
    first = capsys.readouterr().out
    found = re.findall(r"^(.+): mean JCT (\d+\.\d{3}) h$", first, re.MULTILINE)
    assert [name for name, _ in found] == ["fcfs", "srtf", "PPO after 150 steps"]
    fcfs, srtf, learned = (float(hours) for _, hours in found)
    assert srtf <= fcfs
    assert learned > 0
    assert example.main(given) == 0
    assert capsys.readouterr().out == first


def test_the_network_scores_the_action_of_each_row(example):
    import torch

    env = example.make_env(6)
    observation, info = env.reset(options={"trace_seed": 3})
    core = env.unwrapped
    torch.manual_seed(0)
    network = example.RowNetwork(core, core.actions.width)
    seen = torch.as_tensor(observation)
    scores = network(seen)
    assert scores.shape == info["action_mask"].shape
    assert torch.allclose(network(seen.repeat(2, 3, 1))[1, 2], scores, atol=1e-6)
    # Rows 0 and 1 exchanged: the scores of their actions are exchanged, all others stay.
    tables = {name: part.clone() for name, part in core.features.unpack(seen).items()}
    for name in ("jobs", "options"):
        tables[name][[0, 1]] = tables[name][[1, 0]]
    width = core.actions.width
    exchanged = network(torch.cat([tables[name].flatten() for name in core.features.layout]))
    assert torch.allclose(exchanged[:width], scores[width : 2 * width], atol=1e-6)
    assert torch.allclose(exchanged[2 * width :], scores[2 * width :], atol=1e-6)


def test_only_legal_actions_are_taken(example):
    env = example.make_env(6)
    wrapped = example.in_torchrl(env, seed=0)
    network = example.RowNetwork(env.unwrapped, env.unwrapped.actions.width)
    played = wrapped.rollout(60, example.actor_of(network, wrapped), break_when_any_done=False)
    legal = played["action_mask"].gather(-1, played["action"].unsqueeze(-1))
    assert len(played) == 60
    assert legal.all()
    assert not played["action_mask"].all()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--steps", "0"], "--steps: 0 (give at least 1)"),
        (["--jobs", "0"], "--jobs: 0 (give at least 1)"),
        (["--seed", "-1"], "--seed: -1 (give at least 0)"),
    ],
)
def test_mistakes_are_one_line(example, capsys, argv, line):
    assert example.main(argv) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.strip()) == ("", f"error: {line}")
