"""Where a step's time goes: kernels by op, copies and gaps, from what CUPTI records of bench_model
(timeline.c, timeline_account.py).

Recording makes a step longer, its gaps above all: every account is shown beside the time of the same step without
it, and a GPU's idle share, G7, is what its busy time leaves of that."""

from gpu_context import TOOLKIT, python_library_folders
from gpu_figures import find, percent, table
from gpu_models import WEIGHT_MIB, model_path, pool_mib
from gpu_results import Failed, NotRun
from gpu_schedule import Item
from timeline_account import (COSTLY, GAPS, MAX_DIFFERENCE, AccountError, Refused, check_difference, make_account,
                              read_timeline)

CUPTI = ("libcupti.so.13", "libcupti.so.12")
# Of each model the steps: op, sequences, tokens of each, context.
STEPS = {"llama-3-8b": (("decode", 1, 1, 1024), ("decode", 64, 1, 1024), ("prefill", 1, 2048, 2048)),
         "llama-3.2-1b": (("decode", 1, 1, 1024), ("decode", 256, 1, 1024))}
BATCH_US = 100000
TIMELINE_BYTES = 256 << 20
# In a rehearsal other programs take the processor between the last work of a batch and the host's second look at
# its clock; a step too many or too few is found by their number.
MAX_DIFFERENCE_REHEARSED = 0.3
SHOWN_PARTS, SHOWN_KERNELS = 20, 12


def find_cupti(context):
    """None where the loader has to know."""
    if not context.on_gpu:
        return context.program("libquire-cuda-sim.so")
    folders = [TOOLKIT / "extras/CUPTI/lib64", TOOLKIT / "lib64", TOOLKIT / "lib",
               TOOLKIT / "targets/x86_64-linux/lib", *python_library_folders()]
    return next((folder / name for name in CUPTI for folder in folders if (folder / name).exists()), None)


def shape_text(step):
    return "{1} x {2} of {3}".format(*step)


def item_name(shape, step):
    return f"timelines/{shape} {step[0]} {shape_text(step)}"


def words_of(steps):
    """What bench_model is asked for."""
    decodes = [step for step in steps if step[0] == "decode"]
    prompts = sorted({step[2] for step in steps if step[0] == "prefill"})
    lists = {"batches": sorted({step[1] for step in decodes}), "contexts": sorted({step[3] for step in decodes}),
             "prompts": prompts}
    return [word for name, values in lists.items() if values for word in (name, ",".join(map(str, values)))]


def done_as(context, step):
    """A rehearsal does a small one in its place."""
    op, number, query, _ = step
    small = (op, min(number, 4), 1, 64) if op == "decode" else (op, 1, 32, 32)
    return step if context.on_gpu else small


class Runs:
    """Runs of bench_model for the steps of one model, recorded and not, each done once, when it is first asked for; the
    session of the steps' items."""

    def __init__(self, context, shape):
        self.context, self.shape, self.name = context, shape, f"timelines/{shape}"
        self.steps = [done_as(context, step) for step in STEPS[shape]]
        self.done = {}

    def close(self):
        self.done = {}

    def once(self, name, action):
        if name not in self.done:
            try:
                self.done[name] = action()
            except (Failed, NotRun) as reason:
                self.done[name] = reason
        if isinstance(self.done[name], Exception):
            raise self.done[name]
        return self.done[name]

    def bench(self, name, env=None):
        context = self.context
        pool = pool_mib(WEIGHT_MIB[self.shape], 16 * 1024) if context.on_gpu else 1
        return context.results.json_lines(
            f"timelines/{self.shape} {name}", [
                context.program("bench_model"), context.device, "bf16", model_path(context, (self.shape, "bf16")),
                *words_of(self.steps), "pool-mib", pool, "batch-us", BATCH_US], env=env)

    def record(self):
        """What the host measured, and the timeline."""
        path = self.context.scratch("timeline", TIMELINE_BYTES)
        library = "libquire-timeline.so" if self.context.on_gpu else "libquire-timeline-sim.so"
        env = {"CUDA_INJECTION64_PATH": str(self.context.program(library)), "QUIRE_TIMELINE": str(path)}
        cupti = find_cupti(self.context)
        if cupti:
            env["QUIRE_CUPTI"] = str(cupti)
        try:
            return self.bench("recorded", env), read_timeline(path)
        except Refused as refused:
            raise NotRun(f"CUPTI does not work here: {refused}") from refused
        except AccountError as error:
            raise Failed(str(error)) from error
        finally:
            path.unlink(missing_ok=True)

    def recorded(self):
        return self.once("recorded", self.record)

    def unrecorded_us(self, step):
        """From the stage `steps` where it was measured there."""
        line = find(self.context.results, f"steps/{self.shape}", op=step[0], shape=shape_text(step), sampling="greedy",
                    replayed=False)
        return (line or find_line(self.once("unrecorded", lambda: self.bench("unrecorded")), step))["us"]


def find_line(lines, step):
    for line in lines:
        if line["op"] == step[0] and line["shape"] == shape_text(step) and line.get("clock", "host") == "host":
            return line
    raise Failed(f"bench_model did not measure {step[0]} {shape_text(step)} by the host's clock")


def take(runs, name, wanted):
    context = runs.context
    step = done_as(context, wanted)
    lines, timeline = runs.recorded()
    line = find_line(lines, step)
    try:
        account = make_account(timeline, round(1e9 * line["start"]), round(1e9 * line["end"]), line["calls"])
        account["device_us"] = line.get("device_us")
        account["unrecorded_us"] = runs.unrecorded_us(step)
        account["recorded_idle_share"] = account["idle_share"]
        account["idle_share"] = round(max(0.0, 1 - account["busy_us"] / account["unrecorded_us"]), 5)
        context.results.write_log(name, ["the account"], "\n".join(describe(account)), "")
        check_difference(account, MAX_DIFFERENCE if context.on_gpu else MAX_DIFFERENCE_REHEARSED)
    except AccountError as error:
        raise Failed(str(error)) from error
    return account


def item(runs, step):
    name = item_name(runs.shape, step)
    return Item(name, lambda: take(runs, name, step), model=(runs.shape, "bf16"), session=runs)


def items(context):
    for shape, steps in STEPS.items():
        runs = Runs(context, shape)
        for step in steps:
            yield item(runs, step)


# --- Report --------------------------------------------------------------------------------------

def describe(account):
    us = account["us"]
    rows = [[part["part"], part["per_step"], f"{part['us']:.1f}", f"{part['median_us']:.1f}",
             percent(part["us"] / us)] for part in account["parts"][:SHOWN_PARTS]]
    rest = account["parts"][SHOWN_PARTS:]
    if rest:
        rest_us = sum(part["us"] for part in rest)
        rows.append(["the rest", "", f"{rest_us:.1f}", "", percent(rest_us / us)])
    rows.append(["together", "", f"{us:.1f}", f"{account['median_us']:.1f}", percent(1)])
    lines = table(["part", "times a step", "us", "median us", "share"], rows)
    kernels = [[kernel["part"], kernel["name"], kernel["per_step"], f"{kernel['us']:.1f}",
                f"{kernel['us'] / kernel['per_step']:.2f}"] for kernel in account["kernels"][:SHOWN_KERNELS]]
    lines += table(["op", "kernel", "times a step", "us", "us each"], kernels)
    return lines + [f"- {line}" for line in describe_host(account)] + [""]


def describe_host(account):
    recorded = account["us"] / account["unrecorded_us"] - 1
    yield (f"{account['steps']} steps; the host measured {account['host_us']:.1f} us a step meanwhile "
           f"({100 * account['difference']:+.2f} %), and {account['unrecorded_us']:.1f} us unrecorded: recording takes "
           f"{100 * recorded:+.1f} %")
    yield (f"the device works {account['busy_us']:.1f} us and idles {percent(account['recorded_idle_share'])} of the "
           f"recorded step, {percent(account['idle_share'])} of the unrecorded")
    if account["device_us"] is not None:
        yield (f"from its first work to its last a step takes {account['span_us']:.1f} us here, and "
               f"{account['device_us']:.1f} by events around it (medians)")
    if account["enqueue_us"] is not None:
        yield (f"the host enqueues for {account['enqueue_us']:.1f} us, of which {account['enqueue_calls_us']:.1f} in "
               f"calls, and waits for {account['waits_us']:.1f} us")
    others = [f"{name} {call['per_step']:g} times, {call['us']:.1f} us"
              for name, call in account["other_calls"].items() if call["us"] >= 1 or COSTLY.search(name)]
    if others:
        yield f"other calls a step: {'; '.join(others)}"
    if account["costly_calls"]:
        yield f"calls that belong before the first step: {', '.join(account['costly_calls'])}"
    if account["work_of_unknown_calls"]:
        yield f"of {account['work_of_unknown_calls']} pieces of work the call is not known"


def accounts(context):
    for shape, steps in STEPS.items():
        for step in steps:
            account = context.results.data(item_name(shape, step))
            if account is not None:
                yield f"{shape} {step[0]} {shape_text(step)}", account


def report(context):
    return [line for name, account in accounts(context) for line in (f"### {name}", "", *describe(account))]


def summary(context):
    for name, account in accounts(context):
        gaps = sum(part["us"] for part in account["parts"] if part["part"] in GAPS[:3])
        linear = sum(part["us"] for part in account["parts"] if part["part"].startswith("linear"))
        yield (f"timeline {name}: {account['us']:.0f} us ({account['unrecorded_us']:.0f} unrecorded), busy "
               f"{account['busy_us']:.0f}, linear {linear:.0f}, gaps {gaps:.0f}, "
               f"enqueue {account['enqueue_us'] or 0:.0f}")
