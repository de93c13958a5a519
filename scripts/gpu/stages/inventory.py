"""What machine this is: figures of another one do not compare."""

import os
import platform
import shutil
import sys
from pathlib import Path

from gpu_context import CUBLASLT, GIB, NCCL, SCRATCH_FOLDERS, ask, ask_gpu, find_library, find_tool
from gpu_figures import table
from gpu_schedule import Item

GPU_FIELDS = {
    "gpu": "name", "driver": "driver_version", "compute capability": "compute_cap", "memory MiB": "memory.total",
    "free MiB": "memory.free", "SM clock MHz": "clocks.sm", "SM clock at most": "clocks.max.sm",
    "memory clock MHz": "clocks.mem", "power limit W": "power.limit", "temperature C": "temperature.gpu",
    "PCIe generation": "pcie.link.gen.current", "PCIe lanes": "pcie.link.width.current",
}


def read_field(path, name):
    """Of /proc/cpuinfo or /proc/meminfo: the first line of that name."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def describe_python():
    modules = {}
    for name in ("torch", "transformers", "numpy"):
        version = ask(sys.executable, "-c", f"import importlib.metadata as m; print(m.version('{name}'))")
        modules[name] = version or "not there"
    return {"python": platform.python_version(), **modules}


def describe_host():
    folders = {str(folder): f"{shutil.disk_usage(folder).free / GIB:.1f} GiB free"
               for folder in SCRATCH_FOLDERS if os.path.isdir(folder)}
    tools = {name: find_tool(name) or "not there" for name in ("nvcc", "ncu", "compute-sanitizer")}
    return {"processor": read_field("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "system": platform.platform(), "RAM": read_field("/proc/meminfo", "MemTotal"), **folders, **tools,
            **{name: str(find_library(name) or "where the loader knows") for name in (CUBLASLT, NCCL)},
            **describe_python()}


def take(context):
    gpu = {}
    if context.on_gpu:
        gpu = dict(zip(GPU_FIELDS, ask_gpu(",".join(GPU_FIELDS.values()))))
    return {**gpu, "commit": context.commit, **describe_host()}


def forget_another_gpu(context):
    """What was found on another GPU is not continued: figures of two would be mixed."""
    found = context.results.data("inventory")
    here = ask("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()[:1]
    if found and here and here[0].strip() != found.get("gpu"):
        print(f"the results are of {found.get('gpu')}, this is {here[0].strip()}: all is done anew", flush=True)
        context.results.items.clear()


def items(context):
    if context.on_gpu:
        forget_another_gpu(context)
    yield Item("inventory", lambda: take(context))


def report(context):
    return table(["", ""], (context.results.data("inventory") or {}).items())


def summary(context):
    found = context.results.data("inventory") or {}
    keys = ("driver", "SM clock MHz", "SM clock at most", "memory clock MHz", "power limit W", "cores")
    return [", ".join(f"{key} {found[key]}" for key in keys if key in found)]
