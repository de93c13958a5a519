"""Requests as agents and SDKs send them (data/requests): taken as they are, and their answers fit what is sent back."""

import hashlib
import json

import httpx
import openai
import pytest
from huggingface_hub import InferenceClient

from quire_server import NAME, ROOT, QuireServer

PATHS = {"codex": "/v1/responses", "codex_turn": "/v1/responses", "vercel_ai_sdk": "/v1/responses",
         "claude_code": "/v1/messages?beta=true", "opencode": "/v1/chat/completions", "cline": "/v1/chat/completions"}
LEFT_OUT = "local_shell, web_search, image_generation, tool_search"


def recorded(name, **fields):
    return {**json.loads((ROOT / f"tests/e2e/data/requests/{name}.json").read_text()), **fields}


@pytest.fixture(scope="module")
def any_name(tmp_path_factory):
    """A server that takes any name for its model, as these clients have names of their own."""
    server = QuireServer(tmp_path_factory.mktemp("recorded") / "server.log", "--served-model-name", "*",
                         "--response-store-bytes", "4M")
    yield server
    server.kill()


def write_keys(path, **members):
    """A key for each name, which is its letter sixteen times."""
    path.write_text("keys:\n" + "".join(
        f"  - {{name: {name}, hash: 'sha256:{hashlib.sha256((name * 16).encode()).hexdigest()}'{more}}}\n"
        for name, more in members.items()))
    path.chmod(0o600)
    return path


def send(server, name, **fields):
    return httpx.post(server.url + PATHS[name], json=recorded(name, **fields), timeout=120)



def events_of(reply):
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("name", PATHS)
def test_it_is_taken(any_name, name):
    limit = {"/v1/responses": "max_output_tokens", "/v1/chat/completions": "max_tokens"}.get(PATHS[name])
    reply = send(any_name, name, **({limit: 20} if limit else {"max_tokens": 20}))
    assert reply.status_code == 200, reply.text
    events = events_of(reply)
    assert events and not any("error" in event and event["error"] for event in events)
    assert {event["response"]["model"] for event in events if "response" in event} <= {NAME}


def test_an_output_longer_than_the_context(any_name):
    """opencode asks 32,000 tokens unless its configuration has a limit.output, as docs/clients.md says; Claude Code's are cut."""
    error = send(any_name, "opencode").json()["error"]
    assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")
    most = int(error["message"].split("at most ")[1].split(",")[0])
    assert send(any_name, "opencode", max_tokens=most + 1).json()["error"]["message"] == error["message"].replace("32000", str(most + 1))
    assert send(any_name, "opencode", max_tokens=4).status_code == 200


def test_tools_of_codex_that_are_not_run_here(any_name):
    reply = send(any_name, "codex", max_output_tokens=5)
    names = reply.headers["x-ignored-params"].split(",")
    assert {"tools.web_search", "tools.local_shell", "tools.image_generation", "tools.tool_search", "text.verbosity"} <= set(names)
    line = f"tools that are not run here are left out of a request: {LEFT_OUT}"
    assert line in any_name.read_log()
    before = any_name.read_log().count(line)
    assert send(any_name, "codex", max_output_tokens=5).status_code == 200
    assert any_name.read_log().count(line) == before + 1
    given = events_of(reply)[-1]["response"]["tools"]
    assert given == recorded("codex")["tools"]  # repeated as they were


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_in_a_namespace(any_name, stream):
    """The model sees one function; who called gets the namespace and the name apart, and sends them so."""
    choice = {"type": "function", "name": "search", "namespace": "mcp__notes__"}
    reply = send(any_name, "codex", tool_choice=choice, stream=stream, max_output_tokens=200, temperature=0)
    assert reply.status_code == 200, reply.text
    if stream:
        events = events_of(reply)
        added = next(event["item"] for event in events if event["type"] == "response.output_item.added")
        done = next(event["item"] for event in events if event["type"] == "response.output_item.done")
        assert (added["name"], added["namespace"]) == ("search", "mcp__notes__")
        assert next(e["name"] for e in events if e["type"] == "response.function_call_arguments.done") == "search"
    else:
        done = reply.json()["output"][0]
    assert (done["type"], done["name"], done["namespace"]) == ("function_call", "search", "mcp__notes__")
    assert isinstance(json.loads(done["arguments"])["query"], str)
    again = recorded("codex")["input"] + [done, {"type": "function_call_output", "call_id": done["call_id"], "output": "none"}]
    assert send(any_name, "codex", input=again, max_output_tokens=5).status_code == 200


def test_a_tool_without_a_namespace_has_none(any_name):
    reply = send(any_name, "codex", tool_choice={"type": "function", "name": "exec_command"}, stream=False, max_output_tokens=200)
    call = reply.json()["output"][0]
    assert call["name"] == "exec_command" and "namespace" not in call


def test_errors_name_the_place_of_a_tool(any_name):
    tools = recorded("codex")["tools"]
    tools[7]["tools"][1]["name"] = "not a name"
    error = send(any_name, "codex", tools=tools).json()["error"]
    assert error["param"] == "tools[7].tools[1].name" and error["message"].startswith("tools[7].tools[1].name"), error
    tools[7]["tools"][1]["name"], tools[8]["tools"][0]["parameters"] = "list", 1
    assert send(any_name, "codex", tools=tools).json()["error"]["param"] == "tools[8].tools[0].parameters"
    assert send(any_name, "codex", tools=tools[8:]).json()["error"]["param"] == "tools[0].tools[0].parameters"


def test_items_of_tools_that_are_not_run_here(any_name):
    """They and what they put out are as if they were not there."""
    body = recorded("codex_turn")
    kept = [item for item in body["input"] if "secret-of" not in json.dumps(item) and item.get("call_id") not in ("call_3", "call_4")]
    assert len(kept) == len(body["input"]) - 6
    count = [httpx.post(any_name.url + "/v1/responses/input_tokens", json={
        key: value for key, value in {**body, "input": items}.items() if key in ("model", "input", "instructions", "tools")},
        timeout=60).json()["input_tokens"] for items in (body["input"], kept)]
    assert count[0] == count[1] > 500
    assert "6 items of tools that are not run here are left out of a request" in any_name.read_log()


def test_an_empty_input(any_name):
    """Also what is left of one when the items of tools that are not run here are left out."""
    shell = {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}}
    output = {"type": "function_call_output", "call_id": "c", "output": "a"}
    usages = []
    for items in ([], [shell], [shell, output]):
        reply = httpx.post(any_name.url + "/v1/responses", json={"model": "m", "input": items, "max_output_tokens": 1}, timeout=60)
        assert reply.status_code == 200, reply.text
        usages.append((reply.json()["usage"]["input_tokens"], reply.json()["usage"]["output_tokens"]))
    assert usages[0][1] == 1 and len(set(usages)) == 1, usages


def test_claude_codes_turns_share_their_prompt(any_name):
    """Its billing line is another one in each request."""
    body = recorded("claude_code", max_tokens=4, stream=False)
    url = any_name.url + PATHS["claude_code"]
    first = httpx.post(url, json=body, timeout=60).json()
    body["system"][0]["text"] = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=07bd1;"
    body["messages"] += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "Go on."}]
    usage = httpx.post(url, json=body, timeout=60).json()["usage"]
    assert usage["cache_read_input_tokens"] >= 256 and usage["input_tokens"] < 64, usage

    def count(system):
        return httpx.post(any_name.url + "/v1/messages/count_tokens", json={**body, "system": system}, timeout=60).json()["input_tokens"]
    lines = body["system"]
    assert count(lines) == count(lines[1:])
    joined = "\n".join(block["text"] for block in lines)
    assert count(joined) == count(joined.partition("\n")[2])
    assert count([lines[0]]) == httpx.post(any_name.url + "/v1/messages/count_tokens", timeout=60, json={
        key: value for key, value in body.items() if key != "system"}).json()["input_tokens"]
    assert count("See x-anthropic-billing-header: a") > count("See")


def test_item_references_of_the_ai_sdk(any_name):
    """It sends ids of what was answered in the place of items, of whole conversations."""
    first = events_of(send(any_name, "vercel_ai_sdk", max_output_tokens=12, temperature=0))[-1]["response"]["output"]
    more = [{"role": "user", "content": [{"type": "input_text", "text": "And in Rome?"}]}]
    beginning = recorded("vercel_ai_sdk")["input"]

    def answer(items):
        reply = send(any_name, "vercel_ai_sdk", input=items, stream=False, max_output_tokens=12, temperature=0)
        assert reply.status_code == 200, reply.text
        return reply.json()
    refer = [{"type": "item_reference", "id": item["id"]} for item in first]
    by_reference, whole = answer(beginning + refer + more), answer(beginning + first + more)
    assert by_reference["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert by_reference["output"][0]["content"] == whole["output"][0]["content"]
    second = [{"type": "item_reference", "id": item["id"]} for item in by_reference["output"]]
    third = answer(beginning + refer + more + second + more)
    listed = httpx.get(f"{any_name.url}/v1/responses/{third['id']}/input_items?order=asc").json()["data"]
    assert [item["id"] for item in listed if item["id"] in (refer[0]["id"], second[0]["id"])] == [refer[0]["id"], second[0]["id"]]


@pytest.mark.parametrize("reference, status, param", [
    ({"type": "item_reference", "id": "msg_none"}, 404, "input"),
    ({"type": "item_reference", "id": 'x","type":"message'}, 400, "input[0].id"),
    ({"type": "item_reference"}, 400, "input[0].id"),
])
def test_references_to_nothing(any_name, reference, status, param):
    reply = httpx.post(any_name.url + "/v1/responses", json={"input": [reference]}, timeout=60)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


def test_more_references_than_are_followed(any_name):
    def ask(items):
        return httpx.post(any_name.url + "/v1/responses", json={"input": items, "max_output_tokens": 1}, timeout=60)
    made = [ask(f"Say {i}.").json()["output"][0]["id"] for i in range(9)]
    refer = [{"type": "item_reference", "id": item} for item in made]
    for items, said in ((refer, "more than 8 responses"), (refer[:1] * 4097, "more than 4096 items")):
        error = ask(items)
        assert error.status_code == 400 and said in error.json()["error"]["message"], error.text
    assert ask(refer[1:] + [{"role": "user", "content": "x"}]).status_code == 200


def test_references_to_another_keys_items(start_server, tmp_path):
    keys = write_keys(tmp_path / "keys.yaml", a="", b="")
    server = start_server("--api-key-file", keys, "--response-store-bytes", "1M")

    def ask(key, items):
        return httpx.post(server.url + "/v1/responses", json={"input": items, "max_output_tokens": 2}, timeout=60,
                          headers={"Authorization": f"Bearer {key * 16}"})
    made = ask("a", "Hello").json()["output"][0]["id"]
    statuses = [ask(key, [{"type": "item_reference", "id": made}, {"role": "user", "content": "x"}]).status_code for key in "ab"]
    assert statuses == [200, 404]


def test_references_where_nothing_is_kept(server):
    error = httpx.post(server.url + "/v1/responses", json={"input": [{"type": "item_reference", "id": "msg_1"}]}).json()["error"]
    assert error["param"] == "input[0].type" and "response-store-bytes" in error["message"]


def test_huggingface_hub(any_name):
    client = InferenceClient(base_url=any_name.url)
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    messages = [{"role": "user", "content": "Weather in Oslo?"}]
    call = client.chat_completion(messages, tools=tools, tool_choice={"function": {"name": "get_weather"}}, max_tokens=60)
    assert call.choices[0].message.tool_calls[0].function.name == "get_weather"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat_completion(messages, stream=True, max_tokens=5))
    assert text


def test_any_name_is_the_model(any_name):
    client = openai.OpenAI(base_url=any_name.url + "/v1", api_key="x")
    assert {model.id for model in client.models.list()} == {NAME}
    assert client.completions.create(model="gpt-4o", prompt="a", max_tokens=1).model == NAME


def test_names_of_keys_stay_limits(start_server, tmp_path):
    keys = write_keys(tmp_path / "keys.yaml", a=f", models: [{NAME}]", b="")
    server = start_server("--api-key-file", keys, "--served-model-name", "*")

    def status(key, name):
        return httpx.post(server.url + "/v1/completions", json={"model": name, "prompt": "a", "max_tokens": 1}, timeout=60,
                          headers={"Authorization": f"Bearer {key * 16}"}).status_code
    assert [status(key, name) for key in "ab" for name in (NAME, "gpt-4o")] == [200, 404, 200, 200]
