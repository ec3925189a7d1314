"""Several machines on one: network namespaces, each with its own address and host name.

Every node has one network card, and a cable from it to a switch; the cable can be cut and mended.
The switch stands in a namespace of its own, so nothing is added to the machine's own network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

SUBNET = "10.77.0"


class Node:
    """A machine of the network: `name` is its host name, `address` its only address."""

    def __init__(self, network: str, number: int, folder: Path) -> None:
        self.name, self.address = f"node{number}", f"{SUBNET}.{number}"
        self.namespace, self.switch, self.folder = f"{network}-{number}", f"{network}-sw", folder
        self.port = f"port{number}"  # of the switch

    def start(self, *command: str | Path, **environment: str) -> Process:
        """Start `command` on this node."""
        # `ip netns exec` gives it a mount namespace too, so /etc/hosts is this node's own.
        setup = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'
        inside = ["unshare", "--uts", "sh", "-ec", setup, "sh", self.name, self.folder / "hosts"]
        return Process(
            ["ip", "netns", "exec", self.namespace, *inside, *command],
            {"GLOO_SOCKET_IFNAME": "eth0", **environment},
        )

    def cut(self) -> None:
        """The card goes down: the node knows that it has no network."""
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def blackhole(self) -> None:
        """The switch drops every frame from and to this node; nobody is told."""
        ip("-n", self.switch, "link", "set", self.port, "nomaster")

    def mend(self) -> None:
        """Undo `cut` and `blackhole`."""
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        ip("-n", self.switch, "link", "set", self.port, "master", "switch")

    def pids(self) -> list[int]:
        """The processes of this node."""
        return [int(pid) for pid in ip("netns", "pids", self.namespace).split()]

    def kill(self) -> None:
        """Every process of this node dies at once; its connections are closed by its kernel."""
        while pids := self.pids():  # again, for those that were just being started
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)


class Process(subprocess.Popen):
    pass


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def network(count: int) -> Iterator[list[Node]]:
    """`count` nodes that can reach each other by address and by host name."""
    name = f"d2l-{uuid4().hex[:6]}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=name)))
        nodes = [Node(name, number + 1, folder) for number in range(count)]
        (folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{n.address} {n.name}\n" for n in nodes)
        )
        ip("netns", "add", nodes[0].switch)
        stack.callback(ip, "netns", "delete", nodes[0].switch)
        ip("-n", nodes[0].switch, "link", "add", "name", "switch", "type", "bridge")
        ip("-n", nodes[0].switch, "link", "set", "switch", "up")
        for node in nodes:
            ip("netns", "add", node.namespace)
            stack.callback(ip, "netns", "delete", node.namespace)
            stack.callback(node.kill)
            ip("-n", node.switch, "link", "add", "name", node.port, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
            ip("-n", node.switch, "link", "set", node.port, "master", "switch", "up")
            ip("-n", node.namespace, "address", "add", f"{node.address}/24", "dev", "eth0")
            for card in ("lo", "eth0"):
                ip("-n", node.namespace, "link", "set", card, "up")
        yield nodes
