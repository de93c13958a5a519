"""5.7, 5.8: ranks in a process of their own that is killed, stopped and made to crash under streams."""

import http.client
import json
import os
import random
import signal
import statistics
import threading
import time
from pathlib import Path

from scenario import await_true, scenario

BLOWS = [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGABRT]
STREAM_S = 600
# Too little for all streams at once, so that some are swapped out; a prompt of 600 tokens is computed over several steps.
# A stopped process is given up after device-timeout.
OPTIONS = {"max-model-len": 1024, "max-num-batched-tokens": 256, "kv-cache-memory-bytes": 80 << 20, "swap-space": 0.05,
           "max-num-seqs": 48, "device-timeout": 2}


def bodies(count):
    """Requests of all kinds; the last of each round is not seeded."""
    kinds = [{"temperature": 1.0}, {"temperature": 0}, {"n": 3}, {"n": 3, "use_beam_search": True, "temperature": 0,
             "max_tokens": 16, "stream": False}, {"repetition_penalty": 1.2, "logprobs": 2},
             {"structured_outputs": {"regex": "[a-z ]{90}"}}, {"prompt": [100 + i for i in range(600)]},
             {"temperature": 1.0, "seed": None}]
    for i in range(count):
        body = {"prompt": f"Once upon a time, in year {i}", "max_tokens": 40 + 10 * (i % 9), "ignore_eos": True,
                "seed": i, "stream": True, **kinds[i % len(kinds)]}
        yield {name: value for name, value in body.items() if value is not None}


def rank_process_of(victim):
    for task in Path(f"/proc/{victim.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            return int(child)
    return None


def read_stream(port, body, on_bytes):
    """What each choice got: its text, tokens' logprobs and end. None: the stream is not whole."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STREAM_S)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Connection": "close"})
    answer, choices, is_whole = connection.getresponse(), {}, False
    if not body["stream"]:
        whole = json.loads(answer.read())
        on_bytes()
        return whole.get("choices")
    for line in answer:
        on_bytes()
        if line.startswith(b"data: [DONE]"):
            is_whole = True
        elif line.startswith(b"data: "):
            for choice in json.loads(line[6:]).get("choices", []):
                text, logprobs, _ = choices.get(choice["index"], ("", [], None))
                logprobs = logprobs + ((choice["logprobs"] or {}).get("token_logprobs") or [])
                choices[choice["index"]] = (text + choice["text"], logprobs, choice["finish_reason"])
    connection.close()
    return choices if is_whole and answer.status == 200 else None


class Stream(threading.Thread):
    """Sends its request again and again, and compares."""

    def __init__(self, port, body, expected):
        super().__init__(daemon=True)
        self.port, self.body, self.expected = port, body, expected
        self.last_s, self.num_whole, self.differences, self.is_over = 0.0, 0, [], False

    def note(self):
        self.last_s = time.monotonic()

    def run(self):
        while not self.is_over and len(self.differences) < 3:
            try:
                got = read_stream(self.port, self.body, self.note)
            except (OSError, http.client.HTTPException, ValueError) as error:
                got, self.differences = None, self.differences + [repr(error)]
            if got is None or ("seed" in self.body and got != self.expected):
                self.differences.append({"body": self.body, "got": got, "expected": self.expected})
            self.num_whole += got is not None


def strike(victim, streams, blow):
    """Returns the seconds until all streams have gone on, and until there was another process."""
    pid, began = rank_process_of(victim), time.monotonic()
    os.kill(pid, blow)
    if not await_true(lambda: rank_process_of(victim) not in (None, pid), STREAM_S, 0.002):
        raise RuntimeError("there is no other rank process")
    restarted = time.monotonic()
    if not await_true(lambda: all(stream.last_s > restarted for stream in streams), STREAM_S, 0.002):
        raise RuntimeError(f"a stream does not go on after {blow.name}")
    return max(stream.last_s for stream in streams) - began, restarted - began


def strike_often(stage, victim, streams):
    """Some of each blow, at random moments, but not before all streams have gone on. Returns how many."""
    chance, count = random.Random(1), stage.pick(4, 50)
    times = {blow: [] for blow in BLOWS}
    for i in range(count):
        time.sleep(chance.random())
        times[BLOWS[i % len(BLOWS)]].append(strike(victim, streams, BLOWS[i % len(BLOWS)]))
    for blow, taken in times.items():
        every, restarts = (statistics.median(values) for values in zip(*taken))
        said = f"{restarts:.2f}; {every:.2f} s"
        stage.figure(f"{blow.name}: to a new process; to all streams going on", said,
                     "medians", True, is_timed=True)
    return count


@scenario("5.7", "ranks killed, stopped and made to crash under seeded streams of all kinds")
def rank_process(stage):
    """Every stream whose output follows from its request must be what a server without such a process says."""
    requests, model = list(bodies(stage.pick(8, 32))), stage.real_model()
    with stage.server({**OPTIONS, "rank-process": "off"}, model=model) as victim:
        expected = [read_stream(victim.address, body, lambda: None) for body in requests]
    stage.want(None not in expected, "a request was refused")
    with stage.server({**OPTIONS, "rank-process": "on"}, model=model) as victim:
        streams = [Stream(victim.address, body, answer) for body, answer in zip(requests, expected)]
        try:
            for stream in streams:
                stream.start()
            if not await_true(lambda: all(stream.last_s for stream in streams), STREAM_S):
                raise RuntimeError("streams do not begin")
            count = strike_often(stage, victim, streams)
        finally:
            for stream in streams:
                stream.is_over = True
        for stream in streams:
            stream.join(STREAM_S)
        found, last = victim.metrics(), rank_process_of(victim)
    differences = [difference for stream in streams for difference in stream.differences]
    stage.problems += [json.dumps(difference, default=str)[:1000] for difference in differences[:3]]
    stage.figure(f"different of {sum(stream.num_whole for stream in streams)} streams; restarts", f"{len(differences)}; "
                 f"{found['rank_restarts_total']:.0f}", f"0; {count}", not differences and found["rank_restarts_total"] >= count)
    stage.figure("blocks swapped", f"{found['kv_blocks_swapped_total']:.0f}", "some", stage.is_short or found["kv_blocks_swapped_total"] > 0)
    stage.want(not Path(f"/proc/{last}").exists(), "the rank process outlives the server")
