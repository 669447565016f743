"""The messages between a program from outside and its judge: numbers and text, never objects.

A message to the program is JSON, then the bytes of arrays. Its answer is JSON alone, so that nothing of it is
run.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustergym.scenario.policy import Decision, InformationClass, InformationError, Setting, StopCosts, View
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, Settings, UsageWindow

LENGTH = struct.Struct("=q")
COLUMNS = (
    *("available", "free", "job", "state", "gpu_type", "gpus", "requested_type", "requested_gpus"),
    *("submit_s", "deadline_s", "queued_s", "standstill_s", "iterations", "remaining_iterations"),
    *("global_batch", "priority", "restarts", "attained_gpu_s", "feasible", "batch", "queue"),
)
"""Arrays of a View, by name."""
SETTING = ("capacity", "gpus_per_node", "counts")
STOP = "stop."
ANSWER = ("job", "gpu_type", "gpus", "drop", "batch", "partner")


def encode_message(words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Encode JSON values and named arrays as the bytes of a message."""
    given = arrays or {}
    shapes = [(name, one.dtype.str, one.shape) for name, one in given.items()]
    head = json.dumps({"words": dict(words), "arrays": shapes}).encode()
    return b"".join([LENGTH.pack(len(head)), head, *(one.tobytes() for one in given.values())])


def decode_message(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Decode a message of `encode_message` to its JSON values and read-only arrays."""
    start = LENGTH.size + LENGTH.unpack_from(message)[0]
    head, arrays = json.loads(message[LENGTH.size : start]), {}
    for name, dtype, shape in head["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(message, dtype, count, start).reshape(shape)
        start += arrays[name].nbytes
    return head["words"], arrays


def packed_setting(setting: Setting, seed: int) -> bytes:
    """Encode a run's constants and a seed as the message that begins a run of a policy program."""
    queues = None if setting.queues is None else setting.queues.plain()
    words = {"gpu_types": setting.gpu_types, "round_s": setting.round_s, "seed": seed, "queues": queues}
    return encode_message(words, {name: getattr(setting, name) for name in SETTING})


def decode_setting(words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Setting:
    """Decode the run's constants in a message of `packed_setting`."""
    given: dict[str, Any] = dict(arrays)
    queues = None if words["queues"] is None else _decode_queues(**words["queues"])
    return Setting(tuple(words["gpu_types"]), **given, round_s=words["round_s"], queues=queues)


def _decode_queues(settings: Mapping[str, Any], queues: Mapping[str, Any]) -> QueueTree:
    own = Settings(**{**settings, "history": UsageWindow(**settings["history"])})
    rows = {name: Queue(**{**row, "members": tuple(row["members"])}) for name, row in queues.items()}
    return QueueTree(rows, own)


def packed_view(view: View, information: InformationClass) -> bytes:
    """Encode what a policy sees at a decision point as a message to a policy program."""
    arrays = {name: getattr(view, name) for name in COLUMNS}
    if view.time_limit_s is not None:
        arrays["time_limit_s"] = view.time_limit_s
    if information != InformationClass.NONE:
        arrays["times"] = view.iteration_time_s()
    arrays["costs"] = view.restart_cost_s()
    words, stops = {"now_s": view.now_s}, view.stops()
    if stops is not None:
        words["loses"] = stops.loses
        arrays |= {f"{STOP}{name}": one for name, one in vars(stops).items() if name != "loses"}
    return encode_message(words, arrays)


def decode_view(words: Mapping[str, Any], arrays: dict[str, NDArray[Any]], setting: Setting) -> View:
    """Decode what a policy sees in a message of `packed_view`."""
    times, costs = arrays.pop("times", None), arrays.pop("costs")

    def give_times() -> NDArray[Any]:
        if times is None:
            raise InformationError("asked for iteration times, which information class none does not include")
        return times

    names = [name for name in arrays if name.startswith(STOP)]
    columns: dict[str, Any] = {name.removeprefix(STOP): arrays.pop(name) for name in names}
    stops = StopCosts(**columns, loses=words["loses"]) if columns else None
    calls = {"times": give_times, "costs": lambda: costs, "batches": lambda: None, "stops": lambda: stops}
    return View(now_s=words["now_s"], setting=setting, **arrays, **calls)  # type: ignore[arg-type]


def encode_answer(decision: object) -> dict[str, Any]:
    """Return the columns of a policy program's decision as lists, for JSON.

    Raises
    ------
    TypeError
        If it is no Decision.
    """
    if not isinstance(decision, Decision):
        message = f"schedule returned a {type(decision).__name__}; return Decision.of([(job, type, GPUs), …])"
        raise TypeError(message)
    if len(decision.notice) or decision.move:
        raise TypeError("schedule gave notice or nodes, which no program does; leave notice and move out")
    columns = {name: getattr(decision, name) for name in ANSWER}
    return {name: np.asarray(one).tolist() for name, one in columns.items() if one is not None}
