"""Schemas of cluster and GPU-type files. Import this module late: it loads pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clustergym.common.errors import InputError, nearest
from clustergym.common.yaml_file import YamlMapping, field_name

MOST_GPUS = 1_000_000
"""Most GPUs a cluster may have in total."""

Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0)]
Factor = Annotated[float, Field(ge=1)]
Amount = Annotated[int, Field(ge=0, le=10**9)]
LinkName = Literal[
    "nvlink1", "nvlink2", "nvlink3", "nvlink4", "nvlink5", "nvlink6",
    "pcie3", "pcie4", "pcie5", "pcie6", "infinity_fabric",
]  # fmt: skip
Count = Annotated[int, Field(ge=1, le=MOST_GPUS)]


class StrictSchema(BaseModel):
    """Base of the schemas of files: refuses unknown keys, NaN, infinity, and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class GpuTypeKeys(StrictSchema):
    """Schema of a GPU type in a YAML file: performance, memory, links and power."""

    fp16_tflops: Positive
    fp32_tflops: Positive
    tf32_tflops: Positive | None = None
    memory_gb: Positive
    memory_gbs: Positive
    link_kind: LinkName
    link_gbs: Positive
    nic_gbps: Positive
    nic_per_gpu: bool = False
    fp8_tflops: Positive | None = None
    fp4_tflops: Positive | None = None
    power_w: Positive | None = None


class NodesKeys(StrictSchema):
    """Schema of a group of equal nodes in a cluster's YAML file.

    With CPU (thousandths of a core) and memory (MiB) of each node, the cluster's GPUs can be divided
    (`clustergym.cluster.parts`).
    """

    gpu_type: Text
    count: Count
    gpus_per_node: Count
    nic_gbps: Positive | None = None
    nic_per_gpu: bool | None = None
    nodes_per_domain: Count = 1
    gang_nodes: Count | None = None
    cpu_milli: Amount | None = None
    memory_mib: Amount | None = None


class FabricKeys(StrictSchema):
    """Schema of the network in a cluster's YAML file: nodes per switch, and oversubscription."""

    nodes_per_leaf: Count = 16
    leaves_per_minipod: Count | None = None
    minipods: Count | None = None
    leaf_oversubscription: Factor = 1.0
    spine_oversubscription: Factor = 1.0
    core_oversubscription: Factor = 2.0


class HostsKeys(StrictSchema):
    """Schema of named hosts that are alike, in a cluster's YAML file: a twin knows by them where jobs run."""

    gpu_type: Text
    gpus: Count
    partitions: list[Text] = Field(default_factory=list)
    names: list[Text]


class ClusterKeys(StrictSchema):
    """Schema of a cluster's YAML file."""

    name: Text | None = None
    path: Text | None = None
    nodes: list[NodesKeys] = Field(default_factory=list)
    fabric: FabricKeys = Field(default_factory=FabricKeys)
    gpu_types: dict[Text, GpuTypeKeys] = Field(default_factory=dict)
    hosts: list[HostsKeys] = Field(default_factory=list)


class CatalogueKeys(StrictSchema):
    """Schema of the catalogue of GPU types, conf/hardware/gpus.yaml."""

    gpu_types: dict[Text, GpuTypeKeys]
    aliases: dict[Text, Text] = Field(default_factory=dict)


M = TypeVar("M", bound=StrictSchema)


def validate_content(
    schema: type[M], content: object, *, file: str | Path | None = None, source: YamlMapping | None = None
) -> M:
    """Check the content of a file against a schema, and return it with the schema's types."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    keys = tuple(key for key in first["loc"] if key != "[key]")
    line = None if source is None else source.line(keys)
    message, remedy = _explain(schema, first["type"], first["msg"], first["input"], keys)
    raise InputError(message, file=file, line=line, field=field_name(keys) or None, remedy=remedy)


def _explain(
    schema: type[StrictSchema], error_type: str, text: str, value: object, keys: tuple[str | int, ...]
) -> tuple[str, str | None]:
    if error_type == "extra_forbidden":
        return "unknown key", nearest(str(keys[-1]), _list_keys(schema, keys[:-1]))
    if error_type == "missing":
        return "is missing", f"give `{keys[-1]}`"
    if error_type in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be a mapping of keys, not {_format_value(value)}", None
    if error_type == "shape":
        return text, None
    text = text.replace("Input should be a valid", "must be a").replace("Input should be", "must be")
    text = text.replace("a integer", "an integer").replace("Keys should be", "keys must be")
    return f"{text}, not {_format_value(value)}", None


def _list_keys(schema: Any, keys: tuple[str | int, ...]) -> list[str]:
    """Return the keys allowed at a path of keys in a schema."""
    for key in keys:
        if isinstance(schema, type) and issubclass(schema, StrictSchema):
            schema = schema.model_fields[str(key)].annotation
        else:
            schema = get_args(schema)[-1]
        if type(None) in get_args(schema):
            schema = next(option for option in get_args(schema) if option is not type(None))
    return list(schema.model_fields)


def _format_value(value: object) -> str:
    for error_type, name in ((Mapping, "a mapping"), ((list, tuple), "a list"), (set, "a set")):
        if isinstance(value, error_type):
            return name
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
