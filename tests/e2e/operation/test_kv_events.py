"""--kv-events: what a subscriber is told of the prefix cache is what the server has."""

import json
import os
import platform
import random
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import zmq

from kv_subscriber import AllBlocksCleared, Subscriber
from quire_server import BINARY, MODEL, NAME, clean_environment, free_port
from raw_http import open_stream, read_until
from test_rank_process import await_other, rank_process

BLOCK = 16
SMALL = ["--max-model-len", 512, "--kv-cache-memory-bytes", "20M", "--max-num-seqs", 8]


def config(**fields):
    return json.dumps({"enable_kv_cache_events": True, "bind": True, **fields})


@pytest.fixture
def publish(tmp_path, start_server):
    """publish(*arguments) -> server, subscriber from the first batch on, endpoint of the replay."""
    subscribers = []

    def start(*arguments, **fields):
        endpoint, replay = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        subscribers.append(Subscriber(endpoint, replay, topic="kv-events"))
        server = start_server("--kv-events-config", config(endpoint=endpoint, replay_endpoint=replay,
                                                           topic="kv-events", **fields), *arguments)
        time.sleep(0.3)  # for the subscription to arrive: what is sent before it is missed
        return server, subscribers[-1], replay

    yield start
    for subscriber in subscribers:
        subscriber.close()


def catch_up(server, subscriber):
    """Follows an idle server to its last batch, and compares the sizes of both sets."""
    metrics = server.wait_idle()
    subscriber.follow(int(metrics["kv_event_batches_total"]))
    assert metrics["kv_event_batches_lost_total"] == 0
    assert len(subscriber.blocks) == metrics["kv_blocks_known"]
    return metrics


def flush(path):
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://admin") as admin:
        assert admin.post("/admin/flush-cache").status_code == 200


def complete(server, prompt, **fields):
    body = {"model": NAME, "prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
    reply = server.post("/v1/completions", body)
    assert reply.status_code == 200, reply.text
    return reply.json()["usage"]


def cached(usage):
    return (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def assert_predicts(server, subscriber, prompts):
    """What is found of each prompt is what the subscriber said."""
    found = []
    for prompt in prompts:
        catch_up(server, subscriber)
        expected = subscriber.find(prompt, BLOCK)
        assert cached(complete(server, prompt)) == expected
        found.append(expected)
    return found


def await_first(server, subscriber):
    """Has the server publish until the subscriber, whose connection takes a while, gets something."""
    for first in range(100):
        complete(server, [first + 100] * 40)
        if subscriber.socket.poll(100):
            if not subscriber.replay:  # what was missed is lost
                subscriber.next = int(server.wait_idle()["kv_event_batches_total"]) - 1
            return
    pytest.fail("nothing came")


def random_prompts(chance, count):
    """Some begin alike, for a number of tokens that is no whole number of blocks."""
    texts = [[chance.randrange(100, 40000) for _ in range(300)] for _ in range(4)]
    prompts = []
    for _ in range(count):
        text = chance.choice(texts)
        own = [chance.randrange(100, 40000) for _ in range(chance.randrange(1, 60))]
        prompts.append(text[:chance.randrange(0, len(text))] + own)
    return prompts


def run_load(server, prompts, chance):
    """Requests of all kinds at once; some are given up by their clients."""
    def one(prompt, kind, seed):
        # the first ones grow beyond the pool together, so that some are preempted
        fields = {"ignore_eos": True, "max_tokens": 150 if seed < 8 else 8 + seed % 40}
        if kind == "cancelled":
            with open_stream(server, prompt=prompt, **fields) as stream:
                read_until(stream, b"data: ")
        elif kind == "choices":
            complete(server, prompt, n=3, seed=seed, **{**fields, "temperature": 1.0})
        elif kind == "beams":
            complete(server, prompt, n=2, use_beam_search=True, **fields)
        else:
            complete(server, prompt, **fields)

    kinds = [chance.choice(["cancelled", "choices", "beams", "plain", "plain"]) for _ in prompts]
    with ThreadPoolExecutor(12) as pool:
        for future in [pool.submit(one, *each) for each in zip(prompts, kinds, range(len(prompts)))]:
            future.result()


@pytest.mark.parametrize("swap", [pytest.param(0, marks=pytest.mark.variant), 0.05])
def test_the_subscribers_set_is_the_servers(publish, tmp_path, swap):
    chance = random.Random(7)
    server, subscriber, _ = publish(*SMALL, "--swap-space", swap, "--admin-socket", tmp_path / "admin")
    prompts = random_prompts(chance, 26)
    run_load(server, prompts[:16], chance)
    catch_up(server, subscriber)
    assert subscriber.blocks
    flush(tmp_path / "admin")
    server.wait_for(lambda m: m["kv_blocks_known"] == 0)
    catch_up(server, subscriber)
    assert (subscriber.blocks, subscriber.cleared) == ({}, 1)
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(run_load, server, prompts[10:], chance)
        server.wait_for(lambda m: m["num_requests_running"] > 2)
        flush(tmp_path / "admin")
        load.result()
    metrics = catch_up(server, subscriber)
    assert subscriber.removed > 0 and metrics["num_preemptions_total"] > 0
    assert swap == 0 or metrics["kv_blocks_swapped_total"] > 0
    assert subscriber.cleared == 2
    asked = [prompt[:chance.randrange(1, len(prompt) + 1)] for prompt in prompts]
    found = assert_predicts(server, subscriber, asked)
    assert found.count(0) < len(found) and len(set(found)) > 3
    assert subscriber.replayed == 0


def test_a_late_subscriber_gets_the_same_set_by_the_replay(publish, tmp_path):
    chance = random.Random(8)
    server, early, replay = publish(*SMALL, "--record", tmp_path / "record")
    run_load(server, random_prompts(chance, 15), chance)
    late = Subscriber(early.socket.LAST_ENDPOINT.decode(), replay, topic="kv-events")
    try:
        run_load(server, random_prompts(chance, 15), chance)
        catch_up(server, early)
        catch_up(server, late)
        assert late.replayed > 0 and late.blocks == early.blocks
        assert early.cleared == late.cleared == 1  # a recording begins with an empty cache
    finally:
        late.close()


def test_the_replay_has_the_last_batches_only(publish):
    server, subscriber, replay = publish(buffer_steps=3)
    complete(server, [99] * 40)  # what a subscriber that connects late has missed is in the replay still
    catch_up(server, subscriber)
    for first in range(8):
        complete(server, [first + 100] * 40)
    catch_up(server, subscriber)
    with subscriber.context.socket(zmq.DEALER) as asker:
        asker.connect(replay)
        for junk in ([b""], [b"", b"1"], [b"x", bytes(8)], [b"", bytes(8), b""]):
            asker.send_multipart(junk)  # is ignored
        asker.send_multipart([b"", bytes(8)])
        numbers = []
        while numbers[-1:] != [2**64 - 1]:
            assert asker.poll(20000)
            numbers.append(int.from_bytes(asker.recv_multipart()[1], "big"))
    assert numbers == [subscriber.next - 3, subscriber.next - 2, subscriber.next - 1, 2**64 - 1]
    with subscriber.context.socket(zmq.REQ) as asker:
        asker.connect(replay)
        asker.send((subscriber.next - 1).to_bytes(8, "big"))
        assert asker.poll(20000) and asker.recv_multipart()[0] == (subscriber.next - 1).to_bytes(8, "big")


def test_salted_prompts_are_told_apart_and_salts_are_not_told(publish):
    server, subscriber, _ = publish()
    prompt = [5000 + i for i in range(100)]
    for salt in ("my-secret", "other", None):
        complete(server, prompt, **({"cache_salt": salt} if salt else {}))
    catch_up(server, subscriber)
    extra = {content[2] for content in subscriber.blocks.values() if content[0] is None}
    assert len(extra) == 3 and None in extra and "my-secret" not in str(extra)
    assert [subscriber.find(prompt, BLOCK, one) for one in extra] == [96] * 3
    assert subscriber.find(prompt[:50], BLOCK, ("unknown",)) == 0


def test_keys_are_told_apart(publish):
    server, subscriber, _ = publish("--api-key", "first", "--api-key", "second")
    prompt = [6000 + i for i in range(100)]
    for key in ("first", "second"):
        reply = server.post("/v1/completions", {"model": NAME, "prompt": prompt, "max_tokens": 1},
                            headers={"Authorization": f"Bearer {key}"})
        assert reply.status_code == 200
    key = {"Authorization": "Bearer first"}
    metrics = httpx.get(server.url + "/metrics", headers=key).text
    count = [line for line in metrics.splitlines() if line.startswith("quire:kv_event_batches_total")][0]
    subscriber.follow(int(float(count.split()[-1])))
    extra = {content[2] for content in subscriber.blocks.values() if content[0] is None}
    assert len(extra) == 2 and None not in extra and subscriber.find(prompt, BLOCK) == 0


def test_lost_ranks_clear_the_set(publish):
    server, subscriber, _ = publish("--rank-process", "on")
    prompt = [7000 + i for i in range(200)]
    complete(server, prompt)
    catch_up(server, subscriber)
    assert len(subscriber.blocks) == 12
    pid = rank_process(server)
    os.kill(pid, signal.SIGKILL)
    await_other(server, pid)
    catch_up(server, subscriber)
    assert (subscriber.cleared, subscriber.blocks) == (1, {})
    assert assert_predicts(server, subscriber, [prompt, prompt]) == [0, 192]


def test_a_server_that_stops_says_that_nothing_is_left(publish):
    server, subscriber, _ = publish()
    complete(server, [8000 + i for i in range(64)])
    batches = int(catch_up(server, subscriber)["kv_event_batches_total"])
    assert server.terminate() == 0
    subscriber.follow(batches + 1)
    assert isinstance(subscriber.last, AllBlocksCleared) and subscriber.blocks == {}


def test_it_can_connect_to_a_subscriber(start_server):
    endpoint, replay = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    subscriber = Subscriber(endpoint, replay, binds=True)
    server = start_server("--kv-events-config", config(endpoint=endpoint, replay_endpoint=replay, bind=False))
    await_first(server, subscriber)
    catch_up(server, subscriber)
    subscriber.close()


def test_an_endpoint_alone_is_listened_on(start_server, tmp_path):
    for endpoint in (f"tcp://127.0.0.1:{free_port()}", f"ipc://{tmp_path}/events"):
        subscriber = Subscriber(endpoint)
        server = start_server("--kv-events", endpoint)
        await_first(server, subscriber)
        prompt = [9100 + i for i in range(64)]
        complete(server, prompt)
        subscriber.follow(int(server.wait_idle()["kv_event_batches_total"]))
        assert subscriber.find(prompt, BLOCK) == cached(complete(server, prompt)) == 48
        assert "gets the token ids" not in server.read_log()
        subscriber.close()
        assert server.terminate() == 0
    assert not (tmp_path / "events").exists()


def test_it_warns_where_others_can_connect(start_server):
    server = start_server("--kv-events-config", json.dumps({
        "enable_kv_cache_events": True, "endpoint": f"tcp://*:{free_port()}",
        "replay_endpoint": f"tcp://[::]:{free_port()}"}))
    log = server.read_log()
    for field in ("endpoint tcp://*:", "replay_endpoint tcp://[::]:"):
        assert any(field in line and "WARNING" in line and "gets the token ids" in line for line in log.splitlines())


# Runs a program whose socket(AF_NETLINK) fails with EAFNOSUPPORT, as under RestrictAddressFamilies= of a unit: a seccomp
# filter that looks at the system call's number (41: socket, of x86-64) and its first argument (16: AF_NETLINK).
WITHOUT_NETLINK = """#!/usr/bin/env python3
import ctypes, os, socket, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, 41), (0x20, 0, 0, 16), (0x15, 0, 1, 16), (0x06, 0, 0, 0x00050000 | 97),
         (0x06, 0, 0, 0x7fff0000)]
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(steps), code)), 0, 0) == 0
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    sys.exit("AF_NETLINK is there")
except OSError:
    os.execv("%s", ["quire"] + sys.argv[1:])
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter knows x86-64's system calls")
def test_it_needs_no_more_of_the_system_than_the_unit_allows(start_server, tmp_path):
    """ZeroMQ, which asks for the network's interfaces before it binds, would end the process."""
    program = tmp_path / "program"
    program.write_text(WITHOUT_NETLINK % BINARY)
    program.chmod(0o700)
    endpoint, replay = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    subscriber = Subscriber(endpoint, replay)
    server = start_server("--kv-events-config", config(endpoint=endpoint, replay_endpoint=replay), binary=program)
    await_first(server, subscriber)
    catch_up(server, subscriber)
    subscriber.close()


def run(*arguments):
    return subprocess.run([str(word) for word in (BINARY, "serve", "--model", MODEL, *arguments)], env=clean_environment(),
                          capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments,pieces", [
    (["--kv-events", "udp://1.2.3.4:5"], ["kv-events", "tcp://HOST:PORT", "udp://1.2.3.4:5"]),
    (["--kv-events", "tcp://127.0.0.1"], ["kv-events", "tcp://HOST:PORT", "tcp://127.0.0.1"]),
    (["--kv-events", "tcp://127.0.0.1:65536"], ["kv-events", "65536"]),
    (["--kv-events", "tcp://::1:5557"], ["kv-events", "tcp://::1:5557"]),
    (["--kv-events", "ipc://"], ["kv-events", "ipc://PATH"]),
    (["--kv-events", "tcp://127.0.0.1:0", "--kv-events-config", "{}"], ["kv-events", "together with kv-events-config"]),
    (["--kv-events", "tcp://127.0.0.1:0", "--no-enable-prefix-caching"], ["kv-events", "enable-prefix-caching"]),
    (["--kv-events-config", "[]"], ["kv-events-config", "JSON object"]),
    (["--kv-events-config", '{"publisher": "nats"}'], ["kv-events-config", "publisher", '"zmq" or "null"', "nats"]),
    (["--kv-events-config", '{"hwm": 0}'], ["kv-events-config", "hwm", "1 to 1000000", "not 0"]),
    (["--kv-events-config", '{"topics": "a"}'], ["kv-events-config", "topics", "known are", "topic"]),
    (["--kv-events-config", '{"replay_endpoint": 5}'], ["kv-events-config", "replay_endpoint", "string", "not 5"]),
    (["--kv-events-config", '{"replay_endpoint": "x"}'], ["kv-events-config", "replay_endpoint", "tcp://HOST", '"x"']),
    (["--kv-events", "tcp://nowhere.invalid:5557"], ["kv-events", "endpoint", "nowhere.invalid"]),
])
def test_mistakes_are_named(arguments, pieces):
    result = run(*arguments)
    assert result.returncode == 78
    line = result.stderr.strip().splitlines()[-1]
    for piece in pieces:
        assert piece in line


def test_an_endpoint_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        for arguments, field in ((["--kv-events", endpoint], "endpoint"),
                                 (["--kv-events-config", config(endpoint="tcp://127.0.0.1:0", replay_endpoint=endpoint)],
                                  "replay_endpoint")):
            result = run(*arguments)
            line = result.stderr.strip().splitlines()[-1]
            assert result.returncode == 78 and field in line and endpoint in line and "in use" in line


@pytest.mark.parametrize("tier", ["host", "store"])
def test_blocks_in_host_memory(publish, tmp_path, tier):
    """They are told of with their own medium, by the hashes under which the device had them."""
    below = ("--kv-host-bytes", "24M") if tier == "host" else ("--kv-store", tmp_path / "kv", "--kv-store-bytes", "256M")
    server, subscriber, _ = publish(*SMALL, *below)
    text = " ".join(f"Item {i} of the list." for i in range(60))
    told = set()
    for i in range(12):
        server.post("/v1/completions", {"model": NAME, "prompt": f"{i} {text}", "max_tokens": 1, "temperature": 0})
        catch_up(server, subscriber)
        assert subscriber.kept <= (told := told | subscriber.blocks.keys())

    def count_kept():
        lines = httpx.get(server.url + "/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if "kv_tier_blocks" in line and 'tier="host"' in line)

    deadline = time.monotonic() + 30
    while len(subscriber.kept) != count_kept():  # writes end without a step
        assert time.monotonic() < deadline
        catch_up(server, subscriber)
    assert len(subscriber.kept) > 10
