"""Arnold's page: the paper's claims beside the placement benchmark and its characterisation."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.tables import table
from clustergym.oracle.roofline.devices import PORT_SHARE

from .arnold_benchmark import placement_figures
from .arnold_characterisation import DENSE as DENSE_MODEL
from .arnold_characterisation import LARGE_JOBS
from .arnold_characterisation import MOE as MOE_MODEL
from .claim_files import judge_claims
from .claims import FAIR, PUBLISHED, claims_table
from .page import Report, passage
from .reproduction import Figures, Options, load_or_make

TIED = ("best_fit_by_node", "gpu_packing", "topology_aware")
"""Baselines that, in the paper, equal Arnold in setting (i)."""
DENSE, MOE = DENSE_MODEL.name, MOE_MODEL.name


def arnold_figures(figures: Figures) -> dict[str, Any]:
    """Return the figures that the file of Arnold's claims names, from the results by experiment."""
    found, summary = figures["characterisation"], figures["summary"]
    told: dict[str, Any] = {
        setting: _alignments(found["two_minipods"][setting]) | _production(found, setting)
        for setting in (FAIR, PUBLISHED)
    }
    inside = max(found["inside_a_minipod"].values())
    small = [100 * share for share in _of_model(found["two_minipods"][FAIR], MOE, "communication_share")]
    told[FAIR] |= _scores(figures) | {
        "silent_pairs": 100 * LARGE_JOBS[-1].silent_share,
        "little_inside": inside <= 0.003,
    }
    told[FAIR]["communication"]["96"] = sum(small) / len(small)
    return told | {
        "summary": summary,
        "inside": 100 * inside,
        "ties": 100 * min(summary["ties"]["i"][name] for name in TIED),
        **{"communication_least": min(small), "communication_most": max(small)},
    }


def _of_model(rows: Iterable[Mapping[str, Any]], model: str, what: str) -> list[Any]:
    return [row[what] for row in rows if row["model"] == model]


def _alignments(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the gains of aligned placements of 96 GPUs in two minipods, percent, and what they show."""
    aligned: dict[str, dict[str, float]] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        gains = _of_model(rows, model, "gain")
        aligned[model] = {to: 100 * sum(gain[to] for gain in gains) / len(gains) for to in gains[0]}
    # Each model's last row is that of the most layers.
    best = {row["model"]: max(row["gain"], key=row["gain"].__getitem__) for row in rows}
    dense = [gain["pp_aligned"] for gain in _of_model(rows, DENSE, "gain")]
    return {
        "aligned": aligned,
        "dp_gains_and_pp_more": 0 < aligned[MOE]["dp_aligned"] < aligned[MOE]["pp_aligned"],
        "best_depends_on_model": len(set(best.values())) > 1,
        "best": {model: to[:2].upper() for model, to in best.items()},
        "gain_grows_with_layers": all(less < more for less, more in pairwise(dense)),
    }


def _production(found: Figures, setting: str) -> dict[str, Any]:
    """Return what is held against the paper's clusters by GPUs: gains in percent, spreads, communication."""
    production = {gpus: {**row, "gain": 100 * row["gain"]} for gpus, row in found["scale"][setting].items()}
    most = str(LARGE_JOBS[-1].gpus)
    return {
        "production": production,
        "communication": {most: 100 * production[most]["communication_share"]},
    }


def _scores(figures: Figures) -> dict[str, Any]:
    """Return what of the summary of scores the claims on Table 1 and Fig. 6 rest on."""
    ratios = figures["summary"]["ratio_to_best_baseline"]
    at_alphas = [zip(ratios[name], figures["alphas"], strict=True) for name in ("ii", "iii")]
    return {
        "summary": figures["summary"],
        "never_worse": min(min(row) for row in ratios.values()) >= 1 - 1e-9,
        "better_in_both": min(ratio for pairs in at_alphas for ratio, at in pairs if 0 < at < 1) > 1,
    }


SUMMARY = "placement of pre-training jobs: spread, and what it is worth"

STATES, QUICK_STATES = 20, 10


def reproduce(options: Options) -> Report:
    """Run the placement benchmark, or read its cached results; return the page of the paper Arnold."""
    if options.policies is not None:
        message, remedy = "placement runs all its algorithms", "leave it out for arnold"
        raise InputError(message, field="--policies", remedy=remedy)
    states = QUICK_STATES if options.quick else STATES
    what = f"{states} {options.quick}"
    figures = dict(load_or_make(options.work, what, lambda: placement_figures(options.quick, states, 0)))
    rows = judge_claims("arnold", arnold_figures(figures))
    ratios = [
        [f"({name})", *(f"{value:.2f}" for value in row)]
        for name, row in figures["summary"]["ratio_to_best_baseline"].items()
    ]
    proofs = [setting["arnold"] for setting in figures["settings"]]
    texts = (
        passage("arnold", "introduction", flag=" --quick" * options.quick, claims=claims_table(rows)),
        passage("arnold", "score", states=states),
        table(["setting", *(f"alpha {alpha}" for alpha in figures["alphas"])], ratios),
        passage("arnold", "proofs", **{key: sum(of[key] for of in proofs) for key in ("solved", "proven")}),
        passage("arnold", "step time", share=100 * PORT_SHARE),
    )
    return Report("\n\n".join(texts) + "\n", [figures], rows)
