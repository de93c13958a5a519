#!/usr/bin/env python3
"""Writes tests/golden/grammars/NAME.lark.texts: texts that the Python package `lark` derives from NAME.lark, and the same
with a character changed, each with what lark's Earley parser says of it. That parser, with lexer="dynamic_complete",
tries terminals of every length, so that it takes what a context-free grammar without a lexer does.

    python3 scripts/golden/make_grammar_texts.py

Needs Python 3.11 and lark 1.3.1.
"""

import json
import pathlib
import random
import re
from re import _parser as regex_parser

import lark
from lark.grammar import NonTerminal

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/grammars"
NUM_TEXTS, MAX_LENGTH, MAX_DEPTH = 150, 90, 14
LETTERS = "".join(map(chr, range(32, 127))) + "\n\té"


def draw_class(rng, items):
    negated = items[0][0] == regex_parser.NEGATE
    pattern = "[" + "".join(write_class_item(item) for item in items) + "]"
    return rng.choice([c for c in LETTERS if re.match(pattern, c)] or [c for c in LETTERS if negated])


def write_class_item(item):
    kind, value = item
    if kind == regex_parser.NEGATE:
        return "^"
    if kind == regex_parser.RANGE:
        return "-".join(re.escape(chr(end)) for end in value)
    if kind == regex_parser.CATEGORY:
        return {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}[str(value)]
    return re.escape(chr(value))


def draw_regex(rng, parsed):
    """A text of the regular expression."""
    text = ""
    for kind, value in parsed:
        if kind == regex_parser.LITERAL:
            text += chr(value)
        elif kind == regex_parser.NOT_LITERAL:
            text += rng.choice([c for c in LETTERS if c != chr(value)])
        elif kind == regex_parser.IN:
            text += draw_class(rng, value)
        elif kind == regex_parser.ANY:
            text += rng.choice(LETTERS.replace("\n", ""))
        elif kind == regex_parser.BRANCH:
            text += draw_regex(rng, rng.choice(value[1]))
        elif kind == regex_parser.SUBPATTERN:
            text += draw_regex(rng, value[3])
        elif kind in (regex_parser.MAX_REPEAT, regex_parser.MIN_REPEAT):
            least, most, item = value
            text += "".join(draw_regex(rng, item) for _ in range(rng.randint(least, min(most, least + 2))))
        elif kind not in (regex_parser.ASSERT, regex_parser.ASSERT_NOT):
            raise ValueError(kind)
    return text


class Deriver:
    def __init__(self, parser, rng):
        self.rng = rng
        self.rules = {}
        for rule in parser.rules:
            self.rules.setdefault(rule.origin.name, []).append(rule.expansion)
        self.patterns = {t.name: t.pattern.to_regexp() for t in parser.terminals}
        self.ignored = list(parser.ignore_tokens)

    def terminal(self, name):
        return draw_regex(self.rng, regex_parser.parse(self.patterns[name]))

    def gap(self):
        return self.terminal(self.rng.choice(self.ignored)) if self.ignored and self.rng.random() < 0.2 else ""

    def rule(self, name, depth):
        choices = self.rules[name]
        if depth > MAX_DEPTH:
            choices = sorted(choices, key=lambda e: sum(isinstance(s, NonTerminal) for s in e))[:1]
        if depth > 4 * MAX_DEPTH:
            raise RecursionError
        return "".join(self.rule(s.name, depth + 1) if isinstance(s, NonTerminal) else self.terminal(s.name) + self.gap()
                       for s in self.rng.choice(choices))


def change(rng, text):
    at = rng.randrange(len(text) + 1)
    other = rng.choice(text + LETTERS)
    return rng.choice([text[:at] + text[at + 1:], text[:at] + other + text[at:], text[:at] + other + text[at + 1:],
                       text[:at]])


def matches(parser, text):
    try:
        parser.parse(text)
        return True
    except lark.exceptions.UnexpectedInput:
        return False


def main():
    for path in sorted(FOLDER.glob("*.lark")):
        rng = random.Random(path.name)
        parser = lark.Lark(path.read_text(), parser="earley", lexer="dynamic_complete", ambiguity="resolve")
        deriver = Deriver(parser, rng)
        texts = set()
        while len(texts) < NUM_TEXTS:
            try:
                text = deriver.gap() + deriver.rule("start", 0)
            except RecursionError:
                continue
            if len(text) <= MAX_LENGTH:
                texts |= {text, change(rng, text), change(rng, change(rng, text))}
        verdicts = [(matches(parser, text), text) for text in sorted(texts)]
        lines = [f"{'+' if good else '-'} {json.dumps(text)[1:-1]}\n" for good, text in verdicts]
        path.with_suffix(".lark.texts").write_text("".join(lines))
        print(path.name, sum(good for good, _ in verdicts), "of", len(verdicts), "match")


if __name__ == "__main__":
    main()
