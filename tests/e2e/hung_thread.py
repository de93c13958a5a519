"""Stops single threads of a program that the tests have started, by ptrace(2), as a call that never returns does."""

import contextlib
import ctypes
import os
import time
from pathlib import Path

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def trace(request, thread):
    if libc.ptrace(request, thread, None, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def threads(pid):
    """Name -> numbers of the threads."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.setdefault((task / "comm").read_text().strip(), []).append(int(task.name))
    return found


def hang(numbers):
    """They stand still until the process ends. To be followed by reap in the same thread of the test."""
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            trace(PTRACE_SEIZE, number)
            trace(PTRACE_INTERRUPT, number)
            os.waitpid(number, WALL)
    return numbers


def reap(numbers, seconds):
    """A process whose threads are traced is over once their ends were taken, which may take so long."""
    deadline, left = time.monotonic() + seconds, set(numbers)
    while left and time.monotonic() < deadline:
        for number in sorted(left):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(number, WALL | os.WNOHANG)[0] == 0:
                    continue
            left.remove(number)
        time.sleep(0.01)
