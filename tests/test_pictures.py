"""The committed pictures of the docs show what the simulator does now."""

import importlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import clustergym
from clustergym.scenario.pairs import PairSpeeds
from clustergym.scenario.registry import make_policy

DOCS = Path(__file__).parent.parent / "docs"
PRESETS = sorted(path.stem for path in (DOCS.parent / "conf" / "policy").glob("*.yaml"))


@pytest.fixture
def schedules(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("schedule_pictures")


@pytest.mark.parametrize("name", PRESETS)
def test_the_schedule_of_a_policy_is_current(schedules, name):
    if name == "learned":
        pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    preset = DOCS.parent / "conf" / "policy" / f"{name}.yaml"
    drawn = (DOCS / "policies" / f"{name}.svg").read_text(encoding="utf-8")
    made = schedules.picture(name, schedules.run(preset))
    assert made == drawn, "run `python docs/schedule_pictures.py`"


def test_bars_are_what_jobs_held(schedules):
    held_gpus = importlib.import_module("held_gpus")
    result = schedules.run(DOCS.parent / "conf" / "policy" / "arena.yaml")
    bars = held_gpus.bars_of(result.run.simulation)
    for job in range(len(result.jobs.end_s)):
        held = sum(
            (bar.stop_s - bar.start_s) * len(bar.gpus) for bar in bars if bar.job == job and not bar.profiles
        )
        assert held == pytest.approx(result.jobs.held_gpu_s[job], abs=0.01)
    # Nobody holds a GPU that another one holds.
    for gpu in range(16):
        mine = sorted((bar.start_s, bar.stop_s) for bar in bars if gpu in bar.gpus)
        assert all(before[1] <= after[0] for before, after in pairwise(mine))


def test_bars_of_pairs_and_of_parts_lie_on_the_gpus_that_jobs_share(schedules):
    held_gpus = importlib.import_module("held_gpus")
    alone = schedules.scenario()
    shape = (len(alone.tables.classes), *alone.feasible.shape)
    pairs = PairSpeeds(np.full(shape, 0.9), np.zeros(shape, dtype=np.bool_), "free")
    policy = make_policy({"name": "gandiva", "pack": True})
    paired = clustergym.simulate(replace(alone, pairs=pairs), policy).run.simulation
    bars = held_gpus.bars_of(paired)
    shares = [event for event in paired.log.events if event.partner >= 0 and event.nodes]
    assert shares
    for event in shares:
        now = {bar.job: bar.gpus for bar in bars if bar.start_s <= event.time_s < bar.stop_s}
        assert now[event.job] == now[event.partner]
    parts = clustergym.load_scenario("sharing", ["trace.jobs=60"])
    divided = clustergym.simulate(parts, "fcfs", "parts").run.simulation
    on_first = [bar for bar in held_gpus.bars_of(divided) if bar.gpus and max(bar.gpus) < 8]
    given = [e for e in divided.log.events if e.event_type == "start" and e.devices and e.nodes[0][0] == 0]
    assert [bar.gpus for bar in on_first] == [(e.devices.bit_length() - 1,) for e in given]


def test_the_picture_of_two_policies_is_small_and_current(monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="pip install 'clustergym[render]'")
    monkeypatch.syspath_prepend(str(DOCS))
    two_policies = importlib.import_module("two_policies")
    path = DOCS / "two-policies.gif"
    assert path.stat().st_size < 2_000_000
    with image.open(path) as picture:
        assert picture.n_frames > 30
        said = picture.info["comment"].decode()
    scenario = clustergym.load_scenario("testbed")
    results = {policy: clustergym.simulate(scenario, policy) for policy in ("fcfs", "arena")}
    assert two_policies.comment(results) == said, "run `python docs/two_policies.py`"
