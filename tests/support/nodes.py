"""Several machines on one: network namespaces, each with an address and a host name of its own.

A cable leads from the only network card of each node to a switch, and can be cut. The switch is a
bridge in one more namespace, so the machine's own network stays as it is. Needs Linux, iproute2,
and root or a sudo that asks for no password; what a node runs, it runs as the present user.
"""

from __future__ import annotations  # a network makes nodes, which start commands

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
# Replaces itself by the command, so that a signal to it reaches the command. The mount is seen in
# the node only: `ip netns exec` has made a mount namespace.
SETUP = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'


def missing() -> str | None:
    """What keeps this machine from having nodes; None if nothing does."""
    if shutil.which("ip") is None:
        return "needs ip, of the package iproute2"
    if ROOT and subprocess.run([*ROOT, "true"], capture_output=True).returncode:
        return "needs root, or a sudo that asks for no password, for network namespaces"
    return None


@contextmanager
def network(count: int) -> Iterator[list[Node]]:
    """`count` nodes that reach each other by host name; all they run ends with the network."""
    name = f"d2l-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=name)))
        nodes = [Node(number, name, folder) for number in range(1, count + 1)]
        hosts = [f"{node.address} {node.name}\n" for node in nodes]
        (folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *hosts]))
        stack.callback(_remove_namespace, name)
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "name", "switch", "up", "type", "bridge")
        for node in nodes:
            stack.callback(_remove_namespace, node.namespace)
            node.plug_in()
        yield nodes


class Node:
    """A machine: `name` is its host name, `address` its only address."""

    def __init__(self, number: int, network: str, folder: Path) -> None:
        self.name, self.address = f"node{number}", f"10.77.0.{number}"
        self.namespace, self.switch, self.folder = f"{network}-{number}", network, folder

    def plug_in(self) -> None:
        """Make the node and its cable."""
        ip("netns", "add", self.namespace)
        card = ["peer", "name", "eth0", "netns", self.namespace]
        ip("-n", self.switch, "link", "add", "name", self.name, "type", "veth", *card)
        ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.namespace, "link", "set", "lo", "up")
        self.mend()

    def cut(self) -> None:
        """Take the network card down: this node sees it, the others do not."""
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def cut_silently(self) -> None:
        """Let the switch drop what comes from and goes to this node: nobody is told."""
        ip("-n", self.switch, "link", "set", self.name, "nomaster")

    def mend(self) -> None:
        """Undo both kinds of cut."""
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        ip("-n", self.switch, "link", "set", self.name, "up", "master", "switch")

    def start(self, *command: str | Path, **environment: str) -> Command:
        """Run `command` on this node, in the present folder."""
        # What is left behind when a node is killed goes away with the network.
        environment = {**os.environ, "TMPDIR": str(self.folder), **environment}
        variables = [f"{name}={value}" for name, value in environment.items()]
        user = ["setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--init-groups"]
        setup = ["unshare", "--uts", "sh", "-ec", SETUP, "sh", self.name, self.folder / "hosts"]
        enter = [*ROOT, "ip", "netns", "exec", self.namespace, *setup, *user, "env", *variables]
        return Command(self, [*map(str, enter), *map(str, command)])

    def kill(self) -> None:
        """SIGKILL to all that this node runs, until nothing does."""
        _kill_all(self.namespace)


class Command:
    """What runs on a node; what it prints is kept in files."""

    def __init__(self, node: Node, command: list[str]) -> None:
        self.node = node
        self.files = [node.folder / f"{uuid4().hex}.{name}" for name in ("out", "err")]
        with self.files[0].open("w") as out, self.files[1].open("w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    @property
    def stdout(self) -> str:
        return self.files[0].read_text()

    @property
    def stderr(self) -> str:
        return self.files[1].read_text()

    def wait(self, bound: float) -> int:
        """Return the exit code; AssertionError if the command still runs after `bound` seconds."""
        try:
            return self.process.wait(bound)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {bound} s; {self}") from None

    def __repr__(self) -> str:
        return f"{self.node.name} printed:\n{self.stdout}\n{self.stderr}"


def wait_until(condition: Callable[[], bool], *running: Command, bound: float = 120) -> None:
    """Return as soon as `condition` holds; AssertionError if it does not within `bound` seconds,
    or not before one of `running` ends."""
    end = time.monotonic() + bound
    while not condition():
        for command in running:
            assert command.process.poll() is None, f"ended too early; {command}"
        assert time.monotonic() < end, "\n".join(["waited in vain", *map(str, running)])
        time.sleep(0.02)


def ip(*arguments: str) -> str:
    """Run iproute2's `ip` and return what it prints; CalledProcessError if it fails."""
    command = [*ROOT, "ip", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _kill_all(namespace: str) -> None:
    while pids := ip("netns", "pids", namespace).split():  # again: some may just have been started
        subprocess.run([*ROOT, "kill", "-KILL", *pids], stderr=subprocess.DEVNULL)
        time.sleep(0.02)


def _remove_namespace(name: str) -> None:
    if name in ip("netns", "list").split():  # else it was not made yet
        _kill_all(name)
        ip("netns", "delete", name)
