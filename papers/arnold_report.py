"""The placement benchmark's report as Markdown, beside the claims of Arnold's paper, and its plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clustergym.common.figures import draw_figure
from clustergym.common.tables import percent, table
from clustergym.oracle.roofline.devices import PORT_SHARE
from clustergym.results.report.colours import choose_style

from .arnold_benchmark import BASELINES, WHOLE_GROUPS, estimates
from .page import passage

MODELS = ("dense", "MoE")
"""The two models of the ablation, in the words of its tables."""


def report(figures: dict[str, Any]) -> str:
    """Return the Markdown report on the results of `placement_figures`."""
    found = figures["characterisation"]
    parts = [_text("head", **figures), _summary(figures), _fullness(figures["fullness"])]
    parts += [
        _characterisation(found),
        _scale(found["scale"]),
        _ablation(figures["ablation"]),
    ]
    return "\n\n".join(parts) + "\n"


def _text(name: str, /, **values: Any) -> str:
    return passage("arnold", f"report {name}", **values)


def _name(name: str) -> str:
    plain = name.replace("_", " ")
    return f"{plain}, whole groups" if name in WHOLE_GROUPS else plain


def _two_digits(values: Iterable[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def _summary(figures: dict[str, Any]) -> str:
    found, proofs = figures["summary"], [setting["arnold"] for setting in figures["settings"]]
    ratios = [[f"({name})", *_two_digits(row)] for name, row in found["ratio_to_best_baseline"].items()]
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
    both = [[name, *_two_digits((row["greatest_ratio"], row["mean_ratio"]))] for name, row in shown]
    return _text(
        "ratios",
        ratios=table(["setting", *(f"alpha {alpha}" for alpha in figures["alphas"])], ratios),
        **{"greatest": found["greatest_ratio"], "mean": found["mean_ratio"]},
        shown=table(["alphas above 0 and below 1", "most", "mean"], both),
        single=", ".join(f"{r:.2f} in ({name})" for name, r in found["greatest_ratio_in_a_state"].items()),
        **{key: sum(proof[key] for proof in proofs) for key in ("solved", "proven")},
        gap=100 * max(proof["largest_gap"] for proof in proofs),
        ties=table(["setting", *map(_name, names)], ties),
    )


def _fullness(rows: list[dict[str, Any]]) -> str:
    ranges = list(dict.fromkeys((row["least"], row["most"]) for row in rows))
    by_name: dict[str, list[str]] = {}
    for row in rows:
        greatest, mean = row["greatest_ratio"], row["mean_ratio"]
        shown = "-" if greatest is None else f"{greatest:.2f} ({mean:.2f})"
        by_name.setdefault(row["name"], [f"({row['name']})"]).append(shown)
    heads = [f"{100 * least:g} to {100 * most:g} %" for least, most in ranges]
    return _text("fullness", table=table(["setting", *heads], by_name.values()))


def _characterisation(found: dict[str, Any]) -> str:
    rows, means = found["two_minipods"], []
    models = list(dict.fromkeys(row["model"] for row in rows))
    for model in models:
        mine = [row["gain"] for row in rows if row["model"] == model]
        pp, dp = (percent(sum(gain[k] for gain in mine) / len(mine)) for k in ("pp_aligned", "dp_aligned"))
        means.append(f"{model} {pp} PP-aligned, {dp} DP-aligned")
    return _text(
        "worth",
        **{"core": found["core_oversubscription"], "share": 100 * PORT_SHARE},
        **{"gains": _gains(rows), "means": "; ".join(means)},
    )


def _gains(rows: list[dict[str, Any]]) -> str:
    shown = []
    for row in rows:
        packed, share = f"{row['step_s']['packed']:.3f}", f"{100 * row['communication_share']:.0f} %"
        gains = (percent(row["gain"][to]) for to in ("pp_aligned", "dp_aligned"))
        shown.append([row["model"], str(row["layers"]), packed, share, *gains])
    return table(["model", "layers", "packed s", "communication", "PP-aligned", "DP-aligned"], shown)


def _gain(row: Mapping[str, Any]) -> str:
    """Return a gain with half of its 95 % interval."""
    mean, low, high = row["gain"]
    return f"{percent(mean)} ± {50 * (high - low):.2f}"


def _scale(rows: list[dict[str, Any]]) -> str:
    once = [row for row in rows if row["model"] == rows[0]["model"]]
    job, chosen = ["GPUs", "minipods x nodes", "model"], []
    for row in rows:
        cells = [f"{row['gpus']:,}", f"{row['minipods']} x {row['minipod_nodes']}", row["model"]]
        ratios = _two_digits((row["dp_spread_ratio"], row["pp_spread_ratio"]))
        chosen.append([*cells, row["unit"].upper(), f"{row['alpha']:g}", _gain(row), *ratios])
    return _text(
        "scale",
        chosen=table([*job, "unit", "alpha", "gain", "DP spread ratio", "PP spread ratio"], chosen),
        **{key: sum(row[key] for row in once) for key in ("proven", "solved")},
    )


def _ablation(found: dict[str, Any]) -> str:
    """Return the section on the results of `arnold_ablation.ablate`."""
    return _text("ablation", coefficient=found["coefficient"], rules=_rules(found))


def _model(row: dict[str, Any]) -> str:
    return MODELS[row["experts"] > 0] if "experts" in row else MODELS[row["model"] != "dense"]


def _rules(found: dict[str, Any]) -> str:
    rows = [["the paper", "+2.3 %", "0 %", "+1.8 %", "above 0", "-", "+5.7 %", "-", "+10.6 %"]]
    columns = [(model, to) for model in MODELS for to in ("PP-aligned", "DP-aligned")]
    at_scale = [(gpus, model) for gpus in (208, 9600) for model in MODELS]
    for name in dict.fromkeys(row["rule"] for row in found["two_minipods"]):
        two = {_model(row): row for row in found["two_minipods"] if row["rule"] == name}
        spreads = {(r["gpus"], _model(r)): r["gain"] for r in found["paper_spreads"] if r["rule"] == name}
        gains = [two[model][to.lower().replace("-", "_")] for model, to in columns]
        rows.append([name, *map(percent, (*gains, *(spreads[key] for key in at_scale)))])
    heads = [f"96 GPUs, {model}: {to}" for model, to in columns]
    return table(["rule", *heads, *(f"{gpus:,} GPUs, {model}" for gpus, model in at_scale)], rows)


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
