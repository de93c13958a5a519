#!/usr/bin/env python3
"""The load generator counts what comes, says what went wrong, and refuses what is too large."""

import json
import random
import signal
import socket
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from bench_serve import describe_ceiling, make_requests
from http_response import MAX_BODY_BYTES, MAX_HEAD_BYTES, HttpError, ResponseReader
from load_run import LoadError, LoadProcesses, StubServers, percentile, share_out, summarise
from workloads import Workload, arrival_times

CHUNKED = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
           b"5\r\nhello\r\n1;name=value\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n")
LENGTH = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


def read_all(pieces):
    """The reader, after it took these, and the body."""
    reader = ResponseReader()
    return reader, b"".join([reader.feed(piece) for piece in pieces])


class Responses(unittest.TestCase):
    def check(self, reader, body, status, expected, reusable):
        self.assertTrue(reader.done)
        self.assertEqual((reader.status, body, reader.reusable, reader.buffer), (status, expected, reusable, b""))

    def test_split_at_every_byte(self):
        for at in range(len(CHUNKED) + 1):
            self.check(*read_all([CHUNKED[:at], CHUNKED[at:]]), 200, b"hello 0123456789", True)
        for at in range(len(LENGTH) + 1):
            self.check(*read_all([LENGTH[:at], LENGTH[at:]]), 503, b"busy", False)

    def test_byte_by_byte(self):
        for data in (CHUNKED, INTERIM + CHUNKED):
            pieces = [data[at:at + 1] for at in range(len(data))]
            self.check(*read_all(pieces), 200, b"hello 0123456789", True)

    def test_one_after_the_other(self):
        reader, body = read_all([CHUNKED + CHUNKED.replace(b"hello", b"HELLO") + b"HTTP"])
        self.assertEqual((body, reader.done), (b"hello 0123456789", True))
        reader.begin()
        self.assertEqual((reader.feed(b""), reader.done), (b"HELLO 0123456789", True))
        self.assertEqual(reader.buffer, b"HTTP")

    def test_a_body_that_ends_with_the_connection(self):
        reader, body = read_all([b"HTTP/1.1 200 OK\r\n\r\nab", b"c"])
        self.assertFalse(reader.done)
        reader.finish()
        self.assertEqual((body, reader.done, reader.reusable), (b"abc", True, False))

    def test_closed_early(self):
        for data in (CHUNKED, LENGTH):
            for at in range(len(data)):
                reader, _ = read_all([data[:at]])
                with self.assertRaises(HttpError):
                    reader.finish()

    def test_no_body(self):
        self.check(*read_all([b"HTTP/1.1 204 No Content\r\n\r\n"]), 204, b"", True)
        self.check(*read_all([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]), 200, b"", True)

    def test_refused(self):
        head = b"HTTP/1.1 200 OK\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        for data in (
                b"HTTP/1.1 999 OK\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"SSH-2.0\r\n\r\n",
                head + b"X: " + b"a" * MAX_HEAD_BYTES, head + b"no colon\r\n\r\n", head + b" : folded\r\n\r\n",
                head + b"Content-Length: -1\r\n\r\n", head + b"Content-Length: 1_0\r\n\r\n",
                head + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
                head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
                head + b"Transfer-Encoding: gzip\r\n\r\n",
                chunked + b"0x5\r\nhello\r\n", chunked + b"-5\r\nhello\r\n", chunked + b"\r\nhello",
                chunked + b"5\nhello", chunked + b"fffffffff\r\n", chunked + b"5;" + b"a" * 400,
                chunked + b"5\r\nhello!\r\n", chunked + b"5\r\nhelloXX0\r\n\r\n",
                chunked + b"0\r\nX: " + b"a" * (MAX_HEAD_BYTES + 1)):
            with self.assertRaises(HttpError, msg=data[:80]):
                read_all([data])


class Figures(unittest.TestCase):
    def part(self, gaps, answers=(), **figures):
        return {"seconds": 2.0, "cpu_seconds": 0.5, "answers": list(answers), "firsts_us": [1000], "gaps_us": gaps,
                "failures": 0, "errors": [], "cut": 0, "cut_tokens": 0, "events": 10, "reads": 5, **figures}

    def test_percentiles_are_of_all_samples(self):
        """Not the mean of the parts' percentiles."""
        generator = random.Random(1)
        gaps = [[generator.randrange(1000) for _ in range(count)] for count in (10, 1000, 50)]
        merged = summarise([self.part(part) for part in gaps])
        everything = [gap for part in gaps for gap in part]
        for share in (50, 95, 99):
            self.assertEqual(merged[f"itl_p{share}_ms"], percentile(everything, share / 100) / 1000)
        skewed = summarise([self.part([1000] * 99), self.part([9000])])
        self.assertEqual((skewed["itl_p50_ms"], skewed["itl_p99_ms"]), (1, 9))

    def test_nearest_rank(self):
        self.assertEqual([percentile([3, 1, 2], share) for share in (0, 0.5, 0.99)], [1, 2, 3])
        self.assertEqual(percentile([], 0.5), 0)

    def test_rates_and_counts(self):
        merged = summarise([self.part([], [(5000, 7, 8, 3)], cut=1, cut_tokens=3),
                            self.part([], [(7000, 8, 8, 3)], seconds=4.0, failures=2, errors=["why"])])
        wanted = {"tokens_per_second": 18 / 4, "requests_per_second": 2 / 4, "wrong_length": 1, "cut": 1, "failures": 2,
                  "first_error": "why", "output_tokens": 18, "prompt_tokens": 6, "client_busy": 0.25,
                  "request_p99_ms": 7, "events_per_read": 2}
        self.assertEqual({name: merged[name] for name in wanted}, wanted)

    def test_what_the_ceiling_means(self):
        ceiling = {"events_per_second": 1000, "requests_per_second": 100, "processes": 2}
        for events, busy, is_limit in ((499, 0.1, False), (501, 0.1, True), (10, 0.9, True)):
            figures = {"events_per_second": events, "requests_per_second": 0, "client_busy": busy}
            self.assertEqual("MAY BE THE LIMIT" in describe_ceiling(ceiling, figures), is_limit)
        self.assertIn("100 requests/s", describe_ceiling(ceiling, figures, stream=False))

    def test_every_request_and_connection_is_somebodys(self):
        for connections in range(1, 12):
            for requests in (1, 3, 50):
                parts = share_out(["http://[::1]:81", "http://b:82"], list(range(requests)), connections, 4)
                self.assertEqual(sum(part["connections"] for part in parts), connections)
                self.assertTrue(all(part["connections"] > 0 and part["requests"] for part in parts))
                self.assertEqual(sorted(sum([part["requests"] for part in parts], [])), list(range(requests)))
                self.assertEqual((parts[0]["host"], parts[0]["port"]), ("::1", 81))


class Loads(unittest.TestCase):
    def test_the_means_of_sharegpt(self):
        lengths = Workload("sharegpt").lengths(20000, 1)
        for side, mean in ((0, 202), (1, 179)):
            values = [length[side] for length in lengths]
            self.assertAlmostEqual(sum(values) / len(values), mean, delta=0.03 * mean)
            self.assertTrue(4 <= min(values) < 20 and 900 < max(values) <= 1024)
        self.assertEqual(max(max(length) for length in Workload("sharegpt-24").lengths(1000, 1)), 24)

    def test_prompts_have_the_lengths_and_come_again_with_the_seed(self):
        for name in ("100/128", "sharegpt"):
            load = Workload(name)
            prompts = load.prompts(20, 500, 7)
            self.assertEqual([(len(prompt), tokens) for prompt, tokens in prompts], load.lengths(20, 7))
            self.assertTrue(all(0 <= token < 500 for prompt, _ in prompts for token in prompt))
            self.assertEqual(prompts, load.prompts(20, 500, 7))
            self.assertNotEqual(prompts, load.prompts(20, 500, 8))
            words = load.prompts(20, 0, 7)
            self.assertEqual([(len(prompt.split()), tokens) for prompt, tokens in words], load.lengths(20, 7))
        self.assertEqual(Workload("100/128").lengths(2, 1), [(100, 128)] * 2)

    def test_refused_names(self):
        for name in ("", "100", "0/5", "5/0", "-1/5", "100/128/3", "sharegpt2", "sharegpt-3", "sharegpt-"):
            with self.assertRaises(ValueError):
                Workload(name)

    def test_arrivals(self):
        times = list(arrival_times(5000, 50, 1))
        self.assertEqual(times, sorted(times))
        self.assertAlmostEqual(times[-1], 100, delta=5)


class Script:
    """A server that answers the requests of a connection with the bytes it is given, in turn, and closes."""

    def __init__(self, *answers, closes=True):
        self.answers, self.closes = answers, closes
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.kept = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            for answer in self.answers:
                if not sock.recv(65536):
                    break
                sock.sendall(answer)
            if self.closes:
                sock.close()
            self.kept.append(sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        for sock in self.kept:
            sock.close()


def streamed(*events):
    data = b"".join(b"data: " + event + b"\n\n" for event in events)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


TOKEN = b'{"choices":[{"text":"a"}]}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
TWO_TOKENS = streamed(TOKEN, TOKEN, USAGE, b"[DONE]")
REQUESTS = make_requests("stub", [("a", 2)] * 3)


class Answers(unittest.TestCase):
    """Two processes against servers that misbehave."""

    @classmethod
    def setUpClass(cls):
        cls.load = LoadProcesses(2).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.load.__exit__()

    def send(self, *answers, requests=REQUESTS, connections=1, closes=True, **options):
        with Script(*answers, closes=closes) as server:
            return self.load.run([server.url], requests, connections, timeout=options.pop("timeout", 20), **options)

    def test_good_ones(self):
        for answers in ((TWO_TOKENS,), (TWO_TOKENS,) * 3):  # with a connection for each, or one for all
            figures = self.send(*answers)
            self.assertEqual((figures["failures"], figures["first_error"]), (0, ""))
            self.assertEqual((figures["output_tokens"], figures["prompt_tokens"], figures["events"]), (6, 9, 6))
            self.assertEqual((figures["requests"], figures["wrong_length"]), (3, 0))

    def test_other_line_ends_and_spaces(self):
        data = (b'data: {"choices": [{"text": "\\""}]}\r\n\r\n'
                b'data:{"choices": [], "usage": {"completion_tokens": 2}}\r\n\r\n')
        figures = self.send(b"HTTP/1.1 200 OK\r\n\r\n" + data)
        self.assertEqual((figures["first_error"], figures["output_tokens"], figures["events"]), ("", 6, 3))

    def test_short_ones_are_counted(self):
        self.assertEqual(self.send(TWO_TOKENS, requests=make_requests("stub", [("a", 3)] * 3))["wrong_length"], 3)

    def test_failures_are_counted_and_named(self):
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
        for answer, said in (
                (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nbang", "500 bang"),
                (LENGTH, "503 busy"),
                (TWO_TOKENS[:-20], "closed before"),
                (streamed(TOKEN, b'{"error": {"message": "the device failed"}}'), "the device failed"),
                (streamed(TOKEN, b"{"), "JSONDecodeError"),
                (streamed(USAGE), "no text"),
                (whole % (2, b"{}"), "no text"),
                (b"nonsense\r\n\r\n", "no status line"),
                (b"", "closed before")):
            figures = self.send(answer)
            self.assertEqual((figures["failures"], figures["requests"]), (3, 0), answer)
            self.assertIn(said, figures["first_error"])

    def test_whole_answers(self):
        body = json.dumps({"choices": [{"text": "aa"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode()
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        figures = self.send(answer, stream=False)
        self.assertEqual((figures["output_tokens"], figures["failures"], figures["wrong_length"]), (6, 0, 0))
        figures = self.send(answer.replace(b"usage", b"other"), stream=False)
        self.assertEqual((figures["failures"], figures["first_error"]), (3, "RequestFailed: an answer without usage"))

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        figures = self.load.run([url], REQUESTS, 1)
        self.assertEqual(figures["failures"], 3)
        self.assertIn("refused", figures["first_error"])

    def test_an_answer_that_never_ends(self):
        figures = self.send(TWO_TOKENS[:-20], requests=REQUESTS[:1], closes=False, timeout=0.3)
        self.assertEqual((figures["failures"], figures["requests"]), (1, 0))
        self.assertIn("no answer after 0.3 s", figures["first_error"])

    def test_what_is_cut_short_counts_its_tokens(self):
        figures = self.send(TWO_TOKENS[:-20], requests=REQUESTS[:1], closes=False, seconds=0.3)
        self.assertEqual((figures["cut"], figures["failures"], figures["requests"]), (1, 0, 0))
        self.assertEqual(figures["output_tokens"], 2)
        self.assertGreaterEqual(figures["seconds"], 0.3)

    def test_a_load_that_ends_before_its_time_took_no_longer(self):
        figures = self.send(TWO_TOKENS, seconds=60)
        self.assertEqual((figures["cut"], figures["requests"]), (0, 3))
        self.assertLess(figures["seconds"], 60)

    def test_requests_wait_for_their_time(self):
        requests = make_requests("stub", [("a", 2)] * 3, times=[0, 0.1, 0.3])
        self.assertGreaterEqual(self.send(TWO_TOKENS, requests=requests, connections=2)["seconds"], 0.3)


class Processes(unittest.TestCase):
    def test_stub_servers_and_all_processes(self):
        """Every connection is served, and answers have all their tokens."""
        prompts = Workload("10/20").prompts(30, 100, 1)
        with LoadProcesses(2) as load, StubServers(2) as stubs:
            for stream in (True, False):
                requests = make_requests("stub", prompts, stream)
                for connections in (1, 3, 30):
                    figures = load.run(stubs.urls, requests, connections, stream=stream)
                    self.assertEqual((figures["failures"], figures["wrong_length"], figures["first_error"]), (0, 0, ""))
                    self.assertEqual((figures["requests"], figures["output_tokens"]), (30, 600))
                    self.assertEqual(figures["processes"], min(2, connections))
                    self.assertEqual(figures["events"], 600 if stream else 0)
            around = load.run(stubs.urls, requests[:2], 2, stream=False, seconds=1, repeat=True)
            self.assertGreater(around["requests"], 2)

    def test_they_end_with_the_block(self):
        with LoadProcesses(2) as load, StubServers(1) as stubs:
            self.assertTrue(stubs.urls)
            pids = [child.process.pid for child in load.all + stubs.all]
        self.assertEqual([pid for pid in pids if Path(f"/proc/{pid}").exists()], [])

    def test_they_end_with_their_input(self):
        """As when whoever started them is killed."""
        with StubServers(1) as stubs, LoadProcesses(1) as load, Script(closes=False) as server:
            self.assertTrue(stubs.urls)
            job = {**share_out([server.url], REQUESTS, 1, 1)[0], "stream": True, "path": "/", "timeout": 60,
                   "seconds": 0, "repeat": False}
            child = load.all[0]
            child.write(json.dumps(job))
            self.assertEqual(child.read(time.monotonic() + 30), "ready")
            child.write(f"go {time.monotonic()}")
            for one in (child, stubs.all[0]):
                one.process.stdin.close()
                one.process.wait(30)

    def test_one_that_has_died_is_an_error(self):
        with LoadProcesses(1) as load:
            load.all[0].process.kill()
            load.all[0].process.wait()
            with self.assertRaises(LoadError):
                load.run(["http://127.0.0.1:1"], REQUESTS, 1)

    def test_one_that_hangs_is_an_error(self):
        with mock.patch("load_run.START_SECONDS", 0.2), LoadProcesses(1) as load:
            load.all[0].process.send_signal(signal.SIGSTOP)
            with self.assertRaises(LoadError):
                load.run(["http://127.0.0.1:1"], REQUESTS, 1)


if __name__ == "__main__":
    unittest.main()
