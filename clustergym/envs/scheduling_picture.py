"""Pictures of a cluster and its queue, as text and as pixels."""

from __future__ import annotations

import numpy as np

from clustergym.cluster.spec import Ints
from clustergym.envs.rendering import EMPTY, WHITE, Pixels, canvas, cells, table, write
from clustergym.sim.engine import Simulation
from clustergym.sim.state import Phase

WIDTH, PIXELS, LISTED = 64, 6, 20
"""GPUs in a line of the picture, pixels of a GPU, jobs that the text lists."""


def as_text(simulation: Simulation) -> str:
    """Return the GPUs of each type, and the jobs in the system in order of submission."""
    jobs, cluster = simulation.jobs, simulation.scenario.cluster
    present = np.flatnonzero((jobs.phase == Phase.QUEUED) | (jobs.phase == Phase.RUNNING))
    waiting = int((jobs.phase == Phase.QUEUED).sum())
    lines = [
        f"{simulation.now_s / 3600:.2f} h: {len(present) - waiting} jobs run, {waiting} wait, "
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
    kind = int(jobs.gpu_type[row])
    left = float(jobs.remaining[row] / jobs.iterations[row])
    name = simulation.scenario.cluster.gpu_types[kind] if kind >= 0 else "-"
    return simulation.scenario.trace.job_id[row], int(jobs.gpus[row]), name, f"{1 - left:.0%}"


def as_pixels(simulation: Simulation) -> Pixels:
    """Return a square for each GPU, coloured by the job that holds it, one block for each type."""
    cluster, allocations = simulation.scenario.cluster, simulation.allocations
    owner = np.full((len(cluster.node_gpus), int(cluster.node_gpus.max())), -1, dtype=np.int64)
    used = np.zeros(len(cluster.node_gpus), dtype=np.int64)
    for holder in allocations.holders:
        for node, gpus in allocations.holding(holder):
            owner[node, used[node] : used[node] + gpus] = holder if holder >= 0 else -holder
            used[node] += gpus
    blocks = [_block(simulation, owner, kind) for kind in range(len(cluster.gpu_types))]
    return np.concatenate([_headline(simulation), *blocks])


def _headline(simulation: Simulation) -> Pixels:
    line = canvas(16, WIDTH * PIXELS)
    waiting = int((simulation.jobs.phase == Phase.QUEUED).sum())
    write(line, 3, 2, f"{simulation.jobs_left}/{len(simulation.scenario.trace)} DONE {waiting} QUEUED")
    return line


def _block(simulation: Simulation, owner: Ints, kind: int) -> Pixels:
    cluster = simulation.scenario.cluster
    nodes = np.flatnonzero(cluster.node_type == kind)
    held = np.concatenate([owner[node, : cluster.node_gpus[node]] for node in nodes])
    lines = -(-len(held) // WIDTH)
    padded = np.full(lines * WIDTH, -1, dtype=np.int64)
    padded[: len(held)] = held
    picture = cells(padded.reshape(lines, WIDTH), PIXELS)
    # Where the last line has no GPUs there are no free ones either.
    picture[-PIXELS:, (WIDTH - len(padded) + len(held)) * PIXELS :] = WHITE
    picture[-1:] = EMPTY
    return picture
