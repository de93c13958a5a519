"""`mpirun quire serve`: ranks that are processes answer what ranks that are threads do, to the byte; and one that is
lost ends them all."""

import os
import re
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire_server import MODEL, NAME
from test_command_line import run
from test_embeddings import TEXTS, embed
from test_load import complete, gather, prompt_of, seeded

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
pytestmark = needs_mpirun

TIMEOUT_S = 3
# From when a rank is gone until mpirun sends the others SIGTERM; after twice that it sends SIGKILL, by when they have answered
# (docs/scale.md).
SIGTERM_S = 5
PLAIN_MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
MPIRUN = [*PLAIN_MPIRUN, "--mca", "odls_base_sigkill_timeout", SIGTERM_S]
SMALL = "--kv-cache-memory-bytes", "8M", "--max-model-len", 256


@pytest.fixture
def start_ranks(start_server):
    def start(count, *options, stages=1, mpirun_options=()):
        return start_server("--tensor-parallel-size", count, "--pipeline-parallel-size", stages, *options,
                            launcher=[*MPIRUN, *mpirun_options, "-n", count * stages])
    return start


def rank_process(server, rank):
    """The process id, among the descendants of mpirun."""
    waiting = [server.process.pid]
    while waiting:
        pid = waiting.pop()
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment:
            return pid
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += [int(child) for child in children.read_text().split()]
    raise LookupError(f"there is no rank {rank}")


def stop(server):
    """Returns mpirun's exit status."""
    os.kill(rank_process(server, 0), signal.SIGTERM)
    return server.process.wait(60)


def load(client):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}
    return [seeded(client, i) for i in range(6)] + [
        complete(client, prompt_of(i), max_tokens=30, n=2, seed=i, temperature=1, presence_penalty=1,
                 extra_body={"ignore_eos": True}) for i in range(2)] + [
        complete(client, prompt_of(7), max_tokens=20, logprobs=3, temperature=0),
        complete(client, prompt_of(8), max_tokens=30, temperature=0, extra_body={"response_format": schema}),
        complete(client, prompt_of(9), max_tokens=12, temperature=0, n=2,
                 extra_body={"use_beam_search": True})]


def of_ranks(server, name):
    families = text_string_to_metric_families(httpx.get(server.url + "/metrics").text)
    return {(sample.labels["rank"], sample.labels.get("part")): sample.value
            for family in families for sample in family.samples if sample.name == "quire:" + name}


def check_rank_metrics(server, count, stages):
    """The others say what they have done after a step, a second after they last did."""
    ranks = [str(rank) for rank in range(count * stages)]
    senders = ranks if count > 1 else ranks[:-1]  # the last stage hands nothing on
    time.sleep(1.1)
    before = of_ranks(server, "rank_sent_bytes_total")
    server.complete("Hello", max_tokens=2)
    server.wait_for(lambda _: all(of_ranks(server, "rank_sent_bytes_total")[rank, None] > before[rank, None]
                                  for rank in senders))
    for name in "rank_compute_seconds_total", "rank_communication_seconds_total":
        values = of_ranks(server, name)
        assert sorted(values) == [(rank, None) for rank in ranks] and all(value > 0 for value in values.values()), name
    memory = of_ranks(server, "rank_memory_bytes")
    assert all(memory[rank, part] > 0 for rank in ranks for part in ("weights", "workspace", "kv_cache"))
    log = server.read_log()
    assert all(re.search(rf"rank {rank} .*; {re.escape(socket.gethostname())}, \d+ threads?$", log, re.M) for rank in ranks)


SPECULATION = "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'


@pytest.mark.parametrize("count, stages, options", [
    (2, 1, ()), pytest.param(2, 1, (*SMALL, "--swap-space", 0.1), marks=pytest.mark.variant), (1, 2, SPECULATION),
    pytest.param(2, 2, (), marks=pytest.mark.variant), pytest.param(3, 1, (), marks=pytest.mark.variant), pytest.param(2, 1, SPECULATION, marks=pytest.mark.variant),
    pytest.param(1, 2, (*SMALL, "--swap-space", 0.1), marks=pytest.mark.variant)],
    ids=["two", "swapped", "stages speculation", "two by two", "three", "speculation", "stages swapped"])
def test_what_threads_answer(start_server, start_ranks, count, stages, options):
    """Stages change no bit: what one rank answers, they do."""
    threads = start_server("--tensor-parallel-size", count, *options)
    expected = gather(threads, load), embed(threads, TEXTS)
    threads.kill()
    ranks = start_ranks(count, "--rank-timeout", 3600, *options, stages=stages)  # no ping
    assert (gather(ranks, load), embed(ranks, TEXTS)) == expected
    metrics = ranks.wait_idle()
    assert metrics["kv_blocks_used"] == 0
    check_rank_metrics(ranks, count, stages)
    if "8M" in options:
        assert metrics["kv_blocks_swapped_total"] > 0
    assert stop(ranks) == 0


def bytes_read(server, rank):
    for line in Path(f"/proc/{rank_process(server, rank)}/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])


def answer_of(server):
    reply = server.complete("Once upon a time", max_tokens=40, temperature=0.9, seed=1)
    return reply.choices[0].text, reply.system_fingerprint


@pytest.mark.parametrize("count, stages", [
    (2, 2), pytest.param(2, 1, marks=pytest.mark.variant), pytest.param(1, 2, marks=pytest.mark.variant)])
def test_load_modes(start_server, start_ranks, count, stages):
    """What is read by whom changes no answer. A process of a stage reads little more than the stage's layers, its embedding
    and head; of what rank 0 reads for all, the others read the settings alone."""
    size = MODEL.stat().st_size
    whole = start_server("--tensor-parallel-size", count)
    expected = answer_of(whole)
    whole.kill()
    read = {}
    for mode in "shards", "broadcast":
        ranks = start_ranks(count, "--load-mode", mode, stages=stages)
        assert answer_of(ranks) == expected
        read[mode] = [bytes_read(ranks, rank) / size for rank in range(count * stages)]
        assert stop(ranks) == 0
    print(f"{count} x {stages}, parts of the file read:", read)
    assert read["broadcast"][0] > 1 and all(part < 0.2 for part in read["broadcast"][1:])
    assert all(part < 1.2 for part in read["shards"])
    assert stages == 1 or all(part < 0.85 for part in read["shards"])


@pytest.mark.parametrize("count, stages", [(2, 1), (1, 2)])
def test_another_file(tmp_path, count, stages):
    """Rank 1 has another model at the same path: here one byte in a thousand of the last two thirds."""
    other = tmp_path / "other.gguf"
    data = bytearray(MODEL.read_bytes())
    for at in range(len(data) // 3, len(data), 1000):
        data[at] ^= 1
    other.write_bytes(data)
    script = f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] || set -- "$1" "$2" --model {other} "${{@:5}}"; exec "$@"'
    result = run("serve", "--model", MODEL, "--tensor-parallel-size", count, "--pipeline-parallel-size", stages,
                 launcher=[*MPIRUN, "-n", 2, "bash", "-c", script, "bash"])
    assert result.returncode == 78, result.stderr
    assert "model: the files of rank 1 differ from those of rank 0" in result.stderr


def settled(server):
    """What the ranks have sent, once a step has asked for it and all answers were read, and the prompt tokens."""
    time.sleep(1.1)
    server.complete("Hello", max_tokens=1, temperature=1, top_p=1, extra_body={"top_k": -1, "min_p": 0})
    time.sleep(2.5)
    return of_ranks(server, "rank_sent_bytes_total"), server.metrics()["prompt_tokens_total"]


def test_planned_traffic(start_ranks):
    """Of a step with one token that is drawn from all."""
    plan = run("inspect", MODEL, "--plan", "--tensor-parallel-size", 2).stdout
    planned = re.findall(r"rank (\d) +sends (\d+) bytes for a token, (\d+) for one sampled", plan)
    assert [rank for rank, _, _ in planned] == ["0", "1"]
    server = start_ranks(2, "--no-enable-prefix-caching", "--rank-timeout", 3600)
    before, num_before = settled(server)
    after, num_after = settled(server)
    for rank, token, sampled in planned:
        expected = (num_after - num_before - 1) * int(token) + int(sampled)
        assert after[rank, None] - before[rank, None] == expected


def run_refused(options):
    """Once more where mpirun itself crashes, which it seldom does when ranks end early. (A rank that does gives 139.)"""
    for _ in range(3):
        result = run("serve", "--model", MODEL, *options, launcher=[*PLAIN_MPIRUN, "-n", 2])
        if result.returncode != -signal.SIGSEGV:
            break
    return result


def test_refused():
    for options, words in (((), ["tensor-parallel-size: 1; 2 ranks were started: must be 2"]),
                           (("--tensor-parallel-size", 2, "--rank-process", "on"), ["rank-process: on"]),
                           (("--tensor-parallel-size", 2, "--sleep-idle-seconds", 60), ["sleep-idle-seconds: 60; ranks that mpirun has"]),
                           (("--tensor-parallel-size", 2, "--pipeline-parallel-size", 2),
                            ["pipeline-parallel-size: 2, times tensor-parallel-size, 2; 2 ranks were started"])):
        result = run_refused(options)
        assert result.returncode == 78
        assert any(word in result.stderr for word in words), result.stderr


# Ranks that are lost.

def stream_to_its_end(url, max_tokens):
    """Returns how a stream ended: "done", "error" (an event), "cut", or a status that is no 200."""
    body = {"model": NAME, "prompt": "Count for ever: one", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
    try:
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=120) as reply:
            if reply.status_code != 200:
                return reply.status_code
            ends = [line for line in reply.iter_lines() if '"error"' in line or line == "data: [DONE]"]
            return "error" if any("error" in line for line in ends) else "done" if ends else "cut"
    except httpx.HTTPError:
        return "cut"


def begin_streams(server, count, max_tokens=4000):
    outcomes = [None] * count

    def run_one(index):
        outcomes[index] = stream_to_its_end(server.url, max_tokens)

    threads = [threading.Thread(target=run_one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    server.wait_for(lambda metrics: metrics["num_requests_running"] == count)
    return threads, outcomes


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("how, rank, stages", [
    (signal.SIGKILL, 1, 1), (signal.SIGSTOP, 0, 1), (signal.SIGKILL, 1, 2)] + [
    pytest.param(*each, marks=pytest.mark.variant)
    for each in ((signal.SIGKILL, 0, 1), (signal.SIGSTOP, 1, 1), (signal.SIGSTOP, 0, 2))])
def test_a_lost_rank_ends_all(start_ranks, rank, how, stages):
    check_lost_rank(start_ranks(2 // stages, "--rank-timeout", TIMEOUT_S, stages=stages), rank, how)


@pytest.mark.parametrize("run", [0, *(pytest.param(run, marks=pytest.mark.variant) for run in (1, 2))])
def test_a_lost_connection_is_no_matter_for_mpirun(start_ranks, run):
    """Ranks of two machines see that a connection is lost. One that waits for mpirun to say so never answers, at times."""
    server = start_ranks(1, "--rank-timeout", TIMEOUT_S, stages=2, mpirun_options=["--mca", "btl", "tcp,self"])
    check_lost_rank(server, 1, signal.SIGKILL)


def check_lost_rank(server, rank, how, count=2, max_tokens=4000):
    pids = [rank_process(server, each) for each in range(count)]
    threads, outcomes = begin_streams(server, 3, max_tokens)
    began = time.monotonic()
    os.kill(pids[rank], how)
    for thread in threads:
        thread.join(60)
    print(f"answered after {time.monotonic() - began:.2f} s")
    status = server.process.wait(60)
    assert time.monotonic() - began < TIMEOUT_S + 2 * SIGTERM_S + 10
    assert status not in (0, None)
    assert all(is_gone(pid) for pid in pids)
    # mpirun continues a stopped rank 0, which then answers. 503: before the first token.
    allowed = ("cut",) if rank == 0 and how == signal.SIGKILL else ("error", 503)
    assert all(outcome in allowed for outcome in outcomes), outcomes


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.variant)])
def test_a_lost_rank_is_noticed_while_nothing_runs(start_ranks, rank):
    server = start_ranks(2, "--rank-timeout", TIMEOUT_S)
    server.complete("Hello", max_tokens=3)
    time.sleep(2 * TIMEOUT_S)
    server.complete("Hello", max_tokens=3)
    pids = [rank_process(server, each) for each in range(2)]
    began = time.monotonic()
    os.kill(pids[rank], signal.SIGSTOP)
    assert server.process.wait(60) != 0
    assert time.monotonic() - began < 2 * TIMEOUT_S + 20
    assert all(is_gone(pid) for pid in pids)
    assert "(--rank-timeout)" in server.read_log()
