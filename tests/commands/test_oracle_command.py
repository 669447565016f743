"""`python -m clustergym.oracle`: what it prints, writes and refuses."""

import json
from pathlib import Path

import pytest
from published_data import DATA, needs
from python_process import printed_by
from refusals import Said, refused

from clustergym.commands.oracle import main
from clustergym.commands.oracle.common import human, print_figures

needs_data = needs("arena")

PROFILE = "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s"
FILES = {
    "empty.csv": b"",
    "binary.csv": bytes(range(256)) * 4,
    "latin.csv": PROFILE.encode() + "\nbért".encode("latin-1"),
    "short.csv": b"model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node\nbert,1.3B,128,a40,1,2\n",
    "headless.csv": PROFILE.encode() + b"\n",
    "negative.csv": PROFILE.encode() + b"\nbert,1.3B,128,a40,1,2,-4\n",
    "zero.csv": PROFILE.encode() + b"\nbert,1.3B,0,a40,1,2,4\n",
    "device.csv": PROFILE.encode() + b"\nbert,1.3B,128,a41,1,2,4\n",
    "good.csv": PROFILE.encode() + b"\nbert,1.3B,128,a40,1,2,4\n",
    "model.csv": PROFILE.encode() + b"\nbert,1.4B,128,a40,1,2,4\n",
    "nodes.yaml": b"nodes: [{gpu_type: A40, count: 2, gpus_per_node: 4}]\n\nfabric: {minipods: -1}",
    "slow.yaml": b"nodes: [{gpu_type: A40, count: 8, gpus_per_node: 2, nic_gbps: -100}]",
    "list.yaml": b"[1, 2]",
}


@refused("oracle", words=True)
def test_bad_input_is_one_line_exit_status_2_and_nothing_written(
    given: list[str],
    said: Said,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    assert main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    said.check(err)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == FILES


def test_figures_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert human("mape", 0.1234567) == "12.35 %"
    assert human("median_ape", 0.05) == "5.00 %"
    assert human("spearman", 0.987654) == "0.9877"
    assert human("rows", 19686) == "19,686"
    assert human("regret", None) == "-"
    assert human("mape", float("nan")) == "-"
    families = {"[red]": {"rows": 3}, "moe": {"rows": 4, "mape": 0.2}}
    print_figures("a title", {"mape": 0.1, "by_family": families})
    text = capsys.readouterr().out
    assert text.startswith("a title\n")
    assert "by family" in text
    assert "[red]" in text
    assert "20.00 %" in text


@needs_data
def test_memory_against_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "errors.json"
    assert main(["validate", "--data", str(DATA / "arena/arena_dp_memory.csv"), "--json", str(target)]) == 0
    shown = json.loads(target.read_text())
    assert set(shown) == {"rows", "median_ape", "mape", "p90", "by_family"}
    # The model is held to a median error of 15 %.
    assert 0.001 < shown["median_ape"] < 0.15
    assert f"{100 * shown['median_ape']:.2f} %" in capsys.readouterr().out


@pytest.mark.processes
def test_explain_prints_the_same_in_any_process() -> None:
    words = ["-m", "clustergym.oracle", "explain", "--model", "llama3-8B"]
    words += ["--gpus", "16xH100", "--batch", "256"]
    assert len({printed_by(*words, PYTHONHASHSEED=seed) for seed in ("0", "1")}) == 1


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("oracle", ["stack", "roofline"])
def test_validate_prints_and_writes_the_same_figures(
    oracle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "errors.json"
    source = str(DATA / "arena" / "arena_profile.csv")
    assert main(["validate", "--data", source, "--oracle", oracle, "--json", str(target)]) == 0
    shown = json.loads(target.read_text())
    names = ["mape", "median_ape", "spearman", "regret", "feasibility_agreement"]
    assert set(names) < set(shown)
    text = capsys.readouterr().out
    for name in names:
        assert human(name, shown[name]) in text
    for group in ("by_family", "by_gpu_type", "by_gpus"):
        assert group.replace("_", " ") in text
        # Rows of all groups are the rows of the file, and the mean is the mean of the groups'.
        assert sum(row["rows"] for row in shown[group].values()) == shown["rows"]
        weighed = sum(row["rows"] * row["mape"] for row in shown[group].values())
        assert weighed / shown["rows"] == pytest.approx(shown["mape"])
