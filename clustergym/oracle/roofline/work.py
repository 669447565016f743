"""Model classes as arrays: the fields of `ModelSpec` along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.oracle.models.model_spec import ELEMENT_BYTES, ModelSpec

STATE_BYTES = {
    "transformer": (6.0, 12.0),
    "moe": (5.7, 6.0),
    "wide_resnet": (12.0, 4.0),
    "dense": (16.0, 0.0),
}
"""Bytes a parameter of weights, gradients and optimizer state by kind of model: on every data-parallel
rank, and divided among the ranks. From Arena's measured data-parallel memory (arena_dp_memory.csv);
`dense` is Adam in fp32, replicated."""


@dataclass(frozen=True)
class Work:
    """Fields of `ModelSpec` as arrays of one shape, and properties of the kind of model.

    Attributes
    ----------
    global_batch : ndarray of float
    element_bytes : ndarray of float
        Bytes of a weight.
    shared_parameters : ndarray of float
        Parameters outside experts.
    state_bytes, sharded_state_bytes : ndarray of float
        Bytes a parameter on every rank, and divided among data-parallel ranks.
    half, convolutional, planned, recomputes, splits_experts : ndarray of bool
        Computes in fp16; is a wide ResNet; may be split and pipelined; recomputes activations
        even in one stage; splits experts rather than every layer.
    """

    parameters: Floats
    forward_flops_per_sample: Floats
    activation_bytes_per_sample: Floats
    layers: Floats
    tensor_limit: Floats
    expert_parameters: Floats
    attention_flops: Floats
    gate_flops: Floats
    flops_per_unit: Floats
    traffic_bytes: Floats
    boundary_bytes: Floats
    layer_bytes: Floats
    head_bytes: Floats
    exchange_bytes: Floats
    global_batch: Floats
    element_bytes: Floats
    shared_parameters: Floats
    state_bytes: Floats
    sharded_state_bytes: Floats
    half: Bools
    convolutional: Bools
    planned: Bools
    recomputes: Bools
    splits_experts: Bools

    @staticmethod
    def of(specs: Sequence[ModelSpec], batches: Sequence[int]) -> Work:
        """Gather n models and their global batches into arrays of shape (n,)."""
        copied = {column.name for column in fields(Work)} & {column.name for column in fields(ModelSpec)}
        columns = {
            name: np.array([getattr(spec, name) for spec in specs], dtype=np.float64) for name in copied
        }
        states = np.array([STATE_BYTES[spec.kind] for spec in specs], dtype=np.float64).reshape(-1, 2)
        kind = np.array([spec.kind for spec in specs], dtype=np.str_)
        element = np.array([ELEMENT_BYTES[spec.dtype] for spec in specs], dtype=np.float64)
        return Work(
            **columns,
            global_batch=np.array(batches, dtype=np.float64),
            element_bytes=element,
            shared_parameters=columns["parameters"] - columns["expert_parameters"],
            state_bytes=states[:, 0],
            sharded_state_bytes=states[:, 1],
            half=element == ELEMENT_BYTES["fp16"],
            convolutional=kind == "wide_resnet",
            planned=kind != "dense",
            recomputes=np.isin(kind, ("transformer", "moe")),
            splits_experts=kind == "moe",
        )

    def reshaped(self, *shape: int) -> Work:
        """Return the same arrays in another shape."""
        return Work(**{column.name: getattr(self, column.name).reshape(shape) for column in fields(self)})
