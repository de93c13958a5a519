#!/usr/bin/env python3
"""Runs a peer's own tests of its API, from a checkout of its public repository, against a server that it starts.

    run_suites.py openai-python --repo DIR --binary build/server/quire --model MODEL.gguf [words of pytest's command]

Prints the tests that passed, those that failed for something that is not served here, by what that is, and all others,
which are ours: ends with status 1 where there are any. Not served: the server's own 400 says that a field or value is
not supported, or its 404 that there is no such path; or the table below says why a test asks for another server's model
or options. The Python that runs this needs pytest and what the checkout's tests import."""

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
    environment: typing.Callable  # of the server's URL
    lacking: tuple = ()  # (pattern of a test's name or of what it says, feature)
    names: tuple = (NAME,)  # that the tests call the model by
    port: int = 0           # that they look for the server at


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
        ), ("tinyllama-2", "codellama70b", NAME), 8082),
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
                                "--max-model-len", "512", "--response-store-bytes", "16M"], stdout=log, stderr=log)
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
    refused = re.search(r"'code': '(unsupported_\w+|invalid_type|unknown_tool)'", text)
    found = re.search(r"'param': '([^']+)'", text) if refused else None
    if found:
        return "field " + re.sub(r"\[\d+\]", "[]", found.group(1))
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
        process, url = start_server(arguments, suite, log)
        environment = {**os.environ, **suite.environment(url),
                       "PYTHONPATH": os.pathsep.join(str(repo / suite.folder / part) for part in suite.path)}
        report = Path(folder) / "report.xml"
        tests = [test for test in suite.tests if (repo / suite.folder / test).exists()]
        try:
            subprocess.run([sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}",
                            *tests, *words], cwd=repo / suite.folder, env=environment)
        finally:
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
