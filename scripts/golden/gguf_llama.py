"""GGUF v3 files of LLaMA models, written with nothing and read with numpy.

The file format is described in ggml/docs/gguf.md; the order of Q and K rows in llama files, in which the
two halves of a rotated pair are neighbours, is that of ggml's convert_hf_to_gguf.py.
"""

import mmap
import struct
from dataclasses import dataclass

ALIGNMENT = 32
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TYPE_IDS = {"f32": 0, "f16": 1, "q4_0": 2, "q5_0": 6, "q8_0": 8, "q4_k": 12, "q6_k": 14, "bf16": 30}
# What llama.cpp calls a file whose matrices are mostly of a type (llama_ftype), which OpenVINO GenAI wants to know.
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q5_0": 8, "q4_k": 15, "q6_k": 18, "bf16": 32}
BLOCKS = {  # elements and bytes of a block
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q4_0": (32, 18), "q5_0": (32, 22),
    "q8_0": (32, 34), "q4_k": (256, 144), "q6_k": (256, 210),
}


@dataclass
class Shape:
    """Hyper-parameters, named as in struct model_config."""
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    theta: float
    tied: bool
    context: int = 131072
    epsilon: float = 1e-5
    experts: int = 0  # of `ffn` inner elements each, as Mixtral's; 0: a dense model
    chosen: int = 0

    def ffn_tensors(self, block):
        if self.experts == 0:
            yield block + "ffn_gate", self.ffn, self.hidden
            yield block + "ffn_up", self.ffn, self.hidden
            yield block + "ffn_down", self.hidden, self.ffn
            return
        yield block + "ffn_gate_inp", self.experts, self.hidden
        yield block + "ffn_gate_exps", (self.experts, self.ffn), self.hidden
        yield block + "ffn_up_exps", (self.experts, self.ffn), self.hidden
        yield block + "ffn_down_exps", (self.experts, self.hidden), self.ffn

    def tensors(self):
        """(name, rows, cols) in the file's order; cols 0: a vector; rows (experts, rows): of each."""
        q_rows, kv_rows = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd", self.vocab, self.hidden
        for i in range(self.layers):
            block = f"blk.{i}."
            yield block + "attn_norm", self.hidden, 0
            yield block + "attn_q", q_rows, self.hidden
            yield block + "attn_k", kv_rows, self.hidden
            yield block + "attn_v", kv_rows, self.hidden
            yield block + "attn_output", self.hidden, q_rows
            yield block + "ffn_norm", self.hidden, 0
            yield from self.ffn_tensors(block)
        yield "output_norm", self.hidden, 0
        if not self.tied:
            yield "output", self.vocab, self.hidden


SMALL_BLOCKS = {"q4_k": "q5_0", "q6_k": "q8_0"}


def type_of(tensor, cols, dtype, tied):
    """The type of a matrix: with q4_k the mixture of files called Q4_K_M."""
    if tensor.endswith("ffn_gate_inp"):  # the router
        return "f32"
    layer = int(tensor.split(".")[1]) if tensor.startswith("blk.") else 0
    large = tensor == ("token_embd" if tied else "output") or (
        layer % 2 == 0 and tensor.endswith(("attn_v", "ffn_down", "ffn_down_exps")))
    wanted = "q6_k" if dtype == "q4_k" and large else dtype
    return wanted if cols % BLOCKS[wanted][0] == 0 else SMALL_BLOCKS.get(wanted, wanted)


# --- Writing -------------------------------------------------------------------------------------

def pack_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pack_value(kind, value):
    if kind == STRING:
        return struct.pack("<I", STRING) + pack_string(value)
    return struct.pack("<I", kind) + struct.pack("<" + SCALARS[kind], value)


def pack_array(kind, values):
    if kind == STRING:
        data = b"".join(map(pack_string, values))
    else:
        data = struct.pack(f"<{len(values)}i", *values)
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + data


def byte_alphabet():
    """GPT-2's mapping of bytes to printable characters."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(byte if byte in plain else next(extra)) for byte in range(256)]


def make_vocabulary(size):
    """Three control tokens, the bytes, then strings of ASCII that no merge leads to: nearly every token is text of its
    own, as a client sees it."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = byte_alphabet()
    letters = [chr(byte) for byte in range(33, 127)]
    tokens = special + alphabet
    for i in range(size - len(tokens)):
        text = letters[i % 94] + letters[i // 94 % 94]
        tokens.append(text + letters[i // 94 ** 2] if i >= 94 ** 2 else text)
    kinds = [3] * len(special) + [1] * (len(tokens) - len(special))
    return tokens[:size], kinds[:size]


def pack_metadata(name, shape, dtype):
    tokens, kinds = make_vocabulary(shape.vocab)
    entries = {
        "general.architecture": pack_value(STRING, "llama"),
        "general.name": pack_value(STRING, name),
        "general.file_type": pack_value(UINT32, FILE_TYPES[dtype]),
        "llama.context_length": pack_value(UINT32, shape.context),
        "llama.embedding_length": pack_value(UINT32, shape.hidden),
        "llama.block_count": pack_value(UINT32, shape.layers),
        "llama.feed_forward_length": pack_value(UINT32, shape.ffn),
        "llama.attention.head_count": pack_value(UINT32, shape.heads),
        "llama.attention.head_count_kv": pack_value(UINT32, shape.kv_heads),
        "llama.attention.key_length": pack_value(UINT32, shape.head_dim),
        "llama.attention.value_length": pack_value(UINT32, shape.head_dim),
        "llama.attention.layer_norm_rms_epsilon": pack_value(FLOAT32, shape.epsilon),
        "llama.rope.freq_base": pack_value(FLOAT32, shape.theta),
        "llama.rope.dimension_count": pack_value(UINT32, shape.head_dim),
        "tokenizer.ggml.model": pack_value(STRING, "gpt2"),
        "tokenizer.ggml.pre": pack_value(STRING, "smollm"),
        "tokenizer.ggml.tokens": pack_array(STRING, tokens),
        "tokenizer.ggml.token_type": pack_array(INT32, kinds),
        "tokenizer.ggml.merges": pack_array(STRING, []),
        "tokenizer.ggml.bos_token_id": pack_value(UINT32, 1),
        "tokenizer.ggml.eos_token_id": pack_value(UINT32, 2),
        "tokenizer.ggml.add_bos_token": pack_value(BOOL, False),
    }
    if shape.experts:
        entries["llama.expert_count"] = pack_value(UINT32, shape.experts)
        entries["llama.expert_used_count"] = pack_value(UINT32, shape.chosen)
    return len(entries), b"".join(pack_string(key) + value for key, value in entries.items())


def type_bytes(dtype, count):
    elements, size = BLOCKS[dtype]
    return count // elements * size


def num_elements(rows, cols):
    return (rows if isinstance(rows, int) else rows[0] * rows[1]) * max(cols, 1)


def padding(position):
    return -position % ALIGNMENT


def write_model(path, name, shape, dtype, type_of, make_data):
    """dtype is what most matrices are of. type_of(tensor name) is the element type of a matrix; vectors are f32.
    make_data(tensor name, number of elements, cols, type) yields the tensor's bytes in pieces; None: the tensors are
    zeros, a hole in the file that takes no room."""
    num_entries, metadata = pack_metadata(name, shape, dtype)
    tensors = [(tensor, rows, cols, type_of(tensor) if cols else "f32")
               for tensor, rows, cols in shape.tensors()]
    infos, offset = [], 0
    for tensor, rows, cols, kind in tensors:
        if cols % BLOCKS[kind][0] != 0:
            raise ValueError(f"{tensor}: rows of {cols} are not whole blocks of {kind}")
        dims = (rows,) if not cols else (cols, rows) if isinstance(rows, int) else (cols, *rows[::-1])
        infos.append(pack_string(tensor + ".weight") +
                     struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPE_IDS[kind], offset))
        size = type_bytes(kind, num_elements(rows, cols))
        offset += size + padding(size)
    with open(path, "wb", buffering=0) as out:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), num_entries) + metadata + b"".join(infos)
        out.write(head + bytes(padding(len(head))))
        if make_data is None:
            out.truncate(out.tell() + offset)
            return
        for tensor, rows, cols, kind in tensors:
            for piece in make_data(tensor, num_elements(rows, cols), cols, kind):
                out.write(piece)
            out.write(bytes(padding(type_bytes(kind, num_elements(rows, cols)))))


# --- Reading -------------------------------------------------------------------------------------

class Reader:
    """A cursor over a mapped file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values[0] if len(values) == 1 else values

    def string(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.take(SCALARS[kind])
        element, count = self.take("IQ")
        return [self.value(element) for _ in range(count)]


def read_model(path):
    """(metadata, {name: (dtype, numpy array on the mapping, 16-bit types as uint16)})"""
    import numpy as np
    reader = Reader(path)
    assert reader.data[:4] == b"GGUF", f"{path} is not a GGUF file"
    reader.at = 4
    version, num_tensors, num_entries = reader.take("IQQ")
    assert version == 3, f"{path}: GGUF version {version}"
    metadata = {}
    for _ in range(num_entries):
        key = reader.string()
        metadata[key] = reader.value(reader.take("I"))
    infos = []
    for _ in range(num_tensors):
        name = reader.string()
        dims = [reader.take("Q") for _ in range(reader.take("I"))]
        infos.append((name, dims[::-1], *reader.take("IQ")))
    start = reader.at + padding(reader.at)
    names = {TYPE_IDS[name]: name for name in ("f32", "f16", "bf16")}
    tensors = {}
    for name, dims, kind, offset in infos:
        dtype = names[kind]
        layout = "<f4" if dtype == "f32" else "<u2"
        tensors[name] = (dtype, np.frombuffer(reader.data, layout, int(np.prod(dims)),
                                              start + offset).reshape(dims))
    return metadata, tensors


def read_shape(metadata, tensors):
    def key(name):
        return metadata["llama." + name]
    heads = key("attention.head_count")
    return Shape(hidden=key("embedding_length"), ffn=key("feed_forward_length"),
                 layers=key("block_count"), heads=heads, kv_heads=key("attention.head_count_kv"),
                 head_dim=metadata.get("llama.attention.key_length", key("embedding_length") // heads),
                 vocab=len(metadata["tokenizer.ggml.tokens"]), theta=key("rope.freq_base"),
                 tied="output.weight" not in tensors, context=key("context_length"),
                 epsilon=key("attention.layer_norm_rms_epsilon"))
