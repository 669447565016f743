"""The placement benchmark's report as Markdown, beside the claims of Arnold's paper.

The plot of the placement benchmark: score against alpha, a panel per setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clustergym.common.figures import draw_figure
from clustergym.common.tables import percent, table
from clustergym.oracle.roofline.devices import PORT_SHARE
from clustergym.results.report.colours import choose_style

from .arnold_ablation import ablation
from .arnold_benchmark import BASELINES, EITHER_UNIT, WHOLE_GROUPS, estimates

HEAD = """# Placement of LLM pre-training jobs

Written by `python -m clustergym.bench placement -o docs/placement.md`;
the same command writes the same bytes.

A minipod is a group of nodes below one spine switch; the core switches join the minipods. The
parallelism of a job is data-parallel (DP), tensor-parallel (TP) and pipeline-parallel (PP). The score of
a placement is alpha x DP spread + (1 - alpha) x PP spread; less is better. The DP spread is the largest
number of minipods over which any DP group is spread, and the PP spread is the same for PP groups; both
are counted on whole nodes. Arnold's integer programme places either PP groups or DP groups as units.
With PP groups as units, it counts all minipods of the job as the DP spread. A state of the cluster gives
the number of free nodes in each minipod. It is drawn uniformly from 0 to the size of the minipod,
independently of the others; a state without room for the job is drawn again. There are {states} states,
from seed {seed}, which are the same for every algorithm and alpha.

The baselines are those of the paper: best fit, random fit, GPU packing and topology-aware. They place
single nodes instead of whole communication groups, and do not use alpha. The tables also show three
placers of whole groups (best fit, random fit, round robin), which are ours and not the paper's.
"""

PAPER_RATIOS = "up to 1.67, and 1.2 on average"


def report(figures: dict[str, Any]) -> str:
    """Return the Markdown report on the results of `placement_figures`."""
    parts = [
        HEAD.format(**figures),
        _summary(figures),
        _fullness(figures["fullness"]),
        *(_setting(setting, figures["alphas"]) for setting in figures["settings"]),
        _cells(figures),
        _characterisation(figures["characterisation"]),
        ablation(figures["ablation"]),
    ]
    return "\n".join(parts)


def _name(name: str) -> str:
    plain = name.replace("_", " ")
    return f"{plain}, whole groups" if name in WHOLE_GROUPS else plain


def _summary(figures: dict[str, Any]) -> str:
    found, alphas = figures["summary"], figures["alphas"]
    rows = [
        [f"({name})", *(f"{ratio:.2f}" for ratio in ratios)]
        for name, ratios in found["ratio_to_best_baseline"].items()
    ]
    names = list(next(iter(found["ties"].values())))
    ties = [
        [f"({setting})", *(f"{100 * shares[name]:.0f} %" for name in names)]
        for setting, shares in found["ties"].items()
    ]
    shown = [
        *((f"({name})", found["by_setting"][name]) for name in found["by_setting"]),
        ("all", found),
        ("all, with alphas 0 and 1 if they were run", found["with_ends"]),
        ("all, with placers of whole groups among the baselines", found["whole_groups"]),
    ]
    proofs = [s["arnold"] for s in figures["settings"]]
    single = ", ".join(f"{r:.2f} in ({name})" for name, r in found["greatest_ratio_in_a_state"].items())
    proven, solved = sum(p["proven"] for p in proofs), sum(p["solved"] for p in proofs)
    gap = max(p["largest_gap"] for p in proofs)
    return (
        "## Score of the best baseline divided by Arnold's\n\n"
        + table(["setting", *(f"alpha {alpha}" for alpha in alphas)], rows)
        + "\n\nThe best baseline of a setting and alpha is the one with the least mean score. Over settings "
        "and over alphas above 0 and below 1, where both types of group count, our ratio is up to "
        f"{found['greatest_ratio']:.2f}, and {found['mean_ratio']:.2f} on average. In the paper it is "
        f"{PAPER_RATIOS}.\n\n"
        + table(
            ["alphas above 0 and below 1", "most", "mean"],
            [
                [name, f"{ratios['greatest_ratio']:.2f}", f"{ratios['mean_ratio']:.2f}"]
                for name, ratios in shown
            ],
        )
        + f"\n\nIn a single state, the ratio of the best baseline in that state is up to {single}.\n"
        f"\nOf {solved} answers of Arnold, {proven} are proven optimal; the largest gap to the proven bound "
        f"is {100 * gap:.1f} %.\n"
        "\nThe table has the share of states and alphas in which a baseline scores as well as Arnold. (In "
        "the paper, best fit, GPU packing and topology-aware equal Arnold in (i).)\n\n"
        + table(["setting", *map(_name, names)], ties)
        + "\n"
    )


def _fullness(rows: list[dict[str, Any]]) -> str:
    ranges = list(dict.fromkeys((row["least"], row["most"]) for row in rows))
    by_name: dict[str, list[str]] = {}
    for row in rows:
        greatest, mean = row["greatest_ratio"], row["mean_ratio"]
        shown = "-" if greatest is None else f"{greatest:.2f} ({mean:.2f})"
        by_name.setdefault(row["name"], []).append(shown)
    heads = [f"{100 * least:g} to {100 * most:g} %" for least, most in ranges]
    return (
        "## The ratio by how full the cluster is\n\nThe table has the greatest ratio of scores, with the "
        "mean ratio in parentheses, over alphas 0.1, 0.3 … 0.9 (0.3 and 0.5 with `--quick`). The free share "
        "of a minipod's nodes is drawn uniformly between the two limits of a column. Each column has its own "
        "states; the empty cluster (100 to 100 %) is a single state. The paper does not say how full its "
        "clusters are.\n\n"
        + table(["setting", *heads], [[f"({name})", *cells] for name, cells in by_name.items()])
        + "\n"
    )


def _setting(setting: dict[str, Any], alphas: Sequence[float]) -> str:
    job = setting["job"]
    title = (
        f"## Setting ({setting['name']}): {setting['minipods']} minipods, {setting['nodes']} nodes; "
        f"DP {job['data_parallel']}, TP {job['tensor_parallel']}, PP {job['pipeline_parallel']} "
        f"({job['nodes']} nodes)\n\nMean score ± half of its 95 % interval over states.\n\n"
    )
    return title + _score_table(setting["scores"], alphas)


def _score_table(scores: dict[str, Any], alphas: Sequence[float]) -> str:
    rows = [
        [_name(name), *(f"{e.mean:.2f} ± {(e.high - e.low) / 2:.2f}" for e in estimates(by_alpha))]
        for name, by_alpha in scores.items()
    ]
    return table(["algorithm", *(f"alpha {alpha}" for alpha in alphas)], rows) + "\n"


def _cells(figures: dict[str, Any]) -> str:
    text = (
        "## Spread of each group, cell by cell\n\n"
        "The tables have the same placements. Their DP spread counts the minipods of each DP group, which "
        "follow from the rank of each node, instead of the minipods of the whole job. The two counts agree "
        "if no PP group is split. Topology-aware bisection may split groups of both types, and Arnold may "
        "place DP groups as units; either can score better here than the optimum of Arnold's programme with "
        "PP groups as units, which does not count single DP groups. The last row has the better of Arnold's "
        "two choices of unit.\n\n"
    )
    for setting in figures["settings"]:
        rows = {
            ("arnold, either unit" if n == EITHER_UNIT else n): v for n, v in setting["cell_scores"].items()
        }
        text += f"Setting ({setting['name']})\n\n" + _score_table(rows, figures["alphas"]) + "\n"
    return text.rstrip("\n") + "\n"


CHARACTERISATION = """## What placement is worth

The step times are predicted, not measured. The model has nodes of 8 H800 GPUs, with a 400 Gbit/s port
for each GPU. Large messages reach {share:.0f} % of a port's rate, as in the oracles (`PORT_SHARE` of
`clustergym/oracle/roofline/devices.py`, measured between two H100 nodes). A message takes latency +
bytes / bandwidth of the slowest tier that it crosses. The core is oversubscribed {core:g} times, the
default of `Fabric`. A step has 32 micro-batches of one sequence of 2,048 tokens. Activations are
recomputed, and the schedule is interleaved 1F1B with two layers per virtual stage. The reduction of
gradients (fp32) overlaps computation, except for one virtual stage. Experts are sharded inside a node.
The placement `packed` fills one minipod after the other in order of ranks.
`clustergym/envs/placement/step_time.py` has the model.

Limits: the paper's text states no model size, batch, schedule, number of experts or reached bandwidth
for these runs. Here the bandwidth was measured on other nodes, and everything else is assumed. The
overlap and the 8 experts were chosen after tables like these had been seen, so agreement with the paper
is weak evidence. Layers, overlap, experts, the share of a port's rate, the core, and the sizes of
minipods and models are varied below. The paper does state the following. Switches of every layer have 32
ports both up and down (section 2), so the core factor of {core:g} is not an oversubscription, but stands
for a loss of unknown cause. Minipods have 88 to 93 nodes in settings (ii) and (iii) (Table 1). The job
of 9,600 GPUs is a mixture of experts and takes more than half of its cluster (section 3).

### 96 GPUs (DP 12, TP 4, PP 2) over two minipods with 8 and 6 free nodes

The table has the gain in throughput over `packed`. *PP-aligned* keeps each PP group inside one minipod
where it fits, and *DP-aligned* does the same for DP groups. In the paper, PP-aligned is best, with an
average of +2.3 % for the dense model and +1.8 % for the mixture of experts (MoE). DP-aligned gains
nothing for the dense model there, 30-50 % of a step is communication, and the gain grows with the number
of layers.

"""


def _characterisation(found: dict[str, Any]) -> str:
    rows = found["two_minipods"]
    text = CHARACTERISATION.format(core=found["core_oversubscription"], share=100 * PORT_SHARE) + _gains(rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    means = []
    for model in models:
        mine = [row["gain"] for row in rows if row["model"] == model]
        pp, dp = (percent(sum(gain[k] for gain in mine) / len(mine)) for k in ("pp_aligned", "dp_aligned"))
        means.append(f"{model} {pp} PP-aligned, {dp} DP-aligned")
    text += "\nOn average over layers: " + "; ".join(means) + ".\n"
    text += (
        "\nWithout overlap and with one virtual stage per stage, the order of the two alignments is opposite "
        "to that of the paper's Fig. 4:\n\n" + _gains(found["without_overlap"])
    )
    text += "\n### Gain at 48 layers by oversubscription of the core (PP-aligned / DP-aligned)\n\n"
    text += _by_parameter("core", found["core_factors"], models)
    text += "\n### Gain at 48 layers by the share of a port's rate that large messages reach\n\n"
    text += _by_parameter("share", found["network_shares"], models)
    inside = "; ".join(f"{100 * v:.3f} % ({name})" for name, v in found["inside_a_minipod"].items())
    text += (
        "\n### Inside one minipod\n\nThe slowest of the three placements over two leaf switches is slower "
        f"than the fastest by {inside}. In the paper it is at most 0.3 % slower.\n"
    )
    return text + _scale(found["scale"])


def _by_parameter(name: str, found: dict[str, Any], models: Sequence[str]) -> str:
    rows = [
        [value, *(f"{percent(g['pp_aligned'])} / {percent(g['dp_aligned'])}" for g in by_model.values())]
        for value, by_model in found.items()
    ]
    return table([name, *models], rows) + "\n"


def _gains(rows: list[dict[str, Any]]) -> str:
    shown = [
        [
            row["model"],
            str(row["layers"]),
            f"{row['step_s']['packed']:.3f}",
            f"{100 * row['communication_share']:.0f} %",
            percent(row["gain"]["pp_aligned"]),
            percent(row["gain"]["dp_aligned"]),
        ]
        for row in rows
    ]
    return table(["model", "layers", "packed s", "communication", "PP-aligned", "DP-aligned"], shown) + "\n"


def _scale(rows: list[dict[str, Any]]) -> str:
    once = [row for row in rows if row["model"] == rows[0]["model"]]
    proven, solved = (sum(row[key] for row in once) for key in ("proven", "solved"))
    cores = [f"core {factor}" for factor in rows[0]["gain_by_core"]]
    job = ("GPUs", "minipods x nodes", "model")
    jobs = [[f"{row['gpus']:,}", f"{row['minipods']} x {row['minipod_nodes']}", row["model"]] for row in rows]
    chosen = [
        [
            *cells,
            row["unit"].upper(),
            f"{row['alpha']:g}",
            f"{percent(row['gain'][0])} ± {50 * (row['gain'][2] - row['gain'][1]):.2f}",
            f"{row['dp_spread_ratio']:.2f}",
            f"{row['pp_spread_ratio']:.2f}",
        ]
        for cells, row in zip(jobs, rows, strict=True)
    ]
    by_core = [
        [*cells, *map(percent, (*row["gain_by_core"].values(), row["gain_unsplit"]))]
        for cells, row in zip(jobs, rows, strict=True)
    ]
    return (
        "\n### Larger jobs: Arnold's gain over `packed`, with the unit and alpha of least predicted step "
        "time\n\nThe job of 208 GPUs has DP 26, TP 4, PP 2, and that of 9,600 GPUs has DP 150, TP 8, PP 8. "
        "States are drawn as above. The paper reports, from production, +5.7 % at 208 GPUs (DP spread 3 "
        "times and PP spread 2 times lower) and +10.6 % above 9,600 GPUs (1.5 and 1.3 times lower).\n\n"
        + table([*job, "unit", "alpha", "gain", "DP spread ratio", "PP spread ratio"], chosen)
        + f"\n\nOf the {solved:,} placements among which these were chosen, {proven:,} are proven optimal.\n"
        "\nThe next table has this gain by oversubscription of the core; the unit and alpha are chosen again "
        "for each. The last column has the core of the first table, and assumes that every PP group has room "
        "inside one minipod:\n\n"
        + table([*job, *cores, "no PP group split"], by_core)
        + "\n\nIn the model a collective is as slow as the slowest tier that it crosses, however many "
        "minipods it spans: a spread of 2 costs as much as a spread of 6.\n"
    )


def draw(figures: dict[str, Any], path: Path, option: str) -> None:
    """Plot each setting's scores over alpha (the weight of DP spread) into an image file.

    Bars are 95 % intervals over cluster states. Errors name `option`, the command-line option of `path`.
    """

    def fill(figure: Any) -> None:
        for axes, setting in zip(figure.subplots(1, 3), figures["settings"], strict=True):
            _panel(axes, setting, figures["alphas"])
        figure.axes[0].set_ylabel("alpha x DP spread + (1 - alpha) x PP spread")
        figure.axes[0].legend(fontsize="small")

    draw_figure(path, (12, 4), fill, option, {"svg.fonttype": "path"})


def _panel(axes: Any, setting: dict[str, Any], alphas: list[float]) -> None:
    for name in ("arnold", *BASELINES):
        found = estimates(setting["scores"][name])
        style, label = choose_style(name), name.replace("_", " ")
        axes.plot(alphas, [e.mean for e in found], marker=".", label=label, **style.matplotlib)
        low, high = [e.low for e in found], [e.high for e in found]
        axes.fill_between(alphas, low, high, alpha=0.15, color=style.colour, linewidth=0)
    axes.set_title(f"({setting['name']}) {setting['minipods']} minipods, {setting['nodes']} nodes")
    axes.set_xlabel("alpha")
    axes.set_ylim(bottom=0)
