"""The public Python interface."""

import numpy as np
import pytest

import clustergym
from clustergym.common.errors import InputError
from clustergym.scenario.by_name import compose


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
    assert np.nanmax(fcfs.fairness) == fcfs.metrics["ftf_worst"]


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        clustergym.nope  # noqa: B018


def test_what_hydra_does_not_accept_is_an_input_error():
    with pytest.raises(InputError, match=r"^configuration: no viable alternative") as caught:
        compose(["seed=[1"])
    assert "\n" not in str(caught.value)


def test_composing_leaves_a_run_of_hydra_as_it_was():
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    from clustergym.common.paths import conf_dir

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        before = hydra_compose("config", overrides=["seed=4"])
        assert compose(["seed=5"])["seed"] == 5
        with pytest.raises(InputError, match="did you mean fcfs"):
            compose(["policy=fcsf"])
        assert hydra_compose("config", overrides=["seed=4"]) == before


FEW = ["trace=philly-like", "trace.jobs=5"]


def test_simulate_takes_names_and_files(tmp_path):
    """The scenario's name, and a policy's YAML file, mean what they say."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: fcfs\nbackfill: aggressive\n")
    few = clustergym.load_scenario("testbed", FEW)
    found = clustergym.simulate(few, policy=str(mine)).run.simulation
    assert found.log.digest == clustergym.simulate(few, "fcfs-backfill").digest
    named = clustergym.simulate("ares", "fcfs").digest
    assert named == clustergym.simulate(clustergym.load_scenario("ares"), "fcfs").digest


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("testbad", "fcfs"), r"unknown scenario 'testbad'.*testbed"),
        ((3, "fcfs"), r"scenario: 3 is no Scenario \(give clustergym\.load_scenario"),
        (("few", {"name": "fcfs"}), r"policy: \{'name': 'fcfs'\} is no Policy \(give its name, a YAML file"),
        (("few", "none.yaml"), r"none\.yaml"),
        (("few", "fcfs", 3), r"placer: 3 is no Placer"),
    ],
)
def test_simulate_refuses_in_a_line(arguments, wanted):
    given = [clustergym.load_scenario("testbed", FEW) if one == "few" else one for one in arguments]
    with pytest.raises(InputError, match=wanted):
        clustergym.simulate(*given)


def test_an_unknown_metric_names_the_nearest():
    metrics = clustergym.simulate(clustergym.load_scenario("testbed", FEW), "fcfs").metrics
    with pytest.raises(KeyError, match=r"no metric 'mean_jct': did you mean jct_mean"):
        metrics["mean_jct"]
    assert "mean_jct" not in metrics
