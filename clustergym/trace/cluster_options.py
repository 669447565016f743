"""Options for reading a log whose durations hold on a given cluster."""

from __future__ import annotations

from typing import Any

from clustergym.cluster.divisible import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.options import ReadOptions, ReferenceTime, TypeNames, types_to_draw


def make_options(
    cluster: ClusterSpec,
    times: ReferenceTime | None = None,
    *,
    rule: str,
    any_type: bool,
    type_name: TypeNames | None = None,
    **more: Any,
) -> ReadOptions:
    """Return options by which a job takes on a cluster as long as the log says.

    A job that names no GPU type, and for which none is drawn, takes that long on the type of the cluster on
    which it is fastest. A log that names a type which the cluster lacks is refused.

    Parameters
    ----------
    cluster : ClusterSpec
        The cluster that the log was recorded on, or is taken to be.
    times : callable, optional
        Seconds per iteration there; by default the roofline oracle's.
    rule, any_type
        How models are drawn, and whether GPU types are left open.
    type_name : callable, optional
        Names of the GPU types in the file.
    **more
        Other fields of `ReadOptions`.
    """
    from clustergym.trace.draw import get_reference_times

    times, types = times or get_reference_times(cluster), cluster.gpu_types
    room = dict(zip(types, cluster.capacity.tolist(), strict=True))
    if isinstance(cluster, DivisibleCluster):
        # Its GPUs are one pool to the oracle, whatever their model; requests name models.
        return ReadOptions(
            rule=rule,
            reference_time_s=_of_any_type(times),
            reference_gpu="",
            reference_cluster=cluster.name,
            recorded_types=cluster.named_types,
            gpu_types=(),
            type_name=type_name,
            **more,
        )
    return ReadOptions(
        rule=rule,
        reference_time_s=times,
        reference_gpu="",
        reference_cluster=cluster.name,
        recorded_types=types,
        gpu_types=types_to_draw(rule, any_type, types) or (),
        most_gpus=room,
        type_name=type_name,
        **more,
    )


def _of_any_type(times: ReferenceTime) -> ReferenceTime:
    def of_any_type(model: ModelClass, gpu_type: str, gpus: int) -> float:
        return times(model, "", gpus)

    return of_any_type
