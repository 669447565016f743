"""The engine benchmark measures runs and does not change them."""

import json

import pytest
from clustergym.bench.engine import EngineOptions, benchmark_scenario, engine_rows
from clustergym.policies.arena import Arena
from clustergym.policies.placers.buddy import Buddy

from clustergym.bench import command as bench
from clustergym.sim.drive import simulate

SMALL = ["engine", "--gpus", "16", "--hours", "1"]


@pytest.mark.parametrize("contention", [False, True])
def test_a_timed_run_is_the_run_itself(contention):
    options = EngineOptions([16], [{"name": "arena", "round_s": 60.0}], 2.0, contention)
    *_, row = engine_rows(options)
    assert row["contention"] == contention
    if contention:
        return
    run = simulate(benchmark_scenario(16, hours=2.0), Arena(round_s=60.0), Buddy())
    assert row["digest"] == run.simulation.log.digest
    assert row["decisions"] == run.decision_times.count
    assert row["simulated_s"] == run.simulation.end_s


@pytest.mark.timed
def test_the_shares_are_parts_of_the_whole():
    (row,) = engine_rows(EngineOptions([16], [{"name": "ares"}], 2.0, repeat=2))
    parts = [row[f"{part}_s_total"] for part in ("view", "policy", "enactment")]
    assert min(parts) > 0
    assert sum(parts) < row["cpu_s"]
    # A decision is what the policy does and what it asks of the View, not the building of the View.
    assert row["policy_s_total"] < row["decision_s_total"] < row["policy_s_total"] + row["view_s_total"]
    assert 0 < row["decision_s_p50"] <= row["decision_s_p99"]


@pytest.mark.slow
def test_the_command_prints_a_line_a_policy_and_writes_all_figures(tmp_path, capsys):
    file = tmp_path / "engine.json"
    policies = ["fcfs", "{name: elasticflow, mode: loosened}"]
    assert bench.main([*SMALL, "--policies", *policies, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["policy", "fcfs", "elasticflow"]
    figures = json.loads(file.read_text())
    assert figures["schema"] == "clustergym.bench.engine/1"
    assert [row["parameters"] for row in figures["rows"]] == [
        {"name": "fcfs"},
        {"name": "elasticflow", "mode": "loosened"},
    ]
