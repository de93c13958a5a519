#!/usr/bin/env python3
"""Compares masks of tokens with those of xgrammar and llguidance, and how long they take.

    compare_grammars.py BUILD/scripts/compare/grammar_steps MODEL.gguf|FOLDER SCHEMAS...

SCHEMAS are files and folders of groups as in the JSON Schema Test Suite (check_schemas.py); regular expressions and grammars are
listed below. Every program steps through the same tokens of the same texts, one program after the other for each grammar, and JSON
has no white space in any of them. Times are the processor's, of one thread: compiling; the first token of a grammar that is new; and for each token,
mask and step, with a grammar that was just compiled. The others are called from Python, which costs them some 2 us a call.

Where two masks differ, a token that only one of them allows is tried: the text is ended by the masks of the one that allows it, and
what comes out is judged by the jsonschema package, or Python's re. Counted is for how many such tokens the text is valid (the other
one is too narrow), and for how many it is not (this one allows too much). What Quire is narrow in on purpose (json_schema.h) is told apart
by asking it for the same value in its own way of writing, and for the schema that says what Quire takes to be meant.

Needs the packages xgrammar, llguidance, tokenizers, gguf and jsonschema.
"""

import argparse
import collections
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import time

import llguidance
import llguidance.numpy
import numpy
import xgrammar
from tokenizers import Tokenizer, decoders

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "tests" / "schemas")]
import check_schemas
import check_tokenizer

REGEXES = [
    (r"\d{4}-\d{2}-\d{2}", ["2024-02-29", "1999-12-31"]),
    (r"[A-Z][a-z]+( [A-Z][a-z]+)*", ["Ada Lovelace", "Grace Brewster Murray Hopper"]),
    (r"(yes|no|maybe)", ["yes", "maybe"]),
    (r"[a-z0-9._]{1,20}@[a-z]{1,10}\.(com|org)", ["jane.doe@example.org"]),
    (r"\+?[0-9]{1,3}( [0-9]{2,4}){2,4}", ["+44 20 7946 0123"]),
    (r"(GET|PUT|POST) /[a-z/]{0,40} HTTP/1\.[01]", ["POST /v1/chat/completions HTTP/1.1"]),
    (r"[^,\n]{1,60}(,[^,\n]{1,60}){2}", ["first field,second field of a line,third"]),
    (r"#[0-9a-fA-F]{6}", ["#00ff7F"]),
]
GBNF = [
    ('root ::= expr\nexpr ::= term (("+" | "-") term)*\nterm ::= factor (("*" | "/") factor)*\n'
     'factor ::= [0-9]+ | "(" expr ")"\n', ["12*(3+45)-6/(7)", "((1))"]),
    ('root ::= "- " item ("\\n- " item)*\nitem ::= [a-zA-Z ]+\n', ["- first thing\n- second thing\n- third"]),
    ('root ::= move (" " move)*\nmove ::= [NBRQK]? [a-h]? "x"? [a-h] [1-8] ("+" | "#")?\n', ["e4 e5 Nf3 Nc6 Bb5 a6 Bxc6"]),
]
# The same for Lark's notation, which llguidance reads with a lexer: rules over single characters mean the same there.
LARK = [
    ('start: pair ("," pair)*\npair: KEY "=" VALUE\nKEY: /[a-z]+/\nVALUE: /[0-9]+/\n', ["width=640,height=480,x=1"]),
    ('start: "SELECT " NAME (", " NAME)* " FROM " NAME\nNAME: /[a-z_]+/\n', ["SELECT id, name, created_at FROM users"]),
]
MAX_TRIED = 12  # differing tokens of a grammar and pair that are tried
MAX_ENDING = 80  # tokens of an ending


def now():
    return time.thread_time_ns()


# --- The three ---


class Quire:
    name = "quire"

    def __init__(self, program, model, vocab_size):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.words = (vocab_size + 31) // 32

    def run(self, kind, grammar, texts):
        """Returns compile time, and for each text the masks, cold and warm times; or why not."""
        case = {"kind": {"gbnf": "grammar", "lark": "grammar"}.get(kind, kind), "grammar": grammar, "texts": texts}
        self.process.stdin.write(json.dumps(case).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"grammar_steps ended: {grammar}")
        answer = json.loads(line)
        if "error" in answer:
            return answer["error"]
        out = []
        for text in answer["texts"]:
            count = len(text["cold_ns"])
            masks = numpy.frombuffer(self.process.stdout.read(count * self.words * 4), dtype=numpy.uint32)
            out.append((masks.reshape(count, self.words), text["cold_ns"], text["warm_ns"]))
        return answer["build_ns"], out

    def walker(self, kind, grammar):
        return QuireWalker(self, kind, grammar)


class QuireWalker:
    def __init__(self, quire, kind, grammar):
        self.quire, self.kind, self.grammar = quire, kind, grammar

    def mask(self, tokens):
        masks = self.quire.run(self.kind, self.grammar, [tokens])[1][0][0]
        return masks[-1] if len(masks) == len(tokens) + 1 else None


class Peer:
    """One that is called from Python: `compile` returns what `matcher` begins texts with."""

    def run(self, kind, grammar, texts):
        out, build_ns = [], None
        for text in texts:
            begin = now()
            try:
                compiled = self.compile(kind, grammar)
            except Exception as error:
                return str(error).split("\n")[0]
            build_ns = build_ns or now() - begin
            passes = [self.follow(compiled, text) for _ in range(2)]
            out.append((passes[0][0], passes[0][1], passes[1][1]))
        return build_ns, out

    def follow(self, compiled, text):
        masks, times = [], []
        begin = now()
        matcher = self.matcher(compiled)
        for token in [*text, None]:
            mask = self.fill(matcher)
            accepted = token is not None and self.accept(matcher, token)
            times.append(now() - begin)
            masks.append(mask.copy())
            if not accepted:
                break
            begin = now()
        return numpy.array(masks), times

    def walker(self, kind, grammar):
        return PeerWalker(self, self.compile(kind, grammar))


class PeerWalker:
    def __init__(self, peer, compiled):
        self.peer, self.compiled = peer, compiled

    def mask(self, tokens):
        matcher = self.peer.matcher(self.compiled)
        for token in tokens:
            self.peer.fill(matcher)
            if not self.peer.accept(matcher, token):
                return None
        return self.peer.fill(matcher)


class XGrammar(Peer):
    name = "xgrammar"

    def __init__(self, pieces, end):
        info = xgrammar.TokenizerInfo(pieces, xgrammar.VocabType.RAW, vocab_size=len(pieces), stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.tensor = xgrammar.allocate_token_bitmask(1, len(pieces))
        self.view = self.tensor.numpy()[0].view(numpy.uint32)

    def compile(self, kind, grammar):
        if kind == "json":
            return self.compiler.compile_json_schema(json.dumps(grammar), any_whitespace=False, separators=(",", ":"))
        if kind == "regex":
            return self.compiler.compile_regex(grammar)
        return self.compiler.compile_lark(grammar) if kind == "lark" else self.compiler.compile_grammar(grammar)

    def matcher(self, compiled):
        return xgrammar.GrammarMatcher(compiled)

    def fill(self, matcher):
        if not matcher.fill_next_token_bitmask(self.tensor):
            self.tensor.fill_(-1)
        return self.view

    def accept(self, matcher, token):
        return matcher.accept_token(token)


class LLGuidance(Peer):
    name = "llguidance"

    def __init__(self, tokenizer, end):
        self.tokenizer = llguidance.LLTokenizer(tokenizer.to_str(), n_vocab=tokenizer.get_vocab_size(), eos_token=end)
        self.mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.get_vocab_size())
        self.view = self.mask[0].view(numpy.uint32)

    def compile(self, kind, grammar):
        if kind == "json":
            text = llguidance.LLMatcher.grammar_from_json_schema(
                json.dumps(grammar), overrides={"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"})
        elif kind == "regex":
            text = llguidance.LLMatcher.grammar_from_regex(grammar)
        elif kind == "lark":
            text = llguidance.LLMatcher.grammar_from_lark(grammar)
        else:
            from llguidance.gbnf_to_lark import gbnf_to_lark
            text = llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(grammar))
        matcher = llguidance.LLMatcher(self.tokenizer, text, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def matcher(self, compiled):
        return compiled.deep_copy()

    def fill(self, matcher):
        llguidance.numpy.fill_next_token_bitmask(matcher, self.mask, 0)
        return self.view

    def accept(self, matcher, token):
        return matcher.consume_token(token)


# --- Differences ---


class Judge:
    """Ends a text by one's masks, and says whether what comes out is valid."""

    def __init__(self, pieces, end):
        self.pieces, self.end = pieces, end
        bits = numpy.array([bool(piece) or t == end for t, piece in enumerate(pieces)])
        self.compared = numpy.packbits(numpy.pad(bits, (0, -len(bits) % 32)), bitorder="little").view(numpy.uint32)
        order = sorted(range(len(pieces)), key=lambda t: self.rank(pieces[t]))
        self.order = numpy.array([t for t in order if pieces[t] and t != end][:4000])

    def rank(self, piece):
        """Closes what is open first, then the shortest."""
        first = [b'"', b"}", b"]", b")"]
        return first.index(piece) if piece in first else 10 + len(piece) + (not piece.isalnum())

    def end_text(self, walker, tokens):
        tokens = list(tokens)
        for _ in range(MAX_ENDING):
            mask = walker.mask(tokens)
            if mask is None:
                return None
            if mask[self.end // 32] >> (self.end % 32) & 1:
                return b"".join(self.pieces[t] for t in tokens)
            allowed = self.order[(mask[self.order // 32] >> (self.order % 32).astype(numpy.uint32) & 1).astype(bool)]
            if len(allowed) == 0:
                return None
            tokens.append(int(allowed[0]))
        return None

    def is_valid(self, kind, grammar, text):
        """None: not known."""
        try:
            text = text.decode()
        except UnicodeDecodeError:
            return False
        if kind == "regex":
            return check_schemas.ecma_regex(grammar).fullmatch(text) is not None
        if kind != "json":
            return None
        try:
            value = json.loads(text)
        except ValueError:
            return False
        try:
            return check_schemas.reference(grammar).is_valid(value)
        except Exception:
            return None


def tokens_of(mask):
    return numpy.flatnonzero(numpy.unpackbits(mask.view(numpy.uint8), bitorder="little"))


class Comparison:
    def __init__(self, programs, judge, samples):
        self.programs, self.judge, self.samples = programs, judge, samples
        self.build, self.first = collections.defaultdict(list), collections.defaultdict(list)
        self.cold, self.warm = collections.defaultdict(list), collections.defaultdict(list)
        self.counts = collections.Counter()
        self.wrong, self.narrow = [], []

    def add_times(self, name, result):
        build_ns, texts = result
        self.build[name].append(build_ns)
        for index, (_, cold, warm) in enumerate(texts):
            if index == 0:
                self.first[name].append(build_ns + cold[0])
            self.cold[name] += cold
            self.warm[name] += warm

    def try_token(self, kind, grammar, one, other, prefix, token):
        text = self.judge.end_text(one.walker(kind, grammar), [*prefix, int(token)])
        if text is None:
            return "not ended"
        valid = self.judge.is_valid(kind, grammar, text)
        verdict = {True: f"valid: {other.name} is too narrow", False: f"invalid: {one.name} allows too much", None: "not judged"}[valid]
        if valid is False and one.name == "quire":
            self.wrong.append((kind, grammar, text))
        if valid and other.name == "quire":
            verdict = f"valid: {self.why_narrow(kind, grammar, text)}"
            if verdict.endswith("narrow"):
                self.narrow.append((kind, grammar, text))
        return verdict

    def why_narrow(self, kind, grammar, text):
        if kind != "json" or self.samples is None:
            return "quire is too narrow"
        value = json.loads(text)
        texts = [check_schemas.text_of(value, check_schemas.property_order(grammar, {}))]
        if any(0xD800 <= ord(c) < 0xE000 for c in "".join(texts)):
            return "quire has no halves of surrogate pairs"
        if any(self.samples.ask(schema=grammar, texts=texts).get("accepted", [])):
            return "quire writes the value another way (digits, escapes, order)"
        if any(self.samples.ask(schema=check_schemas.widen(grammar), texts=texts).get("accepted", [])):
            return "quire keeps objects, arrays and types to what the schema names"
        if check_schemas.has_large_number(value):
            return "quire has numbers of up to 20 digits"
        return "quire is too narrow"

    def compare_masks(self, kind, grammar, texts, ours, other, theirs):
        tried = collections.Counter()
        for text, (our_masks, *_), (their_masks, *_) in zip(texts, ours, theirs):
            for step in range(min(len(our_masks), len(their_masks))):
                differing = (our_masks[step] ^ their_masks[step]) & self.judge.compared
                self.counts[f"{other.name}: masks"] += 1
                if not differing.any():
                    self.counts[f"{other.name}: masks that are the same"] += 1
                    continue
                for one, two, mask in ((self.programs[0], other, our_masks[step]), (other, self.programs[0], their_masks[step])):
                    tokens = [t for t in tokens_of(differing & mask) if self.judge.pieces[t]]
                    room = max(0, MAX_TRIED - tried[one.name])
                    for token in tokens[:: max(1, len(tokens) // 3)][: min(4, room)]:
                        tried[one.name] += 1
                        verdict = self.try_token(kind, grammar, one, two, text[:step], token)
                        self.counts[f"{other.name}: only {one.name} allows it; {verdict}"] += 1

    def run(self, kind, grammar, texts):
        results = [program.run(kind, grammar, texts) for program in self.programs]
        for program, result in zip(self.programs, results):
            if isinstance(result, str):
                self.counts[f"{program.name}: refuses {kind}"] += 1
        if isinstance(results[0], str):
            return
        for program, result in zip(self.programs, results):
            if not isinstance(result, str):
                self.add_times(program.name, result)
        for program, result in zip(self.programs[1:], results[1:]):
            if not isinstance(result, str):
                self.compare_masks(kind, grammar, texts, results[0][1], program, result[1])

    def report(self):
        def at(values, share):
            values = sorted(values)
            return values[min(int(share * len(values)), len(values) - 1)] / 1e3 if values else float("nan")

        print(f"{'us':12} {'grammars':>9} {'compile p50':>12} {'first p50':>10} {'p99':>9} "
              f"{'tokens':>7} {'cold p50':>9} {'p99':>9} {'most':>9} {'warm p50':>9} {'p99':>9}")
        for program in self.programs:
            n = program.name
            print(f"{n:12} {len(self.build[n]):9} {at(self.build[n], 0.5):12.1f} {at(self.first[n], 0.5):10.1f} {at(self.first[n], 0.99):9.1f} "
                  f"{len(self.cold[n]):7} {at(self.cold[n], 0.5):9.1f} {at(self.cold[n], 0.99):9.1f} {at(self.cold[n], 1):9.1f} "
                  f"{at(self.warm[n], 0.5):9.1f} {at(self.warm[n], 0.99):9.1f}")
        for name, count in sorted(self.counts.items()):
            print(f"{count:8} {name}")
        for title, found in (("quire allows what is not valid", self.wrong), ("quire does not allow what is valid", self.narrow)):
            print(f"{title}: {len(found)} texts")
            for kind, grammar, text in found[:: max(1, len(found) // 15)][:15]:
                print(f"  {kind} {json.dumps(grammar)[:200]}\n    {text[:120]!r}")


# --- Texts ---


def read_tokenizer(path):
    if pathlib.Path(path).is_dir():
        tokenizer = Tokenizer.from_file(str(pathlib.Path(path) / "tokenizer.json"))
    else:
        tokenizer = check_tokenizer.build(*check_tokenizer.read_model(path))
    tokenizer.decoder = decoders.ByteLevel()
    to_byte = {c: b for b, c in check_tokenizer.byte_alphabet().items()}
    special = {t for t, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    pieces = []
    for token in range(tokenizer.get_vocab_size()):
        text = tokenizer.id_to_token(token)
        pieces.append(b"" if token in special else bytes(to_byte[c] for c in text))
    return tokenizer, pieces


def schema_cases(names, samples, limit):
    """Schemas with texts: valid instances of theirs, and texts that were drawn from Quire's grammar."""
    count = 0
    for path in check_schemas.files_of(names):
        for group in check_schemas.groups_of(path):
            if count == limit or "\\u0000" in json.dumps(group):
                continue
            schema, order = group["schema"], check_schemas.property_order(group["schema"], {})
            texts = [check_schemas.write(check_schemas.reorder(test["data"], order)) for test in group["tests"] if test["valid"]][:3]
            drawn = samples.ask(schema=schema, texts=[], samples=2, seed=count).get("samples", []) if samples else []
            texts += [check_schemas.write(json.loads(text)) for text in drawn if text is not None]
            if texts:
                count += 1
                yield "json", schema, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("schemas", nargs="*")
    parser.add_argument("--schema-texts", help="BUILD/tests/schemas/schema_texts: draws more texts of each schema")
    parser.add_argument("--limit", type=int, default=400, help="schemas that are looked at")
    parser.add_argument("--end", default="<|endoftext|>", help="the tokenizer's end token")
    options = parser.parse_args()
    tokenizer, pieces = read_tokenizer(options.model)
    end = tokenizer.token_to_id(options.end)
    judge = Judge(pieces, end)
    programs = [Quire(options.program, options.model, len(pieces)), XGrammar(pieces, end), LLGuidance(tokenizer, end)]
    samples = check_schemas.Texts(options.schema_texts) if options.schema_texts else None
    cases = [("regex", *case) for case in REGEXES] + [("gbnf", *case) for case in GBNF] + [("lark", *case) for case in LARK]
    comparison = Comparison(programs, judge, samples)
    for kind, grammar, texts in [*cases, *schema_cases(options.schemas, samples, options.limit)]:
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        comparison.run(kind, grammar, [i for i in ids if len(i) < 1000])
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("xgrammar", "llguidance")]
    print(f"{len(pieces)} tokens; {', '.join(versions)}")
    comparison.report()
    return 1 if comparison.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
