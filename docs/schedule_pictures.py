"""The schedule of every policy on ten jobs: `python docs/schedule_pictures.py` writes docs/policies/*.svg."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import yaml
from held_gpus import bars_of

import clustergym
from clustergym.results.measured_run import Result
from clustergym.results.report.colours import GREYLESS
from clustergym.scenario.registry import make_policy
from clustergym.scenario.scenario import Scenario

DOCS = Path(__file__).parent
PRESETS = sorted((DOCS.parent / "conf" / "policy").glob("*.yaml"))
OVERRIDES = ("cluster=arena-16", "trace=file", f"trace.path={DOCS / 'ten-jobs.csv'}")
WIDTH, LEFT, RIGHT, TOP, ROW, GAP, QUEUE = 720, 44, 12, 22, 11, 6, 40
HOURS = 3.5
"""Of the picture's axis, the same for all."""
INK, FAINT, EMPTY, PROFILE = "#24292f", "#57606a", "#f0f2f4", "#9aa3ad"
MOST_WAITING = 10


@cache
def scenario(queues: str = "null") -> Scenario:
    """Return ten jobs on 16 GPUs of two types, with a file of queues or without."""
    return clustergym.load_scenario("testbed", [*OVERRIDES, f"scenario.queues={queues}"])


def run(preset: Path) -> Result:
    """Run a policy on it; one that divides GPUs among queues has a single one."""
    policy = make_policy(yaml.safe_load(preset.read_text(encoding="utf-8")))
    if policy.name.startswith("renting"):
        # They rent nodes of one type: on eight A40 of one's own, and eight that may be rented.
        keys = [*OVERRIDES[1:], "cluster=ares-16", "trace.rule=ares", "trace.any_type=true", "capacity=cloud"]
        return clustergym.simulate(clustergym.load_scenario("ares", keys), policy)
    queues = str(DOCS / "one-queue.yaml") if policy.needs_queues else "null"
    return clustergym.simulate(scenario(queues), policy)


def picture(name: str, result: Result) -> str:
    """Return the schedule as SVG: a row for each GPU, a colour for each job, and the queue below."""
    cluster, trace = scenario().cluster, scenario().trace
    types = [cluster.gpu_types[kind] for kind in cluster.node_type.repeat(cluster.node_gpus)]
    changes = [at for at in range(1, len(types)) if types[at] != types[at - 1]]
    tops = [TOP + at * ROW + GAP * sum(change <= at for change in changes) for at in range(len(types))]
    bottom = tops[-1] + ROW
    height = bottom + GAP + QUEUE + 20
    figures = (
        f"{name}: mean JCT {result.metrics['jct_mean'] / 3600:.2f} h, "
        f"{result.metrics['restarts_mean']:.1f} restarts a job"
    )
    if result.metrics["jobs_dropped"]:
        figures += f", {result.metrics['jobs_dropped']} dropped"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f"<title>{figures}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#fff"/>',
        f'<text x="{LEFT}" y="15" font-size="13" fill="{INK}">{figures}</text>',
    ]
    parts += [
        f'<path d="M{LEFT},{top}h{WIDTH - LEFT - RIGHT}v{ROW - 1}H{LEFT}z" fill="{EMPTY}"/>' for top in tops
    ]
    for at in [0, *changes]:
        parts.append(
            f'<text x="{LEFT - 6}" y="{tops[at] + 10}" text-anchor="end" fill="{FAINT}">{types[at]}</text>'
        )
    parts += _bars(result, tops, trace.job_id)
    parts += _queue(result, bottom + GAP + QUEUE)
    for hour in range(int(HOURS) + 1):
        label = "0" if not hour else f"{hour} h"
        parts.append(
            f'<text x="{_x(3600 * hour)}" y="{height - 5}" text-anchor="middle" fill="{FAINT}">{label}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(time_s: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * time_s / (3600 * HOURS), 1)


def _bars(result: Result, tops: list[int], names: tuple[str, ...]) -> list[str]:
    """Return the GPUs of each job: pale while it is restored, grey while it is profiled, its name on it."""
    parts = []
    for bar in bars_of(result.run.simulation):
        rows = np.array(sorted(bar.gpus))
        blocks = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        colour = PROFILE if bar.profiles else GREYLESS[bar.job]
        start, ready, stop = (_x(time_s) for time_s in (bar.start_s, bar.ready_s, bar.stop_s))
        for block in blocks:
            top, high = tops[block[0]], tops[block[-1]] - tops[block[0]] + ROW - 1
            parts += [
                _box(start, ready, top, high, f'{colour}" fill-opacity=".45'),
                _box(ready, stop, top, high, colour),
            ]
        if not bar.profiles and stop - ready > 10:
            top, high = tops[blocks[0][0]], tops[blocks[0][-1]] - tops[blocks[0][0]] + ROW - 1
            middle, base = (ready + stop) / 2, top + high / 2 + 4
            style = 'text-anchor="middle" fill="#fff" font-weight="600"'
            parts.append(f'<text x="{middle:.1f}" y="{base:g}" {style}>{names[bar.job]}</text>')
    return [part for part in parts if part]


def _box(start: float, stop: float, top: int, high: int, fill: str) -> str:
    if stop <= start:
        return ""
    return f'<rect x="{start}" y="{top}" width="{stop - start:.1f}" height="{high}" fill="{fill}"/>'


def _queue(result: Result, bottom: int) -> list[str]:
    """Return the number of waiting jobs over time."""
    line, unit = result.timeline, QUEUE / MOST_WAITING
    path = f"M{LEFT},{bottom}"
    for time_s, waiting in zip(line.time_s.tolist(), line.queued_jobs.tolist(), strict=True):
        path += f"H{_x(time_s)}V{bottom - unit * waiting:g}"
    return [
        f'<path d="{path}V{bottom}" fill="none" stroke="{INK}"/>',
        f'<path d="M{LEFT},{bottom}H{WIDTH - RIGHT}" stroke="{FAINT}"/>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end" fill="{FAINT}">queue</text>',
    ]


def main() -> None:
    """Write the picture of every policy."""
    (DOCS / "policies").mkdir(exist_ok=True)
    for preset in PRESETS:
        path = DOCS / "policies" / f"{preset.stem}.svg"
        path.write_text(picture(preset.stem, run(preset)), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
