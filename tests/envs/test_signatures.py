"""The keywords of environments are what an editor shows: the same as the parameters that are checked."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_parameters import SchedulingKeywords, SchedulingParameters


def test_the_keywords_are_the_parameters_with_their_types():
    keywords = get_type_hints(SchedulingKeywords)
    parameters = get_type_hints(SchedulingParameters)
    assert list(keywords) == [one.name for one in fields(SchedulingParameters)]
    assert keywords == {name: parameters[name] for name in keywords}


def test_the_signature_of_an_environment_names_them():
    assert get_type_hints(SchedulingEnv.__init__)["parameters"].__args__ == (SchedulingKeywords,)
