"""A store of KV blocks in files, and blocks that the host keeps: what they give back is what was computed, whatever
happens to the files and the processes. Nobody can see it from the answers."""

import hashlib
import os
import random
import re
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire_server import BINARY, MODEL, NAME, QuireServer
from test_cuda_sim import MODULE, SMALL as SMALL_GPU, simulated
from test_load import complete, gather, seeded
from test_rank_process import await_other, rank_process
from test_swap import beams, choices

TEXT = " ".join(f"Item {i} of the list is number {i * 7919 % 1000}." for i in range(120))  # some 1,690 tokens
SMALL = ("--max-model-len", 2560, "--kv-cache-memory-bytes", "64M")  # holds one text
HANG_DISK = BINARY.parents[1] / "tests/faults/libhang_disk.so"
TIGHT = ("--max-model-len", 640, "--kv-cache-memory-bytes", "16M")  # 700 tokens


def ask(server, text=TEXT, headers=None, **fields):
    body = {"model": NAME, "prompt": text, "max_tokens": 16, "temperature": 0, **fields}
    answer = server.post("/v1/completions", body, headers=headers or {}).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def store_of(folder, size="512M"):
    return "--kv-store", folder, "--kv-store-bytes", size


def files_of(folder):
    return folder / NAME


def tiers(server, name, headers=None):
    """Tier -> value."""
    families = text_string_to_metric_families(httpx.get(server.url + "/metrics", headers=headers).text)
    return {sample.labels["tier"]: sample.value for family in families for sample in family.samples
            if sample.name.split(":", 1)[-1] == name}


def await_stored(server, count=105, headers=None, name="kv_tier_stored_total"):
    """Until the server has written so many blocks."""
    deadline = time.monotonic() + 60
    while tiers(server, name, headers)["store"] < count:
        assert time.monotonic() < deadline, tiers(server, name, headers)
        time.sleep(0.02)


def await_log(server, text):
    deadline = time.monotonic() + 60
    while text not in server.read_log():
        assert time.monotonic() < deadline, server.read_log()
        time.sleep(0.02)


def bytes_of_token(server):
    return int(re.search(r"tokens in \w+, (\d+) bytes each", server.read_log())[1])


def why_refused(start_server, *options):
    with pytest.raises(RuntimeError) as raised:
        start_server(*options)
    assert "exit status 78" in str(raised.value)
    return str(raised.value)


@pytest.fixture(scope="module")
def expected(shared_server):
    return ask(shared_server)[0]


@pytest.fixture(scope="module")
def stored(tmp_path_factory, expected):
    """A folder whose store has the text, left by a process that was killed."""
    folder = tmp_path_factory.mktemp("stored")
    server = QuireServer(folder / "server.log", *store_of(folder / "kv"))
    assert ask(server) == (expected, 0)
    await_stored(server)
    server.kill()
    return folder / "kv"


@pytest.fixture
def folder(stored, tmp_path):
    """A copy of it."""
    subprocess.run(["cp", "-a", "--sparse=always", stored, tmp_path / "kv"], check=True)
    return tmp_path / "kv"


@pytest.mark.parametrize("options", [(), ("--rank-process", "on"), pytest.param(("--no-async-scheduling",), marks=pytest.mark.variant),
                                     SMALL])
def test_found_again_after_a_kill(start_server, expected, folder, options):
    server = start_server(*store_of(folder), *options)
    text, cached = ask(server)
    assert text == expected and cached > 1500
    assert tiers(server, "kv_tier_hits_total")["store"] >= 100
    assert ask(server)[0] == expected
    assert server.terminate() == 0


def test_files_are_for_their_owner_alone(start_server, folder):
    start_server(*store_of(folder))
    files = files_of(folder)
    assert stat.S_IMODE(files.stat().st_mode) == 0o700
    assert {stat.S_IMODE((files / name).stat().st_mode) for name in ("secret", "records", "slots", "lock")} == {0o600}


@pytest.mark.parametrize("tier", [("--kv-host-bytes", "96M"), ("--kv-host-bytes", "6M"), None])
def test_what_the_pool_loses_comes_back(start_server, tmp_path, tier):
    """With 6 MiB nothing does: what comes next has taken its place."""
    server = start_server(*TIGHT, *(tier or store_of(tmp_path / "kv")))
    texts = [f"{i}: {TEXT[:1300]}" for i in range(4)]
    first = [ask(server, text)[0] for text in texts]
    again = [ask(server, text) for text in texts]
    assert [text for text, _ in again] == first
    metrics = server.wait_idle()
    assert metrics["kv_blocks_used"] == 0 and tiers(server, "kv_tier_stored_total")["host"] > 0
    if tier != ("--kv-host-bytes", "6M"):
        assert tiers(server, "kv_tier_hits_total")["host"] > 0 and all(cached > 200 for _, cached in again)


@pytest.mark.parametrize("tier, options", [
    pytest.param(("--kv-host-bytes", "8M"), (), marks=pytest.mark.variant), (("--kv-host-bytes", "128M"), ()), (None, ()),
    pytest.param(None, ("--kv-cache-dtype", "int8"), marks=pytest.mark.variant),
    pytest.param(None, ("--tensor-parallel-size", 2, "--threads", 2), marks=pytest.mark.variant),
    pytest.param(None, ("--rank-process", "on"), marks=pytest.mark.variant)])
def test_a_mixed_load_in_a_tight_pool(start_server, tmp_path, tier, options):
    """Answers are those without tiers: alone, with choices and beams, swapped out, and found again."""
    def load(client):
        return [seeded(client, i) for i in range(8)] + [choices(client, i) for i in range(4)] + [
            beams(client, i) for i in range(2)] + [
            complete(client, f"{i}: {TEXT[:450]}", max_tokens=20, temperature=1, seed=i) for i in range(16)]
    tight = ("--max-model-len", 256, "--kv-cache-memory-bytes", "12M", "--swap-space", "0.02", *options)
    plain = start_server(*tight)
    reference = gather(plain, load)
    plain.kill()
    server = start_server(*tight, *(tier or store_of(tmp_path / "kv")))
    for _ in range(2):
        assert gather(server, load) == reference
    metrics = server.wait_idle()
    assert tiers(server, "kv_tier_stored_total")["host"] > 0 and metrics["kv_blocks_used"] == 0
    if tier != ("--kv-host-bytes", "8M"):
        assert tiers(server, "kv_tier_hits_total")["host"] > 0


def test_killed_at_any_moment(start_server, tmp_path, expected, request):
    """The store of whoever was killed has right blocks or none."""
    count = 30 if request.config.getoption("-m") != "not variant" else 4
    for i in range(count):
        server = start_server(*store_of(tmp_path / "kv", "64M"), *SMALL)
        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(ask, server, text) for text in (TEXT, f"{i}: {TEXT[:3000]}")]
            server.wait_for(lambda m: m["engine_steps_total"] >= 2 + random.random() * 8)
            server.kill()
            for answer in answers:
                answer.exception()
    server = start_server(*store_of(tmp_path / "kv", "64M"))
    assert ask(server)[0] == expected


def flip(data, number):
    position = number.randrange(len(data))
    data[position] ^= 1 << number.randrange(8)


@pytest.mark.parametrize("file", ["slots", "records"])
def test_flipped_bits(start_server, expected, folder, file):
    path, number = files_of(folder) / file, random.Random(7)
    used = 45 << 20 if file == "slots" else 30000
    with open(path, "r+b") as opened:
        data = bytearray(opened.read(used))
        for _ in range(500):
            flip(data, number)
        opened.seek(0)
        opened.write(data)
    server = start_server(*store_of(folder))
    assert ask(server)[0] == expected
    assert ask(server)[0] == expected
    assert server.terminate() == 0


@pytest.mark.parametrize("file, size", [("slots", 0), ("slots", 5_000_001), ("records", 4000), ("records", 9001), ("secret", 100)])
def test_truncated_files(start_server, expected, folder, file, size):
    os.truncate(files_of(folder) / file, size)
    server = start_server(*store_of(folder))
    assert ask(server)[0] == expected
    assert ask(server)[1] > 1500


def test_two_servers_on_one_store(start_server, expected, folder):
    owner = start_server(*store_of(folder))
    other = start_server(*store_of(folder))
    reader = start_server(*store_of(folder), "--kv-store-mode", "read-only")
    for server in (owner, other, reader):
        text, cached = ask(server)
        assert text == expected and cached > 1500
    text = f"New. {TEXT}"
    assert ask(owner, text)[1] == 0
    await_stored(owner)
    assert ask(other, text)[0] == ask(reader, text)[0]
    assert tiers(reader, "kv_tier_stored_total")["store"] == 0
    owner.kill()
    assert ask(other, text)[0] == ask(reader, text)[0]


def test_servers_that_start_together(start_server, tmp_path):
    """One makes the files; the others wait for them."""
    with ThreadPoolExecutor(3) as pool:
        servers = list(pool.map(lambda _: start_server(*store_of(tmp_path / "kv", "64M")), range(3)))
    assert all("it is not used" not in server.read_log() for server in servers)


def shared(folder, size="512M"):
    return *store_of(folder, size), "--kv-store-mode", "shared"


def blocks_of(folder):
    return [path for path in files_of(folder).glob("??/*-*-*-*")]


def test_servers_share_a_folder(start_server, expected, tmp_path):
    """As on several machines: each finds what the others have computed, which stays when they end."""
    first, second = (start_server(*shared(tmp_path / "kv")) for _ in range(2))
    assert ask(first) == (expected, 0)
    await_stored(first)
    text = f"New. {TEXT}"
    answer, cached = ask(second, text)
    assert cached == 0
    await_stored(second)
    for server, prompt, right in ((second, TEXT, expected), (first, text, answer)):
        await_stored(server, 210, name="kv_tier_blocks")  # it has listed the folder
        found, cached = ask(server, prompt)
        assert found == right and cached > 1500
    first.kill()
    assert second.terminate() == 0
    assert len(blocks_of(tmp_path / "kv")) >= 210 and not list(files_of(tmp_path / "kv").glob("??/new-*"))
    third = start_server(*store_of(tmp_path / "kv"), "--kv-store-mode", "shared-read-only")
    for prompt, right in ((TEXT, expected), (text, answer)):
        found, cached = ask(third, prompt)
        assert found == right and cached > 1500
    assert tiers(third, "kv_tier_stored_total")["store"] == 0


def test_models_share_a_folder(start_server, expected, tmp_path):
    """Two types of the cache under one name: each finds only its own."""
    servers = [start_server(*shared(tmp_path / "kv"), *options) for options in ((), ("--kv-cache-dtype", "int8"))]
    answers = [ask(server) for server in servers]
    assert answers[0] == (expected, 0) and answers[1][1] == 0
    for server in servers:
        await_stored(server)
        server.kill()
    for options, (answer, _) in zip(((), ("--kv-cache-dtype", "int8")), answers):
        text, cached = ask(start_server(*shared(tmp_path / "kv"), *options))
        assert text == answer and cached > 1500


def test_a_shared_folder_keeps_its_size(start_server, expected, tmp_path):
    """Two servers, each with texts that alone do not fit, and one that is killed while it writes."""
    servers = [start_server(*shared(tmp_path / "kv", "48M"), *SMALL) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(ask, server, f"{i}{j}: {TEXT}") for j in range(3) for i, server in enumerate(servers)]
        servers[2].wait_for(lambda m: m["engine_steps_total"] >= 4)
        servers[2].kill()
        for answer in answers:
            answer.exception()
    for server in servers[:2]:
        assert server.terminate() == 0
    server = start_server(*shared(tmp_path / "kv", "48M"))
    assert sum(path.stat().st_size for path in blocks_of(tmp_path / "kv")) <= 48 << 20
    assert ask(server)[0] == expected and ask(server, f"11: {TEXT}")[0]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damaged_files_of_a_shared_folder(start_server, expected, tmp_path, damage):
    number, server = random.Random(7), start_server(*shared(tmp_path / "kv"))
    ask(server)
    await_stored(server)
    for path in blocks_of(tmp_path / "kv")[::3]:  # while the server is running
        if damage == "remove":
            path.unlink()
        elif damage == "truncate":
            os.truncate(path, 10000)
        else:
            data = bytearray(path.read_bytes())
            flip(data, number)
            path.write_bytes(data)
    other = start_server(*shared(tmp_path / "kv"))
    assert ask(other)[0] == expected and ask(other)[1] > 1500
    assert server.terminate() == 0 and other.terminate() == 0


def test_another_model_is_not_found(start_server, expected, folder):
    """Nor another type of the cache, under the same name; the store begins anew for it."""
    server = start_server(*store_of(folder), "--kv-cache-dtype", "int8")
    assert ask(server)[1] == 0
    assert "begins anew" in server.read_log()
    server.kill()
    server = start_server(*store_of(folder))
    assert ask(server) == (expected, 0)


def test_an_owner_of_something_else_is_left_alone(start_server, expected, folder):
    owner = start_server(*store_of(folder))
    other = start_server(*store_of(folder), "--kv-cache-dtype", "int8")
    assert "it is not used" in other.read_log()
    assert ask(other)[1] == 0 and ask(owner)[0] == expected


def test_forgotten_at_each_start(start_server, expected, folder):
    server = start_server(*store_of(folder), "--kv-store-mode", "forget")
    assert ask(server) == (expected, 0)
    await_stored(server)
    server.kill()
    server = start_server(*store_of(folder), "--kv-store-mode", "forget")
    assert ask(server) == (expected, 0)


def test_encrypted(start_server, expected, tmp_path):
    key, wrong = tmp_path / "key", tmp_path / "wrong"
    key.write_bytes(bytes(range(32)))
    wrong.write_text("ab" * 32 + "\n")
    key.chmod(0o600)
    wrong.chmod(0o600)
    options = *store_of(tmp_path / "kv"), "--kv-store-key-file"
    server = start_server(*options, key)
    assert ask(server) == (expected, 0)
    await_stored(server)
    server.kill()
    server = start_server(*options, key)
    text, cached = ask(server)
    assert text == expected and cached > 1500
    server.kill()
    for given, why in ((wrong, "does not fit"), (None, "needs its key file")):
        assert why in why_refused(start_server, *(options if given else options[:-1]), *([given] if given else []))


def test_a_key_finds_only_its_own(start_server, expected, tmp_path):
    keys = tmp_path / "keys"
    options = *store_of(tmp_path / "kv"), "--api-key-file", keys
    keys.write_text("alpha\nbeta\n")
    keys.chmod(0o600)
    alpha, beta = ({"Authorization": f"Bearer {name}"} for name in ("alpha", "beta"))
    server = start_server(*options)
    assert ask(server, headers=alpha) == (expected, 0)
    assert ask(server, headers=beta) == (expected, 0)
    await_stored(server, 210, alpha)
    server.kill()
    keys.write_text("gamma\nbeta\nalpha\n")  # other numbers
    server = start_server(*options)
    gamma = {"Authorization": "Bearer gamma"}
    assert ask(server, headers=gamma) == (expected, 0)
    text, cached = ask(server, headers=alpha)
    assert text == expected and cached > 1500
    assert ask(server, headers=alpha, cache_salt="x") == (expected, 0)


def test_a_copy_with_another_secret_has_nothing(start_server, expected, folder):
    (files_of(folder) / "secret").write_bytes(os.urandom(192))
    server = start_server(*store_of(folder))
    assert ask(server) == (expected, 0)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_has_a_folder_too(start_server, tmp_path, name):
    start_server("--model", MODEL, "--served-model-name", name, *store_of(tmp_path / "kv", "64M"), has_model=True)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["kv"]
    assert [path.name for path in (tmp_path / "kv").iterdir()] == ["_" + name[1:]]


def test_a_reader_makes_no_folder(start_server, tmp_path):
    server = start_server(*store_of(tmp_path / "kv"), "--kv-store-mode", "read-only")
    assert "it is not used" in server.read_log()
    assert not (tmp_path / "kv").exists()


def test_reset(start_server, expected, folder):
    server = start_server(*store_of(folder), "--enable-admin")
    assert ask(server)[1] > 1500
    assert httpx.post(server.url + "/reset_prefix_cache").status_code == 200
    assert ask(server)[1] > 1500
    assert httpx.post(server.url + "/reset_prefix_cache?reset_external=true").status_code == 200
    assert ask(server) == (expected, 0)


def test_sleep_keeps_the_store(start_server, expected, tmp_path):
    server = start_server(*store_of(tmp_path / "kv"), "--enable-admin")
    assert ask(server) == (expected, 0)
    for level in (1, 2):
        assert httpx.post(f"{server.url}/sleep?level={level}", timeout=60).status_code == 200
        assert httpx.post(server.url + "/wake_up", timeout=60).status_code == 200
        text, cached = ask(server)
        assert text == expected and cached > 1500


def shared_bytes(server):
    """Of the host pools that the server and its rank process share."""
    total = 0
    for path in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a connection that ends
            total += os.stat(path).st_blocks * 512 if "kv host pools" in os.readlink(path) else 0
    return total


def test_sleep_gives_shared_memory_back(start_server, expected, tmp_path):
    server = start_server(*store_of(tmp_path / "kv"), "--rank-process", "on", "--enable-admin")
    assert ask(server) == (expected, 0)
    await_stored(server)
    assert shared_bytes(server) > 1 << 20
    assert httpx.post(f"{server.url}/sleep?level=1", timeout=60).status_code == 200
    assert shared_bytes(server) == 0
    assert httpx.post(server.url + "/wake_up", timeout=60).status_code == 200
    text, cached = ask(server)
    assert text == expected and cached > 1500


def test_a_crash_of_the_ranks_finds_the_store(start_server, expected, tmp_path):
    server = start_server(*store_of(tmp_path / "kv"), "--rank-process", "on")
    assert ask(server) == (expected, 0)
    await_stored(server)
    pid = rank_process(server)
    os.kill(pid, 9)
    await_other(server, pid)
    text, cached = ask(server)
    assert text == expected and cached > 1500


@pytest.fixture
def disk(tmp_path):
    """Sets how many milliseconds each read or write of a block takes."""
    def slow(kind, ms):
        path = tmp_path / f"disk.{kind}"
        path.with_suffix(".new").write_text(str(ms))
        path.with_suffix(".new").rename(path)
    assert HANG_DISK.exists()
    slow.environment = {"LD_PRELOAD": str(HANG_DISK), "HANG_DISK_FILE": str(tmp_path / "disk"), "HANG_DISK_FOLDER": str(tmp_path / "kv")}
    return slow


NEVER = 10**9  # milliseconds


@pytest.fixture
def shared_folder(start_server, expected, tmp_path):
    server = start_server(*shared(tmp_path / "kv"))
    assert ask(server) == (expected, 0)
    await_stored(server)
    server.kill()
    return tmp_path / "kv"


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_file_server_that_hangs(start_server, expected, shared_folder, disk, kind):
    server = start_server(*shared(shared_folder), environment=disk.environment)
    disk(kind, NEVER)
    assert ask(server)[0] == expected
    assert ask(server, f"New. {TEXT}")[1] < 100
    await_log(server, "does not answer")
    assert ask(server)[0] == expected
    assert server.terminate() == 0


def test_sleep_does_not_wait_for_slow_reads(start_server, expected, folder, disk):
    """What nobody awaits any more is not read to its end: of some 105 blocks, each of which takes long."""
    server = start_server(*store_of(folder), "--enable-admin", environment=disk.environment)
    disk("read", 3000)
    assert ask(server)[0] == expected  # given up, and computed
    before = tiers(server, "kv_tier_hits_total")["store"]
    assert httpx.post(f"{server.url}/sleep?level=1", timeout=60).status_code == 200
    assert tiers(server, "kv_tier_hits_total")["store"] - before < 5
    assert httpx.post(server.url + "/wake_up", timeout=60).status_code == 200
    assert ask(server)[0] == expected


def test_a_disk_that_was_slow_is_used_again(start_server, folder, disk):
    server = start_server(*store_of(folder), "--enable-admin", environment=disk.environment)
    disk("read", 500)
    text = TEXT[:1300]
    expected = ask(server, text)[0]
    server.wait_idle()
    disk("read", 0)
    deadline = time.monotonic() + 60
    while True:
        assert httpx.post(server.url + "/reset_prefix_cache").status_code == 200
        answer, cached = ask(server, text)
        assert answer == expected and time.monotonic() < deadline
        if cached > 200:
            break


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_disk_that_hangs(start_server, expected, folder, disk, kind):
    """Requests, sleep and the stop go on without it."""
    server = start_server(*store_of(folder), "--enable-admin", environment=disk.environment)
    disk(kind, NEVER)
    assert ask(server)[0] == expected
    assert ask(server, f"New. {TEXT}")[1] < 100
    await_log(server, "does not answer")
    assert httpx.post(f"{server.url}/sleep?level=1", timeout=60).status_code == 200
    assert httpx.post(server.url + "/wake_up", timeout=60).status_code == 200
    text, cached = ask(server)
    assert text == expected and (cached > 1500 or kind == "read")
    assert server.terminate() == 0


@pytest.mark.parametrize("kind", ["read", "write"])
def test_ranks_start_again_while_a_disk_hangs(start_server, expected, folder, disk, kind):
    server = start_server(*store_of(folder), "--rank-process", "on", environment=disk.environment)
    disk(kind, NEVER)
    assert ask(server)[0] == expected
    assert ask(server, f"New. {TEXT}")[1] < 100
    pid = rank_process(server)
    os.kill(pid, 9)
    await_other(server, pid)
    assert ask(server)[0] == expected
    disk(kind, 0)
    stored = tiers(server, "kv_tier_stored_total")["store"]
    ask(server, f"Newer. {TEXT}")
    if kind == "write":
        await_stored(server, stored + 50)
    assert server.terminate() == 0


@pytest.mark.parametrize("options, what", [
    (("--kv-store-key-file", "/dev/null"), "kv-store-key-file: is for kv-store"),
    (("--kv-host-bytes", "64M", "--no-enable-prefix-caching"), "kv-host-bytes: needs enable-prefix-caching"),
    (("--kv-store", "/proc/none", "--record", "/tmp/none"), "kv-store: cannot be combined with record"),
    (("--kv-store", "/proc/none"), "kv-store: cannot make"),
    (("--kv-host-bytes", "1K"), "--kv-host-bytes")])
def test_refused(start_server, options, what):
    assert what in why_refused(start_server, *options)


@pytest.mark.skipif(not MODULE.exists(), reason="the simulated device is not built")
@pytest.mark.parametrize("options", [("--rank-process", "on"), pytest.param(("--rank-process", "off"), marks=pytest.mark.variant),
                                     pytest.param(("--rank-process", "on", "--enforce-eager"), marks=pytest.mark.variant)])
def test_tiers_of_a_gpu(start_server, tmp_path, options):
    """The simulated one: 10 blocks, whose content goes to the host and to files, with two steps in flight."""
    gpu = ("--device", "cuda-sim", "--batch-invariant", *SMALL_GPU, *options)
    prompts = [f"{i} " * 30 for i in range(5)]
    plain = start_server(*gpu, environment=simulated())
    expected = [ask(plain, prompt)[0] for prompt in prompts]
    pool = ("--kv-cache-memory-bytes", 10 * int(plain.metrics()["kv_block_size"]) * bytes_of_token(plain))
    plain.kill()
    tiers_of = (*gpu, *pool, "--kv-host-bytes", "1M", *store_of(tmp_path / "kv", "4M"))
    server = start_server(*tiers_of, environment=simulated())
    for _ in range(2):
        assert [ask(server, prompt)[0] for prompt in prompts] == expected
    assert tiers(server, "kv_tier_hits_total")["host"] > 0
    await_stored(server, 15)
    server.kill()
    server = start_server(*tiers_of, environment=simulated())
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda prompt: ask(server, prompt), prompts))
    assert [text for text, _ in answers] == expected and sum(cached for _, cached in answers) > 100
    assert tiers(server, "kv_tier_hits_total")["store"] > 0


def act(server, slot, action, name=None, status=200, headers=None):
    answer = server.post(f"/slots/{slot}?action={action}", {"filename": name} if name else {}, headers=headers or {})
    assert answer.status_code == status, answer.text
    return answer.json()


SLOTS = ("--enable-admin", "--max-num-seqs", 4)


@pytest.mark.parametrize("options", [(), ("--rank-process", "on"), pytest.param(("--kv-cache-dtype", "int8"), marks=pytest.mark.variant),
                                     pytest.param(("--tensor-parallel-size", 2, "--threads", 2), marks=pytest.mark.variant)])
def test_a_saved_conversation_is_restored(start_server, tmp_path, options):
    """Among others that fill the store, and after a kill; its continuation is what it would have been."""
    options = (*SMALL, *SLOTS, *store_of(tmp_path / "kv", "256M"), *options)
    server = start_server(*options)
    text, _ = ask(server, id_slot=2)
    more = TEXT + text + " And then"
    following = ask(server, more)[0]
    saved = act(server, 2, "save", "talk.bin")
    assert saved["id_slot"] == 2 and saved["filename"] == "talk.bin" and saved["n_saved"] > 1600
    assert saved["n_written"] > 1600 * 10_000 and saved["timings"]["save_ms"] > 0
    for i in range(7):  # more than the store has room for
        ask(server, f"{i}{TEXT}", max_tokens=1)
    await_stored(server, 750)
    server.kill()
    server = start_server(*options)
    restored = act(server, 1, "restore", "talk.bin")
    assert restored["id_slot"] == 1 and restored["n_restored"] == saved["n_saved"]
    assert restored["n_read"] > 0.9 * saved["n_written"]
    again, cached = ask(server, more)
    assert again == following and cached > 1600
    assert act(server, 1, "save", "copy")["n_saved"] == saved["n_saved"]
    assert act(server, 1, "erase") == {"id_slot": 1, "n_erased": saved["n_saved"]}
    assert act(server, 1, "save", "copy", status=400)["error"]["code"] == "slot_empty"
    assert act(server, 1, "erase", "talk.bin") == {"id_slot": 1, "filename": "talk.bin"}
    assert act(server, 1, "restore", "talk.bin", status=404)["error"]["param"] == "filename"
    assert act(server, 1, "restore", "copy")["n_restored"] == saved["n_saved"]


def test_a_slot_has_prompt_and_answer_of_any_endpoint(start_server, tmp_path):
    server = start_server(*SLOTS, *store_of(tmp_path / "kv"))
    def tokens(slot):
        return act(server, slot, "save", "a")["n_saved"]
    usage = server.post("/v1/completions", {"model": NAME, "prompt": "One two three", "max_tokens": 7, "ignore_eos": True, "n": 2,
                                            "id_slot": 0}).json()["usage"]
    assert tokens(0) == usage["prompt_tokens"] + 7
    usage = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "id_slot": 3,
                                                 "ignore_eos": True}).json()["usage"]
    assert tokens(3) == usage["total_tokens"]
    with httpx.stream("POST", server.url + "/completion", json={"prompt": "One two", "n_predict": 9, "ignore_eos": True, "stream": True,
                                                                "id_slot": 0}) as stream:
        stream.read()
    assert tokens(0) == 2 + 9
    server.post("/v1/completions", {"model": NAME, "prompt": "Nobody's", "max_tokens": 3, "id_slot": -1})
    assert tokens(0) == 2 + 9
    refused = server.post("/v1/completions", {"model": NAME, "prompt": "x", "id_slot": 4})
    assert refused.status_code == 400 and "id_slot is 4: -1 to 3 are allowed" in refused.text


@pytest.mark.parametrize("slot, action, name, status, part", [
    (4, "save", "a", 400, "0 to 3 are allowed"), ("x", "save", "a", 400, "0 to 3 are allowed"), (0, "drop", "a", 400, "save, restore or erase"),
    (0, "save", None, 400, "filename is missing"), (0, "save", "../a", 400, "are allowed"), (0, "save", "a" * 129, 400, "are allowed"),
    (0, "save", "a", 400, "has no conversation"), (0, "restore", "nothing", 404, "nothing was saved")])
def test_wrong_actions_on_slots(slots_server, slot, action, name, status, part):
    assert part in act(slots_server, slot, action, name, status=status)["error"]["message"]


@pytest.fixture(scope="module")
def slots_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slots")
    server = QuireServer(folder / "server.log", *SLOTS, *store_of(folder / "kv"))
    yield server
    server.kill()


def test_slots_are_for_administrators_with_a_store(start_server, tmp_path):
    server = start_server("--enable-admin")
    assert act(server, 0, "save", "a", status=501)["error"]["message"].endswith("--kv-store")
    server = start_server(*store_of(tmp_path / "kv"))
    assert server.post("/slots/0?action=save", {"filename": "a"}).status_code in (403, 404)


def test_a_conversation_belongs_to_its_key(start_server, tmp_path):
    """An administrator saves and restores it; only the key that had it finds it afterwards."""
    keys = tmp_path / "keys.yaml"
    tokens = {name: name * 8 for name in ("root", "one", "two")}
    lines = [f"- {{name: {name}, hash: 'sha256:{hashlib.sha256(token.encode()).hexdigest()}', admin: {str(name == 'root').lower()}}}"
             for name, token in tokens.items()]
    keys.write_text("\n".join(["keys:", *lines, ""]))
    keys.chmod(0o600)
    root, one, two = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
    options = (*SLOTS, *store_of(tmp_path / "kv"), "--api-key-file", keys)
    server = start_server(*options)
    text, cached = ask(server, headers=one, id_slot=0, cache_salt="s")
    assert cached == 0
    assert server.post("/slots/0?action=save", {"filename": "a"}, headers=one).status_code == 403
    assert act(server, 0, "save", "a", headers=root)["n_saved"] > 1600
    await_stored(server, headers=root)
    server.kill()
    server = start_server(*options)
    assert act(server, 0, "restore", "a", headers=root)["n_read"] > 0
    assert ask(server, headers=root, cache_salt="s") == (text, 0) and ask(server, headers=two, cache_salt="s") == (text, 0)
    again, cached = ask(server, headers=one, cache_salt="s")
    assert again == text and cached > 1600 and ask(server, headers=one) == (text, 0)


def test_what_a_waiting_request_needs_is_read_ahead(start_server, expected, folder):
    """While another holds the only slot: when its turn comes, all is in host memory."""
    server = start_server(*store_of(folder), "--max-num-seqs", 1)

    def count_read():
        families = text_string_to_metric_families(httpx.get(server.url + "/metrics").text)
        return sum(sample.value for family in families for sample in family.samples
                   if sample.name.endswith("kv_store_bytes_total") and sample.labels["direction"] == "read")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, server, "One two", max_tokens=700, ignore_eos=True)
        while server.metrics()["num_requests_running"] == 0:
            time.sleep(0.01)
        second = pool.submit(ask, server)
        deadline = time.monotonic() + 60
        while count_read() == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server.metrics()["num_requests_waiting"] == 1 and not first.done()
        text, cached = second.result()
    assert text == expected and cached > 1500
