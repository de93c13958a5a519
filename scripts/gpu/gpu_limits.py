#!/usr/bin/env python3
"""Measures what a GPU can do at most, through torch; prints one line of JSON.

A device-to-device copy of 4 GiB (bytes read and written both count), a sum over 4 GiB (read only), and a
bf16 matrix product of 8192 cubed on random data, since zeros run faster than real numbers do. Medians of
several runs, each timed by events.
"""

import json
import statistics

import torch

BYTES = 4 << 30
SIZE = 8192
RUNS = 15


def median_seconds(call):
    for _ in range(3):
        call()
    times = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def main():
    properties = torch.cuda.get_device_properties(0)
    source = torch.randn(BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * BYTES / median_seconds(lambda: target.copy_(source))
    read = BYTES / median_seconds(source.sum)
    del source, target
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    gemm = 2 * SIZE**3 / median_seconds(lambda: a @ b)
    print(json.dumps({
        "gpu": properties.name, "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory, "l2_bytes": properties.L2_cache_size,
        "copy_bytes_per_s": copy, "read_bytes_per_s": read, "bf16_flops_per_s": gemm,
        "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
