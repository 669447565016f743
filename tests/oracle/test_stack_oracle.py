"""The oracle by software stack as a scenario uses it."""

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from clustergym.cluster.cluster_files import load_cluster, load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.errors import InputError
from clustergym.oracle.base import OracleTables
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import SHAPE, ModelClass
from clustergym.oracle.models.shape_files import find_accelerator, load_accelerator, load_transformer
from clustergym.oracle.oracle_config import oracle_from_config
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.stacks.catalog import load_stack
from clustergym.oracle.stacks.search import search_plans
from clustergym.oracle.stacks.stack_oracle import StackOracle, _at_tier, make_machine, transformer_of
from clustergym.oracle.table_cache import load_or_build_tables

LLM = load_cluster("llm-2026")
ORACLE = StackOracle()
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CLASSES = [
    ModelClass("llama3", "8B", 512),
    ModelClass("llama3", "70B", 1024),
    ModelClass("qwen3", "235B-A22B", 1024),
    ModelClass("deepseek", "v3", 1024),
]


@cache
def tables() -> OracleTables:
    return ORACLE.tables(CLASSES, LLM, COUNTS)


def test_execution_is_the_search_of_the_stack() -> None:
    found = search_plans(
        load_transformer("llama3-70B"), load_accelerator("H100"), load_stack("megatron-2026").constants,
        gpus=64, global_batch=1024, sequence_length=8192,
    )  # fmt: skip
    # 64 of 1,024 H100 in one leaf: the catalogue's machine, whose figures of the data sheet differ by 0.04 %.
    at = tables().execution[1, 0, COUNTS.index(64), Locality.LEAF]
    assert at == pytest.approx(found[0].seconds, rel=1e-3)
    assert np.isinf(tables().execution[1, 0, COUNTS.index(64), Locality.NODE])


def test_a_rack_is_one_domain() -> None:
    # 64 GB200 are within NVLink, 128 are not; 512 take racks of both minipods.
    racks = [LLM.compact_locality(1, gpus) for gpus in (64, 128, 512)]
    assert racks == [Locality.DOMAIN, Locality.MINIPOD, Locality.CROSS]
    for gpus, best in zip((64, 128, 512), racks, strict=True):
        times = tables().execution[:, 1, COUNTS.index(gpus)]
        assert np.isfinite(times[2:, best:]).all()
        assert np.isinf(times[:, :best]).all()


def test_segments_are_the_blocks_of_the_plan() -> None:
    assert tables().segments is not None
    level = COUNTS.index(256)
    # Expert groups of 64 fill the 16 trays on which gangs may count; on 8 H100 of a node no more than 8 fit.
    assert tables().segments[3, :, level].tolist() == [8, 64]
    # Llama 3 70B: tensor groups of two H100, none of GB200.
    assert tables().segments[1, :, level].tolist() == [2, 1]
    assert (tables().segments[0, :, level] == 1).all()
    divides = np.array(COUNTS)[None, None, :] % tables().segments
    assert (divides == 0).all()


def test_segments_of_at_most_so_many_gpus() -> None:
    capped = StackOracle(segment=8).tables(CLASSES[2:], LLM, (64, 256))
    own = tables().execution[2:, :, [COUNTS.index(64), COUNTS.index(256)]]
    assert capped.segments is not None
    assert capped.segments.max() == 8
    # Within a rack a job runs its fastest plan as before; across racks one with small segments, no faster.
    assert (capped.execution[:, 1, 0, Locality.DOMAIN] == own[:, 1, 0, Locality.DOMAIN]).all()
    assert (capped.execution[:, 1, 1, Locality.CROSS] > own[:, 1, 1, Locality.CROSS]).all()
    # On H100 no segment was larger: nothing changes.
    assert np.array_equal(capped.execution[:, 0], own[:, 0])
    assert StackOracle(segment=8).fingerprint() != ORACLE.fingerprint()


def test_a_stack_of_a_users_framework() -> None:
    def choose(stack: str, year: int | None = None) -> list[str]:
        oracle = StackOracle(stack=stack, year=year)
        return [oracle.choose(CLASSES[0], group).stack.name for group in LLM.groups]

    # H100 and GB200: of FSDP, only H100 was measured, in 2023.
    assert choose("fsdp") == ["fsdp-2023", "fsdp-2025"]
    assert choose("megatron", 2025) == ["megatron-2025", "megatron-2025"]
    assert choose("auto") == choose("megatron") == ["megatron-2026", "megatron-2026"]
    assert StackOracle(stack="fsdp").fingerprint() != ORACLE.fingerprint()


def test_wider_placements_are_never_faster() -> None:
    times = np.where(np.isfinite(tables().execution), tables().execution, np.nan)
    for tier in (Locality.LEAF, Locality.MINIPOD, Locality.CROSS):
        assert not (times[..., tier] < times[..., tier - 1] * (1 - 1e-9)).any()


def test_slower_switches_are_a_slower_network_of_each_node() -> None:
    # Through a core of three times fewer links each node has a third of its bandwidth.
    h100 = make_machine(LLM.groups[0])
    fabric = replace(LLM.fabric, spine_oversubscription=1.0, core_oversubscription=3.0)
    slow = replace(LLM, fabric=fabric)
    assert _at_tier(h100, slow, 0, Locality.NODE) == h100
    assert _at_tier(h100, slow, 0, Locality.LEAF).nic_gbps == pytest.approx(h100.nic_gbps)
    assert _at_tier(h100, slow, 0, Locality.MINIPOD).nic_gbps == pytest.approx(h100.nic_gbps)
    assert _at_tier(h100, slow, 0, Locality.CROSS).nic_gbps == pytest.approx(h100.nic_gbps / 3)


def test_information_classes_follow_from_the_plan() -> None:
    fits = np.isfinite(tables().execution)
    assert (np.isfinite(tables().profiled) == fits).all()
    # The best grid's proxy plan, without stragglers and the optimizer's step: not always the plan that runs.
    told = tables().profiled[fits] / tables().execution[fits]
    assert 0.95 < told.min() < 0.999
    assert 1 < told.max() < 1.1
    assert abs(np.median(told) - 1) < 0.02
    known = np.isfinite(tables().data_parallel)
    assert (tables().data_parallel[known] >= tables().execution[known]).all()
    # A 671B model is not trained with data parallelism alone.
    assert not known[3].any()
    assert known[0].any()


@pytest.mark.timed
def test_a_table_up_to_512_gpus_takes_under_five_cpu_seconds() -> None:
    start = time.process_time()
    StackOracle().tables([ModelClass("kimi", "k2", 4096)], LLM, COUNTS)
    assert time.process_time() - start < 5


def test_tables_with_segments_come_back_from_the_cache(tmp_path: Path) -> None:
    built = load_or_build_tables(ORACLE, CLASSES[:2], LLM, COUNTS, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2

    class Broken(StackOracle):
        def tables(self, *_: object) -> None:  # type: ignore[override]
            raise AssertionError("the cache has them")

    read = load_or_build_tables(Broken(), CLASSES[:2], LLM, COUNTS, folder=tmp_path)
    assert read.sha256 == built.sha256 == ORACLE.tables(CLASSES[:2], LLM, COUNTS).sha256
    other = load_or_build_tables(StackOracle(precision="fp8"), CLASSES[:1], LLM, COUNTS, folder=tmp_path)
    assert (other.execution[0, :, -1, 3] < built.execution[0, :, -1, 3]).all()


def test_models_of_papers_on_their_clusters() -> None:
    arena = load_cluster("arena-a")
    classes = [
        ModelClass("gpt3", "1.3B", 256),
        ModelClass("gshard_moe", "2.4B", 256),
        ModelClass("resnet50", "", 256),
    ]
    tables = ORACLE.tables(classes, arena, (1, 2, 4, 8))
    # Times of operators, as they were fitted on these GPUs; ResNet-50 was not among the models.
    operators = ORACLE.operators.tables(classes, arena, (1, 2, 4, 8))
    assert np.array_equal(tables.execution, operators.execution)
    assert np.array_equal(tables.profiled, operators.profiled)
    assert tables.segments is None
    assert ORACLE.notes(classes[:2], arena) == []
    (note,) = {text.partition(" is extended")[2] for text in ORACLE.notes(classes[2:], arena)}
    assert note == " to resnet50"
    stacks = {
        (model.family, name): ORACLE.choose(model, group).stack.name
        for cluster in (arena, load_cluster("arena-b"), load_cluster("arena-sim"))
        for name, group in zip(cluster.gpu_types, cluster.groups, strict=True)
        for model in (*classes, *CLASSES)
    }
    # The papers' models on GPUs of today have the newest stack of these; on GPUs without any, their own.
    assert stacks["gpt3", "A100"] == stacks["gpt3", "L20"] == stacks["resnet50", "H100"] == "alpa-2022"
    assert stacks["gpt3", "H100"] == stacks["qwen3", "H100"] == stacks["qwen3", "L20"] == "megatron-2026"
    assert stacks["llama3", "A100"] == stacks["llama3", "A40"] == "fsdp-2023"
    mixture = ORACLE.choose(CLASSES[2], load_cluster("arena-sim").groups[0]).extended
    assert mixture.endswith(
        "measured on dense transformers on A100-40, A100-80, H100-80, is extended to qwen3"
    )
    shape, tokens = transformer_of(load_catalog().get(classes[0]))
    assert tokens == 1024
    assert shape.parameters == pytest.approx(load_catalog().get(classes[0]).parameters, rel=0.01)
    experts, _ = transformer_of(load_catalog().get(classes[1]))
    assert experts.parameters == pytest.approx(load_catalog().get(classes[1]).parameters, rel=0.02)


def test_every_gpu_type_of_the_catalogue_is_a_machine() -> None:
    for name, gpu in load_gpu_types().items():
        known = find_accelerator(name)
        assert known is not None, name
        assert known.memory_gbs == gpu.memory_gbs
        assert known.bf16_tflops == pytest.approx(gpu.fp16_tflops, rel=1e-3)
        assert known.link_gbs == gpu.link_gbs


OWN = """name: own
nodes: [{{gpu_type: X1, count: 4, gpus_per_node: 8}}]
gpu_types:
  X1: {{fp16_tflops: 500, fp32_tflops: 40, memory_gb: 100, memory_gbs: 4000, link_kind: pcie4,
    link_gbs: 300, nic_gbps: 400{}}}
"""


def own_cluster(folder: Path, more: str) -> ClusterSpec:
    path = folder / "own.yaml"
    path.write_text(OWN.format(more))
    return load_cluster(str(path))


def test_a_gpu_type_of_a_cluster_file(tmp_path: Path) -> None:
    own = own_cluster(tmp_path, ", power_w: 600, fp8_tflops: 1000")
    machine = make_machine(own.groups[0])
    assert (machine.power_w, machine.fp8_tflops, machine.fp4_tflops, machine.domain) == (600, 1000, None, 8)
    # One port of 400 Gbit/s for 8 GPUs.
    assert machine.nic_gbps == 50
    plain, fp8 = (
        StackOracle(precision=precision).tables(CLASSES[:1], own, (8, 16)).execution[0, 0, :, -1]
        for precision in ("bf16", "fp8")
    )
    assert (fp8 < plain).all()
    with pytest.raises(InputError, match="X1 has no power_w"):
        ORACLE.tables(CLASSES[:1], own_cluster(tmp_path, ""), (8,))


def test_configuration_and_refusals() -> None:
    oracle = oracle_from_config({"name": "stack", "stack": "megatron-2026", "models": None})
    assert isinstance(oracle, StackOracle)
    with pytest.raises(InputError, match="does not know llama3-8B"):
        RooflineOracle().tables(CLASSES[:1], LLM, (8,))


def test_a_model_of_a_users_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "kind: shape\ndtype: fp16\nsequence_length: 4096\nbatches: [128]\n"
        "sizes:\n  small: {shape: llama3-8B}\n"
    )
    oracle = oracle_from_config({"name": "stack", "models": str(tmp_path / "mine.yaml")})
    mine = oracle.tables([ModelClass("mine", "small", 128)], LLM, (8,)).execution
    same = StackOracle(sequence_length=4096).tables([ModelClass("llama3", "8B", 128)], LLM, (8,)).execution
    assert np.array_equal(mine, same)


def test_every_model_of_today_fits_somewhere() -> None:
    catalog = load_catalog()
    for family in catalog.families:
        for size in catalog.sizes(family):
            model = ModelClass(family, size, catalog.get(ModelClass(family, size, 1)).batches[-1])
            if catalog.get(model).architecture == SHAPE:
                assert np.isfinite(ORACLE.tables([model], LLM, (512,)).execution).any(), model
