#!/usr/bin/env python3
"""Writes tests/golden/chat_templates/cases.json and texts.json: what Jinja2, set up as Transformers sets it up for chat
templates, makes of each template there with the conversations of chat_conversations.py. Fills in expressions.json: what
it makes of the small templates that stand there.

Run by hand after a deliberate change (needs transformers and jinja2):

    python scripts/golden/make_chat_template_cases.py tests/golden/chat_templates
    python scripts/golden/make_chat_template_cases.py tests/golden/chat_templates --show qwen3 tool_full

The second form prints one rendering. cases.json has

    now            what strftime_now takes for the time
    conversations  name -> the variables of a rendering
    errors         messages of raise_exception
    templates      name -> one word for each conversation, in order: ten hexadecimal digits, a hash of the text (the
                   lowest 40 bits of FNV-1a's 64), or ! and a number in `errors`, or ? where the template ends with
                   an error of another kind (an undefined value, a wrong type). ~ instead of the words: Jinja2 does
                   not compile it

expressions.json has

    now, variables  as above
    refused         templates that Jinja2 renders and chat_template_create refuses
    cases           topic -> pairs of a template and its text, null where Jinja2 ends with an error. To add one, write
                    it with null for its text and run this script

texts.json has some of these texts whole, for tests/e2e/api/test_templates.py: template -> conversation -> text.
"""
import argparse
import datetime
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils

from chat_conversations import CONVERSATIONS

NOW = 1751619903  # 2025-07-04 09:05:03 UTC, a Friday
BOS, EOS = "<|bos|>", "<|eos|>"

# One of every way to mark turns.
TEXT_TEMPLATES = """apertus aya-expanse chatml command-r-plus deepseek-r1-distill-qwen deepseek-v3 exaone-4 falcon-h1
    gemma-2 gemma-3 glm-4.5 granite-3.3 hunyuan-a13b internlm-2 jamba kimi-k2 lfm2 llama-2 llama-3 minimax-m2 mistral-v1
    mistral-v7-tekken openchat phi-3 phi-3.5-mini phi-4 phi-4-mini qwen2.5 qwen3 qwq seed-oss smollm2 vicuna yi
    zephyr""".split()
TEXT_CONVERSATIONS = "turns", "turns_with_system", "unicode", "tools_with_system"


class PinnedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


def variables_of(conversation):
    variables = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": BOS, "eos_token": EOS,
                 **conversation}
    variables["messages"] = chat_template_utils._alias_reasoning_fields(variables["messages"])
    return variables


def render(source, variables):
    """The text, or the error."""
    try:
        return chat_template_utils._compile_jinja_template(source).render(**variables)
    except Exception as error:  # whatever a template's code raises
        return error


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value & 0xFFFFFFFFFF:010x}"


def word_of(result, errors):
    if isinstance(result, str):
        return fnv1a(result)
    if type(result) is not jinja2.exceptions.TemplateError:
        return "?"
    if str(result) not in errors:
        errors.append(str(result))
    return f"!{errors.index(str(result))}"


def compiles(source):
    try:
        chat_template_utils._compile_jinja_template(source)
    except (jinja2.TemplateSyntaxError, SyntaxError):
        return False
    return True


def write_cases(folder, sources):
    errors = []
    conversations = {name: variables_of(conversation) for name, conversation in CONVERSATIONS.items()}
    templates = {}
    for name, source in sources.items():
        words = [word_of(render(source, variables), errors) for variables in conversations.values()]
        templates[name] = " ".join(words) if compiles(source) else "~"
    parts = [f'"now": {NOW}', '"conversations": {\n' + ",\n".join(
        f"{json.dumps(name)}: {json.dumps(variables, ensure_ascii=False)}"
        for name, variables in conversations.items()) + "}"]
    parts.append(f'"errors": {json.dumps(errors, ensure_ascii=False, indent=0)}')
    parts.append(f'"templates": {json.dumps(templates, indent=0)}')
    (folder / "cases.json").write_text("{" + ",\n".join(parts) + "}\n")
    words = [word for line in templates.values() for word in line.split()]
    print(f"{len(templates)} templates, {len(conversations)} conversations: {len(words)} renderings,",
          f"{sum(w[0] == '!' for w in words)} refused by the template, {sum(w[0] == '?' for w in words)} broken")


def write_expressions(folder):
    path = folder / "expressions.json"
    data = json.loads(path.read_text())
    results = {}
    for topic, cases in data["cases"].items():
        texts = [(source, render(source, data["variables"])) for source, _ in cases]
        results[topic] = [[source, text if isinstance(text, str) else None] for source, text in texts]
    broken = [source for source in data["refused"] if not isinstance(render(source, data["variables"]), str)]
    if broken:
        raise SystemExit(f"refused by Jinja2 as well: {broken}")

    def listed(items):
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "]"

    topics = ",\n".join(f"{json.dumps(topic)}: {listed(cases)}" for topic, cases in results.items())
    variables = json.dumps(data["variables"], ensure_ascii=False)
    path.write_text(f'{{"now": {NOW},\n"variables": {variables},\n"refused": {listed(data["refused"])},\n'
                    f'"cases": {{\n{topics}}}}}\n')
    texts = [text for cases in results.values() for _, text in cases]
    print(f"{len(texts)} expressions, {texts.count(None)} of them errors; {len(data['refused'])} refused")


def write_texts(folder, sources):
    """Those that do not ask for the time."""
    texts = {}
    for name in TEXT_TEMPLATES:
        results = {word: render(sources[name], variables_of(CONVERSATIONS[word])) for word in TEXT_CONVERSATIONS}
        if "strftime_now" not in sources[name]:
            texts[name] = {word: text for word, text in results.items() if isinstance(text, str)}
    (folder / "texts.json").write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(texts)} templates, {sum(map(len, texts.values()))} texts")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CONVERSATION"))
    options = parser.parse_args()
    chat_template_utils.datetime = PinnedTime
    sources = {path.stem: path.read_bytes().decode() for path in sorted(options.folder.glob("*.jinja"))}
    if options.show:
        print(render(sources[options.show[0]], variables_of(CONVERSATIONS[options.show[1]])))
        return
    write_cases(options.folder, sources)
    write_expressions(options.folder)
    write_texts(options.folder, sources)


if __name__ == "__main__":
    main()
