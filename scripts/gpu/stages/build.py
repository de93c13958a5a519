"""Builds for this machine's GPU alone what the stages run; nothing to do in a packed folder. The server is built
where its libraries are."""

from gpu_context import ask_gpu, find_tool
from gpu_results import NotRun
from gpu_schedule import Item


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
    context.results.command("build/compile", ["ninja", "-C", context.build, "gpu-check-programs"])


def items(context):
    if context.build is not None:
        yield Item("build/configure", lambda: configure(context))
        yield Item("build/compile", lambda: compile_all(context))
