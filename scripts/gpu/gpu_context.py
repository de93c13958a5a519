"""What every stage of scripts/gpu/gpu_check is given: where programs, models and libraries are, which device
is asked, and the results so far."""

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from gpu_results import PASSED, Failed, NotRun, Results

GIB = 1 << 30
TOOLKIT = Path("/usr/local/cuda")
CUBLASLT = "libcublasLt.so.13"
NCCL = "libnccl.so.2"
# Where models and passing files may lie: memory first, since what is read from there is read fast.
SCRATCH_FOLDERS = ("/dev/shm", tempfile.gettempdir(), "/var/tmp")
PACKED_PROGRAMS, PACKED_LIBRARIES = "bin", "lib"  # of a packed folder
SCRATCH_NUMBERS = itertools.count()
BUILD_FOLDERS = ("tests/golden", "tests/kernels", "scripts/gpu", "scripts/bench", "server", "kernels/cuda")


def ask(*command):
    """What a program prints, or nothing."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def ask_gpu(query):
    """Values of nvidia-smi for the first GPU, or NotRun."""
    answer = ask("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    if not answer:
        raise NotRun("nvidia-smi does not answer: is there a GPU and its driver?")
    return [value.strip() for value in answer.splitlines()[0].split(",")]


def find_tool(name):
    """On the path, or in the toolkit's usual folder."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{TOOLKIT}/bin")


def python_library_folders():
    """Where NVIDIA's packages for Python put their libraries."""
    for folder in dict.fromkeys(sys.path):
        packages = Path(folder) / "nvidia"
        if packages.is_dir():
            yield from sorted(packages.glob("*/lib"))


def find_library(name):
    """The folder that holds it, in the toolkit or beside this Python; None where the loader has to know."""
    folders = [TOOLKIT / "lib64", TOOLKIT / "lib", TOOLKIT / "targets/x86_64-linux/lib",
               *python_library_folders()]
    return next((folder for folder in folders if (folder / name).exists()), None)


@dataclass
class Context:
    root: Path  # of the sources, or the packed folder
    build: Path  # None: the folder is packed
    out: Path
    models: Path  # None: where there is room
    device: str
    results: Results
    commit: str = ""  # of the packed folder
    scratch_files: list = field(default_factory=list)

    def __post_init__(self):
        folders = [self.build / "kernels/cuda" if self.build else self.root / PACKED_LIBRARIES]
        found = [find_library(name) for name in (CUBLASLT, NCCL)] if self.on_gpu else []
        folders += dict.fromkeys(folder for folder in found if folder)
        before = os.environ.get("LD_LIBRARY_PATH")
        self.results.env["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([before] if before else [])])

    @property
    def on_gpu(self):
        return self.device == "cuda"

    def program(self, name):
        """A program of ours by its name."""
        folders = ([self.build / folder for folder in BUILD_FOLDERS] if self.build else
                   [self.root / PACKED_PROGRAMS, self.root / PACKED_LIBRARIES])
        for folder in folders:
            if (folder / name).is_file():
                return folder / name
        if self.build is None or self.results.status("build/compile") == PASSED:
            raise Failed(f"{name} is not there")
        raise NotRun(f"{name} is not built")

    def device_words(self, dtype, invariant=False):
        """Arguments of the test programs."""
        return [self.device, dtype] + ["batch-invariant"] * invariant

    def room(self, size):
        """A folder with so many bytes to spare, memory before disk."""
        folders = [self.models] if self.models else map(Path, SCRATCH_FOLDERS)
        for folder in folders:
            if folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > size + GIB:
                return folder
        raise NotRun(f"no folder has room for {size / GIB:.1f} GiB; --models names one")

    def scratch(self, name, size=0):
        """The path of a file that is removed when the call ends."""
        path = self.room(size) / f"quire-{os.getpid()}-{next(SCRATCH_NUMBERS)}-{name}"
        self.scratch_files.append(path)
        return path

    def remove_scratch(self):
        for path in self.scratch_files:
            path.unlink(missing_ok=True)

    def python(self, name, modules, script, *words):
        """What a script prints, named from scripts/; NotRun when this Python lacks what it imports. Not with our
        programs' libraries: Python's packages bring their own."""
        for module in modules:
            if importlib.util.find_spec(module) is None:
                raise NotRun(f"{sys.executable} has no {module}")
        env = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        return self.results.command(name, [sys.executable, self.root / "scripts" / script, *words], env=env)
