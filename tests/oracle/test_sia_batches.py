"""Batches, efficiencies and job lengths from Sia's validation files, by hand and on the published ones."""

from pathlib import Path

import numpy as np
import published_data
import pytest
from published_data import needs

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, NodeGroup
from clustergym.common.errors import InputError
from clustergym.oracle.measured.sia_oracle import SEGMENTS, SiaProfileOracle
from clustergym.oracle.measured.sia_training import read_training
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.scenario.by_name import load_scenario
from clustergym.trace.formats import load_trace
from clustergym.trace.options import ReadOptions

DATA = published_data.DATA / "sia"
needs_data = needs("sia/profiles")
HEADER = "progress,iteration,grad_sqr,grad_var"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One T4: 1 s for up to 8 samples, 2 s for 32; validated at 8 and 32, two epochs of 40 and 60."""
    model = tmp_path / "profiles" / "cifar10"
    model.mkdir(parents=True)
    (model / "placements-aws.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,8,1.0,0.0\n1,32,2.0,0.0\n"
    )
    (model / "scalability-aws.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,2,8,1.0,0.0\n"
    )
    # Noise scales 8 x grad_var / grad_sqr: 8 and 24 at batch 8, 24 and 56 at batch 32.
    (model / "validation-8.csv").write_text(f"{HEADER}\n40,40,1,1\n100,100,1,3\n")
    (model / "validation-32.csv").write_text(f"{HEADER}\n40,15,1,3\n100,40,1,7\n")
    return tmp_path / "profiles"


def test_iterations_by_the_noise_scale(folder: Path) -> None:
    training = read_training(folder / "cifar10")
    assert training.by_noise(8).tolist() == [40, 60]
    # An iteration at 32 is worth 4 x (24 + 8) / (24 + 32) = 16 / 7, then 4 x (56 + 8) / (56 + 32) = 32 / 11.
    assert training.by_noise(32) == pytest.approx([40 / (16 / 7), 60 / (32 / 11)])
    # 20 is half way between: grad_var 2 and 5, noise scales 16 and 40: 2.5 x 24 / 36 and 2.5 x 48 / 60.
    assert training.by_noise(20) == pytest.approx([40 / (2.5 * 24 / 36), 60 / (2.5 * 48 / 60)])
    with pytest.raises(InputError, match="global batch 33 is outside what was validated"):
        training.by_noise(33)


def test_a_gradient_that_rounds_to_nothing_leaves_only_noise(folder: Path) -> None:
    (folder / "cifar10" / "validation-32.csv").write_text(f"{HEADER}\n40,15,0,3\n100,40,1,7\n")
    assert read_training(folder / "cifar10").by_noise(32)[0] == pytest.approx(10)


def tables_of(folder: Path, batch: int, choice: str = "fixed"):
    cluster = ClusterSpec("one", (NodeGroup(load_gpu_types()["T4"], 1, 1),), Fabric())
    classes = [ModelClass("resnet18", "", batch)]
    return SiaProfileOracle(folder, choice, calibrated=False).tables(classes, cluster, [1])


def test_batches_of_a_class_by_hand(folder: Path) -> None:
    batches = tables_of(folder, 32).batches
    assert batches is not None
    assert batches.sizes.tolist() == [[8, 32]]
    assert batches.execution[0, 0, 0, 0].tolist() == [1.0, 2.0]
    # At 32 the epochs have 17.5 and 20.625 iterations; at 8 40 and 60: 17.5 / 40 x 32 / 8 = 1.75, 1.375.
    assert batches.ends.tolist() == [pytest.approx([17.5 / 38.125, *[1] * (SEGMENTS - 1)], rel=1e-5)]
    assert batches.efficiency[0, :2].tolist() == [[1.75, 1.0], [1.375, 1.0]]
    # That is the formula where the noise scale is one of both batches: (phi + M0) / (phi + M).
    (folder / "cifar10" / "validation-8.csv").write_text(f"{HEADER}\n40,40,1,3\n100,100,1,7\n")
    efficiency = tables_of(folder, 32).batches.efficiency[0, :2, 0]
    assert efficiency == pytest.approx([(24 + 32) / (24 + 8), (56 + 32) / (56 + 8)])


def test_a_batch_between_validated_ones_is_a_choice_too(folder: Path) -> None:
    batches = tables_of(folder, 20).batches
    assert batches.sizes.tolist() == [[8, 20, 32]]
    assert (batches.efficiency[0, :, 1] == 1).all()


@pytest.mark.parametrize("change", ["outside", "no statistics", "no files", "best"])
def test_classes_without_a_choice(folder: Path, change: str) -> None:
    batch = 64 if change == "outside" else 32
    for path in (folder / "cifar10").glob("validation-*.csv"):
        if change == "no statistics":
            path.write_text("progress,iteration\n100,100\n")
        elif change == "no files":
            path.unlink()
    assert tables_of(folder, batch, "best" if change == "best" else "fixed").batches is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("40,40,x,1\n100,100,1,3", ":2: grad_sqr: 'x' is not"),
        ("40,40,1,-1\n100,100,1,3", ":2: grad_var: -1 is below 0"),
        ("40,40,1,1\n30,100,1,3", ":3: progress: falls"),
    ],
)
def test_malformed_statistics_end_in_one_line(folder: Path, rows: str, message: str) -> None:
    (folder / "cifar10" / "validation-8.csv").write_text(f"{HEADER}\n{rows}\n")
    with pytest.raises(InputError, match=message):
        tables_of(folder, 32)


def test_job_lengths_validated_or_by_the_noise_scale(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,0,cifar10,2,32\n")
    for lengths, iterations in (("validated", 40), ("noise", 38)):
        options = ReadOptions(sia_profiles=str(folder), sia_lengths=lengths)
        assert load_trace(path, options=options).iterations.tolist() == [iterations]
    for file in (folder / "cifar10").glob("validation-*.csv"):
        file.write_text("progress,iteration\n100,100\n")
    with pytest.raises(InputError, match="has no gradient statistics"):
        load_trace(path, options=ReadOptions(sia_profiles=str(folder), sia_lengths="noise"))
    with pytest.raises(InputError, match=r"trace\.sia_lengths: .*validatd.*validated"):
        load_scenario("ares", ["trace=file", f"trace.path={path}", "trace.sia_lengths=validatd"])


@needs_data
def test_published_efficiencies_fall_with_the_batch_and_rise_with_progress() -> None:
    profiles = f"{DATA}/profiles"
    overrides = ["cluster=sia-64", "trace=file", "oracle=sia", "costs=sia", f"oracle.path={profiles}"]
    overrides += [f"trace.path={DATA}/workloads/philly/workload-1.csv", f"trace.sia_profiles={profiles}"]
    scenario = load_scenario("ares", overrides)
    assert scenario.batch_models == set(scenario.tables.classes)
    # The restart seconds of its simulator.
    named = dict(zip((c.family for c in scenario.tables.classes), scenario.checkpoint_s, strict=True))
    assert named == {"bert": 120, "deepspeech2": 25, "resnet18": 50, "resnet50": 250, "yolov3": 80}
    batches = scenario.tables.batches
    row = scenario.tables.classes.index(ModelClass("resnet18", "", 2048))
    assert batches.sizes[row].tolist() == [128, 256, 512, 1024, 2048, 4096, 0]
    assert (np.diff(batches.efficiency[row, :, :6], axis=1) < 0).all()
    # 4096 instead of 2048 costs a lot at first and nearly nothing at the end.
    assert batches.efficiency[row, 0, 5] < 0.6
    assert batches.efficiency[row, -1, 5] > 0.98
    # Iterations by segment, at every batch, add up to those of its whole training.
    training = read_training(DATA / "profiles" / "cifar10")
    share = np.diff(batches.ends[row], prepend=0.0) * training.by_noise(2048).sum()
    for column, size in enumerate(batches.sizes[row, :6].tolist()):
        needed = (share / (size / 2048 * batches.efficiency[row, :, column])).sum()
        assert needed == pytest.approx(training.by_noise(size).sum(), rel=1e-4)
