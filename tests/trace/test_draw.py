"""Models drawn for records: GPU time kept, what does not fit skipped, each row on its own stream."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.draw import (
    ARENA_BATCHES,
    ARENA_SIZES,
    ARES_CLASSES,
    RULES,
    Records,
    choose_reference,
    draw,
)
from clustergym.trace.options import ReadOptions


def seconds(model: ModelClass, gpu_type: str, gpus: int) -> float:
    """Seconds per iteration that depend on everything."""
    speed = {"A100": 4.0, "A40": 2.0, "V100": 1.0}.get(gpu_type, 1.5)
    return len(model.model) * model.global_batch / 1000 / gpus**0.9 / speed


def records(durations: list[float], gpus: list[int], types: list[str] | None = None) -> Records:
    n = len(durations)
    return Records(
        Path("jobs.csv"),
        np.arange(n),
        list(range(2, n + 2)),
        np.array(durations, dtype=np.float64),
        np.array(gpus),
        types or [""] * n,
    )


def options(**more: object) -> ReadOptions:
    return ReadOptions(**{"reference_time_s": seconds, "gpu_types": ("A100", "A40"), **more})  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(
    jobs=st.lists(st.tuples(st.floats(0.5, 1e7), st.integers(1, 600)), min_size=1, max_size=30),
    rule=st.sampled_from(sorted(RULES)),
    power_of_two=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_gpu_time_is_kept_within_one_iteration(
    jobs: list[tuple[float, int]], rule: str, power_of_two: bool, seed: int
) -> None:
    source = records([job[0] for job in jobs], [job[1] for job in jobs])
    drawn = draw(source, options(rule=rule, seed=seed, power_of_two=power_of_two))
    for row in range(len(jobs)):
        model = ModelClass(drawn.model_family[row], drawn.model_size[row], int(drawn.global_batch[row]))
        gpus = int(drawn.gpus[row])
        iteration_gpu_s = seconds(model, drawn.gpu_type[row], gpus) * gpus
        error = abs(int(drawn.iterations[row]) * iteration_gpu_s - jobs[row][0] * jobs[row][1])
        assert error <= iteration_gpu_s * (0.5 + 1e-6) or drawn.iterations[row] == 1
        assert error <= iteration_gpu_s
        assert gpus == jobs[row][1] or (
            power_of_two and gpus & (gpus - 1) == 0 and jobs[row][1] < gpus < 2 * jobs[row][1]
        )


def test_a_row_draws_the_same_whatever_other_rows_there_are() -> None:
    rng = np.random.default_rng(3)
    many = records(rng.uniform(1, 1e5, 200).tolist(), rng.integers(1, 65, 200).tolist())
    whole = draw(many, options(seed=7))
    part = np.array([5, 17, 150, 199])
    few = Records(many.path, many.row[part], [7] * 4, many.duration_s[part], many.gpus[part], [""] * 4)
    drawn = draw(few, options(seed=7))
    assert drawn.model_family == [whole.model_family[row] for row in part]
    assert drawn.model_size == [whole.model_size[row] for row in part]
    assert drawn.gpu_type == [whole.gpu_type[row] for row in part]
    assert drawn.iterations.tolist() == whole.iterations[part].tolist()


def test_arena_ties_size_to_count_and_draws_evenly() -> None:
    n = 12_000
    drawn = draw(records([1e4] * n, [1] * n), options(rule="arena"))
    for family, size in zip(drawn.model_family, drawn.model_size, strict=True):
        low, high = ARENA_SIZES[family][size]
        assert low <= 1 <= high
    # On 1 GPU: gpt3 760M and 1.3B, gshard_moe 690M and 1.3B, wide_resnet 500M; 4,000 jobs of each family.
    for family in ARENA_SIZES:
        assert abs(drawn.model_family.count(family) - n / 3) < 4 * np.sqrt(n * 2 / 9)
    assert abs(drawn.model_size.count("760M") - n / 6) < 4 * np.sqrt(n * 5 / 36)
    assert abs(drawn.gpu_type.count("A100") - n / 2) < 4 * np.sqrt(n / 4)
    large = draw(records([1e4] * 3000, [64] * 3000), options(rule="arena"))
    assert set(large.model_size) == {"2.6B", "6.7B", "2.4B", "10B", "2B", "4B"}
    for family, batch in zip(large.model_family, large.global_batch.tolist(), strict=True):
        assert batch in ARENA_BATCHES[family]


@pytest.mark.parametrize(
    ("gpu_h", "index"), [(0.99, 0), (1.0, 1), (9.9, 1), (10.0, 2), (99.9, 2), (100.0, 3), (1e5, 3)]
)
def test_ares_draws_by_gpu_time(gpu_h: float, index: int) -> None:
    drawn = draw(records([gpu_h * 900] * 50, [4] * 50), options(rule="ares", gpu_types=None))
    assert set(drawn.model_family) == set(ARES_CLASSES[index])
    assert set(drawn.gpu_type) == {""}


def test_what_does_not_fit_is_skipped() -> None:
    def tight(model: ModelClass, gpu_type: str, gpus: int) -> float:
        fits = gpu_type == "A40" and model.family == "wide_resnet" and model.global_batch == 512
        return 1.0 if fits else float("inf")

    drawn = draw(records([100.0] * 40, [8] * 40), options(reference_time_s=tight))
    assert set(zip(drawn.model_family, drawn.global_batch.tolist(), drawn.gpu_type, strict=True)) == {
        ("wide_resnet", 512, "A40")
    }
    assert drawn.facts["outside_class"] == 0


def test_the_next_class_down_stands_in_where_nothing_of_the_class_fits() -> None:
    def no_resnet50(model: ModelClass, gpu_type: str, gpus: int) -> float:
        return float("inf") if model.family == "resnet50" else 1.0

    drawn = draw(records([1e6] * 3, [4] * 3), options(rule="ares", reference_time_s=no_resnet50))
    assert set(drawn.model_family) == {"yolov3"}
    assert drawn.facts["outside_class"] == 3


def test_a_recorded_gpu_type_is_kept_where_a_model_fits() -> None:
    def no_t4(model: ModelClass, gpu_type: str, gpus: int) -> float:
        return float("inf") if gpu_type == "T4" else 1.0

    drawn = draw(records([9.0, 9.0], [1, 1], ["V100", "T4"]), options(reference_time_s=no_t4))
    assert drawn.gpu_type[0] == "V100"
    assert drawn.gpu_type[1] in ("A100", "A40")
    assert drawn.facts["gpu_type_not_kept"] == 1


def test_a_job_that_fits_nowhere_is_named() -> None:
    def never(model: ModelClass, gpu_type: str, gpus: int) -> float:
        return float("inf") if gpus == 2 else 1.0

    message = r"jobs\.csv:3: gpus: no model of rule 'arena' fits on 2 GPUs of A100, A40 \(choose rule ares\)"
    with pytest.raises(InputError, match=message):
        draw(records([9.0, 9.0], [1, 2]), options(reference_time_s=never))


def test_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"rule: unknown rule 'area' \(did you mean arena or ares"):
        draw(records([9.0], [1]), options(rule="area"))


def test_the_default_reference_is_the_roofline_on_the_named_cluster() -> None:
    reference = choose_reference(ReadOptions())
    model = ModelClass("gpt3", "1.3B", 256)
    eight, sixteen = (reference(model, "A100", gpus) for gpus in (8, 16))
    assert 0 < sixteen < eight < 600
    assert reference(model, "A100", 8) == reference(model, "A100", 8)
    assert reference(model, "H100", 8) < eight  # not on arena-sim
    assert reference(ModelClass("gpt3", "39B", 256), "A10", 1) == float("inf")
    with pytest.raises(InputError, match="unknown cluster 'nowhere'"):
        choose_reference(ReadOptions(reference_cluster="nowhere"))


def test_arena_draws_among_the_reference_clusters_types() -> None:
    n = 400
    drawn = draw(records([1e5] * n, [4] * n), ReadOptions(reference_time_s=seconds))
    assert set(drawn.gpu_type) == {"A100", "A40", "A10", "V100"}
