"""The ablation of placement at scale as Markdown, beside Arnold's Figs 4 and 7."""

from __future__ import annotations

from typing import Any

from clustergym.common.tables import percent, table

HEAD = """## What decides the gain at scale

One assumption changed at a time, unit and alpha of Arnold chosen anew for each. `shipped` is the model above:
one factor for every group that crosses the core, `packed` as baseline, minipods of 16 and 100 nodes. The
rules for the core (`clustergym/envs/placement/core.py`):

- slowest tier: one factor, however many minipods a group touches.
- rising: 1 + {coefficient:.2f} f(k), with k the minipods that the most spread group of a kind touches and f
  as named. {coefficient:.2f} is what gives the dense model of Fig. 4, where k is 2, its +2.3 %; f is free.
- shared uplinks: a flow per port, max-min fair on the uplinks of each minipod, which are perfectly balanced.
- static routes: each flow keeps to an uplink and a downlink of a non-blocking core, drawn at random, and all
  wait for the fullest link; mean of 20 draws. That routes are drawn so is an assumption.

Nothing is tied to Fig. 7.
"""

MODELS = ("dense", "MoE")


def ablation(found: dict[str, Any]) -> str:
    """Return the report's section on the figures of `ablation.ablate`."""
    return "\n".join((HEAD.format(**found), _rules(found), _scale(found["scale"])))


def _model(row: dict[str, Any]) -> str:
    return MODELS[row["experts"] > 0] if "experts" in row else MODELS[row["model"] != "dense"]


def _rules(found: dict[str, Any]) -> str:
    rows = [["the paper", "+2.3 %", "0 %", "+1.8 %", "above 0", "-", "+5.7 %", "-", "+10.6 %"]]
    for name in dict.fromkeys(row["rule"] for row in found["two_minipods"]):
        two = {_model(row): row for row in found["two_minipods"] if row["rule"] == name}
        spreads = {(r["gpus"], _model(r)): r["gain"] for r in found["paper_spreads"] if r["rule"] == name}
        rows.append(
            [name]
            + [
                percent(two[model][alignment])
                for model in MODELS
                for alignment in ("pp_aligned", "dp_aligned")
            ]
            + [percent(spreads[gpus, model]) for gpus in (208, 9600) for model in MODELS]
        )
    heads = [
        f"96 GPUs, {model}: {alignment}" for model in MODELS for alignment in ("PP-aligned", "DP-aligned")
    ]
    heads += [f"{gpus} GPUs, {model}" for gpus in ("208", "9,600") for model in MODELS]
    return (
        "### Each rule where the paper gives the spreads\n\n"
        "96 GPUs: two minipods of 93 nodes, mean over layers (Fig. 4). 208 GPUs: from a DP spread of 3 and a "
        "PP spread of 2 to 1 and 1. 9,600 GPUs: from 21 and 4 to 14 and 3; the paper gives the ratios "
        "alone. 21 and 14 are the only minipods exactly 1.5 times apart of which 14 hold 1,200 nodes, of 22 "
        "of 93; 4 and 3 are one choice of several.\n\n" + table(["rule", *heads], rows) + "\n"
    )


def _scale(rows: list[dict[str, Any]]) -> str:
    shown = [["the paper", "-", "+5.7 %", "3 and 2", "-", "+10.6 %", "1.5 and 1.3", "30-50 %"]]
    for name in dict.fromkeys(row["variation"] for row in rows):
        mine = {(row["gpus"], _model(row)): row for row in rows if row["variation"] == name}
        line = [name]
        for gpus in (208, 9600):
            row = mine[gpus, "MoE"]
            line += [
                percent(mine[gpus, "dense"]["gain"][0]),
                f"{percent(row['gain'][0])} ± {50 * (row['gain'][2] - row['gain'][1]):.2f}",
                f"{row['dp_spread_ratio']:.2f} and {row['pp_spread_ratio']:.2f}",
            ]
        shares = (mine[9600, model]["communication_share"] for model in MODELS)
        shown.append([*line, " and ".join(f"{100 * share:.0f} %" for share in shares)])
    heads = ["dense", "MoE", "DP and PP spread lower by"]
    heads = [f"{gpus} GPUs: {head}" for gpus in ("208", "9,600") for head in heads]
    return (
        "### Arnold against a baseline in random states\n\nSpreads and interval are of the MoE row; "
        "communication is the baseline's share of a step of 9,600 GPUs, dense and MoE. Table 1's minipods: "
        "22 of 93 nodes for both jobs. Best and random fit place node by node and give ranks in that "
        "order. Larger models: dense of 175 billion parameters, MoE of 327 billion.\n\n"
        + table(["changed", *heads, "communication"], shown)
        + "\n"
    )
