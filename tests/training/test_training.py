"""Training improves, is the same again, goes on after a kill, and keeps the splits apart."""

import json

import numpy as np
import pytest
from error_lines import error_line
from published_data import find_published
from trainings import AUCTION, without_times

from clustergym.agents import auction_features as features
from clustergym.agents import beliefs
from clustergym.agents.auction import count_hidden_units
from clustergym.agents.auction_checkpoints import load
from clustergym.commands import evaluate as evaluate_command
from clustergym.commands import train as train_command
from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass
from clustergym.training import auction_evolution
from clustergym.training.agents import make_agent
from clustergym.training.auction_evolution import Objective
from clustergym.training.comparison import Entrant
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.evolution import SCHEMA, History
from clustergym.training.simulated_episodes import AuctionEpisode
from clustergym.training.windows import BOUNDS, SOURCES, draw_window, philly_file


def run_train(folder, *more: str) -> int:
    return train_command.main([*AUCTION, "progress=false", f"output={folder}", *more])


def test_the_same_seed_gives_the_same_checkpoint(tmp_path):
    assert run_train(tmp_path / "a") == run_train(tmp_path / "b") == run_train(tmp_path / "c", "seed=1") == 0
    a, b, c = (tmp_path / name / f"{name}.safetensors" for name in "abc")
    assert a.read_bytes() == b.read_bytes() != c.read_bytes()
    assert without_times(a.with_suffix(".yaml")) == without_times(b.with_suffix(".yaml"))
    traces = without_times(a.with_suffix(".yaml"))["traces"]
    assert traces == {"origin": "synthetic", "generators": list(SOURCES)}
    assert len(load(str(a)).about["curves"]["objective"]) == 4


def test_synthetic_windows_are_drawn_from_the_generators_that_are_named() -> None:
    usual, one = (
        Distribution(origin="synthetic", jobs=(5, 6), **given)
        for given in ({}, {"generators": ("newtrace",)})
    )
    names = [
        {drawn.draw("train", 0, index).trace.name.split("-")[1] for index in range(24)}
        for drawn in (usual, one)
    ]
    assert names == [set(SOURCES), {"newtrace"}]
    with pytest.raises(InputError, match=r"scenarios\.generators: phily is not valid"):
        Distribution(generators=("phily",))


def test_windows_of_several_sizes_and_features_left_out(tmp_path, capsys):
    sizes = "agent.scenarios.gpus=[8,16]"
    more = ["agent.initial=elastic", "agent.without=[queue_double,age]", sizes]
    assert run_train(tmp_path / "a", *more) == 0
    weights = dict(zip(features.NAMES, load(str(tmp_path / "a" / "a.safetensors")).weights, strict=True))
    assert (weights["queue_double"], weights["age"]) == (0.0, 0.0)
    assert load("elastic").weights[features.NAMES.index("queue_double")] != 0.0
    assert weights["rate"] != 0.0
    drawn = Distribution(origin="synthetic", jobs=(10, 12), gpus=(8, 16), types=(2,))
    found = {int(draw_scenario(drawn, "train", 0, at).cluster.capacity.sum()) for at in range(12)}
    assert found == {8, 16}
    assert run_train(tmp_path / "b", "agent.without=[size_dubble]") == 2
    assert "agent.without" in error_line(capsys)
    assert run_train(tmp_path / "c", sizes, "agent.scenarios.types=[9]") == 2
    assert "scenarios.types" in error_line(capsys)


@pytest.mark.parametrize(
    ("known", "begun", "hidden"),
    [
        (["agent.information=none"], beliefs.START, 0),
        (["agent.information=none"], beliefs.START, 1),
        (["agent.measures=true"], beliefs.START_TOLD, 0),
    ],
)
def test_one_that_measures_jobs_learns_what_to_believe(tmp_path, known, begun, hidden):
    assert run_train(tmp_path / "a", *known, "agent.initial=elastic", f"agent.hidden={hidden}") == 0
    found = load(str(tmp_path / "a" / "a.safetensors"))
    assert (found.information_class == InformationClass.NONE) == (len(begun) == beliefs.COUNT)
    scores, believed = beliefs.split(found.weights)
    assert count_hidden_units(scores) == hidden
    assert (believed != begun).all()
    # What the windows say nothing of, deadlines, stays as it was.
    late = features.WITHOUT_DEADLINES
    assert scores[late : features.COUNT].tolist() == load("elastic").weights[late:].tolist()


def test_a_killed_training_goes_on_where_it_was(tmp_path, monkeypatch):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_train(whole) == 0
    evaluated, plain = [], auction_evolution.objectives

    def dies(*given):
        evaluated.append(given)
        if len(evaluated) == 10:  # in the third generation of four windows
            raise KeyboardInterrupt
        return plain(*given)

    with monkeypatch.context() as patched:
        patched.setattr(auction_evolution, "objectives", dies)
        assert run_train(killed) == 130
    assert run_train(killed) == 0
    assert (killed / "killed.safetensors").read_bytes() == (whole / "whole.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("fitness", "validated"),
    [
        ([[1.0], [2.0]], [[1, 2.0], [2, "nan"]]),
        ([[1.0], ["inf"]], [[1, 2.0], [2, 2.0]]),
        ([[1.0], [2.0]], [[1, 2.0], [2, 2.0, 0.5]]),
        ([[1.0], [2.0]], [[1, 2.0]]),
        ([[1.0, 2.0]], [[1, 2.0]]),
    ],
)
def test_a_state_of_numbers_that_no_training_writes_is_refused(tmp_path, fitness, validated):
    key, path = {"population": 1, "generations": 2, "validate_every": 1}, tmp_path / "state.json"
    state = {"schema": SCHEMA, "key": key, "fitness": [[1.0], [2.0]]}
    path.write_text(json.dumps(state | {"validated": [[1, 2.0], [2, 2.0]]}))
    assert History.read(path, key).fitness == [[1.0], [2.0]]
    path.write_text(json.dumps(state | {"fitness": fitness, "validated": validated}))
    with pytest.raises(InputError, match="is not a state of a training"):
        History.read(path, key)


def test_evolution_finds_a_better_schedule(tmp_path):
    # Starting from weights of 0 (any order, no doubling) there is much to gain.
    drawn = {"origin": "synthetic", "jobs": [30, 40], "gpus": 16, "types": [2]}
    given = {"generations": 8, "population": 8, "episodes": 8, "validation": 12}
    agent = make_agent({"name": "auction_es", "scenarios": drawn, **given})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(auction_evolution, "start", lambda: np.zeros(auction_evolution.features.COUNT))
        trained = agent.train(0, 1, tmp_path / "state.json", lambda *_: None)
    before = agent._evaluate(map, [np.zeros(len(trained.weights))], "dev", 99, 0, 12)[0]
    after = agent._evaluate(map, [trained.weights], "dev", 99, 0, 12)[0]
    assert after < before - 0.1


def test_a_training_starts_from_a_checkpoint_and_adds_hidden_units(tmp_path, capsys):
    assert run_train(tmp_path / "a") == 0
    first = f"agent.initial={tmp_path}/a/a.safetensors"
    more = [first, "agent.hidden=2", "agent.sigma=1e-9", "agent.tail=0.5"]
    assert run_train(tmp_path / "b", *more) == 0
    before, after = load(str(tmp_path / "a" / "a.safetensors")), load(str(tmp_path / "b" / "b.safetensors"))
    assert count_hidden_units(before.weights) == 0
    assert count_hidden_units(after.weights) == 2
    # With a step of 1e-9 both order all moves alike.
    episode = AuctionEpisode.from_scenario(
        draw_scenario(Distribution(origin="synthetic", jobs=(20, 30), gpus=16), "dev", 3, 0),
        before.information_class,
    )
    assert episode.run(after.weights).tolist() == episode.run(before.weights).tolist()
    assert run_train(tmp_path / "c", f"agent.initial={tmp_path}/b/b.safetensors") == 2
    assert "has hidden units already" in capsys.readouterr().err


def test_what_windows_without_deadlines_say_nothing_of_stays(tmp_path):
    # Of the weights and of those of a hidden unit; with deadlines the search moves them all.
    columns = [features.NAMES.index(name) for name in features.OF_DEADLINES]
    inside = [features.COUNT + 2 + at for at in columns]
    assert run_train(tmp_path / "a", "agent.hidden=1", "agent.generations=2") == 0
    begun = make_agent({"name": "auction_es", "hidden": 1})._start(0)
    plain = load(str(tmp_path / "a" / "a.safetensors")).weights
    same = np.flatnonzero(plain == begun).tolist()
    assert same == sorted(columns + inside)
    deadlines = "agent.scenarios.deadline_slack=[0.5,1.5]"
    assert run_train(tmp_path / "b", "agent.hidden=1", "agent.generations=2", deadlines) == 0
    assert not (load(str(tmp_path / "b" / "b.safetensors")).weights == begun).any()


def test_the_tail_counts_in_the_objective():
    drawn = Distribution(origin="synthetic", jobs=(20, 30), gpus=16, types=(2,))
    weights = auction_evolution.start()
    known = InformationClass.DATA_PARALLEL
    jct_s = AuctionEpisode.from_scenario(draw_scenario(drawn, "train", 3, 0), known).run(weights)
    plain, tailed = (
        auction_evolution.objectives(
            drawn, "train", 3, known, Objective({"jct_mean": 1.0, "jct_p99": tail}), weights[None], 0
        )[0]
        for tail in (0.0, 0.5)
    )
    assert plain == pytest.approx(np.log(jct_s.mean()))
    assert tailed - plain == pytest.approx(0.5 * np.log(np.percentile(jct_s, 99)))


def test_training_on_the_test_split_marks_the_checkpoint(tmp_path):
    assert run_train(tmp_path / "a", "agent.split=test", "allow_test=true") == 0
    assert load(str(tmp_path / "a" / "a.safetensors")).about["trained_on_test"] is True


def test_splits_share_no_scenario():
    drawn = Distribution(origin="synthetic", jobs=(5, 6), gpus=4, types=(1,))
    hashes = {
        draw_scenario(drawn, split, 0, i).sha256 for split in ("train", "dev", "test") for i in range(5)
    }
    assert len(hashes) == 15
    bounds = [day for split in ("train", "dev", "test") for day in BOUNDS[split]]
    assert bounds == sorted(bounds)


@pytest.mark.skipif(not philly_file().is_file(), reason=f"needs {philly_file()}")
def test_real_windows_lie_in_their_split():
    windows = [draw_window(np.random.default_rng(i), "dev", "real", 200) for i in range(5)]
    assert all(len(w.gpus) == 200 and (np.diff(w.submit_s) >= 0).all() for w in windows)
    days = np.array([np.datetime64(day) for day in BOUNDS["dev"]])
    longest = (days[1] - days[0]) / np.timedelta64(1, "s")
    assert all(w.submit_s[-1] < longest for w in windows)


def test_a_window_longer_than_its_split_is_refused():
    find_published("sia/philly.csv")
    with pytest.raises(
        InputError, match=r"scenarios\.jobs.*the dev split of philly\.csv has windows of up to"
    ):
        draw_window(np.random.default_rng(0), "dev", "real", 1_000_000)


def test_missing_data_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTERGYM_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"philly\.csv.*origin=synthetic"):
        draw_window(np.random.default_rng(0), "train", "real", 20)


def test_offered_load_is_as_asked():
    drawn = Distribution(origin="synthetic", jobs=(50, 50), gpus=32, types=(1,), load=(0.8, 0.8))
    scenario = draw_scenario(drawn, "train", 0, 0)
    gpu_s = float(
        (scenario.reference_iteration_time_s * scenario.trace.iterations * scenario.trace.gpus).sum()
    )
    assert gpu_s / (32 * scenario.trace.span_s) == pytest.approx(0.8, rel=1e-3)


def test_knobs_are_lists():
    entrant = Entrant.from_given({"name": "ares", "alpha": [0.5, 0.7], "work_conserving": True})
    assert [one["alpha"] for one in entrant.choices()] == [0.5, 0.7]
    with pytest.raises(InputError):
        Entrant.from_given(5)


def test_evaluate_compares_and_writes(tmp_path, capsys):
    run_train(tmp_path / "a")
    words = [
        f"policies=[{tmp_path}/a/a.safetensors,hesrpt,{{name: ares, alpha: [0.6, 0.9]}},lower_bound]",
        "windows=3", "tuning_windows=2",
        "processes=1", "scenarios.origin=synthetic", "scenarios.jobs=[10,12]", "scenarios.gpus=8",
        "loads=[0.7,1.2]",
        f"report={tmp_path}/r.md", f"json={tmp_path}/r.json",
    ]  # fmt: skip
    capsys.readouterr()
    assert evaluate_command.main(words) == 0
    text = (tmp_path / "r.md").read_text()
    assert text == capsys.readouterr().out
    assert text.count("1.000 [1.000, 1.000]") >= 6
    assert "tuned" in text
    assert evaluate_command.main([*words, "split=tets"]) == 2
    assert evaluate_command.main([*words, "policies=[hesrtp]"]) == 2
    assert evaluate_command.main([*words, "loads=[x]"]) == 2
    assert evaluate_command.main([*words, "loads=[0.7,-1]"]) == 2
    assert capsys.readouterr().err.count("\n") == 4


def test_evaluate_on_trace_files(tmp_path, capsys):
    columns = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus"
    for name in "ab":
        rows = [f"{name}{i},{60 * i},gpt3,760M,128,{200 + i},{2**i}" for i in range(3)]
        (tmp_path / f"{name}.csv").write_text("\n".join([columns, *rows]) + "\n")
    words = [
        "policies=[hesrpt,lower_bound]", "processes=1", f"json={tmp_path}/r.json",
        f"traces={{scenario: ares, overrides: ['cluster=ares-16'], files: ['{tmp_path}/*.csv']}}",
    ]  # fmt: skip
    code = evaluate_command.main(words)
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, f"wrote {tmp_path}/r.json\n")
    assert "2 traces:" in printed.out
    shown = "`clustergym evaluate 'policies=[hesrpt,lower_bound]' \"traces={scenario: ares, overrides: ['clus"
    assert printed.out.startswith(shown)
    figures = json.loads((tmp_path / "r.json").read_text())["groups"][0]["figures"]
    for hesrpt, bound in figures:
        assert 0 < bound[0] <= hesrpt[0]
        assert bound[3:] == [None] * 5
    for bad in ("traces=5", "traces={files: [nowhere.csv]}", "traces={fils: []}", "loads=[1.0]"):
        assert evaluate_command.main([*words, bad]) == 2
        error_line(capsys)
