"""The public Python interface."""

from __future__ import annotations

import subprocess
import sys

import pytest

import clustergym


def test_import_is_light():
    heavy = {"numpy", "hydra", "simpy", "torch", "scipy", "rich"}
    code = f"import sys, clustergym; bad = {heavy!r} & set(sys.modules); assert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_policy_of_ones_own_runs_on_a_scenario():
    class Whatever(clustergym.Policy):
        name = "whatever"
        information_class = clustergym.InformationClass.NONE

        def schedule(self, view):
            free, chosen = view.available.copy(), []
            for at in range(len(view)):
                kind, level = next(zip(*view.feasible[at].nonzero(), strict=True))
                gpus = view.setting.counts[level]
                if free[kind] >= gpus:
                    free[kind] -= gpus
                    chosen.append((view.job[at], kind, gpus))
            return clustergym.Decision.of(chosen)

    scenario = clustergym.load_scenario("testbed")
    mine, fcfs = clustergym.simulate(scenario, Whatever()), clustergym.simulate(scenario, "fcfs")
    assert mine.metrics["jobs_finished"] == fcfs.metrics["jobs_finished"] == len(scenario.trace)
    assert mine.digest != fcfs.digest


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        clustergym.nope  # noqa: B018
