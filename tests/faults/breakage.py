"""5.3, 5.9, 5.10: a process that is killed, a disk that is full, a model file that is damaged."""

import random
import signal
import socket
import subprocess
import time

from drain import Streams
from scenario import await_true, scenario
from victim import Victim
from wire import closing, completion, exchange

CLIENTS = 32


@scenario("5.3", "kill -9 while streams run, and a new process on the same socket")
def kill(stage):
    longest = 0.0
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        for _ in range(stage.pick(2, 10)):
            victim = Victim(stage.binary, stage.model, stage.folder, {"max-num-seqs": CLIENTS}, listener=listener)
            streams = Streams(victim, CLIENTS, max_tokens=7000)
            stage.want(await_true(streams.have_begun), "streams do not begin")
            began = time.monotonic()
            victim.kill()
            hung = sum(isinstance(end, str) and end == "cut" for end in streams.finish())
            stage.want(not hung, f"{hung} of {CLIENTS} clients still wait after the server was killed")
            victim = Victim(stage.binary, stage.model, stage.folder, listener=listener)
            longest = max(longest, time.monotonic() - began)
            try:
                stage.problems += victim.finish()
            finally:
                victim.kill()
    stage.figure("clients that hang after kill -9", "see below" if stage.problems else 0, 0, not stage.problems)
    stage.most("from kill -9 until it answers again", longest, 2, " s", is_timed=True)


@scenario("5.9", "a disk that is full under the access log, a log that nobody reads")
def disk_full(stage):
    with stage.server({"access-log": "/dev/full", "log-level": "debug"}) as victim:
        said = [exchange(victim.address, closing(completion()))[0][0].status for _ in range(stage.pick(50, 2000))]
        lost = victim.metrics().get("access_log_lines_lost_total", 0)
        stage.figure("calls not answered; lines counted as lost", f"{len(said) - said.count(200)}; {lost:.0f}", "0; some",
                     said.count(200) == len(said) and lost > 0)
    stage.attack("R13-stuck-log")


def ends_with(stage, path, seconds=60):
    """The exit status of a server on that file; None where it serves."""
    command = [str(stage.binary), "serve", "--model", str(path), "--port", "0", "--verify-weights", "--threads", "1"]
    with open(stage.folder / "corrupt.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        await_true(lambda: process.poll() is not None or b"listening on" in (stage.folder / "corrupt.log").read_bytes(), seconds)
        return process.poll()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


@scenario("5.10", "model files with a flipped bit, or cut, where their checksum is known")
def corrupt_model(stage):
    """With --verify-weights and FILE.sha256: each is refused as configuration (78)."""
    rng, data, path = random.Random(3), stage.model.read_bytes(), stage.folder / "corrupt.gguf"
    digest = subprocess.run(["sha256sum", stage.model], capture_output=True, text=True, check=True).stdout.split()[0]
    path.with_name(path.name + ".sha256").write_text(f"{digest}  {path.name}\n")
    path.write_bytes(data)
    stage.figure("the file as it was", f"status {ends_with(stage, path)}", "is served", ends_with(stage, path) is None)
    statuses, count = [], stage.pick(8, 100)
    for i in range(count):
        damaged = bytearray(data)
        if i % 4 == 3:
            del damaged[rng.randrange(len(damaged)):]
        else:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        statuses.append(ends_with(stage, path))
    stage.figure(f"refused with 78 of {count} damaged files", statuses.count(78), count, statuses.count(78) == count)
