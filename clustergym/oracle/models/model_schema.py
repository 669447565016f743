"""Schemas of the models' YAML files, one per kind. Import this module late: it loads pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from clustergym.cluster.schema import Checked, Text, checked
from clustergym.common.errors import InputError, nearest
from clustergym.common.yaml_file import YamlMapping
from clustergym.oracle.models import model_spec as models

Whole = Annotated[int, Field(ge=1, le=10**9)]
Positive = Annotated[float, Field(gt=0, le=1e24)]


ABSENT: Any = None
"""Default of keys that may be left out but must not be null."""


class TransformerSize(Checked):
    """Dimensions of a transformer."""

    hidden: Whole
    layers: Whole
    heads: Whole


class MoeSize(TransformerSize):
    """Dimensions of a mixture-of-experts model, in which every second layer has experts."""

    layers: Annotated[int, Field(ge=2, le=10**9, multiple_of=2)]
    experts: Whole


class WideResNetSize(Checked):
    """Dimensions of a wide ResNet."""

    depth: Literal[50, 101]
    channels: Whole
    width_factor: Whole


class DenseSize(Checked):
    """Total costs of a data-parallel model; a multiply-add counts as 2 FLOPs."""

    parameters: Positive
    forward_flops_per_sample: Positive
    activation_bytes_per_sample: Positive
    layers: Whole


class Family(Checked):
    """Keys of every kind of model: `size` for a single size, else `sizes` by name."""

    kind: str
    dtype: Literal["fp16", "fp32"]
    batches: Annotated[list[Whole], Field(min_length=1)]
    relaunch_s: Positive | None = None
    size: Any = None
    sizes: dict[Text, Any] = Field(default_factory=dict)

    @property
    def element_bytes(self) -> int:
        """Bytes of one weight or activation."""
        return models.ELEMENT_BYTES[self.dtype]

    def every_size(self) -> dict[str, Mapping[str, Any]]:
        """Return the dimensions of each size by its name; a single size has an empty name."""
        sizes = self.sizes or {"": self.size}
        return {
            name: {key: getattr(size, key) for key in type(size).model_fields} for name, size in sizes.items()
        }

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Return the costs of one model size."""
        raise NotImplementedError

    def dimensions(self, size: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return all dimensions of one size, including those of its family."""
        own = set(Family.model_fields)
        shared = {key: getattr(self, key) for key in type(self).model_fields if key not in own}
        return tuple(sorted((shared | dict(size)).items()))


class TransformerFamily(Family):
    """A family of transformers, given by their dimensions."""

    vocabulary: Whole
    sequence_length: Whole
    size: TransformerSize = Field(default=ABSENT)
    sizes: dict[Text, TransformerSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Return the costs of one model size."""
        return models.transformer(size, self.sequence_length, self.vocabulary, self.element_bytes)


class MoeFamily(Family):
    """A family of mixture-of-experts models, given by their dimensions."""

    vocabulary: Whole
    sequence_length: Whole
    expert_group_size: Whole
    size: MoeSize = Field(default=ABSENT)
    sizes: dict[Text, MoeSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Return the costs of one model size."""
        return models.mixture_of_experts(
            size, self.sequence_length, self.vocabulary, self.element_bytes, self.expert_group_size
        )


class WideResNetFamily(Family):
    """A family of wide ResNets, given by their dimensions."""

    image_size: Annotated[int, Field(ge=32, le=10**5, multiple_of=32)]
    classes: Whole
    size: WideResNetSize = Field(default=ABSENT)
    sizes: dict[Text, WideResNetSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Return the costs of one model size."""
        return models.wide_resnet(size, self.image_size, self.classes, self.element_bytes)


class DenseFamily(Family):
    """A family of data-parallel models, given by their total costs."""

    size: DenseSize = Field(default=ABSENT)
    sizes: dict[Text, DenseSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Return the costs of one model size."""
        return models.dense(size)

    def dimensions(self, size: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return an empty tuple: this family is given by costs, not dimensions."""
        return ()


KINDS: dict[str, type[Family]] = {
    "transformer": TransformerFamily,
    "moe": MoeFamily,
    "wide_resnet": WideResNetFamily,
    "dense": DenseFamily,
}


def parse_family(source: YamlMapping) -> Family:
    """Check the YAML file of a model family.

    Raises
    ------
    InputError
        Names the file, the line, the key and the remedy.
    """
    file, kind = source.path, source.content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        missing = "kind" not in source.content
        message = "is missing" if missing else f"unknown kind {kind!r}"
        line = None if missing else source.line(("kind",))
        raise InputError(message, file=file, line=line, field="kind", remedy=nearest(str(kind or ""), KINDS))
    family = checked(KINDS[kind], source.content, file=file, source=source)
    if (family.size is None) == (not family.sizes):
        message = "give either `size` (a family of one size) or `sizes` (dimensions by name)"
        raise InputError(message, file=file, field="sizes", remedy="see conf/model/gpt3.yaml")
    return family
