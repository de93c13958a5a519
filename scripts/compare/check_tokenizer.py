#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face's `tokenizers` on texts made up here.

    check_tokenizer.py BUILD/scripts/compare/tokenize_file MODEL.gguf      a model file
    check_tokenizer.py BUILD/scripts/compare/tokenize_file FOLDER...       the tokenizer.json in a folder, and
                                                                       model files beside it
    check_tokenizer.py BUILD/scripts/compare/tokenize_file --train         a small vocabulary for each
                                                                       known pre-tokenizer
    check_tokenizer.py --write-cases tests/unit/models/tokenizer/tokenizer_cases.txt

For a model file the Hugging Face tokenizer is built from the file's own vocabulary and merges, with
the pre-tokenizer that the model's tokenizer.json has; for a folder it is the tokenizer.json, with the
template that tokenizer_config.json requires (make_tokenizers.load). Compared are: 1 MB of texts with
and without special tokens parsed, and every code point of Unicode, assigned or not; for a folder also
the tokens around a prompt, what the tokens decode to, and texts with each added token at every kind of
place; all must be equal. Invalid UTF-8 has no counterpart there: the tokens' bytes must give back the
text, less the bytes that have no token.

Needs the packages tokenizers (0.2x, with Oniguruma: Unicode 16) and gguf."""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
import make_tokenizers
import tokenizer_corpus

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT_4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
               "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
CONTROL, USER_DEFINED = 3, 4


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(*regexes, digits=False):
    steps = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes]
    steps += [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    return pre_tokenizers.Sequence([*steps, byte_level(False)])


# The names our table has, one for each meaning; those in NFC_NAMES put texts into normal form C.
PRE_TOKENIZERS = {
    "gpt-2": lambda: byte_level(True),
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": lambda: split(LLAMA3),
    "qwen2": lambda: split(QWEN2),
    "qwen35": lambda: split(QWEN35),
    "olmo": lambda: byte_level(True),
    "command-r": lambda: PRE_TOKENIZERS["smollm"](),
    "dbrx": lambda: split(LLAMA3),
    "tekken": lambda: split(TEKKEN),
    "gpt-4o": lambda: split(GPT_4O),
    "deepseek-coder": lambda: split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", digits=True),
    "deepseek-v3": lambda: split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_V3),
}
NFC_NAMES = {"qwen2", "qwen35", "olmo", "command-r"}
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im"]


def byte_alphabet():
    """Character of each byte, as GPT-2 wrote them."""
    alphabet, following = {}, 256
    for byte in range(256):
        if 33 <= byte <= 126 or byte >= 161 and byte != 173:
            alphabet[byte] = chr(byte)
        else:
            alphabet[byte] = chr(following)
            following += 1
    return alphabet


def build(pre, tokens, types, merges):
    model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges],
                       ignore_merges=pre in ("llama-bpe", "tekken"))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    if pre in NFC_NAMES:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in zip(tokens, types) if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False)
                          for t, kind in zip(tokens, types) if kind == USER_DEFINED])
    return tokenizer


def read_model(path):
    fields = gguf.GGUFReader(path).fields
    get = lambda name: fields["tokenizer.ggml." + name].contents()
    return get("pre"), get("tokens"), get("token_type"), get("merges")


def train(pre, texts, size=3000):
    """Vocabulary of a tokenizer trained on texts: specials first, an added token last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    vocab = tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.get) + ["<added>"]
    types = [CONTROL if t in SPECIALS else USER_DEFINED if t == "<added>" else 1 for t in tokens]
    state = json.loads(tokenizer.to_str())
    return tokens, types, [" ".join(m) for m in state["model"]["merges"]]


def write_model(path, pre, tokens, types, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def run(program, model, texts, *flags):
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    result = subprocess.run([program, model, *flags], input=data, stdout=subprocess.PIPE, check=True)
    return result.stdout.decode().split("\n")[:-1]


def ours(program, model, texts, *flags):
    return [[int(i) for i in line.split()] for line in run(program, model, texts, *flags)]


def compare(name, texts, expected, got):
    different = [i for i in range(len(texts)) if expected[i] != got[i]]
    print(f"  {name}: {len(texts)} texts, {sum(len(t.encode()) for t in texts)} bytes, "
          f"{sum(map(len, expected))} tokens, {len(different)} texts differ")
    for i in different[:3]:
        at = next((k for k, (a, b) in enumerate(zip(expected[i], got[i])) if a != b), -1)
        print(f"    text {i}, token {at}: {expected[i][at:at + 4]} expected, {got[i][at:at + 4]} got, "
              f"of {texts[i][:60]!r}")
    return len(different) + abs(len(texts) - len(got))


def check_valid(program, model, hf, texts, name, ways=(((), True), (("--special",), False))):
    data, wrong = [t.encode() for t in texts], 0
    for flags, encode_special in ways:
        hf.encode_special_tokens = encode_special
        expected = [hf.encode(t, add_special_tokens=False).ids for t in texts]
        wrong += compare(f"{name} {' '.join(flags)}", texts, expected, ours(program, model, data, *flags))
    return wrong


def check_invalid(program, model, tokens, types, size):
    to_byte = {c: b for b, c in byte_alphabet().items()}
    missing = set(to_byte.values()) - {to_byte[t] for t in tokens if t in to_byte}
    texts, wrong = tokenizer_corpus.invalid_texts(size), 0
    for text, ids in zip(texts, ours(program, model, texts)):
        back = b"".join(tokens[i].encode() if types[i] == USER_DEFINED else
                        bytes(to_byte[c] for c in tokens[i]) for i in ids)
        wrong += back != bytes(b for b in text if b not in missing)
    print(f"  invalid UTF-8: {len(texts)} texts, {wrong} do not come back; bytes without a token: "
          f"{' '.join(f'{b:02x}' for b in sorted(missing)) or 'none'}")
    return wrong


def check(program, path, pre, tokens, types, merges, size):
    hf = build(pre, tokens, types, merges)
    wrong = check_valid(program, path, hf, tokenizer_corpus.valid_texts(size), "texts")
    wrong += check_valid(program, path, hf, tokenizer_corpus.all_code_points(), "code points")
    # Texts in normal form C need not be what they were.
    return wrong if pre in NFC_NAMES else wrong + check_invalid(program, path, tokens, types, size)


def added_texts(tokenizer, limit=200):
    """Texts around the added tokens, of which large lists of reserved ones are cut."""
    tokens = [t["content"] for t in tokenizer["added_tokens"]]
    tokens = tokens if len(tokens) <= limit else tokens[:limit // 2] + tokens[-limit // 2:]
    return [text for token in tokens for text in make_tokenizers.around_added(token)]


def check_folder(program, folder, size, code_points):
    """The tokenizer.json, and model files with the same vocabulary that lie beside it."""
    return sum(check_against_json(program, path, folder, size, code_points)
               for path in [folder, *Path(folder).glob("*.gguf")])


def check_against_json(program, path, folder, size, code_points):
    read = lambda name: json.loads(name.read_text(encoding="utf-8")) if name.exists() else None
    tokenizer, config = read(Path(folder) / "tokenizer.json"), read(Path(folder) / "tokenizer_config.json")
    hf, wrong = make_tokenizers.load(tokenizer, config), 0
    print(f" {path}")
    for name, texts in (("texts", tokenizer_corpus.valid_texts(size)), ("added tokens", added_texts(tokenizer)),
                        ("code points", tokenizer_corpus.all_code_points() if code_points else [])):
        if name != "code points":
            wrong += check_valid(program, path, hf, texts, name, ways=(((), True),))
        hf.encode_special_tokens = False
        lines = run(program, path, [t.encode() for t in texts], "--special", "--around", "--decode")
        expected = [hf.encode(t).ids for t in texts]
        wrong += compare(f"{name} --around", texts, expected, [[int(i) for i in line.split()] for line in lines[::2]])
        decoded = [hf.decode(ids, skip_special_tokens=False).encode() for ids in expected]
        different = [i for i in range(len(texts)) if decoded[i] != bytes.fromhex(lines[2 * i + 1])]
        print(f"  {name}: {len(different)} texts decoded otherwise",
              *(f"({decoded[i][:40]} {bytes.fromhex(lines[2 * i + 1])[:40]})" for i in different[:2]))
        wrong += len(different)
    return wrong


def check_trained(program, size):
    wrong = 0
    for pre in PRE_TOKENIZERS:
        print(pre)
        tokens, types, merges = train(pre, tokenizer_corpus.valid_texts(400_000, seed=7))
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "small.gguf")
            write_model(path, pre, tokens, types, merges)
            wrong += check(program, path, pre, tokens, types, merges, size)
    return wrong


def write_cases(path):
    """One vocabulary, and texts with their ids under each pre-tokenizer, as lines of words."""
    tokens, types, merges = train("gpt-2", tokenizer_corpus.valid_texts(100_000, seed=7), size=600)
    lines = [f"token {kind} {token}" for token, kind in zip(tokens, types)]
    lines += [f"merge {merge}" for merge in merges]
    texts = [t for t in tokenizer_corpus.valid_texts(4_000, seed=11) if len(t) < 500]
    for pre in PRE_TOKENIZERS:
        hf = build(pre, tokens, types, merges)
        for special in (0, 1):
            hf.encode_special_tokens = not special
            for text in texts if not special else tokenizer_corpus.ODD:
                ids = hf.encode(text, add_special_tokens=False).ids
                lines.append(" ".join(["case", pre, str(special), text.encode().hex() or "-", *map(str, ids)]))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("model", nargs="*")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--no-code-points", dest="code_points", action="store_false",
                        help="of a folder: much faster, as they are 5 MB")
    parser.add_argument("--write-cases")
    args = parser.parse_args()
    if args.write_cases:
        write_cases(args.write_cases)
    wrong = check_trained(args.program, args.bytes) if args.train else 0
    for path in args.model:
        print(path)
        one = (check_folder(args.program, path, args.bytes, args.code_points) if Path(path).is_dir() else
               check(args.program, path, *read_model(path), args.bytes))
        print(f"{path}: {one} differences", flush=True)
        wrong += one
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
