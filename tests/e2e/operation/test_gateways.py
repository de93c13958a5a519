"""config/haproxy and config/nginx, by HAProxy and nginx, in front of three replicas: what becomes of requests when one is
killed, drained or restarted, and whether a conversation finds its cached prefix again."""

import json
import os
import random
import signal
import threading
import time

import httpx
import pytest

from gateway_stage import Gateway, Load, Replicas, Stream, ask, find_program, replica_of, send
from raw_http import wait_until
from scripted_server import ScriptedServer

GATEWAYS = ["haproxy", "nginx"]
DRAIN_DELAY = 3  # seconds; longer than HAProxy's checks take to notice
NUM_STREAMS = 6
NUM_SESSIONS, NUM_TURNS = 13, 5  # 13 is a multiple of no number of replicas, so that turns alone bring none back to where it was


def installed(name):
    if find_program(name) is None:
        pytest.skip(f"there is no {name}")
    return name


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    started = Replicas(tmp_path_factory.mktemp("replicas"), "--drain-delay", DRAIN_DELAY, "--shutdown-timeout", 60,
                       "--allowed-hosts", "quire.example.com")
    yield started
    started.kill()


@pytest.fixture(params=GATEWAYS)
def gateway(request, tmp_path, replicas):
    started = Gateway(installed(request.param), tmp_path / request.param, replicas.ports()).start()
    yield started
    started.stop()


@pytest.mark.parametrize("name", GATEWAYS)
def test_the_program_accepts_the_configuration(name, tmp_path):
    gateway = Gateway(installed(name), tmp_path / name, (1, 2, 3))
    status, said = gateway.check()
    assert status == 0 and "warn" not in said.lower(), said
    gateway.path.write_text(gateway.path.read_text() + "nonsense here\n")
    assert gateway.check()[0] != 0


@pytest.mark.parametrize("name", GATEWAYS)
def test_each_event_arrives_before_the_next_is_sent(name, tmp_path):
    events = [threading.Event() for _ in range(5)]
    stub = ScriptedServer()
    gateway = Gateway(installed(name), tmp_path / name, [stub.http.server_port] * 3).start()
    stub.script = [[piece for i, event in enumerate(events) for piece in (b"data: %d\n\n" % i, event)]]
    try:
        with httpx.stream("POST", f"http://127.0.0.1:{gateway.port}/v1/completions", json={}, timeout=20) as answer:
            received = (line for line in answer.iter_lines() if line.startswith("data: "))
            for i, event in enumerate(events):
                assert next(received) == f"data: {i}"
                event.set()
    finally:
        gateway.stop()
        stub.close()


def test_what_is_not_read_is_not_generated(gateway, replicas):
    """A gateway that takes a stream faster than its client would have all of it before long."""
    connection = send(gateway, {"prompt": "x", "max_tokens": 3000, "logprobs": 20, "stream": True})
    counts = [-1]

    def stands_still():
        counts.append(replicas.totals("generation_tokens_total"))
        time.sleep(0.3)
        return counts[-1] == counts[-2]

    wait_until(lambda: replicas.totals("num_requests_running") > 0)
    wait_until(stands_still)
    assert replicas.totals("num_requests_running") == 1
    response = connection.getresponse()
    assert response.status == 200
    assert response.read().endswith(b"data: [DONE]\n\n")
    connection.close()


def test_a_client_that_hangs_up(gateway, replicas):
    """In a stream, and while it waits for an answer."""
    for stream in (True, False):
        body = {"prompt": "x", "max_tokens": 12000, "n": 8, "stream": stream}
        connection = send(gateway, body)
        wait_until(lambda: replicas.totals("num_requests_running") > 0)
        before = replicas.totals("generation_tokens_total")
        connection.close()
        wait_until(lambda: replicas.totals("num_requests_running") == 0)
        assert replicas.totals("generation_tokens_total") - before < 8 * 12000 / 2


def begin_to_end(gateway, server):
    """SIGTERM; and another one, which ends the delay, where nobody asks for /health."""
    server.process.send_signal(signal.SIGTERM)
    if gateway.name == "nginx":
        wait_until(lambda: "requests are accepted for" in server.read_log())
        server.process.send_signal(signal.SIGTERM)


def begin_streams(gateway, replicas):
    """On each replica some."""
    streams = [Stream(gateway, replicas, f"stream {i}" if i % 2 else None) for i in range(NUM_STREAMS)]
    while {stream.replica for stream in streams} != {0, 1, 2}:
        streams.append(Stream(gateway, replicas, f"stream {len(streams)}"))
        assert len(streams) < 60
    return streams


def test_one_is_killed(gateway, replicas):
    """Its streams end; all others, and all that is asked from the moment it is gone, are answered."""
    load, streams = Load(gateway), begin_streams(gateway, replicas)
    load.await_more()
    load.pause()  # so that only the streams are in flight on the one that is killed
    os.kill(replicas.servers[0].process.pid, signal.SIGKILL)
    replicas.servers[0].process.wait()
    load.resume()
    load.await_more(200)
    ended = [(stream.replica, stream.finish()) for stream in streams]
    assert all(is_whole == (replica != 0) for replica, is_whole in ended), ended
    replicas.restart(0)
    load.await_more()
    failures, num_done = load.finish()
    assert not failures, f"{len(failures)} of {num_done}: {failures[:3]}"


def test_one_is_drained(gateway, replicas):
    load, streams = Load(gateway), begin_streams(gateway, replicas)
    load.await_more()
    server = replicas.servers[1]
    begin_to_end(gateway, server)
    wait_until(lambda: "stopping: " in server.read_log())  # until then it has served on
    load.await_more(200)
    assert server.process.poll() is None  # it waits for its streams
    ended = [(stream.replica, stream.finish()) for stream in streams]
    assert all(is_whole for _, is_whole in ended), ended
    assert server.process.wait(60) == 0
    replicas.restart(1)
    failures, num_done = load.finish()
    assert not failures, f"{len(failures)} of {num_done}: {failures[:3]}"


def test_all_are_restarted_in_turn(gateway, replicas):
    load = Load(gateway)
    for i in range(3):
        load.await_more()
        begin_to_end(gateway, replicas.servers[i])
        replicas.restart(i)
        wait_until(lambda: is_used(gateway, replicas, i))
    load.await_more()
    failures, num_done = load.finish()
    assert not failures, f"{len(failures)} of {num_done}: {failures[:3]}"


def is_used(gateway, replicas, i):
    return replica_of(gateway, replicas, ask(gateway, {"prompt": "x", "max_tokens": 1})[0]) == i


def converse(gateway, replicas, has_header):
    """Conversations that take turns, each longer by a question and its answer: the share of prompt tokens found cached, and
    the replicas of each conversation."""
    num_tokens = num_cached = 0
    choose = random.Random(f"{gateway.name} {has_header}")
    prompts, used = [[] for _ in range(NUM_SESSIONS)], [set() for _ in range(NUM_SESSIONS)]
    for _ in range(NUM_TURNS):
        for i, prompt in enumerate(prompts):
            prompt += [choose.randrange(10, 200) for _ in range(100)]
            response, content = ask(gateway, {"prompt": prompt, "max_tokens": 32, "return_token_ids": True},
                                    f"session {i}" if has_header else None)
            assert response.status == 200, content
            reply = json.loads(content)
            used[i].add(replica_of(gateway, replicas, response))
            num_tokens += len(prompt)
            num_cached += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            prompt += reply["choices"][0]["token_ids"]
    return num_cached / num_tokens, used


def test_a_conversation_finds_its_prefix(gateway, replicas):
    for i in range(3):
        wait_until(lambda: is_used(gateway, replicas, i))
    without, scattered = converse(gateway, replicas, False)
    found, used = converse(gateway, replicas, True)
    print(f"{gateway.name}: {found:.0%} of the prompt tokens cached with a session's header, {without:.0%} without")
    assert all(len(one) == 1 for one in used), used
    assert len(set.union(*used)) > 1 and any(len(one) > 1 for one in scattered)
    assert found > without + 0.1
