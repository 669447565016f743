"""Read lists of Kubernetes objects, as `kubectl get … -o json` and `-o yaml` print them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.left_out import leave_out, not_read
from clustergym.common.reading import parse_json
from clustergym.common.text_files import read_bytes
from clustergym.common.yaml_file import parse_documents

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
"""Resources that are counted as GPUs."""
PARTS = re.compile(
    r"mig-|gpu\.shared|shared-?gpu|v-?gpu|gpu-?(mem|core|share|percent)|vcuda|/sgpu|gpu_?slice"
)
"""Resources that are parts of GPUs: MIG devices, shares in time or in memory, virtual GPUs."""
OTHER_RESOURCES = re.compile(r"^(cpu|memory|pods|ephemeral-storage|hugepages-.*|attachable-volumes-.*)$")
REMEDY = "print it with kubectl get KIND -A -o json"
KEYS = {
    "": "apiVersion kind metadata spec status",
    "metadata": "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers"
    " generateName generation labels managedFields name namespace ownerReferences resourceVersion selfLink"
    " uid",
    "Node.spec": "configSource externalID podCIDR podCIDRs providerID taints unschedulable",
    "Node.status": "addresses allocatable capacity conditions config daemonEndpoints features images nodeInfo"
    " phase runtimeHandlers volumesAttached volumesInUse",
    "Workload.spec": "active maximumExecutionTimeSeconds podSets priority priorityClassName priorityClassRef"
    " priorityClassSource queueName",
    "Workload.status": "accumulatedPastExecutionTimeSeconds accumulatedPastExexcutionTimeSeconds admission"
    " admissionChecks clusterName conditions nominatedClusterNames reclaimablePods requeueState"
    " resourceRequests schedulingStats unhealthyNodes",
    "ClusterQueue.spec": "admissionChecks admissionChecksStrategy admissionScope cohort cohortName"
    " fairSharing flavorFungibility namespaceSelector preemption queueingStrategy resourceGroups stopPolicy",
    "Cohort.spec": "fairSharing parent parentName resourceGroups",
    "LocalQueue.spec": "clusterQueue fairSharing stopPolicy",
    "ResourceFlavor.spec": "nodeLabels nodeTaints tolerations topologyName",
}
"""Keys that an object may have, by type and field; other keys are named as not read."""


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
        # Not by the properties, which raise this error where the fields are no text.
        about = self.content.get("metadata")
        name = about.get("name") if isinstance(about, Mapping) else None
        known = [str(part) for part in (self.content.get("kind"), name) if isinstance(part, str)]
        where = f"{' '.join(known)}: {field}" if known else field
        return InputError(message, file=self.path, field=where, remedy=REMEDY)

    def get(self, field: str, expected: type | tuple[type, ...], missing: Any) -> Any:
        """Return the value of a field, such as `spec.queue`, or `missing` if there is none or it is null."""
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

    def check_keys(self) -> None:
        """Note the keys of the object that Kubernetes, or Kueue, does not have."""
        what = self.kind
        for field in ("", "metadata", "spec", "status"):
            known = KEYS.get(f"{what}.{field}", KEYS.get(field))
            part = self.content.get(field) if field else self.content
            if known is not None and isinstance(part, Mapping):
                above = f"{field}." if field else ""
                not_read([f"{what} {above}{key}" for key in part if key not in known.split()])


def looks_like_objects(lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like Kubernetes objects, in JSON or YAML."""
    text = "\n".join(line for line in lines if not line.startswith(("#", "---")))
    return (
        text.lstrip()[:1] in ("{", "[")
        or re.search(r"^(apiVersion|items|metadata): ?", text, re.M) is not None
    )


def read_objects(path: Path, used: Sequence[str]) -> list[KubernetesObject]:
    """Read those Kubernetes objects in a file that are `used`; it holds objects, lists or several documents.

    Others are left out and counted.
    """
    content = read_bytes(path)
    if content.lstrip()[:1] in (b"{", b"["):
        documents = [parse_json(content, path, REMEDY)]
    else:
        documents = [document.content for document in parse_documents(content, path)]
    found = []
    for one in (KubernetesObject(path, entry) for value in documents for entry in _objects(value, path)):
        what = one.kind
        if not what:
            raise InputError("has an object without a kind", file=path, field="kind", remedy=REMEDY)
        if what in used:
            one.check_keys()
            found.append(one)
        else:
            leave_out("object", f"{what} is not read")
    return found


def _objects(value: Any, path: Path) -> Iterator[Mapping[str, Any]]:
    is_list = isinstance(value, Mapping) and isinstance(value.get("items"), list)
    if is_list:
        not_read([f"List {key}" for key in value if key not in ("items", *KEYS[""].split())])
    listed = value["items"] if is_list else value
    for entry in listed if isinstance(listed, list) else [listed]:
        if not isinstance(entry, Mapping):
            raise InputError("is not a list of Kubernetes objects", file=path, remedy=REMEDY)
        yield entry


_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})(m|k|M)?", re.ASCII)
_SUFFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6}


def amount(one: KubernetesObject, field: str, value: Any) -> float:
    """Return an amount that Kubernetes writes as a number or a text, such as 0.5, "1500m" or "2k"."""
    found = None if isinstance(value, bool) else _AMOUNT.fullmatch(str(value))
    if found is None:
        raise one.error(field, f"{str(value)[:40]!r} is no amount")
    return float(found[1]) * _SUFFIXES[found[2] or ""]


def quantity(one: KubernetesObject, field: str, value: Any) -> int:
    """Return a number of GPUs that Kubernetes writes as a number or a text."""
    try:
        found = amount(one, field, value)
    except InputError:
        found = -1.0
    if not (0 <= found <= 10**6 and found.is_integer()):
        raise one.error(field, f"{str(value)[:40]!r} is no number of GPUs")
    return int(found)


def count_gpus(one: KubernetesObject, field: str, amounts: Mapping[str, Any]) -> tuple[int, str, list[str]]:
    """Return the whole GPUs in a mapping of resources, the resource, and names of parts of GPUs in it."""
    counts = {name: quantity(one, f"{field}: {name}", amounts[name]) for name in GPUS if name in amounts}
    whole = [name for name, count in counts.items() if count]
    if len(whole) > 1:
        raise one.error(field, f"has {' and '.join(whole)}: which GPUs are meant is not known")
    parts = [name for name in map(str, amounts) if PARTS.search(name) and str(amounts[name]) != "0"]
    known = [*counts, *parts]
    not_read(
        [f"resource {name}" for name in map(str, amounts) if not OTHER_RESOURCES.match(name)],
        [f"resource {name}" for name in known],
    )
    return (counts[whole[0]], whole[0], parts) if whole else (0, "", parts)
