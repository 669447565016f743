"""The section on software stacks of the accuracy page: every row of its tables, from figures given here."""

from typing import Any

from benchmarks.oracle_page.stack_page import stack_section


def errors(rows: int, median: float) -> dict[str, Any]:
    """Return errors whose mean is twice the median, the 90th percentile thrice."""
    return {"rows": rows, "median_ape": median, "mape": 2 * median, "p90": 3 * median}


FIGURES: dict[str, Any] = {
    "errors": {"dense, newest release": errors(200, 0.025), "all": errors(300, 0.05)},
    "left_out": {"dense, newest release": errors(200, 0.0375), "llm-foundry": errors(90, 0.04)},
    "measured_rows": 400,
    "expressed": 390,
    "refused": 1,
    "slower_than_published": 17,
    "by_source": {"llm-foundry": errors(90, 0.02), "torchtitan": errors(20, 0.03)},
    "by_gpu_type": {"H100": errors(150, 0.01)},
    "by_model": {"7B": errors(11, 0.015)},
    "per_gpu_speed": {"64": {"rows": 9, "mean_points": 2.84, "largest_points": 7.06}},
    "per_gpu_curves": [
        {
            "model": "7B", "gpu_type": "H100", "fewest": 8, "first_error": 0.25,
            "points": [
                {"gpus": 16, "measured": 0.9, "predicted": 1.0},
                {"gpus": 32, "measured": 1.0, "predicted": 1.0},
            ],
        },
        {
            "model": "8B", "gpu_type": "H100", "fewest": 8, "first_error": 0.0,
            "points": [{"gpus": 16, "measured": 1.0, "predicted": 1.04}],
        },
    ],
    "without_a_source": {
        "llm-foundry": errors(90, 0.17)
        | {"median_ratio": 0.95, "stacks": ["fsdp-2025"], "any_median_ape": 0.33},
    },
    "between_sources": {"dense": [1.5, 1.25], "experts": [3.0]},
    "without_a_part": {
        "bubble": {
            "rows": 12, "share_of_step_median": 0.03, "median_ape": 0.025, "median_ape_without": 0.045,
            "mape": 0.05, "mape_without": 0.0625,
        }
    },
    "without_a_constant": {"tensor_exposed": {"a": 0.02, "b": 0.03, "c": 0.1, "d": 0.2}},
    "collectives": {"A100": {"all_reduce, 8": {"rows": 40, "mape_before": 0.3, "mape": 0.075}}},
    "grids": {
        "pareto": {
            "allocations": 18, "share_mean": 0.975, "share_worst": 0.9, "estimate_error_mean": 0.05,
            "frontier_plans_most": 14,
        }
    },
}  # fmt: skip


def test_every_row() -> None:
    shown = stack_section(FIGURES).splitlines()
    assert shown[0] == "## Training throughput of today's stacks"
    assert [line for line in shown if line.startswith("|") and "---" not in line] == [
        "|  | rows | median | mean | 90th percentile | left out: median | mean | 90th percentile | target |",
        "| dense, newest release | 200 | 2.5 % | 5.0 % | 7.5 % | 3.8 % | 7.5 % | 11.2 % | 4.5, 7, 13 % |",
        "| all | 300 | 5.0 % | 10.0 % | 15.0 % | - | - | - |  |",
        "| left out | rows | median | mean | 90th percentile | ratio | stacks chosen | untold: median |",
        "| llm-foundry | 90 | 17.0 % | 34.0 % | 51.0 % | 0.95 | fsdp-2025 | 33.0 % |",
        "| source | rows | median | mean | 90th percentile | left out: median | mean | 90th percentile |",
        "| llm-foundry | 90 | 2.0 % | 4.0 % | 6.0 % | 4.0 % | 8.0 % | 12.0 % |",
        "| torchtitan | 20 | 3.0 % | 6.0 % | 9.0 % | - | - | - |",
        "| GPU | rows | median | mean | 90th percentile |",
        "| H100 | 150 | 1.0 % | 2.0 % | 3.0 % |",
        "| model | rows | median | mean | 90th percentile |",
        "| 7B | 11 | 1.5 % | 3.0 % | 4.5 % |",
        "|  | curves | mean | largest |",
        "| 64 GPUs | 9 | 2.8 | 7.1 |",
        "|  | GPUs | measured | predicted | points | fewest |",
        "| 7B, H100 | 8 to 16 | 0.90 | 1.00 | +10.0 | +25 % |",
        "| part | rows | share of step, median | median error | mean error |",
        "| bubble | 12 | 3.0 % | 2.5 % to 4.5 % | 5.0 % to 6.2 % |",
        "| without | median | mean | median | mean |",
        "| tensor exposed | 2.0 % | 3.0 % | 10.0 % | 20.0 % |",
        "|  | rows | mean error before | mean error |",
        "| A100 all_reduce, 8 | 40 | 30.0 % | 7.5 % |",
        "|  | allocations | best proxy plan: share of the optimum, mean | worst | estimate error"
        " | largest frontier |",
        "| `strategy=pareto` | 18 | 97.5 % | 90.0 % | 5.0 % | 14 |",
    ]
    said = " ".join(shown)
    assert "up to 1.50 times as fast for dense (2), up to 3.00 times as fast for experts (1) as in" in said
    assert (
        "The tables have 400 rows, of which 390 can be expressed as plans of the oracle. Of these, 1 ran"
        in said
    )
    assert "search finds is predicted to be slower than the published one in 17 rows." in said
    assert "### Collectives" not in stack_section(FIGURES | {"collectives": {}})
    # Each table stands by itself, below its words.
    for at, line in enumerate(shown):
        if line.startswith("|") and not shown[at - 1].startswith("|"):
            assert shown[at - 1] == ""
