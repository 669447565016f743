"""Files as people post them, of Hugging Face, Kueue and Kubernetes: read right, or named."""

from pathlib import Path

import pytest
import yaml
from clustergym.operators.commands.twin import main as twin_main
from published_data import find_published

from clustergym.commands.cluster import main as cluster_main
from clustergym.commands.trace import main as trace_main
from clustergym.common.left_out import recording
from clustergym.oracle.models.shape_files import load_transformer
from clustergym.trace.readers import kueue


def field(name: str) -> str:
    return str(find_published(f"field/{name}"))


PARAMETERS = {
    "deepseek-v2-lite": (15.7, None), "deepseek-v3": (671 + 11.6, 37 + 1.2), "gemma-7b": (8.54, None),
    "gemma2-9b": (9.24, None), "gemma3-27b-nested": (27.0, None), "glm45-air": (109, 13.7),
    "gpt-oss-20b": (20.9, 3.6), "gpt2": (0.124, None), "kimi-k2": (1026, 31.7),
    "llama4-maverick-text": (400, 16.2), "minimax-m2": (229, 10.4), "mistral-7b-window": (7.24, None),
    "mixtral-8x7b": (46.7, 12.7), "nemotron-h-8b": (8.1, None), "phi3-mini": (3.82, None),
    "pure-moe": (6.92, None), "qwen15-moe-a2.7b": (14.3, 2.37), "qwen3-30b-a3b": (30.5, 3.0),
    "qwen3-dense-8b": (8.19, None),
}  # fmt: skip
"""Configuration -> published parameters in all and those that multiply a token, G."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    total, active = PARAMETERS[name]
    shape = load_transformer(field(f"hf/{name}.json"))
    assert shape.parameters / 1e9 == pytest.approx(total, rel=0.02)
    assert active is None or shape.active_parameters / 1e9 == pytest.approx(active, rel=0.02)


def test_partial_admission_amd_and_mig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = field("10-kueue-partial.yaml")
    assert trace_main(["import", "--format", "kueue", path, "-o", str(tmp_path / "log.csv")]) == 0
    assert "left out 1 asks for nvidia.com/mig-1g.5gb, a part of a GPU" in capsys.readouterr().out
    log = kueue.read_log(Path(path))
    assert log.job_id == ["vision/job-a", "vision/job-amd"]
    assert (log.gpus.tolist(), log.gpu_type) == ([4, 16], ["A100", "MI300X"])


def test_weights_stop_policy_and_quotas_of_amd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rules", field("11-kueue-queues.yaml"), "-o", str(tmp_path), "--fair-sharing"]
    assert twin_main(words) == 0
    queues = yaml.safe_load((tmp_path / "queues.yaml").read_text())["queues"]
    weights = {name: queues[name].get("weight") for name in ("vision", "speech")}
    assert weights == {"vision": 0.5, "speech": 1.5}
    assert queues["amd"]["quota"] == {"MI300X": 16}
    assert "not modelled: stopPolicy Hold of ClusterQueue vision" in capsys.readouterr().err


def test_several_documents(tmp_path: Path) -> None:
    assert twin_main(["rules", field("16-kueue-multidoc.yaml"), "-o", str(tmp_path)]) == 0
    queues = yaml.safe_load((tmp_path / "queues.yaml").read_text())["queues"]
    assert queues["cluster-queue"]["quota"] == {"default-flavor": 16}


def test_nodes_of_amd_and_of_mig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cluster.yaml"
    assert cluster_main(["import", field("12-k8s-nodes-amd.yaml"), "-o", str(out)]) == 0
    listed = yaml.safe_load(out.read_text())["nodes"]
    nodes = {node["gpu_type"]: node["count"] * node["gpus_per_node"] for node in listed}
    assert nodes.pop("MI300X") == 8
    # n3's A100s of 80 GB; n2's 56 MIG devices are no GPUs.
    assert list(nodes.values()) == [4]
    told = capsys.readouterr().err
    assert "MIG devices (NVIDIA-A100-SXM4-80GB-MIG-1g.10gb), no whole GPUs" in told
    assert "its nvidia.com/mig-3g.40gb are parts of GPUs" in told


WORKLOAD = """kind: Workload
metadata: {name: w, namespace: n, creationTimestamp: "2026-03-02T09:00:00Z"}
spec:
  queueName: q
  podSets:
  - name: main
    count: 8
    template: {spec: {containers: [{resources: {requests: {GPU: "1"}}}, {resources: {limits: {GPU: 1}}}],
      initContainers: [{resources: {requests: {GPU: "3"}}}]}}
status:
  admission: {podSetAssignments: [{name: main, flavors: {GPU: mi300x}COUNT}]}
  conditions:
  - {type: Admitted, status: "True", lastTransitionTime: "2026-03-02T09:10:00Z", reason: Admitted}
  - {type: Finished, status: "True", lastTransitionTime: "2026-03-02T11:10:00Z", reason: REASON,
      message: "MESSAGE"}
"""


def read_workload(folder: Path, **words: str) -> tuple[kueue.RecordedJobs, list[str]]:
    text, usual = WORKLOAD, {"GPU": "amd.com/gpu", "COUNT": "", "REASON": "Succeeded", "MESSAGE": ""}
    for word, value in (usual | words).items():
        text = text.replace(word, value)
    (folder / "w.yaml").write_text(text)
    with recording() as notes:
        return kueue.read_log(folder / "w.yaml"), notes.lines()


def test_the_gpus_of_a_workload(tmp_path: Path) -> None:
    # Two containers of a GPU each run together, after one that has three: a pod needs 3. All 8 pods are
    # admitted, or 5.
    for count, gpus in (("", 24), (", count: 8", 24), (", count: 5", 15)):
        log, lines = read_workload(tmp_path, COUNT=count)
        assert (log.gpus.tolist(), log.gpu_type, lines) == ([gpus], ["MI300X"], [])
    log, _ = read_workload(tmp_path, GPU="nvidia.com/gpu.shared")
    assert log.left_out == {"asks for nvidia.com/gpu.shared, a part of a GPU": 1}
    _, lines = read_workload(tmp_path, GPU="example.com/npu")
    assert lines == ["not read: resource example.com/npu"]


def test_outcomes_go_by_reasons_not_by_words(tmp_path: Path) -> None:
    for reason, message, outcome in (
        ("Succeeded", "the job did not fail once", "completed"),
        ("Failed", "", "failed"),
        ("OutOfSync", "The workload is not in sync", "killed"),
        ("JobFinished", "Job finished successfully", "completed"),
        ("JobFinished", "Job has reached the specified backoff limit", "failed"),
    ):
        log, lines = read_workload(tmp_path, REASON=reason, MESSAGE=message)
        assert (log.outcome, lines) == ([outcome], []), reason
    log, lines = read_workload(tmp_path, REASON="Vanished")
    assert (log.outcome, lines) == ([""], ["not read: reason Vanished of the condition Finished"])
