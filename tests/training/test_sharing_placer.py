"""The learned placer of shares: its training, its checkpoint, and the comparison with other placers."""

import json

import gymnasium
import numpy as np
import pytest
from error_lines import error_line
from trainings import repeated

from clustergym.bench import command as bench
from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.episode import SHAPE, choose
from clustergym.training.placer_checkpoints import SHARES
from clustergym.training.sharing_evolution import list_seeds, objective

SMALL = [
    "agent=sharing_es", "env=sharing-small", "progress=false", "agent.generations=3", "agent.population=4",
    "agent.episodes=2", "agent.validation=2", "agent.validate_every=2",
]  # fmt: skip


def test_training_repeats_itself_and_goes_on(tmp_path):
    weights = repeated(SMALL, tmp_path, SHARES)
    assert weights.shape == SHAPE


def test_the_objective_is_minus_the_return_of_the_environment():
    weights = np.random.default_rng(0).normal(size=SHAPE)
    reward = {"allocated": 1.0, "rejected": 0.5, "fragments": 0.25}
    env = gymnasium.make("ClusterGym/Sharing-small-v1", reward=reward).unwrapped
    assert isinstance(env, SharingEnv)
    returns = []
    for seed in (7, 8):
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, gain, over, _, _ = env.step(choose(env.state.episode, weights))
            total += gain
        returns.append(total)
    assert objective(env, (7, 8), weights) == pytest.approx(-np.mean(returns))


def test_splits_do_not_meet():
    seeds = [set(list_seeds(split, 0, 10_000)) for split in ("train", "dev", "test")]
    assert len(set.union(*seeds)) == 30_000


def test_what_comes_with_the_package_allocates_more_than_fgd(tmp_path, capsys):
    file = tmp_path / "figures.json"
    assert bench.main(["sharing", "--streams", "12", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    (group,) = figures["groups"]
    rows = {row["placer"]: row for row in group["rows"]}
    assert group["seeds"] == list(range(2_000_000, 2_000_012))
    mean, low, high = rows["learned"]["difference"]
    assert low < mean < high
    assert mean == pytest.approx(rows["learned"]["allocated_pct"] - rows["fgd"]["allocated_pct"])
    assert low > 0.0
    assert rows["fgd"]["difference"] == [0.0, 0.0, 0.0]
    # 100 x rejected over arrived, of all classes of requests in the streams.
    assert list(rows["fgd"]["rejected_by_class_pct"]) == ["no GPU", "part", "one GPU", "several GPUs"]
    assert max(rows["fgd"]["rejected_by_class_pct"].values()) <= 100
    shown = capsys.readouterr().out
    assert f"| learned | {rows['learned']['allocated_pct']:.2f} % | {mean:+.2f} |" in shown


def test_bad_input_is_told_in_a_line(tmp_path, capsys):
    assert train_command.main(["agent=sharing_es", "env=elastic-16", f"output={tmp_path / 'a'}"]) == 2
    assert "env: has no shares of GPUs to place (give env=sharing)" in error_line(capsys)
    assert bench.main(["sharing", "--checkpoint", "elastic"]) == 2
    assert "want clustergym.sharing/1" in error_line(capsys)
    assert bench.main(["sharing", "--data", str(tmp_path)]) == 2
    assert "openb_node_list_gpu_node.csv" in error_line(capsys)
    SHARES.save(tmp_path / "short.safetensors", np.zeros(3), {})
    with pytest.raises(InputError, match="train it anew"):
        SHARES.load(str(tmp_path / "short.safetensors"))
