"""What is not valid for a vector environment is one line; without Numba the SimPy engine plays."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from refusals import Said, refused

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError
from clustergym.common.processes import cores
from clustergym.envs.families import ElasticEnv
from clustergym.envs.vector import scenarios
from clustergym.envs.vector.environment import SchedulingVectorEnv, make_vector
from clustergym.sim.compiled import numba_cache

SMALL: dict[str, Any] = {"cluster": "arena-16", "jobs": 6, "rows": 4}


@pytest.fixture(scope="module")
def envs() -> SchedulingVectorEnv:
    made = SchedulingVectorEnv(ElasticEnv, 2, **SMALL)
    made.reset(seed=0)
    return made


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([0], "give 2 whole numbers"),
        ([[0, 0]], "give 2 whole numbers"),
        ([0.0, 1.0], "float64"),
        ([True, False], "bool"),
        (["0", "1"], "give 2 whole numbers"),
        ([0, -1], "-1 is not an action of environment 1"),
        ([10**9, 0], "1000000000 is not an action of environment 0"),
    ],
    ids=str,
)
def test_actions_of_a_wrong_kind_are_refused(envs: SchedulingVectorEnv, actions: Any, words: str) -> None:
    before = envs.action_masks()
    with pytest.raises(InputError, match="actions: ") as refusal:
        envs.step(actions)
    assert words in str(refusal.value)
    np.testing.assert_array_equal(envs.action_masks(), before)


@refused("vector-environments")
def test_parameters_that_are_not_valid_are_refused(given: dict[str, Any], said: Said) -> None:
    with said.of_error():
        make_vector(ElasticEnv, **{**SMALL, **given})


def test_threads_are_at_most_the_cores() -> None:
    with pytest.raises(InputError, match=r"^threads: "):
        make_vector(ElasticEnv, num_envs=99, threads=cores() + 1, **SMALL)


@refused("vector-resets")
def test_options_of_reset_that_are_not_valid_are_refused(
    envs: SchedulingVectorEnv, given: dict[str, Any], said: Said
) -> None:
    with said.of_error():
        envs.reset(**given)


def test_illegal_actions_raise_or_change_nothing() -> None:
    for on_illegal in ("raise", "ignore"):
        made = SchedulingVectorEnv(ElasticEnv, 2, on_illegal=on_illegal, **SMALL)
        before, info = made.reset(seed=0)
        legal, illegal = (int(np.flatnonzero(info["action_mask"][1] == value)[0]) for value in (1, 0))
        actions = np.array([int(np.flatnonzero(info["action_mask"][0])[0]), illegal])
        if on_illegal == "raise":
            with pytest.raises(InputError, match=f"{illegal} .* is illegal now in environment 1"):
                made.step(actions)
            made.step(np.array([actions[0], legal]))
        else:
            after, rewards, _, _, info = made.step(actions)
            assert info["illegal"].tolist() == [False, True]
            assert rewards[1] == 0
            np.testing.assert_array_equal(after["jobs"][1], before["jobs"][1])


def test_without_numba_auto_plays_in_simpy_and_compiled_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(numba_cache, "_numba", None)
    monkeypatch.setattr(scenarios, "_told", set())
    made = make_vector(ElasticEnv, 2, **SMALL)
    assert isinstance(made, gymnasium.vector.SyncVectorEnv)
    made.reset(seed=0)
    made.step(np.array([made.single_action_space.n - 1] * 2))
    with pytest.raises(InputError, match=r"numba.*pip install .*\[learn\]'"):
        make_vector(ElasticEnv, 2, engine="compiled", **SMALL)
    # Two single environments and the vector environment fell back: it is said once.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "numba" in caplog.text


def test_a_fall_back_that_nobody_wonders_at_is_not_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scenarios, "_told", set())
    gymnasium.make("ClusterGym/Elastic-16-v1", jobs=4).reset(seed=0)
    assert caplog.text == ""
    gymnasium.make("ClusterGym/Elastic-16-v1", jobs=4, placer="minipod").reset(seed=0)
    assert "engine=auto chooses simpy" in caplog.text
    assert "placer" in caplog.text


def test_a_first_compilation_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    numba_cache.announce_compilation.cache_clear()
    monkeypatch.setattr(numba_cache, "_cache_dir", lambda: tmp_path)
    for _ in range(2):
        made = SchedulingVectorEnv(ElasticEnv, 1, **SMALL)
        made.reset(seed=0)
    assert capsys.readouterr().err.count("compiling the simulation, once") == 1
    numba_cache.announce_compilation.cache_clear()


@pytest.mark.skipif(cores() < 2, reason="there is one core")
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two and three of five for the threads.
    monkeypatch.setattr("clustergym.envs.vector.episode_batch.LEAST", 2)
    one, two = (SchedulingVectorEnv(ElasticEnv, 5, threads=threads, **SMALL) for threads in (1, 2))
    np.testing.assert_array_equal(one.reset(seed=3)[0]["jobs"], two.reset(seed=3)[0]["jobs"])
    ends = 0
    for _ in range(600):
        actions = one.sample_actions()
        np.testing.assert_array_equal(actions, two.sample_actions())
        mine, other = one.step(actions), two.step(actions)
        for name in mine[0]:
            np.testing.assert_array_equal(mine[0][name], other[0][name])
        for at in (1, 2, 3):
            np.testing.assert_array_equal(mine[at], other[at])
        np.testing.assert_array_equal(mine[4]["action_mask"], other[4]["action_mask"])
        if "digest" in mine[4]:
            assert mine[4]["digest"].tolist() == other[4]["digest"].tolist()
            ends += 1
    assert ends > 0
    two.close()
