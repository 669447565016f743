"""Offline data: what is written is what was played, and Minari reads it."""

import json
import sys

import numpy as np
import pytest
from error_lines import error_line
from example_files import import_file
from refusals import refused

from clustergym.commands.offline import main
from clustergym.common.paths import install_line
from clustergym.envs.driver import drive
from clustergym.envs.registration import make_env
from clustergym.scenario.registry import parse_policy
from clustergym.training.offline import at_random, by_policy, episodes

ELASTIC = {"id": "ClusterGym/Elastic-16-v1", "jobs": 6, "rows": 6, "observation": "flat"}
KNOWS = {"information": "data_parallel", "round_s": None, "mask_stop_while_idle": False}
SHORT = ("elastic-16", "jobs=6", "rows=6", "--episodes", "2")


def needs_minari() -> None:
    pytest.importorskip("h5py", reason="Minari stores data sets with h5py")
    pytest.importorskip("minari", reason="the extra offline is not installed")


def test_an_episode_is_what_the_policy_played():
    env, policy = make_env(ELASTIC | KNOWS), parse_policy("ares round_s=null", "")
    (first, second) = episodes(env, by_policy(policy), 2)
    # The first traces of the train split.
    assert (first.seed, second.seed) == (0, 3)
    played = drive(make_env(ELASTIC | KNOWS), policy, seed=3)
    assert sum(second.rewards) == played.total_reward
    assert len(second.actions) == len(second.rewards) == played.steps
    assert len(second.observations) == len(second.masks) == played.steps + 1
    assert second.terminations == [False] * (played.steps - 1) + [True]


@pytest.mark.parametrize("play", [at_random, by_policy(parse_policy("learned checkpoint=elastic", ""))])
def test_recorded_actions_are_legal_and_lead_to_what_was_seen(play):
    (episode,) = episodes(make_env(ELASTIC | KNOWS), play, 1)
    assert all(mask[action] for mask, action in zip(episode.masks, episode.actions, strict=False))
    env = make_env(ELASTIC | KNOWS)
    seen, _ = env.reset(seed=episode.seed)
    for at, action in enumerate(episode.actions):
        assert np.array_equal(seen, episode.observations[at])
        seen, reward, *_ = env.step(np.int64(action))
        assert reward == episode.rewards[at]


def test_minari_reads_the_data_sets(tmp_path, monkeypatch):
    needs_minari()
    import minari

    assert main([*SHORT, "--out", str(tmp_path), "--json", str(tmp_path / "returns.json")]) == 0
    returns = json.loads((tmp_path / "returns.json").read_text())
    assert list(returns) == ["expert", "medium", "random"]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for kind in returns:
        data = minari.load_dataset(f"elastic-16/{kind}-v0")
        assert data.total_episodes == 2
        found = list(data.iterate_episodes())
        assert [float(one.rewards.sum()) for one in found] == pytest.approx(returns[kind])
        (one, _) = found
        legal = one.infos["action_mask"]
        assert one.observations.shape == (len(one.actions) + 1, *data.observation_space.shape)
        assert legal.shape == (len(one.actions) + 1, data.action_space.n)
        assert legal[np.arange(len(one.actions)), one.actions].all()
        score = minari.utils.get_normalized_score(data, np.array(returns[kind])).mean()
        assert score == pytest.approx({"random": 0.0, "expert": 1.0}.get(kind, score))
        env = data.recover_environment()
        assert env.unwrapped.parameters.jobs == 6
        assert np.array_equal(env.reset(seed=0)[0], one.observations[0])


def test_a_data_set_is_not_replaced_nor_left_half_written(tmp_path, capsys, monkeypatch):
    needs_minari()
    monkeypatch.chdir(tmp_path.parent)
    given = [*SHORT, "--out", tmp_path.name, "--kinds", "random"]
    assert main(given) == 0
    before = (tmp_path / "elastic-16/random-v0/data/main_data.hdf5").read_bytes()
    capsys.readouterr()
    assert main(given) == 2
    assert "is there already" in error_line(capsys)
    assert (tmp_path / "elastic-16/random-v0/data/main_data.hdf5").read_bytes() == before
    monkeypatch.setattr("clustergym.training.offline.drive", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([*SHORT, "--out", str(tmp_path), "--kinds", "expert"])
    assert [path.name for path in (tmp_path / "elastic-16").iterdir()] == ["random-v0"]


@refused("offline", words=True)
def test_bad_input_is_one_line(given, said, tmp_path, capsys):
    needs_minari()
    assert main([*given, "--out", str(tmp_path)]) == 2
    said.check(error_line(capsys), tmp_path)
    assert not list(tmp_path.rglob("*.hdf5"))


def test_without_minari_a_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "minari", None)
    assert main([*SHORT]) == 2
    assert install_line("offline") in error_line(capsys)


@pytest.mark.parametrize("env", ["burst-16", "knobs-16"])
def test_a_clone_learns_from_the_expert(env, tmp_path, capsys):
    needs_minari()
    pytest.importorskip("torch")
    example = import_file("examples/clone_offline.py")
    assert main([env, "--episodes", "6", "--out", str(tmp_path), "--kinds", "expert", "random"]) == 0
    capsys.readouterr()
    for method, kinds in (("clone", ["expert"]), ("awr", ["expert", "random"])):
        words = [env, "--data", str(tmp_path / env), "--kinds", *kinds, "--method", method]
        assert example.main([*words, "--updates", "160", "--json", str(tmp_path / "hours.json")]) == 0
        lines = capsys.readouterr().out.splitlines()
        errors = [float(line.split("error ")[1].split(",")[0]) for line in lines if "error" in line]
        assert errors[-1] < errors[0]
        hours = json.loads((tmp_path / "hours.json").read_text())["hours"]
        assert hours["expert"][0] < hours[f"{method} of {' '.join(kinds)}"][0] < hours["random"][0]
    assert example.main([env, "--data", str(tmp_path / "no")]) == 2
    assert "is no data set" in error_line(capsys)
