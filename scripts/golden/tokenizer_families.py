"""The tokenizers of the model families this server runs, as what a tokenizer.json has beside the
vocabulary: normalizer, pre-tokenizer, flags of the model, post-processor, decoder, added tokens and
the fields of tokenizer_config.json that matter. `train` makes one of any size; used by
make_tokenizers.py and check_tokenizer.py.

The pipelines are facts of the published tokenizer.json files; the vocabularies are trained here."""

import collections
import functools
import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(suffix, digits, slash):
    word = r"[^\r\n\p{L}\p{N}]?"
    return (f"{word}{UPPER}*{LOWER}+{suffix}|{word}{UPPER}+{LOWER}*{suffix}|{digits}"
            rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{slash}]*|\s*[\r\n]+|\s+(?!\S)|\s+")


O200K = cased(CONTRACTIONS + "?", r"\p{N}{1,3}", "/")
TEKKEN = cased("", r"\p{N}", "/")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[" "\r\n" r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+")
BLOCK = "\u2581"


def sequence(kind, *members):
    return {"type": "Sequence", kind: list(members)}


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=False, add_prefix_space=False, trim_offsets=True):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets,
            "use_regex": use_regex}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def metaspace(prepend_scheme, split=False):
    return {"type": "Metaspace", "replacement": BLOCK, "prepend_scheme": prepend_scheme, "split": split}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def around(*names):
    """A template of special tokens before ("<s>") and after ("-</s>") the text; ids come later."""
    before = [n for n in names if n[0] != "-"]
    after = [n[1:] for n in names if n[0] == "-"]
    token = lambda n: {"SpecialToken": {"id": n, "type_id": 0}}
    single = [*map(token, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(token, after)]
    return {"type": "TemplateProcessing", "single": single,
            "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [None], "tokens": [n]} for n in before + after}}


def added(content, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False):
    return {"content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": special}


def sentencepiece_decoder(*strip):
    return sequence("decoders", replace(BLOCK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip)


STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SENTENCEPIECE = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
LLAMA_CONFIG = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True,
                "add_eos_token": False}
CHATML = [added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>")]
PREPEND = sequence("normalizers", {"type": "Prepend", "prepend": BLOCK}, replace(" ", BLOCK))

# name: first: tokens with the lowest ids; added: tokens with ids after the vocabulary, or of it; texts:
# what only this pipeline needs to be shown.
FAMILIES = {
    "llama2": dict(  # Llama 1 and 2, Mistral 0.1, TinyLlama: the pipeline of SentencePiece in full
        first=[added("<unk>"), added("<s>"), added("</s>")], model=SENTENCEPIECE, normalizer=PREPEND,
        post_processor=around("<s>"), decoder=sentencepiece_decoder(STRIP), config=LLAMA_CONFIG),
    "llama2-metaspace": dict(  # the same as newer converters write it
        first=[added("<unk>"), added("<s>"), added("</s>")], model=SENTENCEPIECE,
        pre_tokenizer=metaspace("first"), post_processor=around("<s>"),
        decoder=sentencepiece_decoder(STRIP), config=LLAMA_CONFIG),
    "mistral-v3": dict(
        first=[added("<unk>"), added("<s>"), added("</s>"), added("[INST]"), added("[/INST]")],
        model=SENTENCEPIECE, pre_tokenizer=metaspace("always"), post_processor=around("<s>", "-</s>"),
        decoder=sentencepiece_decoder(STRIP),
        config=dict(LLAMA_CONFIG, add_eos_token=True)),
    "phi3": dict(
        first=[added("<unk>"), added("<s>"), added("</s>", special=False, rstrip=True)],
        model=SENTENCEPIECE, normalizer=PREPEND, post_processor=around(),
        decoder=sentencepiece_decoder(STRIP), pre_tokenizer=None,
        added=[added("<|endoftext|>"), added("<|assistant|>", rstrip=True), added("<|user|>", rstrip=True),
               added("<|end|>", rstrip=True)],
        config=dict(LLAMA_CONFIG, eos_token="<|endoftext|>", add_bos_token=False)),
    "gemma": dict(
        first=[added("<pad>"), added("<eos>"), added("<bos>"), added("<unk>"), added("<mask>")],
        model=SENTENCEPIECE, normalizer=replace(" ", BLOCK),
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                       "invert": False},
        post_processor=around("<bos>"), decoder=sentencepiece_decoder(),
        added=[added("<start_of_turn>"), added("<end_of_turn>"), added("\n\n", special=False),
               added("\n\n\n", special=False), added(BLOCK * 2, special=False), added("<h1>", special=False)],
        config={"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>",
                "add_bos_token": True, "add_eos_token": False}),
    "gpt2": dict(pre_tokenizer=byte_level(True), first=[added("<|endoftext|>")],
                 post_processor=byte_level(True, trim_offsets=False),
                 config={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
    "smollm": dict(  # SmolLM 1 and 2, Granite 3, StarCoder
        pre_tokenizer=sequence("pretokenizers", digits(True), byte_level(True)), first=CHATML,
        config={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}),
    "command": dict(
        normalizer={"type": "NFC"}, pre_tokenizer=sequence("pretokenizers", digits(True), byte_level(True)),
        first=[added("<PAD>"), added("<BOS_TOKEN>"), added("<|END_OF_TURN_TOKEN|>")],
        post_processor=around("<BOS_TOKEN>"),
        config={"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "add_bos_token": True,
                "add_eos_token": False}),
    "qwen2": dict(  # Qwen 2, 2.5, 3
        normalizer={"type": "NFC"}, pre_tokenizer=sequence("pretokenizers", split(QWEN2), byte_level()),
        post_processor=byte_level(trim_offsets=False),
        added=[*CHATML, added("<tool_call>", special=False), added("<think>", special=False)],
        config={"bos_token": None, "eos_token": "<|im_end|>", "add_bos_token": False,
                "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}),
    "qwen3.5": dict(
        normalizer={"type": "NFC"}, pre_tokenizer=sequence("pretokenizers", split(QWEN35), byte_level()),
        post_processor=byte_level(trim_offsets=False), added=CHATML, config={"eos_token": "<|im_end|>"}),
    "llama3": dict(  # Llama 3 to 3.3, SmolLM 3
        pre_tokenizer=sequence("pretokenizers", split(LLAMA3), byte_level()), model={"ignore_merges": True},
        post_processor=sequence("processors", byte_level(True), around("<|begin_of_text|>")),
        added=[added("<|begin_of_text|>"), added("<|end_of_text|>"), added("<|eot_id|>")],
        config={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "tekken": dict(
        pre_tokenizer=sequence("pretokenizers", split(TEKKEN), byte_level()), model={"ignore_merges": True},
        first=[added("<unk>"), added("<s>"), added("</s>"), added("[INST]")], post_processor=around("<s>"),
        config={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
    "phi4": dict(  # cl100k
        pre_tokenizer=sequence("pretokenizers", split(LLAMA3), byte_level()),
        post_processor=byte_level(True, trim_offsets=False),
        added=[added("<|endoftext|>", lstrip=True, rstrip=True), added("<|im_start|>", lstrip=True, rstrip=True),
               added("<|im_end|>", lstrip=True, rstrip=True), added("<|im_sep|>", lstrip=True, rstrip=True)],
        config={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}),
    "o200k": dict(  # Phi-4 mini, gpt-oss
        pre_tokenizer=sequence("pretokenizers", split(O200K, "Removed", True), byte_level()),
        post_processor=byte_level(True, trim_offsets=False),
        added=[added("<|endoftext|>", rstrip=True), added("<|user|>", rstrip=True)],
        config={"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
    "olmo2": dict(
        pre_tokenizer=sequence("pretokenizers", split(CL100K, "Removed", True), byte_level()),
        added=[added("<|endoftext|>"), added("|||EMAIL_ADDRESS|||", special=False, normalized=True)],
        config={"bos_token": None, "eos_token": "<|endoftext|>"}),
    "deepseek": dict(
        normalizer=sequence("normalizers"),
        pre_tokenizer=sequence("pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"),
                               split(DEEPSEEK), byte_level()),
        post_processor=byte_level(True, True, False),
        first=[added("<｜begin▁of▁sentence｜>"), added("<｜end▁of▁sentence｜>")],
        added=[added("<｜User｜>", special=False, normalized=True), added("<think>", special=False, normalized=True)],
        config={"bos_token": {"__type": "AddedToken", "content": "<｜begin▁of▁sentence｜>", "lstrip": False,
                              "normalized": True, "rstrip": False, "single_word": False},
                "eos_token": "<｜end▁of▁sentence｜>", "add_bos_token": True,
                "add_eos_token": False}),
    "nfkc": dict(normalizer={"type": "NFKC"}, pre_tokenizer=byte_level(True), first=[added("<EOT>")],
                 config={"eos_token": "<EOT>"},
                 texts=["\u32fe\u32ff\ua7f2 \uab69\U00010781\U0001f16c \U0001fbf5", "\ufb01\u2460\uff21\u2167"]),
    # Every other step that a file may have, in no family's order.
    "steps-bytes": dict(
        normalizer=sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": False},
                            {"type": "Lowercase"}, replace("ll", "LL")),
        pre_tokenizer=sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
                               split(r"\d{2}", "MergedWithNext"), digits(False),
                               split(r"[aeiou]+", "Contiguous"), byte_level(True, True)),
        first=[added("<s>"), added("</s>")],
        added=[added("word", special=False, single_word=True), added("lδ", special=False, normalized=True),
               added("lit", special=False, lstrip=True)],
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": True,
                        "add_prefix_space": False}, config=None),
    "steps-characters": dict(
        model={"unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False},
        pre_tokenizer=sequence("pretokenizers", metaspace("first", split=True),
                               split("e", "MergedWithPrevious"), {"type": "Punctuation"},
                               {"type": "Split", "pattern": {"String": "an"}, "behavior": "Removed",
                                "invert": False}),
        first=[added("<unk>")], added=[added("<a>", special=False)],
        decoder=metaspace("first"), config=None),
}


def is_bytes(family):
    return "ByteLevel" in json.dumps(family.get("pre_tokenizer"))


@functools.cache
def learn(characters, texts, size):
    """Vocabulary in id order and merges, over characters or bytes, of a tuple of texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = (pre_tokenizers.Metaspace() if characters else
                               pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False),
                                                        pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    # The trainer's own choice of characters differs from run to run.
    common = collections.Counter("".join(texts).replace(" ", BLOCK))
    alphabet = (sorted(common, key=lambda c: (-common[c], c))[:200] if characters else
                sorted(pre_tokenizers.ByteLevel.alphabet()))
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=len(alphabet),
                                  initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.get), json.loads(tokenizer.to_str())["model"]["merges"]


def resolve(section, ids):
    """The section with the ids of a template's tokens filled in."""
    if isinstance(section, dict) and section.get("type") == "TemplateProcessing":
        tokens = {n: dict(t, ids=[ids[n]]) for n, t in section["special_tokens"].items()}
        return dict(section, special_tokens=tokens)
    if isinstance(section, dict) and "processors" in section:
        return dict(section, processors=[resolve(p, ids) for p in section["processors"]])
    return section


def build(name, texts, size, merges_as_text=False):
    """(tokenizer.json, tokenizer_config.json or None) of a family, trained on the texts."""
    family = FAMILIES[name]
    tokens, merges = learn(not is_bytes(family), tuple(texts), size)
    model = dict({"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False}, **family.get("model", {}))
    first = family.get("first", [])
    fallback = [f"<0x{b:02X}>" for b in range(256)] if model["byte_fallback"] else []
    vocab = {t: i for i, t in enumerate(dict.fromkeys([*(f["content"] for f in first), *fallback, *tokens]))}
    ids, listed = dict(vocab), []
    for token in first + family.get("added", []):
        ids.setdefault(token["content"], len(ids))
        listed.append(dict(id=ids[token["content"]], **token))
    model["vocab"] = vocab
    model["merges"] = [" ".join(m) for m in merges] if merges_as_text else merges
    decoder = family.get("decoder", byte_level(True, True))
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": sorted(listed, key=lambda t: t["id"]),
            "normalizer": family.get("normalizer"), "pre_tokenizer": family.get("pre_tokenizer"),
            "post_processor": resolve(family.get("post_processor"), ids), "decoder": decoder,
            "model": model}, family["config"]
