"""Metrics and digests at episodes' ends are worked out when they are read, and not otherwise."""

import copy
import json
import pickle

import numpy as np
from gymnasium.vector import AutoresetMode
from same_values import assert_same

import clustergym  # noqa: F401  registers the environments
from clustergym.envs.families import ElasticEnv
from clustergym.envs.vector import episode_batch
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.envs.vector.lazy_info import LazyInfo


def make(asked: list[str]) -> LazyInfo:
    def note(name: str) -> str:
        asked.append(name)
        return name.upper()

    return LazyInfo({"a": 1}, {name: lambda name=name: note(name) for name in ("b", "c")})


def test_a_value_is_made_when_it_is_read_and_once() -> None:
    asked: list[str] = []
    info = make(asked)
    assert isinstance(info, dict)
    assert list(info) == ["a", "b", "c"]
    assert len(info) == 3
    assert "b" in info
    assert (info.get("a"), info.get("d")) == (1, None)
    assert asked == []
    assert (info["b"], info.get("b")) == ("B", "B")
    assert asked == ["b"]


def test_whatever_reads_all_values_has_them() -> None:
    whole = {"a": 1, "b": "B", "c": "C"}
    assert dict(make([])) == whole
    assert {**make([])} == whole
    assert make([]) | {"d": 4} == whole | {"d": 4}
    assert {"d": 4} | make([]) == whole | {"d": 4}
    assert make([]) == whole
    assert whole == make([])
    assert copy.copy(make([])) == copy.deepcopy(make([])) == make([]).copy() == whole
    assert pickle.loads(pickle.dumps(make([]))) == whole
    assert json.loads(json.dumps(make([]))) == whole
    assert repr(make([])) == repr(whole)
    assert dict(make([]).items()) == whole
    assert list(make([]).values()) == [1, "B", "C"]


def test_a_value_that_is_replaced_or_removed_is_not_made() -> None:
    asked: list[str] = []
    info = make(asked)
    info["b"] = 2
    del info["c"]
    assert info == {"a": 1, "b": 2}
    again = make(asked)
    again |= {"b": 3, "c": 4}
    assert dict(again) == {"a": 1, "b": 3, "c": 4}
    assert asked == []
    assert make(asked).pop("c") == "C"
    assert asked == ["c"]


def test_summaries_that_are_read_late_are_of_their_episode(monkeypatch) -> None:
    measured = []
    measure, own = episode_batch.measure_scenario, "measure_scenario"
    monkeypatch.setattr(episode_batch, own, lambda *given: measured.append(1) or measure(*given))
    parameters = {"cluster": "arena-16", "jobs": 12, "rows": 8}

    def ends(read: bool) -> list[dict]:
        envs = SchedulingVectorEnv(ElasticEnv, 2, autoreset_mode=AutoresetMode.NEXT_STEP, **parameters)
        envs.reset(seed=5)
        found: list[dict] = []
        while len(found) < 4:
            _, _, terminated, truncated, infos = envs.step(envs.sample_actions())
            if (terminated | truncated).any():
                found.append(dict(infos) if read else infos)
        return found

    late = ends(read=False)
    assert measured == []
    at_once = ends(read=True)
    assert len(measured) >= 4
    assert all(isinstance(infos, LazyInfo) for infos in late)
    for at, (mine, other) in enumerate(zip(late, at_once, strict=True)):
        assert_same(mine, other, f"end {at}")
        assert len({*mine["digest"][mine["_digest"]]}) == np.count_nonzero(mine["_digest"])
