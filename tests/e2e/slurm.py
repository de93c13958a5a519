"""A Slurm of one node on loopback: munged, slurmctld and slurmd of this machine's packages, with a configuration, a key and
ports of its own."""

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

START_TIMEOUT_S = 30
NUM_CPUS = 8  # says the configuration, so that four tasks run on any machine
CONFIGURATION = """ClusterName=quire
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={control_port}
SlurmdPort={node_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
TmpFS={folder}/tmp
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait=30
NodeName={host} NodeAddr=127.0.0.1 CPUs={num_cpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def find_daemon(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


def is_installed():
    return all(map(find_daemon, ("munged", "slurmctld", "slurmd", "srun")))


class Slurm:
    """kill_delay_s: from the end of a task to when Slurm kills the rest of its step (docs/scale.md). close() ends it all."""

    def __init__(self, kill_delay_s):
        self.folder = Path(tempfile.mkdtemp(prefix="quire-slurm-"))  # short: sockets lie in it
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons = []
        self.write_files(kill_delay_s)
        try:
            self.start()
        except Exception:
            self.close()
            raise

    def write_files(self, kill_delay_s):
        for name in "state", "spool", "tmp":
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        self.host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=self.host, user=getpass.getuser(), control_port=free_port(), node_port=free_port(), folder=self.folder,
            num_cpus=NUM_CPUS))
        (self.folder / "mpi.conf").write_text(f"PMIxEnv=PMIX_MCA_pmix_event_caching_window={kill_delay_s}\n")

    def start(self):
        munge = [f"--{name}={self.folder}/{file}" for name, file in (
            ("key-file", "munge.key"), ("socket", "munge.socket"), ("pid-file", "munged.pid"),
            ("log-file", "munged.log"), ("seed-file", "munge.seed"))]
        self.start_daemon("munged", "--foreground", "--force", *munge)
        self.wait_for("munged", lambda: (self.folder / "munge.socket").exists())
        self.start_daemon("slurmctld", "-D", "-c")
        self.start_daemon("slurmd", "-D", "-N", self.host)
        self.wait_for("the node", lambda: self.ask("sinfo", "-h", "-o", "%t") == ["idle"])

    def start_daemon(self, name, *arguments):
        with open(self.folder / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([find_daemon(name), *arguments], stdout=out, stderr=out,
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
