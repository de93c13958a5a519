"""The models that are measured: random weights in the shapes of known ones. Items name the one that they read, and
the schedule has it written before."""

from pathlib import Path

from gpu_context import SCRATCH_FOLDERS, ask_gpu

# hidden, heads, kv-heads, head-dim, ffn, vocab, layers
NAMES = ("hidden", "heads", "kv-heads", "head-dim", "ffn", "vocab", "layers")
MODELS = {
    "llama-3-8b": (4096, 32, 8, 128, 14336, 128256, 32),
    "llama-3.2-1b": (2048, 32, 8, 64, 8192, 128256, 16),
    "smollm2-135m": (576, 9, 3, 64, 1536, 49152, 30),
}
MIB = 1 << 20
# On the device in 16 bits; of files in bf16 and q4_k about as much, and a third of it.
WEIGHT_MIB = {"llama-3.2-1b": 2400, "llama-3-8b": 15400, "smollm2-135m": 270}
FILE_MIB = {("llama-3.2-1b", "bf16"): 2500, ("llama-3-8b", "bf16"): 16100, ("smollm2-135m", "bf16"): 290,
            ("llama-3.2-1b", "q4_k"): 850, ("llama-3-8b", "q4_k"): 5000, ("smollm2-135m", "q4_k"): 110}
TINY = "tests/golden/tiny-bf16.gguf"  # a rehearsal's


def shape_words(shape):
    """Options of the benchmarks that take a shape."""
    return [word for pair in zip(NAMES, MODELS[shape]) for word in pair]


def find_model(context, shape, dtype="bf16"):
    """Where it is, or would be written."""
    name = f"quire-random-{shape}-{dtype}.gguf"
    places = [context.models] if context.models else map(Path, SCRATCH_FOLDERS)
    for place in places:
        if (place / name).exists():
            return place / name
    return context.room(FILE_MIB[shape, dtype] * MIB) / name


def model_path(context, model):
    """The file of (shape, type), which was written; the small golden one in a rehearsal."""
    return find_model(context, *model) if context.on_gpu else context.root / TINY


def write_model(context, model):
    path = model_path(context, model)
    if not path.exists():
        half = path.with_suffix(".half")
        context.scratch_files.append(half)
        context.python(f"write {path.name}", ["numpy"], "golden/make_random_model.py", model[0], half, "--type",
                       model[1])
        half.rename(path)


def pool_mib(weights_mib, most_mib):
    """What the KV cache may take of the GPU, with room for the workspace."""
    return max(256, min(most_mib, int(0.85 * int(ask_gpu("memory.total")[0])) - weights_mib - 12 * 1024))
