"""POST /v1/embeddings as the OpenAI SDK and curl see it."""

import asyncio
import base64
import json
import math
import shutil
import struct

import openai
import pytest

from quire_server import NAME, ROOT

TEXTS = ["The cat sat on the mat.", "A feline rested on the rug.", "Stock prices fell sharply on Monday.",
         "Le chat est assis sur le tapis.", "x", "Quires are gatherings of leaves. " * 20,
         "one two three four five", "木を見て森を見ず"]
SIZE = 576


def embed(server, texts, **fields):
    """The bytes of each text's embedding."""
    reply = server.post("/v1/embeddings", {"input": texts, "encoding_format": "base64", **fields})
    assert reply.status_code == 200, reply.text
    return [base64.b64decode(item["embedding"]) for item in reply.json()["data"]]


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


def test_object(server):
    reply = server.post("/v1/embeddings", {"input": TEXTS[0], "model": NAME})
    assert reply.status_code == 200
    body = reply.json()
    assert set(body) == {"object", "data", "model", "usage"}
    assert body["object"] == "list"
    assert body["model"] == NAME
    num_tokens = len(server.tokenize(TEXTS[0]))
    assert body["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    [item] = body["data"]
    assert set(item) == {"object", "index", "embedding"}
    assert item["object"] == "embedding" and item["index"] == 0
    assert len(item["embedding"]) == SIZE and all(type(x) is float for x in item["embedding"])
    assert math.isclose(math.hypot(*item["embedding"]), 1, rel_tol=1e-6)


def test_sdk_asks_for_base64_and_gets_floats(server):
    client = server.client()
    default = client.embeddings.create(model=NAME, input=TEXTS[0])
    plain = client.embeddings.create(model=NAME, input=TEXTS[0], encoding_format="float")
    assert len(default.data[0].embedding) == SIZE
    assert default.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=0, rel=1e-7)
    assert default.usage.prompt_tokens == default.usage.total_tokens > 0
    encoded = client.embeddings.create(model=NAME, input=TEXTS[0], encoding_format="base64")
    assert floats(base64.b64decode(encoded.data[0].embedding)) == default.data[0].embedding


def test_numbers_and_base64_are_the_same_floats(server):
    numbers = server.post("/v1/embeddings", {"input": TEXTS[1]}).json()["data"][0]["embedding"]
    assert struct.pack(f"<{SIZE}f", *numbers) == embed(server, TEXTS[1])[0]


def test_four_forms_of_input(server):
    ids = [server.tokenize(text) for text in TEXTS[:2]]
    one, two = embed(server, TEXTS[:2])
    assert one != two
    assert embed(server, TEXTS[0]) == embed(server, ids[0]) == embed(server, ids[:1]) == [one]
    assert embed(server, ids) == [one, two]
    result = server.client().embeddings.create(model=NAME, input=ids)
    assert [item.index for item in result.data] == [0, 1]
    assert result.usage.prompt_tokens == len(ids[0]) + len(ids[1])


def test_alike_texts_are_near(server):
    for pooling in ("mean", "last"):
        cat, feline, stocks = map(floats, embed(server, TEXTS[:3], pooling=pooling))
        assert cosine(cat, feline) > cosine(cat, stocks)


def test_pooling_and_normalize(server):
    last, mean = embed(server, TEXTS[0], pooling="last")[0], embed(server, TEXTS[0], pooling="mean")[0]
    assert last != mean
    assert embed(server, TEXTS[0]) == [last]
    raw = floats(embed(server, TEXTS[0], normalize=False)[0])
    length = math.hypot(*raw)
    assert length > 2
    assert [x / length for x in raw] == pytest.approx(floats(last), rel=1e-6)


def test_pooling_option(start_server):
    server = start_server("--pooling", "mean")
    assert embed(server, TEXTS[0]) == embed(server, TEXTS[0], pooling="mean")
    assert embed(server, TEXTS[0]) != embed(server, TEXTS[0], pooling="last")


def test_the_same_bytes_alone_in_company_in_chunks_and_preempted(server, start_server):
    for pooling in ("mean", "last"):
        alone = [embed(server, text, pooling=pooling)[0] for text in TEXTS]
        assert embed(server, TEXTS, pooling=pooling) == alone
        assert embed(server, TEXTS[::-1], pooling=pooling) == alone[::-1]
    chunked = start_server("--max-num-seqs", 4, "--max-num-batched-tokens", 7)
    assert embed(chunked, TEXTS, pooling="mean") == embed(server, TEXTS, pooling="mean")
    assert embed(chunked, TEXTS, pooling="last") == alone


def test_preempted(server, start_server):
    """A pool of 17 blocks: a text that is being written takes blocks from the 12 that the input
    behind it needs. Four tokens a step leave it the time to."""
    ids = list(range(1000, 1184))
    expected = [embed(server, [ids], pooling=pooling)[0] for pooling in ("mean", "last")]
    small = start_server("--max-model-len", 256, "--kv-cache-memory-bytes", "6M", "--max-num-seqs", 4,
                         "--max-num-batched-tokens", 4)

    async def run():
        async with small.client(cls=openai.AsyncOpenAI) as client:
            stream = await client.completions.create(model=NAME, prompt=list(range(2000, 2020)), stream=True,
                                                     max_tokens=200, extra_body={"ignore_eos": True})
            await anext(stream)  # it is being written
            results = await asyncio.gather(*(
                client.embeddings.create(model=NAME, input=[ids], encoding_format="base64",
                                         extra_body={"pooling": pooling}) for pooling in ("mean", "last")))
            await stream.close()
            return [base64.b64decode(result.data[0].embedding) for result in results]

    for _ in range(10):
        assert asyncio.run(run()) == expected
        small.wait_idle()
        if small.metrics()["num_preemptions_total"] > 0:
            return
    pytest.fail("nothing was preempted")


def test_async(server):
    async def run():
        async with server.client(cls=openai.AsyncOpenAI) as client:
            return await asyncio.gather(*(client.embeddings.create(model=NAME, input=text)
                                          for text in TEXTS))

    expected = [floats(data) for data in embed(server, TEXTS)]
    assert [result.data[0].embedding for result in asyncio.run(run())] == expected


def test_blocks_are_free_afterwards(server):
    embed(server, TEXTS)
    metrics = server.wait_idle()
    assert metrics["kv_cache_usage_perc"] == 0


REFUSED = [
    ({}, "input", "missing"),
    ({"input": ""}, "input", "empty"),
    ({"input": []}, "input", "empty"),
    ({"input": ["a", ""]}, "input[1]", "empty"),
    ({"input": [[]]}, "input[0]", "empty"),
    ({"input": {"text": "a"}}, "input", "an object"),
    ({"input": [0, 49152]}, "input[1]", "49151"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", '"float" or "base64"'),
    ({"input": "a", "dimensions": 256}, "dimensions", "576"),
    ({"input": "a", "pooling": "cls"}, "pooling", '"last" or "mean"'),
    ({"input": ["a"] * 2049}, "input", "2048"),
]


@pytest.mark.parametrize("body, param, piece", REFUSED)
def test_refused(server, body, param, piece):
    reply = server.post("/v1/embeddings", body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param and piece in error["message"]


def test_errors_through_the_sdk(server):
    client = server.client()
    with pytest.raises(openai.NotFoundError, match="nothing"):
        client.embeddings.create(model="nothing", input="a")
    with pytest.raises(openai.BadRequestError, match="576") as caught:
        client.embeddings.create(model=NAME, input="a", dimensions=2)
    assert caught.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError, match="8192 tokens, but input has 10001 tokens") as caught:
        client.embeddings.create(model=NAME, input="a" + " b" * 10000)
    assert caught.value.code == "context_length_exceeded"
    assert client.embeddings.create(model=NAME, input="a", dimensions=SIZE).data[0].embedding


@pytest.mark.parametrize("fields, taken, not_taken", [
    ({"is_matryoshka": True}, (1, 7, 32), (0, 33)),
    ({"is_matryoshka": True, "matryoshka_dimensions": [16, 8]}, (8, 16, 32), (4, 17, 33)),
    ({}, (32,), (8, 31)),
])
def test_shortened(start_server, tmp_path, fields, taken, not_taken):
    """A model that says so: the first numbers, of length 1."""
    folder = shutil.copytree(ROOT / "tests/golden/families/llama", tmp_path / "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    server = start_server("--model", folder, "--device", "cpu", "--max-model-len", 64, "--kv-cache-memory-bytes", "4M")
    client = server.client()
    whole = client.embeddings.create(model=NAME, input=TEXTS[0]).data[0].embedding
    raw = server.post("/v1/embeddings", {"input": TEXTS[0], "normalize": False}).json()["data"][0]["embedding"]
    for size in taken:
        short = client.embeddings.create(model=NAME, input=[TEXTS[0], "b"], dimensions=size).data[0].embedding
        length = math.hypot(*whole[:size])
        assert short == pytest.approx([x / length for x in whole[:size]], abs=1e-6)
        plain = server.post("/v1/embeddings", {"input": TEXTS[0], "normalize": False, "dimensions": size}).json()
        assert plain["data"][0]["embedding"] == raw[:size]
    for size in not_taken:
        with pytest.raises(openai.BadRequestError, match="dimensions") as caught:
            client.embeddings.create(model=NAME, input="a", dimensions=size)
        assert caught.value.param == "dimensions"


def test_as_long_as_the_context(start_server):
    server = start_server("--max-model-len", 64)
    ids = [1000 + i for i in range(64)]
    assert len(floats(embed(server, [ids])[0])) == SIZE
    reply = server.post("/v1/embeddings", {"input": ids + [5]})
    assert reply.status_code == 400 and "64 tokens, but input has 65 tokens" in reply.text


def test_as_many_inputs_as_openai_takes(server):
    answer = server.post("/v1/embeddings", {"input": ["a"] * 2048})
    assert [item["index"] for item in answer.json()["data"]] == list(range(2048))
