"""Ratios over windows and training seeds, and rows that pool several checkpoints of one agent."""

import json
from pathlib import Path

import numpy as np
import pytest
from error_lines import error_line
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from clustergym.agents.auction_checkpoints import load, save
from clustergym.commands import evaluate as evaluate_command
from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate
from clustergym.training.comparison import METRICS, Entrant, ratio, run_figures
from clustergym.training.distribution import Distribution

SMALL = [
    "windows=3", "tuning_windows=2", "processes=1", "scenarios.origin=synthetic", "scenarios.jobs=[10,12]",
    "scenarios.gpus=8",
]  # fmt: skip


def checkpoints(folder: Path, *information: InformationClass) -> list[str]:
    """Write variants of a trained checkpoint, the first of them unchanged."""
    weights, names = load("elastic-linear").weights, []
    for seed, known in enumerate(information):
        names.append(str(folder / f"seed{seed}.safetensors"))
        noise = np.random.default_rng(seed).normal(size=weights.size) * min(seed, 1)
        save(Path(names[-1]), weights + noise, known, {})
    return names


def test_ratio_by_hand():
    # Two windows (rows) and two seeds (columns). Logs of mine: 0, 1 / 1, 2, mean 1; of the reference, one
    # seed: 1 / 2, mean 1.5. Ratio e^-0.5; the seeds alone: means 0.5 and 1.5, ratios e^-1 and 1. Drawing
    # windows anew shifts both sides alike, so that only the drawn seeds matter: a mean between 0.5 and 1.5.
    mine, reference = np.exp([[0.0, 1.0], [1.0, 2.0]]), np.exp([1.0, 2.0])
    assert ratio(mine, reference) == pytest.approx(np.exp([-0.5, -1.0, 0.0, -1.0, 0.0]))


def test_one_seed_has_no_spread():
    mine, reference = np.array([1.0, 2.0, 5.0]), np.array([2.0, 2.0, 2.0])
    found = ratio(mine, reference)
    assert found == ratio(mine[:, None], reference[:, None])
    assert found.value == found.least == found.greatest == pytest.approx((10 / 8) ** (1 / 3))
    assert found.low < found.value < found.high


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**20), windows=st.integers(2, 6), seeds=st.integers(1, 4))
def test_ratio_is_the_geometric_mean_of_all_pairs(seed, windows, seeds):
    rng = np.random.default_rng(seed)
    mine, reference = rng.lognormal(size=(windows, seeds)), rng.lognormal(size=(windows, 2))
    found = ratio(mine, reference)
    pairs = mine[:, :, None] / reference[:, None, :]
    assert found.value == pytest.approx(np.exp(np.log(pairs).mean()))
    assert found.low <= found.value <= found.high
    assert found.least <= found.value <= found.greatest


def test_seeds_that_differ_widen_the_interval():
    rng = np.random.default_rng(0)
    windows = rng.lognormal(size=(20, 1))
    same = ratio(windows * np.ones((1, 4)), np.ones(20))
    apart = ratio(windows * np.exp([[-1.0, -0.3, 0.3, 1.0]]), np.ones(20))
    assert apart.value == pytest.approx(same.value)
    assert np.log(apart.high / apart.low) > 1.2 * np.log(same.high / same.low)


def test_checkpoints_are_seeds_and_other_lists_knobs():
    entrant = Entrant.from_given({"name": "learned", "checkpoint": ["a", "b"], "round_s": [None, 60.0]})
    assert entrant.label == "learned checkpoint=[a, b]"
    assert [one["round_s"] for one in entrant.choices()] == [None, 60.0]
    assert [one["checkpoint"] for one in entrant.seeds(entrant.choices()[1])] == ["a", "b"]
    plain = Entrant.from_given({"name": "ares", "alpha": 0.7})
    assert plain.seeds(plain.choices()[0]) == [{"name": "ares", "alpha": 0.7}]


@pytest.mark.parametrize(
    ("given", "words"),
    [(["a", "a"], "there twice"), ([], "list the values"), (["a", 5], "5 is not a checkpoint")],
)
def test_bad_checkpoints_are_refused(given, words):
    with pytest.raises(InputError, match=words):
        Entrant.from_given({"name": "learned", "checkpoint": given})


def test_a_pooled_row(tmp_path, capsys):
    names = checkpoints(tmp_path, *[InformationClass.DATA_PARALLEL] * 3)
    singles = ", ".join(f"{{name: learned, checkpoint: {one}}}" for one in names)
    pooled = f"{{name: learned, checkpoint: [{', '.join(names)}]}}"
    code = evaluate_command.main(
        [f"policies=[{pooled}, hesrpt, {singles}]", *SMALL, f"json={tmp_path}/r.json"]
    )
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, f"wrote {tmp_path}/r.json\n")
    found = json.loads((tmp_path / "r.json").read_text())
    assert [one["columns"] for one in found["policies"]] == [[0, 1, 2], [3], [4], [5], [6]]
    assert [one["checkpoint"] for one in found["policies"][0]["parameters"]] == names
    [group] = found["groups"]
    figures = np.array(group["figures"], dtype=np.float64)
    np.testing.assert_array_equal(figures[:, :3], figures[:, 4:])
    to_hesrpt = group["ratios"]["jct_mean"][1]
    alone = [to_hesrpt[at][0] for at in (2, 3, 4)]
    assert to_hesrpt[0][0] == pytest.approx(np.exp(np.mean(np.log(alone))))
    assert to_hesrpt[0][3:] == pytest.approx([min(alone), max(alone)])
    assert group["ratios"]["jct_mean"][0][0] == [1.0] * 5
    # The page has the ratio of the first to this one, with the single seeds'.
    first = group["ratios"]["jct_mean"][1][0]
    cell = f"{first[0]:.3f} [{first[1]:.3f}, {first[2]:.3f}] ({first[3]:.3f} to {first[4]:.3f})"
    [row] = [line for line in printed.out.splitlines() if line.startswith("| hesrpt")]
    assert row.split(" | ")[3] == cell
    assert "single training seeds" in printed.out


def test_seeds_of_other_agents_are_refused(tmp_path, capsys):
    names = checkpoints(tmp_path, InformationClass.DATA_PARALLEL, InformationClass.PROFILED)
    words = [f"policies=[{{name: learned, checkpoint: [{', '.join(names)}]}}]", *SMALL]
    assert evaluate_command.main(words) == 2
    assert "entries of their own" in error_line(capsys)


def test_dropped_jobs_have_no_slowdown():
    # ElasticFlow drops jobs that cannot meet their deadlines: the mean is that of the others.
    drawn = Distribution(
        origin="synthetic", jobs=(30, 30), gpus=8, types=(1,), load=(2.0, 2.0), deadline_slack=(0.5, 1.5)
    )
    parameters = {"name": "elasticflow", "mode": "strict"}
    scenario = drawn.draw("dev", 0, 0)
    events = simulate(
        scenario, make_policy(parameters), make_placer({"name": "buddy"}), 0
    ).simulation.log.events
    ended = {event.job: event.time_s for event in events if event.event_type.value == "complete"}
    assert 0 < len(ended) < 30
    alone_s = scenario.reference_iteration_time_s * scenario.trace.iterations
    slowdowns = [
        max((end_s - scenario.trace.submit_s[job]) / max(alone_s[job], 10.0), 1.0)
        for job, end_s in ended.items()
    ]
    figures = run_figures(drawn, "dev", 0, [parameters], 0)
    assert figures[0, METRICS.index("slowdown_mean")] == pytest.approx(np.mean(slowdowns))


def test_where_no_job_ends_there_is_no_slowdown():
    late = Distribution(
        origin="synthetic", jobs=(5, 5), gpus=8, types=(1,), load=(2.0, 2.0), deadline_slack=(0.01, 0.02)
    )
    figures = run_figures(late, "dev", 0, [{"name": "elasticflow", "mode": "strict"}], 0)
    assert np.isnan(figures[0, METRICS.index("slowdown_mean")])


def test_deadlines_and_fairness_as_ratios(tmp_path, capsys):
    words = [
        "policies=[learned, hesrpt, lower_bound]", *SMALL, "ratios=[deadline_satisfaction, ftf_mean]",
        "scenarios.deadline_slack=[1.0, 3.0]", f"json={tmp_path}/r.json",
    ]  # fmt: skip
    code = evaluate_command.main(words)
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, f"wrote {tmp_path}/r.json\n")
    found = json.loads((tmp_path / "r.json").read_text())
    [group] = found["groups"]
    figures = np.array(group["figures"], dtype=np.float64)
    for name in ("deadline_satisfaction", "ftf_mean"):
        table = figures[:, :, found["metrics"].index(name)]
        expected = np.exp(np.log(table[:, 0] / table[:, 1]).mean())
        assert group["ratios"][name][1][0][0] == pytest.approx(expected)
        assert group["ratios"][name][0][2] == [None] * 5  # a bound has neither
    head = printed.out.splitlines()[4].split(" | ")
    assert head[3:5] == ["first / this: deadlines met", "mean FTF"]
    assert head[-2:] == ["deadlines met", "mean FTF |"]
    [bound] = [line.split(" | ") for line in printed.out.splitlines() if line.startswith("| lower_bound")]
    assert len(bound) == len(head)
    assert bound[3:5] == ["", ""]


@refused("evaluate", words=True)
def test_bad_ratios_are_one_line(given, said, capsys):
    assert evaluate_command.main(["policies=[fcfs]", *SMALL, *given]) == 2
    said.check(error_line(capsys))
