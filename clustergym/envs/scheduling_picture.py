"""Shows a cluster and its queue as text and as pixels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Ints
from clustergym.envs.cluster_picture import (
    DOWN,
    FREE,
    PROFILING,
    ClusterLayout,
    draw_switches,
    fill_squares,
    make_layout,
    number_squares,
)
from clustergym.envs.rendering import (
    FAINT,
    GAP,
    HEIGHT,
    INK,
    LIGHT,
    WHITE,
    WIDTH,
    Picture,
    Pixels,
    Size,
    choose_colour,
    choose_ink,
    clock,
    measure_width,
    table,
)
from clustergym.scenario.clock import seconds
from clustergym.sim.engine import Simulation
from clustergym.sim.state import Phase

LISTED = 20
"""Jobs that the text lists."""

MARGIN, TOP, LIST, ROW = 12, 64, 264, 17
"""Pixels: at the edges, above the cluster, of the list of jobs beside it, of a line of that."""


def as_text(simulation: Simulation) -> str:
    """Return a cluster's state as text: the GPUs in use of each type, and the jobs that run or wait."""
    cluster, waiting, running = simulation.scenario.cluster, _waiting(simulation), _running(simulation)
    present = np.sort(np.concatenate([waiting, running]))
    lines = [
        f"{simulation.now_s / 3600:.2f} h: {len(running)} jobs run, {len(waiting)} wait, "
        f"{simulation.jobs_left} of {len(simulation.scenario.trace)} have left"
    ]
    types = [
        (name, int(capacity), int(free))
        for name, capacity, free in zip(
            cluster.gpu_types, cluster.capacity, simulation.allocations.free, strict=True
        )
    ]
    lines.append(table(("type", "GPUs", "free"), types))
    lines.append(table(("job", "GPUs", "type", "done"), [_job(simulation, row) for row in present[:LISTED]]))
    if len(present) > LISTED:
        lines.append(f"… and {len(present) - LISTED} more")
    return "\n".join(lines)


def _job(simulation: Simulation, row: int) -> tuple[str, int, str, str]:
    jobs = simulation.jobs
    gpu_type = int(jobs.gpu_type[row])
    name = simulation.scenario.cluster.gpu_types[gpu_type] if gpu_type >= 0 else "-"
    done = _compute_progress(simulation, row)
    return simulation.scenario.trace.job_id[row], int(jobs.gpus[row]), name, f"{done:.0%}"


def _compute_progress(simulation: Simulation, row: int) -> float:
    left = simulation.jobs.compute_remaining(row, simulation.clock.now)
    return 1.0 - float(left / simulation.jobs.iterations[row])


def _waiting(simulation: Simulation) -> Ints:
    phase = simulation.jobs.phase
    return np.flatnonzero((phase == Phase.QUEUED) | (phase == Phase.PROFILING))


def _running(simulation: Simulation) -> Ints:
    return np.flatnonzero(simulation.jobs.phase == Phase.RUNNING)


def as_pixels(simulation: Simulation) -> Pixels:
    """Return a picture of a cluster, a square per GPU in its job's colour, beside a list of the jobs.

    A job has the number of its row in the trace. The size depends on the cluster alone.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        At least 540 high, 960 wide.
    """
    layout, background = _background(simulation.scenario.cluster)
    owners, pixels = _owners(simulation), background.copy()
    fill_squares(pixels, layout, owners, MARGIN, TOP)
    picture = Picture(pixels)
    number_squares(picture, layout, owners, MARGIN, TOP)
    picture.text(MARGIN, 8, clock(simulation.now_s), 18)
    left = f"{simulation.jobs_left} of {len(simulation.scenario.trace)} jobs have left"
    picture.text(MARGIN + 150, 12, left, 13)
    _use(picture, simulation, owners)
    _jobs(picture, simulation, len(pixels) - MARGIN)
    return picture.pixels()


@lru_cache(maxsize=8)
def _background(cluster: ClusterSpec) -> tuple[ClusterLayout, Pixels]:
    """Return the layout of a cluster, and the pixels that are the same in all its pictures."""
    most = Size(WIDTH - LIST - 3 * MARGIN, HEIGHT - TOP - MARGIN)
    Picture((1, 1))  # says it if Pillow is missing
    layout = make_layout(cluster, most)
    height = layout.size.height + TOP + MARGIN
    picture = Picture((max(HEIGHT, height + height % 2), WIDTH))  # videos need even numbers
    draw_switches(picture, layout, MARGIN, TOP)
    return layout, picture.pixels()


def _owners(simulation: Simulation) -> Ints:
    """Return the job that holds each GPU, in order of nodes, or FREE or PROFILING, shape (GPUs,)."""
    cluster, allocations = simulation.scenario.cluster, simulation.allocations
    # The simulator counts GPUs of a node and knows no single ones: those of a holder are drawn side by side.
    first = np.cumsum(cluster.node_gpus) - cluster.node_gpus
    owners, used = np.full(int(cluster.node_gpus.sum()), FREE, dtype=np.int64), first.copy()
    for holder in allocations.holders:
        for node, gpus in allocations.holding(holder):
            owners[used[node] : used[node] + gpus] = holder if holder >= 0 else PROFILING
            used[node] += gpus
    for node in allocations.down:
        owners[first[node] : first[node] + cluster.node_gpus[node]] = DOWN
    return owners


def _use(picture: Picture, simulation: Simulation, owners: Ints) -> None:
    """Draw a bar for each GPU type, filled to the share of its GPUs in use."""
    cluster = simulation.scenario.cluster
    types = np.repeat(cluster.node_type, cluster.node_gpus)
    held = np.bincount(types[(owners >= 0) | (owners == PROFILING)], minlength=len(cluster.capacity))
    space = WIDTH - LIST - 3 * MARGIN
    each = space // len(cluster.capacity)
    for gpu_type, (name, total) in enumerate(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True)):
        left, share = MARGIN + gpu_type * each, held[gpu_type] / total
        picture.bar(left, 36, each - GAP, 18, [(share, LIGHT)])
        short = f"{name} {held[gpu_type]}/{total} {share:.0%}"
        said = f"{name}: {held[gpu_type]} of {total} GPUs in use, {share:.0%}"
        fits = measure_width(said, 12) <= each - 2 * GAP
        picture.text(left + 5, 45, said if fits else short, 12, INK, "lm")


def _jobs(picture: Picture, simulation: Simulation, bottom: int) -> None:
    """Draw the list of waiting jobs with their requests, and of running jobs with their progress."""
    waiting, running = _waiting(simulation), _running(simulation)
    lines = (bottom - MARGIN) // ROW - 5
    # Half of the lines are for the queue, and what running jobs leave of theirs.
    for_queue = max(lines // 2, lines - len(running))
    shown = min(len(waiting), for_queue)
    asked = int(simulation.scenario.request_gpus[waiting].sum())
    top = _heading(picture, 8, f"Queue: {len(waiting)} jobs", f"ask for {asked:,} GPUs")
    most = int(simulation.scenario.request_gpus.max())
    for row in waiting[:shown].tolist():
        _draw_waiting_job(picture, simulation, row, top, most)
        top += ROW
    top = _more(picture, top, len(waiting) - shown)
    top = _heading(picture, top + 8, f"Running: {len(running)} jobs", "done")
    shown = min(len(running), (bottom - top) // ROW - 1)
    for row in running[:shown].tolist():
        _draw_running_job(picture, simulation, row, top)
        top += ROW
    _more(picture, top, len(running) - shown)


def _heading(picture: Picture, top: int, text: str, right: str) -> int:
    picture.text(WIDTH - MARGIN - LIST, top, text, 15)
    picture.text(WIDTH - MARGIN, top + 3, right, 12, FAINT, "ra")
    return top + 24


def _more(picture: Picture, top: int, jobs: int) -> int:
    if jobs <= 0:
        return top
    picture.text(WIDTH - MARGIN - LIST, top, f"and {jobs:,} more", 12, FAINT)
    return top + ROW


def _number(picture: Picture, row: int, top: int, runs: bool) -> int:
    """Draw the number of a job, on its colour if it runs; return where the next text begins."""
    left, width = WIDTH - MARGIN - LIST, 36
    fill = choose_colour(row) if runs else WHITE
    picture.box(left, top, width, ROW - 2, fill, choose_colour(row))
    picture.text(left + width / 2, top + 7, str(row), 12, choose_ink(fill), "mm")
    return left + width + 8


def _draw_waiting_job(picture: Picture, simulation: Simulation, row: int, top: int, most: int) -> None:
    """Draw a waiting job: its request as a bar and a number, and how long it has waited."""
    left, gpus = _number(picture, row, top, False), int(simulation.scenario.request_gpus[row])
    length = max(2, round(70 * gpus / most))
    picture.box(left, top + 3, length, ROW - 8, FAINT)
    picture.text(left + length + 6, top + 7, f"{gpus} GPUs" if gpus > 1 else "1 GPU", 12, INK, "lm")
    waits_s = simulation.now_s - seconds(int(simulation.jobs.queued_since[row]))
    picture.text(WIDTH - MARGIN, top + 7, f"waits {waits_s / 3600:.2f} h", 12, INK, "rm")


def _draw_running_job(picture: Picture, simulation: Simulation, row: int, top: int) -> None:
    """Draw a running job: its GPUs and its progress."""
    left, (_, gpus, gpu_type, done) = _number(picture, row, top, True), _job(simulation, row)
    picture.text(left, top + 7, f"{gpus} {gpu_type}", 12, INK, "lm")
    picture.bar(WIDTH - MARGIN - 110, top + 3, 70, ROW - 8, [(_compute_progress(simulation, row), FAINT)])
    picture.text(WIDTH - MARGIN, top + 7, done, 12, INK, "rm")
