"""The catalogue of models: one YAML file per model family, read when the family is first used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.oracle.models.model_class import ModelClass
from clustergym.oracle.models.model_spec import ModelSpec

ARENA_FAMILIES = {"bert": "gpt3", "moe": "gshard_moe", "wide_resnet": "wide_resnet"}
"""Maps family names in Arena's published files to families of the catalogue."""


class Catalog:
    """A catalogue of models by family and size.

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
        """Return the sizes of a known family, smallest model first; ("",) for a family with a single size."""
        return tuple(self._family(family))

    def knows(self, model: ModelClass) -> bool:
        """Whether the catalogue has a model's family and size."""
        return model.family in self.files and model.size in self._family(model.family)

    def get(
        self,
        model: ModelClass,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> ModelSpec:
        """Return the specification of a model; its global batch may be any number of samples from 1.

        Parameters
        ----------
        model : ModelClass
        file, line, field : optional
            Where the model was named, for the error message.

        Raises
        ------
        InputError
            If family or size are unknown, with the nearest known; if the batch is not positive.
        """
        message, remedy = self._problem(model)
        if message:
            raise InputError(message, file=file, line=line, field=field, remedy=remedy)
        return self._family(model.family)[model.size]

    def fingerprint(self) -> dict[str, str]:
        """Return the SHA-256 digest of every family's file."""
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
    """Load the catalogue of models from `conf/model`; each YAML file is named after its family.

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
    from clustergym.common.yaml_file import read_mapping
    from clustergym.oracle.models.model_schema import parse_family

    keys = parse_family(read_mapping(path))
    specs = [
        ModelSpec(
            family=family,
            size=name,
            kind=keys.kind,
            dtype=keys.dtype,
            batches=tuple(keys.batches),
            relaunch_s=keys.relaunch_s,
            dimensions=keys.dimensions(size),
            **keys.costs(size),
        )
        for name, size in keys.every_size().items()
    ]
    return {spec.size: spec for spec in sorted(specs, key=lambda spec: (spec.parameters, spec.size))}
