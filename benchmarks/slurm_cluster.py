"""Slurm clusters on this machine with accounts: one database for several, each with its own daemons."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from clustergym.operators.live.local_slurm import PACKAGES, LocalSlurm, link_daemons
from clustergym.operators.live.slurm import Slurm, last_line

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common.errors import InputError

ACCOUNTING = (
    *("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server-core", "mariadb-server", "mariadb-client-core"),
    *("mariadb-common", "libmariadb3", "libaio1", "liburing2", "libnuma1"),
)
"""Debian's packages of the database and its daemon, besides those of `PACKAGES`."""
START_S = 60.0
REMEDY = "run it where apt-get can fetch Debian's packages of Slurm and MariaDB"


def unpack_packages(root: Path) -> None:
    """Fetch and unpack the packages of Slurm and its database, if they are not there."""
    if (root / "usr/sbin/slurmd").exists():
        return
    root.mkdir(parents=True, exist_ok=True)
    try:
        words = ["apt-get", "-q", "download", *PACKAGES, *ACCOUNTING]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise InputError(f"apt-get: {last_line(done.stderr)}", field="packages", remedy=REMEDY)
        for package in root.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True, capture_output=True)
            package.unlink()
        link_daemons(root)
    except (OSError, subprocess.SubprocessError) as error:
        message = f"Slurm's packages cannot be fetched: {error}"
        raise InputError(message, field="packages", remedy=REMEDY) from None


def a40_cluster(name: str, nodes: int, gpus: int) -> ClusterSpec:
    """Return a cluster of so many nodes with so many GPUs each."""
    gpu = GpuType("A40", 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0)
    return ClusterSpec(name, (NodeGroup(gpu, nodes, gpus),), Fabric(nodes_per_leaf=4, leaves_per_minipod=2))


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Accounting:
    """MariaDB and slurmdbd, with all their files in one folder.

    Parameters
    ----------
    root : Path
        Unpacked packages.
    folder : Path
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self._folder = root.absolute(), folder.absolute()
        libraries = next(self.root.glob("usr/lib/*/slurm-wlm"))
        self.plugins = libraries
        self._environment = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries.parent}"}
        self.port, self.lock = free_port(), threading.Lock()
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both and wait until the daemon answers."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        database, socket_path = self._folder / "database", self._folder / "mariadb.sock"
        database.mkdir()
        usr, user = self.root / "usr", f"--user={_user()}"
        own = ["--no-defaults", user, f"--datadir={database}", f"--lc-messages-dir={usr}/share/mysql"]
        (self._folder / "mysql").mkdir()
        tables = "".join(
            (usr / "share/mysql" / name).read_text(encoding="utf-8")
            for name in ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
        )
        account = "CREATE USER slurm@localhost;\nGRANT ALL ON *.* TO slurm@localhost;\n"
        text = f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}\nFLUSH PRIVILEGES;\n{account}"
        self._run([f"{usr}/sbin/mariadbd", *own, "--bootstrap"], text)
        at = [f"--socket={socket_path}", "--port=0", "--skip-networking", f"--pid-file={self._folder}/pid"]
        sizes = ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"]
        self._launch([f"{usr}/sbin/mariadbd", *own, *at, *sizes])
        self._await(socket_path.exists, "mariadbd")
        self._configure(socket_path)
        self._environment["SLURM_CONF"] = str(self._folder / "slurm.conf")
        self._environment["MYSQL_UNIX_PORT"] = str(socket_path)
        self._launch([f"{usr}/sbin/slurmdbd", "-D"], cwd=self._folder)
        self._await(self._answers, "slurmdbd")

    def _configure(self, socket_path: Path) -> None:
        path = self._folder / "slurmdbd.conf"
        path.write_text(
            f"AuthType=auth/none\nDbdHost={socket.gethostname().partition('.')[0]}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self.port}\nSlurmUser={_user()}\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=localhost\nStorageUser=slurm\nStorageLoc=slurm_acct\n"
            f"PluginDir={self.plugins}\nPidFile={self._folder}/slurmdbd.pid\n"
            f"LogFile={self._folder}/slurmdbd.log\n",
            encoding="utf-8",
        )
        path.chmod(0o600)

    def _answers(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def _run(self, words: Sequence[str], text: str) -> None:
        with (self._folder / "bootstrap.log").open("w") as log:
            subprocess.run(
                words,
                input=text,
                text=True,
                check=True,
                env=self._environment,
                stdout=log,
                stderr=log,
                timeout=START_S,
            )

    def _launch(self, words: Sequence[str], cwd: Path | None = None) -> None:
        with (self._folder / "daemons.log").open("ab") as log:
            child = subprocess.Popen(
                words, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd
            )
        self._children.append(child)

    def _await(self, is_up: object, name: str) -> None:
        until = time.monotonic() + START_S
        while not is_up():  # type: ignore[operator]
            if time.monotonic() > until or self._children[-1].poll() is not None:
                told = last_line((self._folder / "daemons.log").read_text(errors="replace"))
                raise InputError(f"{name} does not start: {told}", field="packages", remedy=REMEDY)
            time.sleep(0.1)

    def stop(self) -> None:
        """End both, the daemon first."""
        for child in reversed(self._children):
            child.terminate()
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children = []


@contextmanager
def open_accounting(folder: Path) -> Iterator[Accounting]:
    """Yield a database of accounts whose files are in a folder; fetch packages if they are not there."""
    root = Path.home() / ".cache" / "clustergym" / "slurm-accounts"
    unpack_packages(root)
    found = Accounting(root, folder / "accounts")
    try:
        found.start()
        yield found
    finally:
        found.stop()


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


class AccountedSlurm(LocalSlurm):
    """A cluster of Slurm with further lines in its `slurm.conf`, whose accounts are in a database.

    Parameters
    ----------
    cluster : ClusterSpec
        Its name is Slurm's name of the cluster.
    folder : Path
    settings : mapping of str to str
        Lines of `slurm.conf` that count instead of, or besides, those of `LocalSlurm` and of accounts.
    partitions : sequence of str
        Lines of its partitions.
    accounting : Accounting
    gres : bool
        Whether its nodes have GPUs.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        folder: Path,
        settings: Mapping[str, str],
        partitions: Sequence[str],
        accounting: Accounting,
        gres: bool = False,
    ) -> None:
        super().__init__(cluster, folder, gres)
        self.user = _user()
        of_accounts = {
            "ClusterName": cluster.name,
            "PluginDir": str(accounting.plugins),
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(accounting.port),
            "AccountingStorageEnforce": "associations,limits,qos",
        }
        if gres:
            of_accounts["AccountingStorageTRES"] = "gres/gpu,gres/gpu:a40"
        self._settings, self._partitions = {**of_accounts, **settings}, partitions
        self._accounting = accounting
        self._root = accounting.root
        # A node is listed once for each partition that it is in: `_await_nodes` counts those of one.
        self.slurm = Slurm({**self._environment(), "SINFO_PARTITION": "main"})

    def _configure(self) -> None:
        super()._configure()
        path = self.folder / "slurm.conf"
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in {*self._settings, "PartitionName"}]
        added = [f"{key}={value}" for key, value in self._settings.items()]
        path.write_text("\n".join([*kept, *added, *self._partitions]) + "\n", encoding="utf-8")

    def _launch(self, words: Sequence[str]) -> None:
        # Other work on the machine would make a slurmctld late, and what it starts another; for others than
        # root, `nice` says that it cannot and goes on.
        super()._launch(["nice", "-n", "-5", *words])

    def record_accounts(self, commands: Sequence[Sequence[str]]) -> None:
        """Tell the database of the cluster and its accounts, by words of `sacctmgr`, before it starts."""
        self.folder.mkdir(parents=True)
        self._configure()
        for words in (["add", "cluster", self.cluster.name], *commands):
            with self._accounting.lock:
                done = self.slurm.run("sacctmgr", "-i", *words)
            if done.returncode and "Nothing new added" not in done.stdout + done.stderr:
                told = last_line(done.stderr or done.stdout)
                raise InputError(f"sacctmgr {' '.join(words)}: {told}", field="accounts", remedy=REMEDY)
