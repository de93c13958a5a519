"""/v1/score and /v1/rerank against the cosines of /v1/embeddings, in the shapes of vLLM, Jina and Cohere."""

import math

import httpx
import pytest

from quire_server import NAME

QUERY = "The cat sat on the mat."
TEXTS = ["A feline rested on the rug.", "Stock prices fell sharply on Monday.", "Le chat est assis sur le tapis.", "x",
         "The cat sat on the mat.", "one two three"]
PATHS = ["/v1/rerank", "/rerank", "/v2/rerank"]


def embeddings(server, texts, **fields):
    reply = server.post("/v1/embeddings", {"input": texts, **fields}).json()
    return [item["embedding"] for item in reply["data"]], reply["usage"]


def cosine(a, b):
    return math.sumprod(a, b) / math.hypot(*a) / math.hypot(*b) if hasattr(math, "sumprod") else \
        sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


def post(server, path, **body):
    reply = server.post(path, body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def scores(server, path="/v1/score", **body):
    return [item["score"] for item in post(server, path, **body)["data"]]


@pytest.mark.parametrize("fields", [{}, {"pooling": "mean"}, {"truncate_prompt_tokens": 2}, {"add_special_tokens": False}])
@pytest.mark.parametrize("path", ["/v1/score", "/score"])
def test_one_to_many(server, path, fields):
    answer = post(server, path, text_1=QUERY, text_2=TEXTS, model=NAME, **fields)
    vectors, usage = embeddings(server, [QUERY, *TEXTS], **fields)
    assert set(answer) == {"id", "object", "created", "data", "model", "similarity", "usage"}
    assert answer["object"] == "list" and answer["model"] == NAME and answer["similarity"] == "cosine"
    assert answer["id"].startswith("score-") and answer["usage"] == usage
    assert [(item["index"], item["object"]) for item in answer["data"]] == [(i, "score") for i in range(len(TEXTS))]
    for item, vector in zip(answer["data"], vectors[1:]):
        assert item["score"] == pytest.approx(cosine(vectors[0], vector), abs=1e-5)


def test_one_to_one_and_pair_by_pair(server):
    vectors, _ = embeddings(server, TEXTS)
    assert scores(server, text_1=TEXTS[0], text_2=TEXTS[1]) == pytest.approx([cosine(vectors[0], vectors[1])], abs=1e-5)
    assert scores(server, text_1=[TEXTS[0]], text_2=[TEXTS[1]]) == scores(server, text_1=TEXTS[0], text_2=TEXTS[1])
    pairs = scores(server, text_1=TEXTS[:3], text_2=TEXTS[3:])
    assert pairs == pytest.approx([cosine(vectors[i], vectors[i + 3]) for i in range(3)], abs=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_ranks_fall(server, path):
    answer = post(server, path, query=QUERY, documents=TEXTS)
    assert set(answer) == {"id", "object", "results", "model", "similarity", "usage"}
    assert answer["id"].startswith("rerank-") and answer["similarity"] == "cosine"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] == embeddings(server, [QUERY, *TEXTS])[1]["prompt_tokens"]
    by_index = scores(server, text_1=QUERY, text_2=TEXTS)
    assert [item["relevance_score"] for item in answer["results"]] == sorted(by_index, reverse=True)
    for item in answer["results"]:
        assert item["relevance_score"] == by_index[item["index"]]
        assert item["document"] == {"text": TEXTS[item["index"]]}
    assert answer["results"][0]["index"] == 4  # the same text


def test_equal_ones_keep_their_order(server):
    documents = ["x", QUERY, "x", QUERY, "x"]
    assert [item["index"] for item in post(server, "/v1/rerank", query=QUERY, documents=documents)["results"]] == [1, 3, 0, 2, 4]


@pytest.mark.parametrize("top_n, count", [(0, 6), (1, 1), (4, 4), (6, 6), (100, 6)])
def test_the_best_ones(server, top_n, count):
    whole = post(server, "/v1/rerank", query=QUERY, documents=TEXTS)["results"]
    assert post(server, "/v1/rerank", query=QUERY, documents=TEXTS, top_n=top_n)["results"] == whole[:count]


def test_documents(server):
    plain = post(server, "/v1/rerank", query=QUERY, documents=TEXTS[:2])["results"]
    objects = post(server, "/v1/rerank", query=QUERY, documents=[{"text": TEXTS[0], "title": "t"}, TEXTS[1]])["results"]
    assert objects == plain
    assert post(server, "/v1/rerank", query=QUERY, documents=TEXTS[0])["results"][0]["document"] == {"text": TEXTS[0]}
    bare = post(server, "/v1/rerank", query=QUERY, documents=TEXTS[:2], return_documents=False)["results"]
    assert bare == [{name: item[name] for name in ("index", "relevance_score")} for item in plain]


def test_ids_and_ignored_fields(server):
    reply = httpx.post(server.url + "/v1/rerank", timeout=300, json={
        "query": "a", "documents": ["b"], "request_id": "r-1", "mm_processor_kwargs": {"a": 1}})
    assert reply.json()["id"] == "rerank-r-1"
    assert reply.headers["x-ignored-params"] == "mm_processor_kwargs"


@pytest.mark.parametrize("path, fields, param", [
    ("/v1/score", {"text_1": None}, "text_1"),
    ("/v1/score", {"text_1": 1}, "text_1"),
    ("/v1/score", {"text_1": []}, "text_1"),
    ("/v1/score", {"text_1": ["a", 1]}, "text_1[1]"),
    ("/v1/score", {"text_1": {"text": "a"}}, "text_1"),
    ("/v1/score", {"text_2": [1, 2]}, "text_2[0]"),
    ("/v1/score", {"text_2": ["a", ""]}, "text_2[1]"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_2"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"] * 3}, "text_2"),
    ("/v1/score", {"text_2": ["a"] * 20000}, "text_2"),
    ("/v1/score", {"text_2": " b" * 10000}, "text_2"),
    ("/v1/score", {"pooling": "max"}, "pooling"),
    ("/v1/score", {"use_activation": "no"}, "use_activation"),
    ("/v1/score", {"instruction": "a"}, "instruction"),
    ("/v1/score", {"priority": 2 ** 31}, "priority"),
    ("/v1/score", {"timeout_ms": 0}, "timeout_ms"),
    ("/v1/score", {"cache_salt": ""}, "cache_salt"),
    ("/v1/score", {"request_id": "a b"}, "request_id"),
    ("/v1/score", {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ("/v1/rerank", {"query": None}, "query"),
    ("/v1/rerank", {"query": ["a"]}, "query"),
    ("/v1/rerank", {"query": ""}, "query"),
    ("/v1/rerank", {"documents": None}, "documents"),
    ("/v1/rerank", {"documents": []}, "documents"),
    ("/v1/rerank", {"documents": [{}]}, "documents[0]"),
    ("/v1/rerank", {"documents": [{"text": 1}]}, "documents[0]"),
    ("/v1/rerank", {"documents": ["a", {"text": ""}]}, "documents[1]"),
    ("/v1/rerank", {"documents": ["a"] * 20000}, "documents"),
    ("/v1/rerank", {"top_n": -1}, "top_n"),
    ("/v1/rerank", {"top_n": 1.5}, "top_n"),
    ("/v1/rerank", {"return_documents": "no"}, "return_documents"),
    ("/v2/rerank", {"max_tokens_per_doc": 10}, "max_tokens_per_doc"),
    ("/v2/rerank", {"rank_fields": ["a"]}, "rank_fields"),
])
def test_bounds(server, path, fields, param):
    base = {"text_1": QUERY, "text_2": TEXTS} if path == "/v1/score" else {"query": QUERY, "documents": TEXTS}
    reply = server.post(path, {**base, **fields})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param, reply.text


def test_another_model_is_not_found(server):
    for path, body in (("/v1/score", {"text_1": "a", "text_2": "b"}), ("/v1/rerank", {"query": "a", "documents": ["b"]})):
        assert server.post(path, {**body, "model": "other"}).status_code == 404


def test_tokens_of_a_call_are_bounded(start_server):
    server = start_server("--max-queued-tokens", 512, "--max-model-len", 512)
    reply = server.post("/v1/score", {"text_1": "a", "text_2": [" b" * 300, " c" * 300]})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "text_2"
    assert server.post("/v1/score", {"text_1": "a", "text_2": [" b" * 200, " c" * 200]}).status_code == 200


def test_many_at_once(server):
    """More than run at a time, and the query among them."""
    documents = [f"{i} {TEXTS[i % len(TEXTS)]}" for i in range(60)]
    answer = post(server, "/v1/rerank", query=documents[17], documents=documents, top_n=1)
    assert answer["results"][0]["index"] == 17 and answer["results"][0]["relevance_score"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("first, second", [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "documents")])
def test_other_names_of_the_texts(server, first, second):
    want = server.post("/v1/score", {"text_1": "a cat", "text_2": ["a dog", "a car"]}).json()["data"]
    assert server.post("/v1/score", {first: "a cat", second: ["a dog", "a car"]}).json()["data"] == want
    error = server.post("/v1/score", {first: ["a", "b"], second: ["a", "b", "c"]}).json()["error"]
    assert error["param"] == second and first in error["message"]


def test_a_text_has_one_name(server):
    error = server.post("/v1/score", {"text_1": "a", "queries": "b", "text_2": "c"}).json()["error"]
    assert error["param"] == "queries" and "text_1" in error["message"]
