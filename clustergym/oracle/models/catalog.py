"""The catalogue of models: one YAML file per model family, read when the family is first used.

Schemas of the models' YAML files, one per architecture. Import this module late: it loads pydantic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from clustergym.cluster.schema import StrictSchema, Text, validate_content
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.common.yaml_file import YamlMapping
from clustergym.oracle.models import model_spec as models
from clustergym.oracle.models.model_spec import ModelClass, ModelSpec

ARENA_FAMILIES = {"bert": "gpt3", "moe": "gshard_moe", "wide_resnet": "wide_resnet"}
"""Maps family names in Arena's published files to families of the catalogue."""


class Catalog:
    """A catalogue of the costs of models, by family and size, read from YAML files.

    Parameters
    ----------
    files : mapping of str to Path
        YAML file of each family.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = dict(sorted(files.items()))
        self._families: dict[str, dict[str, ModelSpec]] = {}

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the model families, sorted."""
        return tuple(self.files)

    def sizes(self, family: str) -> tuple[str, ...]:
        """Return a known family's sizes, smallest model first; ("",) for a family with a single size."""
        return tuple(self._family(family))

    def knows(self, model: ModelClass) -> bool:
        """Return whether the catalogue has a model's family and size."""
        return model.family in self.files and model.size in self._family(model.family)

    def get(
        self,
        model: ModelClass,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> ModelSpec:
        """Return the specification of a model, by its family and size; the batch may be any positive number.

        Parameters
        ----------
        model : ModelClass
        file, line, field : optional
            Where the model was named, for the error message.
        """
        message, remedy = self._problem(model)
        if message:
            raise InputError(message, file=file, line=line, field=field, remedy=remedy)
        return self._family(model.family)[model.size]

    def fingerprint(self) -> dict[str, str]:
        """Return the SHA-256 digest of each family's file, by family."""
        return {family: hashlib.sha256(path.read_bytes()).hexdigest() for family, path in self.files.items()}

    def _problem(self, model: ModelClass) -> tuple[str, str | None]:
        if model.family not in self.files:
            return f"unknown model family {model.family!r}", nearest(model.family, self.families)
        sizes = self._family(model.family)
        if model.size not in sizes:
            remedy = "it has one size: leave the size empty" if "" in sizes else nearest(model.size, sizes)
            return f"unknown size {model.size!r} of model family {model.family}", remedy
        if model.global_batch < 1:
            return (
                f"global batch {model.global_batch} of {model.model} is not positive",
                "give at least 1 sample",
            )
        return "", None

    def _family(self, family: str) -> dict[str, ModelSpec]:
        if family not in self._families:
            path = self.files[family].absolute()
            try:
                stamp = path.stat()
            except OSError:
                return _load_family.__wrapped__(family, path, 0, 0)
            self._families[family] = _load_family(family, path, stamp.st_mtime_ns, stamp.st_size)
        return self._families[family]


def load_catalog(extra: str | Path | None = None) -> Catalog:
    """Load the catalogue of models from `conf/model`, and from the file or folder `extra` if given.

    Parameters
    ----------
    extra : str or Path, optional
        A folder of further models, or one file. It may not redefine a family.

    Raises
    ------
    InputError
        If a folder is missing or holds no models, or a family is given twice.
    """
    files = _yaml_files(conf_dir() / "model")
    for family, path in ({} if extra is None else _yaml_files(Path(extra))).items():
        if family in files:
            message = f"model family {family} is in the catalogue already"
            raise InputError(message, file=path, remedy="rename the file")
        files[family] = path
    return Catalog(files)


def _yaml_files(folder: Path) -> dict[str, Path]:
    if folder.is_file():
        return {folder.stem: folder}
    if not folder.is_dir():
        raise InputError(
            "there is no such folder of models", file=folder, remedy="give a folder of YAML files"
        )
    files = {path.stem: path for path in folder.glob("*.yaml")}
    if not files:
        raise InputError("holds no models", file=folder, remedy="give a folder of YAML files, one per family")
    return files


@lru_cache(maxsize=64)
def _load_family(family: str, path: Path, modified_ns: int, size_bytes: int) -> dict[str, ModelSpec]:
    """Read the file of a model family; the result is cached until the file changes."""
    # `modified_ns` and `size_bytes` are only keys of the cache: a changed file is read again.
    from clustergym.common.yaml_file import read_mapping

    keys = parse_family(read_mapping(path))
    specs = [
        ModelSpec(
            family=family,
            size=name,
            architecture=keys.kind,
            dtype=keys.dtype,
            batches=tuple(keys.batches),
            relaunch_s=keys.relaunch_s,
            dimensions=keys.dimensions(size),
            shape=str(size.get("shape", "")),
            **keys.costs(size),
        )
        for name, size in keys.every_size().items()
    ]
    return {spec.size: spec for spec in sorted(specs, key=lambda spec: (spec.parameters, spec.size))}


Whole = Annotated[int, Field(ge=1, le=10**9)]
Positive = Annotated[float, Field(gt=0, le=1e24)]


ABSENT: Any = None
"""Default of keys that may be left out but must not be null."""


class TransformerSize(StrictSchema):
    """Dimensions of one size of a transformer, as keys of a model file."""

    hidden: Whole
    layers: Whole
    heads: Whole


class MoeSize(TransformerSize):
    """Dimensions of one size of a mixture-of-experts model, with experts in every second layer."""

    layers: Annotated[int, Field(ge=2, le=10**9, multiple_of=2)]
    experts: Whole


class WideResNetSize(StrictSchema):
    """Dimensions of one size of a wide ResNet, as keys of a model file."""

    depth: Literal[50, 101]
    channels: Whole
    width_factor: Whole


class DenseSize(StrictSchema):
    """Total costs of one size of a data-parallel model; a multiply-add counts as 2 FLOPs."""

    parameters: Positive
    forward_flops_per_sample: Positive
    activation_bytes_per_sample: Positive
    layers: Whole


class ShapeSize(StrictSchema):
    """A published transformer, given by its name in conf/transformer/shapes.yaml or by a config.json file."""

    shape: Text


class Family(StrictSchema):
    """Base class of parsed model files: the data type and the sizes of a family, by name in `sizes`.

    A family with a single size has `size` instead.
    """

    kind: str
    dtype: Literal["fp16", "fp32"]
    batches: Annotated[list[Whole], Field(min_length=1)]
    relaunch_s: Positive | None = None
    size: Any = None
    sizes: dict[Text, Any] = Field(default_factory=dict)

    @property
    def element_bytes(self) -> int:
        """Bytes of one weight or activation by the family's data type."""
        return models.ELEMENT_BYTES[self.dtype]

    def every_size(self) -> dict[str, Mapping[str, Any]]:
        """Return the dimensions of each size by its name; a single size has an empty name."""
        sizes = self.sizes or {"": self.size}
        return {
            name: {key: getattr(size, key) for key in type(size).model_fields} for name, size in sizes.items()
        }

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Compute the costs (FLOPs, bytes, parameters) of a model size; each subclass has its own formula."""
        raise NotImplementedError

    def dimensions(self, size: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return all dimensions of one size as (key, value) pairs, with those of its family."""
        own = set(Family.model_fields)
        shared = {key: getattr(self, key) for key in type(self).model_fields if key not in own}
        return tuple(sorted((shared | dict(size)).items()))


class TransformerFamily(Family):
    """A parsed model file of transformers, whose sizes are given by dimensions."""

    vocabulary: Whole
    sequence_length: Whole
    size: TransformerSize = Field(default=ABSENT)
    sizes: dict[Text, TransformerSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Compute the costs (FLOPs, bytes, parameters) of a transformer with a size's dimensions."""
        return models.transformer(size, self.sequence_length, self.vocabulary, self.element_bytes)


class MoeFamily(Family):
    """A parsed model file of mixture-of-experts models, whose sizes are given by dimensions."""

    vocabulary: Whole
    sequence_length: Whole
    expert_group_size: Whole
    size: MoeSize = Field(default=ABSENT)
    sizes: dict[Text, MoeSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Compute the costs (FLOPs, bytes, parameters) of a mixture of experts with a size's dimensions."""
        return models.mixture_of_experts(
            size, self.sequence_length, self.vocabulary, self.element_bytes, self.expert_group_size
        )


class WideResNetFamily(Family):
    """A parsed model file of wide ResNets, whose sizes are given by dimensions."""

    image_size: Annotated[int, Field(ge=32, le=10**5, multiple_of=32)]
    classes: Whole
    size: WideResNetSize = Field(default=ABSENT)
    sizes: dict[Text, WideResNetSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Compute the costs (FLOPs, bytes, parameters) of a wide ResNet with a size's dimensions."""
        return models.wide_resnet(size, self.image_size, self.classes, self.element_bytes)


class DenseFamily(Family):
    """A parsed model file of models that train only data-parallel, given by their total costs."""

    size: DenseSize = Field(default=ABSENT)
    sizes: dict[Text, DenseSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Return a size's costs, whose FLOPs, parameters and activation bytes stand in the model file."""
        return models.dense(size)

    def dimensions(self, size: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return an empty tuple, since this family is given by costs and not by dimensions."""
        return ()


class ShapeFamily(Family):
    """A parsed model file of published transformers, given by names in the catalogue or config.json files."""

    sequence_length: Whole
    size: ShapeSize = Field(default=ABSENT)
    sizes: dict[Text, ShapeSize] = Field(default_factory=dict)

    def costs(self, size: Mapping[str, Any]) -> models.Costs:
        """Compute the costs of one model size as a whole, undivided among layers."""
        from clustergym.oracle.models.shape_files import load_transformer

        shape = load_transformer(size["shape"])
        tokens = self.sequence_length
        scores = tokens * shape.score_flops(tokens)
        layer_bytes = 34.0 * tokens * shape.hidden
        return {
            "parameters": float(shape.parameters),
            "expert_parameters": float(shape.expert_layers * shape.experts * shape.expert_parameters),
            "forward_flops_per_sample": 2.0 * tokens * shape.active_parameters + scores,
            "attention_flops": scores,
            "activation_bytes_per_sample": shape.all_layers * layer_bytes,
            "layer_bytes": layer_bytes,
            "layers": shape.all_layers,
            "tensor_limit": shape.heads,
        }

    def dimensions(self, size: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        """Return the tokens of a sample, the one dimension that a published transformer does not fix."""
        return (("sequence_length", self.sequence_length),)


ARCHITECTURES: dict[str, type[Family]] = {
    "transformer": TransformerFamily,
    "moe": MoeFamily,
    "wide_resnet": WideResNetFamily,
    "dense": DenseFamily,
    models.SHAPE: ShapeFamily,
}


def parse_family(source: YamlMapping) -> Family:
    """Check the content of a model family's YAML file, and return it as an object."""
    file, architecture = source.path, source.content.get("kind")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        missing = "kind" not in source.content
        message = "is missing" if missing else f"unknown kind {architecture!r}"
        line = None if missing else source.line(("kind",))
        raise InputError(
            message,
            file=file,
            line=line,
            field="kind",
            remedy=nearest(str(architecture or ""), ARCHITECTURES),
        )
    family = validate_content(ARCHITECTURES[architecture], source.content, file=file, source=source)
    if (family.size is None) == (not family.sizes):
        message = "give either `size` (a family of one size) or `sizes` (dimensions by name)"
        raise InputError(message, file=file, field="sizes", remedy="see conf/model/gpt3.yaml")
    return family
