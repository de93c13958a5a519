"""`srun --mpi=pmix quire serve`: ranks that are tasks of Slurm's, as those of mpirun (test_mpirun.py). Skipped where Slurm is not
installed: slurmctld, slurmd, slurm-client, munge of Debian."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from slurm import Slurm, is_installed
from test_command_line import run
from test_load import gather
from test_mpirun import TIMEOUT_S, begin_streams, check_rank_metrics, is_gone, load
from quire_server import MODEL

pytestmark = pytest.mark.skipif(not is_installed(), reason="Slurm is not installed")

SRUN = "srun", "--mpi=pmix"
KILL_DELAY_S = TIMEOUT_S + 3  # longer than rank 0 takes to answer


@pytest.fixture(scope="module")
def slurm():
    cluster = Slurm(KILL_DELAY_S)
    yield cluster
    cluster.close()


@pytest.fixture
def start_tasks(slurm, start_server):
    def start(count, *options, stages=1):
        return start_server("--tensor-parallel-size", count, "--pipeline-parallel-size", stages, *options,
                            launcher=[*SRUN, "-n", count * stages], environment=slurm.environment)
    yield start
    slurm.end_jobs()


def is_task(process, rank, port):
    """Slurm's daemon has started it, so that it is no descendant of srun."""
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
        return f"SLURM_PROCID={rank}".encode() in environment and str(port).encode() in (
            process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def task_processes(server, count):
    """Process ids by rank."""
    processes = list(Path("/proc").glob("[0-9]*"))
    return [next(int(process.name) for process in processes if is_task(process, rank, server.port))
            for rank in range(count)]


@pytest.mark.parametrize("count, stages", [(2, 1), (2, 2)], ids=["two", "two by two"])
def test_what_threads_answer(start_server, start_tasks, count, stages):
    threads = start_server("--tensor-parallel-size", count)
    expected = gather(threads, load)
    threads.kill()
    server = start_tasks(count, "--rank-timeout", 3600, stages=stages)
    assert gather(server, load) == expected
    check_rank_metrics(server, count, stages)
    os.kill(task_processes(server, 1)[0], signal.SIGTERM)
    assert server.process.wait(60) == 0


def test_scancel_is_sigterm(slurm, start_tasks):
    """To all tasks at once, of which rank 0 alone heeds it."""
    server = start_tasks(2, "--shutdown-timeout", 1)
    threads, outcomes = begin_streams(server, 3)
    job, = slurm.jobs()
    slurm.ask("scancel", job)
    for thread in threads:
        thread.join(60)
    assert server.process.wait(60) == 0
    assert outcomes == ["error"] * 3
    assert "requests in flight, at most 1000 ms for them" in server.read_log()


@pytest.mark.parametrize("options, status, words", [
    (("--mpi=none",), 78, "started by srun, whose processes find each other with --mpi=pmix alone"),
    (("--mpi=pmix",), 78, "tensor-parallel-size: 3; 2 ranks were started: must be 2")])
def test_refused(slurm, options, status, words):
    result = run("serve", "--model", MODEL, "--tensor-parallel-size", 3, launcher=["srun", *options, "-n", 2],
                 environment=slurm.environment)
    assert result.returncode == status
    assert words in result.stderr, result.stderr


def ended_by_themselves(log):
    """The tasks that left with status 70, by srun's words."""
    tasks = set()
    for ranges in re.findall(r"tasks? ([\d,-]+): Exited with exit code 70", log):
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            tasks |= set(range(int(first), int(last or first) + 1))
    return tasks


@pytest.mark.parametrize("how, rank, count, stages", [
    (how, rank, 2, 1) for how in (signal.SIGKILL, signal.SIGSTOP) for rank in (0, 1)] + [
    (signal.SIGKILL, 3, 2, 2), (signal.SIGSTOP, 1, 2, 2)])
def test_a_lost_rank_ends_all(start_tasks, how, rank, count, stages):
    num_ranks = count * stages
    server = start_tasks(count, "--rank-timeout", TIMEOUT_S, stages=stages)
    pids = task_processes(server, num_ranks)
    threads, outcomes = begin_streams(server, 3)
    began = time.monotonic()
    os.kill(pids[rank], how)
    for thread in threads:
        thread.join(60)
    answered_s = time.monotonic() - began
    assert server.process.wait(60) not in (0, None)
    ended_s = time.monotonic() - began
    print(f"{how.name} of rank {rank} of {num_ranks}: answered after {answered_s:.2f} s, ended after {ended_s:.2f} s")
    assert ended_s < TIMEOUT_S + KILL_DELAY_S + 15
    assert all(is_gone(pid) for pid in pids)
    assert ended_by_themselves(server.read_log()) == set(range(num_ranks)) - {rank}
    allowed = ("cut",) if rank == 0 else ("error", 503)  # Slurm does not continue a rank 0 that was stopped
    assert all(outcome in allowed for outcome in outcomes), outcomes
