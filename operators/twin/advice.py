"""Advise what a policy would do now, with reasons; and compare a later log with the advice."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.columns import iso, parse_seconds
from clustergym.common.errors import InputError
from clustergym.common.reading import parse_json
from clustergym.common.text_files import read_text
from clustergym.scenario.policy import Decision, View
from clustergym.sim.from_now import Moment
from clustergym.trace.present import Present
from clustergym.trace.trace import Trace

from .ahead import QUANTILES, Ahead
from .waits import CLOSE_S

CHANGES = ("start", "stop", "resize", "move", "drop", "wait")
"""What may become of a job, in the order in which it is shown."""
SHADOW_SCHEMA = "clustergym.shadow/1"


def estimate_starts(ahead: Ahead, draws: int, seed: int = 0) -> list[dict[str, Any]]:
    """Estimate when each waiting job starts: quantiles over simulations with random run times, s from now.

    A quantile is None where so many draws do not start the job within thirty days.
    """
    found = [ahead.starts(draw, seed) for draw in range(draws)]
    rows = []
    for job in ahead.present.waiting:
        starts = np.array([one.get(job.job_id, np.nan) for one in found])
        at = quantiles(np.where(np.isnan(starts), np.inf, starts))
        row = {"job_id": job.job_id, "user": job.user, "team": job.account, "gpus": job.gpus}
        row |= {"gpu_type": job.gpu_type, "waited_s": ahead.present.now_s - job.submit_s}
        names = (f"p{round(100 * share)}_s" for share in QUANTILES)
        known = (value if np.isfinite(value) else None for value in at)
        rows.append(row | dict(zip(names, known, strict=True)))
    return rows


def quantiles(starts: Floats) -> list[float]:
    """Return the quantiles `QUANTILES` of simulated start times, corrected for how few these are.

    Of n draws in order, a further one lies below the k-th with the chance k / (n + 1).
    """
    ordered, n = np.sort(starts), len(starts)
    return [float(ordered[min(max(round(share * (n + 1)), 1), n) - 1]) for share in QUANTILES]


def advise(moment: Moment, present: Present) -> list[dict[str, Any]]:
    """Explain a policy's decision: return a row for each job that it changes or leaves waiting, with reasons.

    Returns
    -------
    list of dict
        `what` is start, stop, resize, move, drop or wait; `gpus` and `gpu_type` are those after the
        decision; `why` is a sentence.
    """
    view, decision, types = moment.view, moment.decision, moment.view.setting.gpu_types
    held = _allotments(view)
    # What it starts and no node has room for, waits on.
    given = {row: to for row, to in _allotments(decision).items() if held[row][1] or row in moment.started}
    unplaced = set(decision.job.tolist()) - given.keys()
    free = view.free.copy()
    for row in held.keys() | given.keys():
        (gpu_type, gpus), (now_type, now_gpus) = held.get(row, (-1, 0)), given.get(row, (-1, 0))
        free[gpu_type] += gpus
        free[now_type] -= now_gpus
    known = {job.job_id for job in (*present.running, *present.waiting)}
    rows = []
    for at, row in enumerate(view.job.tolist()):
        before, after = held[row], given.get(row, (-1, 0))
        asked, wanted = int(view.requested_gpus[at]), int(view.requested_type[at])
        what, why = _change(before, after, types)
        if what == "wait":
            why = _why_waits(asked, wanted, free, types)
        if row in unplaced:
            why = "its GPUs are free, but not on nodes as it asks for them"
        if row in decision.drop:
            what, why = "drop", "the policy gives it up"
        if what and moment.job_id[row] in known:
            gpu_type = after[0] if after[1] else wanted
            shown = types[gpu_type] if gpu_type >= 0 else ""
            cells = {"job_id": moment.job_id[row], "what": what, "gpus": after[1] or asked, "gpu_type": shown}
            rows.append(cells | {"why": why})
    return sorted(rows, key=lambda one: CHANGES.index(one["what"]))


def _change(before: tuple[int, int], after: tuple[int, int], types: Sequence[str]) -> tuple[str, str]:
    """Return a decision's effect on a job and the reason; empty if the job runs on unchanged."""
    (gpu_type, gpus), (now_type, now_gpus) = before, after
    if not gpus:
        return ("start", "its GPUs are free, and it is next by the rules") if now_gpus else ("wait", "")
    if not now_gpus:
        return "stop", f"its {gpus} {types[gpu_type]} are for jobs that come first by the rules"
    if gpu_type != now_type:
        return "move", f"from {gpus} {types[gpu_type]}"
    return ("resize", f"from {gpus} GPUs") if gpus != now_gpus else ("", "")


def _allotments(of: View | Decision) -> dict[int, tuple[int, int]]:
    columns = (of.job.tolist(), of.gpu_type.tolist(), of.gpus.tolist())
    return {row: (gpu_type, gpus) for row, gpu_type, gpus in zip(*columns, strict=True)}


def _why_waits(asked: int, wanted: int, free: np.ndarray, types: Sequence[str]) -> str:
    gpu_types = [wanted] if wanted >= 0 else list(range(len(types)))
    rooms = " or ".join(f"{int(free[gpu_type])} {types[gpu_type]}" for gpu_type in gpu_types)
    if all(free[gpu_type] < asked for gpu_type in gpu_types):
        return f"{rooms} stay free"
    return f"{rooms} stay free, which the policy keeps for others (order, reservations, limits)"


def log_shadow(path: Path, rows: Sequence[Mapping[str, Any]], present: Present, policy: str) -> None:
    """Append to a file, as a line of JSON, what a policy would do with the jobs that are present now."""
    line = {"schema": SHADOW_SCHEMA, "now": iso(present.now_s), "policy": policy, "advice": list(rows)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without waiting for a reader, should it be a named pipe.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        with os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise InputError(message, file=path, field="--shadow", remedy="name another file") from error


def read_shadow(path: Path) -> list[tuple[float, list[str]]]:
    """Read what `log_shadow` writes; return each line's time (s since 1970) and the jobs to start."""
    text, _ = read_text(path)
    remedy, polls = "give a file that clustergym twin advise --shadow wrote", []
    for number, line in enumerate(text.splitlines(), start=1):
        entry = parse_json(line.encode(), path, remedy)
        try:
            if entry["schema"] != SHADOW_SCHEMA:
                raise ValueError(f"{entry['schema']!r} is not {SHADOW_SCHEMA}")
            starts = [str(row["job_id"]) for row in entry["advice"] if row["what"] == "start"]
            polls.append((parse_seconds(str(entry["now"])), starts))
        except (KeyError, TypeError, ValueError) as problem:
            message = f"is no advice: {problem}"
            raise InputError(message, file=path, line=number, remedy=remedy) from problem
    return polls


def score_shadow(path: Path, trace: Trace) -> dict[str, Any]:
    """Compare when a policy would have started jobs with when they really started, as a later log says.

    Each job counts at the first poll that would have started it.

    Returns
    -------
    dict
        Polls; jobs advised to start that the log has; how many started within a minute of the advice, and
        how much later the others did, in seconds (below 0: earlier).
    """
    if trace.start_s is None:
        raise InputError("says of no job when it started", file=trace.path, remedy="import it with starts")
    first: dict[str, float] = {}
    polls = read_shadow(path)
    for now_s, starts in polls:
        for name in starts:
            first.setdefault(name, now_s)
    begun = dict(zip(trace.job_id, (trace.start_s + trace.clock_start_s).tolist(), strict=True))
    late = np.array([begun.get(name, np.nan) - at for name, at in first.items()])
    late = late[np.isfinite(late)]
    close = np.abs(late) <= CLOSE_S
    return {
        "polls": len(polls),
        "advised": len(first),
        "found": len(late),
        "within_a_minute": int(close.sum()),
        "later_s": float(late[~close].mean()) if (~close).any() else None,
    }
