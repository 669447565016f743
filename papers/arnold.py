"""Arnold's page: the paper's claims beside the placement benchmark and its characterisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from clustergym.common.errors import InputError
from clustergym.common.tables import percent

from .arnold_ablation import (
    EVEN_CORE,
    SHIPPED,
    TEXT,
    TEXT_AND_CORE,
    TEXT_AND_ROUTES,
)
from .arnold_characterisation import DENSE as DENSE_MODEL
from .arnold_characterisation import LAYERS, SCALES, fabric_tiers, two_minipods
from .arnold_figures import STATES, placement_figures
from .arnold_report import draw, report
from .claims import PaperClaim, claims_table, not_simulated, quantity
from .page import Report, passage
from .reproduction import Figures, Options, load_or_make

TIED = ("best_fit_by_node", "gpu_packing", "topology_aware")
"""Baselines that, in the paper, equal Arnold in setting (i)."""
PRODUCTION = {208: (5.7, 3.0, 2.0), 9600: (10.6, 1.5, 1.3)}
"""By GPUs: gain in throughput in percent, and how many times lower the DP and PP spreads are (Fig. 7)."""
DENSE, MOE, LARGE_MOE = "dense", "MoE, 8 experts", "MoE, 48 experts"
ALIGNED = ((DENSE, "pp_aligned", 2.3), (MOE, "pp_aligned", 1.8), (DENSE, "dp_aligned", 0.0))
"""Mean gain in throughput, percent, of an aligned placement of 96 GPUs in two minipods (Fig. 4)."""

SHOWN_RULES = (EVEN_CORE, "slowest tier, core 2:1", "rising as log2 k", "rising as k - 1")


def claims(figures: Figures) -> list[PaperClaim]:
    """Return the claims of Arnold's paper, each beside our results, which `figures` holds by experiment.

    "As published" has a core of 1:1, the minipods of Table 1 and the paper's best fit as baseline.
    """
    found, ablation = figures["characterisation"], figures["ablation"]
    rows = (_communication(found, ablation), _alignment(found, ablation), _statements(found, ablation))
    return [*chain(*rows, _spread(figures), _production(ablation)), *not_simulated("arnold")]


def _yes(claim: str, source: str, ours: bool, why: str, published: bool | None = None) -> PaperClaim:
    """Return a claim whose figure is 1 if a statement holds for our results, else 0."""
    as_published = None if published is None else float(published)
    figures = (1.0, float(ours), as_published)
    return PaperClaim(f"{claim} (1: yes)", source, *figures, unit="", why=why, decimals=0)


def _mean_gain(found: Figures, model: str, alignment: str) -> float:
    gains = [row["gain"][alignment] for row in found["two_minipods"] if row["model"] == model]
    return float(100 * sum(gains) / len(gains))


def _communication(found: Figures, ablation: Figures) -> Iterator[PaperClaim]:
    small = [row["communication_share"] for row in found["two_minipods"] if row["model"] == MOE]
    at_scale = {row["variation"]: 100 * row["communication_share"] for row in _at_scale(ablation, 9600)}
    source = "section 1, Fig. 1 (a)"
    claim = "share of a step that is communication: MoE on 96 GPUs"
    why = f"{100 * min(small):.0f} to {100 * max(small):.0f} % by layers; sizes are not in the text"
    yield quantity(claim, source, 30.0, 100 * sum(small) / len(small), why=why, paper_most=50.0)
    claim = "the same: MoE on 9,600 GPUs"
    why = f"with 64 layers of hidden size 8,192 instead of 48 of 2,048 {at_scale['larger models']:.0f} %"
    pair = at_scale[SHIPPED], at_scale[TEXT_AND_CORE]
    yield quantity(claim, source, 30.0, *pair, why=why, paper_most=50.0)
    claim, source = "pairs of GPUs that exchange nothing", "section 1, Fig. 1 (b)"
    why = "counted on 9,600 GPUs: tensor groups all to all, rings for data, neighbours for stages"
    silent = 100 * SCALES[-1].job.silent_share
    yield quantity(claim, source, 99.0, silent, why=why, comparison="at least")


def _at_even_core(ablation: Figures, model: str, rule: str = EVEN_CORE) -> Figures:
    """Return the gains of the alignments of 96 GPUs by the text's core, percent, a mean over layers."""
    rows = (row for row in ablation["two_minipods"] if (row["rule"], row["model"]) == (rule, model))
    return {key: 100 * gain for key, gain in next(rows).items() if key.endswith("_aligned")}


def _alignment(found: Figures, ablation: Figures) -> Iterator[PaperClaim]:
    for model, alignment, paper in ALIGNED:
        half = 100 * found["core_factors"]["1.5"][model][alignment]
        routes = _at_even_core(ablation, model, "static routes, 1:1")[alignment]
        why = f"fair: core 2:1; core 1.5:1 {half:+.1f} % (48 layers); static routes {routes:+.1f} %"
        claim = f"96 GPUs, {model}: {alignment[:2].upper()}-aligned over packed, throughput"
        pair = _mean_gain(found, model, alignment), _at_even_core(ablation, model)[alignment]
        neutral = 0.0 if paper else None
        yield PaperClaim(claim, "section 2, Fig. 4", paper, *pair, neutral=neutral, why=why)


def _statements(found: Figures, ablation: Figures) -> Iterator[PaperClaim]:
    (moe_dp, moe_pp), (large_dp, large_pp) = (
        [_mean_gain(found, model, alignment) for alignment in ("dp_aligned", "pp_aligned")]
        for model in (MOE, LARGE_MOE)
    )
    even = _at_even_core(ablation, MOE)
    layers = [row["gain"]["pp_aligned"] for row in found["two_minipods"] if row["model"] == DENSE]
    even_rows = two_minipods([DENSE_MODEL], LAYERS, fabric_tiers(1.0))
    even_layers = [row["gain"]["pp_aligned"] for row in even_rows]
    best = {row["model"]: max(row["gain"], key=row["gain"].__getitem__) for row in found["two_minipods"]}
    factors = found["core_factors"]["1.0"]
    even_best = {max(gains, key=gains.__getitem__) for gains in factors.values()}
    inside = max(found["inside_a_minipod"].values())
    claim = "96 GPUs, MoE: DP alignment gains too, PP alignment more"
    why = (
        f"8 experts: DP-aligned {moe_dp:+.1f} %, at 1:1 {even['dp_aligned']:+.2f} %; "
        f"48 experts: {large_dp:+.1f} %, PP-aligned {large_pp:+.1f} %"
    )
    published = 0 < even["dp_aligned"] < even["pp_aligned"]
    yield _yes(claim, "section 2, Fig. 4", 0 < moe_dp < moe_pp, why, published)
    why = (
        f"{100 * layers[0]:+.2f} to {100 * layers[-1]:+.2f} % from 16 to 64 layers, "
        f"at 1:1 {100 * even_layers[0]:+.3f} to {100 * even_layers[-1]:+.3f} %"
    )
    grow, even_grow = (found == sorted(set(found)) for found in (layers, even_layers))
    yield _yes("the gain grows with the layers, dense", "section 2, Fig. 5", grow, why, even_grow)
    claim = "inside one minipod placement changes at most 0.3 %"
    why = f"{100 * inside:.2f} %, the most of three models over two leaves"
    yield _yes(claim, "section 2", inside <= 0.003, why)
    why = "at 64 layers " + "; ".join(
        f"{alignment[:2].upper()} for {model}" for model, alignment in best.items()
    )
    claim = "the best alignment depends on the model"
    yield _yes(claim, "section 2", len(set(best.values())) > 1, why, len(even_best) > 1)
    claim, why = "the best alignment depends on the type of GPU", "the other cluster is not described"
    yield PaperClaim(claim, "section 2", None, why=why)


def _spread(figures: Figures) -> Iterator[PaperClaim]:
    found, source = figures["summary"], "section 3, Fig. 6, Table 1"
    by_ratio = partial(PaperClaim, source=source, unit="x", neutral=1.0, decimals=2)
    for claim, paper, key in (
        ("best baseline's score over Arnold's, most", 1.67, "greatest_ratio"),
        ("the same, on average", 1.2, "mean_ratio"),
    ):
        each = ", ".join(f"({name}) {row[key]:.2f}x" for name, row in found["by_setting"].items())
        whole = found["whole_groups"][key]
        why = f"{each}; with placers of whole groups among the baselines {whole:.2f}x"
        yield by_ratio(claim, paper=paper, fair=found[key], why=why)
    ties = min(found["ties"]["i"][name] for name in TIED)
    rows = {(row["name"], row["least"], row["most"]): row for row in figures["fullness"]}
    full = next(row for (name, _, most), row in rows.items() if (name, most) == ("i", 0.6))
    empty = next(row for (name, low, _), row in rows.items() if (name, low) == ("i", 1.0))
    why = (
        f"best fit, GPU packing and topology-aware each tie in {100 * ties:.0f} % of states or more; "
        f"{empty['greatest_ratio']:.2f}x with every node free, {full['mean_ratio']:.2f}x with at most 60 % "
        "free; the paper's states are not in the text"
    )
    claim = "(i): best baseline's score over Arnold's, on average"
    ours = found["by_setting"]["i"]["mean_ratio"]
    yield quantity(claim, source, 1.0, ours, unit="x", decimals=2, why=why)
    ratios = found["ratio_to_best_baseline"]
    least = min(min(row) for row in ratios.values())
    claim = "Arnold is never worse than any of the four baselines"
    why = f"least ratio {least:.2f}x over settings and alphas"
    yield _yes(claim, source, least >= 1 - 1e-9, why)
    at_alphas = (zip(ratios[name], figures["alphas"], strict=True) for name in ("ii", "iii"))
    least = min(ratio for pairs in at_alphas for ratio, alpha in pairs if 0 < alpha < 1)
    claim = "(ii) and (iii): Arnold is better than each baseline"
    yield _yes(claim, source, least > 1, f"least ratio at alphas above 0 and below 1 {least:.2f}x")


def _at_scale(ablation: Figures, gpus: int) -> Sequence[Figures]:
    return [row for row in ablation["scale"] if row["gpus"] == gpus and row["experts"]]


def _production(ablation: Figures) -> Iterator[PaperClaim]:
    source = "section 3, Fig. 7"
    for gpus, (gain, *spreads) in PRODUCTION.items():
        mine = {row["variation"]: row for row in _at_scale(ablation, gpus)}
        shipped, text, routes = mine[SHIPPED], mine[TEXT_AND_CORE], mine[TEXT_AND_ROUTES]
        at_spreads = {
            row["rule"]: f"{100 * row['gain']:+.1f} %"
            for row in ablation["paper_spreads"]
            if row["gpus"] == gpus and row["model"] == MOE
        }
        why = (
            f"the same with core 2:1 {100 * mine[TEXT]['gain'][0]:+.1f} %, with static routes "
            f"{100 * routes['gain'][0]:+.1f} %; at the paper's spreads "
        ) + ", ".join(f"{name} {at_spreads[name]}" for name in SHOWN_RULES)
        pair, where = (100 * shipped["gain"][0], 100 * text["gain"][0]), f"{gpus:,} GPUs, MoE: "
        yield PaperClaim(f"{where}throughput over the baseline", source, gain, *pair, why=why)
        for alignment, published in zip(("dp", "pp"), spreads, strict=True):
            key = f"{alignment}_spread_ratio"
            why = (
                f"{text['unit'].upper()} groups as units at alpha {text['alpha']:g} have the least predicted "
                f"time, whatever the other spread; core 2:1 {mine[TEXT][key]:.2f}x, "
                f"static routes {routes[key]:.2f}x"
            )
            claim, pair = f"{where}{alignment.upper()} spread lower by", (shipped[key], text[key])
            yield PaperClaim(claim, source, published, *pair, unit="x", neutral=1.0, why=why, decimals=2)


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
    rows = claims(figures)
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
    small = {row["variation"]: row for row in _at_scale(ablation, 208)}
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
