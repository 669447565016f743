"""Gavel's streams of jobs that share GPUs, on a few jobs of its published table."""

import json
from pathlib import Path

import numpy as np
import pytest
from clustergym.papers.gavel_packing import MEASURED, PACKED, UNPACKED, Load, packing_scenario
from clustergym.papers.reproduction import change, summarise_run
from published_data import DATA, find_published

from clustergym.papers import gavel_packing
from clustergym.results.measured_run import simulate

ROOT = Path(__file__).parents[2]
HOURS = (0.9494, 0.9462)
"""Mean JCT of the jobs that count of the short stream, alone and packed."""


@pytest.fixture
def load(monkeypatch):
    find_published(str(gavel_packing.RATES))
    several = Load(40.0, 20, 60, 20, (1.0, 1.0), several=True)
    monkeypatch.setitem(gavel_packing.ALL, several.name, several)
    return several


def test_a_stream_is_drawn_once_and_packed_jobs_share_single_gpus(load):
    scenario = packing_scenario(DATA, load.spec(PACKED))
    trace = scenario.trace
    assert (len(trace), int((trace.priority == MEASURED).sum())) == (80, 40)
    assert trace.sha256 == packing_scenario(DATA, load.spec(UNPACKED)).trace.sha256
    assert scenario.horizon_s == trace.submit_s[-1]
    # Hours on V100 lie between 10^1.5 and 10^4 minutes.
    level = np.searchsorted(scenario.tables.counts, trace.gpus)
    hours = trace.iterations * scenario.execution[scenario.class_of, 0, level, 0] / 3600
    assert hours.min() >= 10**1.5 / 60 * 0.99
    assert hours.max() <= 10**4 / 60 * 1.01
    alone, packed = (simulate(scenario, load.spec(which).make_policy()) for which in (UNPACKED, PACKED))
    assert alone.run.simulation.sharing.launches["table"] == 0
    # A short stream by the rules of the long ones: if it changes, so do the figures of the page.
    remedy = "docs/reproduction/gavel.md is behind: run `clustergym reproduce gavel`"
    figures = [gavel_packing._jct_h(summarise_run(result)) for result in (alone, packed)]
    # Versions of the solver choose among equal optima.
    assert figures == pytest.approx(HOURS, rel=0.01), remedy
    joined = [event for event in packed.run.simulation.log.events if event.partner >= 0]
    assert joined
    assert {event.gpus for event in joined} == {1}


def test_the_page_has_the_curve_of_its_figures():
    page = (ROOT / "docs" / "reproduction" / "gavel.md").read_text(encoding="utf-8")
    claims = json.loads((ROOT / "docs" / "reproduction" / "gavel.claims.json").read_text(encoding="utf-8"))
    fair = {claim["claim"].partition("sharing, ")[2]: claim for claim in claims["claims"]}
    for load in (*gavel_packing.LOADS, *gavel_packing.SEVERAL):
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {load.name} |"))
        counted, alone, theirs, packed, theirs_packed, changed, published = row.strip("| ").split(" | ")[1:]
        assert counted == f"{load.first:,} to {load.last:,}"
        assert (float(theirs), float(theirs_packed)) == load.published
        assert published == change(load.published[1], load.published[0])
        # Of hours to two digits.
        percent = 100 * (float(packed) / float(alone) - 1)
        assert float(changed.removesuffix(" %")) == pytest.approx(percent, abs=0.6)
        if load.name in fair:
            ours = fair[load.name]
            assert ours["as_published"] == pytest.approx(percent, abs=0.1)


def test_the_speeds_of_a_pair_are_those_of_the_table(load):
    scenario = packing_scenario(DATA, load.spec(PACKED))
    classes = [model.family for model in scenario.tables.classes]
    first = next(at for at, name in enumerate(classes) if name.endswith(" x 1"))
    entries, _ = gavel_packing.gavel_pairs(DATA / gavel_packing.RATES)
    name = classes[first].removesuffix(" x 1")
    entry = next(e for e in entries if (e.gpu_type, e.gpus, e.first, e.second) == ("v100", 1, name, name))
    assert float(scenario.pairs.kept[first, first, 0, 0]) == pytest.approx(entry.kept[0], abs=1e-12)
