"""The folder of a twin: the log, the cluster, the queues and the rules of one cluster.

The rules are read from what the cluster's scheduler prints.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from clustergym.common.errors import InputError
from clustergym.common.kubernetes import looks_like_objects
from clustergym.common.text_files import first_lines
from clustergym.common.writing import write_text
from clustergym.common.yaml_file import read_mapping
from clustergym.scenario.registry import make_policy
from clustergym.trace.formats import load_trace
from clustergym.trace.options import ReadOptions
from clustergym.trace.slurm_fields import CellRules
from clustergym.trace.trace import Trace

from ..policies.cohorts import read_kueue_rules
from ..policies.slurm_rules import OTHERS, Rules, read_accounts, read_config

LOG, CLUSTER, QUEUES, POLICY = "log.csv", "cluster.yaml", "queues.yaml", "policy.yaml"
REMEDY = {
    LOG: "write it with clustergym trace import --format sacct SRC -o FOLDER/log.csv",
    CLUSTER: "write it with clustergym cluster import SRC -o FOLDER/cluster.yaml",
    POLICY: "write it with clustergym twin rules SRC -o FOLDER, or name the rules with --policy",
}
"""How each file of a twin's folder comes to be."""


@dataclass(frozen=True)
class TwinFolder:
    """The folder with the files of a cluster's digital twin: log, cluster, queues and policy.

    Attributes
    ----------
    path : Path
    """

    path: Path

    def file(self, name: str) -> Path:
        """Return the path of a file; if it is missing, raise an `InputError` that says how to write it."""
        found = self.path / name
        if not found.is_file():
            raise InputError("no such file", file=found, remedy=REMEDY.get(name))
        return found

    def content(self, name: str) -> dict[str, Any]:
        """Read a YAML file of the folder, and return its content."""
        return dict(read_mapping(self.file(name)).content)

    @property
    def queues(self) -> Path | None:
        """Path of the file of queues; None if there is none."""
        found = self.path / QUEUES
        return found if found.is_file() else None

    @cached_property
    def log(self) -> Trace:
        """The log's jobs as a trace in which one iteration lasts one second, so that run times are kept."""
        from clustergym.cluster.cluster_files import gpu_type_names, load_cluster

        cluster = load_cluster(str(self.file(CLUSTER)))
        options = ReadOptions(
            reference_time_s=lambda model, gpu_type, gpus: 1.0,
            reference_gpu="",
            reference_cluster=cluster.name,
            recorded_types=cluster.gpu_types,
            gpu_types=(),
            type_name=gpu_type_names(cluster),
            outcomes="keep",
            node_gpus=dict(zip(cluster.gpu_types, cluster.gpus_per_node.tolist(), strict=True)),
            power_of_two=False,
        )
        return load_trace(self.file(LOG), "auto", options)

    def words(
        self,
        *,
        log: str | None = None,
        cluster: Path | None = None,
        queues: Path | None = None,
        more: Sequence[str] = (),
    ) -> list[str]:
        """Return the configuration overrides of a run of this cluster, except those of its policy.

        Parameters
        ----------
        log : str, optional
            A log in place of the folder's.
        cluster, queues : Path, optional
            Likewise.
        more : sequence of str
            Further overrides, after these.
        """
        limits = self.log.time_limit_s
        cluster, queues = cluster or self.file(CLUSTER), queues or self.queues
        words = [f"cluster.path={quote_path(cluster)}", f"trace.path={log or quote_path(self.file(LOG))}"]
        words += [f"scenario.queues={quote_path(queues)}"] if queues is not None else []
        words += ["trace.time_limits=keep"] if limits is not None and np.isfinite(limits).any() else []
        return [*words, *more]

    def policy_words(self, given: str | None) -> list[str]:
        """Return the overrides for a policy: `NAME KEY=VALUE …`, a YAML file, or None: the folder's."""
        if given is None:
            return parameter_words(self.content(POLICY))
        name, *rest = given.split()
        if name.endswith((".yaml", ".yml")):
            return [*parameter_words(read_mapping(Path(name)).content), *rest]
        return [f"policy={name}", *(f"policy.{word.removeprefix('policy.')}" for word in rest)]


def parameter_words(content: Mapping[str, Any]) -> list[str]:
    """Return the configuration overrides that choose a policy with these parameters."""
    policy = make_policy(content)
    own = {key: value for key, value in content.items() if key != "name"}
    return [f"policy={policy.name}", *(f"policy.{key}={json.dumps(value)}" for key, value in own.items())]


def quote_path(path: Path) -> str:
    """Return a path, made absolute, as a quoted value for a configuration override."""
    text = str(path.absolute()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def write_rules(
    folder: Path, queues: Mapping[str, Any], policy: Mapping[str, Any], source: str
) -> list[Path]:
    """Write a twin's files of queues and policy, read them again as a check, and return their paths."""
    from clustergym.scenario.tenants.queue_tree import load_queues

    written = []
    for name, content in ((QUEUES, queues), (POLICY, policy)):
        text = f"# From {source}.\n" + yaml.safe_dump(dict(content), sort_keys=False, default_flow_style=None)
        write_text(folder / name, text, "--output")
        written.append(folder / name)
    load_queues(folder / QUEUES)
    make_policy(policy)
    return written


GIVE_RULES = (
    "give what scontrol show config, sacctmgr -P show assoc or kubectl get clusterqueues -o json prints"
)


def read_rules(
    sources: Sequence[Path],
    by: Literal["account", "user"],
    fair_sharing: bool,
    hashed: CellRules | None = None,
) -> Rules:
    """Read scheduling rules from files of Slurm or Kueue; a Slurm queue is an account or a user (`by`).

    Names of Slurm's accounts and users are replaced by hashes if `hashed` says how.

    Without Slurm's configuration jobs start by age and backfill, Slurm's defaults; without its accounts all
    jobs are in one queue.
    """
    one_queue = {"assign_by": "virtual_cluster", "unknown": OTHERS, "queues": {OTHERS: {}}}
    rules = Rules(one_queue, {"name": "slurm-multifactor", "round_s": None})
    kueue = [path for path in sources if looks_like_objects(first_lines(path))]
    if kueue:
        if len(kueue) < len(sources):
            raise InputError("mixes Kueue with Slurm", file=sources[0], remedy=GIVE_RULES)
        if hashed is not None:
            raise InputError("is for Slurm's accounts", field="--hash-users", remedy="leave it out")
        return read_kueue_rules(kueue, fair_sharing)
    for path in sources:
        lines = first_lines(path)
        head = [cell.strip().lower() for cell in lines[0].split("|")] if lines else []
        if {"account", "user"} <= set(head):
            rules.queues, guessed = read_accounts(path, by, hashed)
        else:
            rules.policy, guessed = read_config(path)
        rules.guessed += guessed
    return rules
