"""`quire pull` and `quire serve --model ORG/NAME` against a hub of the tests' own (hub_server.py), beside the real
huggingface_hub: which files are fetched, where they lie, what is refused and what is said. What breaks on the way is
in test_hub_faults.py."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from hub_server import Bytes, Content, Hub
from hub_stage import NAME, TOKEN, blobs, folder_files, pulled, refused, wait_for_bytes
from hub_stage import environment, home, hub, quire  # noqa: F401 (fixtures)
from quire_server import BINARY, MODEL, ROOT

# --- What is fetched ---------------------------------------------------------------------------------------------------


def test_a_folder_without_what_nobody_reads(hub, quire):
    files = folder_files()
    commit = hub.add(NAME, {**files, "README.md": b"# hi", "pytorch_model.bin": b"pickle", "tokenizer.model": b"x"})
    path = pulled(quire("pull", NAME))
    assert path.name == commit
    assert {name: (path / name).read_bytes() for name in files} == files
    assert sorted(entry.name for entry in path.iterdir()) == sorted(files)
    assert quire("inspect", path).returncode == 0


def test_a_folder_of_shards(hub, quire):
    weights = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    shards = {"model-1.safetensors": Content(700_001), "model-2.safetensors": Content(900_000, b"other")}
    hub.add(NAME, {"config.json": b"{}", "tokenizer.json": b"{}", **shards, "consolidated.safetensors": Content(50),
                   "model.safetensors.index.json": json.dumps({"weight_map": weights}).encode()})
    path = pulled(quire("pull", NAME))
    for name, content in shards.items():
        assert (path / name).read_bytes() == b"".join(map(bytes, content.pieces(0, content.size)))
    assert not (path / "consolidated.safetensors").exists()


def test_an_adapter_of_a_hub_is_served(hub, quire, start_server, environment):
    folder = ROOT / "tests/golden/adapters/llama-r8"
    files = {name: (folder / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors")}
    hub.add("org/adapter", {**files, "README.md": b"# hi", "training_args.bin": b"pickle"})
    path = pulled(quire("pull", "org/adapter"))
    assert sorted(entry.name for entry in path.iterdir()) == sorted(files)
    server = start_server("--model", ROOT / "tests/golden/families/llama", "--lora-modules", "one=org/adapter",
                          environment=environment)
    answer = server.post("/v1/completions", {"model": "one", "prompt": "a", "max_tokens": 2})
    assert answer.status_code == 200, answer.text


def test_a_gguf_is_chosen(hub, quire):
    names = ("m.Q4_K_M.gguf", "m.Q8_0.gguf", "m-Q4_K.gguf", "mmproj-m-Q8_0.gguf", "sub/m-F16.gguf")
    hub.add(NAME, {name: name.encode() for name in names})
    for choice, name in (("", "m.Q4_K_M.gguf"), (":q8_0", "m.Q8_0.gguf"), (":Q4_K", "m-Q4_K.gguf"),
                         (":f16", "sub/m-F16.gguf"), (":mmproj-m-Q8_0.gguf", "mmproj-m-Q8_0.gguf")):
        path = pulled(quire("pull", NAME + choice))
        assert str(path).endswith("/" + name) and path.read_text() == name
    refused(quire("pull", NAME + ":Q5_K_M"), 78, "no GGUF file 'Q5_K_M'", *names[:3], "sub/m-F16.gguf")


def test_names_as_other_programs_write_them(hub, quire, environment):
    """hf.co/..., pages and files, at the hub that HF_ENDPOINT names."""
    names = ("m.Q4_K_M.gguf", "sub/m-F16.gguf")
    hub.add(NAME, {name: name.encode() for name in names})
    endpoint = environment["HF_ENDPOINT"]
    for text, name in ((f"hf.co/{NAME}:Q4_K_M", names[0]), (f"https://huggingface.co/{NAME}", names[0]),
                       (f"https://huggingface.co/{NAME}/blob/main/{names[1]}", names[1]),
                       (f"{endpoint}/{NAME}/resolve/main/{names[1]}?download=true", names[1])):
        assert pulled(quire("pull", text)).read_text() == name
    refused(quire("pull", f"https://example.com/{NAME}"), 78, "HF_ENDPOINT")


def test_a_split_gguf_comes_whole(hub, quire):
    parts = {f"m-Q4_0-0000{i}-of-00003.gguf": Content(1000 * i) for i in (1, 2, 3)}
    hub.add(NAME, parts)
    path = pulled(quire("pull", NAME + ":Q4_0"))
    assert path.name == "m-Q4_0-00001-of-00003.gguf"
    assert sorted(entry.name for entry in path.parent.iterdir()) == sorted(parts)
    refused(quire("pull", NAME + ":m-Q4_0-00002-of-00003.gguf"), 78, "part 2 of 3")


@pytest.mark.parametrize("files, words", [
    ({"a.Q5_0.gguf": b"a", "b.Q5_0.gguf": b"b"}, ("several GGUF files", "a.Q5_0.gguf, b.Q5_0.gguf")),
    ({"pytorch_model.bin": b"x"}, ("pickle",)),
    ({"README.md": b"x"}, ("neither model.safetensors",)),
    ({"model.safetensors": b"x", "config.json": b"{}"}, ("no tokenizer.json",)),
])
def test_a_repository_of_which_nothing_can_be_chosen(hub, quire, files, words):
    hub.add(NAME, files)
    refused(quire("pull", NAME), 78, NAME, *words)
    assert hub.bytes_sent() == 0


def test_safetensors_come_before_gguf_unless_chosen(hub, quire):
    hub.add(NAME, {**folder_files(), "m.Q8_0.gguf": b"GGUF of no use"})
    assert pulled(quire("pull", NAME)).is_dir()
    assert pulled(quire("pull", NAME + ":Q8_0")).name == "m.Q8_0.gguf"


def test_a_pull_asks_for_the_newest_commit(hub, quire):
    first = hub.add(NAME, {"m.gguf": b"first"})
    assert pulled(quire("pull", NAME)).read_bytes() == b"first"
    hub.add(NAME, {"m.gguf": b"second"})
    assert pulled(quire("pull", NAME)).read_bytes() == b"second"
    assert pulled(quire("pull", f"{NAME}@{first}")).read_bytes() == b"first"
    hub.add(NAME, {"m.gguf": b"of a branch"}, revision="refs/pr/1")
    assert pulled(quire("pull", f"{NAME}@refs/pr/1")).read_bytes() == b"of a branch"
    hub.forget()
    assert pulled(quire("pull", NAME)).read_bytes() == b"second"
    assert hub.requests == [("front", "GET", f"/api/models/{NAME}/revision/main?blobs=true")]


# --- Beside huggingface_hub --------------------------------------------------------------------------------------------

FIND = """
import json, sys
from huggingface_hub import hf_hub_download, snapshot_download
name, patterns, local = json.loads(sys.argv[1])
print(json.dumps([snapshot_download(name, allow_patterns=patterns, local_files_only=local),
                  [hf_hub_download(name, pattern, local_files_only=local) for pattern in patterns]]))
"""


@pytest.fixture
def python_hub(environment):
    """Runs the real package; returns where it has the snapshot and its files."""

    def run(patterns, local, **variables):
        done = subprocess.run([sys.executable, "-c", FIND, json.dumps([NAME, patterns, local])], text=True, capture_output=True,
                              env={**environment, "HF_HUB_DISABLE_XET": "1", **variables}, timeout=100)
        assert done.returncode == 0, done.stderr
        folder, files = json.loads(done.stdout)
        return Path(folder), [Path(file) for file in files]
    return run


def test_python_finds_what_quire_fetched(hub, quire, python_hub):
    files = folder_files()
    hub.add(NAME, files)
    path = pulled(quire("pull", NAME))
    for local in (True, False):
        hub.forget()
        folder, found = python_hub(list(files), local)
        assert folder == path and [file.read_bytes() for file in found] == list(files.values())
        assert hub.bytes_sent() == 0 and hub.count("GET", "/resolve/") == 0
    assert hub.count("HEAD", "/resolve/") > 0  # it did ask


def test_quire_serves_what_python_fetched(hub, python_hub, start_server, environment):
    files = folder_files()
    hub.add(NAME, files)
    python_hub(list(files), False)
    hub.forget()
    server = start_server("--model", NAME, environment={**environment, "HF_HUB_OFFLINE": "1"})
    assert httpx.get(server.url + "/health").status_code == 200
    assert hub.requests == []


def test_quire_fetches_nothing_that_python_has(hub, quire, python_hub):
    files = folder_files()
    hub.add(NAME, files)
    folder, _ = python_hub(list(files), False)
    hub.forget()
    assert pulled(quire("pull", NAME)) == folder
    assert hub.bytes_sent() == 0


def test_links_and_names_are_as_python_makes_them(hub, quire, home):
    commit = hub.add(NAME, {"sub/m.gguf": b"content"})
    path = pulled(quire("pull", NAME))
    repository = home / "hub/models--org--tiny"
    etag = Bytes(b"content").sha256
    assert path == repository / "snapshots" / commit / "sub/m.gguf"
    assert os.readlink(path) == f"../../../blobs/{etag}"
    assert (repository / "refs/main").read_text() == commit
    assert (home / f"hub/.locks/models--org--tiny/{etag}.lock").exists()
    assert [entry.name for entry in (repository / "blobs").iterdir()] == [etag]


# --- Serving -----------------------------------------------------------------------------------------------------------


def test_serve_fetches_once_and_then_asks_nothing(hub, start_server, environment):
    hub.add(NAME, {**folder_files(), "README.md": b"x"})
    for num_requests in (None, 0):
        hub.forget()
        server = start_server("--model", NAME, environment=environment)
        assert server.terminate() == 0
        assert num_requests is None or len(hub.requests) == num_requests


def test_the_served_name_is_what_was_typed(hub, environment, tmp_path):
    hub.add(NAME, {"smol.Q4_1.gguf": MODEL.read_bytes(), "smol.Q8_0.gguf": b"another"})
    log = open(tmp_path / "log", "wb")
    process = subprocess.Popen([BINARY, "serve", "--model", NAME + ":q4_1", "--port", "0"], env=environment, stdout=log,
                               stderr=log)
    try:
        deadline = time.monotonic() + 100
        while "listening on" not in (text := Path(log.name).read_text()):
            assert process.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.05)
        assert f"model {NAME}," in text
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", [
    [NAME], ["-hf", NAME + ":Q4_1"], ["-mu", f"https://huggingface.co/{NAME}/resolve/main/smol.Q4_1.gguf"]])
def test_serve_takes_other_names_for_a_model(hub, environment, words):
    hub.add(NAME, {"smol.Q4_1.gguf": MODEL.read_bytes()})
    process = subprocess.Popen([BINARY, "serve", *words, "--port", "0"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert any(f"model {NAME}," in line for line in process.stderr if "listening on" in line)
    finally:
        process.kill()
        process.communicate()


def test_serve_goes_on_with_its_cache_where_the_hub_is_gone(hub, start_server, environment, quire, home):
    hub.add(NAME, folder_files())
    pulled(quire("pull", NAME))
    shutil.rmtree(home / "hub/models--org--tiny/.no_exist")  # so that it cannot know that it has all
    hub.close()
    server = start_server("--model", NAME, environment=environment)
    assert "using the cache, which is complete" in server.read_log()


def test_serve_stops_while_it_fetches(hub, environment, tmp_path):
    hub.add(NAME, {"m.gguf": Content(50_000_000)})
    hub.faults.seconds_per_chunk = 0.2
    log = open(tmp_path / "log", "wb")
    process = subprocess.Popen([BINARY, "serve", "--model", NAME, "--port", "0"], env=environment, stdout=log, stderr=log)
    wait_for_bytes(hub, "m.gguf", 500_000)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert "interrupted; the downloaded part is kept" in Path(log.name).read_text()


@pytest.mark.parametrize("model, words", [
    ("nothing-of-this-name", ("is neither a file or folder here", "ORG/NAME")),
    ("a/b/c", ("is neither a file or folder here",)), ("org/..", ("is neither a file or folder here",)),
    ("org/tiny@a b", ("not a branch",)), ("org/tiny:../x", ("neither a file",)),
    ("./org/tiny", ("No such file",)), ("models/tiny.gguf", ("No such file",)),
])
def test_what_is_neither_a_path_nor_a_name(quire, hub, model, words):
    refused(quire("serve", "--model", model), 78, *words)
    assert hub.requests == []


# --- Offline -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_asks_nothing(hub, quire, variable):
    hub.add(NAME, folder_files())
    refused(quire("pull", NAME, **{variable: "1"}), 78, "not in the cache", variable[:2])
    refused(quire("serve", "--model", NAME, **{variable: "yes"}), 78, "not in the cache")
    assert hub.requests == []
    path = pulled(quire("pull", NAME))
    hub.forget()
    assert pulled(quire("pull", NAME, **{variable: "on"})) == path
    (path / "tokenizer.json").unlink()
    refused(quire("pull", NAME, **{variable: "1"}), 78, "tokenizer.json")
    assert hub.requests == []


# --- Refusals of the hub -----------------------------------------------------------------------------------------------


def test_refusals_of_the_hub(hub, quire):
    hub.add(NAME, {"m.gguf": b"x"})
    hub.gated.add(NAME)
    refused(quire("pull", NAME), 78, "is gated", f"{hub.url}/{NAME}", "HF_TOKEN")
    assert pulled(quire("pull", NAME, HF_TOKEN=TOKEN)).exists()
    refused(quire("pull", NAME, HF_TOKEN="hf_another"), 78, "does not take this token")
    hub.private.add(NAME)
    refused(quire("pull", NAME), 78, "no such model, or it is private")
    refused(quire("pull", "org/missing", HF_TOKEN=TOKEN), 78, "no such model")
    refused(quire("pull", NAME + "@v9", HF_TOKEN=TOKEN), 78, "no revision 'v9'")
    hub.faults.answers = [("resolve", 403, {"X-Error-Code": "GatedRepo"})]
    hub.add(NAME, {"m.gguf": b"y"})
    refused(quire("pull", NAME, HF_TOKEN=TOKEN), 78, "may not read it")


def test_no_hub_at_all(hub, quire, home):
    hub.faults.answers = [("", 404, {})]
    refused(quire("pull", NAME), 78, "is HF_ENDPOINT a hub's?")
    hub.close()
    start = time.monotonic()
    refused(quire("pull", NAME), 69, "127.0.0.1", "onnect")
    print(f"gave up after {time.monotonic() - start:.1f} s")


@pytest.mark.parametrize("listing", [
    b"", b"{}", b"not JSON", b'{"sha": "x", "siblings": []}', b'{"siblings": [' * 99,
    json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": "../../m.gguf"}]}).encode(),
    json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": "/etc/m.gguf"}]}).encode(),
    json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": "a\nm.gguf"}]}).encode(),
    json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": f"{i}.gguf"} for i in range(20001)]}).encode(),
    json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": "m.gguf", "size": -1}]}).encode(),
    json.dumps({"sha": "0" * 40, "siblings": [], "more": "x" * (17 << 20)}).encode(),
])
def test_a_list_of_files_that_makes_no_sense(hub, quire, home, listing):
    hub.add(NAME, {"m.gguf": b"x"})
    hub.faults.listing = listing
    refused(quire("pull", NAME), 69, "list of files")
    assert not home.exists()


# --- The token ---------------------------------------------------------------------------------------------------------


def test_the_token_stays_with_the_hub(hub, quire, home, tmp_path):
    """The fixture looks for leaks: large files are on another host."""
    hub.private.add(NAME)
    hub.add(NAME, {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": Content(100_000)})
    pulled(quire("pull", NAME, HF_TOKEN=TOKEN))
    assert [host for host, _, _ in hub.requests].count("store") == 1
    shutil.rmtree(home)
    home.mkdir()
    (home / "token").write_text(f"\n {TOKEN} \r\n")
    pulled(quire("pull", NAME))
    shutil.rmtree(home)
    (tmp_path / "mine").write_text(TOKEN)
    pulled(quire("pull", NAME, HF_TOKEN_PATH=str(tmp_path / "mine")))
    shutil.rmtree(home)
    refused(quire("pull", NAME, HF_TOKEN=TOKEN, HF_HUB_DISABLE_IMPLICIT_TOKEN="1"), 78, "private")
    refused(quire("pull", NAME, HF_TOKEN="two words"), 78, "HF_TOKEN", "not a token")


def test_another_port_of_the_same_host_gets_no_token(hub, quire):
    hub.add(NAME, {"m.gguf": b"content"})
    hub.faults.redirect = f"http://127.0.0.2:{hub.store.server_port}/blob/{Bytes(b'content').sha256}"
    with Hub() as other:
        other.add("a/b", {"m.gguf": b"content"})
        seen = []
        other.store.RequestHandlerClass = type("Seen", (other.store.RequestHandlerClass,), {
            "respond": lambda self: (seen.append(self.headers.get("Authorization")), super(type(self), self).respond())})
        hub.faults.redirect = f"{other.store_url}/blob/{Bytes(b'content').sha256}"
        pulled(quire("pull", NAME, HF_TOKEN=TOKEN))
        assert seen == [None]


@pytest.mark.parametrize("redirect, words", [
    ("file:///etc/passwd", "http"), ("ftp://127.0.0.2/x", "http"), ("http://user:word@127.0.0.2/x", "http"),
    ("gopher://127.0.0.2/x", "http"),
])
def test_redirects_that_are_refused(hub, quire, redirect, words):
    hub.add(NAME, {"m.gguf": b"content"})
    hub.faults.redirect = redirect
    refused(quire("pull", NAME, HF_TOKEN=TOKEN), 69, words)


def test_tls_and_a_redirect_out_of_it(quire, tmp_path):
    """The system knows nothing of this certificate; the store speaks no TLS."""
    certificate = tmp_path / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"],
                   check=True, capture_output=True)
    certificate.write_bytes((tmp_path / "certificate").read_bytes() + (tmp_path / "key").read_bytes())
    with Hub(token=TOKEN, certificate=certificate) as hub:
        hub.add(NAME, {"m.gguf": b"large"})
        trusted = {"HF_ENDPOINT": hub.url, "SSL_CERT_FILE": str(tmp_path / "certificate"), "HF_TOKEN": TOKEN}
        refused(quire("pull", NAME, HF_ENDPOINT=hub.url), 69, "certificate", "ca-certificates", "SSL_CERT_FILE")
        assert hub.requests == []
        refused(quire("pull", NAME, **trusted), 69, "from https to http")
        assert [host for host, _, _ in hub.requests].count("store") == 0
        refused(quire("pull", NAME, **{**trusted, "SSL_CERT_FILE": "/missing"}), 78, "SSL_CERT_FILE")


def test_redirects_without_end(hub, quire):
    hub.add(NAME, {"m.gguf": b"content"})
    hub.faults.redirect = "?again"
    refused(quire("pull", NAME, HF_TOKEN=TOKEN), 69, "redirects more than 5 times")


def test_a_repository_that_was_renamed(hub, quire):
    """A redirect on the hub itself is followed, with the token."""
    hub.private.add(NAME)
    hub.add(NAME, {"m.gguf": b"content"})
    hub.faults.answers = [("/api/models/old/tiny", 307, {"Location": f"/api/models/{NAME}/revision/main?blobs=true"}),
                          ("HEAD /old/tiny", 307, {"Location": f"/{NAME}/resolve/main/m.gguf"}),
                          ("GET /old/tiny", 307, {"Location": f"/{NAME}/resolve/main/m.gguf"})]
    assert pulled(quire("pull", "old/tiny", HF_TOKEN=TOKEN)).read_bytes() == b"content"


def test_the_command_line_has_no_token(hub, environment, tmp_path):
    hub.private.add(NAME)
    hub.add(NAME, {"m.gguf": Content(50_000_000)})
    hub.faults.seconds_per_chunk = 0.1
    process = subprocess.Popen([BINARY, "pull", NAME], env={**environment, "HF_TOKEN": TOKEN}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    wait_for_bytes(hub, "m.gguf", 300_000)
    assert TOKEN.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    process.kill()
    assert TOKEN.encode() not in process.communicate()[0]


# --- The environment ---------------------------------------------------------------------------------------------------


def test_where_the_cache_is(hub, quire, tmp_path, home):
    commit = hub.add(NAME, {"m.gguf": b"x"})
    tail = Path("models--org--tiny/snapshots") / commit / "m.gguf"
    for variables, root in (
            ({}, home / "hub"), ({"HF_HUB_CACHE": f"{tmp_path}/a"}, tmp_path / "a"),
            ({"HUGGINGFACE_HUB_CACHE": f"{tmp_path}/b"}, tmp_path / "b"),
            ({"HF_HOME": "", "XDG_CACHE_HOME": f"{tmp_path}/c"}, tmp_path / "c/huggingface/hub"),
            ({"HF_HOME": "", "XDG_CACHE_HOME": "", "HOME": f"{tmp_path}/d"}, tmp_path / "d/.cache/huggingface/hub"),
            ({"HF_HUB_CACHE": "$WHERE/${WHAT}", "WHERE": f"{tmp_path}/e", "WHAT": "x"}, tmp_path / "e/x")):
        assert pulled(quire("pull", NAME, **variables)) == root / tail


@pytest.mark.parametrize("variables, words", [
    ({"HF_ENDPOINT": "ftp://host"}, "HF_ENDPOINT"), ({"HF_ENDPOINT": "https://u:p@host"}, "HF_ENDPOINT"),
    ({"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}, "HF_HUB_DOWNLOAD_TIMEOUT"), ({"HF_HUB_CACHE": "/x" * 3000}, "HF_HUB_CACHE"),
])
def test_variables_that_make_no_sense(quire, variables, words):
    refused(quire("pull", NAME, **variables), 78, words)


# --- What is said ------------------------------------------------------------------------------------------------------


def test_help(quire):
    for command in ("pull", "list"):
        done = quire(command, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"usage: quire {command}")
        assert f"quire {command}" in quire("--help").stdout
    assert quire("pull").returncode == 64


def test_progress_without_a_terminal(hub, quire):
    hub.add(NAME, {"m.gguf": Content(10_000_000)})
    hub.faults.seconds_per_chunk = 0.15
    log = quire("pull", NAME).stderr
    lines = [line for line in log.splitlines() if " % of " in line]
    assert len(lines) >= 1 and all("MiB" in line and "/s, " in line and "left" in line for line in lines), log
    assert "\x1b" not in log


def test_progress_on_a_terminal(hub, environment):
    hub.add(NAME, {"m.gguf": Content(10_000_000)})
    hub.faults.seconds_per_chunk = 0.04
    ours, theirs = os.openpty()
    process = subprocess.Popen([BINARY, "pull", NAME], env=environment, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 4096):
            text += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    assert text.count(b" % of 9.5 MiB, ") >= 3 and text.count(b"\n") == 2, text
