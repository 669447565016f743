"""A Slurm cluster on this machine, without root: slurmctld and a slurmd for each node.

A terminal stands for each GPU, as Slurm wants a file for it, or a CPU. Nothing is authenticated: while it
runs, every account of this machine can submit jobs to it, which run as the account that started it.
"""

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError

from .slurm import Slurm, last_line

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    *("libmunge2", "libhwloc15", "libxnvctrl0"),
)
"""Debian's packages that the daemons need beyond a small installation: 3.4 MB."""
START_S, STOP_S = 60.0, 5.0
"""Most wall seconds until all nodes are idle, and until a daemon that was asked to end is killed."""
SETTINGS = """\
AuthInfo=cred_expire=5
ClusterName=clustergym
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completions.txt
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/basic
ReturnToService=0
SlurmdParameters=config_overrides
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
KillWait=1
MinJobAge=2
SlurmdTimeout=300
"""


def node_names(cluster: ClusterSpec) -> list[str]:
    """Return a name for each node of a cluster, made of its GPU type and a number, such as `a40n0`."""
    names, seen = [], dict.fromkeys(range(len(cluster.gpu_types)), 0)
    for gpu_type in cluster.node_type.tolist():
        plain = re.sub(r"[^a-z0-9]", "", cluster.gpu_types[gpu_type].lower())
        names.append(f"{plain}n{seen[gpu_type]}")
        seen[gpu_type] += 1
    return names


class LocalSlurm:
    """The daemons of a Slurm cluster on this machine, with all their files in one folder.

    Parameters
    ----------
    cluster : ClusterSpec
    folder : Path
        Is removed when the cluster ends.
    gres : bool
        Whether its nodes have GPUs (`Gres=gpu`), besides as many CPUs.
    """

    def __init__(self, cluster: ClusterSpec, folder: Path, gres: bool = False) -> None:
        self.cluster, self.folder, self.gres = cluster, folder.absolute(), gres
        self.names = node_names(cluster)
        self._root = packages_root()
        self.slurm = Slurm(self._environment())
        self._children: list[subprocess.Popen[bytes]] = []

    def _environment(self) -> Mapping[str, str]:
        environment = dict(os.environ)
        if self._root is not None:
            plugins = _plugins(self._root)
            environment["LD_LIBRARY_PATH"] = f"{plugins}:{plugins.parent}"
            environment["PATH"] = f"{self._root}/usr/bin:{environment.get('PATH', '')}"
        environment["SLURM_CONF"] = str(self.folder / "slurm.conf")
        return environment

    def start(self) -> None:
        """Start the daemons, unless they run already, and wait until all nodes are idle."""
        known = self._list_known()
        if known and all(map(_runs, known)):
            return
        self.stop()
        for part in ("state", *(f"spool/{name}" for name in self.names)):
            (self.folder / part).mkdir(parents=True)
        self._configure()
        self._launch([self._program("slurmctld"), "-D"])
        stepd = ["-d", str(self._root / "usr/sbin/slurmstepd-wlm")] if self._root is not None else []
        for name in self.names:
            self._launch([self._program("slurmd"), "-D", *stepd, "-N", name])
        self._await_nodes()

    def stop(self) -> None:
        """End the daemons by their process ids, and remove the folder."""
        known = self._list_known()
        for sent in (signal.SIGTERM, signal.SIGKILL):
            for process in filter(_runs, known):
                os.kill(process[0], sent)
            until = time.monotonic() + STOP_S
            while any(map(_runs, known)) and time.monotonic() < until:
                time.sleep(0.02)
        for child in self._children:
            child.wait()
        self._children = []
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self) -> None:
        ports = _free_ports(len(self.names) + 1)
        host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.geteuid()).pw_name
        text = SETTINGS.format(host=host, port=ports[0], user=user, folder=self.folder)
        if self._root is not None:
            text += f"PluginDir={_plugins(self._root)}\n"
        if self.gres:
            text += "GresTypes=gpu\n"
        types = [self.cluster.gpu_types[gpu_type].lower() for gpu_type in self.cluster.node_type.tolist()]
        gres = ""
        for name, gpu_type, gpus, port in zip(
            self.names, types, self.cluster.node_gpus.tolist(), ports[1:], strict=True
        ):
            text += (
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={gpus} "
                f"RealMemory=1000 Feature={gpu_type} State=UNKNOWN"
            )
            text += f" Gres=gpu:{gpu_type}:{gpus}\n" if self.gres else "\n"
            gres += f"NodeName={name} Name=gpu Type={gpu_type} File=/dev/tty[0-{gpus - 1}]\n"
        if self.gres:
            (self.folder / "gres.conf").write_text(gres, encoding="utf-8")
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="utf-8")

    def _program(self, name: str) -> str:
        # The daemons tell by their names what they are: as `slurmctld-wlm` it has no GPUs and no database.
        folder = f"{self._root}/usr/sbin" if self._root is not None else _search_path()
        found = shutil.which(name, path=folder) or shutil.which(f"{name}-wlm", path=folder)
        return found or name

    def _launch(self, words: Sequence[str]) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            environment, nothing = self.slurm.environment, subprocess.DEVNULL
            child = subprocess.Popen(
                words, env=environment, stdin=nothing, stdout=log, stderr=log, start_new_session=True
            )
        self._children.append(child)
        running = [(child.pid, _read_start_time(child.pid)) for child in self._children]
        (self.folder / "processes.json").write_text(json.dumps(running), encoding="utf-8")

    def _list_known(self) -> list[tuple[int, str]]:
        try:
            listed = json.loads((self.folder / "processes.json").read_text(encoding="utf-8"))
            return [(int(number), str(started)) for number, started in listed]
        except (OSError, ValueError):
            return []

    def _await_nodes(self) -> None:
        until = time.monotonic() + START_S
        while True:
            ended = [child for child in self._children if child.poll() is not None]
            states = self.slurm.run("sinfo", "-h", "-N", "-o", "%T").stdout.split()
            if states == ["idle"] * len(self.names):
                return
            if ended or time.monotonic() > until:
                told = last_line((self.folder / "daemons.log").read_text(encoding="utf-8", errors="replace"))
                self.stop()
                message = f"the daemons of Slurm do not start: {told or 'the nodes do not become idle'}"
                raise InputError(message, field="live.engine", remedy="live.engine=fake needs none")
            time.sleep(0.05)


def may_have_gpus(cluster: ClusterSpec) -> bool:
    """Return whether Slurm's nodes can have GPUs here: as root, with a file /dev/ttyN to stand for each."""
    last = int(cluster.node_gpus.max(initial=1)) - 1
    return os.geteuid() == 0 and Path(f"/dev/tty{last}").exists()


def _read_start_time(process: int) -> str:
    """Return when a process started, as /proc counts it: with its id, it names the process for good."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _runs(process: tuple[int, str]) -> bool:
    try:
        state = Path(f"/proc/{process[0]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and _read_start_time(process[0]) == process[1]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _plugins(root: Path) -> Path:
    """Return the folder of the plugins in the unpacked packages, which the machine's architecture names."""
    return next(root.glob("usr/lib/*/slurm-wlm"))


def _search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def packages_root() -> Path | None:
    """Return the folder of Slurm's unpacked Debian packages, fetched if needed; None if Slurm is installed.

    They are fetched once, by `apt-get download`, into `$XDG_CACHE_HOME/clustergym/slurm`.
    """
    daemons = ("slurmctld", "slurmd")
    if all(shutil.which(name, path=_search_path()) for name in (*daemons, "salloc")):
        return None
    shared = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    root = (shared if shared.is_absolute() else Path.home() / ".cache") / "clustergym" / "slurm"
    if not (root / "usr/sbin/slurmctld-wlm").is_file():
        _fetch(root)
    link_daemons(root)
    return root


def link_daemons(root: Path) -> None:
    """Make links with the names `slurmctld` and `slurmd` to the daemons in unpacked Debian packages."""
    for name in ("slurmctld", "slurmd"):
        with contextlib.suppress(FileExistsError):
            (root / "usr/sbin" / name).symlink_to(f"{name}-wlm")


def _fetch(root: Path) -> None:
    """Fetch and unpack the packages, completely or not at all."""
    remedy = "install slurmctld, slurmd and slurm-client, or live.engine=fake"
    making = root.with_name(f".{root.name}.{uuid.uuid4().hex}")
    try:
        making.mkdir(parents=True)
        words = ["apt-get", "-q", "download", *PACKAGES]
        done = subprocess.run(words, cwd=making, capture_output=True, text=True, timeout=300)
        if done.returncode:
            told = last_line(done.stderr) or f"exit status {done.returncode}"
            message = f"Slurm is not installed, and apt-get: {told}"
            raise InputError(message, field="live.engine", remedy=remedy)
        for package in making.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, making], check=True, capture_output=True)
            package.unlink()
        if not root.exists():
            making.rename(root)
    except (OSError, subprocess.SubprocessError) as error:
        message = f"Slurm is not installed and cannot be fetched: {error}"
        raise InputError(message, field="live.engine", remedy=remedy) from None
    finally:
        shutil.rmtree(making, ignore_errors=True)
