"""`quire chat`: in a terminal, whose screen is compared, and as a filter. The model's words are scripted
(scripted_server.py), but for the tests that name the real binary's server."""

import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from quire_server import BINARY, MODEL, NAME, ROOT, clean_environment, free_port
from raw_http import wait_until
from scripted_server import ScriptedServer, answer, chunk, refusal
from terminal import CTRL_A, CTRL_C, CTRL_D, DOWN, UP, Terminal

FAMILIES = ROOT / "tests/golden/families"


@pytest.fixture
def stub():
    made = ScriptedServer()
    yield made
    made.close()


@pytest.fixture
def chat(stub, tmp_path):
    """chat(*words) -> Terminal in which the first prompt stands."""
    opened = []

    def start(*words, url=stub.url, environment=None, **size):
        words = [BINARY, "chat", *(["--url", url] if url else []), *words]
        environment = clean_environment(XDG_STATE_HOME=str(tmp_path), NO_PROXY="*", **(environment or {}))
        opened.append(Terminal(words, environment, **size))
        opened[-1].wait_for_prompt()
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.__exit__()


def once(*words, url=None, environment=None, **options):
    """Runs it without a terminal."""
    return subprocess.run([str(word) for word in (BINARY, "chat", *(["--url", url] if url else []), *words)],
                          capture_output=True, timeout=120, env=clean_environment(**(environment or {})), **options)


def say(terminal, text):
    """Types a line, and waits until it was answered."""
    before = terminal.received.count(b"\x1b[?2004h")
    terminal.type(text + "\r")
    wait_until(lambda: terminal.receive(0.1) and terminal.received.count(b"\x1b[?2004h") > before)
    return terminal.wait_for_prompt()


def spoken(stub):
    """The messages of the last chat."""
    return [(message["role"], message["content"]) for message in stub.chats[-1]["messages"]]


def test_a_conversation(chat, stub):
    gate = threading.Event()
    stub.script = [[chunk(reasoning="let me"), chunk(reasoning=" see"), chunk("Hel"), gate, *answer("lo, grüße 🙂")],
                   answer("Again")]
    terminal = chat()
    terminal.type("Hi\r")
    terminal.wait_for_text("let me see\nHel")  # streamed: the rest is not sent yet
    gate.set()
    assert terminal.wait_for_prompt() == f"stub at {stub.url}; /help shows commands\n> Hi\nlet me see\nHello, grüße 🙂\n>"
    dimmed, plain = terminal.received.split(b"let me see")[0], terminal.received.split(b"Hel")[-2]
    assert dimmed.endswith(b"\x1b[2m") and plain.endswith(b"\x1b[0m\r\n")
    assert say(terminal, "More").endswith("> More\nAgain\n>")
    assert spoken(stub) == [("user", "Hi"), ("assistant", "Hello, grüße 🙂"), ("user", "More")]
    terminal.type(CTRL_D)
    assert terminal.wait_until_ended() == 0


def test_several_lines(chat, stub, tmp_path):
    stub.script = [answer("ok") for _ in range(4)]
    terminal = chat()
    terminal.type("one\\\r")
    terminal.wait_for_prompt(".")
    say(terminal, "two")
    assert spoken(stub) == [("user", "one\ntwo")]
    terminal.type('"""first\r')
    terminal.wait_for_prompt(".")
    terminal.type("  second\\\r")
    terminal.wait_for_text("second")
    terminal.wait_for_prompt(".")
    say(terminal, 'third"""')
    assert spoken(stub)[-1] == ("user", "first\n  second\\\nthird")
    terminal.type("\x1b[200~def f():\r\treturn 'ü' \\\r\r\x1b[31mend\x1b[201~ and more")
    terminal.wait_for_text("and more")
    assert stub.chats[2:] == []  # its line breaks did not send it
    say(terminal, "")
    assert spoken(stub)[-1] == ("user", "def f():\n return 'ü' \\\n\n[31mend and more")
    history = tmp_path / "quire/chat_history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert history.read_text().splitlines()[:2] == ["one\\ntwo", "first\\n  second\\\\\\nthird"]


def test_history_is_recalled(chat, stub):
    stub.script = [answer("a"), answer("b"), answer("c")]
    terminal = chat()
    say(terminal, "first question")
    say(terminal, "second")
    terminal.type("/exit\r")
    assert terminal.wait_until_ended() == 0
    terminal = chat()
    terminal.type(UP)
    terminal.wait_for_text("> /exit")
    terminal.type(UP + UP)
    terminal.wait_for_text("> first question")
    terminal.type(DOWN)
    terminal.wait_for_text("> second")
    terminal.type(UP + CTRL_A + "my ")
    terminal.wait_for_text("> my first question")
    say(terminal, "")
    assert spoken(stub) == [("user", "my first question")]


def test_ctrl_c_stops_an_answer(chat, stub):
    stub.script = [[chunk("One, two"), threading.Event()], answer("fine"), [threading.Event()], answer("yes")]
    terminal = chat()
    terminal.type("Count\r")
    terminal.wait_for_text("One, two")
    terminal.type(CTRL_C)
    assert terminal.wait_for_prompt().endswith("> Count\nOne, two^C\nstopped\n>")
    assert stub.gone.wait(60)  # the connection is closed: a server frees what it holds
    say(terminal, "Go on")
    assert spoken(stub) == [("user", "Count"), ("assistant", "One, two"), ("user", "Go on")]
    terminal.type("Silent\r")
    wait_until(lambda: len(stub.chats) == 3)
    terminal.type(CTRL_C)
    terminal.wait_for(lambda screen: "> Silent\n^C\nstopped" in screen)
    terminal.wait_for_prompt()
    say(terminal, "Next")  # what was not answered at all is not in the conversation
    assert spoken(stub)[-2:] == [("assistant", "fine"), ("user", "Next")]


def test_ctrl_c_at_the_prompt(chat):
    terminal = chat()
    terminal.type("a line that is given up")
    terminal.wait_for_text("given up")
    terminal.type(CTRL_C)
    terminal.wait_for_prompt()
    terminal.type(CTRL_C)
    terminal.wait_for_text("Ctrl-C again")
    terminal.wait_for_prompt()
    terminal.type(CTRL_C)
    assert terminal.wait_until_ended() == 0


def test_resize(chat, stub):
    stub.script = [answer("ok")]
    terminal = chat(columns=60)
    terminal.type("word " * 15)
    terminal.wait_for(lambda screen: screen.replace("\n", "").count("word") == 15)
    terminal.set_size(30, 24)
    terminal.type("end")
    terminal.wait_for_text("end")
    assert max(map(len, terminal.text().splitlines())) <= 30
    say(terminal, "")
    assert spoken(stub) == [("user", "word " * 15 + "end")]


def test_a_terminal_does_not_obey_the_model(chat, stub):
    attack = "\x1b[2J\x1b[H\x1b]0;owned\x07\x9b31m\x1bPq\x1b\\\x08\x7f\r\u202emalicious"
    stub.script = [[chunk(reasoning=attack), *answer(attack)], (400, {}, refusal("no \x1b[31mred\x9b", None)),
                   [b"data: " + json.dumps({"error": {"message": attack}}).encode() + b"\n\n"]]
    terminal = chat()
    before = len(terminal.received)
    screen = say(terminal, "Hi")
    assert "malicious" in screen and "> Hi" in screen and terminal.screen.title == ""
    assert "owned" in screen  # as text
    say(terminal, "again")
    say(terminal, "again")
    rest = terminal.received[before:]
    for allowed in (b"\x1b[2m", b"\x1b[0m", b"\x1b[?2004h", b"\x1b[?2004l"):
        rest = rest.replace(allowed, b"")
    assert b"\x1b" not in rest and b"\x07" not in rest and "\x9b".encode() not in rest


def test_what_goes_wrong_is_a_line(chat, stub):
    stub.script = [
        answer("first"), (400, {}, refusal("has 120 tokens", "context_length_exceeded")),
        (401, {}, refusal("no key", "invalid_api_key")), (429, {"Retry-After": 7}, refusal("slow down", "x")),
        (502, {}, b"<html>Bad Gateway</html>"), [chunk("broken"), None], [b"data: {\n\n"], [chunk("cut"), b""],
        answer("full", "length", 60, 40), answer("short", "length", 6, 4), answer("still here")]
    terminal = chat()
    say(terminal, "q")
    for said in ("the context is full: has 120 tokens (400); /clear starts again",
                 "the server wants an API key (401): set QUIRE_API_KEY to it", "slow down (429); try again in 7 s",
                 "no answer: <html>Bad Gateway</html> (502)", "broken\nthe answer breaks off:",
                 "no answer: an event of the stream", "cut\nthe answer breaks off: the server ended the stream",
                 "full\nthe context of 100 tokens is full; /clear", "short\ncut off after 4 tokens (max_tokens)"):
        assert said in say(terminal, "q2").replace("\n>", ""), terminal.text()
    say(terminal, "q3")
    assert [text for role, text in spoken(stub) if role == "assistant"] == ["first", "broken", "cut", "full", "short"]
    stub.close()
    assert "no answer: " in say(terminal, "q4") and "cannot connect: Connection refused" in terminal.text()
    assert "cannot connect" in say(terminal, "q5")


def test_commands(chat, stub, tmp_path):
    stub.script = [answer(text) for text in ("one", "two", "three", "four")]
    terminal = chat("--system", "Be kind", "--set", "top_p=0.5")
    assert "system: Be kind" in say(terminal, "/system")
    say(terminal, "/system Be brief")
    assert "temperature is 0.25" in say(terminal, "/set temperature 0.25")
    assert "temperature must be a number of 0 to 2" in say(terminal, "/set temperature 3")
    assert "unknown setting colour; the settings are temperature" in say(terminal, "/set colour red")
    assert "no answer yet" in say(terminal, "/stats")
    assert "no question to retry" in say(terminal, "/retry")
    say(terminal, "Hi")
    assert spoken(stub) == [("system", "Be brief"), ("user", "Hi")]
    assert (stub.chats[0]["temperature"], stub.chats[0]["top_p"]) == (0.25, 0.5)
    say(terminal, "/retry")
    assert stub.chats[1] == stub.chats[0]
    screen = say(terminal, "/stats")
    assert "first token after 0." in screen and "context: 15 of 100 tokens" in screen
    assert "2 answers with 10 tokens in all" in screen
    path = tmp_path / "saved.json"
    say(terminal, f"/save {path}")
    assert json.loads(path.read_text())["messages"][-1] == {"role": "assistant", "content": "two"}
    assert "File exists" in say(terminal, f"/save {path}").replace("\n", "")  # a long path is folded
    say(terminal, "/clear")
    say(terminal, "/etc/passwd is no command")
    assert spoken(stub) == [("system", "Be brief"), ("user", "/etc/passwd is no command")]
    assert "unknown command /nothing; /help lists them" in say(terminal, "/nothing at all")
    assert "/retry" in say(terminal, "/help")


def test_once(stub):
    stub.script = [[chunk(reasoning="hm"), *answer("An answer\x1b[1m")], answer("piped\n"), answer("both")]
    result = once("A question", "--set", "max_tokens=9", url=stub.url + "/v1/",
                  environment={"QUIRE_API_KEY": "sk-1"})
    assert (result.returncode, result.stdout, result.stderr) == (0, b"An answer\x1b[1m\n", b"")  # no terminal: every byte
    assert stub.headers[0]["Authorization"] == "Bearer sk-1" and stub.chats[0]["max_tokens"] == 9
    result = once(url=stub.url, input="über\nzwei".encode(), environment={"MINE": "sk-2"})
    assert (result.returncode, result.stdout) == (0, b"piped\n")
    assert spoken(stub) == [("user", "über\nzwei")] and "Authorization" not in stub.headers[1]
    result = once("-", "--api-key-env", "MINE", url=stub.url, input=b"x", environment={"MINE": "sk-2"})
    assert (result.returncode, result.stdout) == (0, b"both\n") and stub.headers[2]["Authorization"] == "Bearer sk-2"


@pytest.mark.parametrize("reply, answered, said", [
    ((401, {}, refusal("no", "x")), b"", b"the server wants an API key (401)"),
    ((503, {"Retry-After": 3}, refusal("full", "x")), b"", b"full (503); try again in 3 s"),
    ([chunk("half"), None], b"half\n", b"no whole answer"),
    ([b"data: {\"error\": {\"message\": \"a\\u001b[2J\"}}\n\n"], b"", b"a?[2J")])
def test_once_without_an_answer(stub, reply, answered, said):
    stub.script = [reply]
    result = once("Hi", url=stub.url)
    assert result.returncode == 1 and result.stdout == answered
    assert said in result.stderr and result.stderr.count(b"\n") == 1 and b"\x1b" not in result.stderr


def test_nobody_there():
    result = once("Hi", url=f"http://127.0.0.1:{free_port()}")
    assert result.returncode == 1 and b"cannot connect" in result.stderr and result.stderr.count(b"\n") == 1
    result = once(url=f"http://127.0.0.1:{free_port()}", input=b"x" * (5 << 20))
    assert result.returncode == 1 and b"more than 4 MiB" in result.stderr


@pytest.mark.parametrize("words", [
    ["a", "b"], ["--nothing", "a"], ["--url"], ["--threads", "2", "a"], ["--model"], ["--set", "temperature", "a"],
    ["--set", "temperature=9", "a"], ["--temperature", "9", "a"], ["--temperature"], ["--top-p=x", "a"],
    ["--model", "m", "--url", "http://a", "-c", "9", "a"], ["--model", "m", "--model", "n", "--url", "http://a", "a"],
    ["--model", "m", "--uds", "x", "a"]])
def test_bad_words(words):
    result = once(*words, input=b"")
    assert result.returncode == 64 and result.stdout == b"" and result.stderr.count(b"\n") == 1


def test_bad_values():
    for words, said in ((["--url", "ftp://a", "x"], b"http://HOST"), (["--url", "http://a@b", "x"], b"user's name")):
        result = once(*words)
        assert result.returncode == 1 and said in result.stderr
    result = once("x", url="http://127.0.0.1:1", environment={"QUIRE_API_KEY": "a\nb"})
    assert result.returncode == 1 and b"printable" in result.stderr


def test_with_a_server_of_its_own(tmp_path):
    result = once("--model", MODEL, "--max-model-len", "512", "--no-enable-prefix-caching", "Say hi.", "--set",
                  "temperature=0", "--set", "max_tokens=8")
    assert result.returncode == 0 and len(result.stdout) > 3, result.stderr
    result = once("--model", tmp_path / "none.gguf", "Say hi.")
    assert result.returncode == 1 and b"the server ended: " in result.stderr and b"none.gguf" in result.stderr
    result = once("--model", MODEL, "--max-num-seqs", "many", "Say hi.")
    assert result.returncode == 64 and b"max-num-seqs" in result.stderr and result.stderr.count(b"\n") == 1


def test_settings_as_options():
    plain = once("--model", MODEL, "--set", "temperature=0", "--set", "max_tokens=3", "Say hi.")
    assert plain.returncode == 0 and plain.stdout
    assert once("--max-tokens", "3", "--model", MODEL, "--temperature=0", "Say hi.").stdout == plain.stdout


GREEDY = ("--set", "temperature=0", "--set", "max_tokens=8")


def test_run_and_chat_with_a_model():
    """`quire run MODEL` and `quire chat MODEL` are `quire chat --model MODEL`."""
    answers = {once("--model", MODEL, "Say hi.", *GREEDY).stdout, once(MODEL, "Say hi.", *GREEDY).stdout,
               run_command(MODEL, "Say hi.", "-c", "512", "-t", "1", *GREEDY).stdout}
    assert len(answers) == 1 and len(answers.pop()) > 3


def run_command(*words):
    return subprocess.run([str(word) for word in (BINARY, "run", *words)], capture_output=True, timeout=120, env=clean_environment())


@pytest.mark.parametrize("command, words, said", [
    (run_command, [], ["needs a MODEL"]),
    (run_command, ["m.gguf", "--mlock", "--port", "x", "--frob"], ["--mlock of llama-server", 'port "x"', "unknown option --frob"]),
    (run_command, ["m.gguf", "--port", "x", "--block-size", "3"], ['port "x"', 'block-size "3"']),
    (run_command, ["m.gguf", "--uds", "s"], ["--uds"]),
    (run_command, ["m.gguf", "one", "two"], ["one question"]),
    (once, ["m.gguf", "--url", "http://127.0.0.1:1"], ["--url or a model"]),
    (once, ["--frob", "1", "--mlock", "Hi"], ["unknown option --frob", "--mlock"]),
    (once, ["-c", "512", "Hi"], ["for a server that `quire run MODEL` starts"]),
])
def test_mistakes_in_words(command, words, said):
    result = command(*words)
    assert result.returncode == 64 and not result.stdout
    lines = result.stderr.decode().splitlines()
    assert len(lines) == len(said)
    for line, piece in zip(lines, said):
        assert line.startswith("quire chat: ") and piece in line


@pytest.mark.parametrize("question", ["org/name", "hello", "a.gguf or b.gguf?"])
def test_a_question_is_no_model(stub, question):
    stub.script = [answer("yes")]
    assert once(question, url=stub.url).stdout == b"yes\n"


def children_of(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def folder_of(server):
    """Where the server that a conversation has started listens."""
    words = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    return Path(words[words.index("--uds") + 1]).parent


@pytest.mark.parametrize("end", ["exit", "SIGTERM", "SIGHUP", "in an answer", "SIGKILL"])
def test_its_own_server_ends_with_it(chat, end):
    terminal = chat("--model", MODEL, "--max-model-len", "4096", "--set", "max_tokens=4000", url=None)
    server, = children_of(terminal.pid)
    folder = folder_of(server)
    assert folder.stat().st_mode & 0o777 == 0o700
    if end == "exit":
        terminal.type("/exit\r")
    elif end == "in an answer":
        terminal.type("Write a very long story about the pages of a quire.\r")
        wait_until(lambda: terminal.receive(0.1) and len(terminal.text().split("quire.")[-1]) > 20)
        os.kill(terminal.pid, signal.SIGTERM)
    else:
        os.kill(terminal.pid, signal.Signals[end])
    assert terminal.wait_until_ended() == (-signal.SIGKILL if end == "SIGKILL" else 0)
    wait_until(lambda: not Path(f"/proc/{server}/exe").exists())
    assert folder.exists() == (end == "SIGKILL")
    shutil.rmtree(folder, ignore_errors=True)


def test_real_server_frees_what_is_stopped(start_server, chat):
    server = start_server()
    terminal = chat("--set", "max_tokens=6000", "--set", "temperature=1.5", url=server.url)
    terminal.type("Write a very long story about a quire of paper and its many pages.\r")
    server.wait_for(lambda metrics: metrics["num_requests_running"] == 1)
    terminal.type(CTRL_C)
    terminal.wait_for_text("stopped")
    server.wait_idle()
    assert say(terminal, "/stats")


def test_real_server_with_a_full_context(start_server, chat):
    server = start_server("--max-model-len", 128)
    terminal = chat("--set", "max_tokens=8", url=server.url)
    assert "the context is full: This model's maximum context length is 128 tokens" in \
        say(terminal, "word " * 150).replace("\n", "").replace("the contextis", "the context is")
    say(terminal, "Hi")
    assert "the context is full" not in terminal.text().rsplit("> Hi", 1)[1]


# ---- a server of several models ----

def listed(**states):
    return [{"id": name, "max_model_len": None, "status": {"value": state}} for name, state in states.items()]


def test_models_are_listed_and_chosen(chat, stub):
    stub.models = listed(small="loaded", large="unloaded", larger="sleeping")
    stub.script = [answer("one"), answer("two"), answer("three")]
    terminal = chat()
    assert f"small at {stub.url}; /help shows commands\n3 models; /model lists them" in terminal.text()
    lines = [line.split(None, 2) for line in say(terminal, "/model").splitlines()[-4:-1]]
    assert lines == [["*", "small", "loaded"], ["large", "not", "loaded"], ["larger", "asleep"]]
    say(terminal, "Hi")
    assert "model: large\n" in say(terminal, "/model large")  # a name that is also a part of another
    say(terminal, "And you?")
    assert "3 models have a in their names; /model lists them" in say(terminal, "/model a")
    assert "the server has no model huge; /model lists them" in say(terminal, "/model huge")
    say(terminal, "/model larger")
    say(terminal, "And you?")
    assert [body["model"] for body in stub.chats] == ["small", "large", "larger"]
    assert spoken(stub)[:2] == [("user", "Hi"), ("assistant", "one")]


def test_one_model_says_nothing_of_others(chat, stub):
    terminal = chat()
    assert "models" not in terminal.text()
    assert say(terminal, "/model").endswith("* stub\n>")


def test_a_line_while_a_model_is_loaded(chat, stub):
    gate = threading.Event()
    stub.models = listed(small="loaded", large="unloaded")
    stub.script = [[gate, *answer("Here I am")]] * 2
    terminal = chat("--model", "lar", columns=40)
    terminal.type("Hello\r")
    terminal.wait_for_text("> Hello\nwaiting until large can be loaded")
    stub.models = listed(small="sleeping", large="loading")
    terminal.wait_for(lambda screen: screen.endswith("> Hello\nloading large"))
    gate.set()
    assert terminal.wait_for_prompt().endswith("> Hello\nHere I am\n>")
    gate.clear()
    terminal.type("Again\r")
    terminal.wait_for_text("> Again\nloading large")
    terminal.type(CTRL_C)
    assert terminal.wait_for_prompt().endswith("> Again\nloading large^C\nstopped\n>")


def test_real_server_of_several(start_server, chat, tmp_path):
    template, gone = tmp_path / "template.jinja", tmp_path / "gone.gguf"
    template.write_text("{% for message in messages %}{{ message.content }} {% endfor %}")
    shutil.copy(FAMILIES / "qwen2.gguf", gone)
    server = start_server("--model", MODEL, "--served-model-name", NAME, "--model", FAMILIES / "llama3.gguf", "--model", gone,
                          "--max-model-len", 512, "--chat-template", template, "--models-max", 1, has_model=True)
    gone.unlink()
    terminal = chat("--model", "llama", "--max-tokens", "8", url=server.url)
    assert terminal.text().startswith("llama3 at ")
    say(terminal, "Hello")
    assert "of 512 tokens" in say(terminal, "/stats")  # known since it was loaded
    lines = [line.split(None, 2) for line in say(terminal, "/model").splitlines()[-4:-1]]
    assert lines == [["smollm2", "asleep"], ["*", "llama3", "loaded"], ["gone", "not", "loaded"]]
    say(terminal, "/model gone")
    assert 'no answer: the model "gone" cannot be opened' in say(terminal, "And you?")
    say(terminal, "/model smol")
    say(terminal, "And you?")
    assert "2 answers" in say(terminal, "/stats")
