"""What others see of a server while it is attacked; a process of its own, so that the attacker's work delays nothing here.

    witness.py ADDRESS PID SECONDS [SOURCE]

Repeats a seeded stream and compares each with the first; posts a tiny completion and requests /health every 50 ms, each from a
new connection; samples memory and sockets. Says "ready" once the first stream is there, and ends with a line of JSON when stdin
ends, or after SECONDS. Everybody here comes from SOURCE, so that the attacker's address is another one."""

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from wire import answers, closing, completion, open_socket, read_to_end, request_bytes

PROBE_EVERY_S = 0.05
PROBE_TIMEOUT_S = 10
SLOW_S = 1.0
STALLED_S = 2.5
SAMPLE_EVERY_S = 0.1
STREAM_TOKENS = 400
STREAM_TIMEOUT_S = 60


def ask(address, source, request, timeout):
    """The answers, or the name of what went wrong."""
    try:
        with open_socket(address, source, timeout=timeout) as sock:
            sock.sendall(closing(request))
            return answers(read_to_end(sock, timeout)[0])
    except OSError as error:
        return type(error).__name__


def verdict(found, seconds):
    if isinstance(found, str):
        return found
    if len(found) != 1 or found[0].status == 0:
        return "cut" if found else "no answer"
    if found[0].status != 200:
        return str(found[0].status)
    return "ok" if seconds <= SLOW_S else "slow" if seconds <= STALLED_S else "stalled"


def stream_content(answer):
    """What a stream says, without what names the call: texts, tokens and their logprobs, usage."""
    frames = [line[6:] for line in answer.body.decode().split("\n\n") if line.startswith("data: ")]
    if not frames or frames[-1] != "[DONE]":
        return None
    text, logprobs, ends = "", [], []
    for frame in map(json.loads, frames[:-1]):
        for choice in frame.get("choices", ()):
            text += choice["text"]
            logprobs += (choice.get("logprobs") or {}).get("token_logprobs", [])
            if choice.get("finish_reason"):
                ends.append(choice["finish_reason"])
        if frame.get("usage"):
            ends.append(frame["usage"]["completion_tokens"])
    return text, tuple(logprobs), tuple(ends)


class Witness:
    def __init__(self, address, pid, source):
        self.address, self.pid, self.source = address, pid, source
        self.stopped = threading.Event()
        self.bad_spans = {"health": [], "completion": []}
        self.verdicts = {"health": Counter(), "completion": Counter(), "stream": Counter()}
        self.first = None
        self.rss_peak = self.sockets_peak = 0

    def probe(self, kind, request):
        while not self.stopped.is_set():
            began = time.monotonic()
            found = ask(self.address, self.source, request, PROBE_TIMEOUT_S)
            ended = time.monotonic()
            said = verdict(found, ended - began)
            self.verdicts[kind][said] += 1
            if said != "ok":
                self.bad_spans[kind].append((began, ended + PROBE_EVERY_S))
            self.stopped.wait(PROBE_EVERY_S)

    def stream_once(self):
        request = completion(prompt="Once upon a time", max_tokens=STREAM_TOKENS, temperature=1, seed=11, logprobs=1,
                             ignore_eos=True, stream=True, stream_options={"include_usage": True})
        found = ask(self.address, self.source, request, STREAM_TIMEOUT_S)
        said = verdict(found, 0)
        if said == "ok":
            content = stream_content(found[0])
            self.first = self.first or content
            said = "cut" if content is None else "same" if content == self.first else "changed"
        self.verdicts["stream"][said] += 1

    def repeat_stream(self):
        while not self.stopped.is_set():
            self.stream_once()
            self.stopped.wait(0.01)

    def sample(self):
        """A process that ends is nothing to complain of here."""
        while not self.stopped.is_set():
            try:
                status = Path(f"/proc/{self.pid}/status").read_text()
                links = [entry.readlink() for entry in Path(f"/proc/{self.pid}/fd").iterdir()]
                rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
                self.rss_peak = max(self.rss_peak, rss * 1024)
                self.sockets_peak = max(self.sockets_peak, sum(str(link).startswith("socket:") for link in links))
            except (OSError, StopIteration):
                pass
            self.stopped.wait(SAMPLE_EVERY_S)

    def report(self):
        return {"verdicts": {kind: dict(counts) for kind, counts in self.verdicts.items()},
                "refused_ms": {kind: span_sums(spans) for kind, spans in self.bad_spans.items()},
                "rss_peak": self.rss_peak, "sockets_peak": self.sockets_peak}


def span_sums(spans):
    """(sum, longest) in ms of spans in order of their begin, those that touch taken together."""
    total = longest = 0.0
    begin = end = None
    for span in [*spans, (float("inf"), float("inf"))]:
        if begin is not None and span[0] > end + 0.02:
            total, longest = total + end - begin, max(longest, end - begin)
            begin = None
        begin = span[0] if begin is None else begin
        end = span[1] if begin == span[0] else max(end, span[1])
    return round(total * 1000), round(longest * 1000)


def main():
    address, pid, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    source = sys.argv[4] if len(sys.argv) > 4 else None
    witness = Witness(int(address) if address.isdigit() else address, pid, source)
    witness.stream_once()
    jobs = [(witness.probe, ("health", request_bytes("/health"))), (witness.probe, ("completion", completion(seed=3))),
            (witness.repeat_stream, ()), (witness.sample, ())]
    threads = [threading.Thread(target=job, args=arguments, daemon=True) for job, arguments in jobs]
    threading.Thread(target=lambda: (sys.stdin.read(), witness.stopped.set()), daemon=True).start()
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    witness.stopped.wait(seconds)
    witness.stopped.set()
    for thread in threads:
        thread.join(STREAM_TIMEOUT_S)
    print(json.dumps(witness.report()), flush=True)


if __name__ == "__main__":
    main()
