"""The placement benchmark: its command, its figures, and the step times behind the characterisation."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clustergym.papers.arnold_benchmark import BASELINES, COMPARED, summary
from clustergym.papers.arnold_characterisation import (
    DENSE,
    FREE,
    JOB,
    MODELS,
    best_fit,
    fabric_tiers,
    inside_a_minipod,
    pack_ranks,
    placements,
    two_minipods,
)
from clustergym.papers.arnold_step_time import StepTime, network_tiers, predict

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import Locality
from clustergym.common.errors import InputError
from clustergym.envs.placement.drawing import draw_free_nodes
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.grid_oracle import build_graph
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.devices import Layout
from clustergym.papers import arnold, arnold_benchmark, reproduce
from clustergym.scenario.placement_problem import PretrainingJob, Spread, cell_spread

STATES = 10
"""Of the page of the paper in its quick form."""


@pytest.fixture(scope="module")
def quick():
    return arnold_benchmark.placement_figures(True, STATES, 0)


def test_output_is_the_same_each_time(monkeypatch):
    monkeypatch.setattr(arnold_benchmark, "QUICK_ALPHAS", (0.5,))
    assert arnold_benchmark.placement_figures(True, 3, 0) == arnold_benchmark.placement_figures(True, 3, 0)


def test_the_papers_page(quick, tmp_path, monkeypatch, capsys):
    found = json.loads(json.dumps(quick))
    given = []
    monkeypatch.setattr(arnold, "placement_figures", lambda *words: given.append(words) or found)
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["arnold", "--quick", "--json", "figures.json"]) == 0
    assert given == [(True, STATES, 0)]
    capsys.readouterr()
    text = Path("outputs/reproduction/quick/arnold.md").read_text()
    written = json.loads(Path("figures.json").read_text())
    (figures,), rows = written["runs"], {row["claim"]: row for row in written["claims"]}
    assert figures == found
    most = rows["best baseline's score over Arnold's, most"]
    assert most["fair"] == figures["summary"]["greatest_ratio"]
    assert most["verdict"] == "reproduced"
    assert f"| best baseline's score over Arnold's, most | 1.67x | {most['fair']:.2f}x | reproduced |" in text
    assert max(figures["characterisation"]["inside_a_minipod"].values()) <= 0.003
    assert rows["inside one minipod placement changes at most 0.3 % (1: yes)"]["verdict"] == "reproduced"
    claims = text.split("## Claims")[1].split("\n## ")[0]
    assert len(rows) == claims.count("\n| ") - 2 * claims.count("\n### ")


def test_arnold_is_never_beaten_and_proven_in_every_state(quick):
    for setting in quick["settings"]:
        arnold = np.array(setting["scores"]["arnold"])
        assert setting["arnold"]["proven"] == setting["arnold"]["solved"] == arnold.size == 5 * STATES
        for name in BASELINES:
            assert (np.array(setting["scores"][name]) >= arnold - 1e-9).all()


def test_summary_by_hand():
    # Two alphas, two states. Means: arnold 1, 2; GPU packing 2, 2; the others 3. Ratios 2 and 1.
    scores = {name: [[3.0, 3.0], [3.0, 3.0]] for name in COMPARED}
    scores |= {"arnold": [[1.0, 1.0], [2.0, 2.0]], "gpu_packing": [[1.0, 3.0], [2.0, 2.0]]}
    found = summary([{"name": "x", "scores": scores}], [0.2, 0.8])
    assert found["ratio_to_best_baseline"] == {"x": [2.0, 1.0]}
    assert (found["greatest_ratio"], found["mean_ratio"]) == (2.0, 1.5)
    assert found["by_setting"]["x"] == {"greatest_ratio": 2.0, "mean_ratio": 1.5}
    assert found["ties"]["x"]["gpu_packing"] == 0.75
    assert found["ties"]["x"]["topology_aware"] == 0.0


def test_alpha_0_and_1_do_not_count():
    scores = {name: [[4.0], [3.0], [2.0]] for name in COMPARED} | {"arnold": [[1.0], [2.0], [2.0]]}
    found = summary([{"name": "x", "scores": scores}], [0.0, 0.5, 1.0])
    assert (found["greatest_ratio"], found["mean_ratio"]) == (1.5, 1.5)


def test_states_are_uniform_where_they_have_room():
    sizes = np.array([3, 0, 9])
    drawn = np.array([draw_free_nodes(sizes, 4, np.random.default_rng(k)) for k in range(300)])
    assert (drawn.sum(axis=1) >= 4).all()
    assert (drawn <= sizes).all()
    assert set(drawn[:, 0].tolist()) == {0, 1, 2, 3}
    with pytest.raises(InputError, match="13 nodes are more than the cluster's 12"):
        draw_free_nodes(sizes, 13, np.random.default_rng(0))
    with pytest.raises(InputError, match="no state with 1200 free nodes"):
        draw_free_nodes(np.full(400, 3), 1200, np.random.default_rng(0))


def test_the_three_placements():
    # 6 x 2 nodes over minipods with 8 and 6 free. Packed: the first stage and two nodes of the second in
    # the first minipod, so that rows and the second column are cut.
    made = placements(FREE, JOB)
    assert made["packed"].T.tolist() == [[0] * 6, [0, 0, 1, 1, 1, 1]]
    assert cell_spread(made["packed"]) == Spread(dp=2, pp=2)
    assert cell_spread(made["pp_aligned"]) == Spread(dp=2, pp=1)
    assert cell_spread(made["dp_aligned"]) == Spread(dp=1, pp=2)


def test_step_time_by_hand():
    # 48 layers over 2 stages in chunks of 2: 12 virtual stages; 32 micro-batches: 32 x 12 + 1 = 385 slots,
    # each with a hop out and back. Two senders of 2 bytes x 2048 tokens x 5120 share 8 ports of 50 GB/s at
    # 0.72, half of it across: 41.94 MB / 144 GB/s = 291.3 us, and 25 + 5 us of latency.
    tiers, model = fabric_tiers(2.0), replace(DENSE, layers=48)
    made = placements(FREE, JOB)
    packed = predict(made["packed"], JOB, model, tiers)
    assert packed.pipeline_s == pytest.approx(385 * 2 * (30e-6 + 2 * 2 * 2048 * 5120 / 144e9))
    # Inside a minipod: 288 GB/s, and 25 + 3 us.
    inside = predict(made["pp_aligned"], JOB, model, tiers)
    assert inside.pipeline_s == pytest.approx(385 * 2 * (28e-6 + 2 * 2 * 2048 * 5120 / 288e9))
    assert inside.data_s == packed.data_s
    assert inside[:2] == packed[:2]
    aligned = predict(made["dp_aligned"], JOB, model, tiers)
    assert aligned.pipeline_s == packed.pipeline_s
    assert aligned.data_s < packed.data_s


def test_step_times_and_the_oracles_have_one_share_of_a_port_of_each_gpu():
    # Eight ports of 50 GB/s reach 0.72 of 400 GB/s: 288 GB/s, for collectives and between stages.
    cluster, leaf = load_cluster("arnold-i"), int(Locality.LEAF)
    graph = build_graph(load_catalog().get(ModelClass("gpt3", "1.3B", 128)))
    rows = GraphAllocations.from_graphs([graph], [128], [cluster.groups[0].gpu_type], [16], [2], [400.0])
    roofline, grid = Layout.of_cluster(cluster, [16]), Machine.from_rows(rows, Constants()).layout
    step = network_tiers(cluster).layouts[leaf]
    assert roofline.network_gbs[0, 0, leaf] == roofline.transfer_gbs[0, 0, leaf] == pytest.approx(288.0)
    assert grid.network_gbs[0] == grid.transfer_gbs[0] == pytest.approx(288.0)
    assert step.network_gbs == step.transfer_gbs == pytest.approx(288.0)


def test_aligned_is_never_slower_than_packed_and_inside_a_minipod_hardly_matters():
    for row in two_minipods(MODELS, (16, 64), fabric_tiers(2.0)):
        assert min(row["gain"].values()) >= 0
    assert max(inside_a_minipod(MODELS).values()) < 0.01


def test_layers_that_do_not_divide():
    with pytest.raises(InputError, match="layers: 15 layers do not divide into 2 stages of whole chunks"):
        predict(placements(FREE, JOB)["packed"], JOB, replace(DENSE, layers=15), fabric_tiers(2.0))


def test_baselines_give_ranks_in_the_order_they_take_nodes():
    # 3 x 2 nodes; a column has three consecutive ranks. Free 4, 1, 3.
    job, free = PretrainingJob.from_gpus(48, 8, 2), [4, 1, 3]
    # Fullest first: 1, then 2, 2, 2, then 0, 0.
    assert best_fit(free, job).T.tolist() == [[1, 2, 2], [2, 0, 0]]
    # Roomiest first: all four of 0, and the two left fit in 2.
    assert pack_ranks(free, job).T.tolist() == [[0, 0, 0], [0, 2, 2]]


def test_the_share_of_a_step_that_is_communication():
    step = StepTime(compute_s=6.0, tensor_s=1.0, pipeline_s=2.0, data_s=1.0)
    assert step.total_s == 10.0
    assert step.communication_share == 0.4
