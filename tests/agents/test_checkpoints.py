"""Checkpoints round trip; anything else in their place is one clear line."""

import hashlib
import pickle

import numpy as np
import pytest
import yaml
from compiled_entries import plain

from clustergym.agents import auction_features as features
from clustergym.agents import beliefs
from clustergym.agents.auction import count_hidden_units, score_move
from clustergym.agents.auction_checkpoints import load, save
from clustergym.agents.checkpoints import TRAINED, is_network
from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_policy

WEIGHTS = np.linspace(-1, 1, features.COUNT)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "one.safetensors"
    save(path, WEIGHTS, InformationClass.PROFILED, {"seed": 3})
    return path


def test_round_trip(saved):
    found = load(str(saved))
    assert found.weights.tolist() == WEIGHTS.tolist()
    assert found.information_class == InformationClass.PROFILED
    assert found.about["seed"] == 3
    assert make_policy({"name": "learned", "checkpoint": str(saved)}).information_class == "profiled"


def test_one_that_measures_jobs_beside_its_profiles_round_trips(saved):
    weights = np.concatenate([WEIGHTS, beliefs.START_TOLD])
    save(saved, weights, InformationClass.PROFILED, {})
    assert load(str(saved)).weights.tolist() == weights.tolist()
    assert make_policy({"name": "learned", "checkpoint": str(saved)}).auction_weights is None
    with pytest.raises(InputError, match=r"policy\.rollout"):
        make_policy({"name": "learned", "checkpoint": str(saved), "rollout": 1})


def test_one_that_is_told_no_times_round_trips(saved):
    weights = np.concatenate([WEIGHTS, beliefs.START])
    save(saved, weights, InformationClass.NONE, {})
    assert load(str(saved)).weights.tolist() == weights.tolist()
    about = yaml.safe_load(saved.with_suffix(".yaml").read_text())
    for changes in ({"beliefs": ["grow"]}, {"beliefs": None}):
        saved.with_suffix(".yaml").write_text(yaml.safe_dump(about | changes))
        with pytest.raises(InputError, match="beliefs: are not this version's"):
            load(str(saved))
    describe(saved, packed(WEIGHTS), beliefs=list(beliefs.NAMES))
    with pytest.raises(InputError, match="beliefs: are not 8 of float64"):
        load(str(saved))


def test_another_file_of_the_same_name_is_another_policy(saved):
    before = make_policy({"name": "learned", "checkpoint": str(saved)}).fingerprint()
    save(saved, WEIGHTS / 2, InformationClass.PROFILED, {"seed": 3})
    after = make_policy({"name": "learned", "checkpoint": str(saved)}).fingerprint()
    assert len(before) == len(after) == 64
    assert before != after


def test_the_committed_ones_load():
    kept = [path.stem for path in TRAINED.glob("*.safetensors") if path.stem not in ("placer", "sharing")]
    names = [name for name in kept if not is_network(name)]
    assert "elastic" in names
    for name in names:
        assert load(name).about["trained_on_test"] is False


@pytest.mark.parametrize("units", [0, 2])
def test_one_of_fewer_features_is_the_same_auction(tmp_path, monkeypatch, units):
    # Written when there were 30 features: those of now that it lacks weigh 0, in the score and in each unit.
    values = np.random.default_rng(1).normal(size=features.COUNT)
    point = np.random.default_rng(2).normal(size=features.POINT_FACTS)
    names, weights = features.NAMES[:30], np.random.default_rng(3).normal(size=30 + units * 34)
    path = tmp_path / "old.safetensors"
    with monkeypatch.context() as patched:
        patched.setattr(features, "NAMES", names)
        save(path, weights, InformationClass.PROFILED, {})
    found = load(str(path)).weights
    assert count_hidden_units(found) == units
    expected = weights[:30] @ values[:30]
    for unit in weights[30:].reshape(units, 34):
        inside = unit[1] + unit[2:32] @ values[:30] + unit[32:] @ point[[features.QUEUE, features.BACKLOG]]
        expected += unit[0] * inside / (1 + abs(inside))
    assert plain(score_move)(found, values, point) == pytest.approx(expected)


def describe(path, data: bytes, **changes) -> None:
    """Write a weights file and a YAML that fits it, but for the changes."""
    path.write_bytes(data)
    about = yaml.safe_load(path.with_suffix(".yaml").read_text())
    about |= {"sha256": hashlib.sha256(data).hexdigest(), **changes}
    path.with_suffix(".yaml").write_text(yaml.safe_dump(about))


def packed(weights) -> bytes:
    from safetensors.numpy import save as pack

    return pack({"weights": weights})


class Malicious:
    def __reduce__(self):
        return (pytest.fail, ("code of a checkpoint was run",))


BROKEN = {
    "pickle": (pickle.dumps(Malicious()), {}),
    "empty": (b"", {}),
    "binary": (bytes(range(256)), {}),
    "huge header": (b"\xff" * 8 + b"{}", {}),
    "truncated": (packed(WEIGHTS)[:-5], {}),
    "wrong shape": (packed(WEIGHTS[1:]), {}),
    "wrong type": (packed(WEIGHTS.astype(np.float32)), {}),
    "no number": (packed(np.full(features.COUNT, np.nan)), {}),
    "other version": (packed(WEIGHTS), {"feature_version": features.VERSION + 1}),
    "other features": (packed(WEIGHTS), {"features": ["start"]}),
    "features in another order": (packed(WEIGHTS), {"features": list(features.NAMES[::-1])}),
    "unhashable features": (packed(WEIGHTS), {"features": [["start"]]}),
    "other schema": (packed(WEIGHTS), {"schema": "x"}),
    "other digest": (packed(WEIGHTS), {"sha256": "0"}),
    "no class": (packed(WEIGHTS), {"information_class": "omniscient"}),
    "unhashable class": (packed(WEIGHTS), {"information_class": ["profiled"]}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_one_is_one_line(saved, what):
    data, changes = BROKEN[what]
    describe(saved, data, **changes)
    with pytest.raises(InputError) as caught:
        load(str(saved))
    assert "\n" not in str(caught.value)
    assert str(saved.with_suffix("")) in str(caught.value)


@pytest.mark.parametrize("schema", ["auction", "network"])
def test_a_yaml_that_is_nested_is_one_line(saved, schema):
    # libyaml's composer recurses on the C stack: it would take the process down.
    text = f"schema: clustergym.{schema}/1\na: " + "[" * 100_000
    saved.with_suffix(".yaml").write_text(text)
    with pytest.raises(InputError, match=r"one\.yaml:2: is nested deeper"):
        make_policy({"name": "learned", "checkpoint": str(saved)})


def test_an_unknown_class_names_the_nearest(saved):
    describe(saved, packed(WEIGHTS), information_class="clairvoyent")
    with pytest.raises(InputError, match=r"information_class: unknown class 'clairvoyent' \(did you mean cl"):
        load(str(saved))


def test_a_missing_one_names_the_nearest(saved, tmp_path):
    with pytest.raises(InputError, match="did you mean elastic"):
        load("elastc")
    with pytest.raises(InputError, match="no checkpoint"):
        load(str(tmp_path))
    saved.with_suffix(".yaml").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load(str(saved))
