"""Every figure and table of Arnold's characterisation and evaluation, beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustergym.placement.ablation import SHIPPED, TEXT, TEXT_AND_ROUTES
from clustergym.placement.characterisation import SCALES
from clustergym.reproduction.claims import Claim

TIED = ("best_fit_by_node", "gpu_packing", "topology_aware")
"""Baselines that equal Arnold in setting (i), by the paper."""
PRODUCTION = {208: (5.7, 3.0, 2.0), 9600: (10.6, 1.5, 1.3)}
"""By GPUs: gain in throughput in percent, and how many times lower the DP and PP spreads are (Fig. 7)."""
DENSE, MOE, LARGE_MOE = "dense", "MoE, 8 experts", "MoE, 48 experts"
ALIGNED = ((DENSE, "pp_aligned", 2.3), (MOE, "pp_aligned", 1.8), (DENSE, "dp_aligned", 0.0))
"""Gain in percent of 96 GPUs over two minipods, on average (Fig. 4)."""

SHOWN_RULES = ("slowest tier, core 2:1", "rising as log2 k", "rising as k - 1")

Figures = Mapping[str, Any]


def claims(figures: Figures) -> list[Claim]:
    """Return the rows; "as published" has the minipods of Table 1 and the paper's best fit as baseline."""
    found, ablation = figures["characterisation"], figures["ablation"]
    return [
        *_communication(found, ablation),
        *_alignment(found, ablation),
        *_statements(found),
        *_spread(figures),
        *_production(ablation),
        Claim(
            "steps are stable after 200; garbage collection slows them near 550",
            "section 2, Fig. 4",
            None,
            why="our step time is one number: it has neither warm-up nor garbage collection",
        ),
        Claim(
            "nodes are reserved for coming jobs",
            "section 1",
            None,
            why="the text gives no figure; planned jobs with drained nodes are a part of the simulator",
        ),
    ]


def _yes(claim: str, source: str, ours: bool, why: str) -> Claim:
    """Return the row of a statement that holds or does not."""
    return Claim(f"{claim} (1: yes)", source, 1.0, float(ours), unit="", why=why, decimals=0)


def _mean_gain(found: Figures, model: str, kind: str) -> float:
    gains = [row["gain"][kind] for row in found["two_minipods"] if row["model"] == model]
    return float(100 * sum(gains) / len(gains))


def _communication(found: Figures, ablation: Figures) -> list[Claim]:
    small = [row["communication_share"] for row in found["two_minipods"] if row["model"] == MOE]
    at_scale = {row["variation"]: row for row in _rows(ablation, 9600)}
    larger = at_scale["larger models"]["communication_share"]
    source = "section 1, Fig. 1 (a)"
    return [
        Claim(
            "30 to 50 % of a step is communication (its upper end): MoE on 96 GPUs",
            source,
            50.0,
            100 * sum(small) / len(small),
            neutral=None,
            why=f"{100 * min(small):.0f} to {100 * max(small):.0f} % by layers; sizes are not in the text",
        ),
        Claim(
            "the same: MoE on 9,600 GPUs",
            source,
            50.0,
            100 * at_scale[SHIPPED]["communication_share"],
            neutral=None,
            why=f"with 64 layers of hidden size 8,192 instead of 48 of 2,048 {100 * larger:.0f} %",
        ),
        Claim(
            "pairs of GPUs that exchange nothing, at least",
            "section 1, Fig. 1 (b)",
            99.0,
            100 * SCALES[-1].job.silent_share,
            neutral=None,
            why="counted on 9,600 GPUs: tensor groups all to all, rings for data, neighbours for stages",
        ),
    ]


def _alignment(found: Figures, ablation: Figures) -> list[Claim]:
    rows = []
    for model, kind, paper in ALIGNED:
        low, high = (100 * found["core_factors"][factor][model][kind] for factor in ("1.0", "1.5"))
        routes = next(
            100 * row[kind]
            for row in ablation["two_minipods"]
            if (row["rule"], row["model"]) == ("static routes, 1:1", model)
        )
        rows.append(
            Claim(
                f"96 GPUs, {model}: {kind[:2].upper()}-aligned over packed, throughput",
                "section 2, Fig. 4",
                paper,
                _mean_gain(found, model, kind),
                neutral=0.0 if paper else None,
                why=f"core 1:1 instead of 2:1 {low:+.1f} %, 1.5:1 {high:+.1f} % (48 layers); "
                f"static routes {routes:+.1f} %",
            )
        )
    return rows


def _statements(found: Figures) -> list[Claim]:
    moe_dp, large_dp = (_mean_gain(found, model, "dp_aligned") for model in (MOE, LARGE_MOE))
    layers = [row["gain"]["pp_aligned"] for row in found["two_minipods"] if row["model"] == DENSE]
    best = {row["model"]: max(row["gain"], key=row["gain"].__getitem__) for row in found["two_minipods"]}
    inside = max(found["inside_a_minipod"].values())
    return [
        _yes(
            "96 GPUs, MoE: DP alignment gains too, PP alignment more",
            "section 2, Fig. 4",
            0 < moe_dp < _mean_gain(found, MOE, "pp_aligned"),
            f"8 experts: DP-aligned {moe_dp:+.1f} %; 48 experts: {large_dp:+.1f} %, PP-aligned "
            f"{_mean_gain(found, LARGE_MOE, 'pp_aligned'):+.1f} %",
        ),
        _yes(
            "the gain grows with the layers, dense",
            "section 2, Fig. 5",
            layers == sorted(set(layers)),
            f"{100 * layers[0]:+.2f} to {100 * layers[-1]:+.2f} % from 16 to 64 layers",
        ),
        _yes(
            "inside one minipod placement changes at most 0.3 %",
            "section 2",
            inside <= 0.003,
            f"{100 * inside:.2f} %, the most of three models over two leaves",
        ),
        _yes(
            "the best alignment depends on the model",
            "section 2",
            len(set(best.values())) > 1,
            "at 64 layers " + "; ".join(f"{kind[:2].upper()} for {model}" for model, kind in best.items()),
        ),
        Claim(
            "the best alignment depends on the type of GPU",
            "section 2",
            None,
            why="the other cluster is not described",
        ),
    ]


def _spread(figures: Figures) -> list[Claim]:
    found, source = figures["summary"], "section 3, Fig. 6, Table 1"
    least = min(min(row) for row in found["ratio_to_best_baseline"].values())
    empty = [row for row in figures["fullness"] if row["least"] == 1.0]
    full = next(row for row in figures["fullness"] if (row["name"], row["most"]) == ("i", 0.6))
    ties = min(found["ties"]["i"][name] for name in TIED)
    at_empty = next(row["greatest_ratio"] for row in empty if row["name"] == "i")
    return [
        Claim(
            "best baseline's score over Arnold's, most",
            source,
            1.67,
            found["greatest_ratio"],
            unit="x",
            neutral=1.0,
            decimals=2,
            why=_by_setting(found, "greatest_ratio"),
        ),
        Claim(
            "the same, on average",
            source,
            1.2,
            found["mean_ratio"],
            unit="x",
            neutral=1.0,
            decimals=2,
            why=_by_setting(found, "mean_ratio"),
        ),
        Claim(
            "(i): best baseline's score over Arnold's, on average",
            source,
            1.0,
            found["by_setting"]["i"]["mean_ratio"],
            unit="x",
            neutral=None,
            decimals=2,
            why=f"best fit, GPU packing and topology-aware each tie in {100 * ties:.0f} % of states or more; "
            f"{at_empty:.2f}x with every node free, {full['mean_ratio']:.2f}x with at most 60 % free; the "
            "paper's states are not in the text",
        ),
        _yes(
            "Arnold is never worse than any of the four baselines",
            source,
            least >= 1 - 1e-9,
            f"least ratio {least:.2f}x over settings and alphas",
        ),
        _yes(
            "(ii) and (iii): Arnold is better than each baseline",
            source,
            all(row > 1 for name in ("ii", "iii") for row in _interior(figures, name)),
            f"least ratio at alphas above 0 and below 1 "
            f"{min(row for name in ('ii', 'iii') for row in _interior(figures, name)):.2f}x",
        ),
    ]


def _by_setting(found: Figures, key: str) -> str:
    each = ", ".join(f"({name}) {row[key]:.2f}x" for name, row in found["by_setting"].items())
    return f"{each}; with placers of whole groups among the baselines {found['whole_groups'][key]:.2f}x"


def _interior(figures: Figures, name: str) -> list[float]:
    ratios = figures["summary"]["ratio_to_best_baseline"][name]
    return [ratio for ratio, alpha in zip(ratios, figures["alphas"], strict=True) if 0 < alpha < 1]


def _rows(ablation: Figures, gpus: int) -> Sequence[Figures]:
    return [row for row in ablation["scale"] if row["gpus"] == gpus and row["experts"]]


def _production(ablation: Figures) -> list[Claim]:
    rows = []
    for gpus, (gain, *spreads) in PRODUCTION.items():
        mine = {row["variation"]: row for row in _rows(ablation, gpus)}
        text, routes = mine[TEXT], mine[TEXT_AND_ROUTES]
        at_spreads = {
            row["rule"]: f"{100 * row['gain']:+.1f} %"
            for row in ablation["paper_spreads"]
            if row["gpus"] == gpus and row["model"] == MOE
        }
        where, source = f"{gpus:,} GPUs, MoE: ", "section 3, Fig. 7"
        rows.append(
            Claim(
                f"{where}throughput over the baseline",
                source,
                gain,
                100 * mine[SHIPPED]["gain"][0],
                100 * text["gain"][0],
                why=f"static routes besides {100 * routes['gain'][0]:+.1f} %; at the paper's spreads "
                + ", ".join(f"{name} {at_spreads[name]}" for name in SHOWN_RULES),
            )
        )
        for kind, published in zip(("dp", "pp"), spreads, strict=True):
            key = f"{kind}_spread_ratio"
            why = (
                f"{text['unit'].upper()} groups as units at alpha {text['alpha']:g} have the least predicted "
                f"time, whatever the other spread; static routes besides {routes[key]:.2f}x"
            )
            claim = f"{where}{kind.upper()} spread lower by"
            figures = published, mine[SHIPPED][key], text[key]
            rows.append(Claim(claim, source, *figures, unit="x", neutral=1.0, why=why, decimals=2))
    return rows
