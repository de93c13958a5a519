#!/usr/bin/env python3
"""What torch and Transformers make of the same work on the same GPU. Prints JSON lines. Needs torch, and for
`static` and `continuous` transformers.

  scripts/gpu/gpu_baselines.py products llama-3-8b      every product at 1 to 2048 rows
  scripts/gpu/gpu_baselines.py attention llama-3-8b     decode over a contiguous cache, and a causal prompt
  scripts/gpu/gpu_baselines.py decode llama-3-8b        a whole decode step, recorded in a CUDA graph and replayed
  scripts/gpu/gpu_baselines.py static llama-3.2-1b      Transformers' generate with a static cache
  scripts/gpu/gpu_baselines.py continuous llama-3.2-1b  the same by its continuous batching

Weights and inputs are random numbers in bf16. On a GPU calls are recorded in a CUDA graph and its replays timed
by events, medians of several; what calls read is rotated through more memory than a cache holds. With --device
cpu, and the shape tiny, it is a rehearsal.
"""

import argparse
import gc
import itertools
import json
import statistics
import time

import torch
import torch.nn.functional as F

SHAPES = {  # hidden, heads, kv_heads, head_dim, ffn, vocab, layers
    "llama-3-8b": (4096, 32, 8, 128, 14336, 128256, 32),
    "llama-3.2-1b": (2048, 32, 8, 64, 8192, 128256, 16),
    "smollm2-135m": (576, 9, 3, 64, 1536, 49152, 30),
    "tiny": (64, 4, 2, 16, 96, 320, 2),
}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
ROTATED_BYTES = 256 << 20
RUNS = 7
TYPE = torch.bfloat16
NEW_TOKENS = 128


class Shape:
    def __init__(self, name):
        (self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab,
         self.layers) = SHAPES[name]
        self.name = name
        self.qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.q = self.heads * self.head_dim

    def products(self):
        return {"qkv": (self.qkv, self.hidden), "o": (self.hidden, self.q), "gate_up": (2 * self.ffn, self.hidden),
                "down": (self.hidden, self.ffn), "head": (self.vocab, self.hidden)}


class Bench:
    def __init__(self, device, is_small):
        self.device = torch.device(device)
        self.is_small = is_small
        torch.manual_seed(1)

    @property
    def on_gpu(self):
        return self.device.type == "cuda"

    def random(self, *shape):
        return torch.randn(*shape, device=self.device, dtype=TYPE) * 0.05

    def copies(self, *shape):
        """As many tensors of a shape as are more than a cache holds."""
        size = 2 * torch.Size(shape).numel()
        return [self.random(*shape) for _ in range(1 if self.is_small else 1 + ROTATED_BYTES // size)]

    def time_once(self, call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def time_replays(self, call):
        """Seconds of one call that enqueues work on the GPU, by its clock."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        graph.replay()
        times = []
        for _ in range(RUNS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return statistics.median(times)

    def seconds(self, call):
        """Of `call`, after it has been warmed."""
        if self.on_gpu:
            return self.time_replays(call)
        call()
        return statistics.median(self.time_once(call) for _ in range(3))


def print_line(op, shape, seconds, bytes_moved, flops, tokens=0):
    line = {"op": op, "shape": shape, "us": round(1e6 * seconds, 3), "bytes": bytes_moved, "flops": flops}
    if tokens:
        line["tokens_per_s"] = round(tokens / seconds, 2)
    print(json.dumps(line), flush=True)


def time_products(bench, shape):
    for name, (rows, cols) in shape.products().items():
        weights = bench.copies(rows, cols)
        for m in ROWS[:3] if bench.is_small else ROWS:
            x = bench.random(m, cols)
            calls = len(weights)

            def multiply():
                for weight in weights:
                    F.linear(x, weight)
            seconds = bench.seconds(multiply) / calls
            print_line(f"linear {name}", f"{m} x {cols} -> {rows}", seconds, 2 * (rows * cols + m * (rows + cols)),
                       2 * m * rows * cols)
        del weights


def time_attention(bench, shape):
    """Over a contiguous cache, which a server has not."""
    cases = [(64, 1, 1024), (64, 1, 8192), (1, 1, 1024), (1, 2048, 2048), (1, 8192, 8192)]
    for batch, query, context in [(2, 1, 32), (1, 16, 16)] if bench.is_small else cases:
        q = bench.random(batch, shape.heads, query, shape.head_dim)
        k, v = (bench.random(batch, shape.kv_heads, context, shape.head_dim) for _ in range(2))
        seconds = bench.seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=query > 1, enable_gqa=True))
        pairs = context if query == 1 else context * (context + 1) // 2
        kind = "decode" if query == 1 else "prefill"
        print_line("attention", f"{kind} {batch} x {query} of {context}", seconds,
                   4 * batch * shape.kv_heads * shape.head_dim * context, 4 * batch * shape.q * pairs)


class Decoder:
    """A LLaMA decode step over a static cache, as few kernels as eager torch makes of it."""

    def __init__(self, bench, shape, batch, context):
        self.shape, self.batch, self.context = shape, batch, context
        s = shape
        self.embedding, self.head = bench.random(s.vocab, s.hidden), bench.random(s.vocab, s.hidden)
        self.layers = [{name: bench.random(*size) for name, size in s.products().items() if name != "head"}
                       for _ in range(s.layers)]
        self.norm = torch.ones(s.hidden, device=bench.device, dtype=TYPE)
        self.caches = [[bench.random(batch, s.kv_heads, context, s.head_dim) for _ in range(2)]
                       for _ in range(s.layers)]
        self.cos, self.sin = (bench.random(1, 1, s.head_dim) for _ in range(2))
        self.tokens = torch.zeros(batch, dtype=torch.long, device=bench.device)

    def rotate(self, x):
        half = self.shape.head_dim // 2
        return x * self.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * self.sin

    def attend(self, layer, x):
        s = self.shape
        q, k, v = F.linear(x, self.layers[layer]["qkv"]).view(self.batch, -1, s.head_dim).split(
            (s.heads, s.kv_heads, s.kv_heads), dim=1)
        keys, values = self.caches[layer]
        keys[:, :, -1].copy_(self.rotate(k))
        values[:, :, -1].copy_(v)
        out = F.scaled_dot_product_attention(self.rotate(q)[:, :, None], keys, values, enable_gqa=True)
        return F.linear(out.reshape(self.batch, s.q), self.layers[layer]["o"])

    def step(self):
        s = self.shape
        hidden = F.embedding(self.tokens, self.embedding)
        for layer, weights in enumerate(self.layers):
            hidden = hidden + self.attend(layer, F.rms_norm(hidden, (s.hidden,), self.norm))
            gate, up = F.linear(F.rms_norm(hidden, (s.hidden,), self.norm), weights["gate_up"]).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate) * up, weights["down"])
        logits = F.linear(F.rms_norm(hidden, (s.hidden,), self.norm), self.head)
        self.tokens.copy_(logits.argmax(-1))

    def work(self):
        s = self.shape
        weights = s.layers * sum(rows * cols for name, (rows, cols) in s.products().items()
                                 if name != "head") + s.vocab * s.hidden
        pairs = self.batch * self.context
        return (2 * weights + 4 * s.layers * s.kv_heads * s.head_dim * pairs,
                2 * self.batch * weights + 4 * s.layers * s.q * pairs)


@torch.no_grad()
def time_decode(bench, shape):
    for batch, context in [(1, 16)] if bench.is_small else itertools.product((1, 8, 64), (1024,)):
        decoder = Decoder(bench, shape, batch, context)
        seconds = bench.seconds(decoder.step)
        bytes_moved, flops = decoder.work()
        print_line("decode", f"{batch} x 1 of {context}", seconds, bytes_moved, flops, batch)
        del decoder


def make_transformers_model(bench, shape):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, max_position_embeddings=8192, eos_token_id=None, pad_token_id=0,
        attn_implementation="sdpa", dtype=TYPE)
    with torch.device(bench.device):
        return LlamaForCausalLM(config).to(TYPE).eval()


def time_static(bench, shape, prompts, settings, batch):
    from transformers import GenerationConfig
    model = make_transformers_model(bench, shape)
    length, new = prompts.shape[1], settings["max_new_tokens"]
    static = GenerationConfig(cache_implementation="static", disable_compile=True, **settings)

    def generate():
        out = model.generate(prompts[:batch], generation_config=static)
        assert out.shape == (batch, length + new), out.shape
    generate()
    print_line("transformers static", f"{batch} x {length}/{new}", bench.time_once(generate), 0, 0, batch * new)


def time_continuous(bench, shape, prompts, settings, batch):
    """Its manager, which is made for these requests, is kept from the call that warms it."""
    from transformers import ContinuousBatchingConfig, GenerationConfig
    model = make_transformers_model(bench, shape)
    length, new = prompts.shape[1], settings["max_new_tokens"]
    size = ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64) if bench.is_small else None

    def serve():
        outputs = model.generate_batch(prompts[:batch].tolist(), generation_config=GenerationConfig(**settings),
                                       continuous_batching_config=size, persistent_manager=True,
                                       progress_bar=False)
        counted = sum(len(output.generated_tokens) for output in outputs.values())
        assert counted == batch * new, (counted, batch * new)
    serve()
    print_line("transformers continuous", f"{batch} x {length}/{new}", bench.time_once(serve), 0, 0, batch * new)
    # The manager has most of the memory, and refers to the model, which has the manager.
    model.destroy_cached_continuous_batching_manager()
    del model, serve
    gc.collect()
    if bench.on_gpu:
        torch.cuda.empty_cache()


def generation(bench, shape):
    """256 prompts, and how they are continued."""
    new, length = (4, 8) if bench.is_small else (NEW_TOKENS, 100)
    prompts = torch.randint(1, shape.vocab, (256, length), device=bench.device)
    settings = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0,
                "eos_token_id": -1}
    return prompts, settings


def time_generate_static(bench, shape):
    for batch in (2,) if bench.is_small else (1, 64):
        time_static(bench, shape, *generation(bench, shape), batch)


def time_generate_continuous(bench, shape):
    for batch in (2,) if bench.is_small else (1, 64, 256):
        time_continuous(bench, shape, *generation(bench, shape), batch)


KINDS = {"products": time_products, "attention": time_attention, "decode": time_decode,
         "static": time_generate_static, "continuous": time_generate_continuous}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    KINDS[options.kind](Bench(options.device, options.shape == "tiny"), Shape(options.shape))


if __name__ == "__main__":
    main()
