"""A comparison of policies as Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from clustergym.common.markdown import table
from clustergym.training.comparison import METRICS, RATIOS


def markdown(outcome: Mapping[str, Any], overrides: Iterable[str]) -> str:
    """Return the comparison as Markdown: a table per load, ratios of the first policy to each other one.

    `overrides` are the words of the command line that made it.
    """
    # The names of output files do not belong to what was measured.
    shown = [_quoted(word) for word in overrides if not word.startswith(("report=", "json=", "processes="))]
    lines = [f"`{' '.join(['clustergym evaluate', *shown])}`", ""]
    if any(len(policy["columns"]) > 1 for policy in outcome["policies"]):
        lines += ["In parentheses: the least and the greatest of single training seeds.", ""]
    for group in outcome["groups"]:
        low, high = group["load"]
        load = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        drawn = f"Load {load}, {outcome['windows']} windows of the {outcome['split']} split:"
        lines += [f"{outcome['windows']} traces:" if outcome["traces"] else drawn, ""]
        lines += [_table(outcome, group), ""]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """Quote a word for the shell; with double quotes if it has single ones and nothing to expand."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)


def _table(outcome: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    figures = np.array(group["figures"], dtype=np.float64)
    ratios = [f"{'' if at else 'first / this: '}{RATIOS[one]}" for at, one in enumerate(group["ratios"])]
    plain = {
        "restarts_mean": ("restarts a job", 2),
        "unfair_fraction": ("unfair", 3),
        "gpu_utilization": ("GPUs at work", 3),
        **{name: (RATIOS[name], 3) for name in group["ratios"] if name in METRICS[6:]},
    }
    titles = ["policy", "knows", "mean JCT, h (geometric mean)", *ratios, *(one for one, _ in plain.values())]
    rows = []
    pooled = [len(policy["columns"]) > 1 for policy in outcome["policies"]]
    for at, policy in enumerate(outcome["policies"]):
        own = figures[:, policy["columns"]]
        spread = at > 0 and (pooled[0] or pooled[at])
        cells = [_ratio(group["ratios"][metric][at][0], spread) for metric in group["ratios"]]
        means = dict(zip(METRICS, own.mean(axis=(0, 1)).tolist(), strict=True))
        rest = [
            "" if np.isnan(means[one]) else f"{means[one]:.{places}f}" for one, (_, places) in plain.items()
        ]
        named = [policy["label"], policy["knows"].replace("_", " ")]
        rows.append([*named, _hours(own[:, :, 0]), *cells, *rest])
    return table(titles, rows, words=(0, 1))


def _hours(mean_s: Any) -> str:
    """Return the geometric mean over windows and seeds, and the least and greatest of several seeds."""
    seeds_h = np.exp(np.log(np.maximum(mean_s, 1e-9)).mean(axis=0)) / 3600.0
    pooled = f"{np.exp(np.log(seeds_h).mean()):.3f}"
    return pooled if len(seeds_h) == 1 else f"{pooled} ({seeds_h.min():.3f} to {seeds_h.max():.3f})"


def _ratio(five: list[float | None], spread: bool) -> str:
    if None in five:
        return ""
    value, low, high, least, greatest = five
    seeds = f" ({least:.3f} to {greatest:.3f})" if spread else ""
    return f"{value:.3f} [{low:.3f}, {high:.3f}]{seeds}"
