"""A Slurm of one node on loopback, or of two_machines.py's: munged, slurmctld and slurmd of this machine's packages, with
a configuration, a key and ports of its own."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from quire_server import free_port
from two_machines import ADDRESSES, NAMES

START_TIMEOUT_S = 30
KILL_WAIT_S = 10  # from SIGTERM to SIGKILL
NUM_CPUS = 8  # says the configuration, so that four tasks run on any machine
CONFIGURATION = """ClusterName=quire
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={control_port}
SlurmdPort={node_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={tmp}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait={kill_wait}
SlurmdTimeout=10
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def find_daemon(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


def is_installed():
    return all(map(find_daemon, ("munged", "slurmctld", "slurmd", "srun")))


class Slurm:
    """kill_delay_s: from the end of a task to when Slurm kills the rest of its step (docs/scale.md). machines: on whose
    first one this runs. close() ends it all."""

    def __init__(self, kill_delay_s, machines=None):
        self.nodes = {socket.gethostname().split(".")[0]: "127.0.0.1"} if machines is None else dict(zip(NAMES, ADDRESSES))
        self.launchers = [machines.launcher(index) for index in range(len(NAMES))] if machines else [[]]
        self.folder = Path(tempfile.mkdtemp(prefix="quire-slurm-"))  # short: sockets lie in it
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons = []
        self.write_files(kill_delay_s, machines.own if machines else self.folder / "tmp")
        try:
            self.start()
        except Exception:
            self.close()
            raise

    def write_files(self, kill_delay_s, tmp):
        for name in ("state", "tmp", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=next(iter(self.nodes)), address=next(iter(self.nodes.values())), user=getpass.getuser(),
            control_port=free_port(), node_port=free_port(), folder=self.folder, tmp=tmp, kill_wait=KILL_WAIT_S, nodes="\n".join(
                f"NodeName={name} NodeAddr={address} CPUs={NUM_CPUS}" for name, address in self.nodes.items())))
        (self.folder / "mpi.conf").write_text(f"PMIxEnv=PMIX_MCA_pmix_event_caching_window={kill_delay_s}\n")

    def start(self):
        munge = [f"--{name}={self.folder}/{file}" for name, file in (
            ("key-file", "munge.key"), ("socket", "munge.socket"), ("pid-file", "munged.pid"),
            ("log-file", "munged.log"), ("seed-file", "munge.seed"))]
        self.start_daemon("munged", "--foreground", "--force", *munge)
        self.wait_for("munged", lambda: (self.folder / "munge.socket").exists())
        self.start_daemon("slurmctld", "-D", "-c")
        for name, launcher in zip(self.nodes, self.launchers):
            self.start_daemon("slurmd", "-D", "-N", name, launcher=launcher)
        self.wait_for("the nodes", lambda: self.ask("sinfo", "-h", "-o", "%t %D") == ["idle", str(len(self.nodes))])

    def start_daemon(self, name, *arguments, launcher=None):
        launcher = self.launchers[0] if launcher is None else launcher
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons.append(subprocess.Popen([*launcher, find_daemon(name), *arguments], stdout=out, stderr=out,
                                                 env={**os.environ, **self.environment}))

    def wait_for(self, what, condition):
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.out"))
            assert time.monotonic() < deadline, f"not so after {START_TIMEOUT_S} s: {what}; {logs}"
            time.sleep(0.1)

    def ask(self, *command):
        """The words that one of Slurm's commands says."""
        return subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S,
                              env={**os.environ, **self.environment}).stdout.split()

    def jobs(self):
        return self.ask("squeue", "-h", "-o", "%i", "-t", "running")

    def end_jobs(self):
        """Those that a failed test has left."""
        for job in self.jobs():
            self.ask("scancel", "-s", "KILL", job)
        self.wait_for("no job runs", lambda: not self.jobs())

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
