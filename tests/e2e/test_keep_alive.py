"""What a stream sends while its device is silent for long: Anthropic's ping, and a comment elsewhere. The device's process is stopped
meanwhile."""

import os
import signal
import threading
import time

import httpx

from quire_server import NAME
from test_rank_process import rank_process

SILENCE_S = 17  # above the 15 s of http_server.c
BODIES = {
    "/v1/messages": {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 40},
    "/v1/completions": {"prompt": "Count.", "max_tokens": 40},
}


def read_stream(server, path, begun, found):
    """Collects the lines of a stream with the time at which each came."""
    body = {"model": NAME, "stream": True, "temperature": 0, "ignore_eos": True, **BODIES[path]}
    with httpx.stream("POST", server.url + path, json=body, timeout=120) as reply:
        assert reply.status_code == 200
        for line in reply.iter_lines():
            found.append((time.monotonic(), line))
            if line.startswith("data:"):
                begun.set()


def test_silent_streams_are_kept_alive(start_server):
    server = start_server("--rank-process", "on", "--device-timeout", 120, "--no-async-scheduling")
    found = {path: [] for path in BODIES}
    begun = {path: threading.Event() for path in BODIES}
    threads = [threading.Thread(target=read_stream, args=(server, path, begun[path], found[path])) for path in BODIES]
    for thread in threads:
        thread.start()
    for event in begun.values():
        assert event.wait(60)
    pid = rank_process(server)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        time.sleep(SILENCE_S)
    finally:
        resumed = time.monotonic()
        os.kill(pid, signal.SIGCONT)
    for thread in threads:
        thread.join(100)
    messages, completions = ([line for _, line in found[path]] for path in BODIES)
    pings = [i for i, line in enumerate(messages) if line == "event: ping"]
    assert len(pings) == 2 and pings[0] < 5  # the first one follows message_start, as Anthropic has it
    at = pings[1]
    assert messages[at - 1:at + 3] == ["", "event: ping", 'data: {"type":"ping"}', ""] and ": keep-alive" not in messages
    assert stopped + 14 < found["/v1/messages"][at][0] < resumed
    assert completions.count(": keep-alive") == 1 and not any("ping" in line for line in completions)
    assert "event: message_stop" in messages[at:] and "data: [DONE]" in completions
