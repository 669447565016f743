"""Times of operators on grids: tables, bad input."""

import numpy as np
import pytest
from python_process import printed_by

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, NodeGroup
from clustergym.common.errors import InputError
from clustergym.oracle.base import OracleTables
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.grid_oracle import GridOracle
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.oracle_config import oracle_from_config
from clustergym.oracle.stacks.stack_oracle import StackOracle, make_operators_oracle

CATALOG = load_catalog()
COUNTS = [1, 2, 4, 8, 16, 32, 64]
MODELS = [
    ModelClass("gpt3", "1.3B", 256),
    ModelClass("gshard_moe", "2.4B", 512),
    ModelClass("wide_resnet", "1B", 256),
    ModelClass("resnet50", "", 256),
]


def cluster(gpu: str = "A40", nodes: int = 32, per_node: int = 4) -> ClusterSpec:
    return ClusterSpec("test", (NodeGroup(load_gpu_types()[gpu], nodes, per_node),), Fabric())


@pytest.fixture(scope="module")
def oracle() -> GridOracle:
    return make_operators_oracle(CATALOG)


@pytest.fixture(scope="module")
def tables(oracle: GridOracle) -> OracleTables:
    return oracle.tables(MODELS, cluster(), COUNTS)


def test_shapes_and_places(tables: OracleTables) -> None:
    assert tables.execution.shape == (4, 1, 7, 4)
    assert np.isinf(tables.execution[:, :, 3:, 0]).all()  # 8 GPUs are not on a node of 4
    assert np.isinf(tables.execution[:, :, 0, 1:]).all()  # 1 GPU is not on two nodes
    assert np.isfinite(tables.execution[:, 0, 2, 0]).all()


def test_the_estimate_is_there_where_the_plan_is(tables: OracleTables) -> None:
    assert (np.isfinite(tables.profiled) == np.isfinite(tables.execution)).all()
    fits = np.isfinite(tables.execution)
    assert (tables.profiled[fits] != tables.execution[fits]).any()


def test_adaptive_parallelism_is_no_slower_than_data_parallelism(tables: OracleTables) -> None:
    assert (tables.execution <= tables.data_parallel).all()
    planned = np.isfinite(tables.data_parallel[:3])
    assert (tables.execution[:3][planned] < tables.data_parallel[:3][planned]).any()
    np.testing.assert_array_equal(tables.execution[3], tables.data_parallel[3])  # never split


def test_worse_networks_are_slower(tables: OracleTables) -> None:
    times = tables.execution[:, 0, 1:]
    assert (times[..., 1] <= times[..., 2] * 1.01).all()
    assert (times[..., 2] <= times[..., 3] * 1.01).all()
    inside = times[:, :2]
    assert (inside[..., 0] <= inside[..., 1] * 1.01).all()


def test_values_have_six_digits(tables: OracleTables) -> None:
    for value in tables.execution[np.isfinite(tables.execution)]:
        assert float(f"{value:.6g}") == value


def test_odd_counts_run_the_plan_of_the_power_of_two_below(oracle: GridOracle) -> None:
    found = oracle.tables(MODELS[:1], cluster(per_node=8), [4, 5, 6, 7])
    for table in (found.execution, found.profiled, found.data_parallel):
        np.testing.assert_array_equal(table[0, 0, 1:], np.broadcast_to(table[0, 0, 0], (3, 4)))


def test_rows_do_not_depend_on_company(oracle: GridOracle, tables: OracleTables) -> None:
    for index, model in enumerate(MODELS):
        alone = oracle.tables([model], cluster(), COUNTS)
        np.testing.assert_array_equal(alone.execution[0], tables.execution[index])
        np.testing.assert_array_equal(alone.profiled[0], tables.profiled[index])


def test_a_model_larger_than_any_allocation_is_infeasible_everywhere(oracle: GridOracle) -> None:
    found = oracle.tables([ModelClass("gpt3", "39B", 128)], cluster("A10"), [1, 2, 4])
    assert np.isinf(found.execution).all()
    assert np.isinf(found.profiled).all()


def test_bad_classes_and_counts(oracle: GridOracle) -> None:
    with pytest.raises(InputError, match=r"did you mean 1\.3B"):
        oracle.tables([ModelClass("gpt3", "1.4B", 128)], cluster(), [1])
    with pytest.raises(InputError, match="not positive"):
        oracle.tables([ModelClass("gpt3", "1.3B", 0)], cluster(), [1])
    with pytest.raises(InputError, match="0 GPUs are not an allocation"):
        oracle.tables(MODELS, cluster(), [0, 1])


def test_configuration_by_name() -> None:
    made = oracle_from_config({"name": "grid", "strategy": "assembly", "overlap": True})
    assert isinstance(made, GridOracle)
    assert (made.name, made.strategy, made.overlap) == ("grid", "assembly", True)
    stack = oracle_from_config({"name": "stack", "strategy": "assembly"})
    assert isinstance(stack, StackOracle)
    assert (stack.name, stack.operators.strategy) == ("stack", "assembly")
    with pytest.raises(InputError, match=r"oracle\.stack: megatron-2026 has no times of operators"):
        oracle_from_config({"name": "grid", "stack": "megatron-2026"})


def test_the_papers_models_have_the_times_of_the_grid_by_stack_too(tables: OracleTables) -> None:
    """So that scenarios frozen with the one name have the same digest with the other."""
    assert oracle_from_config({"name": "grid"}).tables(MODELS, cluster(), COUNTS).sha256 == tables.sha256
    assert oracle_from_config({"name": "stack"}).tables(MODELS, cluster(), COUNTS).sha256 == tables.sha256


def test_the_fingerprint_follows_what_tables_depend_on(oracle: GridOracle) -> None:
    prints = [
        oracle.fingerprint(),
        make_operators_oracle(CATALOG, strategy="assembly").fingerprint(),
        make_operators_oracle(CATALOG, overlap=True).fingerprint(),
        GridOracle(CATALOG, Constants()).fingerprint(),
    ]
    assert len({repr(print_) for print_ in prints}) == 4
    assert make_operators_oracle(CATALOG).fingerprint() == prints[0]


@pytest.mark.processes
def test_tables_are_the_same_in_any_process(tables: OracleTables) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/oracle'); import test_grid as t\n"
        "print(t.make_operators_oracle(t.CATALOG).tables(t.MODELS, t.cluster(), t.COUNTS).sha256)"
    )
    assert printed_by("-c", code, PYTHONHASHSEED="7", OMP_NUM_THREADS="1").strip() == tables.sha256
