"""A cluster with Slurm, of Debian's packages slurm-wlm and munge, on nodes of tests/support/nodes.

Its configuration, key, sockets and state lie in the folder of the network; its daemons run as the
present user, and end with the network.
"""

import os
import secrets
import shutil
import sys
from getpass import getuser
from pathlib import Path

from tests.support import ROOT
from tests.support.nodes import Command, Node, wait_until

BOUND = 180  # seconds in which a job must have got where it is waited for
PROGRAMS = "slurmctld", "slurmd", "sbatch", "munged"
SYSTEM = "/usr/sbin:/sbin"  # where Debian has daemons; not every user looks there
CONFIGURATION = """
ClusterName=test
SlurmctldHost={first}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=6 # so long, at least, waits a requeued job
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,bf_interval=1
GresTypes=gpu
NodeName={names} CPUs=1 Gres=gpu:1
PartitionName=all Nodes=ALL Default=YES
"""


def missing() -> str | None:
    """What keeps this machine from running Slurm; None if nothing does."""
    path = os.pathsep.join([os.environ["PATH"], SYSTEM])
    if absent := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        return f"needs {', '.join(absent)}, of the packages slurm-wlm and munge"
    return None


class Slurm:
    """A cluster of `nodes`, each with one CPU and one pretended GPU; the first one controls it."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes, self.folder = nodes, nodes[0].folder / "slurm"
        self.folder.mkdir()
        self.configure()
        self.daemons = [self.start(nodes[0], "munged", "--foreground", "--force", *self.munge())]
        wait_until((self.folder / "munge.socket").exists, *self.daemons)
        self.daemons += [self.start(nodes[0], "slurmctld", "-D", "-i")]
        self.daemons += [self.start(node, "slurmd", "-D", "-N", node.name) for node in nodes]
        wait_until(self.is_ready, *self.daemons)

    def configure(self) -> None:
        """Write the files that the daemons read."""
        names = ",".join(node.name for node in self.nodes)
        first, user = self.nodes[0].name, getuser()
        text = CONFIGURATION.format(first=first, user=user, folder=self.folder, names=names)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        (self.folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\n"
        )  # else it looks for one
        (self.folder / "key").write_bytes(secrets.token_bytes(128))
        (self.folder / "key").chmod(0o600)

    def munge(self) -> list[str]:
        """Where munged has its files."""
        names = {"key-file": "key", "socket": "munge.socket", "pid-file": "munged.pid"}
        names |= {"seed-file": "munged.seed", "log-file": "munged.log"}
        return [f"--{option}={self.folder / name}" for option, name in names.items()]

    def start(self, node: Node, *command: str | Path) -> Command:
        """Run `command` on `node`, where this environment's torchrun is the first to be found."""
        return node.start(
            *command,
            SLURM_CONF=str(self.folder / "slurm.conf"),
            PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], SYSTEM]),
            PYTHONPATH=str(ROOT),
            GLOO_SOCKET_IFNAME="eth0",
        )

    def ask(self, *command: str | Path) -> str:
        """What a command prints that ends by itself."""
        running = self.start(self.nodes[0], *command)
        assert running.wait(BOUND) == 0, running
        return running.stdout

    def is_ready(self) -> bool:
        asked = self.start(self.nodes[0], "sinfo", "--noheader", "--format=%D %t")
        return asked.wait(BOUND) == 0 and asked.stdout.split() == [str(len(self.nodes)), "idle"]

    def submit(self, script: Path, output: Path, *options: str) -> str:
        """Hand in `script` for all nodes; return the number of the job."""
        wanted = [f"--nodes={len(self.nodes)}", "--gpus-per-node=1", "--cpus-per-task=1"]
        wanted += ["--parsable", f"--output={output}"]
        return self.ask("sbatch", *wanted, script, *options).strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job: JobState, Restarts and more."""
        words = self.ask("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, number: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of `states`; return what Slurm then knows of it."""
        wait_until(lambda: self.job(number)["JobState"] in states, *self.daemons, bound=BOUND)
        return self.job(number)
