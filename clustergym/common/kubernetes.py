"""Read lists of Kubernetes objects, as `kubectl get … -o json` and `-o yaml` print them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.reading import parse_json
from clustergym.common.text_files import read_bytes
from clustergym.common.yaml_file import parse_mapping

GPU = "nvidia.com/gpu"
"""The resource that is counted as GPUs."""
REMEDY = "print it with kubectl get KIND -A -o json"


class KubernetesObject:
    """A Kubernetes object, with access to its fields by path.

    Parameters
    ----------
    path : Path
        Its file, for errors.
    content : mapping
    """

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path, self.content = path, content

    @property
    def kind(self) -> str:
        """The object's type, such as `Workload`."""
        return self.text("kind")

    @property
    def name(self) -> str:
        """The object's `metadata.name`."""
        return self.text("metadata.name")

    def error(self, field: str, message: str) -> InputError:
        """Return an error that names the object and a field of it."""
        where = f"{self.kind} {self.name}: {field}" if field != "metadata.name" else field
        return InputError(message, file=self.path, field=where, remedy=REMEDY)

    def get(self, field: str, expected: type | tuple[type, ...], missing: Any) -> Any:
        """Return the value of a field, such as `spec.queue`, or `missing` if there is none or it is null.

        Raises
        ------
        InputError
            If it is of another type.
        """
        found: Any = self.content
        for key in field.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is None:
            return missing
        if not isinstance(found, expected) or isinstance(found, bool):
            raise self.error(field, f"is of another type than expected: {str(found)[:40]!r}")
        return found

    def text(self, field: str) -> str:
        """Return the text in a field, such as `metadata.name`; empty if there is none."""
        return str(self.get(field, (str, int), ""))

    def flag(self, *keys: str) -> bool:
        """Return whether the value at a path of keys is true."""
        found: Any = self.content
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found is True

    def items(self, field: str) -> list[KubernetesObject]:
        """Return the list in a field as objects, each with access to its own fields."""
        found = self.get(field, list, [])
        if not all(isinstance(entry, Mapping) for entry in found):
            raise self.error(field, "is not a list of objects")
        same = {"kind": self.kind, "metadata": {"name": self.name}}
        return [KubernetesObject(self.path, {**same, **entry}) for entry in found]

    def labels(self) -> dict[str, str]:
        """Return the object's labels, including the node labels that a ResourceFlavor requires."""
        found = {**self.get("metadata.labels", dict, {}), **self.get("spec.nodeLabels", dict, {})}
        return {str(key): str(value) for key, value in found.items()}


def read_objects(path: Path) -> list[KubernetesObject]:
    """Read the Kubernetes objects in a file, which holds a list or one object.

    Raises
    ------
    InputError
        If the file is neither JSON nor YAML, or an object has no kind.
    """
    content = read_bytes(path)
    start = content.lstrip()[:1]
    value = (
        parse_json(content, path, REMEDY) if start in (b"{", b"[") else parse_mapping(content, path).content
    )
    found = [KubernetesObject(path, entry) for entry in _objects(value, path)]
    for one in found:
        if not one.kind:
            raise InputError("has an object without a kind", file=path, field="kind", remedy=REMEDY)
    return found


def _objects(value: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    listed = value.get("items") if isinstance(value, Mapping) and "items" in value else value
    for entry in listed if isinstance(listed, list) else [listed]:
        if not isinstance(entry, Mapping):
            raise InputError("is not a list of Kubernetes objects", file=path, remedy=REMEDY)
        yield entry


def quantity(one: KubernetesObject, field: str, value: Any) -> int:
    """Return a number of GPUs that Kubernetes writes as a number or a text.

    Raises
    ------
    InputError
        If it is not a whole number from 0 to a million.
    """
    text = str(value)
    if (
        isinstance(value, bool)
        or not (text.isascii() and text.isdigit())
        or len(text) > 7
        or int(text) > 10**6
    ):
        raise one.error(field, f"{text[:40]!r} is no number of GPUs")
    return int(text)
