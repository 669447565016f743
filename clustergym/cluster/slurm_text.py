"""Parse Slurm's texts on GPUs and nodes: TRES, GRES, names of GPU types, lists of hosts."""

from __future__ import annotations

import re

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.common.columns import MAX_GPUS

UNKNOWN_TEXTS = frozenset({"", "n/a", "none", "unknown", "(null)", "none assigned", "null"})
"""What Slurm prints, in lower case, where it has nothing to say."""

_TRES = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,9})", re.ASCII)
_GRES = re.compile(
    r"(?:gres[:/])?gpu(?::([^:,()=]*[A-Za-z][^:,()=]*))?(?:[:=](\d{1,9}))?(?:\([^)]*\))?", re.ASCII
)


def known_type(name: str) -> str:
    """Return the catalogue's GPU type that a name contains, or the name itself if it contains none.

    So `nvidia_a100-sxm4-80gb` and `NVIDIA-A100-PCIE-40GB` are A100.
    """
    known = {gpu_type.lower(): gpu_type for gpu_type in load_gpu_types()}
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+", name[:200]) if word]
    joined = ("".join(words[at : at + many]) for many in (3, 2, 1) for at in range(len(words) - many + 1))
    return next((known[word] for word in joined if word in known), name)


def gpus_of_tres(text: str) -> tuple[int, str]:
    """Return the number of GPUs in a TRES list such as `cpu=8,gres/gpu:a100=4`, and their most frequent type.

    The type is empty where none is named; GPU memory and utilisation do not count.
    """
    total, by_type = 0, dict[str, int]()
    for gpu_type, count in _TRES.findall(text):
        if gpu_type:
            by_type[gpu_type] = by_type.get(gpu_type, 0) + int(count)
        else:
            total += int(count)
    most = max(by_type, key=lambda gpu_type: by_type[gpu_type], default="")
    # The sum without a type stands beside the typed ones, of which it is the sum.
    return min(max(total, sum(by_type.values())), 2 * MAX_GPUS), known_type(most) if most else ""


def gpus_of_gres(text: str) -> tuple[int, str]:
    """Return the number of GPUs in a GRES list such as `gpu:a100:4(S:0-1)`, and their most frequent type."""
    by_type = dict[str, int]()
    for part in re.split(r",(?![^(]*\))", text):
        if found := _GRES.fullmatch(part.strip()):
            gpu_type, count = found.groups()
            by_type[gpu_type or ""] = by_type.get(gpu_type or "", 0) + int(count or 1)
    most = max(by_type, key=lambda gpu_type: by_type[gpu_type], default="")
    return min(sum(by_type.values()), 2 * MAX_GPUS), known_type(most) if most else ""


def read_gpus(text: str) -> tuple[int, str]:
    """Return the number of GPUs in a Slurm list, TRES or GRES, and their most frequent type."""
    return gpus_of_tres(text) if "gres/gpu" in text and "=" in text else gpus_of_gres(text)
