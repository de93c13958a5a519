"""Two machines out of this one, for mpirun and Slurm: namespaces with networks and names of their own, joined by a cable.
Processes and files are this machine's, but for /etc/hosts and what lies in `own`. An agent stands for ssh to the second. All
of it is gone with two processes."""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
START_TIMEOUT_S = 10
KINDS = "--net", "--uts", "--mount"
NAMES = "quire-a", "quire-b"
ADDRESSES = "10.99.0.1", "10.99.0.2"
AGENT = """#!/bin/sh
# ssh HOST COMMAND...
shift
exec {launcher} sh -c "$*"
"""


def is_possible():
    """Namespaces want root, and a container may forbid them to root too."""
    tools = all(map(shutil.which, ("ip", "nsenter", "unshare")))
    return tools and subprocess.run(["unshare", *KINDS, "true"], capture_output=True).returncode == 0


def enter_network(path):
    with open(path) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {path}")


def network_of(process):
    return os.readlink(f"/proc/{process}/ns/net")


class TwoMachines:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="quire-two-"))  # short: sockets lie in it
        self.own = self.folder / "own"
        for folder in self.own, *map(self.folder.joinpath, NAMES):
            folder.mkdir()
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(map("{} {}\n".format, ADDRESSES, NAMES)))
        self.holders = []
        try:
            self.start_machines()
            self.lay_cable()
        except BaseException:
            self.close()
            raise
        self.agent = self.folder / "agent"
        self.agent.write_text(AGENT.format(launcher=" ".join(self.launcher(1))))
        self.agent.chmod(0o755)

    def start_machines(self):
        own = network_of("self")
        for name in NAMES:
            script = 'mount --bind "$1" /etc/hosts && mount --bind "$2" "$3" && hostname "$4" && exec cat'
            self.holders.append(subprocess.Popen(["unshare", *KINDS, "sh", "-c", script, "sh", self.hosts, self.folder / name,
                                                  self.own, name], stdin=subprocess.PIPE))
        deadline = time.monotonic() + START_TIMEOUT_S
        for holder in self.holders:
            while network_of(holder.pid) == own or Path(f"/proc/{holder.pid}/comm").read_text() != "cat\n":
                if holder.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("a namespace could not be made")
                time.sleep(0.01)

    def lay_cable(self):
        first, second = (str(holder.pid) for holder in self.holders)
        self.on(0, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", second)
        for index, address in enumerate(ADDRESSES):
            self.on(index, "ip", "address", "add", address + "/24", "dev", "cable")
            for device in "lo", "cable":
                self.on(index, "ip", "link", "set", device, "up")

    def on(self, index, *command):
        subprocess.run(self.launcher(index) + list(command), check=True, timeout=START_TIMEOUT_S)

    def launcher(self, index=0):
        return ["nsenter", "--target", str(self.holders[index].pid), *KINDS]

    @contextlib.contextmanager
    def entered(self):
        """The calling thread, and those that it starts, reach the first machine's loopback."""
        with open("/proc/thread-self/ns/net") as own:
            enter_network(f"/proc/{self.holders[0].pid}/ns/net")
            try:
                yield
            finally:
                enter_network(f"/proc/self/fd/{own.fileno()}")

    def pull_cable(self):
        self.on(0, "ip", "link", "set", "cable", "down")

    def plug_in_cable(self):
        """By whoever has entered. Waits until the second machine reaches the first."""
        self.on(0, "ip", "link", "set", "cable", "up")
        deadline = time.monotonic() + START_TIMEOUT_S
        with socket.create_server((ADDRESSES[0], 0)) as listener:
            connect = f": < /dev/tcp/{ADDRESSES[0]}/{listener.getsockname()[1]}"
            while subprocess.run([*self.launcher(1), "bash", "-c", connect], capture_output=True).returncode != 0:
                assert time.monotonic() < deadline, "the cable carries nothing"

    def mpirun_options(self, per_machine):
        """As many ranks on each; messages by way of the cable alone."""
        hosts = ",".join(f"{host}:{per_machine}" for host in NAMES)
        network = ADDRESSES[0].rsplit(".", 1)[0] + ".0/24"
        return ["--host", hosts, "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", network,
                "--mca", "btl_tcp_if_include", network]

    def processes(self, index):
        """Process id -> command of what runs on that machine."""
        holder, found = self.holders[index], {}
        network = network_of(holder.pid)
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(process.name) not in (holder.pid, os.getpid()) and network_of(process.name) == network:
                    found[int(process.name)] = (process / "comm").read_text().strip()
        return found

    def close(self):
        for index, holder in enumerate(self.holders):
            if holder.poll() is None:
                for pid in self.processes(index):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
            holder.stdin.close()
            holder.wait(START_TIMEOUT_S)
        shutil.rmtree(self.folder, ignore_errors=True)
