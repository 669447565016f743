"""The table oracle: measured rows, their places, estimates of the others, and malformed files."""

import csv
from pathlib import Path

import numpy as np
import pytest
from published_data import DATA, needs
from refusals import Said, refused

from clustergym.cluster.cluster_files import load_cluster, load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, Locality, NodeGroup
from clustergym.common.errors import InputError
from clustergym.oracle.measured.table_oracle import TableOracle
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

PROFILE = DATA / "arena" / "arena_profile.csv"
needs_data = needs("arena/arena_profile.csv")
HEADER = (
    "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,total_gpus,kind,iteration_time_s,"
    "feasible,raw_key"
)
GPT = ModelClass("gpt3", "1.3B", 128)
COUNTS = [1, 2, 4, 8]


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "measured.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def a40_nodes(per_node: int = 4) -> ClusterSpec:
    return ClusterSpec("test", (NodeGroup(load_gpu_types()["A40"], 8, per_node),), Fabric())


def times(path: Path, name: str = "execution", missing: str = "infeasible", per_node: int = 4) -> np.ndarray:
    tables = TableOracle(path, missing).tables([GPT], a40_nodes(per_node), COUNTS)
    return np.asarray(getattr(tables, name)[0, 0])


ROWS = (
    "bert,1.3B,128,a40,1,2,2,optimal,12.5,1,a",
    "bert,1.3B,128,a40,4,1,4,optimal,9.0,1,b",
    "bert,1.3B,128,a40,2,2,4,optimal,8.0,1,c",
    "bert,1.3B,128,a40,1,8,8,optimal,3.0,1,d",
    "bert,1.3B,128,a40,2,4,8,optimal,,0,e",
    "bert,1.3B,128,a40,1,2,2,estimated_best,11.0,1,a",
    "bert,1.3B,128,a40,2,4,8,estimated_best,4.0,1,e",
    "bert,1.3B,128,a40,1,2,2,estimated_dp,14.0,1,a",
    "bert,1.3B,128,a40,1,1,1,estimated_dp,30.0,1,f",
)


def test_measured_rows_and_their_localities(tmp_path: Path) -> None:
    inf = np.inf
    # Two GPUs were measured inside a node only; of the two rows of four GPUs across nodes the one with
    # more GPUs per node counts; eight do not fit in a node of four, and did not fit in memory on two nodes.
    expected = [[inf] * 4, [12.5, inf, inf, inf], [inf, 8, 8, 8], [inf] * 4]
    assert times(write(tmp_path, *ROWS)).tolist() == expected


def test_rows_that_do_not_fit_the_clusters_nodes_do_not_count(tmp_path: Path) -> None:
    path = write(tmp_path, *ROWS)
    assert times(path, per_node=8)[3, Locality.NODE] == 3.0
    assert times(path, per_node=1)[2].tolist() == [np.inf, 9, 9, 9]


def test_estimates_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, *ROWS)
    profiled = times(path, "profiled")
    assert profiled[1].tolist() == [11.0] + [np.inf] * 3
    assert profiled[2].tolist() == [np.inf, 8, 8, 8]  # nothing estimated: what was measured
    assert np.isinf(profiled[3]).all()  # infeasible where execution is
    data_parallel = times(path, "data_parallel")
    assert data_parallel[1, 0] == 14.0
    assert np.isinf(data_parallel[0, 0])  # never feasible where execution is not


def test_a_file_without_kinds_is_all_there_is(tmp_path: Path) -> None:
    header = "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s"
    path = write(tmp_path, "gpt3,1.3B,128,A40,1,2,12.5", header=header)
    tables = TableOracle(path).tables([GPT], a40_nodes(), COUNTS)
    assert tables.execution[0, 0, 1, 0] == 12.5
    assert (tables.data_parallel == tables.execution).all()
    assert (tables.profiled == tables.execution).all()


def test_a_placement_profiled_twice_counts_with_its_least_time(tmp_path: Path) -> None:
    rows = ("bert,1.3B,128,a40,1,2,2,optimal,12.5,1,x", "bert,1.3B,128,a40,1,2,2,optimal,12.0,1,y")
    assert times(write(tmp_path, *rows))[1, 0] == 12.0
    # A row repeated is harmless.
    assert times(write(tmp_path, ROWS[0], ROWS[0]))[1, 0] == 12.5


def test_arenas_bert_is_gpt3_but_a_catalogued_bert_stays(tmp_path: Path) -> None:
    path = write(tmp_path, "bert,,192,a40,1,2,2,optimal,1.0,1,a", "bert,1.3B,128,a40,1,2,2,optimal,12.5,1,a")
    assert TableOracle(path).measured.models == {("bert", ""), ("gpt3", "1.3B")}


def test_the_estimate_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path, "bert,1.3B,128,a40,1,2,2,optimal,15.0,1,a")
    roofline = RooflineOracle().tables([GPT], a40_nodes(), COUNTS).execution[0, 0]
    estimate = times(path, missing="estimate")
    assert estimate[1, 0] == 15.0
    log_ratio = np.log(15.0 / roofline[1, 0])
    # Four GPUs on a node are one doubling away: weight exp(-2), against the roofline's own 0.5.
    near = np.exp(-2.0)
    assert estimate[2, 0] == pytest.approx(roofline[2, 0] * np.exp(log_ratio * near / (near + 0.5)), rel=1e-5)
    # Two GPUs on two nodes: the same count, weight exp(-2) for the nodes.
    assert estimate[1, 1] == pytest.approx(roofline[1, 1] * np.exp(log_ratio * near / (near + 0.5)), rel=1e-5)
    # Another batch, half of it: weight exp(-0.5).
    half = ModelClass("gpt3", "1.3B", 64)
    tables = TableOracle(path, "estimate").tables([half], a40_nodes(), COUNTS)
    base = RooflineOracle().tables([half], a40_nodes(), COUNTS).execution[0, 0, 1, 0]
    near = np.exp(-0.5)
    expected = base * np.exp(log_ratio * near / (near + 0.5))
    assert tables.execution[0, 0, 1, 0] == pytest.approx(expected, rel=1e-5)


def test_recorded_failures_stay_infeasible(tmp_path: Path) -> None:
    rows = (
        "bert,1.3B,128,a40,1,2,2,optimal,,0,a",
        "bert,1.3B,128,a40,1,4,4,estimated_best,,0,b",
        "bert,1.3B,128,a40,2,4,8,optimal,5.0,1,c",
        "bert,1.3B,128,a40,2,4,8,estimated_best,,0,c",
    )
    estimate = times(write(tmp_path, *rows), missing="estimate")
    assert np.isinf(estimate[1, 0])
    assert np.isinf(estimate[2, 0])
    assert np.isfinite(estimate[2, 1])
    assert estimate[3, 1] == 5.0  # what was measured wins over what was estimated


def test_estimates_are_feasible_where_the_roofline_is(tmp_path: Path) -> None:
    classes = [ModelClass("gpt3", "6.7B", 128), ModelClass("resnet50", "", 6400)]
    cluster = load_cluster("arena-sim")
    estimate = TableOracle(write(tmp_path, ROWS[0]), "estimate").tables(classes, cluster, COUNTS)
    roofline = RooflineOracle().tables(classes, cluster, COUNTS)
    for name in ("execution", "data_parallel", "profiled"):
        assert (np.isfinite(getattr(estimate, name)) == np.isfinite(getattr(roofline, name))).all()


def test_models_without_rows(tmp_path: Path) -> None:
    path, cluster = write(tmp_path, ROWS[0]), a40_nodes()
    known = [ModelClass("resnet50", "", 64)]
    assert np.isinf(TableOracle(path).tables(known, cluster, COUNTS).execution).all()
    unknown = [ModelClass("gtp3", "1.3B", 128)]
    for missing in ("infeasible", "estimate"):
        with pytest.raises(InputError) as error:
            TableOracle(path, missing).tables(unknown, cluster, COUNTS)
        assert "model gtp3-1.3B is neither in" in str(error.value)
        assert "did you mean gpt3-1.3B" in str(error.value)
        assert "YAML" in str(error.value)


def test_a_measured_model_that_is_not_catalogued(tmp_path: Path) -> None:
    path = write(tmp_path, "mine,,128,a40,1,2,2,optimal,12.5,1,a")
    model = [ModelClass("mine", "", 128)]
    assert TableOracle(path).tables(model, a40_nodes(), COUNTS).execution[0, 0, 1, 0] == 12.5
    with pytest.raises(InputError, match="missing=estimate needs"):
        TableOracle(path, "estimate").tables(model, a40_nodes(), COUNTS)


def test_a_gpu_type_of_the_users_own_cluster(tmp_path: Path) -> None:
    path = write(tmp_path, "bert,1.3B,128,mine-2,1,2,2,optimal,1.5,1,a")
    gpu = GpuType("MINE-2", 2250, 75, 1125, 180, 8000, "nvlink5", 900, 400, True)
    cluster = ClusterSpec("mine", (NodeGroup(gpu, 2, 8),), Fabric())
    assert TableOracle(path).tables([GPT], cluster, COUNTS).execution[0, 0, 1, 0] == 1.5
    with pytest.raises(InputError, match=r"measured.csv:2: gpu_type: unknown GPU type 'mine-2'"):
        TableOracle(path).tables([GPT], a40_nodes(), COUNTS)


def test_missing_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"oracle\.missing: unknown value 'estimat' \(did you mean estimate"):
        TableOracle(write(tmp_path, ROWS[0]), "estimat")


@refused("oracle-table")
def test_malformed_files_end_in_one_line(tmp_path: Path, given: dict[str, str], said: Said) -> None:
    cells = dict(zip(HEADER.split(","), ROWS[0].split(","), strict=True)) | given
    (tmp_path / "measured.csv").write_text("\n".join((HEADER, ROWS[1], ",".join(cells.values()), "")))
    with said.of_error(tmp_path):
        TableOracle(tmp_path / "measured.csv")


def test_two_times_of_one_placement_are_refused(tmp_path: Path) -> None:
    (tmp_path / "measured.csv").write_text("\n".join((HEADER, ROWS[0], ROWS[0].replace("12.5", "12.6"), "")))
    with pytest.raises(InputError, match="csv:3: iteration_time_s: the same placement as line 2"):
        TableOracle(tmp_path / "measured.csv")


def profile_rows() -> list[dict[str, str]]:
    with PROFILE.open() as stream:
        return list(csv.DictReader(stream))


def classes_of(oracle: TableOracle) -> list[ModelClass]:
    measured = (key.model for key, seconds in oracle.measured.seconds.items() if key.measurement == "optimal")
    return sorted(set(measured))


@needs_data
def test_measured_cells_are_reproduced_exactly() -> None:
    cluster, counts = load_cluster("arena-sim"), [1, 2, 4, 8, 16]
    oracle = TableOracle(PROFILE, "estimate")
    classes = classes_of(oracle)
    estimated = oracle.tables(classes, cluster, counts).execution
    measured = TableOracle(PROFILE).tables(classes, cluster, counts).execution
    known = np.isfinite(measured)
    assert known.sum() > 150
    assert (estimated[known] == measured[known]).all()
    gpt = classes.index(GPT)
    # bert 1.3B, batch 128: 2.9559505 s on 1 x 4 and 2.95928049 s on 2 x 2 A100.
    assert measured[gpt, cluster.gpu_types.index("A100"), 2].tolist() == [2.95595] + [2.95928] * 3
    # An Alpa search found no plan for bert 15B on 1 x 16 V100, and bert 6.7B on 2 x 2 A100.
    fail = ModelClass("gpt3", "15B", 512)
    assert np.isinf(estimated[classes.index(fail), cluster.gpu_types.index("V100"), 4, 0])


@pytest.mark.slow
@needs_data
def test_accuracy_on_models_left_out(tmp_path: Path) -> None:
    rows, cluster, counts = profile_rows(), load_cluster("arena-sim"), [1, 2, 4, 8, 16]
    full = TableOracle(PROFILE)
    classes = classes_of(full)
    measured = full.tables(classes, cluster, counts).execution
    catalog, errors = load_catalog(), []
    for family, params in sorted({(row["model_family"], row["params"]) for row in rows}):
        path = tmp_path / "without.csv"
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(r for r in rows if (r["model_family"], r["params"]) != (family, params))
        without = TableOracle(path, "estimate", catalog)
        mine = [
            c for c, model in enumerate(classes) if (model.family, model.size) not in without.measured.models
        ]
        if not mine:
            continue
        estimate = without.tables([classes[c] for c in mine], cluster, counts).execution
        # The three tiers across nodes stand on the same rows: one of them is scored.
        known = np.isfinite(measured[mine])[..., :2]
        assert np.isfinite(estimate[..., :2][known]).all()
        errors.append(np.abs(estimate[..., :2][known] / measured[mine][..., :2][known] - 1))
    error = np.concatenate(errors)
    assert len(error) > 150
    # Measured: 11.5 % mean, 6.3 % median.
    assert error.mean() < 0.13
    assert np.median(error) < 0.08
