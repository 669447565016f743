"""The native format: what is written is read back, with its provenance or not at all."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.common.errors import InputError
from clustergym.trace.native import provenance_path, read_trace, write_trace
from clustergym.trace.trace import COLUMNS, Trace
from clustergym.trace.trace_checks import build_trace

MINIMAL = """job_id,submit_s,model_family,global_batch,iterations,gpus
b,30,gpt3,128,10,4
a,10.5,resnet18,64,1,1
c,30,gpt3,128,7.0,2
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_optional_columns_may_be_missing_and_ties_keep_their_order(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, MINIMAL))
    assert trace.name == "mine"
    assert trace.job_id == ("a", "b", "c")
    assert trace.submit_s.tolist() == [10.5, 30, 30]
    assert trace.line.tolist() == [3, 2, 4]
    assert trace.iterations.tolist() == [1, 10, 7]
    assert np.isnan(trace.deadline_s).all()
    assert trace.priority.tolist() == [0, 0, 0]
    assert trace.gpu_type == trace.user == trace.virtual_cluster == trace.model_size == ("", "", "")


def test_gpu_types_get_their_canonical_name(tmp_path: Path) -> None:
    text = MINIMAL.replace("gpus\n", "gpus,gpu_type\n").replace("10,4\n", "10,4,a100\n")
    text = text.replace(",1,1\n", ",1,1,\n").replace("7.0,2\n", "7.0,2,rtx\n")
    assert read_trace(write(tmp_path, text)).gpu_type == ("", "A100", "RTX2080Ti")


_words = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8).map(str.strip)
_types = st.sampled_from(["", "A100", "A40", "H100"])
_jobs = st.lists(
    st.tuples(
        st.floats(0, 1e12),
        st.integers(1, 2**53 - 1),
        st.integers(1, 1_000_000),
        st.one_of(st.none(), st.floats(1, 1e12)),
        st.integers(-9, 9),
        _words,
        _types,
    ),
    min_size=1,
    max_size=12,
)


def _trace(jobs: list[tuple[float, int, int, float | None, int, str, str]]) -> Trace:
    n = len(jobs)
    submit_s = np.array([job[0] for job in jobs])
    return build_trace(
        path=Path("drawn.csv"),
        job_id=[f"job-{row},\"'" for row in range(n)],
        submit_s=submit_s,
        model_family=["gpt3"] * n,
        global_batch=np.full(n, 64),
        iterations=np.array([job[1] for job in jobs]),
        gpus=np.array([job[2] for job in jobs]),
        deadline_s=np.array([np.nan if job[3] is None else job[0] * 2 + job[3] for job in jobs]),
        priority=np.array([job[4] for job in jobs]),
        user=[job[5] for job in jobs],
        gpu_type=[job[6] for job in jobs],
        line=[0] * n,
        provenance={"source": "nowhere", "seed": 3},
    )


@settings(deadline=None, max_examples=50)
@given(jobs=_jobs)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, jobs: list) -> None:
    path = tmp_path_factory.mktemp("trip") / "deep" / "trace.csv"
    trace = _trace(jobs)
    write_trace(trace, path)
    again = read_trace(path)
    assert again.csv_text() == trace.csv_text()
    assert again.sha256 == trace.sha256
    assert again.provenance == {"source": "nowhere", "seed": 3}
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["trace.csv", "trace.provenance.json"]


def test_the_provenance_file_holds_sha256_rows_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    trace = read_trace(write(tmp_path, MINIMAL))
    write_trace(trace, path)
    record = json.loads(provenance_path(path).read_text())
    assert record["sha256"] == trace.sha256
    assert record["rows"] == 3
    assert record["columns"] == list(COLUMNS)
    assert record["provenance"]["source"] == "mine.csv"


def test_a_changed_file_is_not_taken_for_the_recorded_one(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write_trace(read_trace(write(tmp_path, MINIMAL)), path)
    path.write_text(path.read_text().replace(",4,", ",8,"))
    with pytest.raises(
        InputError, match=r"out\.csv: sha256: sha256 is not the one in out\.provenance\.json \(restore"
    ):
        read_trace(path)
    provenance_path(path).unlink()
    assert read_trace(path).gpus.max() == 8


def test_both_files_are_written_or_neither(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, MINIMAL))
    path = tmp_path / "out.csv"
    provenance_path(path).mkdir()
    with pytest.raises(InputError, match=r"out\.provenance\.json: is a folder"):
        write_trace(trace, path)
    assert not path.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(trace, tmp_path / "file" / "out.csv")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "mine.csv", "out.provenance.json"]
