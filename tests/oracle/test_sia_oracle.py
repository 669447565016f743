"""Sia's profiles as an oracle: by hand on small folders, malformed ones, and the published ones."""

import json
from pathlib import Path

import numpy as np
import published_data
import pytest
from published_data import needs
from refusals import Said, refused

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, NodeGroup
from clustergym.common.errors import InputError
from clustergym.oracle.measured.sia_oracle import (
    CALIBRATION,
    SUFFIXES,
    USUAL_CALIBRATION,
    SiaProfileOracle,
    iteration_time_s,
    read_profile,
)
from clustergym.oracle.measured.sia_training import read_training
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.scenario.by_name import compose
from clustergym.scenario.scenario_config import build_scenario
from clustergym.trace.formats import load_trace
from clustergym.trace.options import ReadOptions

DATA = published_data.DATA / "sia"
needs_data = needs("sia/profiles")
PLACED = "placement,local_bsz,step_time,sync_time"
SCALED = "num_nodes,num_replicas,local_bsz,step_time,sync_time"
CIFAR = ModelClass("resnet18", "", 64)
CURVE = (np.array([8.0, 16.0]), np.array([1.0, 1.5]), np.array([0.5, 0.5]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two T4 a node: 1 GPU, 2 on one node and on two, 4 on two; 8 on four or five nodes."""
    model = tmp_path / "profiles" / "cifar10"
    model.mkdir(parents=True)
    rows = ["1,8,1.0,0.0", "1,32,2.5,0.0", "2,32,3.0,0.5", "11,32,4.0,1.5", "22,16,2.0,1.0", "22,32,4.0,1.0"]
    (model / "placements-aws.csv").write_text("\n".join([PLACED, *rows]) + "\n")
    scaled = ["4,8,8,1.2,0.7", "5,8,8,1.6,0.7"]
    (model / "scalability-aws.csv").write_text("\n".join([SCALED, *scaled]) + "\n")
    (model / "validation-32.csv").write_text("progress,iteration\n5,50\n10,100\n")
    (model / "validation-128.csv").write_text("progress,iteration\n10,50\n")
    return tmp_path / "profiles"


def cluster_of(gpu: str = "T4", nodes: int = 4, per_node: int = 2) -> ClusterSpec:
    return ClusterSpec("test", (NodeGroup(load_gpu_types()[gpu], nodes, per_node),), Fabric())


def times(folder: Path, batch: str = "fixed", model: ModelClass = CIFAR) -> np.ndarray:
    oracle = SiaProfileOracle(folder, batch, calibrated=False)
    return oracle.tables([model], cluster_of(), [1, 2, 4, 8]).execution[0, 0]


def test_accumulation_by_hand() -> None:
    # 32 samples on 1 GPU: 2 x 16: 1.5 + (1.5 - 0.5) = 2.5; 3 x 11 (rounded up): step 1.1875,
    # 1.1875 + 2 x 0.6875 = 2.5625; 4 x 8: 1 + 3 x 0.5 = 2.5. At batch 12 a step of 12 takes 1.25.
    assert iteration_time_s(CURVE, 1, 32) == pytest.approx(2.5)
    assert iteration_time_s(CURVE, 1, 12) == pytest.approx(1.25)
    # 4 samples on 2 GPUs: 2 each take as long as the least profiled 8.
    assert iteration_time_s(CURVE, 2, 4) == pytest.approx(1.0)
    # 35 samples: two steps of 18 do not fit; 3 x 12: 1.25 + 2 x 0.75; 4 x 9: 1.0625 + 3 x 0.5625 = 2.75.
    assert iteration_time_s(CURVE, 1, 35) == pytest.approx(2.75)


def test_times_by_hand(folder: Path) -> None:
    inf = np.inf
    # 1 GPU, batch 64: 2 x 32 at 2.5. 2 GPUs: one step of 32, 3.0 on a node and 4.0 on two. 4 on two
    # nodes of 2: a step of 16, 2.0. 8 on four nodes: a step of 8, 1.2, from the scalability file.
    expected = [[5.0, inf, inf, inf], [3.0, 4.0, 4.0, 4.0], [inf, 2.0, 2.0, 2.0], [inf, 1.2, 1.2, 1.2]]
    assert times(folder).tolist() == expected
    oracle = SiaProfileOracle(folder)
    tables = oracle.tables([CIFAR], cluster_of(), [1])
    assert tables.execution[0, 0, 0, 0] == pytest.approx(5.0 * CALIBRATION["resnet18"])
    assert tables.profiled.tolist() == tables.data_parallel.tolist() == tables.execution.tolist()


def test_a_count_nobody_measured_is_infeasible(folder: Path) -> None:
    oracle = SiaProfileOracle(folder, calibrated=False)
    tables = oracle.tables([CIFAR], cluster_of(nodes=8), [8, 16])
    assert np.isinf(tables.execution[0, 0, 1]).all()
    # Eight on one node of 8: profiled on several nodes only.
    wide = oracle.tables([CIFAR], cluster_of(per_node=8), [8]).execution[0, 0, 0]
    assert np.isinf(wide[0])


def test_the_nearest_number_of_nodes_stands_in(folder: Path) -> None:
    profile = read_profile(folder / "cifar10", "aws")
    for placement, step_s in (((2, 2, 2, 2), 1.2), ((1,) * 8, 1.6), ((4, 4), 1.2)):
        curve = profile.curve(placement)
        assert curve is not None
        assert curve[1].tolist() == [step_s]
    assert profile.curve((8,)) is None


def test_the_best_batch_by_hand(folder: Path) -> None:
    # 8 GPUs: batch 32 (4 a GPU, as long as 8) 100 x 1.2 = 120 s; batch 128 50 iterations of two steps of
    # 8: 1.2 + 0.5 = 1.7, 85 s. The job's own batch, 64, needs the root of 100 x 50 = 70.7 iterations.
    assert times(folder, "best")[3, 1] == pytest.approx(85 / np.sqrt(5000), rel=1e-5)
    # 1 GPU: 100 x 2.5 = 250 s at batch 32; 128 takes 50 x 4 x 2.5 = 500 s.
    assert times(folder, "best")[0, 0] == pytest.approx(250 / np.sqrt(5000), rel=1e-5)


def test_rows_of_the_same_local_batch_are_averaged(folder: Path) -> None:
    path = folder / "cifar10" / "placements-aws.csv"
    path.write_text(path.read_text() + "2,32,5.0,0.5\n")
    assert times(folder)[1, 0] == 4.0


@refused("sia-profiles")
def test_malformed_files_end_in_one_line(folder: Path, given: dict[str, str | None], said: Said) -> None:
    ((name, content),) = given.items()
    path = folder / "cifar10" / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with said.of_error(folder):
        times(folder, "best")


def test_malformed_folders_end_in_one_line(folder: Path, tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "profile", "no such file (did you mean profiles?)"),
        (folder / "cifar10" / "placements-aws.csv", "is a file, not a folder"),
        (tmp_path, "holds no profiles of Sia"),
    ):
        with pytest.raises(InputError) as error:
            SiaProfileOracle(path)
        assert message in str(error.value)
    with pytest.raises(InputError, match=r"oracle\.batch: unknown value 'bets' \(did you mean best\?\)"):
        SiaProfileOracle(folder, "bets")
    with pytest.raises(InputError, match=r"bert: no such file"):
        times(folder, model=ModelClass("bert", "", 32))
    with pytest.raises(InputError, match=r"model gpt3-1\.3B has no profile of Sia"):
        times(folder, model=ModelClass("gpt3", "1.3B", 32))
    with pytest.raises(InputError, match="no GPU type A40"):
        SiaProfileOracle(folder).tables([CIFAR], cluster_of("A40"), [1])
    with pytest.raises(InputError, match="global batch 256 is outside what was validated, 32 to 128"):
        times(folder, "best", ModelClass("resnet18", "", 256))
    for path in (folder / "cifar10").glob("validation-*"):
        path.unlink()
    with pytest.raises(InputError, match=r"cifar10: holds no validation-BATCH\.csv"):
        times(folder, "best")


def test_the_reader_takes_iterations_from_the_validation_files(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = "name,time,application,num_replicas,batch_size\na,0,cifar10,2,32\nb,1,cifar10,2,64\n"
    path.write_text(rows)
    options = ReadOptions(sia_profiles=str(folder))
    assert load_trace(path, options=options).iterations.tolist() == [100, 71]
    path.write_text(rows + "c,2,cifar10,2,512\n")
    with pytest.raises(InputError, match=r"jobs\.csv:4: batch_size: global batch 512 is outside"):
        load_trace(path, options=options)


@needs_data
def test_published_profiles_give_the_isolated_run_times() -> None:
    isolated = json.loads((DATA / "sia_isolated_runtime_s.json").read_text())
    per_node = {"aws": 4, "rtx": 8, "dgx-ext": 8}
    families = {"cifar10": "resnet18"}
    for application, by_gpu in isolated.items():
        training = read_training(DATA / "profiles" / application)
        factor = CALIBRATION.get(families.get(application, application), USUAL_CALIBRATION)
        for suffix, by_count in by_gpu.items():
            profile = read_profile(DATA / "profiles" / application, suffix)
            for count, (seconds, _) in by_count.items():
                whole, rest = divmod(int(count), per_node[suffix])
                placement = (*((rest,) if rest else ()), *(per_node[suffix],) * whole)
                curve = profile.curve(placement)
                assert curve is not None
                choices = zip(training.batches, training.iterations, strict=True)
                best = min(n * iteration_time_s(curve, int(count), int(batch)) for batch, n in choices)
                assert best * factor == pytest.approx(seconds, rel=0.01)


@needs_data
def test_every_published_profile_is_read() -> None:
    oracle = SiaProfileOracle(DATA / "profiles", "best")
    # NeuMF comes first: four GPUs train it no faster than one.
    batches = {"neumf": 16384, "bert": 192, "deepspeech2": 320, "resnet18": 2048, "resnet50": 6400}
    batches["yolov3"] = 256
    classes = [ModelClass(family, "", batch) for family, batch in batches.items()]
    for gpu in SUFFIXES:
        tables = oracle.tables(classes, cluster_of(gpu, nodes=4, per_node=4), [1, 2, 4])
        assert np.isfinite(tables.execution[:, 0, :, 0]).all()
        assert (np.diff(tables.execution[1:, 0, [0, 2], 0], axis=1) < 0).all()


@needs_data
def test_the_command_runs() -> None:
    profiles = f"{DATA}/profiles"
    words = ["policy=sia", "cluster=sia-64", "trace=file", "oracle=sia", f"oracle.path={profiles}"]
    words += [f"trace.path={DATA}/workloads/philly/workload-1.csv", f"trace.sia_profiles={profiles}"]
    scenario = build_scenario(compose(words))
    assert len(scenario.trace) == 160
    assert np.isfinite(scenario.reference_iteration_time_s).all()
