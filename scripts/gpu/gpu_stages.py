"""The stages of scripts/gpu/gpu_check, in the order they run. Each is a function of a Context that goes
through its items; what an item needs and does not find is a reason for it not to run, or to fail."""

import array
import importlib.util
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gpu_results import PASSED, Failed, NotRun, Results

TYPES = ("bf16", "f16")
QUANTISED_KV = ("int8", "fp8")
CHECKS = ("ops", "blocks", "matrix", "linear", "attention", "sample", "steps")
GOLDEN = ("tiny-f32", "tiny-f16", "tiny-bf16", "tiny-q8_0", "tiny-q4_0", "tiny-q4_1", "wide-f16",
          "wide-q4_0", "kquants")
EMBEDDINGS = ("llama", "olmo2", "cohere")
EMBEDDING_ERROR = {"bf16": "4.5e-2", "f16": "6e-3"}
NUM_TOKENS, FIRST_STEP = 96, 64  # of a sequence that is compared with Transformers
REHEARSAL_ERROR = 0.05  # of a row, 16-bit device against float; the golden tests have the exact bounds
GIB = 1 << 10  # in MiB

# hidden, heads, kv-heads, head-dim, ffn, vocab, layers of bench_device; the last two are for attention
# alone, at the ratios of query to KV heads for which published figures exist.
MODELS = {
    "llama-3-8b": (4096, 32, 8, 128, 14336, 128256, 32),
    "llama-3.2-1b": (2048, 32, 8, 64, 8192, 128256, 16),
    "smollm2-135m": (576, 9, 3, 64, 1536, 49152, 30),
}
ATTENTION_ONLY = {"mha 32/32": (4096, 32, 32, 128, 64, 64, 32), "gqa 32/4": (4096, 32, 4, 128, 64, 64, 32)}
NAMES = ("hidden", "heads", "kv-heads", "head-dim", "ffn", "vocab", "layers")
WEIGHT_MIB = {"llama-3-8b": 15400, "llama-3.2-1b": 2400, "smollm2-135m": 270}
BUILD_S = 3600  # no build takes longer, on however busy a machine
EXPECTED_S = {"llama-3-8b": 120, "llama-3.2-1b": 75, "smollm2-135m": 60}  # of a measurement


@dataclass
class Context:
    root: Path
    build: Path
    out: Path
    models: Path
    device: str
    quick: bool
    results: Results

    @property
    def on_gpu(self):
        return self.device == "cuda"

    def program(self, name):
        path = self.build / name
        if path.exists():
            return path
        if self.results.status("build/compile") == PASSED:
            raise Failed(f"{path} is not built")
        raise NotRun(f"{path} is not built")

    def device_words(self, dtype, invariant=False):
        """Returns the arguments of the test programs: the CPU has neither types nor a choice."""
        if self.device == "cpu":
            return ["cpu"]
        return [self.device, dtype] + ["batch-invariant"] * invariant


def ask_gpu(field):
    """One value of nvidia-smi, or NotRun."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"],
                              stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotRun("nvidia-smi does not answer: is there a GPU and its driver?") from error
    return done.stdout.splitlines()[0].strip()


def find_tool(name):
    """On the path, or in the toolkit's usual folder."""
    folders = os.environ.get("PATH", "") + ":/usr/local/cuda/bin"
    return shutil.which(name, path=folders)


def run_python(context, name, modules, script, *words):
    """Runs a script, named from scripts/, or NotRun when this Python lacks what it imports."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise NotRun(f"{sys.executable} has no {module}")
    return context.results.command(name, [sys.executable, context.root / "scripts" / script, *words])


# --- build ---------------------------------------------------------------------------------------

def build_options(context):
    options = ["--buildtype", "release", "-Dwerror=false", "-Dserver=disabled"]
    if context.on_gpu:
        options += ["-Dcuda=enabled", "-Dgpu_arch=" + ask_gpu("compute_cap").replace(".", "")]
    return options


def configure(context):
    if (context.build / "build.ninja").exists():
        return
    if context.on_gpu and find_tool("nvcc") is None:
        raise NotRun("nvcc is neither on the path nor in /usr/local/cuda/bin")
    context.results.command("build/configure", ["meson", "setup", context.build, context.root,
                                                *build_options(context)])


def targets(context):
    """What the stages run, and no more."""
    programs = ["tests/golden/test_golden", "tests/golden/test_embedding", "tests/kernels/bench_device",
                "scripts/gpu/dump_logits", "scripts/bench/bench_model"]
    if context.device == "cpu":
        return programs
    return programs + [f"tests/kernels/check_{op}" for op in CHECKS] + [
        f"kernels/cuda/libquire-{context.device}.so"]


def build(context):
    if context.results.status("build/compile") == PASSED:
        context.results.items.pop("build/compile")  # ninja knows best what is new
    context.results.item("build/configure", lambda: configure(context), 20)

    def compile_all():
        if not (context.build / "build.ninja").exists():
            raise NotRun("it is not configured")
        context.results.command("build/compile", ["ninja", "-C", context.build, *targets(context)], BUILD_S)
    context.results.item("build/compile", compile_all, 60)


# --- check ---------------------------------------------------------------------------------------

def check_op(context, name, op, words):
    if context.device == "cpu":
        raise NotRun("the CPU's ops have tests of their own")
    context.results.command(name, [context.program(f"tests/kernels/check_{op}"), *words], 300)


def check_golden(context, name, folder, model, words):
    context.results.command(name, [context.program("tests/golden/test_golden"), folder, model, *words], 300)


def check_embedding(context, name, family, dtype):
    if context.device == "cpu":
        raise NotRun("the test suite has it for every family")
    families = context.root / "tests/golden/families"
    context.results.command(name, [context.program("tests/golden/test_embedding"), families / f"{family}.embedding",
                                   families / f"{family}.gguf", context.device, dtype,
                                   EMBEDDING_ERROR[dtype]], 300)


def golden_models(context):
    """(folder, name) of every model; in a rehearsal of one."""
    folder = context.root / "tests/golden"
    if not context.on_gpu:
        return [(folder, "tiny-bf16")]
    families = folder / "families"
    return [(folder, name) for name in GOLDEN] + [(families, path.stem)
                                                  for path in sorted(families.glob("*.gguf"))]


def check(context):
    """Every check on a GPU; in a rehearsal one of each kind, since the test suites run them all."""
    types = TYPES if context.on_gpu else TYPES[:1]
    modes = (False, True) if context.on_gpu else (True,)
    for op in CHECKS if context.on_gpu else CHECKS[:1]:
        for dtype in types:
            for invariant in modes:
                words = context.device_words(dtype, invariant)
                name = " ".join([f"check/{op}", *words])
                context.results.item(name, lambda: check_op(context, name, op, words), 10)
    for folder, model in golden_models(context):
        for dtype in types:
            for invariant in modes:
                words = context.device_words(dtype, invariant)
                name = " ".join([f"check/golden {model}", *words])
                context.results.item(name, lambda: check_golden(context, name, folder, model, words), 10)
    for folder, model in golden_models(context):
        for kv_type in QUANTISED_KV:
            words = [*context.device_words("bf16", True), f"kv-{kv_type}"]
            name = " ".join([f"check/golden {model}", *words])
            context.results.item(name, lambda: check_golden(context, name, folder, model, words), 10)
    for family in EMBEDDINGS if context.on_gpu else EMBEDDINGS[:1]:
        for dtype in types:
            name = f"check/embedding {family} {context.device} {dtype}"
            context.results.item(name, lambda: check_embedding(context, name, family, dtype), 10)


# --- sanitize ------------------------------------------------------------------------------------

def sanitize(context):
    def refuse():
        raise NotRun("it watches a GPU only" if not context.on_gpu else
                     "compute-sanitizer is neither on the path nor in /usr/local/cuda/bin")

    sanitizer = find_tool("compute-sanitizer")
    if not context.on_gpu or sanitizer is None:
        context.results.item("sanitize", refuse)
        return
    golden = ["tests/golden/test_golden", context.root / "tests/golden", "tiny-bf16"]
    programs = {op: [f"tests/kernels/check_{op}"] for op in CHECKS} | {"golden": golden}
    for tool in ("memcheck", "racecheck"):
        for label, (program, *words) in programs.items():
            name = f"sanitize/{tool} {label}"
            context.results.item(name, lambda: context.results.command(name, [
                sanitizer, "--tool", tool, "--error-exitcode", "9", context.program(program), *words,
                context.device, "bf16"], 400) and None, 60)


# --- reference -----------------------------------------------------------------------------------

def make_model(context, shape):
    """The random model's file, written at its first use."""
    path = context.models / f"quire-random-{shape}.gguf"
    if not path.exists():
        context.models.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".half")
        run_python(context, f"make {shape}", ["numpy"], "golden/make_random_model.py", shape, half)
        half.rename(path)
    return path


def write_tokens(context, vocab):
    path = context.out / f"tokens-{vocab}"
    draw = random.Random(1)
    path.write_bytes(struct.pack(f"<{NUM_TOKENS}i", *(draw.randrange(3, vocab)
                                                      for _ in range(NUM_TOKENS))))
    return path


def dump_logits(context, name, device, dtype, model, tokens):
    out = context.out / f"logits-{device}-{dtype}"
    context.results.command(name, [context.program("scripts/gpu/dump_logits"), device, dtype, model, tokens,
                                   FIRST_STEP, out])
    return out


def compare_with_transformers(context, name, shape, dtype):
    model = make_model(context, shape)
    tokens = write_tokens(context, MODELS[shape][NAMES.index("vocab")])
    ours = dump_logits(context, name, context.device, dtype, model, tokens)
    try:
        return json.loads(run_python(context, name, ["numpy", "torch", "transformers"],
                                     "gpu/gpu_reference.py", model, tokens, ours, "--type", dtype))
    finally:
        ours.unlink()


def read_rows(path, vocab):
    values = array.array("f", path.read_bytes())
    return [values[at:at + vocab] for at in range(0, len(values), vocab)]


def row_error(row, reference):
    difference = sum((a - b) ** 2 for a, b in zip(row, reference))
    return math.sqrt(difference / sum(b * b for b in reference))


def compare_with_oracle(context, name):
    """The rehearsal: a small committed model against the project's own oracle."""
    model, vocab = context.root / "tests/golden/tiny-bf16.gguf", 320
    tokens = write_tokens(context, vocab)
    ours = dump_logits(context, name, context.device, "bf16", model, tokens)
    oracle = dump_logits(context, name, "cpu-ref", "bf16", model, tokens)
    errors = [row_error(*rows) for rows in zip(read_rows(ours, vocab), read_rows(oracle, vocab))]
    if len(errors) != NUM_TOKENS or not max(errors) <= REHEARSAL_ERROR:
        raise Failed(f"a row is off by {max(errors):.2e}, allowed {REHEARSAL_ERROR}")
    return {"row_error": max(errors), "allowed": REHEARSAL_ERROR, "tokens": len(errors)}


def reference(context):
    if not context.on_gpu:
        name = "reference/oracle tiny-bf16"
        context.results.item(name, lambda: compare_with_oracle(context, name))
        return
    for shape in ("smollm2-135m", "llama-3.2-1b") + (() if context.quick else ("llama-3-8b",)):
        for dtype in TYPES:
            name = f"reference/{shape} {dtype}"
            context.results.item(name, lambda: compare_with_transformers(context, name, shape, dtype), 40)


# --- measure -------------------------------------------------------------------------------------

def limits(context):
    def measure():
        if not context.on_gpu:
            raise NotRun("the limits are a GPU's")
        return json.loads(run_python(context, "limits", ["torch"], "gpu/gpu_limits.py"))
    context.results.item("limits", measure, 15)


def pool_mib(context, weights, most):
    """What the KV cache may take of the GPU, with room for the workspace."""
    return max(256, min(most, int(0.85 * int(ask_gpu("memory.total"))) - weights - 12 * GIB))


def measure_ops(context, name, sizes, *more):
    words = [word for pair in zip(NAMES, sizes) for word in pair]
    if not context.on_gpu:
        words = ["rotate-mib", 0, "batch-us", 0]
    else:
        pool = pool_mib(context, 0, 8 * GIB if context.quick else 36 * GIB)
        words += ["max-tokens", 2048 if context.quick else 8192, "max-seqs", 256, "max-context", 32768,
                  "max-logits", 256, "pool-mib", pool, "batch-us", 3000 if context.quick else 10000]
    program = context.program("tests/kernels/bench_device")
    return context.results.json_lines(name, [program, context.device, "bf16", *words, *more], 400)


def measure_kv_types(context, shape, sizes):
    """The ops on the KV cache once more, with quantised ones."""
    for kv_type in QUANTISED_KV:
        name = f"ops/{shape} kv {kv_type}"
        context.results.item(name, lambda: measure_ops(context, name, sizes, "only", "kv", "kv-type", kv_type), 40)


def ops(context):
    shapes = MODELS if context.on_gpu else {"tiny": ()}
    for shape, sizes in shapes.items():
        name = f"ops/{shape}"
        context.results.item(name, lambda: measure_ops(context, name, sizes), EXPECTED_S.get(shape, 5))
        measure_kv_types(context, shape, sizes)
    for shape, sizes in ATTENTION_ONLY.items() if context.on_gpu else ():
        name = f"ops/{shape}"
        context.results.item(name, lambda: measure_ops(context, name, sizes, "only", "kv"), 40)
        measure_kv_types(context, shape, sizes)


def measure_model(context, name, shape, invariant):
    if not context.on_gpu:
        model = context.root / "tests/golden/tiny-bf16.gguf"
        words = ["batches", "1,4", "contexts", "64", "prompts", "32", "pool-mib", 1, "batch-us", 0]
    else:
        model = make_model(context, shape)
        few = context.quick or invariant
        words = ["batches", "1,64" if few else "1,8,32,64,128,256",
                 "contexts", "128,1024" if few else "128,1024,4096,8192",
                 "prompts", "2048" if few else "512,1024,2048,4096,8192",
                 "pool-mib", pool_mib(context, WEIGHT_MIB[shape], 96 * GIB)]
    program = context.program("scripts/bench/bench_model")
    return context.results.json_lines(name, [program, context.device, "bf16", model, *words,
                                             "batch-invariant", int(invariant)], 400)


def models(context):
    for shape in MODELS if context.on_gpu else ("tiny",):
        for invariant in (False, True):
            name = f"models/{shape}" + " batch-invariant" * invariant
            context.results.item(name, lambda: measure_model(context, name, shape, invariant),
                                 EXPECTED_S.get(shape, 5) // (2 if invariant else 1))


STAGES = {"build": build, "check": check, "reference": reference, "sanitize": sanitize,
          "limits": limits, "ops": ops, "models": models}
GROUPS = {"all": tuple(STAGES), "measure": ("limits", "ops", "models")}
