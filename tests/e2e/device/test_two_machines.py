"""`mpirun quire serve` and `srun quire serve` on two machines (two_machines.py): ranks that have nothing in common but a network answer what
threads do, and when the cable between them is pulled, all is answered and every rank ends."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

import slurm
import two_machines
from slurm import KILL_WAIT_S, Slurm
from test_gpu_processes import GPUS, MODULE, ROOMY, machine
from test_load import gather
from test_mpirun import MPIRUN, SIGTERM_S, TIMEOUT_S, begin_streams, is_gone, load
from test_srun import KILL_DELAY_S, SRUN
from two_machines import NAMES, TwoMachines

pytestmark = [pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed"),
              pytest.mark.skipif(not two_machines.is_possible(), reason="namespaces want root, ip and nsenter")]

# When mpirun takes a silent machine for lost (docs/scale.md).
KEEPALIVE = ["--mca", "oob_tcp_keepalive_time", 2, "--mca", "oob_tcp_keepalive_intvl", 1, "--mca", "oob_tcp_keepalive_probes", 3]
WAIT_S = TIMEOUT_S + 3  # Slurm's, from the end of a task to that of the others
# mpirun sends SIGKILL after twice that time; srun waits for a machine that is silent as long as for tasks that shall end.
END_S = TIMEOUT_S + max(2 * SIGTERM_S, WAIT_S + KILL_WAIT_S + 2) + 15
variant = pytest.mark.variant
without_slurm = pytest.mark.skipif(not slurm.is_installed(), reason="Slurm is not installed")


@pytest.fixture
def machines():
    machines = TwoMachines()
    with machines.entered():
        yield machines
    machines.close()


@pytest.fixture(params=["mpirun", pytest.param("srun", marks=[variant, without_slurm])])
def start_ranks(request, machines, start_server):
    cluster = Slurm(KILL_DELAY_S, machines) if request.param == "srun" else None
    environment = cluster.environment if cluster else {}

    def start(count, *options, stages=1, variables={}):
        number = count * stages
        command = [*SRUN, "--wait", WAIT_S, "-N", 2, "--ntasks-per-node", number // 2] if cluster else [*MPIRUN, *KEEPALIVE, *machines.mpirun_options(number // 2)]
        return start_server("--tensor-parallel-size", count, "--pipeline-parallel-size", stages, *options,
                            launcher=[*machines.launcher(), *command], environment={**environment, **variables})
    yield start
    if cluster:
        cluster.end_jobs()
        cluster.close()


def rank_of(pid):
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(variable[10:]) for variable in environment if variable.startswith(b"PMIX_RANK="))


def ranks_on(machines, index):
    """Process ids by rank."""
    return sorted((pid for pid, command in machines.processes(index).items() if command == "quire"), key=rank_of)


@pytest.mark.parametrize("count, stages", [(2, 1), pytest.param(1, 2, marks=variant), pytest.param(2, 2, marks=variant)],
                         ids=["two", "two stages", "two by two"])
def test_what_threads_answer(machines, start_server, start_ranks, count, stages):
    threads = start_server("--tensor-parallel-size", count)
    expected = gather(threads, load)
    threads.kill()
    ranks = start_ranks(count, "--rank-timeout", 3600, stages=stages)
    assert gather(ranks, load) == expected
    log = ranks.read_log()
    for rank in range(count * stages):
        name = NAMES[rank * 2 // (count * stages)]
        assert any(f"rank {rank} " in line and name in line for line in log.splitlines()), log
    os.kill(ranks_on(machines, 0)[0], signal.SIGTERM)
    assert ranks.process.wait(60) == 0
    assert not ranks_on(machines, 0) and not ranks_on(machines, 1)


@pytest.mark.parametrize("stages, how", [
    (1, "cable"), pytest.param(2, "cable", marks=variant), pytest.param(1, signal.SIGKILL, marks=variant),
    pytest.param(2, signal.SIGSTOP, marks=variant)])
def test_a_lost_machine_ends_all(machines, start_ranks, stages, how):
    server = start_ranks(2 // stages, "--rank-timeout", TIMEOUT_S, stages=stages)
    lose_machine(machines, server, how)
    again = start_ranks(2 // stages, stages=stages)
    assert again.complete("Once upon a time", max_tokens=5).choices[0].text


@variant
@pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")
@pytest.mark.parametrize("stages", [1, 2])
def test_gpus_of_a_lost_machine(machines, start_ranks, stages):
    """Each rank has GPU 0 of its machine; NCCL waits for what the cable does not carry."""
    options = *GPUS, *ROOMY, "--max-model-len", 1024, "--rank-timeout", TIMEOUT_S
    server = start_ranks(2 // stages, *options, stages=stages, variables=machine(1))
    lose_machine(machines, server, "cable", max_tokens=1000)


def lose_machine(machines, server, how, max_tokens=4000):
    ranks = [*ranks_on(machines, 0), *ranks_on(machines, 1)]
    assert len(ranks) == 2
    threads, outcomes = begin_streams(server, 3, max_tokens)
    began = time.monotonic()
    if how == "cable":
        machines.pull_cable()
    else:
        os.kill(ranks[1], how)
    for thread in threads:
        thread.join(60)
    answered_s = time.monotonic() - began
    assert set(outcomes) <= {"error", 503}, outcomes  # 503: before the first token
    status = server.process.wait(60)
    ended_s = time.monotonic() - began
    print(f"{how}: answered after {answered_s:.2f} s, the launcher ended after {ended_s:.2f} s with status {status}")
    assert status not in (0, None) and ended_s < END_S
    while not all(map(is_gone, ranks)):
        assert time.monotonic() - began < END_S
        time.sleep(0.1)
    machines.plug_in_cable()
