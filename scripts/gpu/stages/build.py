"""Builds for this machine's GPU alone what the stages run; nothing to do in a packed folder. The server is built
where its libraries are."""

from gpu_context import ask_gpu, find_tool
from gpu_results import PASSED, NotRun

BUILD_S = 3600  # no build takes longer, on however busy a machine


def build_options(context):
    # Warnings of a compiler that is not ours end nothing.
    options = ["--buildtype", "release", "-Dwerror=false"]
    if context.on_gpu:
        capability = ask_gpu("compute_cap")[0].replace(".", "")
        options += ["-Dcuda=enabled", f"-Dgpu_arch={capability}"]
    return options


def configure(context):
    if (context.build / "build.ninja").exists():
        return
    if context.on_gpu and find_tool("nvcc") is None:
        raise NotRun("nvcc is neither on the path nor in /usr/local/cuda/bin")
    context.results.command("build/configure", ["meson", "setup", context.build, context.root,
                                                *build_options(context)])


def compile_all(context):
    if not (context.build / "build.ninja").exists():
        raise NotRun("it is not configured")
    context.results.command("build/compile", ["ninja", "-C", context.build, "gpu-check-programs"], BUILD_S)


def run(context):
    if context.build is None:
        return
    if context.results.status("build/compile") == PASSED:
        context.results.items.pop("build/compile")  # ninja knows best what is new
    context.results.item("build/configure", lambda: configure(context), 20)
    context.results.item("build/compile", lambda: compile_all(context), 60)
