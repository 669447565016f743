"""Messages between a program and its judge: what comes back from their bytes is what was sent."""

import numpy as np
import pytest
from hypothesis import given, settings
from random_views import random_views

from clustergym.scenario.policy import Decision, InformationClass, InformationError, View
from clustergym.sim import program_wire as wire


@settings(max_examples=15, deadline=None)
@given(random_views())
def test_a_view_comes_back(view: View) -> None:
    words, arrays = wire.decode_message(wire.packed_setting(view.setting, 7))
    assert words["seed"] == 7
    setting = wire.decode_setting(words, arrays)
    assert (setting.gpu_types, setting.round_s) == (tuple(view.setting.gpu_types), view.setting.round_s)
    for name in wire.SETTING:
        np.testing.assert_array_equal(getattr(setting, name), getattr(view.setting, name), strict=True)
    seen = wire.decode_view(
        *wire.decode_message(wire.packed_view(view, InformationClass.CLAIRVOYANT)), setting
    )
    assert (seen.now_s, seen.setting) == (view.now_s, setting)
    for name in wire.COLUMNS:
        np.testing.assert_array_equal(getattr(seen, name), getattr(view, name), strict=True)
    np.testing.assert_array_equal(seen.iteration_time_s(), view.iteration_time_s())
    np.testing.assert_array_equal(seen.restart_cost_s(), view.restart_cost_s())
    blind = wire.decode_view(*wire.decode_message(wire.packed_view(view, InformationClass.NONE)), setting)
    with pytest.raises(InformationError, match="information class none"):
        blind.iteration_time_s()
    np.testing.assert_array_equal(blind.restart_cost_s(), view.restart_cost_s())


def test_arrays_of_one_message_keep_their_order_shape_and_type() -> None:
    sent = {
        "whole": np.array([[1, 2, 3], [4, 5, 6]]),
        "none": np.empty((0, 2)),
        "flags": np.array([True, False]),
        "number": np.array(2.5),
    }
    words, got = wire.decode_message(wire.encode_message({"a": [1, None]}, sent))
    assert words == {"a": [1, None]}
    assert list(got) == list(sent)
    for name, one in sent.items():
        np.testing.assert_array_equal(got[name], one, strict=True)
    assert wire.decode_message(wire.encode_message({})) == ({}, {})


def test_an_answer_has_the_columns_that_a_decision_has() -> None:
    answer = wire.encode_answer(Decision.of([(3, 1, 4), (5, 0, 2)]))
    assert (answer["job"], answer["gpu_type"], answer["gpus"]) == ([3, 5], [1, 0], [4, 2])
    assert {"batch", "partner"}.isdisjoint(answer)
    with pytest.raises(TypeError, match="schedule returned a int; return Decision"):
        wire.encode_answer(7)
