"""Keys with names and limits: `quire key`, the YAML form of --api-key-file, what each limit does, SIGHUP under load."""

import json
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from quire_server import BINARY, NAME, ROOT

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "attacks"))
import key_file  # noqa: E402

PATH = "/v1/completions"
NAMES = ("--metrics-key-names", "all")


def quire_key(*words):
    return key_file.quire_key(BINARY, *words)


@pytest.fixture
def keys(tmp_path):
    return key_file.KeyFile(BINARY, tmp_path / "keys.yaml")


def headers(key):
    return {"Authorization": f"Bearer {key}"}


def ask(server, key, path=PATH, **fields):
    body = {"model": NAME, "prompt": "Once", "max_tokens": 2, "temperature": 0, **fields}
    return server.post(path, body, headers=headers(key))


def reload(server, said):
    before = server.read_log().count(said)
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 60
    while server.read_log().count(said) == before:
        assert time.monotonic() < deadline, server.read_log()
        time.sleep(0.01)


def error_of(reply):
    return reply.json()["error"]


def samples(server, key):
    """The lines of /metrics that are about keys: name without prefix and labels in order -> value."""
    found = {}
    for line in httpx.get(server.url + "/metrics", headers=headers(key)).text.splitlines():
        if line.startswith("quire:api_key_"):
            name, rest = line.split("{")
            labels, value = rest.rsplit("} ", 1)
            found[name.split(":")[1], labels.split('engine="0",')[1]] = float(value)
    return found


# The program.

def test_a_new_key_and_its_entry(keys):
    made = quire_key("new", "team-a", "--weight", 9, "--requests-per-minute=600", "--tokens-per-minute", 100000,
                     "--max-concurrency", 32, "--min-priority", -10, "--max-priority", 10, "--models", "a,b",
                     "--expires", "2027-01-31", "--admin", "true")
    key, entry = made.stderr.strip(), made.stdout
    assert key.startswith("sk-") and len(key) == 67 and key not in entry
    for line in ("weight: 9", "requests-per-minute: 600", "tokens-per-minute: 100000", "max-concurrency: 32",
                 "min-priority: -10", "max-priority: 10", 'models: ["a", "b"]', "expires: 2027-01-31T00:00:00Z",
                 "admin: true"):
        assert f"\n    {line}\n" in entry
    keys.entries["team-a"] = entry
    keys.write()
    checked = quire_key("check", keys.path)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "1 keys, 1 of them with a name\n", "")
    assert quire_key("new", "team-a").stderr != quire_key("new", "team-a").stderr


@pytest.mark.parametrize("words, said", [
    (("new",), "no name"), (("new", "a b"), "name must be"), (("new", "a", "--weight"), "no value"),
    (("new", "a", "--weight", "0"), "weight must be a whole number from 1 to 1000"),
    (("new", "a", "--weight", "1", "--weight", "2"), "given twice"), (("new", "a", "--hash", "x"), "unknown option"),
    (("new", "a", "--expires", "soon"), "expires must be"), (("new", "a", "--models", "a,,b"), "models must be"),
    (("new", "a", "b"), "unknown option"), (("check",), "one file"), (("drop", "a"), "unknown command"), ((), "unknown command")])
def test_bad_words_are_refused(words, said):
    refused = quire_key(*words)
    assert refused.returncode == 64 and said in refused.stderr and refused.stdout == ""


def test_check_refuses_what_the_server_refuses(keys, tmp_path):
    keys.path.write_text("keys:\n  - name: a\n    hash: sk-secret\n")
    refused = quire_key("check", keys.path)
    assert refused.returncode == 78 and "line 3: hash must be" in refused.stderr and "sk-secret" not in refused.stderr
    assert quire_key("check", tmp_path / "absent").returncode == 78
    keys.path.write_text("sk-plain\n")
    assert quire_key("check", keys.path).stdout == "1 keys, 0 of them with a name\n"


def test_the_sample_is_a_good_file():
    assert quire_key("check", ROOT / "config/keys.yaml").stdout == "2 keys, 2 of them with a name\n"


# The limits.

def test_requests_per_minute(keys, start_server):
    keys.add("few", "--requests-per-minute", 2).add("many")
    server = start_server("--api-key-file", keys.path)
    first, second, third = [ask(server, keys.keys["few"]) for _ in range(3)]
    assert [reply.status_code for reply in (first, second, third)] == [200, 200, 429]
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == ("2", "1")
    assert third.headers["x-ratelimit-remaining-requests"] == "0" and third.headers["x-ratelimit-reset-requests"].endswith("s")
    assert 1 <= int(third.headers["Retry-After"]) <= 30 and 0 < int(third.headers["retry-after-ms"]) <= 30000
    assert (error_of(third)["code"], error_of(third)["type"]) == ("rate_limit_exceeded", "requests")
    other = ask(server, keys.keys["many"])
    assert other.status_code == 200 and "x-ratelimit-limit-requests" not in other.headers
    assert httpx.get(server.url + "/v1/models", headers=headers(keys.keys["few"])).status_code == 200
    reload(server, "2 API keys from")
    assert ask(server, keys.keys["few"]).status_code == 429  # a reload gives nothing back


TEXTS = {
    "/tokenize": {"prompt": "Once"},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": [{"role": "user", "content": "Once"}]},
    "/v1/completions/render": {"prompt": "Once"},
    "/v1/chat/completions/render": {"messages": [{"role": "user", "content": "Once"}]},
    "/v1/responses/input_tokens": {"input": "Once"},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "Once"}]},
    "/api/show": {},
}


def test_texts_count_as_requests(keys, start_server):
    """What is computed without the engine counts too, so that no route goes past a key's limits."""
    server = start_server("--api-key-file", keys.add("few", "--requests-per-minute", 1).path)
    for i in range(len(TEXTS)):
        keys.add(f"few{i}", "--requests-per-minute", 1)
    reload(server, f"{1 + len(TEXTS)} API keys from")
    for i, (path, fields) in enumerate(TEXTS.items()):
        replies = [server.post(path, {"model": NAME, **fields}, headers=headers(keys.keys[f"few{i}"])) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [200, 429], path


def test_tokens_per_minute(keys, start_server):
    keys.add("few", "--tokens-per-minute", 60)
    server = start_server("--api-key-file", keys.path, *NAMES)
    key = keys.keys["few"]
    long = ask(server, key, prompt="word " * 100)
    assert long.status_code == 429 and error_of(long)["type"] == "tokens" and "per minute" in error_of(long)["message"]
    assert long.headers["x-should-retry"] == "false" and "Retry-After" not in long.headers
    for fields in ({"max_tokens": 80}, {"max_tokens": 20, "n": 4, "temperature": 1}):  # more than a minute's
        large = ask(server, key, ignore_eos=True, **fields)
        assert large.status_code == 429 and large.headers["x-should-retry"] == "false"
    used = ask(server, key, max_tokens=55, ignore_eos=True)
    assert used.status_code == 200 and used.json()["usage"]["completion_tokens"] == 55
    refused = ask(server, key, max_tokens=50)
    assert refused.status_code == 429 and error_of(refused)["code"] == "rate_limit_exceeded"
    assert (refused.headers["x-ratelimit-limit-tokens"], refused.headers["x-ratelimit-remaining-tokens"]) == ("60", refused.headers["x-ratelimit-remaining-tokens"])
    assert int(refused.headers["x-ratelimit-remaining-tokens"]) < 10 and 1 <= int(refused.headers["Retry-After"]) <= 60 and "x-should-retry" not in refused.headers
    found = samples(server, key)
    assert found["api_key_rate_limited_total", 'key="few"'] == 4
    assert found["api_key_generation_tokens_total", 'key="few"'] == 55
    assert found["api_key_prompt_tokens_total", 'key="few"'] == used.json()["usage"]["prompt_tokens"]


def test_administrators_alone_see_other_keys(keys, start_server):
    keys.add("team").add("boss", "--admin", "true")
    server = start_server("--api-key-file", keys.path)
    assert ask(server, keys.keys["team"]).status_code == 200
    assert samples(server, keys.keys["team"]) == {}
    text = httpx.get(server.url + "/metrics", headers=headers(keys.keys["team"])).text
    assert "quire:num_requests_running" in text and "boss" not in text and 'key="' not in text
    found = samples(server, keys.keys["boss"])
    assert {labels for name, labels in found if name == "api_key_requests_running"} == {'key="team"', 'key="boss"'}
    assert found["api_key_prompt_tokens_total", 'key="team"'] > 0
    shown = samples(start_server("--api-key-file", keys.path, *NAMES), keys.keys["team"])
    assert set(shown) == set(found)
    for arguments, is_shown in [(["--api-key", "a"], True), (["--api-key", "a", "--api-key", "b"], False)]:
        assert bool(samples(start_server(*arguments), "a")) == is_shown


def remaining(reply):
    return int(reply.headers["x-ratelimit-remaining-tokens"])


def test_what_is_reserved_is_given_back(keys, start_server):
    """A call never takes more than its key has left: without max_tokens its outputs share half of that."""
    keys.add("few", "--tokens-per-minute", 4000).add("one", "--tokens-per-minute", 600).add("three", "--tokens-per-minute", 600)
    server = start_server("--api-key-file", keys.path)
    short = ask(server, keys.keys["few"], max_tokens=2000, stop=[" "], prompt="A list: a b c")
    used = short.json()["usage"]["total_tokens"]
    assert used < 500 and remaining(short) <= 2000
    after = ask(server, keys.keys["few"], max_tokens=1)
    assert remaining(after) >= 4000 - used - 10  # all but what was used, to begin with
    for n, key in ((1, keys.keys["one"]), (3, keys.keys["three"])):
        chat = server.post("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "Hi"}],
                                                    "ignore_eos": True, "n": n, "temperature": 1}, headers=headers(key))
        usage = chat.json()["usage"]
        assert {choice["finish_reason"] for choice in chat.json()["choices"]} == {"length"}
        assert (600 - usage["prompt_tokens"]) // 2 - 2 * n <= usage["completion_tokens"] <= (600 - usage["prompt_tokens"]) // 2 + n


def test_concurrency(keys, start_server):
    keys.add("one", "--max-concurrency", 1).add("other")
    server = start_server("--api-key-file", keys.path, *NAMES)
    body = {"model": NAME, "prompt": "Once", "max_tokens": 2000, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", server.url + PATH, json=body, timeout=300, headers=headers(keys.keys["one"])) as reply:
        lines = reply.iter_lines()
        next(lines)
        assert samples(server, keys.keys["other"])["api_key_requests_running", 'key="one"'] == 1
        refused = ask(server, keys.keys["one"])
        assert refused.status_code == 429 and error_of(refused)["code"] == "rate_limit_exceeded"
        assert ask(server, keys.keys["other"]).status_code == 200
    deadline = time.monotonic() + 60
    while ask(server, keys.keys["one"]).status_code != 200:
        assert time.monotonic() < deadline
    assert samples(server, keys.keys["other"])["api_key_requests_running", 'key="one"'] == 0


def test_models(keys, start_server):
    keys.add("one", "--models", "second,elsewhere").add("none", "--models", "elsewhere").add("all")
    server = start_server("--api-key-file", keys.path, "--served-model-name", "second")

    def listed(name):
        reply = httpx.get(server.url + "/v1/models", headers=headers(keys.keys[name]))
        return [model["id"] for model in reply.json()["data"]]

    assert (listed("one"), listed("none"), listed("all")) == (["second"], [], [NAME, "second"])
    assert ask(server, keys.keys["one"], model="second").json()["model"] == "second"
    for name, model in (("one", NAME), ("none", NAME), ("none", "second")):
        for path in (PATH, "/tokenize"):
            refused = ask(server, keys.keys[name], path, model=model)
            assert refused.status_code == 404 and error_of(refused)["code"] == "model_not_found", (name, model, path)
        gone = httpx.get(server.url + f"/v1/models/{model}", headers=headers(keys.keys[name]))
        assert gone.status_code == 404
    assert ask(server, keys.keys["all"]).status_code == 200
    for name, first in (("one", "second"), ("none", None), ("all", NAME)):
        shape = headers(keys.keys[name]) | {"anthropic-version": "2023-06-01"}
        models = httpx.get(server.url + "/v1/models", headers=shape).json()
        assert (models["first_id"], [model["id"] for model in models["data"]][:1]) == (first, [first] if first else [])
        props = httpx.get(server.url + "/props", headers=shape).json()
        assert (props["model_alias"], props["model_path"]) == (first, first)
    assert models["last_id"] == "second"


def test_names_in_the_access_log(keys, tmp_path, start_server):
    keys.add("team-a").add("old", "--expires", "2020-01-01")
    server = start_server("--api-key-file", keys.path, "--api-key", "sk-fixed", "--access-log", tmp_path / "access.log")
    for key in (keys.keys["team-a"], "sk-fixed", keys.keys["old"], "sk-unknown"):
        ask(server, key)
    assert server.terminate() == 0
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    calls = [line for line in lines if line.get("route") == PATH]
    assert [(line["status"], line.get("key")) for line in calls] == [(200, "team-a"), (200, "#1"), (401, "old"), (401, None)]


def test_an_expired_key(keys, start_server):
    keys.add("old", "--expires", "2020-01-01").add("new", "--expires", "9999-12-31")
    server = start_server("--api-key-file", keys.path)
    refused = ask(server, keys.keys["old"])
    assert refused.status_code == 401 and error_of(refused)["code"] == "expired_api_key" and "expired" in error_of(refused)["message"]
    assert ask(server, keys.keys["new"]).status_code == 200
    assert ask(server, "sk-unknown").json()["error"]["code"] == "invalid_api_key"
    assert not any(key in server.read_log() for key in keys.keys.values())


def test_a_priority_is_brought_into_the_range(keys, start_server):
    keys.add("low", "--min-priority", 5, "--max-priority", 10)
    server = start_server("--api-key-file", keys.path)
    for priority in (-2147483648, 0, 7, 2147483647):
        assert ask(server, keys.keys["low"], priority=priority).status_code == 200


def test_a_hash_is_no_key(keys, start_server):
    keys.add("a")
    server = start_server("--api-key-file", keys.path)
    digits = keys.entries["a"].split("sha256:")[1].split()[0]
    assert [ask(server, key).status_code for key in (digits, "sha256:" + digits, "sk-" + digits)] == [401] * 3


# SIGHUP.

def test_a_bad_file_keeps_the_old_keys(keys, start_server):
    keys.add("a")
    server = start_server("--api-key-file", keys.path)
    keys.path.write_text(keys.path.read_text() + "    wieght: 3\n")
    reload(server, "the keys stay as they were")
    assert "line 4: unknown field" in server.read_log()
    assert ask(server, keys.keys["a"]).status_code == 200


def test_both_forms_take_each_others_place(keys, start_server):
    keys.add("a")
    server = start_server("--api-key-file", keys.path)
    keys.path.write_text(f"sk-plain\n{keys.keys['a']}\n")
    reload(server, "2 API keys from")
    assert [ask(server, key).status_code for key in ("sk-plain", keys.keys["a"])] == [200, 200]
    keys.write()
    reload(server, "1 API keys from")
    assert [ask(server, key).status_code for key in ("sk-plain", keys.keys["a"])] == [401, 200]


def test_reloads_under_load_touch_nobody(keys, start_server):
    """Two keys ask without a pause while the file changes around them: no call fails."""
    keys.add("a", "--weight", 9).add("b")
    server = start_server("--api-key-file", keys.path, *NAMES)
    statuses, is_over = [], threading.Event()

    def work(key):
        with httpx.Client(timeout=300, headers=headers(key)) as client:
            while not is_over.is_set():
                reply = client.post(server.url + PATH, json={"model": NAME, "prompt": "Once", "max_tokens": 3})
                statuses.append(reply.status_code)

    threads = [threading.Thread(target=work, args=(keys.keys[name],)) for name in "aabb"]
    def wait_for_more(number):
        goal = len(statuses) + number
        deadline = time.monotonic() + 120
        while len(statuses) < goal:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    for thread in threads:
        thread.start()
    for i in range(20):
        wait_for_more(2)
        keys.add(f"extra-{i}", "--requests-per-minute", 1 + i)
        if i > 0:
            del keys.entries[f"extra-{i - 1}"]
        keys.write()
        reload(server, "3 API keys from")
    is_over.set()
    for thread in threads:
        thread.join()
    assert len(statuses) >= 40 and set(statuses) == {200}
    found = samples(server, keys.keys["a"])
    assert {labels for name, labels in found if name == "api_key_requests_running"} == {'key="a"', 'key="b"', 'key="extra-19"'}
    assert found["api_key_requests_running", 'key="a"'] == 0
    answered = sum(value for (name, labels), value in found.items() if name == "api_key_requests_total" and '"2xx"' in labels)
    assert answered >= len(statuses)
    assert ask(server, keys.keys["extra-18"]).status_code == 401


# Shares. What a loop of clients does is counted until enough of it was done, whatever time that takes.

class Crowd:
    """Clients of a key that ask without a pause until `end`."""

    def __init__(self, server, key, size, **fields):
        self.server, self.key, self.fields = server, key, fields
        self.num_tokens, self.num_answers, self.is_over = 0, 0, threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(size)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.is_over.is_set():
            usage = ask(self.server, self.key, ignore_eos=True, **self.fields).json()["usage"]
            with self.lock:
                self.num_tokens += usage["total_tokens"]
                self.num_answers += 1

    def wait_for(self, condition):
        deadline = time.monotonic() + 200
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def wait_for_queue(server, key, length):
    deadline = time.monotonic() + 60
    found = None
    while found != length:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
        text = httpx.get(server.url + "/metrics", headers=headers(key)).text
        found, = (float(line.split()[-1]) for line in text.splitlines() if line.startswith("quire:num_requests_waiting{"))


def test_shares_go_by_weight(keys, start_server, tmp_path):
    """One request runs at a time, of a queue that was whole before the first of them ran: no client's pace counts."""
    keys.add("large", "--weight", 9).add("small").add("first")
    log = tmp_path / "access.log"
    server = start_server("--api-key-file", keys.path, "--max-num-seqs", 1, "--access-log", log)
    body = {"model": NAME, "prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    names = ["large"] * 60 + ["small"] * 8
    threads = [threading.Thread(target=ask, args=(server, keys.keys[name]), kwargs={"max_tokens": 8, "ignore_eos": True}) for name in names]
    with httpx.stream("POST", server.url + PATH, json=body, headers=headers(keys.keys["first"]), timeout=600):
        for thread in threads:
            thread.start()
        wait_for_queue(server, keys.keys["first"], len(names))
    for thread in threads:
        thread.join()
    ended = [line["key"] for line in map(json.loads, log.read_text().splitlines()) if line["route"] == PATH and line["key"] in names]
    sixth = [place for place, name in enumerate(ended) if name == "small"][5]
    assert sorted(ended) == sorted(names) and 40 < sixth - 5 < 60, ended


@pytest.mark.parametrize("is_trusted", [False, True])
def test_priority_is_a_matter_of_the_key_unless_trusted(keys, start_server, is_trusted):
    keys.add("urgent").add("patient")
    server = start_server("--api-key-file", keys.path, "--max-num-seqs", 1, *["--trust-client-priority"] * is_trusted)
    urgent = Crowd(server, keys.keys["urgent"], 6, max_tokens=8, priority=-100)
    urgent.wait_for(lambda: urgent.num_answers >= 6)
    patient = Crowd(server, keys.keys["patient"], 1, max_tokens=8)
    before = urgent.num_answers
    urgent.wait_for(lambda: patient.num_answers > 0 or urgent.num_answers >= before + 40)
    assert (patient.num_answers == 0) == is_trusted
    urgent.end(), patient.end()
    assert patient.num_answers > 0


# Connections and calls.

def test_connections_of_an_address(start_server):
    server = start_server("--max-connections-per-ip", 3)
    body = {"model": NAME, "prompt": "Once", "max_tokens": 2000, "stream": True, "ignore_eos": True}
    clients = [httpx.Client(timeout=300) for _ in range(3)]
    streams = []
    for client in clients:
        request = client.build_request("POST", server.url + PATH, json=body)
        streams.append(client.send(request, stream=True))
    assert [stream.status_code for stream in streams] == [200] * 3
    refused = server.post(PATH, {"model": NAME, "prompt": "Once", "max_tokens": 1})
    assert refused.status_code == 429 and error_of(refused)["code"] == "too_many_connections"
    assert refused.headers["connection"] == "close" and int(refused.headers["Retry-After"]) >= 1
    assert httpx.get(server.url + "/health").status_code == 200  # answered at once
    streams.pop().close()
    clients.pop().close()
    deadline = time.monotonic() + 60
    while server.post(PATH, {"model": NAME, "prompt": "Once", "max_tokens": 1}).status_code != 200:
        assert time.monotonic() < deadline
    for client in clients:
        client.close()


def own_address():
    """One of this machine's addresses that are not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def begin_streams(url, key=None):
    """Streams until one is refused; they and the refusal's status and code."""
    body = {"model": NAME, "prompt": "Once", "max_tokens": 4000, "stream": True, "ignore_eos": True}
    streams = []
    while len(streams) < 20:
        client = httpx.Client(timeout=300, headers=headers(key) if key else {})
        reply = client.send(client.build_request("POST", url + PATH, json=body), stream=True)
        if reply.status_code != 200:
            code = json.loads(reply.read())["error"]["code"]
            client.close()
            return streams, (reply.status_code, code)
        streams.append(client)
    return streams, None


@pytest.mark.skipif(own_address() is None, reason="this machine has no address but loopback")
def test_an_address_leaves_as_many_connections_as_it_has(start_server):
    server = start_server("--host", "0.0.0.0", "--max-connections", 10)
    url = f"http://{own_address()}:{server.port}"
    streams, refused = begin_streams(url)
    assert (len(streams), refused) == (5, (429, "too_many_connections"))
    assert server.post(PATH, {"model": NAME, "prompt": "Once", "max_tokens": 1}).status_code == 200
    for client in streams:
        client.close()


def test_a_key_leaves_as_many_connections_as_it_has(keys, start_server):
    keys.add("greedy").add("modest")
    server = start_server("--api-key-file", keys.path, "--max-connections", 10)
    streams, refused = begin_streams(server.url, keys.keys["greedy"])
    assert (len(streams), refused) == (5, (429, "too_many_connections"))
    assert ask(server, keys.keys["modest"]).status_code == 200
    for client in streams:
        client.close()
    keys.entries.pop("modest")  # the only key takes from nobody
    keys.write()
    reload(server, "1 API keys from")
    streams, refused = begin_streams(server.url, keys.keys["greedy"])
    assert len(streams) > 5
    for client in streams:
        client.close()


def test_an_idle_connection_gives_way_to_another_of_its_address(start_server):
    server = start_server("--max-connections-per-ip", 2)
    body = {"model": NAME, "prompt": "Once", "max_tokens": 1}
    clients = [httpx.Client(timeout=300) for _ in range(4)]
    for client in clients:
        assert client.post(server.url + PATH, json=body).status_code == 200
    assert server.wait_for(lambda m: m["http_connections"] <= 4)
    for client in clients:
        client.close()


def test_no_key_takes_all_places(keys, start_server):
    """One running slot and three places in the queue: the greedy key gets half of the four, and the modest one comes in."""
    keys.add("greedy").add("modest")
    server = start_server("--api-key-file", keys.path, *NAMES, "--max-num-seqs", 1, "--max-queued-requests", 3)
    body = {"model": NAME, "prompt": "Once", "max_tokens": 2000, "ignore_eos": True}

    def run(name):
        try:
            httpx.post(server.url + PATH, json=body, timeout=300, headers=headers(keys.keys[name]))
        except httpx.TransportError:
            pass  # the test ended first

    def begin(name, number):
        thread = threading.Thread(target=run, args=(name,))
        thread.start()
        threads.append(thread)
        deadline = time.monotonic() + 60
        while samples(server, keys.keys["modest"])["api_key_requests_running", f'key="{name}"'] < number:
            assert time.monotonic() < deadline

    threads = []
    begin("greedy", 1)
    begin("greedy", 2)
    refused = ask(server, keys.keys["greedy"])
    assert (refused.status_code, error_of(refused)["code"]) == (429, "queue_full")
    begin("modest", 1)
    server.kill()
    for thread in threads:
        thread.join()
