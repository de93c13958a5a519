"""Models that give scores: /v1/score, /v1/rerank and /classify against the scores of Transformers
(scripts/golden/make_classifiers.py)."""

import json
import shutil
import struct
import subprocess

import httpx
import pytest

from quire_server import BINARY, NAME, ROOT

GOLDEN = ROOT / "tests/golden/classifiers"
# In float, as the reference.
SMALL = ("--max-model-len", 512, "--kv-cache-memory-bytes", "16M", "--dtype", "float16", "--kv-cache-dtype", "f32")
TOLERANCE = 1e-3
RANKS = [(), ("--tensor-parallel-size", 2)]
CLASSIFIERS = ["qwen3", "llama", "gemma"]


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def close(values):
    return pytest.approx(values, abs=TOLERANCE)


def post(server, path, **body):
    reply = server.post(path, body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(server, path, param, **body):
    reply = server.post(path, body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param, reply.text
    return reply.json()["error"]["message"]


def classes(server, inputs, **fields):
    return [item["probs"] for item in post(server, "/classify", input=inputs, **fields)["data"]]


def scores(server, **body):
    return [item["score"] for item in post(server, "/v1/score", **body)["data"]]


@pytest.fixture
def start(start_server):
    return lambda path, *more: start_server("--model", path, "--device", "cpu", *SMALL, *more)


@pytest.mark.parametrize("ranks", RANKS, ids=["1 rank", "2 ranks"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes(start, name, ranks):
    want = golden(name)
    server = start(GOLDEN / name, *ranks)
    texts = [case["text"] for case in want["cases"]]
    answer = post(server, "/classify", input=texts, model=NAME)
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
    assert answer["id"].startswith("classify-") and answer["object"] == "list"
    num_tokens = sum(len(case["tokens"]) for case in want["cases"])
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    for index, (item, case) in enumerate(zip(answer["data"], want["cases"], strict=True)):
        assert item["index"] == index and item["num_classes"] == len(want["labels"])
        assert item["probs"] == close(case["scores"])
        assert item["label"] == want["labels"][case["scores"].index(max(case["scores"]))]
    assert classes(server, [case["tokens"] for case in want["cases"]]) == [item["probs"] for item in answer["data"]]
    logits = [case["logits"] for case in want["cases"]]
    for field in ("use_activation", "activation", "softmax"):
        assert [close(row) for row in logits] == classes(server, texts, **{field: False})


@pytest.mark.parametrize("ranks", RANKS, ids=["1 rank", "2 ranks"])
def test_pairs(start, ranks):
    """A pair without a template is the two texts in one."""
    want = golden("qwen3")
    server = start(GOLDEN / "qwen3", *ranks)
    documents, by_text = want["documents"], {case["text"]: case for case in want["cases"]}
    pairs = [by_text[want["query"] + document] for document in documents]
    expected = [case["scores"][0] for case in pairs]
    answer = post(server, "/v1/score", text_1=want["query"], text_2=documents)
    assert set(answer) == {"id", "object", "created", "data", "model", "usage"}
    assert [item["score"] for item in answer["data"]] == close(expected)
    assert answer["usage"]["prompt_tokens"] == sum(len(case["tokens"]) for case in pairs)
    assert scores(server, text_1=[want["query"]] * 4, text_2=documents) == close(expected)
    raw = [case["logits"][0] for case in pairs]
    assert scores(server, text_1=want["query"], text_2=documents, use_activation=False) == close(raw)
    ranked = sorted(range(4), key=lambda i: -expected[i])
    for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
        results = post(server, path, query=want["query"], documents=[{"text": text} for text in documents])["results"]
        assert [item["index"] for item in results] == ranked
        assert [item["relevance_score"] for item in results] == close([expected[i] for i in ranked])
        assert [item["document"]["text"] for item in results] == [documents[i] for i in ranked]
    best = post(server, "/v1/rerank", query=want["query"], documents=documents, top_n=1)["results"]
    assert [item["index"] for item in best] == ranked[:1]


def test_what_a_classifier_refuses(start):
    server = start(GOLDEN / "llama")
    message = refused(server, "/v1/score", "model", text_1="a", text_2="b")
    assert "3 labels" in message and "/classify" in message
    refused(server, "/v1/rerank", "model", query="a", documents=["b"])
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        assert "does not generate text" in refused(server, path, "model", **body)
    for param, body in [("input", {}), ("input", {"input": []}), ("input[1]", {"input": ["a", ""]}), ("input[0]", {"input": [280]}),
                        ("use_activation", {"input": "a", "use_activation": 1}), ("softmax", {"input": "a", "softmax": "no"}),
                        ("pooling", {"input": "a", "pooling": "mean"}), ("messages", {"messages": [{"role": "user", "content": "a"}]}),
                        ("input", {"input": ["a"] * 20000}), ("input", {"input": "a" * 600}), ("request_id", {"input": "a", "request_id": "a b"})]:
        refused(server, "/classify", param if "[" not in param or param == "input[1]" else "input[0]", **body)
    assert len(post(server, "/v1/embeddings", input="a")["data"][0]["embedding"]) == 32
    assert post(server, "/classify", input="a", request_id="r-1")["id"] == "classify-r-1"
    capabilities = post(server, "/api/show", model=NAME)["capabilities"]
    assert capabilities == ["embedding"]


def test_a_model_of_texts_has_no_classes(server):
    assert "not a classifier" in refused(server, "/classify", "model", input="a")
    assert "instruction" in refused(server, "/v1/rerank", "instruction", query="a", documents=["b"], instruction="c")


def reranker_cases(has_instruction):
    want = golden("reranker")
    return want, [case for case in want["cases"] if (case["instruction"] is not None) == has_instruction]


@pytest.mark.parametrize("ranks", RANKS, ids=["1 rank", "2 ranks"])
def test_words(start, ranks):
    """Qwen3-Reranker's form: the probability of "yes" after the prompt of its model card."""
    server = start(GOLDEN / "reranker", "--classifier-from-token", "no,yes", *ranks)
    for has_instruction in (False, True):
        want, cases = reranker_cases(has_instruction)
        body = {"instruction": want["instruction"]} if has_instruction else {}
        got = scores(server, text_1=want["query"], text_2=want["documents"], **body)
        assert got == close([case["score"] for case in cases])
        results = post(server, "/v1/rerank", query=want["query"], documents=want["documents"], **body)["results"]
        assert {item["index"]: item["relevance_score"] for item in results} == dict(enumerate(got))
        raw = scores(server, text_1=want["query"], text_2=want["documents"], use_activation=False, **body)
        assert raw == close([case["logits"][1] - case["logits"][0] for case in cases])
    item, = post(server, "/classify", input="a")["data"]
    assert item["label"] == "yes" and item["num_classes"] == 1


def test_control_tokens_of_a_text_are_text(start):
    """A document cannot end the user's turn."""
    server = start(GOLDEN / "reranker", "--classifier-from-token", "no,yes")
    def tokens(document):
        return post(server, "/v1/score", text_1="a", text_2=document)["usage"]["prompt_tokens"]
    assert tokens("x<|im_end|>") > tokens("x") + 4


@pytest.mark.parametrize("ranks", RANKS, ids=["1 rank", "2 ranks"])
def test_gguf(start, ranks):
    """As llama.cpp's converter writes it: the two rows, their labels, and the prompt with {query} and {document}."""
    server = start(GOLDEN / "reranker.gguf", *ranks)
    want, cases = reranker_cases(False)
    assert scores(server, text_1=want["query"], text_2=want["documents"]) == close([case["score"] for case in cases])
    refused(server, "/v1/score", "instruction", text_1="a", text_2="b", instruction="c")


def test_converted(start, tmp_path):
    """`quire quantize` keeps the labels; as BF16 nothing is rounded."""
    want = golden("llama")
    path = tmp_path / "llama.gguf"
    subprocess.run([BINARY, "quantize", GOLDEN / "llama", path, "--type", "bf16"], check=True, capture_output=True)
    answer = post(start(path), "/classify", input=[case["text"] for case in want["cases"]])
    assert [item["probs"] for item in answer["data"]] == [close(case["scores"]) for case in want["cases"]]
    assert {item["label"] for item in answer["data"]} <= {"negative", "neutral", "positive"}
    gemma = subprocess.run([BINARY, "quantize", GOLDEN / "gemma", tmp_path / "gemma.gguf"], capture_output=True, text=True)
    assert gemma.returncode != 0 and "problem_type" in gemma.stderr


@pytest.mark.parametrize("path, line", [("qwen3", "1 label: LABEL_0"), ("llama", "3 labels: negative, neutral, positive"),
                                        ("reranker.gguf", "1 label: yes")])
def test_inspect(path, line):
    shown = subprocess.run([BINARY, "inspect", GOLDEN / path], check=True, capture_output=True, text=True).stdout
    assert f"classifier              {line}\n" in shown and "output head             none\n" in shown


@pytest.mark.parametrize("arguments, piece", [
    (("--classifier-from-token", "no,yes,maybe"), "must be one token, or two"),
    (("--classifier-from-token", "no,"), "must be one token, or two"),
    (("--classifier-from-token", "nothing"), 'the model has no token "nothing"'),
    (("--model", GOLDEN / "llama", "--classifier-from-token", "no,yes"), "has no head for words"),
    (("--classifier-from-token", "no,yes", "--chat-template", ROOT / "README.md"), "chat-template: "),
])
def test_starts_that_fail(tmp_path, arguments, piece):
    arguments = arguments if "--model" in arguments else ("--model", GOLDEN / "reranker", *arguments)
    done = subprocess.run([BINARY, "serve", *map(str, (*arguments, "--device", "cpu", *SMALL, "--port", 0))],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    line, = (line for line in done.stderr.splitlines() if "ERROR" in line)
    assert piece in line


def test_an_encoder_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta"}))
    done = subprocess.run([BINARY, "serve", "--model", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "'XLMRobertaForSequenceClassification' is not supported (an encoder" in done.stderr


def test_words_that_the_folder_names(start, tmp_path):
    """sentence-transformers' LogitScore, whose chat template writes the pair; vLLM's score template by --chat-template."""
    folder = shutil.copytree(GOLDEN / "reranker", tmp_path / "reranker")
    write_modules(folder, LogitScore={"true_token_id": 279, "false_token_id": 277})
    template = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
        "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
        '{{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("Given a web search query, '
        'retrieve relevant passages that answer the query") }}\n'
        '<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}\n'
        '<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>\n'
        "<|im_start|>assistant\n<think>\n\n</think>\n\n\n")
    (folder / "chat_template.jinja").write_text(template)
    (tmp_path / "given.jinja").write_text(template)
    named = start(folder)
    given = start(GOLDEN / "reranker", "--classifier-from-token", "no,yes", "--chat-template", tmp_path / "given.jinja")
    for has_instruction in (False, True):
        want, cases = reranker_cases(has_instruction)
        body = {"instruction": want["instruction"]} if has_instruction else {}
        for server in (named, given):
            got = scores(server, text_1=want["query"], text_2=want["documents"], **body)
            assert got == close([case["score"] for case in cases])


def write_modules(folder, **steps):
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for name, config in steps.items():
        path = f"{len(modules)}_{name}"
        modules.append({"idx": len(modules), "name": str(len(modules)), "path": path, "type": f"sentence_transformers.models.{name}"})
        if config is not None:
            (folder / path).mkdir()
            (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(modules))


def embedding(server, **fields):
    return post(server, "/v1/embeddings", input="a cat", **fields)["data"][0]["embedding"]


@pytest.mark.parametrize("config, pooling", [
    ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}, "mean"),
    ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, "last"),
    ({"pooling_mode": "mean"}, "mean"),
])
@pytest.mark.parametrize("is_normalised", [True, False])
def test_pooling_of_the_folder(start, tmp_path, config, pooling, is_normalised):
    folder = shutil.copytree(ROOT / "tests/golden/families/qwen3", tmp_path / "qwen3")
    write_modules(folder, Pooling=config, **({"Normalize": None} if is_normalised else {}))
    server = start(folder)
    assert embedding(server) == embedding(server, pooling=pooling, normalize=is_normalised)
    assert embedding(server) != embedding(server, pooling="last" if pooling == "mean" else "mean", normalize=is_normalised)
    other = start(folder, "--pooling", "last" if pooling == "mean" else "mean")
    assert embedding(other) != embedding(server)


def rename_tensors(path, rename):
    """Of a safetensors file: a header of names, then the data."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    text = json.dumps({rename(name): entry for name, entry in header.items()}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])


def golden_states(name):
    """The tokens of a prompt, and Transformers' hidden states of it: their mean, and the last (make_embeddings.py)."""
    data = (ROOT / f"tests/golden/families/{name}.embedding").read_bytes()
    num_tokens, size = struct.unpack_from("<2i", data)
    tokens = list(struct.unpack_from(f"<{num_tokens}i", data, 8))
    states = struct.unpack_from(f"<{2 * size}f", data, 8 + 4 * num_tokens)
    return tokens, {"mean": list(states[:size]), "last": list(states[size:])}


@pytest.mark.parametrize("ranks", RANKS, ids=["1 rank", "2 ranks"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("name, class_name", [("qwen3", "Qwen3ForCausalLM"), ("mistral", "MistralModel")])
def test_embedding_models(start, tmp_path, name, class_name, pooling, ranks):
    """As Qwen3-Embedding and e5-mistral are saved: names without a prefix, no head."""
    folder = shutil.copytree(ROOT / "tests/golden/families" / name, tmp_path / name)
    for path in folder.glob("*.safetensors"):
        rename_tensors(path, lambda name: name.removeprefix("model."))
    index = folder / "model.safetensors.index.json"
    if index.exists():
        index.write_text(index.read_text().replace('"model.', '"'))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [class_name]}))
    write_modules(folder, Pooling={"pooling_mode": "lasttoken" if pooling == "last" else "mean"})
    tokens, states = golden_states(name)
    server = start(folder, *ranks)
    reply = post(server, "/v1/embeddings", input=tokens)
    assert reply["data"][0]["embedding"] == pytest.approx(states[pooling], abs=TOLERANCE)
    generates = class_name == "Qwen3ForCausalLM"
    assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status_code == (200 if generates else 400)


def test_pooling_of_a_gguf(start, tmp_path):
    folder = shutil.copytree(ROOT / "tests/golden/families/qwen3", tmp_path / "qwen3")
    write_modules(folder, Pooling={"pooling_mode": "mean"}, Normalize=None)
    path = tmp_path / "mean.gguf"
    subprocess.run([BINARY, "quantize", folder, path, "--type", "bf16"], check=True, capture_output=True)
    tokens, states = golden_states("qwen3")
    reply = post(start(path), "/v1/embeddings", input=tokens, normalize=False)
    assert reply["data"][0]["embedding"] == pytest.approx(states["mean"], abs=TOLERANCE)


def test_a_request_that_fails_leaves_others(start):
    server = start(GOLDEN / "qwen3")
    reply = httpx.post(server.url + "/v1/rerank", timeout=60, json={"query": "a", "documents": ["b", "c" * 600]})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "documents[1]"
    assert len(scores(server, text_1="a", text_2=["b"] * 40)) == 40
    server.wait_idle()
