"""What the GPU can do at most: every share is one of these."""

from gpu_figures import table
from gpu_schedule import Item


def measure(context):
    program = context.program("bench_limits" if context.on_gpu else "bench_limits_sim")
    words = [] if context.on_gpu else ["mib", 1, "size", 32, "runs", 2]
    return context.results.json_lines("limits", [program, *words])[0]


def items(context):
    yield Item("limits", lambda: measure(context))


def describe(limits):
    return {"large copy, bytes read and written": f"{limits['copy_bytes_per_s'] / 1e9:.0f} GB/s",
            "large sum, bytes read": f"{limits['read_bytes_per_s'] / 1e9:.0f} GB/s",
            "large bf16 product, random data": f"{limits['bf16_flops_per_s'] / 1e12:.0f} TFLOP/s"}


def report(context):
    limits = context.results.data("limits")
    if limits is None:
        return ["The limits of the GPU were not measured: no share can be given.", ""]
    return table(["limit, measured in this run", "value"], describe(limits).items())


def summary(context):
    limits = context.results.data("limits")
    return [f"limits: copy {limits['copy_bytes_per_s'] / 1e9:.0f} GB/s, read "
            f"{limits['read_bytes_per_s'] / 1e9:.0f} GB/s, bf16 product {limits['bf16_flops_per_s'] / 1e12:.0f} TFLOP/s"
            ] if limits else []
