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

from clustergym.scenario.policy import Decision, InformationClass, InformationError, Setting, View

LENGTH = struct.Struct("=q")
COLUMNS = (
    *("available", "free", "job", "state", "gpu_type", "gpus", "requested_type", "requested_gpus"),
    *("submit_s", "deadline_s", "queued_s", "standstill_s", "iterations", "remaining_iterations"),
    *("global_batch", "priority", "restarts", "attained_gpu_s", "feasible", "batch", "queue"),
)
"""Arrays of a View, by name."""
SETTING = ("capacity", "gpus_per_node", "counts")
ANSWER = ("job", "gpu_type", "gpus", "drop", "batch", "partner")


def encode_message(words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Return a message of JSON values and named arrays."""
    given = arrays or {}
    shapes = [(name, one.dtype.str, one.shape) for name, one in given.items()]
    head = json.dumps({"words": dict(words), "arrays": shapes}).encode()
    return b"".join([LENGTH.pack(len(head)), head, *(one.tobytes() for one in given.values())])


def decode_message(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the values and read-only arrays of a message that `encode_message` wrote."""
    start = LENGTH.size + LENGTH.unpack_from(message)[0]
    head, arrays = json.loads(message[LENGTH.size : start]), {}
    for name, dtype, shape in head["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(message, dtype, count, start).reshape(shape)
        start += arrays[name].nbytes
    return head["words"], arrays


def packed_setting(setting: Setting, seed: int) -> bytes:
    """Return the first message of a run to an external policy program: the setting and a seed."""
    words = {"gpu_types": setting.gpu_types, "round_s": setting.round_s, "seed": seed}
    return encode_message(words, {name: getattr(setting, name) for name in SETTING})


def decode_setting(words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Setting:
    """Return the Setting in a message that `packed_setting` wrote."""
    given: dict[str, Any] = dict(arrays)
    return Setting(tuple(words["gpu_types"]), **given, round_s=words["round_s"])


def packed_view(view: View, information: InformationClass) -> bytes:
    """Return the message of a decision point: its View, without parts, pairs and batches."""
    arrays = {name: getattr(view, name) for name in COLUMNS}
    if view.time_limit_s is not None:
        arrays["time_limit_s"] = view.time_limit_s
    if information != InformationClass.NONE:
        arrays["times"] = view.iteration_time_s()
    arrays["costs"] = view.restart_cost_s()
    return encode_message({"now_s": view.now_s}, arrays)


def decode_view(words: Mapping[str, Any], arrays: dict[str, NDArray[Any]], setting: Setting) -> View:
    """Return the View in a message that `packed_view` wrote."""
    times, costs = arrays.pop("times", None), arrays.pop("costs")

    def give_times() -> NDArray[Any]:
        if times is None:
            raise InformationError("asked for iteration times, which information class none does not include")
        return times

    calls = {"times": give_times, "costs": lambda: costs, "batches": lambda: None}
    return View(now_s=words["now_s"], setting=setting, **arrays, **calls)  # type: ignore[arg-type]


def encode_answer(decision: object) -> dict[str, Any]:
    """Return the columns of a program's decision as lists.

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
