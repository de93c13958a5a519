"""The server end to end: many requests at once over HTTP, streamed and whole, with lengths that others publish figures
of; beside it scheduler, engine and device without HTTP, and what the load generator could take in at most."""

import sys
from pathlib import Path

from gpu_figures import find, percent, table
from gpu_histograms import medians_between
from gpu_models import MODELS, NAMES, model_path
from gpu_results import Failed
from gpu_schedule import Item
from gpu_server import GpuServer, read_samples

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from bench_serve import make_request  # noqa: E402
from load_run import LoadError, LoadProcesses, StubServers  # noqa: E402
from workloads import Workload  # noqa: E402

# (workload, requests at once, streamed). The decode-heavy and the prefill-heavy point of the goals are among them.
DECODE_HEAVY, PREFILL_HEAVY = "1000/1000", "2048/16"
SHORT_POINTS = [("100/128", number, True) for number in (1, 64, 256)]  # of a model whose figures are the host's
POINTS = [*SHORT_POINTS, (DECODE_HEAVY, 64, True), (PREFILL_HEAVY, 64, True), ("sharegpt", 64, True),
          ("100/128", 256, False)]
POINTS_OF = {"llama-3-8b": POINTS, "llama-3.2-1b": POINTS, "smollm2-135m": SHORT_POINTS}
# Requests of each that is at work, in case they are answered quickly; as many as are made in all, at least.
OF_EACH = {"100/128": 12, "sharegpt": 10, DECODE_HEAVY: 2, PREFILL_HEAVY: 2}
LEAST_REQUESTS = {"100/128": 160, "sharegpt": 120, DECODE_HEAVY: 20, PREFILL_HEAVY: 20}
POINT_SECONDS = {"llama-3-8b": 8, "llama-3.2-1b": 6, "smollm2-135m": 5}
# Where many long answers begin with as many prompts, what comes at first is no measure: so many times as long.
LONGER = {DECODE_HEAVY: 2}
MAX_MODEL_LEN = 4096

# Points that are measured once more with --enforce-eager, to see what recorded decode steps save.
EAGER_POINTS = [("100/128", number, True) for number in (1, 64)]

REHEARSED_LIMITS = {"max-model-len": 128, "max-num-seqs": 4, "max-num-batched-tokens": 64}
REHEARSED_KV_MIB = 1  # of which the simulator looks at every page in every kernel
REHEARSED_VOCAB = 320

GOALS = (("G5 serving, decode-heavy, 8B, 64 x 1000/1000", DECODE_HEAVY, 64, 0.50, 0.60),
         ("G6 serving, prefill-heavy, 8B, 64 x 2048/16", PREFILL_HEAVY, 64, 0.45, 0.60))
GOAL_MODEL = "llama-3-8b"


def item_name(shape, workload, number, stream, eager=False):
    return f"server/{shape} {workload} x {number}" + " whole" * (not stream) + " eager" * eager


def point_seconds(context, shape, workload, stream=True):
    """Whole answers show nothing before they are there."""
    return POINT_SECONDS[shape] * LONGER.get(workload, 1) * (1 if stream else 3) if context.on_gpu else 0


def done_as(context, workload, number):
    """A rehearsal does a small one in its place."""
    if context.on_gpu:
        return workload, number
    return "sharegpt-24" if workload == "sharegpt" else "20/6", min(number, 4)


def vocabulary(context, shape):
    return MODELS[shape][NAMES.index("vocab")] if context.on_gpu else REHEARSED_VOCAB


def make_requests(context, shape, workload, number, stream, seed):
    """Whole answers count only when they have come, so there are fewer of them."""
    if not context.on_gpu:
        count = 2 * number
    elif stream:
        count = max(LEAST_REQUESTS[workload], OF_EACH[workload] * number)
    else:
        count = 3 * number if number > 1 else 8
    prompts = Workload(workload).prompts(count, vocabulary(context, shape), seed)
    return prompts, [make_request("random", prompt, tokens, stream, skip_special_tokens=False)
                     for prompt, tokens in prompts]


# --- Measuring -----------------------------------------------------------------------------------

def check_answers(figures, prompts, rose):
    """Every answer has its tokens, and the server has counted the same."""
    if figures["failures"]:
        raise Failed(f"{figures['failures']} of {len(prompts)} requests failed: {figures['first_error']}")
    if figures["wrong_length"]:
        raise Failed(f"{figures['wrong_length']} of {figures['requests']} answers have another number of tokens than "
                     "was requested")
    if figures["output_tokens"] == 0:
        raise Failed("no token came")
    if figures["cut"]:
        return
    asked_in, asked_out = sum(len(prompt) for prompt, _ in prompts), sum(tokens for _, tokens in prompts)
    counts = {"answers": (len(prompts), figures["requests"]), "tokens received": (asked_out, figures["output_tokens"]),
              "tokens the server generated": (asked_out, rose["generation_tokens_total"]),
              "tokens the server took in": (asked_in, rose["prompt_tokens_total"])}
    for what, (wanted, got) in counts.items():
        if wanted != got:
            raise Failed(f"{what}: {got:.0f}, {wanted} were requested")


def measure_point(context, server, shape, point, seed):
    stream = point[2]
    workload, number = done_as(context, *point[:2])
    prompts, requests = make_requests(context, shape, workload, number, stream, seed)
    seconds = point_seconds(context, shape, point[0], stream)
    try:
        before = server.metrics_when_idle()
        with LoadProcesses() as load:  # after an error they are of no use to the next
            figures = load.run([server.url()], requests, number, stream=stream, seconds=seconds, timeout=120)
        after = server.metrics_when_idle()
    except LoadError as error:
        raise Failed(f"the load generator: {error}") from error
    samples, earlier = read_samples(after), read_samples(before)
    check_answers(figures, prompts, {name: samples[name] - earlier.get(name, 0) for name in (
        "generation_tokens_total", "prompt_tokens_total")})
    return {**figures, "workload": workload, "concurrency": number, "stream": stream,
            "ready_seconds": server.ready_seconds, **step_times(before, after)}


def step_times(before, after):
    """What the server itself has seen of its steps, medians: how long none was in flight before one, and what each part of
    one took the engine's thread."""
    gap = medians_between(before, after, "step_gap_seconds").get(None)
    parts = medians_between(before, after, "step_host_seconds")
    if gap is None or not parts or None in parts.values():
        raise Failed("the server's metrics step_gap_seconds and step_host_seconds count no step")
    return {"step_gap_p50_us": 1e6 * gap, "step_host_p50_us": {part: 1e6 * value for part, value in parts.items()}}


def serve_options(context):
    if context.on_gpu:
        return ["--max-model-len", MAX_MODEL_LEN]
    return [word for name, value in REHEARSED_LIMITS.items() for word in (f"--{name}", value)] + [
        "--kv-cache-memory-bytes", f"{REHEARSED_KV_MIB}M", "--swap-space", 0]


def point_item(context, server, shape, point, eager):
    seed = POINTS_OF[shape].index(point)
    return Item(item_name(shape, *point, eager), lambda: measure_point(context, server, shape, point, seed),
                model=server.model, session=server)


def server_items(context, shape, eager):
    """One server for all, which the first to come starts."""
    options = serve_options(context) + ["--enforce-eager"] * eager
    server = GpuServer(context, f"server/{shape}" + " eager" * eager, (shape, "bf16"), *options)
    for point in EAGER_POINTS if eager else POINTS_OF[shape]:
        yield point_item(context, server, shape, point, eager)


def engine_item(context, shape, workload):
    """The streamed points of a workload again, each for as long."""
    name, model = engine_name(shape, workload), (shape, "bf16")
    numbers = list(dict.fromkeys(done_as(context, workload, number)[1] for other, number, stream in POINTS_OF[shape]
                                 if other == workload and stream))
    return Item(name, lambda: measure_engine(context, name, model, workload, numbers), model=model)


def engine_name(shape, workload):
    return f"server/{shape} engine alone {workload}"


def measure_engine(context, name, model, workload, numbers):
    limits = {"max-model-len": MAX_MODEL_LEN} if context.on_gpu else {**REHEARSED_LIMITS, "kv-mib": REHEARSED_KV_MIB}
    words = [word for pair in limits.items() for word in pair]
    words += ["workloads", done_as(context, workload, 1)[0], "concurrency", ",".join(map(str, numbers)),
              "requests", OF_EACH[workload] * 10 if context.on_gpu else 1,
              "seconds", point_seconds(context, model[0], workload)]
    return context.results.json_lines(name, [context.program("bench_engine"), context.device, "auto",
                                             model_path(context, model), *words])


def measure_ceiling(context):
    """Of the load generator, by requests at once and mode: from servers that compute nothing."""
    lines = []
    with LoadProcesses() as load, StubServers(load.count) as stubs:
        for number in sorted({done_as(context, *point[:2])[1] for point in POINTS}):
            for stream in (True, False):
                requests = [make_request("stub", prompt, tokens, stream) for prompt, tokens in
                            Workload("100/128").prompts(max(64, number), REHEARSED_VOCAB, "ceiling")]
                try:
                    figures = load.run(stubs.urls, requests, number, stream=stream,
                                       seconds=1 if context.on_gpu else 0.1, repeat=True)
                except LoadError as error:
                    raise Failed(f"the load generator: {error}") from error
                if figures["failures"] or figures["wrong_length"] or not figures["output_tokens"]:
                    raise Failed(f"the load generator alone: {figures}")
                lines.append({**figures, "concurrency": number, "stream": stream})
    return lines


def items(context):
    yield Item("server/ceiling of the load generator", lambda: measure_ceiling(context))
    for shape, points in POINTS_OF.items():
        yield from server_items(context, shape, eager=False)
        for workload in dict.fromkeys(workload for workload, _, _ in points if workload in ("100/128", DECODE_HEAVY)):
            yield engine_item(context, shape, workload)
        yield from server_items(context, shape, eager=True)


# --- Judging -------------------------------------------------------------------------------------

def sizes_of(shape):
    """Weights that a token is multiplied with, those of the head, bytes of a token's keys and values; in bf16."""
    size = dict(zip(NAMES, MODELS[shape]))
    hidden, q_width, kv_width = size["hidden"], size["heads"] * size["head-dim"], size["kv-heads"] * size["head-dim"]
    body = size["layers"] * (hidden * (2 * q_width + 2 * kv_width) + 3 * hidden * size["ffn"])
    return body, hidden * size["vocab"], size["layers"] * 2 * kv_width * 2, size["layers"] * q_width


def decode_share(figures, shape, limits):
    """Of the tokens/s at which reading the weights once a step, and every sequence's keys and values, takes all of the
    bandwidth: the prompts' work counts as lost time."""
    body, head, kv_bytes, _ = sizes_of(shape)
    tokens_in, tokens_out = Workload(figures["workload"]).fixed
    step_bytes = 2 * (body + head) + figures["concurrency"] * (tokens_in + tokens_out / 2) * kv_bytes
    return figures["tokens_per_second"] * step_bytes / figures["concurrency"] / limits["read_bytes_per_s"]


def prefill_share(figures, shape, limits):
    """Of the rate of the large product, by the multiplications of prompts and answers; a token cut short counts as
    none of its prompt."""
    body, head, _, q_width = sizes_of(shape)
    tokens_in, tokens_out = Workload(figures["workload"]).fixed
    request = 2 * body * (tokens_in + tokens_out) + 2 * head * tokens_out + 4 * q_width * (
        tokens_in * tokens_in / 2 + tokens_out * tokens_in)
    return figures["requests"] * request / figures["seconds"] / limits["bf16_flops_per_s"]


def goals(context):
    results = context.results
    limits, rows = results.data("limits"), []
    for (what, workload, number, floor, stretch), judge in zip(GOALS, (decode_share, prefill_share)):
        figures = results.data(item_name(GOAL_MODEL, workload, number, True))
        value = judge(figures, GOAL_MODEL, limits) if figures and limits else None
        rows.append([what, "not measured" if value is None else percent(value), percent(floor), percent(stretch),
                     "-" if value is None else "yes" if value >= floor else "no"])
    return rows


def ceiling_share(results, figures):
    """How much of what the load generator can take in this was."""
    unit = "events_per_second" if figures["stream"] else "requests_per_second"
    for line in results.data("server/ceiling of the load generator") or ():
        if (line["concurrency"], line["stream"]) == (figures["concurrency"], figures["stream"]) and line[unit]:
            return figures[unit] / line[unit]
    return None


def is_client_bound(results, figures):
    return (ceiling_share(results, figures) or 0) > 0.5 or figures["client_busy"] > 0.5


def engine_beside(results, shape, workload, figures):
    return find(results, engine_name(shape, workload), concurrency=figures["concurrency"])


def rows_of(results, shape, points):
    rows = []
    for point in points:
        figures = results.data(item_name(shape, *point))
        if figures is None:
            continue
        engine = engine_beside(results, shape, point[0], figures)
        ms = [f"{figures[name]:.1f}" if point[2] else "-" for name in
              ("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")]
        client = f"{percent(ceiling_share(results, figures))}, busy {percent(figures['client_busy'])}"
        rows.append([point[0], "streamed" if point[2] else "whole", point[1], f"{figures['tokens_per_second']:.0f}",
                     f"{figures['requests_per_second']:.2f}", *ms, f"{figures['request_p50_ms']:.0f}",
                     "-" if engine is None else f"{engine['tokens_per_s']:.0f}",
                     client + ": MAY BE THE LIMIT" * is_client_bound(results, figures)])
    return rows


def ceilings(results):
    """Of the load generator alone: how many processes it has, and what they take in by requests at once."""
    lines = results.data("server/ceiling of the load generator") or ()
    return lines[0]["processes"] if lines else 0, [
        f"{line['concurrency']} at once "
        + (f"{line['events_per_second']:.0f} events/s" if line["stream"] else
           f"{line['requests_per_second']:.0f} whole answers/s") for line in lines]


def report(context):
    results, page = context.results, []
    processes, most = ceilings(results)
    page += [f"- load generator alone, {processes} processes: {text}" for text in most]
    page += [""] if page else []
    for shape, points in POINTS_OF.items():
        rows = rows_of(results, shape, points)
        if rows:
            page += [f"### {shape}", "", *table(
                ["tokens in/out", "answers", "at once", "tok/s", "req/s", "TTFT p50 ms", "p99", "ITL p50 ms", "p99",
                 "request p50 ms", "engine alone, tok/s", "load generator"], rows)]
        page += step_table(results, shape, EAGER_POINTS)
        page += engine_table(results, shape, dict.fromkeys(workload for workload, _, _ in points))
    return page


def step_table(results, shape, points):
    """Each point with recorded decode steps, and below it without."""
    rows, parts = [], []
    for point in points:
        for eager in (False, True):
            figures = results.data(item_name(shape, *point, eager))
            if figures is None:
                continue
            parts = list(figures["step_host_p50_us"])
            rows.append([point[0], point[1], "op by op" if eager else "recorded", f"{figures['tokens_per_second']:.0f}",
                         f"{figures['itl_p50_ms']:.2f}", f"{figures['step_gap_p50_us']:.0f}",
                         *(f"{us:.0f}" for us in figures["step_host_p50_us"].values())])
    return [f"### {shape}, steps recorded and op by op, medians that the server has seen", "", *table(
        ["tokens in/out", "at once", "decode steps", "tok/s", "ITL p50 ms", "no step under way us",
         *(f"{part} us" for part in parts)], rows)] if rows else []


def engine_table(results, shape, workloads):
    rows = [[line["shape"], line["concurrency"], f"{line['tokens_per_s']:.0f}", f"{line['step_us']:.0f}",
             f"{line['mean_batch']:.1f}", f"{line['wait_us']:.0f}", f"{line['empty_us']:.0f}",
             f"{line['ttft_p50_ms']:.1f}", f"{line['ttft_p99_ms']:.1f}", line["preemptions"]]
            for workload in workloads for line in results.data(engine_name(shape, workload)) or ()]
    return [f"### {shape}, engine alone", "", *table(
        ["tokens in/out", "at once", "tok/s", "step us", "tokens a step", "engine waits us", "no step under way us",
         "TTFT p50 ms", "p99", "preemptions"], rows)] if rows else []


def summary(context):
    processes, most = ceilings(context.results)
    for shape, points in POINTS_OF.items():
        for row in rows_of(context.results, shape, points):
            bound = ", THE CLIENT MAY BE THE LIMIT" if "LIMIT" in row[-1] else ""
            yield (f"server {shape} {row[0]} x {row[2]} {row[1]}: {row[3]} tok/s, TTFT {row[5]}, ITL {row[7]} ms, "
                   f"engine alone {row[10]}{bound}")
    if most:
        yield f"load generator alone, {processes} processes: {', '.join(most[::2][-2:])}"
