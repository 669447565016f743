"""The data of a report's page as plain JSON values, with the part of a GPU on which each holding is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.parts import WHOLE
from clustergym.common.arrays import Bools
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable
from clustergym.results.metrics.catalogue import METRICS, OF_CAPACITY, OF_TENANTS
from clustergym.results.metrics.preemptions import OF_QUEUE
from clustergym.results.report.colours import Style, choose_styles
from clustergym.results.report.event_curves import Holding, Pace, overhead_gpu_h, read_log
from clustergym.results.report.groups import ResultGroup, different, group_results
from clustergym.results.report.seeds import make_line
from clustergym.results.report.series import (
    REMEDY,
    cdf,
    column,
    means,
    read_table,
    resample_steps,
    round_series,
)
from clustergym.results.result_files import ResultFile
from clustergym.scenario.policy import KNOWS

STEPS = 500
"""Most steps of a line over time."""
POINTS = 400
"""Most points of a distribution."""
ROWS = 20_000
"""Most jobs, and most bars of the Gantt charts, of a whole page."""
JOB_COLUMNS = (
    *("job_id", "outcome", "submit_s", "jct_s", "queue_s", "run_s", "finish_time_fairness"),
    *("request_gpu_type", "request_gpus", "held_gpu_s", "overhead_gpu_s", "restarts", "preemptions"),
    *("failures", "lost_gpu_s", "reason"),
)
WORDS = ("job_id", "outcome", "request_gpu_type", "reason")
"""Columns of text; the others hold numbers."""
IF_THERE = ("allocated_gpus", "fragmented_gpus", "rented_gpus", "cost")
"""Columns of timeline.csv that are drawn over time: of runs on divisible nodes, and with nodes to rent."""
IF_ANY = ("failures", "lost_gpu_s")
"""Columns left out where they are 0 throughout."""
NONE = ("", "0", "0.0")
NEEDED = ("job_id", "outcome", "submit_s", "jct_s")


def payload(results: Sequence[ResultFile], steps: int = STEPS) -> dict[str, Any]:
    """Return the data that a report's page embeds; curves over time have at most `steps` steps."""
    share = max(ROWS // len(results), 200)
    return {
        "schema": "clustergym.report/1",
        "metrics": {
            name: [metric.unit, metric.better, metric.definition]
            for name, metric in METRICS.items()
            if metric not in (*OF_TENANTS, *OF_CAPACITY) or any(name in result.metrics for result in results)
        },
        "groups": [_group(group, share, steps) for group in group_results(results)],
    }


def _group(group: ResultGroup, share: int, steps: int) -> dict[str, Any]:
    """Return a group's different runs and its lines: for each column its run's number, or its runs' mean."""
    styles = choose_styles([column.any.policy.name for column in group.columns])
    runs: list[dict[str, Any]] = []
    lines: list[int | dict[str, Any]] = []
    for compared, style in zip(group.columns, styles, strict=True):
        every = different(compared, compared.by_seed)
        places = {result.digest: len(runs) + place for place, result in enumerate(every)}
        for result in every:
            label = compared.label if len(every) == 1 else f"{compared.label}, seed {result.seed}"
            runs.append(_run(result, label, style, share, steps))
        counted = [places[result.digest] for result in group.list_counted_runs(compared)]
        mine = [runs[place] for place in counted]
        if len(mine) == 1:
            lines.append(counted[0])
        else:
            line = make_line(compared.label, mine, group.figures(compared), STEPS, POINTS)
            lines.append({**line, "runs": counted})
    return {
        "title": group.title,
        "notes": group.notes,
        "reference": group.reference,
        "lines": lines,
        "runs": runs,
    }


def _run(result: ResultFile, label: str, style: Style, share: int, steps: int) -> dict[str, Any]:
    folder = result.path.parent
    end_s = _end_s(result)
    log = read_log(folder / "events.jsonl.gz", end_s)
    jobs = read_table(folder / "jobs.csv", NEEDED)
    _check_jobs(jobs)
    fair = "finish_time_fairness" in jobs.columns
    nodes = _nodes(folder / "config.yaml", log.held)
    return {
        "label": label,
        "colour": style.colour,
        "dash": style.dash,
        "knows": KNOWS.get(result.information_class, ""),
        "metrics": result.metrics,
        "decisions": None if result.decisions is None else result.decisions.model_dump(),
        "wall_s": result.wall_s,
        "end_s": end_s,
        "timeline": _timeline(folder / "timeline.csv", end_s, steps),
        "jct": cdf(column(jobs, "jct_s"), POINTS),
        "fairness": cdf(column(jobs, "finish_time_fairness"), POINTS) if fair else None,
        "overhead_gpu_h": overhead_gpu_h(log.held),
        "lost_gpu_h": {cause: loss.lost_gpu_hours for cause, loss in result.losses.items()},
        "jobs": _jobs(jobs, share),
        "nodes": nodes,
        "slowed": _compute_slowed_share(log.paces, end_s),
        **_quotas(result),
        "outages": [list(outage) for outage in log.outages[:share]],
        "bars": _bars(log.held, [gpus for _, gpus, *_ in nodes], share),
    }


def _check_jobs(jobs: TextTable) -> None:
    """Raise an `InputError` if a job is listed twice or has a malformed number."""
    first: dict[str, int] = {}
    for name, line in zip(jobs.columns["job_id"], jobs.line, strict=True):
        if first.setdefault(name, line) != line:
            message = f"{name[:40]!r} stands in line {first[name]} too"
            raise InputError(message, file=jobs.path, line=line, field="job_id", remedy=REMEDY)
    for name in [name for name in JOB_COLUMNS if name in jobs.columns and name not in WORDS]:
        values = column(jobs, name)
        if name == "submit_s":
            _refuse_row(jobs, name, np.isnan(values), "is empty")


def _refuse_row(table: TextTable, name: str, wrong: Bools, message: str) -> None:
    """Raise an `InputError` at the first row that is wrong, if there is any."""
    if wrong.any():
        line = table.line[int(np.argmax(wrong))]
        raise InputError(message, file=table.path, line=line, field=name, remedy=REMEDY)


def _end_s(result: ResultFile) -> float:
    end_s = (result.model_extra or {}).get("end_s")
    if isinstance(end_s, bool) or not isinstance(end_s, int | float) or not 0 <= end_s < 1e15:
        raise InputError("is not a time", file=result.path, field="end_s", remedy=REMEDY)
    return float(end_s)


def _timeline(path: Path, end_s: float, steps: int) -> dict[str, Any]:
    names: tuple[str, ...] = ("running_jobs", "queued_jobs", "profiling_jobs", "profiling_gpus", "throughput")
    read = read_table(path, ("time_s", *names))
    types = [name for name in read.columns if name.startswith("held_gpus_")]
    queues = [name for name in read.columns if name.startswith(OF_QUEUE)]
    names += tuple(name for name in IF_THERE if name in read.columns)
    table = {name: column(read, name) for name in ("time_s", *names, *types, *queues)}
    for name, values in table.items():
        _refuse_row(read, name, np.isnan(values), "is empty")
    times = table["time_s"]
    _refuse_row(read, "time_s", np.diff(times, prepend=0.0) < 0, "is before the line above")
    _refuse_row(read, "time_s", times > end_s, f"is after the end_s of result.json, {end_s:g}")
    names += tuple(queues)
    values = np.stack([table[name] for name in (*names, *types)], axis=1)
    times, values = resample_steps(times, values, end_s, steps)
    shown = {name: round_series(values[:, place]) for place, name in enumerate(names)}
    held = {
        name.removeprefix("held_gpus_"): round_series(values[:, len(names) + t])
        for t, name in enumerate(types)
    }
    by_queue = {name.removeprefix(OF_QUEUE): shown.pop(name) for name in queues}
    return {
        "time_s": round_series(times),
        **shown,
        "held_gpus": held,
        **({"queue_gpus": by_queue} if queues else {}),
    }


def _quotas(result: ResultFile) -> dict[str, Any]:
    """Return the quota of each queue, or nothing of a run without queues."""
    if result.tenants is None:
        return {}
    return {"quota_gpus": {name: one.quota_gpus for name, one in result.tenants.queues.items()}}


def _compute_slowed_share(paces: Sequence[Pace], end_s: float) -> dict[str, list[float]] | None:
    """Return, over time, the share of running jobs that others slow down; None if no job ever is."""
    if not any(pace.slowed for pace in paces) or end_s <= 0:
        return None
    times, running, slowed = (np.array(part, dtype=np.float64) for part in zip(*paces, strict=True))
    share = slowed / np.maximum(running, 1)
    return {
        "time_s": round_series(np.linspace(0, end_s, STEPS, endpoint=False)),
        "share": round_series(means(times, share, end_s, STEPS)),
    }


def _jobs(jobs: TextTable, share: int) -> dict[str, Any]:
    names = [name for name in JOB_COLUMNS if name in jobs.columns]
    names = [name for name in names if name not in IF_ANY or not set(NONE).issuperset(jobs.columns[name])]
    shown = zip(*(jobs.columns[name][:share] for name in names), strict=True)
    return {"columns": names, "rows": [list(row) for row in shown], "total": len(jobs)}


def _nodes(path: Path, held: list[Holding]) -> list[list[Any]]:
    """Return [GPU type, GPUs, leaf, minipod] of each node; -1: the switch is not known."""
    cluster = _cluster(path)
    if cluster is not None:
        types = [cluster.gpu_types[gpu_type] for gpu_type in cluster.node_type.tolist()]
        switches = (cluster.node_leaf.tolist(), cluster.node_minipod.tolist())
        return [list(row) for row in zip(types, cluster.node_gpus.tolist(), *switches, strict=True)]
    seen: dict[int, tuple[str, int]] = {}
    for holding in held:
        for node, gpus in holding.nodes:
            least = max((gpus, *(device + 1 for device in holding.devices or ())))
            seen[node] = (holding.gpu_type, max(least, seen.get(node, ("", 0))[1]))
    return [[*seen.get(node, ("", 0)), -1, -1] for node in range(max(seen, default=-1) + 1)]


def _cluster(path: Path) -> Any:
    """Return the cluster of a run's configuration; None if its file is missing or has changed."""
    from clustergym.common.yaml_file import read_mapping
    from clustergym.scenario.scenario_config import make_cluster

    try:
        return make_cluster(read_mapping(path).content["cluster"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _bars(held: list[Holding], node_gpus: list[int], share: int) -> dict[str, Any]:
    """Return the longest bars of the Gantt chart as [node, start_s, end_s, GPUs, job, overhead_s, action].

    Where jobs share GPUs, a bar has three more: the partner, the share of each GPU, and its boxes.
    """
    boxes = place_boxes(held, node_gpus) if shares(held) else None
    pieces = [
        (holding, node, gpus, () if boxes is None else (holding.beside, holding.share, boxes[at][place]))
        for at, holding in enumerate(held)
        for place, (node, gpus) in enumerate(holding.nodes)
        if holding.end_s > holding.start_s
    ]
    total = len(pieces)
    if total > share:
        pieces = sorted(pieces, key=lambda piece: piece[0].start_s - piece[0].end_s)[:share]
    rows = [
        [node, one.start_s, one.end_s, gpus, one.job, one.overhead_s, one.action, *shared]
        for one, node, gpus, shared in pieces
    ]
    return {"rows": rows, "total": total}


class Box(NamedTuple):
    """A rectangle that shows the part of a GPU that a job holds, in thousandths of the GPU from the top."""

    gpu: int
    top: int
    height: int


class _Taken(NamedTuple):
    box: Box
    until_s: float


def shares(held: Iterable[Holding]) -> bool:
    """Return whether any job holds a part of a GPU or shares GPUs with another job."""
    return any(holding.beside or holding.devices is not None for holding in held)


def place_boxes(held: Sequence[Holding], node_gpus: Sequence[int]) -> list[list[list[Box]]]:
    """Return the rectangles that show the GPUs of each held interval, on each of its nodes.

    A part of a GPU takes what is free of its device from the top, in several boxes if need be. Of a pair
    each job has half of every GPU while it has a partner. Other jobs have the first free GPUs of a node.

    Parameters
    ----------
    held : sequence of Holding
        Sorted by start.
    node_gpus : sequence of int
        GPUs of each node; jobs that find no room on a node have no boxes there.
    """
    lanes = _Lanes(node_gpus)
    order = sorted(range(len(held)), key=lambda at: (held[at].start_s, not held[at].goes_on))
    found: list[list[list[Box]]] = [[] for _ in held]
    for at in order:
        found[at] = [lanes.place(held[at], node, gpus) for node, gpus in held[at].nodes]
    return found


class _Lanes:
    """The rows of all GPUs in the drawing, each taken by a job's box until some time."""

    def __init__(self, node_gpus: Sequence[int]) -> None:
        self._node_gpus = node_gpus
        self._taken: dict[tuple[int, int], list[_Taken]] = {}
        self._last: dict[tuple[int, str], tuple[list[Box], float]] = {}

    def place(self, holding: Holding, node: int, gpus: int) -> list[Box]:
        if holding.devices is not None:
            boxes = [box for gpu in holding.devices for box in self._part(node, gpu, holding)]
        else:
            boxes = self._whole_or_half(holding, node, gpus)
        boxes = [box for box in boxes if box.gpu < self._gpus(node)]
        for box in boxes:
            self._find_taken(node, box.gpu, holding.start_s).append(_Taken(box, holding.end_s))
        self._last[node, holding.job] = boxes, holding.end_s
        return boxes

    def _part(self, node: int, gpu: int, holding: Holding) -> list[Box]:
        """Return the first free box that a share of a device fits into, or several that add up to it."""
        left = holding.gpu_milli
        gaps = self._gaps(node, gpu, holding.start_s)
        whole = next((gap for gap in gaps if gap.height >= left), None)
        found = []
        for gap in gaps if whole is None else [whole]:
            height = min(gap.height, left)
            if height > 0:
                found.append(gap._replace(height=height))
                left -= height
        return found

    def _gaps(self, node: int, gpu: int, start_s: float) -> list[Box]:
        """Return the free parts of a GPU from a time on, from the top."""
        found, top = [], 0
        for box in sorted(taken.box for taken in self._find_taken(node, gpu, start_s)):
            if box.top > top:
                found.append(Box(gpu, top, box.top - top))
            top = max(top, box.top + box.height)
        return [*found, Box(gpu, top, WHOLE - top)] if top < WHOLE else found

    def _whole_or_half(self, holding: Holding, node: int, gpus: int) -> list[Box]:
        own = self._last[node, holding.job][0] if holding.goes_on else []
        theirs, until_s = self._last.get((node, holding.beside), ([], -1.0))
        if own:
            places, top = [box.gpu for box in own], own[0].top
        elif holding.beside and until_s > holding.start_s:
            places, top = [box.gpu for box in theirs], 0 if theirs and theirs[0].top else WHOLE // 2
        else:
            free = (
                gpu for gpu in range(self._gpus(node)) if not self._find_taken(node, gpu, holding.start_s)
            )
            places, top = [gpu for gpu, _ in zip(free, range(gpus), strict=False)], 0
        if holding.beside:
            return [Box(gpu, top, WHOLE // 2) for gpu in places]
        return [Box(gpu, 0, WHOLE) for gpu in places]

    def _gpus(self, node: int) -> int:
        return self._node_gpus[node] if node < len(self._node_gpus) else 0

    def _find_taken(self, node: int, gpu: int, start_s: float) -> list[_Taken]:
        """Return which parts of a GPU's row are taken from a time on; times must ascend from call to call."""
        held = [taken for taken in self._taken.get((node, gpu), ()) if taken.until_s > start_s]
        self._taken[node, gpu] = held
        return held
