"""Tables of pairs: Gavel's published figures, the CSV layout, and what is wrong with a bad table."""

import json

import numpy as np
import published_data
import pytest
from published_data import find_published

from clustergym.common.errors import InputError
from clustergym.scenario.pairs import estimate_missing_pairs
from clustergym.trace.pair_tables import PairKey, PairTable, Workload, read_pair_table

GAVEL = published_data.DATA / "gavel"
HEADER = "gpu_type,gpus,model_a,batch_a,model_b,batch_b,kept_a,kept_b"
A, B = Workload("resnet18", 64), Workload("bert", 32)


def table(tmp_path, *rows, header=HEADER):
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def statistics(table: PairTable, gpu_type: str) -> dict:
    """Return the sums and shares that pairs of a type keep, ascending, and how many cannot share."""
    entries = [(key, pair) for key, pair in table.kept.items() if key.gpu_type == gpu_type]
    once = [(key, pair) for key, pair in entries if key.first <= key.second]
    possible = np.array([pair for _, pair in once if pair[0] > 0])
    return {
        "sums": np.sort(possible.sum(axis=1)),
        "kept": np.sort(possible.ravel()),
        "impossible": sum(pair[0] == 0 and key.gpus == 1 for key, pair in once),
        "entries": len(entries),
    }


def at(ascending, share):
    return float(ascending[min(int(share * len(ascending)), len(ascending) - 1)])


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
    found = statistics(read_pair_table(GAVEL), gpu_type)
    assert (len(found["sums"]), found["impossible"], found["entries"]) == (*counts, 1759)
    some, of_job = found["sums"], found["kept"]
    quantiles = [at(some, share) for share in (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)]
    assert [*quantiles, some.mean()] == pytest.approx(sums, abs=0.00051)
    assert [(some < 1).mean(), (some >= 1.5).mean()] == pytest.approx(shares, abs=0.00051)
    assert [at(of_job, share) for share in (0.05, 0.5, 0.95)] == pytest.approx(kept, abs=0.0011)


def test_gavels_second_table_has_other_speeds_alone():
    path = find_published("gavel/physical_cluster_throughputs.json.gz")
    found = [statistics(read_pair_table(path), kind)["sums"] for kind in ("V100", "P100", "K80")]
    assert [at(sums, 0.5) for sums in found] == pytest.approx([1.092, 1.005, 0.947], abs=0.00051)
    assert [(sums < 1).mean() for sums in found] == pytest.approx([0.433, 0.479, 0.846], abs=0.00051)


def test_a_csv_has_pairs_in_both_orders_and_memory_that_does_not_fit(tmp_path):
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


def test_a_pair_with_two_speeds_and_a_missing_column_are_refused(tmp_path):
    rows = ("V100,1,a,32,b,32,0.9,0.5", "V100,1,b,32,a,32,0.9,0.5")
    with pytest.raises(InputError, match=r"3: kept_a: b beside a has other speeds"):
        read_pair_table(table(tmp_path, *rows))
    with pytest.raises(InputError, match="columns missing"):
        read_pair_table(table(tmp_path, "V100,1,a", header="gpu_type,gpus,model_a"))


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
