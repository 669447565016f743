"""Operator graphs: totals, clustering, balance."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustergym.oracle.grid.operators import balance_cuts, operator_graph
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_spec import SHAPE, ModelClass

CATALOG = load_catalog()


def every(catalog: Catalog) -> list[ModelClass]:
    models = [ModelClass(family, size, 16) for family in catalog.families for size in catalog.sizes(family)]
    return [model for model in models if catalog.get(model).architecture != SHAPE]


@pytest.mark.parametrize("model", every(CATALOG), ids=lambda model: model.model)
def test_operators_add_up_to_the_model(model: ModelClass) -> None:
    spec = CATALOG.get(model)
    graph = operator_graph(spec)
    flops = sum(graph[name].sum() for name in ("flops", "attention_flops", "gate_flops"))
    parameters = graph["shared_parameters"].sum() + graph["expert_parameters"].sum()
    assert flops == pytest.approx(spec.forward_flops_per_sample, rel=1e-9)
    assert parameters == pytest.approx(spec.parameters, rel=1e-9)
    assert graph["expert_parameters"].sum() == pytest.approx(spec.expert_parameters, rel=1e-9)
    assert len(graph) == min(8, len(graph))


def test_a_transformer_layer_by_hand() -> None:
    # h = 1536, S = 1024: 12 h^2 = 28,311,552 parameters a layer, FLOPs 2 S times that, attention 4 S^2 h.
    graph = operator_graph(CATALOG.get(ModelClass("gpt3", "760M", 128)), clusters=25)
    assert len(graph) == 25  # 24 layers and the output
    assert graph.names[0] == "layer 0"
    assert graph.names[-1] == "output"
    assert graph["shared_parameters"][0] == 12 * 1536**2
    assert graph["flops"][0] == 2 * 1024 * 12 * 1536**2
    assert graph["attention_flops"][0] == 4 * 1024**2 * 1536
    assert graph["boundary_bytes"][0] == 2 * 1024 * 1536  # fp16
    assert graph["kept_bytes"][0] == 2 * 1024 * 1536
    assert graph["flops"][-1] == 2 * 1024 * 1536 * 51200


def test_every_second_layer_of_a_mixture_has_experts() -> None:
    graph = operator_graph(CATALOG.get(ModelClass("gshard_moe", "690M", 256)), clusters=9)
    experts = graph["expert_parameters"]
    # 16 experts of 2 x 768 x 6144 parameters
    assert experts.tolist() == [0.0, 16 * 2 * 768 * 6144] * 4 + [0.0]
    # 16,384 h FLOPs a token of dispatch and combine: 2 x 2 x (2 x 2048) x h
    assert graph["gate_flops"][1] == 1024 * 16384 * 768


def test_blocks_of_a_wide_resnet() -> None:
    graph = operator_graph(CATALOG.get(ModelClass("wide_resnet", "500M", 256)), clusters=16)
    assert graph.names[:2] == ("block 0", "block 1")
    # Second block: f = 224, 56 x 56: 1x1 from 896, 3x3 to 448, 1x1 to 896 channels.
    weights = 896 * 224 + 9 * 224 * 448 + 448 * 896
    assert graph["shared_parameters"][1] == weights
    assert graph["flops"][1] == 2 * weights * 56**2
    assert graph["boundary_bytes"][1] == 4 * 896 * 56**2  # fp32
    assert graph["split_reduction"][1] == 448


def test_clusters_join_neighbours() -> None:
    graph = operator_graph(CATALOG.get(ModelClass("gpt3", "760M", 128)))
    total = graph["flops"] + graph["attention_flops"]
    assert graph.names[0] == "layer 0-layer 2"
    assert total.max() / total.mean() < 1.25
    assert graph["boundary_bytes"][-1] == 0  # nothing follows


def test_one_cluster_is_the_whole_model() -> None:
    graph = operator_graph(CATALOG.get(ModelClass("wide_resnet", "1B", 256)), clusters=1)
    assert graph.names == ("block 0-block 15",)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=9).flatmap(
        lambda weights: st.tuples(st.just(weights), st.integers(1, len(weights)))
    )
)
def test_cuts_are_balanced(case: tuple[list[int], int]) -> None:
    weights, parts = case
    cuts = balance_cuts(weights, parts)
    assert len(cuts) == parts
    assert cuts[0] == 0
    assert cuts == sorted(set(cuts))

    def heaviest(starts: list[int]) -> float:
        return float(np.add.reduceat(weights, starts).max())

    options = [[0, *rest] for rest in combinations(range(1, len(weights)), parts - 1)]
    assert heaviest(cuts) == min(map(heaviest, options))
