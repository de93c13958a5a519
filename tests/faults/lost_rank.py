"""5.16: ranks that are processes (mpirun), killed and stopped under streams. (A connection that is reset Open MPI makes
anew, or gives up the whole job.)"""

import http.client
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

from scenario import scenario

RANK_TIMEOUT_S = 3
SIGTERM_S = 5  # from when a rank is gone until mpirun sends the others SIGTERM; SIGKILL after twice that
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout",
          str(SIGTERM_S)]
LATE_S = 1
NUM_STREAMS = 4
END_S = 60


def rank_processes(mpirun):
    """Process ids by rank, of mpirun's children."""
    found = {}
    for task in Path(f"/proc/{mpirun}/task").glob("*/children"):
        for pid in map(int, task.read_text().split()):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(variable.split(b"=")[1])] = pid
    return [found[rank] for rank in sorted(found)]


def read_stream(port, outcomes, index, began):
    """Notes how it ended: with an error event, a status, or its connection. A stream that hangs notes nothing."""
    body = {"prompt": "ab", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    connection, ends = http.client.HTTPConnection("127.0.0.1", port, timeout=END_S), []
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Connection": "close"})
        answer = connection.getresponse()
        began.release()
        ends = [answer.status] if answer.status != 200 else ["error" for line in answer if b'"error"' in line]
    except (OSError, http.client.HTTPException):
        pass
    outcomes[index] = ends or ["cut"]


def strike(victim, blow, rank):
    pids = rank_processes(victim.pid)
    os.kill(pids[rank], signal.SIGKILL if blow == "killed" else signal.SIGSTOP)
    return pids


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def lose(stage, blow, rank, way):
    """Returns how the streams ended, the seconds until the last did, and whether all processes went."""
    options = {f"{way}-parallel-size": 2, "rank-timeout": RANK_TIMEOUT_S}
    with stage.server(options, status=None, launcher=[*MPIRUN, "-n", "2"]) as victim:
        outcomes, began = [None] * NUM_STREAMS, threading.Semaphore(0)
        streams = [threading.Thread(target=read_stream, args=(victim.address, outcomes, i, began), daemon=True)
                   for i in range(NUM_STREAMS)]
        for stream in streams:
            stream.start()
        for _ in streams:
            began.acquire(timeout=END_S)
        struck_s = time.monotonic()
        pids = strike(victim, blow, rank)
        for stream in streams:
            stream.join(END_S)
        ended_s = time.monotonic() - struck_s
        status = victim.process.wait(END_S)
        return outcomes, ended_s, status != 0 and all(is_gone(pid) for pid in pids)


@scenario("5.16", "ranks under mpirun, killed and stopped while streams run")
def lost_rank(stage):
    if shutil.which("mpirun") is None:
        stage.figure("mpirun", "is not installed", "", True)
        return
    blows = stage.pick([("killed", 1, "tensor")], [(blow, rank, way) for blow in ("killed", "stopped") for rank in (0, 1)
                                                   for way in ("tensor", "pipeline")])
    for blow, rank, way in blows:
        found = [lose(stage, blow, rank, way) for _ in range(stage.pick(1, 20))]
        ends = [end for outcomes, _, _ in found for end in outcomes]
        answered = sum(end is not None and end[0] in (503, "error") and len(end) == 1 for end in ends)
        said = f"rank {rank} ({way}) {blow}"
        stage.figure(f"{said}: streams that hang; processes left", f"{ends.count(None)}; {sum(not went for *_, went in found)}",
                     "0; 0", None not in ends and all(went for *_, went in found))
        must_answer = rank == 1  # else the process that answers is the one that is lost
        stage.figure(f"{said}: of {len(ends)} streams answered with an error", answered, len(ends) if must_answer else "any",
                     answered == len(ends) or not must_answer)
        # A stopped rank 0 goes on, and begins to wait, when rank 1 has left.
        stage.most(f"{said}: seconds to the last end, longest", max(seconds for _, seconds, _ in found),
                   RANK_TIMEOUT_S + (LATE_S if must_answer else 2 * SIGTERM_S), " s", is_timed=True)
