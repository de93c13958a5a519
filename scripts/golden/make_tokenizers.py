#!/usr/bin/env python3
"""Makes the small tokenizers that test_tokenizer_json reads, one folder a family, with what Hugging
Face's `tokenizers` says of some texts.

    make_tokenizers.py tests/unit/models/tokenizers                the committed ones
    make_tokenizers.py DIR --size 32000 --bytes 3000000            large ones for check_tokenizer.py
    make_tokenizers.py tests/fuzz/corpus/tokenizer_json --fuzz     the fuzz target's first inputs

Each folder has tokenizer.json, most a tokenizer_config.json; the committed ones also cases.txt:

    FLAGS TEXT DECODED ID...   FLAGS: s special tokens are parsed, a the template's are added, - neither;
                               the text and what its ids decode to (special tokens written out) in
                               hexadecimal, "-" where empty, "=" where decoding gives the text back

Needs the package tokenizers (0.2x)."""

import argparse
import json
from pathlib import Path

from tokenizers import Tokenizer

import tokenizer_corpus
import tokenizer_families


def merges_as_text(name):
    """Older files have merges as one text each, newer ones as pairs; here every other family."""
    return list(tokenizer_families.FAMILIES).index(name) % 2 == 0


def write_folder(folder, name, texts, size):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, config = tokenizer_families.build(name, texts, size, merges_as_text(name))
    write = lambda file, value: (folder / file).write_text(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    write("tokenizer.json", tokenizer)
    if config is not None:
        write("tokenizer_config.json", config)
    return tokenizer, config


def around_added(content):
    """Texts in which an added token stands at every kind of place."""
    return [content, f"a {content} b", f" {content}\n {content}{content}x", f"x{content}y", f"{content} end",
            content[:-1], f"word{content}word lit lδ LΔ wordy word"]


def load(tokenizer, config):
    """The tokenizer as Transformers 5 uses it: with the template that the config's flags make."""
    config = config or {}
    hf = Tokenizer.from_str(json.dumps(tokenizer))
    if "add_bos_token" in config or "add_eos_token" in config:
        text = lambda key: config[key]["content"] if isinstance(config.get(key), dict) else config.get(key)
        before = [text("bos_token")] if config.get("add_bos_token") else []
        after = ["-" + text("eos_token")] if config.get("add_eos_token") else []
        template = tokenizer_families.resolve(tokenizer_families.around(*before, *after), hf.get_vocab())
        hf = Tokenizer.from_str(json.dumps(dict(tokenizer, post_processor=template)))
    return hf


def hexadecimal(text):
    return text.encode().hex() or "-"


def cases(name, tokenizer, config):
    hf = load(tokenizer, config)
    lines = []
    plain = [t for t in tokenizer_corpus.valid_texts(3_000, seed=11) if len(t) < 400]
    plain += tokenizer_families.FAMILIES[name].get("texts", [])
    special = [t for token in tokenizer["added_tokens"] for t in around_added(token["content"])]
    for flags, texts in (("-", plain + special), ("s", special), ("a", plain[:8] + [""]), ("sa", special[:14])):
        hf.encode_special_tokens = "s" not in flags
        for text in texts:
            ids = hf.encode(text, add_special_tokens="a" in flags).ids
            decoded = hf.decode(ids, skip_special_tokens=False)
            lines.append(" ".join([flags, hexadecimal(text), "=" if decoded == text else hexadecimal(decoded),
                                   *map(str, ids)]))
    return lines


def shrink(tokenizer):
    """The same pipeline over a handful of tokens, renumbered."""
    added = [t["content"] for t in tokenizer["added_tokens"]]
    few = set("Helo its12345ab'\u2581\u0120\u010a")
    keep = [t for t in tokenizer["model"]["vocab"]
            if t in added or set(t) <= few and len(t) < 4 or t in ("<0x0A>", "<0xFF>")]
    ids = {t: i for i, t in enumerate(dict.fromkeys(keep + added))}
    pair = lambda m: m.split(" ") if isinstance(m, str) else m
    merges = [m for m in tokenizer["model"]["merges"] if {*pair(m), "".join(pair(m))} <= ids.keys()]
    model = dict(tokenizer["model"], vocab={t: ids[t] for t in keep}, merges=merges)
    return dict(tokenizer, model=model,
                added_tokens=[dict(t, id=ids[t["content"]]) for t in tokenizer["added_tokens"]],
                post_processor=tokenizer_families.resolve(tokenizer["post_processor"], ids))


def write_fuzz_inputs(folder, texts):
    for name in tokenizer_families.FAMILIES:
        tokenizer, config = tokenizer_families.build(name, texts, 600, merges_as_text(name))
        parts = [json.dumps(p, ensure_ascii=False, separators=(",", ":")) for p in (shrink(tokenizer), config) if p]
        (folder / name).write_text("\0".join(parts), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int)
    parser.add_argument("--bytes", type=int, default=60_000, help="of text to train on")
    parser.add_argument("--fuzz", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    texts = tokenizer_corpus.valid_texts(args.bytes, seed=7)
    if args.fuzz:
        return write_fuzz_inputs(args.folder, texts)
    for name in args.names or tokenizer_families.FAMILIES:
        folder = args.folder / name
        tokenizer, config = write_folder(folder, name, texts, args.size or 600)
        if args.size is None:
            (folder / "cases.txt").write_text("\n".join(cases(name, tokenizer, config)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
