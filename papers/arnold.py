"""Arnold's page: the paper's claims beside the placement benchmark and its characterisation."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.tables import percent

from .arnold_ablation import EVEN_CORE, SHIPPED, TEXT, TEXT_AND_CORE, TEXT_AND_ROUTES
from .arnold_characterisation import DENSE as DENSE_MODEL
from .arnold_characterisation import LAYERS, SCALES, fabric_tiers, two_minipods
from .arnold_figures import STATES, placement_figures
from .arnold_report import draw, report
from .claim_files import judge_claims
from .claims import FAIR, PUBLISHED, claims_table
from .page import Report, passage
from .reproduction import Figures, Options, load_or_make

TIED = ("best_fit_by_node", "gpu_packing", "topology_aware")
"""Baselines that, in the paper, equal Arnold in setting (i)."""
DENSE, MOE, LARGE_MOE = "dense", "MoE, 8 experts", "MoE, 48 experts"
RULES = {
    "even": EVEN_CORE,
    "shipped": "slowest tier, core 2:1",
    "logarithm": "rising as log2 k",
    "linear": "rising as k - 1",
}
"""Rules of the core whose gains at the paper's own spreads are told."""


def arnold_figures(figures: Figures) -> dict[str, Any]:
    """Return the figures that the file of Arnold's claims names, from the results by experiment.

    "As published" has a core of 1:1, the minipods of Table 1 and the paper's best fit as baseline.
    """
    found, ablation = figures["characterisation"], figures["ablation"]
    merged: dict[str, Any] = {FAIR: {}, PUBLISHED: {}}
    parts = (
        compare_alignments(found, ablation),
        _statements(found),
        _spread(figures),
        _production(found, ablation),
    )
    for part in parts:
        for name, of in part.items():
            merged[name] = merged[name] | of if name in (FAIR, PUBLISHED) else of
    return merged


def compare_alignments(found: Figures, ablation: Figures) -> dict[str, Any]:
    """Return the gains of aligned placements of 96 GPUs in two minipods, percent, means over layers."""
    fair = {
        model: {to: _mean_gain(found, model, to) for to in ("pp_aligned", "dp_aligned")}
        for model in (DENSE, MOE, LARGE_MOE)
    }
    even = {model: _gains_of_rule(ablation, model, EVEN_CORE) for model in (DENSE, MOE)}
    best = {row["model"]: max(row["gain"], key=row["gain"].__getitem__) for row in found["two_minipods"]}
    even_best = {max(gains, key=gains.__getitem__) for gains in found["core_factors"]["1.0"].values()}
    moe, even_moe = fair[MOE], even[MOE]
    return {
        FAIR: {
            "aligned": fair,
            "dp_gains_and_pp_more": 0 < moe["dp_aligned"] < moe["pp_aligned"],
            "best_depends_on_model": len(set(best.values())) > 1,
        },
        PUBLISHED: {
            "aligned": even,
            "dp_gains_and_pp_more": 0 < even_moe["dp_aligned"] < even_moe["pp_aligned"],
            "best_depends_on_model": len(even_best) > 1,
        },
        "half": {
            model: {to: 100 * gain for to, gain in gains.items()}
            for model, gains in found["core_factors"]["1.5"].items()
        },
        "routes": {model: _gains_of_rule(ablation, model, "static routes, 1:1") for model in (DENSE, MOE)},
        "best": {model: to[:2].upper() for model, to in best.items()},
    }


def _mean_gain(found: Figures, model: str, alignment: str) -> float:
    gains = [row["gain"][alignment] for row in found["two_minipods"] if row["model"] == model]
    return float(100 * sum(gains) / len(gains))


def _gains_of_rule(ablation: Figures, model: str, rule: str) -> dict[str, float]:
    rows = (row for row in ablation["two_minipods"] if (row["rule"], row["model"]) == (rule, model))
    return {key: 100 * gain for key, gain in next(rows).items() if key.endswith("_aligned")}


def _statements(found: Figures) -> dict[str, Any]:
    """Return whether the dense model's gain grows with its layers, and whether a minipod matters little."""
    ours = [row["gain"]["pp_aligned"] for row in found["two_minipods"] if row["model"] == DENSE]
    rows = two_minipods([DENSE_MODEL], LAYERS, fabric_tiers(1.0))
    told: dict[str, Any] = {
        setting: {
            "gain_grows_with_layers": all(less < more for less, more in pairwise(gains)),
            **{"gain_16": 100 * gains[0], "gain_64": 100 * gains[-1]},
        }
        for setting, gains in ((FAIR, ours), (PUBLISHED, [row["gain"]["pp_aligned"] for row in rows]))
    }
    inside = max(found["inside_a_minipod"].values())
    told[FAIR]["little_inside"] = inside <= 0.003
    return told | {"inside": 100 * inside}


def _spread(figures: Figures) -> dict[str, Any]:
    """Return what of the summary of scores the claims on Table 1 and Fig. 6 rest on."""
    summary = figures["summary"]
    ratios, in_1 = summary["ratio_to_best_baseline"], {}
    for row in (row for row in figures["fullness"] if row["name"] == "i"):
        in_1[row["least"], row["most"]] = row
    at_alphas = [zip(ratios[name], figures["alphas"], strict=True) for name in ("ii", "iii")]
    least = min(min(row) for row in ratios.values())
    least_inside = min(ratio for pairs in at_alphas for ratio, alpha in pairs if 0 < alpha < 1)
    return {
        FAIR: {"summary": summary, "never_worse": least >= 1 - 1e-9, "better_in_both": least_inside > 1},
        "summary": summary,
        "ties": 100 * min(summary["ties"]["i"][name] for name in TIED),
        "ratio_of_empty": in_1[1.0, 1.0]["greatest_ratio"],
        "ratio_of_full": in_1[0.0, 0.6]["mean_ratio"],
        "least_ratio": least,
        "least_ratio_inside": least_inside,
    }


def _production(found: Figures, ablation: Figures) -> dict[str, Any]:
    """Return shares of communication, and gains in throughput and lower spreads by GPUs (Figs 1 and 7)."""
    small = [100 * row["communication_share"] for row in found["two_minipods"] if row["model"] == MOE]
    rows = {gpus: _at_scale(ablation, gpus) for gpus in (208, 9600)}
    shares = {name: 100 * row["communication_share"] for name, row in rows[9600].items()}

    def gains(variation: str) -> dict[int, dict[str, float]]:
        return {
            gpus: {
                "gain": 100 * named[variation]["gain"][0],
                **{of: named[variation][f"{of}_spread_ratio"] for of in ("dp", "pp")},
            }
            for gpus, named in rows.items()
        }

    spreads = {
        (row["gpus"], row["rule"]): 100 * row["gain"]
        for row in ablation["paper_spreads"]
        if row["model"] == MOE
    }
    communication = {96: sum(small) / len(small), 9600: shares[SHIPPED]}
    return {
        FAIR: {
            "communication": communication,
            "silent_pairs": 100 * SCALES[-1].job.silent_share,
            "production": gains(SHIPPED),
        },
        PUBLISHED: {"communication": {9600: shares[TEXT_AND_CORE]}, "production": gains(TEXT_AND_CORE)},
        **{"communication_least": min(small), "communication_most": max(small)},
        "communication_of_larger": shares["larger models"],
        **{"text_core": gains(TEXT), "text_routes": gains(TEXT_AND_ROUTES)},
        "spreads": {gpus: {name: spreads[gpus, rule] for name, rule in RULES.items()} for gpus in rows},
        "units": {
            gpus: {"groups": of[TEXT_AND_CORE]["unit"].upper(), "alpha": of[TEXT_AND_CORE]["alpha"]}
            for gpus, of in rows.items()
        },
    }


def _at_scale(ablation: Figures, gpus: int) -> dict[str, Figures]:
    """Return the rows of the mixture of experts, by variation."""
    return {row["variation"]: row for row in ablation["scale"] if row["gpus"] == gpus and row["experts"]}


SUMMARY = "placement of pre-training jobs: spread, and what it is worth"

QUICK_STATES = 10


def reproduce(options: Options) -> Report:
    """Run the placement benchmark, or read its cached results; return the page of the paper Arnold."""
    if options.policies is not None:
        message, remedy = "placement runs all its algorithms", "leave it out for arnold"
        raise InputError(message, field="--policies", remedy=remedy)
    states = QUICK_STATES if options.quick else STATES
    what = f"{states} {options.quick}"
    figures = dict(load_or_make(options.work, what, lambda: placement_figures(options.quick, states, 0)))
    rows = judge_claims("arnold", arnold_figures(figures))
    name = "arnold.svg"
    details = report(figures).split("\n", 2)[2].replace("\n### ", "\n#### ").replace("\n## ", "\n### ")
    texts = (
        passage("arnold", "introduction", flag=" --quick" * options.quick, claims=claims_table(rows)),
        _reading(figures["ablation"], name),
        passage("arnold", "details", details=details.strip()),
    )
    plots = {name: lambda path: draw(figures, path, "--out")}
    return Report("\n\n".join(texts) + "\n", [figures], rows, plots)


def _reading(ablation: Figures, plot: str) -> str:
    """Return the paragraph on what the ablation shows for Fig. 7 (mixture of experts)."""
    small = _at_scale(ablation, 208)
    large = {
        row["rule"]: percent(row["gain"])
        for row in ablation["paper_spreads"]
        if row["gpus"] == 9600 and row["model"] != DENSE
    }
    return passage(
        "arnold",
        "reading",
        plot=plot,
        dp=small[TEXT]["dp_spread_ratio"],
        pp=small[TEXT]["pp_spread_ratio"],
        text=percent(small[TEXT]["gain"][0]),
        packed=percent(small["Table 1's minipods"]["gain"][0]),
        rule=large["slowest tier, core 2:1"],
        logarithm=large["rising as log2 k"],
        linear=large["rising as k - 1"],
        shared=large["shared uplinks, 1:1"],
        routes=large["static routes, 1:1"],
    )
