"""A cluster under two policies, side by side, as an animated GIF: `python docs/two_policies.py`.

What is drawn is a run of `clustergym.simulate`; the picture's comment has the digests of both.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gifs import gif_of
from held_gpus import Bar, bars_of

import clustergym
from clustergym.common.arrays import Ints
from clustergym.envs.cluster_picture import (
    FREE,
    PROFILING,
    draw_switches,
    fill_squares,
    make_layout,
    number_squares,
)
from clustergym.envs.rendering import FAINT, INK, LINE, Picture, Pixels, Size
from clustergym.results.measured_run import Result

DOCS = Path(__file__).parent
HALF, HEIGHT, MARGIN, TOP, CURVE, LINE_HEIGHT = 480, 448, 12, 62, 70, 22
"""Pixels: of a half's width, of the picture, at edges, above the cluster, of the curve, of a line of text."""
LEGEND = (
    "A square is a GPU, a number and colour a job.",
    "White: idle. Grey without a number: profiles a job.",
)
"""Below the left half, and below the right one."""
STEP_S, FRAME_MS, LAST_MS = 900, 220, 4000


class Half:
    """One policy's half of the picture."""

    def __init__(self, policy: str, result: Result, legend: str) -> None:
        self.policy, self.result = policy, result
        self.cluster = result.run.simulation.scenario.cluster
        self.bars: list[Bar] = bars_of(result.run.simulation)
        self.layout = make_layout(
            self.cluster, Size(HALF - 2 * MARGIN, HEIGHT - TOP - CURVE - LINE_HEIGHT - 3 * MARGIN)
        )
        picture = Picture((HEIGHT, HALF))
        draw_switches(picture, self.layout, MARGIN, TOP)
        picture.text(MARGIN, HEIGHT - LINE_HEIGHT, legend, 14, FAINT)
        self.background = picture.pixels()

    def owners(self, time_s: float) -> Ints:
        """Return the holder of each GPU at a time."""
        owners = np.full(int(self.cluster.node_gpus.sum()), FREE, dtype=np.int64)
        for bar in self.bars:
            if bar.start_s <= time_s < bar.stop_s:
                owners[list(bar.gpus)] = PROFILING if bar.profiles else bar.job
        return owners

    def frame(self, time_s: float, end_s: float, most: int) -> Pixels:
        """Return the half at a time; `most`: of waiting jobs, on the curve's axis."""
        pixels, owners = self.background.copy(), self.owners(time_s)
        fill_squares(pixels, self.layout, owners, MARGIN, TOP)
        picture = Picture(pixels)
        number_squares(picture, self.layout, owners, MARGIN, TOP)
        jobs, line = self.result.jobs, self.result.timeline
        done = int((jobs.end_s <= time_s).sum())
        picture.text(MARGIN, 8, self.policy, 20)
        mean = f"mean JCT {self.result.metrics['jct_mean'] / 3600:.2f} h"
        picture.text(
            HALF - MARGIN, 12, mean if done == len(jobs.end_s) else f"{time_s / 3600:.1f} h", 16, INK, "ra"
        )
        used = int((owners != FREE).sum())
        waiting = int(line.queued_jobs[max(np.searchsorted(line.time_s, time_s, side="right") - 1, 0)])
        said = f"{used} of {len(owners)} GPUs in use, {waiting} jobs wait, {done} of {len(jobs.end_s)} done"
        picture.text(MARGIN, 37, said, 14, FAINT)
        self._curve(picture, time_s, end_s, most)
        return picture.pixels()

    def _curve(self, picture: Picture, time_s: float, end_s: float, most: int) -> None:
        """Draw how many jobs waited until now."""
        line, width, bottom = self.result.timeline, HALF - 2 * MARGIN, HEIGHT - MARGIN - LINE_HEIGHT
        picture.box(MARGIN, bottom, width, 1, LINE)
        before = 0
        for x in range(round(width * min(time_s / end_s, 1))):
            at = max(np.searchsorted(line.time_s, end_s * x / width, side="right") - 1, 0)
            high = round(CURVE * int(line.queued_jobs[at]) / most)
            picture.box(MARGIN + x, bottom - max(high, before), 1, abs(high - before) + 2, INK)
            before = high
        said = f"waiting jobs (up to {most}) over {end_s / 3600:.0f} h"
        picture.text(MARGIN, bottom - CURVE - LINE_HEIGHT, said, 14, FAINT)


def frames(halves: list[Half], end_s: float) -> list[Pixels]:
    """Return the pictures, one for every few minutes."""
    most = int(max(half.result.timeline.queued_jobs.max() for half in halves))
    times = np.arange(0.0, end_s + STEP_S, STEP_S)
    return [np.concatenate([half.frame(float(at), end_s, most) for half in halves], axis=1) for at in times]


def comment(results: dict[str, Result]) -> str:
    """Return what the GIF says of the runs in it."""
    return " ".join(f"{policy}={result.digest}" for policy, result in results.items())


def main(argv: list[str] | None = None) -> None:
    """Run both policies and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="testbed")
    parser.add_argument("--policies", nargs=2, default=("fcfs", "arena"))
    parser.add_argument("--out", type=Path, default=DOCS / "two-policies.gif")
    given = parser.parse_args(argv)
    scenario = clustergym.load_scenario(given.scenario)
    results = {policy: clustergym.simulate(scenario, policy) for policy in given.policies}
    end_s = max(float(result.jobs.end_s.max()) for result in results.values())
    made = frames([Half(*one, legend) for one, legend in zip(results.items(), LEGEND, strict=True)], end_s)
    duration_ms = [FRAME_MS] * (len(made) - 1) + [LAST_MS]
    shown = gif_of(made, len(made) // 3, duration=duration_ms, comment=comment(results), optimize=True)
    given.out.write_bytes(shown)
    print(f"wrote {given.out}: {len(made)} frames, {len(shown) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
