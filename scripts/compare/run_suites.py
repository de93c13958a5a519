#!/usr/bin/env python3
"""Runs a peer's own tests of its API, from a checkout of its public repository, against a server that it starts.

    run_suites.py openai-python --repo DIR --binary build/server/quire --model MODEL.gguf [words of pytest's command]

Prints the tests that passed, those that failed for something that is not served here, by what that is, and all others,
which are ours: ends with status 1 where there are any. Not served: the server's own 400 says that a field or value is
not supported, or its 404 that there is no such path; or the table below says why a test asks for another server's model
or options. The Python that runs this needs pytest and what the checkout's tests import; suite_plugin.py stands in for vllm and
sglang themselves, and wants Transformers and gguf for their tests with tokenizers. An unpacked sdist of vllm is a checkout."""

import argparse
import collections
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import typing
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path

NAME = "model"


class Suite(typing.NamedTuple):
    folder: str    # of the checkout, in which pytest runs
    tests: tuple   # below it
    path: tuple    # of Python, below the checkout
    environment: typing.Callable | None  # of the server's URL; None: the stand-ins start the servers
    lacking: tuple = ()  # (pattern of a test's name or of what it says, feature)
    names: tuple = (NAME,)  # that the tests call the model by
    port: int = 0           # that they look for the server at
    stand_ins: bool = False  # those of suite_plugin.py
    words: tuple = ()        # of pytest's command
    context: str = "512"     # --max-model-len


def of_url(name, suffix=""):
    return lambda url: {name: url + suffix}


def of_port(url):
    return {"DEBUG_EXTERNAL": "1", "PORT": url.rsplit(":", 1)[1]}


SUITES = {
    "openai-python": Suite(
        ".", tuple("tests/api_resources/" + name for name in (
            "test_completions.py", "chat/test_completions.py", "test_responses.py", "responses", "test_embeddings.py",
            "test_models.py")),
        ("src", "."), of_url("TEST_API_BASE_URL", "/v1"), (
            (r"chat.test_completions.*(retrieve|update|list|delete)", "stored chat completions"),
            (r"test_models.*delete", "deleting a model"),
            (r"test_responses.*compact", "/v1/responses/compact"),
            (r"does not exist; this server has", "models by any name"),
            (r"(Response|Previous response) with id '", "a response that nobody has made"),
            (r'limit is "0"', "a limit of 0"),
            (r"test_embeddings.*\[strict\]|test_embeddings(.|\n)*expected schema", "base64, which the SDK requests, by its strict schema of numbers"),
        )),
    "anthropic-sdk-python": Suite(
        ".", ("tests/api_resources/test_messages.py", "tests/api_resources/test_models.py",
              "tests/api_resources/beta/test_messages.py", "tests/api_resources/beta/test_models.py"),
        ("src", "."), of_url("TEST_API_BASE_URL"), ((r"does not exist; this server has", "models by any name"),)),
    "huggingface_hub": Suite(
        ".", ("tests/test_inference_client.py", "tests/test_inference_async_client.py", "tests/test_inference_text_generation.py"),
        ("src", "."), lambda _: {"HF_TOKEN": "hf_none"}, (
            (r"405 Method Not Allowed' for url 'http://127\.0\.0\.1:\d+(/models/|/?')", "the hub's tasks at /models/NAME"),
            (r"test_chat_completion_with_non_tgi", "answers by the name that a request has"),
            (r"with_stream_true|async_chat_completion_(not_tgi_)?no_stream|1, 2, 3, 4, 5", "another model"),
        ), (NAME, "*"), stand_ins=True, words=("-k", "not mime and not pil_image"), context="2048"),
    "vllm": Suite(
        ".", tuple(f"tests/{folder}/test_{name}.py" for folder, names in (
            ("entrypoints/openai", "return_tokens_as_ids return_token_ids chunked_prompt"),
            ("entrypoints/openai/models", "models"),
            ("entrypoints/openai/completion", "completion token_in_token_out prompt_validation"),
            ("entrypoints/openai/chat_completion",
             "chat chat_completion chat_echo chat_logit_bias_validation batched_chat_completions completion_with_function_calling "
             "enable_force_include_usage include_reasoning logprob_token_ids root_path thinking_token_budget"),
            ("entrypoints/openai/responses", "simple basic errors function_call stateful structured_output"),
            ("entrypoints/anthropic", "messages"),
            ("entrypoints/cohere", "chat_v2"),
            ("entrypoints/serve/tokenize", "tokenization"),
            ("entrypoints/serve/instrumentator", "basic metrics orca_metrics"),
            ("entrypoints/pooling/embed", "online online_dimensions online_long_text cohere_online cohere_openai_parity"),
            ("entrypoints/pooling/scoring", "bi_encoder_online cross_encoder_online"),
            ("entrypoints/pooling/basic", "truncation"),
            ("entrypoints/rl/state_transitions", "sleep"),
            ("entrypoints/scale_out/token_in_token_out", "serving_tokens"),
            ("entrypoints/tool_parsers", "hermes_tool_parser granite4_tool_parser"),
            ("tool_use", "chat_completions parallel_tool_calls tool_calls"),
        ) for name in names.split()),
        (".",), None, (
            (r"/v2/embed|cohere_online|cohere_openai_parity", "/v2/embed"), (r"test_chat_v2", "/cohere/v2/chat"),
            (r"/invocations|test_invocations", "/invocations"), (r"no such path: /pooling|test_pooling", "/pooling"),
            (r"serving_tokens", "/inference/v1/generate"), (r"no attribute 'id'", "ids of embeddings"),
            (r"does not exist; this server has|test_check_models", "LoRA adapters"),
            (r"test_return_tokens_as_ids.*\[True\]|force_include_usage|per_request_metrics|rust_frontend_version",
             "a server with other options"),
            (r"endpoint-load-metrics", "ORCA's load in headers"), (r"_get_sleep_metrics_from_api", "metrics by vLLM's names"),
            (r"output_tokens == 0|prompt_tokens == usage\.input_tokens", "usage of a message's start as vLLM counts it"),
            (r"\+ invalid_request_error|literal_error|'bad\d' in|assert '\d+' in 'Error|Expected regex|greater_than_equal|validation_error_returns"
             r"|max_model_len\b(.|\n)*context length|non-negative integer", "errors by vLLM's words"),
            (r"long_text", "embeddings of more than the context, by parts"), (r"\{'content': ", "an answer of one member alone"),
            (r"test_tokenize_chat_with_tools", "a prompt without the tools that the template leaves out"),
            (r"more than 67108864 bytes", "answers of more than 64 MiB"), (r"max_tokens_per_doc", "max_tokens_per_doc"),
            (r"len\((reasoning|output)\) > 0|no attribute 'reasoning'|Expected reasoning|details is not None|reasoning is not None"
             r"|thinking_token_budget is|== \"reasoning\"", "a model that reasons"),
            (r"\['response\.created'\]|len\(stack_of_event_types\)|maximum context length is 2048", "a model that ends, or has a longer context"),
            (r"startswith\('<tool_call>|endswith\(response_text\)|finish_reason == \"length\"|usage == openai|Unterminated string|== \{\"result\": 2\}"
             r"|\+ 1\+1 = 2|tool_call(s|_item)? is not None|tool_call_items\) >= 2|\"(312|30|Mark|John)\" in|participants\) == 2|science fair"
             r"|stop_reason ==|prompt_logprobs\[3\]|== input_tokens"
             r"|relevance_score|finish_reason == \"tool_calls\"|tool_call(s|_chunks)\) == 1|test_stop_sequence_interference|\"78\" in", "another model"),
            (r"test_use_activation", "use_activation"),
            (r"fixture 'hf_\w+' not found", "a comparison with Transformers in one process"),
        ), stand_ins=True, words=("--confcutdir=tests/entrypoints",)),
    "sglang": Suite(
        "test", ("registered/openai_server", "manual/openai_server", "registered/prefill_only/test_openai_embedding.py"),
        (".",), None, (
            (r"KeyError: 'matched_stop'", "matched_stop"), (r"test_finish_stop_regex_str", "stop_regex"),
            (r"test_token_ids_logprob|KeyError: 'meta_info'", "SGLang's own /generate"),
            (r"not found in tools list|invalid 'parameters' schema|longer than the model's context|_completion_tokens is too large",
             "errors by SGLang's words"),
            (r"test_conflicting_defs_required", "a 400 for two tools with $defs of one name, which are kept apart here"),
            (r"TestOpenAIV1Rerank", "a ranking as a bare list"), (r"TestOpenAIV1Score", "scores by label_token_ids"),
            (r"'incomplete' = Response|`response\.completed` event", "a response that its limit ends as completed"),
            (r"'prompt_tokens' not found in \{'input_tokens'", "a response's usage by the names of chats"),
            (r"no attribute 'reasoning_content'", "reasoning_content in every delta"),
            (r"test_retrieve_model", "a 404 for /v1/models/NAME where requests may have any"),
            (r"TestCacheReport", "a prefix cache by the token, not the block"),
            (r"SmartHome Mini|line 3 column \d+|Adding system message|Expected tool_use|No tool_calls found|isinstance\(None, list\)"
             r"|should be 'add'|not found in the streaming chunks|test_function_call_strict|Expected (\d )?tool calls|576 != 1536", "another model"),
        ), stand_ins=True, words=("--ignore=registered/openai_server/basic/test_serving_transcription.py",
                                  "--ignore=registered/openai_server/validation/test_large_max_new_tokens.py")),
    "llama.cpp": Suite(
        "tools/server/tests", tuple(f"unit/test_{name}.py" for name in (
            "basic", "completion", "chat_completion", "tokenize", "embedding", "infill", "security",
            "compat_anthropic", "compat_oai_responses", "ctx_shift")),
        (".",), of_port, (
            (r"port=8084|huggingface\.co", "models that are fetched"),
            (r"post_sampling", "post_sampling_probs"), (r"response_fields", "response_fields"),
            (r"api_key|wrong_key|test_server_(props|models|slots|model_aliases)|no_webui|nocache_long|stream_vs_non_stream"
             r"|tokens_input|ctx_shift|chat_template|prompt_too_long|test_cors_options|test_return_progress", "a server with other options"),
            (r"match_regex|re_content|re\.(search|match)|n_prompt|prompt_n|n_predicted|with_bos|usage_|test_infill", "another model"),
            (r"startswith\('b'\)|startswith of str", "a fingerprint that begins with b"),
            (r"'' is None|content=''", "a first delta without content"),
            (r"test_context_size_exceeded|test_invalid_chat_completion_req", "errors by llama.cpp's names"),
            (r"pooling_none|mixed_input", "embeddings of each token, empty and mixed inputs"),
            (r"test_local_media_file|multimodal|vision", "images"),
            (r"test_anthropic_empty_messages", "messages without one, which Anthropic refuses too"),
        ), ("tinyllama-2", "codellama70b", "test", NAME), 8082),
}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def names_of(suite, repo):
    """The names that the tests call models by."""
    found = set(suite.names)
    for place in suite.tests:
        path = repo / suite.folder / place
        for source in path.rglob("*.py") if path.is_dir() else [path]:
            found |= set(re.findall(r'model="([^"]{1,60})"', source.read_text()))
    return sorted(found)


def start_server(arguments, suite, log):
    port = suite.port or free_port()
    names = [word for name in names_of(suite, arguments.repo) for word in ("--served-model-name", name)]
    process = subprocess.Popen([arguments.binary, "serve", "--model", arguments.model, "--port", str(port), *names,
                                "--max-model-len", suite.context, "--response-store-bytes", "16M"], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(url + "/health").close()
            return process, url
        except urllib.error.URLError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    process.kill()
    sys.exit("the server does not start: " + Path(log.name).read_text(errors="replace")[-2000:])


def feature_of(suite, name, text):
    """What a failed test asks for that is not served, or None."""
    for pattern, feature in suite.lacking:
        if re.search(pattern, name) or re.search(pattern, text):
            return feature
    refused = re.search(r"""(['"])code\1: ?['"](unsupported_\w+|invalid_type|unknown_tool)['"]""", text)
    found = re.search(r"""(['"])param\1: ?['"](.+?)['"]""", text) if refused else None
    if found:
        return "field " + re.sub(r"\[\d+\]", "[]", found.group(2))
    found = re.search(r"no such path: (\S+?)['\"\\}]", text) or re.search(r"(?:message': '|Error code: 400 - .*?)([\w.\[\]]+) (?:is not supported|must be)", text)
    return found and re.sub(r"\[\d+\]", "[]", found.group(1))


def sort_results(suite, report):
    passed, skipped, lacking, ours = 0, 0, collections.defaultdict(list), []
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        trouble = [part for part in case if part.tag in ("failure", "error")]
        if not trouble:
            is_skipped = any(part.tag == "skipped" for part in case)
            passed, skipped = passed + (not is_skipped), skipped + is_skipped
            continue
        text = "".join((part.get("message") or "") + (part.text or "") for part in trouble)
        feature = feature_of(suite, name, text)
        if feature:
            lacking[feature].append(name)
        else:
            ours.append((name, text.strip().splitlines()[-1][:300]))
    return passed, skipped, lacking, ours


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--repo", type=Path, required=True, help="a checkout of the suite's repository")
    parser.add_argument("--binary", default="build/server/quire")
    parser.add_argument("--model", required=True)
    arguments, words = parser.parse_known_args()
    suite, repo = SUITES[arguments.suite], arguments.repo.resolve()
    arguments.repo = repo
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "server.log", "w") as log:
        process, url = start_server(arguments, suite, log) if suite.environment else (None, "")
        path = [str(repo / suite.folder / part) for part in suite.path] + [str(Path(__file__).parent)] * suite.stand_ins
        environment = {**os.environ, **(suite.environment(url) if suite.environment else {}), "PYTHONPATH": os.pathsep.join(path), "SUITE": arguments.suite,
                       "SUITE_BINARY": os.path.abspath(arguments.binary), "SUITE_MODEL": os.path.abspath(arguments.model),
                       "SUITE_REPO": str(repo), "SUITE_URL": url}
        report = Path(folder) / "report.xml"
        tests = [test for test in suite.tests if (repo / suite.folder / test).exists()]
        try:
            subprocess.run([sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}",
                            *(("-p", "suite_plugin") if suite.stand_ins else ()), *suite.words, *tests, *words], cwd=repo / suite.folder, env=environment)
        finally:
            if process:
                process.terminate()
                process.wait()
        if not report.exists():
            sys.exit("pytest made no report")
        passed, skipped, lacking, ours = sort_results(suite, report)
    print(f"\n{arguments.suite}: {passed} passed, {skipped} skipped, {sum(map(len, lacking.values()))} for what is not served, "
          f"{len(ours)} of ours")
    for feature, names in sorted(lacking.items(), key=lambda item: -len(item[1])):
        print(f"  {len(names):4} {feature}")
    for name, text in ours:
        print(f"  ours: {name}: {text}")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
