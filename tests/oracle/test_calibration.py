"""Fitting constants, the file they go to, and validation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from published_data import DATA, needs

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.common.errors import InputError
from clustergym.oracle.calibration import operator_fit as calibration
from clustergym.oracle.calibration.operator_fit import PRIORS, Calibrator, robust, vector, with_vector
from clustergym.oracle.calibration.validation import Rows, predict_times, read_rows, validate
from clustergym.oracle.grid.constants import Constants, clock_share
from clustergym.oracle.grid.grid_oracle import GridOracle
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.stacks.catalog import OPERATORS_STACK, Stack, load_stack, round_constants, stack_yaml
from clustergym.oracle.stacks.stack_oracle import StackOracle, make_operators_oracle

PROFILE = DATA / "arena" / "arena_profile.csv"
needs_data = needs("arena/arena_profile.csv")
HEADER = "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,kind,iteration_time_s,feasible"
CATALOG = load_catalog()
PLACES = [("a100", 1, 1), ("a100", 1, 4), ("a40", 1, 2), ("a40", 2, 2), ("a10", 2, 2), ("v100", 1, 2)]
SIZES = [("bert", "760M", 128), ("bert", "1.3B", 256), ("moe", "690M", 256), ("wide_resnet", "500M", 256)]


def row(family: str, size: str, batch: int, place: tuple[str, int, int], seconds: float) -> str:
    return f"{family},{size},{batch},{place[0]},{place[1]},{place[2]},optimal,{seconds},1"


def write_csv(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "measured.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def generated(folder: Path, constants: Constants) -> Path:
    """Write what the oracle itself says of 24 rows, with the given constants."""
    cases = [(*size, place) for size in SIZES for place in PLACES]
    path = write_csv(folder, *(row(*case, 1.0) for case in cases))
    rows = read_rows(path, CATALOG)
    seconds = predict_times(rows, GridOracle(CATALOG, constants))
    fits = [(case, s) for case, s in zip(cases, seconds.tolist(), strict=True) if np.isfinite(s)]
    fits += [((*case[:3], ("a40", 4, 2)), 5.0) for case, _ in fits[: 24 - len(fits)]]
    return write_csv(folder, *(row(*case, s) for case, s in fits))


def test_there_are_at_most_15_constants() -> None:
    assert len(PRIORS) <= 15
    values = vector(Constants())
    assert (values > 0).all()
    np.testing.assert_array_equal(vector(with_vector(2 * values)), 2 * values)


def test_rates_are_of_the_data_sheet_by_hand() -> None:
    types, constants = load_gpu_types(), Constants()
    # 150 W for 15.6 TFLOP/s of fp32 lanes: 0.6 of what keeps the clock.
    assert clock_share(types["A10"]) == pytest.approx((150 / 15.6 / 16) ** (1 / 3), rel=1e-3)
    assert [clock_share(types[name]) for name in ("A40", "A100", "V100")] == [1, 1, 1]
    assert clock_share(replace(types["A10"], name="own", power_w=None)) == 1
    assert clock_share(replace(types["A100"], name="own", power_w=156)) == pytest.approx(0.5 ** (1 / 3))
    assert constants.matmul_flops(types["A100"]) == pytest.approx(0.75 * 312e12)
    arithmetic, memory = 1 / (0.8 * 19.5e12), 1 / (33 * 1555e9)
    assert constants.convolution_flops(types["A100"]) == pytest.approx(1 / (arithmetic + memory))
    # Lanes that are shared with integers count half.
    arithmetic, memory = 1 / (0.8 * 18.7e12), 1 / (33 * 696e9)
    assert constants.convolution_flops(types["A40"]) == pytest.approx(1 / (arithmetic + memory))
    assert [constants.network_share(types[name]) for name in ("V100", "A10")] == [0.5, 0.15]


def test_robust_residuals() -> None:
    # Small errors count as they are; large ones have a loss of 0.05 |e| - 0.0025 instead of e^2 / 2.
    small, large = np.array([1e-3, -1e-3]), np.array([10.0])
    np.testing.assert_allclose(robust(small), small, rtol=1e-3)
    np.testing.assert_allclose(robust(large) ** 2 / 2, 0.05 * large - 0.0025, rtol=1e-3)


@pytest.mark.slow
def test_a_fit_explains_what_the_oracle_generated(tmp_path: Path) -> None:
    true = with_vector(vector(Constants()) * np.exp(np.linspace(-0.1, 0.1, len(PRIORS))))
    rows = read_rows(generated(tmp_path, true), CATALOG)
    calibrator = Calibrator(rows, CATALOG)
    chosen = np.array([layout.nodes < 4 for layout in rows.layouts])
    before = np.abs(np.log(calibrator.predict(Constants()) / rows.seconds))[chosen]
    after = np.abs(np.log(calibrator.predict(calibrator.fit(chosen, rounds=4)) / rows.seconds))[chosen]
    assert after.mean() < 0.35 * before.mean()


def test_the_committed_file_is_what_the_oracle_uses() -> None:
    stack = load_stack(OPERATORS_STACK)
    assert stack.constants == round_constants(stack.constants)
    assert make_operators_oracle(CATALOG).constants == stack.constants == StackOracle().operators.constants


def test_what_is_written_is_read_back_and_the_same_each_time(tmp_path: Path) -> None:
    stack = Stack("alpa-2022", Constants(), "2 rows of measured.csv", ("A100", "A40"), ("gpt3", "gshard_moe"))
    text = stack_yaml(stack, ["of a test"])
    (tmp_path / "a.yaml").write_text(text)
    read = load_stack(str(tmp_path / "a.yaml"))
    assert read.constants == Constants()
    assert (read.gpu_types, read.models) == (("A100", "A40"), ("gpt3", "gshard_moe"))
    assert read.fitted_to == "2 rows of measured.csv"
    assert stack_yaml(read, ["of a test"]) == text


@pytest.mark.parametrize("run", [calibration.cross_validate, validate])
def test_bad_measurements_are_one_clear_line(tmp_path: Path, run: object) -> None:
    assert callable(run)
    good = row("bert", "760M", 128, PLACES[0], 5.0)
    for header, line, message in (
        (HEADER.replace("gpu_type", "gpu"), good, "gpu_type"),
        (HEADER, row("bert", "760M", 128, ("a400", 1, 1), 5.0), "did you mean"),
        (HEADER, row("bert", "760", 128, PLACES[0], 5.0), "did you mean 760M"),
        (HEADER, row("bert", "760M", 0, PLACES[0], 5.0), "batch_size"),
        (HEADER, row("bert", "760M", 128, PLACES[0], -5.0), "not positive"),
        (HEADER, good.replace("optimal", "estimated_dp"), "measured"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            run(write_csv(tmp_path, line, header=header))
        assert "\n" not in str(caught.value)


def test_too_few_rows_to_fit(tmp_path: Path) -> None:
    path = write_csv(tmp_path, row("bert", "760M", 128, PLACES[0], 5.0))
    with pytest.raises(InputError, match="1 feasible optimal rows for 14 constants"):
        calibration.cross_validate(path)
    with pytest.raises(InputError, match="unknown value 'halves'"):
        calibration._cross_validate(read_rows(path, CATALOG), CATALOG, "halves", None)


def test_figures_by_hand(tmp_path: Path) -> None:
    places = [("a40", 1, 1), ("a40", 1, 2), ("a40", 2, 2), ("a10", 1, 1)]
    lines = [row("bert", "760M", 128, place, 1.0) for place in places[:3]]
    failed = row("bert", "6.7B", 128, places[3], 1.0)
    lines.append(failed)
    oracle = StackOracle(CATALOG)
    true = predict_times(read_rows(write_csv(tmp_path, *lines), CATALOG), oracle)
    assert np.isinf(true[3])  # 24 GB do not hold 18 bytes for each of 6.7 billion parameters
    # The first row took twice as long as predicted, the second half, the third as long; the last failed.
    seconds = [2 * true[0], true[1] / 2, true[2]]
    lines = [row("bert", "760M", 128, p, s) for p, s in zip(places[:3], seconds, strict=True)]
    lines.append(failed.replace("1.0,1", ",0"))
    found = validate(write_csv(tmp_path, *lines), oracle)
    assert found["rows"] == 3
    assert found["mape"] == pytest.approx((0.5 + 1.0 + 0.0) / 3)
    assert found["median_ape"] == pytest.approx(0.5)
    assert found["infeasible_measured"] == 0
    assert found["failure_recall"] == 1.0
    assert found["feasibility_agreement"] == 1.0
    assert found["by_nodes"]["multi"]["mape"] == pytest.approx(0.0, abs=1e-9)
    assert found["by_gpus"]["2"]["mape"] == pytest.approx(1.0)
    # Per GPU: measured 1/2, 2 x (1/2) / (t1/t0), …; the prediction prefers one GPU, the truth two.
    rates = [1 / (2 * true[0]), 1 / true[1], 1 / (4 * true[2])]
    assert found["regret"] == pytest.approx(1 - rates[0] / max(rates))
    assert found["regret_within_type"] == found["regret"]


def test_any_oracle_can_be_validated(tmp_path: Path) -> None:
    path = write_csv(tmp_path, row("bert", "760M", 128, PLACES[0], 6.5))
    found = validate(path, RooflineOracle(CATALOG))
    assert found["rows"] == 1
    assert found["spearman"] is None
    assert found["regret"] is None
    assert found["failure_recall"] is None


@pytest.mark.slow
@needs_data
def test_errors_on_the_published_measurements() -> None:
    found = validate(PROFILE)
    assert found["rows"] == 198
    assert found["mape"] < 0.105
    assert found["median_ape"] < 0.06
    assert found["p90"] < 0.25
    assert found["regret"] < 0.005
    assert found["infeasible_measured"] == 0
    assert found["by_nodes"]["single"]["mape"] < 0.08


@pytest.mark.slow
@needs_data
@pytest.mark.skipif(scipy.__version__ < "1.13", reason="SciPy 1.12 finds constants up to 4 % away")
def test_the_committed_constants_come_from_the_published_measurements() -> None:
    rows = read_rows(PROFILE, CATALOG)
    chosen = np.ones(len(rows.models), dtype=bool)
    assert Calibrator(rows, CATALOG).fit(chosen) == load_stack(OPERATORS_STACK).constants


@pytest.mark.slow
@needs_data
def test_a_model_left_out_is_predicted_from_the_others() -> None:
    rows = read_rows(PROFILE, CATALOG)
    held = np.array([model[:2] == ("gpt3", "1.3B") for model in rows.models])
    calibrator = Calibrator(rows, CATALOG)
    seconds = calibrator.predict(calibrator.fit(~held, rounds=3))
    fits = held & np.isfinite(rows.seconds)
    assert np.median(np.abs(seconds[fits] / rows.seconds[fits] - 1)) < 0.08


def test_arena_names_are_the_catalogues(tmp_path: Path) -> None:
    rows = read_rows(write_csv(tmp_path, row("bert", "760M", 128, PLACES[0], 6.5)), CATALOG)
    assert rows.models == (ModelClass("gpt3", "760M", 128),)
    assert rows.layouts[0] == ("A100", 1, 1)


def test_each_model_is_left_out_with_all_of_its_rows_and_no_other():
    models = tuple(ModelClass(*one, 8) for one in (("a", "1B"), ("b", "1B"), ("a", "2B"), ("a", "1B")))
    rows = Rows(models, (), (), np.ones(4), "")
    left_out = {name: held.tolist() for name, held in calibration._list_left_out(rows)}
    assert left_out == {
        "a-1B": [True, False, False, True],
        "a-2B": [False, False, True, False],
        "b-1B": [False, True, False, False],
    }
