"""A device that fails in the middle of its steps, wherever that is: in a recorded step that is replayed, with another
one behind it, or in a prefill, alone or beside others' decoding. Every client gets one end."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from quire_server import BINARY, NAME, ROOT
from raw_http import connect, read_until, read_until_close, request_bytes

MODULE = BINARY.parents[1] / "kernels/cuda/libquire-cuda-sim.so"
GPU = ("--device", "cuda-sim", "--model", ROOT / "tests/golden/families/llama.gguf", "--max-model-len", 256,
       "--max-num-seqs", 8, "--max-num-batched-tokens", 16, "--kv-cache-memory-bytes", 4000000, "--swap-space", 0)
NUM_DECODING = 6

pytestmark = pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")


class Device:
    """A server on a simulated GPU that can be told to fail."""

    def __init__(self, start_server, folder, *arguments):
        self.order = folder / "failure"
        self.server = start_server(*GPU, *arguments, environment={
            "LD_LIBRARY_PATH": str(MODULE.parent), "QUIRE_CUDASIM_MEMORY": str(96 << 20),
            "QUIRE_CUDASIM_FAIL_FILE": str(self.order)})
        assert "recorded" in self.server.read_log()

    def fail(self, kind, number):
        """In the (number + 1)th kernel of a replayed step ("graph"), or of one that is not ("kernel")."""
        whole = self.order.with_suffix(".new")
        whole.write_text(f"{kind} {number}")
        os.rename(whole, self.order)

    def has_failed(self):
        return not self.order.exists()


@pytest.fixture
def start_device(start_server, tmp_path):
    return lambda *arguments: Device(start_server, tmp_path, *arguments)


def body(index, stream, **fields):
    """One that is decoded in recorded steps: nothing but its sampling is asked for."""
    return {"model": NAME, "prompt": f"{index} Once upon a time", "max_tokens": 200, "ignore_eos": True,
            "temperature": index % 2, "seed": index, "stream": stream, **fields}


class Client:
    """Reads one answer to the end of its connection, in a thread. The failure's code is engine_error, or engine_failed for
    who comes after it."""

    def __init__(self, server, index, stream, **fields):
        self.sock = connect(server)
        self.received, self.begun = b"", threading.Event()
        self.sock.sendall(request_bytes("/v1/completions", body(index, stream, **fields)))
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        with self.sock:
            try:
                while data := self.sock.recv(65536):
                    self.received += data
                    if self.received.count(b"data: ") >= 3:
                        self.begun.set()
            except ConnectionResetError:
                pass

    def end(self):
        """"503" or "event"; fails unless it is one of them, once and whole."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        received = self.received
        assert received.count(b"HTTP/1.1 ") == 1 and received.count(b'"code":"engine_') == 1, received[-800:]
        if received.startswith(b"HTTP/1.1 503 "):
            assert b"data: " not in received and b"\r\nretry-after: " in received.lower(), received
            return "503"
        assert received.startswith(b"HTTP/1.1 200 ") and b'"finish_reason":"' not in received, received[-800:]
        assert received.count(b"data: [DONE]") == 1 and received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        return "event"


def start_decoding(server):
    """Streams, and requests whose answers have not begun; each has its first token."""
    begun = server.metrics()["time_to_first_token_seconds_count"]
    clients = [Client(server, index, stream=index % 3 != 2) for index in range(NUM_DECODING)]
    server.wait_for(lambda m: m["time_to_first_token_seconds_count"] == begun + NUM_DECODING)
    for index, client in enumerate(clients):
        assert index % 3 == 2 or client.begun.wait(30), server.read_log()
    return clients


DECODING_ENDS = ["503" if index % 3 == 2 else "event" for index in range(NUM_DECODING)]


def check_ended(device):
    assert device.has_failed()
    assert device.server.process.wait(20) == 70
    log = device.server.read_log()
    errors = [line for line in log.splitlines() if "ERROR" in line]
    assert len(errors) == 1 and "kernels/cuda/" in errors[0] and "the device failed" in log, log


@pytest.mark.parametrize("options", [(), ("--no-async-scheduling",)], ids=["two in flight", "one"])
@pytest.mark.parametrize("number", [0, 1, 17, 40, 100])
def test_in_a_replayed_step(start_device, number, options):
    """Some tens of kernels are one step: it is this one's first or last, or another's behind it."""
    device = start_device("--rank-process", "off", *options)
    clients = start_decoding(device.server)
    device.fail("graph", number)
    assert [client.end() for client in clients] == DECODING_ENDS
    check_ended(device)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("number", [0, 9])
def test_in_a_prefill(start_device, number, stream):
    device = start_device("--rank-process", "off")
    device.fail("kernel", number)
    client = Client(device.server, 0, stream)
    assert client.end() == ("event" if stream else "503")
    check_ended(device)


@pytest.mark.parametrize("number", [0, 9, 20])
def test_in_a_prefill_beside_others_that_decode(start_device, number):
    """The newcomer's prompt takes a dozen steps, so that it is computed when the order comes. Sampling for the others counts too."""
    device = start_device("--rank-process", "off")
    clients = start_decoding(device.server)
    clients.append(Client(device.server, NUM_DECODING, stream=True, prompt="a " * 80, max_tokens=80))
    device.server.wait_for(lambda m: m["num_requests_running"] == NUM_DECODING + 1)
    device.fail("kernel", number)
    assert [client.end() for client in clients] == DECODING_ENDS + ["event"]
    check_ended(device)


def texts(server, then=lambda: None):
    """What all get; `then` is called once some decode."""
    def stream(index):
        with connect(server) as sock:
            sock.sendall(request_bytes("/v1/completions", body(index, True, max_tokens=70)))
            received = read_until(sock, b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert received.count(b"[DONE]") == 1 and received.count(b'"finish_reason":"length"') == 1
            assert b"error" not in received
            return b"".join(part.partition(b'"text":"')[2].partition(b'","')[0] for part in received.split(b"data: "))

    with ThreadPoolExecutor(NUM_DECODING) as pool:
        streams = [pool.submit(stream, index) for index in range(NUM_DECODING)]
        begun = server.metrics()["generation_tokens_total"] + 20
        server.wait_for(lambda m: m["num_requests_running"] == NUM_DECODING and m["generation_tokens_total"] > begun)
        then()
        return [stream.result() for stream in streams]


@pytest.mark.parametrize("number", [0, 40])
def test_streams_go_on_with_a_rank_process(start_device, number):
    device = start_device("--batch-invariant", "--rank-process", "on")
    expected = texts(device.server)
    assert texts(device.server, lambda: device.fail("graph", number)) == expected
    assert device.has_failed()
    metrics = device.server.wait_idle()
    assert metrics["rank_restarts_total"] == 1 and metrics["kv_blocks_used"] == 0
    assert device.server.terminate() == 0
