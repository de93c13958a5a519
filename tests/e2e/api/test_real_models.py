"""Gemma 3 270M and Qwen2.5-Coder 0.5B Instruct, in Q4_K_M: their tokens, perplexity, continuations and rendered chats are those
of Transformers and llama.cpp (real_models.json, by scripts/golden/make_real_models.py), and what a coder is asked for works:
calls of tools, and filling in the middle. `scripts/test --slow` fetches the files."""

import hashlib
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest

from quire_server import CACHE, ROOT, QuireServer
from test_templates import CASES, chat_of, fnv1a, post

sys.path.append(str(ROOT / "scripts/golden"))
import tokenizer_corpus

pytestmark = pytest.mark.variant
DATA = ROOT / "tests/e2e/data"
REFERENCE = json.loads((DATA / "real_models.json").read_text())
GEMMA, QWEN = "gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-q4_k_m.gguf"
TEXTS_OF_A_HASH, CHUNK = 10, 1024


class RealModel:
    """A server with one of them, and what is expected of it."""

    def __init__(self, name, log):
        if not (CACHE / name).exists():
            pytest.fail(f"{CACHE / name} is missing: scripts/test --slow fetches it")
        self.name, self.expected = name, REFERENCE["models"][name]
        self.server = QuireServer(log, "--model", CACHE / name, "--max-model-len", 2048, "--max-num-seqs", 20,
                                  "--kv-cache-memory-bytes", "1G")

    def post(self, path, **body):
        return post(self.server, path, body)

    def post_all(self, path, bodies):
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda body: self.post(path, **body), bodies))

    def tokenize(self, text, **fields):
        return self.post("/tokenize", content=text, **fields)["tokens"]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """started(name): that model, once."""
    models = {}

    def start(name):
        if name not in models:
            models[name] = RealModel(name, tmp_path_factory.mktemp("real") / "server.log")
        return models[name]

    yield start
    for model in models.values():
        model.server.kill()


@pytest.fixture(params=[GEMMA, QWEN])
def model(request, started):
    return started(request.param)


@pytest.fixture
def qwen(started):
    return started(QWEN)


def test_tokens_of_5000_texts(model):
    texts = tokenizer_corpus.short_texts(5000)
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest() == REFERENCE["texts_sha256"]
    answers = model.post_all("/tokenize", [{"content": text, "add_special": False} for text in texts])
    tokens = [answer["tokens"] for answer in answers]
    hashes = [fnv1a(json.dumps(tokens[i:i + TEXTS_OF_A_HASH])) for i in range(0, len(tokens), TEXTS_OF_A_HASH)]
    wrong = [i for i, (ours, theirs) in enumerate(zip(hashes, model.expected["tokens"].split(), strict=True)) if ours != theirs]
    first = [(texts[i][:80], tokens[i][:20]) for group in wrong[:1]
             for i in range(group * TEXTS_OF_A_HASH, (group + 1) * TEXTS_OF_A_HASH)]
    assert not wrong, f"{len(wrong)} of {len(hashes)} groups of texts differ, the first: {first}"


def test_perplexity(model):
    text = "\n".join([(DATA / "quires.txt").read_text(), *tokenizer_corpus.PROSE, *tokenizer_corpus.CODE])
    ids = model.tokenize(text, add_special=True)
    has_bos = ids != model.tokenize(text, add_special=False)
    chunks = [ids[:has_bos] + ids[at + has_bos:at + CHUNK] for at in range(0, len(ids) - CHUNK + 1, CHUNK)]
    expected = model.expected["perplexity"]
    answers = model.post_all("/v1/completions", [{"prompt": chunk, "max_tokens": 0, "echo": True, "logprobs": 0}
                                                 for chunk in chunks])
    scored = [value for answer in answers for value in answer["choices"][0]["logprobs"]["token_logprobs"][CHUNK // 2 + 1:]]
    assert len(scored) == len(chunks) * (CHUNK // 2 - 1) > 1000
    perplexity = math.exp(-sum(scored) / len(scored))
    away = {name: perplexity / expected[name] - 1 for name in ("transformers", "llama.cpp")}
    print(f"{model.name}: perplexity {perplexity:.4f}, " + ", ".join(f"{name} {100 * x:+.3f} %" for name, x in away.items()))
    # Activations have 8 bits, keys and values 16: with 32 for those it is 0.4 % less for Gemma, 0.1 % more for Qwen.
    assert abs(away["transformers"]) < 0.005 and abs(away["llama.cpp"]) < 0.003


def test_greedy_continuations(model):
    """Where one parts from Transformers', the two best tokens were about equal; and most do not part."""
    fields = {"temperature": 0, "max_tokens": 32, "return_token_ids": True}
    answers = model.post_all("/v1/completions", [{"prompt": prompt, **fields} for prompt in REFERENCE["prompts"]])
    whole, partings = 0, {}
    for prompt, answer, expected in zip(REFERENCE["prompts"], answers, model.expected["greedy"], strict=True):
        ours = answer["choices"][0]["token_ids"]
        theirs, gaps = list(map(int, expected["tokens"].split())), expected["gaps"].split()
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(theirs))
        whole += same == len(theirs)
        if same < len(theirs):
            partings[prompt] = (same, float(gaps[same]))
    llama = sum(entry["llama.cpp"] == len(entry["tokens"].split()) for entry in model.expected["greedy"])
    print(f"{model.name}: {whole} of 20 whole, llama.cpp {llama}; partings (at, gap): {partings}")
    assert all(gap < 0.35 for _, gap in partings.values()), partings
    assert whole >= 8


# What the server adapts to the template, which would not take it as it is meant: arguments as a text, parts of a text, a role.
ADAPTED = {"tool_arguments_text", "tool_result_parts", "developer"}


def test_rendered_chats(qwen):
    conversations = {name: CASES["conversations"][name] for name in qwen.expected["rendered"]}
    del conversations["private_tools"]  # their names are none that the API takes
    assert len(conversations) > 50
    other = set()
    for name, conversation in conversations.items():
        text = qwen.post("/apply-template", **chat_of(conversation))["prompt"]
        if fnv1a(text) != qwen.expected["rendered"][name]:
            other.add(name)
        same = qwen.post("/tokenize", **chat_of(conversation))["tokens"] == qwen.tokenize(text)
        assert same == (name != "control_tokens"), name  # what a message has of them stays text
    assert other == ADAPTED


def tool(name, description, **properties):
    properties = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [tool("get_weather", "The current weather in a city", city="string"),
         tool("search_files", "Finds files whose name contains a text", text="string"),
         tool("read_file", "Reads a file", path="string"),
         tool("convert_currency", "Converts an amount of money", amount="number", source="string", target="string"),
         tool("set_alarm", "Sets an alarm", hour="integer", minute="integer")]
REQUESTS = [("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
            ("What is the weather like in Tokyo right now?", "get_weather", {"city": "Tokyo"}),
            ("Convert 100 euros to US dollars.", "convert_currency", {"amount": 100}),
            ("How much is 250 British pounds in Japanese yen?", "convert_currency", {"amount": 250}),
            ("Read the file src/main.c.", "read_file", {"path": "src/main.c"}),
            ("Show me what is in the file README.md.", "read_file", {"path": "README.md"}),
            ("Set an alarm for 7:30.", "set_alarm", {"hour": 7, "minute": 30}),
            ("Wake me up at 6:15 in the morning.", "set_alarm", {"hour": 6, "minute": 15}),
            ("Find files whose name contains config.", "search_files", {"text": "config"}),
            ("Search for files named test.", "search_files", {"text": "test"})]


@pytest.mark.parametrize("tool_choice, at_least", [("auto", 8), ("required", 9)])
def test_tool_calls(qwen, tool_choice, at_least):
    """Every call is of a given tool with arguments of its schema; nearly all are those that were asked for."""
    fields = {"tools": TOOLS, "tool_choice": tool_choice, "temperature": 0, "max_tokens": 100}
    answers = qwen.post_all("/v1/chat/completions", [{"messages": [{"role": "user", "content": question}], **fields}
                                                     for question, _, _ in REQUESTS])
    schemas = {entry["function"]["name"]: entry["function"]["parameters"] for entry in TOOLS}
    right, said = 0, []
    for (_, name, arguments), answer in zip(REQUESTS, answers):
        [choice] = answer["choices"]
        made = [call["function"] for call in choice["message"].get("tool_calls") or []]
        assert (choice["finish_reason"] == "tool_calls") == bool(made) and (made or tool_choice == "auto")
        assert not made or not choice["message"]["content"]
        assert "tool_call>" not in (choice["message"]["content"] or "")
        for call in made:
            jsonschema.validate(json.loads(call["arguments"]), schemas[call["name"]])
        right += len(made) == 1 and made[0]["name"] == name and arguments.items() <= json.loads(made[0]["arguments"]).items()
        said.append(made or choice["message"]["content"])
    print(f"{tool_choice}: {right} of 10 right")
    assert right >= at_least, said


SNIPPETS = [("def add(a, b):\n    return ", "\n\n\nassert add(2, 3) == 5\n", "add(40, 2) == 42"),
            ("def is_even(n):\n    return ", "\n\n\ndef is_odd(n):\n    return not is_even(n)\n", "is_odd(3) and is_even(4)"),
            ("def largest(numbers):\n    best = numbers[0]\n    for number in numbers:\n        if ",
             "\n            best = number\n    return best\n", "largest([3, 9, 4]) == 9"),
            ("def factorial(n):\n    if n == 0:\n        return 1\n    return ", "\n", "factorial(5) == 120"),
            ("from math import pi\n\n\ndef area(radius):\n    return ", "\n", "area(2) == 4 * pi")]
FIM_PREFIX, FIM_MIDDLE, FIM_SUFFIX, REPO_NAME, FILE_SEP = 151659, 151660, 151661, 151663, 151664


def works(program, condition):
    names = {}
    try:
        exec(program, names)
        return eval(condition, names)
    except Exception:  # whatever the model has written
        return False


def test_fill_in_the_middle(qwen):
    """The tokens are those that Qwen2.5-Coder was trained with, and what it fills in works."""
    filled = []
    for before, behind, condition in SNIPPETS:
        fields = {"temperature": 0, "stop": ["\n"], "return_token_ids": True}
        [choice] = qwen.post("/v1/completions", prompt=before, suffix=behind, max_tokens=32, **fields)["choices"]
        want = [FIM_PREFIX, *qwen.tokenize(before), FIM_SUFFIX, *qwen.tokenize(behind), FIM_MIDDLE]
        assert choice["prompt_token_ids"] == want
        filled.append((choice["text"], works(before + choice["text"] + behind, condition)))
        infill = qwen.post("/infill", input_prefix=before, input_suffix=behind, n_predict=1, **fields)
        front = [REPO_NAME, *qwen.tokenize("myproject\n"), FILE_SEP, *qwen.tokenize("filename\n")]
        assert infill["choices"][0]["prompt_token_ids"] == front + want
    assert sum(right for _, right in filled) >= 4, filled
