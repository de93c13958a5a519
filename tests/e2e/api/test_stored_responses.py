"""Responses that are kept (--response-store-bytes): fetched, continued, deleted, made in the background; through the
official SDK."""

import json
import time

import httpx
import openai
import pytest

from quire_server import NAME

STORE = ("--response-store-bytes", "4M")
SMALL = 64 * 1024


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    from quire_server import QuireServer
    server = QuireServer(tmp_path_factory.mktemp("stored") / "server.log", *STORE)
    yield server
    server.kill()


def respond(server, input, api_key="none", **fields):
    fields = {"temperature": 0, "max_output_tokens": 12, **fields}
    return server.client(api_key).responses.create(model=NAME, input=input, **fields)


def request(server, method, path, **fields):
    return httpx.request(method, server.url + path, timeout=60, **fields)


def error_of(reply, status):
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


def wait_until_ended(server, response_id, client=None, timeout=60):
    client, deadline = client or server.client(), time.monotonic() + timeout
    while (response := client.responses.retrieve(response_id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline, response
        time.sleep(0.02)
    return response


def test_what_was_answered_is_retrieved(stored):
    made = respond(stored, "Count.", instructions="Be brief.", metadata={"a": "b"})
    assert made.store is True and made.background is False and made.previous_response_id is None
    assert stored.client().responses.retrieve(made.id).to_dict() == made.to_dict()
    assert respond(stored, "Count.", store=False).store is False


def test_what_is_not_kept_is_not_there(stored):
    made = respond(stored, "Count.", store=False)
    for call in (stored.client().responses.retrieve, stored.client().responses.delete, stored.client().responses.cancel,
                 stored.client().responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as caught:
            call(made.id)
        assert caught.value.code == "response_not_found" and made.id in caught.value.message


def test_a_deleted_one_is_gone(stored):
    made = respond(stored, "Count.")
    said = request(stored, "DELETE", f"/v1/responses/{made.id}").json()
    assert said == {"id": made.id, "object": "response", "deleted": True}
    assert request(stored, "GET", f"/v1/responses/{made.id}").status_code == 404
    assert request(stored, "DELETE", f"/v1/responses/{made.id}").status_code == 404
    other = respond(stored, "Count.")
    assert stored.client().responses.delete(other.id) is None
    error = error_of(stored.post("/v1/responses", {"model": NAME, "input": "More.", "previous_response_id": other.id}), 400)
    assert error["code"] == "previous_response_not_found" and error["param"] == "previous_response_id"
    assert error["message"] == f"Previous response with id '{other.id}' not found."


def test_three_turns_are_those_of_the_chat(stored):
    """Each turn gives the model what a chat gives it that sends all; instructions are of their turn alone."""
    messages, previous = [], None
    for turn, text in enumerate(["My name is Ada.", "What is my name?", "Spell it."]):
        fields = {"instructions": "Be brief."} if turn == 1 else {}
        response = respond(stored, text, previous_response_id=previous, **fields)
        messages.append({"role": "user", "content": text})
        system = [{"role": "system", "content": "Be brief."}] if turn == 1 else []
        chat = stored.client().chat.completions.create(model=NAME, temperature=0, max_tokens=12, messages=system + messages)
        assert response.output_text == chat.choices[0].message.content
        assert response.usage.input_tokens == chat.usage.prompt_tokens
        assert response.previous_response_id == previous
        counted = stored.client().responses.input_tokens.count(model=NAME, input=text, previous_response_id=previous, **fields)
        assert counted.input_tokens == chat.usage.prompt_tokens
        messages.append({"role": "assistant", "content": response.output_text})
        previous = response.id
    items = list(stored.client().responses.input_items.list(previous, order="asc", limit=2))
    assert [item.content[0].text for item in items] == [message["content"] for message in messages[:-1]]
    assert len({item.id for item in items}) == 5


def test_a_middle_one_may_be_deleted(stored):
    first = respond(stored, "My name is Ada.")
    second = respond(stored, "What is my name?", previous_response_id=first.id)
    stored.client().responses.delete(first.id)
    third = respond(stored, "Spell it.", previous_response_id=second.id)
    assert len(stored.client().responses.input_items.list(third.id).data) == 5


def test_calls_and_their_outputs_are_continued(stored):
    tool = {"type": "function", "name": "look_up", "parameters": {
        "type": "object", "properties": {"key": {"enum": ["a", "b"]}}, "required": ["key"], "additionalProperties": False}}
    first = respond(stored, "Look it up.", tools=[tool], tool_choice="required", max_output_tokens=100,
                    parallel_tool_calls=False)
    call = first.output[0]
    assert call.type == "function_call"
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    second = respond(stored, [output], previous_response_id=first.id)
    by_hand = respond(stored, [{"role": "user", "content": "Look it up."}, call.to_dict(), output])
    assert second.output_text == by_hand.output_text and second.usage.input_tokens == by_hand.usage.input_tokens
    types = [item.type for item in stored.client().responses.input_items.list(second.id, order="asc")]
    assert types == ["message", "function_call", "function_call_output"]


def test_items_come_in_pages(stored):
    made = respond(stored, [{"role": "user", "content": f"{i}", "id": f"item \"{i}\""} for i in range(25)])
    path = f"/v1/responses/{made.id}/input_items"

    def pages(**query):
        found, query = [], {"limit": 10, **query}
        while True:
            page = request(stored, "GET", path, params=query).json()
            assert page["object"] == "list"
            assert page["first_id"] == page["data"][0]["id"] and page["last_id"] == page["data"][-1]["id"]
            found.append([int(item["content"][0]["text"]) for item in page["data"]])
            if not page["has_more"]:
                return found
            query["after"] = page["last_id"]

    assert pages(order="asc") == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
    assert pages(limit=100) == [list(range(24, -1, -1))]
    assert pages(order="desc", limit=24) == [list(range(24, 0, -1)), [0]]
    assert len(request(stored, "GET", path).json()["data"]) == 20
    assert request(stored, "GET", path, params={"after": 'item "0"'}).json() == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    for name, values in {"limit": ["0", "101", "-1", "1.5", "x", "", "99999999999999999999"], "order": ["up", ""],
                         "after": ["item", made.id]}.items():
        for value in values:
            assert error_of(request(stored, "GET", path, params={name: value}), 400)["param"] == name
    assert request(stored, "GET", path, params={"limit": "1"}).status_code == 200


def test_a_stream_is_kept(stored):
    events = list(respond(stored, "Count.", stream=True))
    ended = events[-1].response
    assert events[0].response.store is True
    assert stored.client().responses.retrieve(ended.id).to_dict() == ended.to_dict()
    for name, value in {"stream": "true", "starting_after": "3"}.items():  # its events were sent, and are not kept
        assert error_of(request(stored, "GET", f"/v1/responses/{ended.id}", params={name: value}), 400)["param"] == name
    assert request(stored, "GET", f"/v1/responses/{ended.id}", params={"stream": "false"}).status_code == 200


def test_background_runs_to_its_end(stored):
    whole = respond(stored, "Count.")
    begun = respond(stored, "Count.", background=True)
    assert begun.status in ("queued", "in_progress") and begun.background is True and begun.output == []
    ended = wait_until_ended(stored, begun.id)
    assert ended.status == whole.status == "incomplete" and ended.output_text == whole.output_text
    assert ended.usage.output_tokens == whole.usage.output_tokens and ended.created_at == begun.created_at
    assert stored.client().responses.cancel(begun.id).to_dict() == ended.to_dict()  # nothing is left to cancel
    assert respond(stored, "More.", previous_response_id=begun.id).status


def test_background_is_cancelled(stored):
    begun = respond(stored, "Count.", background=True, max_output_tokens=4000, extra_body={"ignore_eos": True})
    stored.wait_for(lambda m: m["num_requests_running"] == 1)
    deadline = time.monotonic() + 60
    while stored.client().responses.retrieve(begun.id).status != "in_progress":
        assert time.monotonic() < deadline
    assert error_of(request(stored, "GET", f"/v1/responses/{begun.id}/input_items"), 400)["code"] == "response_in_progress"
    cancelled = stored.client().responses.cancel(begun.id)
    assert cancelled.status == "cancelled" and cancelled.error is None and cancelled.id == begun.id
    stored.wait_idle()
    assert stored.client().responses.retrieve(begun.id).to_dict() == cancelled.to_dict()
    assert stored.client().responses.cancel(begun.id).status == "cancelled"


def test_background_is_deleted(stored):
    begun = respond(stored, "Count.", background=True, max_output_tokens=4000, extra_body={"ignore_eos": True})
    stored.client().responses.delete(begun.id)
    stored.wait_idle()
    assert request(stored, "GET", f"/v1/responses/{begun.id}").status_code == 404


def test_only_background_is_cancelled(stored):
    made = respond(stored, "Count.")
    error = error_of(request(stored, "POST", f"/v1/responses/{made.id}/cancel"), 400)
    assert error["code"] == "response_not_in_background" and "background" in error["message"]


@pytest.mark.parametrize("fields,param", [
    ({"store": 1}, "store"), ({"store": "true"}, "store"), ({"background": 1}, "background"),
    ({"background": True, "store": False}, "background"),
    ({"previous_response_id": 1}, "previous_response_id"), ({"previous_response_id": ["a"]}, "previous_response_id"),
    ({"conversation": "c"}, "conversation"), ({"prompt": {"id": "p"}}, "prompt")])
def test_what_cannot_be(stored, fields, param):
    assert error_of(stored.post("/v1/responses", {"model": NAME, "input": "a", **fields}), 400)["param"] == param


def test_without_the_option_nothing_is_kept(server):
    made = respond(server, "Count.")
    assert made.store is False
    named = server.post("/v1/responses", {"model": NAME, "input": "a", "max_output_tokens": 1, "store": True})
    assert named.headers["x-ignored-params"] == "store"
    for fields in ({"background": True}, {"previous_response_id": made.id}):
        error = error_of(server.post("/v1/responses", {"model": NAME, "input": "a", **fields}), 400)
        assert error["param"] in fields and "response-store-bytes" in error["message"]
    assert "response-store-bytes" in error_of(request(server, "GET", f"/v1/responses/{made.id}"), 404)["message"]


def test_keys_do_not_see_each_others(start_server):
    server = start_server(*STORE, "--api-key", "one", "--api-key", "two")
    mine = respond(server, "Count.", "one")
    running = respond(server, "Count.", "one", background=True, max_output_tokens=4000, extra_body={"ignore_eos": True})
    one, two = server.client("one").responses, server.client("two").responses
    for made in (mine, running):
        for call in (two.retrieve, two.delete, two.cancel, two.input_items.list):
            with pytest.raises(openai.NotFoundError):
                call(made.id)
        with pytest.raises(openai.BadRequestError) as caught:
            two.create(model=NAME, input="a", previous_response_id=made.id)
        assert caught.value.code == "previous_response_not_found"
    assert one.retrieve(mine.id).output_text == mine.output_text
    assert one.cancel(running.id).status == "cancelled"
    assert request(server, "GET", f"/v1/responses/{mine.id}").status_code == 401
    same = {"extra_body": {"request_id": "same"}}
    for key in ("one", "two"):
        assert respond(server, key, key, **same).id == "resp_same"
    assert one.input_items.list("resp_same").data[0].content[0].text == "one"
    assert two.input_items.list("resp_same").data[0].content[0].text == "two"


def test_a_small_store_forgets_what_was_used_longest_ago(start_server):
    server = start_server("--response-store-bytes", SMALL, "--max-num-seqs", 4, "--log-level", "debug")
    assert "responses       0.1 MiB" in server.read_log()
    kept = respond(server, "Keep.", max_output_tokens=2)
    made = []
    with server.client() as client:
        for i in range(80):
            made.append(client.responses.create(model=NAME, input=f"Number {i}.", max_output_tokens=1).id)
            client.responses.retrieve(kept.id)
            if i % 10 == 0:
                assert server.metrics()["response_store_bytes"] <= SMALL
    metrics = server.metrics()
    entries = int(metrics["response_store_entries"])
    assert metrics["response_store_bytes"] <= SMALL and 5 < entries < 60
    assert metrics["response_store_evicted_total"] == 81 - entries
    there = [request(server, "GET", f"/v1/responses/{name}").status_code == 200 for name in made]
    assert there == [False] * (81 - entries) + [True] * (entries - 1)
    large = respond(server, "word " * 3000, max_output_tokens=1, metadata={"a": "b" * SMALL})
    assert large.store is True and large.output
    assert request(server, "GET", f"/v1/responses/{large.id}").status_code == 404
    assert server.metrics()["response_store_refused_total"] == 1 and f"{large.id} is not kept" in server.read_log()


def background_work(server):
    """What the access log on stdout says of the one response in the background."""
    lines = [json.loads(line) for line in server.read_log().splitlines() if line.startswith("{")]
    work, = (line for line in lines if line.get("client") == "background")
    return work


def test_a_stop_waits_for_background(start_server):
    server = start_server(*STORE, "--shutdown-timeout", 20, "--access-log", "-")
    begun = respond(server, "Count.", background=True, max_output_tokens=60, extra_body={"ignore_eos": True})
    assert server.terminate() == 0
    work = background_work(server)
    assert work["completion_tokens"] == 60, (begun.id, work)


def test_a_stop_ends_background_when_its_time_is_over(start_server):
    server = start_server(*STORE, "--shutdown-timeout", 0, "--access-log", "-")
    respond(server, "Count.", background=True, max_output_tokens=8000, extra_body={"ignore_eos": True})
    assert server.terminate() == 0
    assert background_work(server).get("completion_tokens", 0) < 8000


def test_the_time_of_background_is_bounded(stored):
    begun = respond(stored, "Count.", background=True, max_output_tokens=4000,
                    extra_body={"ignore_eos": True, "timeout_ms": 300})
    ended = wait_until_ended(stored, begun.id)
    assert ended.status == "incomplete" and ended.incomplete_details.reason == "max_output_tokens"


def test_methods_of_the_paths(stored):
    for path, methods in [("/v1/responses/a", "GET, HEAD, DELETE"), ("/v1/responses/a/cancel", "POST"),
                          ("/v1/responses/a/input_items", "GET, HEAD"), ("/responses/a", "GET, HEAD, DELETE"),
                          ("/v1/responses/input_tokens", "POST"), ("/v1/responses", "POST")]:
        options = request(stored, "OPTIONS", path)
        assert (options.status_code, options.headers["allow"]) == (204, methods), path
        reply = request(stored, "PUT", path)
        assert (reply.status_code, reply.headers["allow"]) == (405, methods)
    for path in ("/v1/responses/", "/v1/responses//cancel", "/v1/responses//input_items"):
        assert request(stored, "GET", path).status_code in (404, 405), path


def test_a_conversation_costs_the_sum_of_its_turns(start_server):
    """Twenty turns of a like length: the second ten take no more than the first ten; what is forgotten or deleted before the last
    turn is in its items all the same."""
    server = start_server("--response-store-bytes", "16M")
    text, previous, sizes = "word " * 60, None, []
    for turn in range(20):
        previous = respond(server, f"{turn} {text}", previous_response_id=previous, max_output_tokens=2).id
        sizes.append(int(server.metrics()["response_store_bytes"]))
        if turn == 9:
            middle = previous
    assert sizes[19] - sizes[9] < 1.1 * (sizes[9] - sizes[0]) * 10 / 9
    server.client().responses.delete(middle)
    assert sizes[19] > server.metrics()["response_store_bytes"] > sizes[18] - 5000
    items = list(server.client().responses.input_items.list(previous, order="asc", limit=100))
    assert [int(item.content[0].text.split()[0]) for item in items[::2]] == list(range(20))


def test_what_was_written_is_continued_whatever_it_is(stored):
    """SmolLM2's token 190 is a byte 0, which is in the kept text and in its logprobs."""
    made = respond(stored, "Hi", max_output_tokens=2, top_logprobs=2, include=["message.output_text.logprobs"],
                   extra_body={"logit_bias": {"190": 100}})
    assert made.output_text == "\0\0" and made.output[0].content[0].logprobs[0].token == "\0"
    assert respond(stored, "And?", previous_response_id=made.id).output_text
