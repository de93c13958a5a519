#!/usr/bin/env python3
"""Compares our tokenizer of GGUF files of kind `llama` with SentencePiece and with Hugging Face's.

    check_sentencepiece.py BUILD/scripts/compare/tokenize_file
    check_sentencepiece.py --write-cases tests/unit/models/tokenizer/sentencepiece_cases.txt

SentencePiece trains small BPE models with byte fallback; each is written as GGUF, as llama.cpp's
converter does, and as the tokenizer of `tokenizers` that Transformers' converter makes of it
(merges from scores). The three must agree on texts without and with a space prefix; SentencePiece
is given only texts that its normalisation leaves alone, and where it differs from Hugging
Face's, that is counted but no fault of ours.

Cases: the vocabulary in id order, then texts in hexadecimal with Hugging Face's ids.
    piece TYPE SCORE HEX
    case PREFIX HEX ID...      PREFIX 1: a space is put in front of each text

Needs the packages sentencepiece, tokenizers and gguf."""

import argparse
import io
import random
import subprocess
import struct
import sys
import tempfile
from pathlib import Path

import gguf
import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
import tokenizer_corpus

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def training_texts():
    """Words that a random mixture of all scripts would drown."""
    rng = random.Random(9)
    lines = tokenizer_corpus.PROSE + [line for code in tokenizer_corpus.CODE for line in code.split("\n") if line]
    return [" ".join(rng.choice(lines).split(" ")[:rng.randrange(1, 12)]) + rng.choice(["", "  ", " aaaa", "    x"])
            for _ in range(4000)]


def train(texts, size, prefix):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=size, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, split_digits=True, allow_whitespace_only_pieces=True, num_threads=1,
        hard_vocab_limit=False, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def pieces(sp):
    """(text, score, type) in id order."""
    kind = lambda i: (UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i)
                      else NORMAL)
    return [(sp.id_to_piece(i), sp.get_score(i), kind(i)) for i in range(sp.get_piece_size())]


def write_model(path, vocabulary, prefix):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in vocabulary])
    writer.add_token_scores([score for _, score, _ in vocabulary])
    writer.add_token_types([kind for _, _, kind in vocabulary])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def merges(vocabulary):
    """As generate_merges in transformers' convert_slow_tokenizer.py."""
    ids = {text: i for i, (text, _, _) in enumerate(vocabulary)}
    found = [(text[:k], text[k:], score) for text, score, _ in vocabulary for k in range(1, len(text))
             if text[:k] in ids and text[k:] in ids]
    found.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(left, right) for left, right, _ in found]


def hugging_face(vocabulary, prefix):
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, (text, _, _) in enumerate(vocabulary)},
                                     merges=merges(vocabulary), unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False)
                                  for text, _, kind in vocabulary if kind in (CONTROL, UNKNOWN)])
    tokenizer.encode_special_tokens = True
    return tokenizer


def ours(program, model, texts):
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    result = subprocess.run([program, model], input=data, stdout=subprocess.PIPE, check=True)
    return [[int(i) for i in line.split()] for line in result.stdout.decode().split("\n")[:-1]]


def check(program, size, prefix, num_bytes):
    texts = [t for t in tokenizer_corpus.valid_texts(num_bytes) if "\0" not in t and "▁" not in t]
    sp = train(training_texts(), size, prefix)
    vocabulary = pieces(sp)
    texts += tokenizer_corpus.all_code_points()[::40]
    hf = hugging_face(vocabulary, prefix)
    expected = [hf.encode(t, add_special_tokens=False).ids for t in texts]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "small.gguf")
        write_model(path, vocabulary, prefix)
        got = ours(program, path, [t.encode() for t in texts])
    wrong = [i for i in range(len(texts)) if got[i] != expected[i]]
    other = [i for i, t in enumerate(texts) if "\0" not in t and "▁" not in t and sp.encode(t) != expected[i]]
    print(f"{size} pieces, {'a' if prefix else 'no'} space prefix: {len(texts)} texts, "
          f"{sum(len(t.encode()) for t in texts)} bytes, {sum(map(len, expected))} tokens; "
          f"{len(wrong)} differ from Hugging Face's, of which SentencePiece has {len(other)} otherwise")
    for i in wrong[:3] + other[:3]:
        print(f"  {texts[i][:60]!r}: Hugging Face {expected[i][:12]}, SentencePiece {sp.encode(texts[i])[:12]}, "
              f"ours {got[i][:12]}")
    return len(wrong)


def write_cases(path):
    lines = []
    texts = [t for t in tokenizer_corpus.valid_texts(4_000, seed=11) if len(t) < 300]
    sp = train(training_texts(), 1500, True)
    vocabulary = pieces(sp)
    lines += [f"piece {kind} {score!r} {text.encode().hex()}" for text, score, kind in vocabulary]
    for prefix in (0, 1):
        hf = hugging_face(vocabulary, prefix)
        for text in texts:
            ids = hf.encode(text, add_special_tokens=False).ids
            lines.append(" ".join(["case", str(prefix), text.encode().hex() or "-", *map(str, ids)]))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--write-cases")
    args = parser.parse_args()
    if args.write_cases:
        write_cases(args.write_cases)
    wrong = 0
    for size in (2000, 4000) if args.program else ():
        for prefix in (True, False):
            wrong += check(args.program, size, prefix, args.bytes)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
