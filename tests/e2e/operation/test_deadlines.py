"""timeout_ms, X-Request-Timeout and --queue-timeout: what runs ends with what it has, what waits is answered 503."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

FOREVER = {"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": True, "temperature": 0}


def post(server, path, body, **headers):
    return httpx.post(server.url + path, json=body, headers=headers, timeout=300)


def frames(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def post_until_begun(server, path, body, by_header=False, **headers):
    """The answer to a body that takes longer than it has: 1.5 s, or more where the machine is too slow to begin within it."""
    for seconds in (1.5, 6, 24):
        timeout = {} if by_header else {"timeout_ms": int(seconds * 1000)}
        answer = post(server, path, {**body, **timeout}, **({"X-Request-Timeout": str(seconds)} if by_header else {}), **headers)
        if answer.status_code != 503 and '"error":{' not in answer.text:
            break
    assert answer.status_code == 200, answer.text
    return answer


def test_a_completion_ends_with_what_it_has(server):
    for others in ({}, {"by_header": True}, {"by_header": True, "timeout_ms": 600000}, {"X-Request-Timeout": "600"}):
        body = {**FOREVER, **({"timeout_ms": others.pop("timeout_ms")} if "timeout_ms" in others else {})}
        answer = post_until_begun(server, "/v1/completions", body, **others).json()
        choice = answer["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "deadline")
        assert answer["usage"]["completion_tokens"] < 8000
    server.wait_idle()


def test_streams_and_the_other_endpoints(server):
    streamed = frames(post_until_begun(server, "/v1/completions", {**FOREVER, "stream": True}).text)
    last = streamed[-1]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("length", "deadline")
    messages = [{"role": "user", "content": "Tell me a story"}]
    chat = {"messages": messages, "ignore_eos": True, "max_tokens": 8000}
    choice = post_until_begun(server, "/v1/chat/completions", chat).json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "deadline")
    story = {"input": "Tell me a story", "ignore_eos": True, "max_output_tokens": 8000}
    response = post_until_begun(server, "/v1/responses", story).json()
    assert response["status"] == "incomplete", response
    assert response["incomplete_details"] == {"reason": "max_output_tokens", "stop_reason": "deadline"}
    beams = {**FOREVER, "use_beam_search": True, "n": 2}
    for choice in post_until_begun(server, "/v1/completions", beams).json()["choices"]:
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "length", "deadline")
    embedding = post(server, "/v1/embeddings", {"input": [[100] * 8000] * 20, "timeout_ms": 1})
    assert embedding.status_code == 503
    assert embedding.json()["error"]["code"] in ("deadline_exceeded", "queue_timeout")
    server.wait_idle()


def test_enough_time_changes_nothing(server):
    body = {**FOREVER, "max_tokens": 8}
    plain = post(server, "/v1/completions", body).json()["choices"]
    assert post(server, "/v1/completions", {**body, "timeout_ms": 86400000}).json()["choices"] == plain
    assert post(server, "/v1/completions", body, **{"X-Request-Timeout": "86400"}).json()["choices"] == plain


@pytest.mark.parametrize("value", [0, -1, 86400001, "5", 1.5, True])
def test_bad_timeouts(server, value):
    for path, body in (("/v1/completions", FOREVER), ("/v1/embeddings", {"input": "a"})):
        answer = post(server, path, {**body, "timeout_ms": value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "timeout_ms"


@pytest.mark.parametrize("value", ["0", "0.0001", "-1", "1e3", "abc", "5s", ".5", "5.", "86400.001", "999999", "1,5"])
def test_bad_headers(server, value):
    answer = post(server, "/v1/completions", FOREVER, **{"X-Request-Timeout": value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Request-Timeout"


def test_the_header_counts_for_generation_alone(server):
    assert httpx.get(server.url + "/v1/models", headers={"X-Request-Timeout": "soon"}).status_code == 200


def test_what_cannot_be_met_is_refused_at_once(start_server):
    """While requests that wait take longer than a request has, as those before have shown."""
    server = start_server("--max-num-seqs", "1", "--queue-timeout", "0")
    for _ in range(4):
        post(server, "/v1/completions", {**FOREVER, "max_tokens": 64})
    with ThreadPoolExecutor(11) as pool:
        with httpx.stream("POST", server.url + "/v1/completions", json={**FOREVER, "stream": True}, timeout=300) as stream:
            lines = stream.iter_lines()
            next(lines)  # nobody else runs until it is closed
            late = [pool.submit(post, server, "/v1/completions", {**FOREVER, "max_tokens": 64}) for _ in range(11)]
            server.wait_for(lambda m: m["num_requests_waiting"] == 11)
            for _ in range(50):  # until the server has looked at its engine again
                refused = post(server, "/v1/completions", {**FOREVER, "timeout_ms": 100})
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "queue_timeout"
                if "is expected to wait" in refused.json()["error"]["message"]:
                    break
            assert "is expected to wait" in refused.json()["error"]["message"]
        urgent = post(server, "/v1/completions", {**FOREVER, "timeout_ms": 600000, "priority": -1, "max_tokens": 1})
        assert urgent.status_code == 200, urgent.text
        assert {answer.result().status_code for answer in late} == {200}
    server.wait_idle()


def test_what_cannot_be_started_in_time_is_refused_when_it_comes(start_server):
    """Nobody of a crowd that is far too large is let in only to be told after the time to wait. The server knows the pace of
    what was before; where the machine itself has become slower meanwhile, another crowd comes."""
    server = start_server("--max-num-seqs", "1", "--queue-timeout", "8")
    call = {**FOREVER, "max_tokens": 64}
    with httpx.Client() as client, ThreadPoolExecutor(100) as pool, ThreadPoolExecutor(2) as pair:
        client.get(server.url + "/health")  # whose connection stays, so that the server remembers who that is
        taught = list(pair.map(lambda _: post(server, "/v1/completions", call), range(8)))  # how fast they end while one waits
        assert {answer.status_code for answer in taught} == {200}
        for _ in range(3):
            answers = list(pool.map(lambda _: post(server, "/v1/completions", call), range(100)))
            refused = [answer.json()["error"] for answer in answers if answer.status_code != 200]
            assert 1 <= len(answers) - len(refused) < 100
            assert {error["code"] for error in refused} == {"queue_timeout"}
            if all("is expected to wait" in error["message"] for error in refused):
                break
    assert all("is expected to wait" in error["message"] for error in refused), refused
    server.wait_idle()


def test_nobody_is_refused_for_calls_that_take_long(start_server):
    """While one long call runs, hardly any ends; a few that come at once find room all the same."""
    server = start_server("--max-num-seqs", "8", "--queue-timeout", "4")
    with httpx.stream("POST", server.url + "/v1/completions", json={**FOREVER, "stream": True}, timeout=300) as stream:
        next(stream.iter_lines())
        time.sleep(3)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: post(server, "/v1/completions", {**FOREVER, "max_tokens": 1}), range(12)))
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    server.wait_idle()


def test_a_call_that_has_begun_does_not_wait(start_server):
    """Its last prompts begin to run long after the time to wait."""
    server = start_server("--max-num-seqs", "1", "--queue-timeout", "1")
    answer = post(server, "/v1/completions", {**FOREVER, "prompt": ["Once upon a time"] * 8, "max_tokens": 100})
    assert answer.status_code == 200 and len(answer.json()["choices"]) == 8


def test_what_waits_too_long_is_refused(start_server):
    server = start_server("--max-num-seqs", "1", "--queue-timeout", "1")
    with httpx.stream("POST", server.url + "/v1/completions", json={**FOREVER, "stream": True}, timeout=300) as stream:
        lines = stream.iter_lines()
        next(lines)
        for fields in ({}, {"timeout_ms": 500}):
            refused = post(server, "/v1/completions", {**FOREVER, **fields})
            assert refused.status_code == 503, refused.text
            assert refused.json()["error"]["code"] == "queue_timeout"
            assert int(refused.headers["Retry-After"]) >= 1
        streamed = post(server, "/v1/completions", {**FOREVER, "stream": True})
        assert streamed.status_code == 200 and [frame["error"]["code"] for frame in frames(streamed.text)] == ["queue_timeout"]
        assert next(lines) is not None
    server.wait_idle()
    text = httpx.get(server.url + "/metrics").text
    line = next(line for line in text.splitlines()
                if "request_success_total" in line and 'finished_reason="queue_timeout"' in line)
    assert 2 <= float(line.split()[-1]) <= 3
