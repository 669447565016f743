"""Read the rules of a Slurm cluster: accounts and users as queues, priorities as a policy's settings.

Of Slurm's priority of a job, the factor of the fair share of its user.

Sources: SchedMD, priority_multifactor, fair_tree and tres.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from clustergym.cluster.slurm_text import known_type, span_s
from clustergym.common.errors import InputError
from clustergym.common.left_out import leave_out, not_modelled, not_read
from clustergym.common.text_files import read_text
from clustergym.scenario.tenants.queue_tree import QueueTree
from clustergym.trace.slurm_fields import CellRules

COLUMNS = ("account", "user", "parentname", "parname", "share", "grptres", "cluster", "")
OTHERS = "others"
"""Queue of jobs whose account or user is in no list."""
ASSOC_REMEDY = "print it with sacctmgr -P show assoc format=Account,User,ParentName,Share,GrpTRES"
CONFIG_REMEDY = "print it with scontrol show config"
FACTORS = ("age", "fair_share", "job_size", "partition", "qos")
WEIGHTS = {f"priorityweight{name.replace('_', '')}": f"weight_{name}" for name in FACTORS}
SPANS = {
    "prioritymaxage": "max_age_s",
    "prioritydecayhalflife": "half_life_s",
    "prioritycalcperiod": "fair_share_interval_s",
}
"""Keys of Slurm's configuration in lower case, and parameters of the policy `slurm-multifactor`."""
USED = {"schedulertype", "schedulerparameters", "boot_time", "prioritytype", "priorityflags"}
USED |= {"priorityfavorsmall", "fairsharedampeningfactor", *WEIGHTS, *SPANS}
RULES = (
    "burstbuffertype dependencyparameters federationparameters jobsubmitplugins licenses overtimelimit "
    "preemptexempttime preemptmode preemptparameters preempttype prioritysitefactorparameters "
    "prioritysitefactorplugin priorityusageresetperiod priorityweightassoc priorityweighttres resvoverrun "
    "topologyparam topologyplugin"
)
"""Keys that decide who starts when, read and not modelled, in lower case."""
NOTHING = {"", "(null)", "n/a", "none", "off", "0", "0 min", "00:00:00", "preempt/none", "topology/none"}
NOTHING |= {"topology/default", "topology/flat"}
"""Values of such keys that ask for nothing."""
PLUGINS = {
    "prioritytype": ("priority/multifactor", "priority/basic", "multifactor", "basic"),
    "schedulertype": ("sched/backfill", "sched/builtin", "backfill", "builtin"),
}
"""Keys that name a plug-in of Slurm, and those that are followed."""
WORDS = {
    "priorityflags": {"no_fair_tree", "fair_tree", "calculate_running"},
    "schedulerparameters": {"bf_interval", "bf_resolution", "batch_sched_delay"},
}
"""Words of keys that are modelled, or change nothing here."""
OTHER_KEYS = re.compile(
    r"accounting|acctgather|allowspec|auth|batchstart|bcast|certgen|certmgr|clifilter|clustername|communication|"
    r"complete|corespec|cpufreq|cred|dataparser|debugflags|defmem|disablerootjobs|eiotimeout|enforcepart|"
    r"epilog|extsensors|firstjobid|getenv|gpufreq|grestypes|group|hash|health|inactive|interactive|jobacct|jobcomp|jobcontainer|"
    r"jobcredential|jobdefaults|jobfile|jobrequeue|kill|launch|logtime|mail|max|mcs|messagetimeout|minjobage|mpi|"
    r"multiple_slurmd|namespace|next_job_id|nodefeatures|plugindir|plugstack|power|prep|priorityparameters|"
    r"prioritycalcperiod|private|proctrack|prolog|propagate|reboot|reconfig|requeue|resume|resvepilog|resvprolog|"
    r"returntoservice|route|scheduler(timeslice)|scron|select|slurm|srun|statesave|suspend|switch|task|tcp|tls|"
    r"tmpfs|track|tree|unkillable|url|usepam|vsize|wait|x11"
)
"""How keys begin, in lower case, that do not decide who starts when."""
_GPU_LIMIT = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,7})", re.ASCII)


@dataclass
class Rules:
    """A Slurm cluster's rules as the keys of a queues file and of a policy, with counts of what was guessed.

    Attributes
    ----------
    queues, policy : dict
    guessed : Counter
        What was guessed, and how often.
    """

    queues: dict[str, Any]
    policy: dict[str, Any]
    guessed: Counter[str] = field(default_factory=Counter)


class _Config:
    """The keys of `scontrol show config`, in lower case; errors name the line of a key."""

    def __init__(self, path: Path) -> None:
        text, _ = read_text(path)
        self.path, self.text, self._lines = path, dict[str, str](), dict[str, int]()
        self.names = dict[str, str]()
        for number, line in enumerate(text.splitlines(), start=1):
            key, equals, value = line.partition("=")
            if equals:
                name = key.strip().lower()
                self.text[name], self._lines[name], self.names[name] = value.strip(), number, key.strip()

    def name_unused(self) -> None:
        """Note the keys and words that decide who starts when and are not modelled, and unknown keys."""
        rules = set(RULES.split())
        given = ((key, name) for key, name in self.names.items() if self.text[key].lower() not in NOTHING)
        not_modelled(name for key, name in given if key in rules)
        for key, used in WORDS.items():
            words = (word.partition("=")[0].strip() for word in self.text.get(key, "").split(","))
            unused = (word for word in words if word.lower() not in NOTHING | used)
            not_modelled(f"{self.names[key]} {word}" for word in unused)
        for key, followed in PLUGINS.items():
            if self.text.get(key, followed[0]) not in followed:
                not_modelled([f"{self.names[key]} {self.text[key]}"])
        known = USED | rules
        unknown = (key for key in self.text if key not in known and not OTHER_KEYS.match(key))
        not_read(f"key {self.names[key]}" for key in unknown)

    def amount(self, key: str, text: str) -> float:
        """Return the value of a key as a number; a time span becomes seconds."""
        try:
            value = float(text) if ":" not in text else span_s(text)
            if not 0 <= value < 1e12:
                raise ValueError(f"{text[:40]!r} is no amount")
        except ValueError as problem:
            line = self._lines.get(key, self._lines.get("schedulerparameters"))
            remedy = CONFIG_REMEDY
            raise InputError(str(problem), file=self.path, line=line, field=key, remedy=remedy) from problem
        return value


def read_config(path: Path) -> tuple[dict[str, Any], Counter[str]]:
    """Read what `scontrol show config` prints as parameters of `slurm-multifactor`; count guesses."""
    config, guessed = _Config(path), Counter[str]()
    given = config.text
    config.name_unused()
    if "schedulertype" not in given:
        raise InputError("is missing", file=path, field="SchedulerType", remedy=CONFIG_REMEDY)
    found: dict[str, Any] = {"name": "slurm-multifactor", "round_s": None, "backfill": "none"}
    if "backfill" in given["schedulertype"]:
        parts = (part.partition("=") for part in given.get("schedulerparameters", "").split(","))
        own = {key.strip(): value for key, equals, value in parts if equals}
        found["backfill"] = "slurm"
        found["backfill_interval_s"] = config.amount("bf_interval", own.get("bf_interval", "30"))
        found["batch_sched_delay_s"] = config.amount("batch_sched_delay", own.get("batch_sched_delay", "3"))
        found["backfill_resolution_s"] = config.amount("bf_resolution", own.get("bf_resolution", "60"))
    if given.get("boot_time"):
        found["booted"] = given["boot_time"]
    if "multifactor" not in given.get("prioritytype", ""):
        guessed["PriorityType is not multifactor: jobs by submission"] += 1
        return found | dict.fromkeys(WEIGHTS.values(), 0.0), guessed
    found |= {name: config.amount(key, given.get(key, "0")) for key, name in WEIGHTS.items()}
    for key, name in SPANS.items():
        if key in given and (value := config.amount(key, given[key])) > 0:
            found[name] = value
    found["fair_share"] = "classic" if "NO_FAIR_TREE" in given.get("priorityflags", "") else "fair_tree"
    found["favor_small"] = given.get("priorityfavorsmall", "no").lower() in ("yes", "1", "true")
    key = "fairsharedampeningfactor"
    found["damping"] = config.amount(key, given.get(key, "1")) or 1.0
    return found, guessed


def read_accounts(
    path: Path, by: Literal["account", "user"] = "account", hashed: CellRules | None = None
) -> tuple[dict[str, Any], Counter[str]]:
    """Read a file with `sacctmgr -P show assoc` as a queues file's tree of accounts; count guesses.

    Parameters
    ----------
    path : Path
    by : str
        `account`: an account without accounts in it is a queue, whose jobs are alike whoever submits them.
        `user`: each user is a queue, in the one account that has it.
    hashed : CellRules, optional
        How names of users and accounts are replaced by hashes; None: they stay.
    """
    text, _ = read_text(path)
    head, *lines = text.splitlines()
    names = [cell.strip().lower().replace(" ", "") for cell in head.split("|")]
    for column in ("Account", "User"):
        if column.lower() not in names:
            raise InputError("column missing", file=path, line=1, field=column, remedy=ASSOC_REMEDY)
    not_read(f"column {name}" for name in names if name not in COLUMNS)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.strip()]
    whole = [row for row in cells if len(row) == len(names)]
    leave_out("row", "its cells do not fit the header", len(cells) - len(whole))
    rows = [dict.fromkeys(COLUMNS, "") | dict(zip(names, row, strict=True)) for row in whole]
    hide = (hashed or CellRules()).name
    for row in rows:
        row["parentname"] = row["parentname"] or row["parname"]
        people = {key: row[key] for key in ("account", "user", "parentname")}
        row.update({key: name if name == "root" else hide(name) for key, name in people.items()})
    asks = (row["share"] not in ("", "1", "parent") or row["grptres"] for row in rows if row["user"])
    if by == "account" and any(asks):
        not_modelled(["shares and limits of users (give --by user)"])
    guessed = Counter[str]()
    if not {"parentname", "parname"} & set(names):
        guessed["no column ParentName: all accounts beside each other"] += 1
    accounts = {row["account"]: row for row in rows if not row["user"] and row["account"] not in ("", "root")}
    parents = {
        name: row["parentname"] if row["parentname"] in accounts else None for name, row in accounts.items()
    }
    queues = {name: _queue(row, parents[name]) for name, row in accounts.items()}
    if by == "user":
        seen: dict[str, str] = {}
        for row in (row for row in rows if row["user"] and row["account"] in accounts):
            user, account = row["user"], row["account"]
            if seen.setdefault(user, account) != account:
                message = f"user {user!r} is in {seen[user]} and {account}"
                raise InputError(message, file=path, field="User", remedy="give --by account")
            queues[f"{account}/{user}"] = {**_queue(row, account), "members": [user]}
    else:
        inner = (parent for parent in parents.values() if parent is not None)
        queues |= {f"{name}/own": {"parent": name, "members": [name]} for name in inner}
    guessed["shares that are all 0, taken as 1"] += _without_zeros(queues)
    queues.setdefault(OTHERS, {"weight": 0.0} if queues else {})
    settings = {"assign_by": "user" if by == "user" else "virtual_cluster", "unknown": OTHERS}
    return {**settings, "queues": queues}, guessed


def _without_zeros(queues: dict[str, Any]) -> int:
    """Give queues beside each other equal shares where all have none; return how often."""
    changed = 0
    for parent in {queue.get("parent") for queue in queues.values()}:
        beside = [queue for queue in queues.values() if queue.get("parent") == parent]
        if not any(queue.get("weight", 1.0) for queue in beside):
            changed += 1
            for queue in beside:
                del queue["weight"]
    return changed


def _queue(row: Mapping[str, str], parent: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if parent is None else {"parent": parent}
    share = row["share"]
    if share.isascii() and share.isdigit() and len(share) < 10 and int(share) != 1:
        found["weight"] = float(share)
    elif share not in ("", "1"):
        not_modelled([f"Share {share}"])
    entries = [entry.strip() for entry in row["grptres"].split(",") if entry.strip()]
    matches = {entry: _GPU_LIMIT.fullmatch(entry) for entry in entries}
    not_modelled(f"GrpTRES {entry.partition('=')[0]}" for entry, found in matches.items() if found is None)
    limits = {match[1] or "": int(match[2]) for match in matches.values() if match}
    if "" in limits:
        # A limit without a type is on the sum over types, which the limit of a queue is not: it is on each.
        found["limit"] = limits[""]
    elif limits:
        found["limit"] = {known_type(gpu_type): count for gpu_type, count in limits.items()}
    return found


def classic_fair_share(tree: QueueTree, used: Mapping[str, float], damping: float) -> dict[str, float]:
    """Return each leaf queue's fair-share factor by Slurm's classic rule: 2^(-(usage / shares) / damping).

    An account's usage is its own part of all use, plus its shares of the rest of its parent's.

    Parameters
    ----------
    tree : QueueTree
    used : mapping of str to float
        Decayed use of each leaf.
    damping : float
    """
    of_all, found = _sum_use(tree, used), dict[str, float]()
    total = max(sum(used.values()), 1e-300)

    def visit(beside: Sequence[str], above: float | None, shares: float) -> None:
        raw = sum(tree.queues[name].weight for name in beside)
        for name in beside:
            part, own = tree.queues[name].weight / raw, of_all[name] / total
            usage = own if above is None else own + (above - own) * part
            if tree.children[name]:
                visit(tree.children[name], usage, shares * part)
            else:
                due = shares * part
                found[name] = float(2.0 ** (-usage / due / damping)) if due else 0.0

    visit(tree.children[None], None, 1.0)
    return found


def fair_tree(tree: QueueTree, used: Mapping[str, float]) -> dict[str, float]:
    """Return each leaf queue's fair-share factor (above 0, up to 1) by Slurm's Fair Tree rule.

    At each level siblings go by shares over use, both as parts of the level's; the best account's users come
    before those of the next. Accounts that tie are merged, users that tie share a rank. `used` is the decayed
    use of each leaf.
    """
    of_all, ranked = _sum_use(tree, used), list[list[str]]()

    def visit(siblings: Sequence[str]) -> None:
        for tied in _group_tied({name: (tree.queues[name].weight, of_all[name]) for name in siblings}):
            if users := [name for name in tied if not tree.children[name]]:
                ranked.append(users)
            if merged := [member for name in tied for member in tree.children[name]]:
                visit(merged)

    visit(tree.children[None])
    users = rank = sum(map(len, ranked))
    found: dict[str, float] = {}
    for tied in ranked:
        found |= dict.fromkeys(tied, rank / users)
        rank -= len(tied)
    return found


def _sum_use(tree: QueueTree, used: Mapping[str, float]) -> dict[str, float]:
    """Return the use of each queue; of an account that of all who are in it."""
    found: dict[str, float] = {}
    for name in reversed(tree.queues):
        below = tree.children[name]
        found[name] = sum(found[member] for member in below) if below else used.get(name, 0.0)
    return found


def _group_tied(siblings: Mapping[str, tuple[float, float]]) -> Iterator[list[str]]:
    """Yield those who have equal shares over use, given (shares, use) by name, the highest first.

    As parts of the level's they order alike.
    """
    rounded: dict[float, list[str]] = {}
    for name, (shares, used) in siblings.items():
        rounded.setdefault(shares / used if used else math.inf, []).append(name)
    for _, beside in sorted(rounded.items(), key=lambda item: -item[0]):
        # Division rounds in order, so that only what it makes equal is to be compared exactly.
        levels: dict[Fraction | float, list[str]] = {}
        for name in beside if len(beside) > 1 else ():
            shares, used = siblings[name]
            levels.setdefault(Fraction(shares) / Fraction(used) if used else math.inf, []).append(name)
        yield from (levels[level] for level in sorted(levels, reverse=True)) if levels else [beside]
