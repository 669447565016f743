"""Tables of pairs: Gavel's published figures, the CSV layout, and what is wrong with a bad table."""

import json

import numpy as np
import published_data
import pytest
from published_data import find_published

from clustergym.commands.trace import main
from clustergym.common.errors import InputError
from clustergym.scenario.pairs import estimate_missing_pairs
from clustergym.trace.pair_tables import PairKey, Workload, pair_statistics, read_pair_table

GAVEL = published_data.DATA / "gavel"
HEADER = "gpu_type,gpus,model_a,batch_a,model_b,batch_b,kept_a,kept_b"
A, B = Workload("resnet18", 64), Workload("bert", 32)


def table(tmp_path, *rows, header=HEADER):
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("gpu_type", "counts", "sums", "shares", "kept"),
    [
        (
            "V100",
            (330, 21),
            (0.347, 0.535, 1.137, 1.367, 1.576, 1.966, 2.000, 1.312),
            (0.218, 0.336),
            (0.207, 0.674, 1.000),
        ),
        (
            "P100",
            (340, 11),
            (0.915, 0.969, 1.047, 1.130, 1.348, 1.523, 1.863, 1.191),
            (0.135, 0.071),
            (0.370, 0.582, 0.828),
        ),
        (
            "K80",
            (306, 45),
            (0.820, 0.936, 0.999, 1.052, 1.145, 1.235, 1.275, 1.070),
            (0.265, 0.0),
            (0.367, 0.529, 0.734),
        ),
    ],
)
def test_the_statistics_of_gavels_pairs(gpu_type, counts, sums, shares, kept):
    # ../shared/facts/gpu-sharing.md, section (e).
    find_published("gavel/simulation_throughputs.json")
    of_type = {found.gpu_type: found.plain() for found in pair_statistics(read_pair_table(GAVEL))}
    found = of_type[gpu_type]
    names = [f"sum_{name}" for name in ("min", "p5", "p25", "median", "p75", "p95", "max", "mean")]
    assert (found["pairs"], found["impossible_pairs"], found["entries"]) == (*counts, 1759)
    assert [found[name] for name in names] == pytest.approx(sums, abs=0.00051)
    assert [found["losing_share"], found["gaining_share"]] == pytest.approx(shares, abs=0.00051)
    assert [found[f"kept_{name}"] for name in ("p5", "median", "p95")] == pytest.approx(kept, abs=0.0011)


def test_gavels_second_table_has_other_speeds_alone():
    path = find_published("gavel/physical_cluster_throughputs.json.gz")
    found = {one.gpu_type: one.plain() for one in pair_statistics(read_pair_table(path))}
    kinds = ("V100", "P100", "K80")
    assert [found[kind]["sum_median"] for kind in kinds] == pytest.approx([1.092, 1.005, 0.947], abs=0.00051)
    assert [found[kind]["losing_share"] for kind in kinds] == pytest.approx(
        [0.433, 0.479, 0.846], abs=0.00051
    )


def test_a_csv_has_pairs_in_both_orders_and_memory_that_does_not_fit(tmp_path, capsys):
    header = HEADER + ",memory_a_mib,memory_b_mib,device_memory_mib"
    path = table(
        tmp_path,
        "V100,1,resnet18,64,bert,32,0.9,0.7,4000,9000,16384",
        "V100,1,bert,32,bert,32,0.6,0.6,9000,9000,16384",
        "V100,1,resnet18,64,resnet18,64,0.8,0.8,,,",
        header=header,
    )
    kept = read_pair_table(path).kept
    assert kept[PairKey("V100", 1, A, B)] == (0.9, 0.7)
    assert kept[PairKey("V100", 1, B, A)] == (0.7, 0.9)
    assert kept[PairKey("V100", 1, B, B)] == (0.0, 0.0)
    assert kept[PairKey("V100", 1, A, A)] == (0.8, 0.8)
    out = tmp_path / "out.json"
    assert main(["pairs", str(path), "--json", str(out)]) == 0
    row = json.loads(out.read_text())["types"][0]
    assert (row["pairs"], row["impossible_pairs"], row["sum_max"]) == (2, 1, pytest.approx(1.6))
    assert "impossible_pairs" in capsys.readouterr().out


def test_a_pair_with_two_speeds_and_a_missing_column_are_refused(tmp_path, capsys):
    rows = ("V100,1,a,32,b,32,0.9,0.5", "V100,1,b,32,a,32,0.9,0.5")
    with pytest.raises(InputError, match=r"3: kept_a: b beside a has other speeds"):
        read_pair_table(table(tmp_path, *rows))
    assert main(["pairs", str(table(tmp_path, "V100,1,a", header="gpu_type,gpus,model_a"))]) == 2
    assert "columns missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"('A3C', 1)": {"null": 2.0, "('LM (batch size 5)', 2)": [1.0, 1.0]}}, "the counts are unequal"),
        ({"('A3C', 1)": {"null": 2.0, "('A3C', 1)": [-1.0, 1.0]}}, "not rates"),
        ({"('A3C', 1)": {"null": 2.0, "('A3C', 1)": [900.0, 1.0]}}, "keeps 450 of its speed"),
        ({"('A3C', 1)": {"('A3C', 1)": [1.0, 1.0]}}, "is not a table of pairs"),
    ],
)
def test_a_bad_table_of_gavels_layout_is_refused_in_one_line(tmp_path, entry, message):
    path = tmp_path / "rates.json"
    other = {"('LM (batch size 5)', 2)": {"null": 3.0}}
    path.write_text(json.dumps({"v100": {**entry, **other}}))
    with pytest.raises(InputError, match=message) as error:
        read_pair_table(path)
    assert error.value.file == path
    assert error.value.remedy


def test_an_estimate_multiplies_what_both_do_on_average():
    # On one type and count: a keeps 0.9 beside a and 0.6 beside b, b 0.6 beside a; b beside b is missing.
    kept = np.array([[0.9, 0.6], [0.6, np.nan]])[..., None, None]
    # All keep 0.7 on average, b 0.6, others beside b 0.6.
    assert estimate_missing_pairs(kept)[1, 1, 0, 0] == pytest.approx(0.6 * 0.6 / 0.7, abs=1e-12)
    assert estimate_missing_pairs(kept)[0, 1, 0, 0] == 0.6
    assert np.isnan(estimate_missing_pairs(np.full((1, 1, 1, 1), np.nan))).all()
