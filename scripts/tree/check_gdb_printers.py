#!/usr/bin/env python3
"""Stops the simulation in gdb and looks at a sequence by gdb_printers.py. Skipped (77) where there is no gdb, or it may not
trace. Usage: check_gdb_printers.py TEST_SIM"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMANDS = ["set pagination off", f"source {HERE / 'gdb_printers.py'}", "break step_output_token", "run --seeds 3 --first-seed 5",
            "print *sequence", "print *sequence->group", "up 1", "quire-groups core", "kill"]
EXPECTED = [r"= choice 0 running: \d+ of \d+ tokens, \d+ computed, \d+ in flight, \d+ device blocks \[\d",
            r"= request \d+ running: \d+ of \d+ sequences go on = \{\[0\] = choice 0",
            r"(?m)^    choice 0 running: \d+ of"]


def main():
    if shutil.which("gdb") is None:
        return 77
    command = ["gdb", "-q", "-batch", "-nx"] + [word for line in COMMANDS for word in ("-ex", line)]
    done = subprocess.run(command + [sys.argv[1]], capture_output=True, text=True, timeout=100)
    text = done.stdout + done.stderr
    if re.search(r"ptrace: |Python scripting is not supported", text):
        return 77
    missing = [pattern for pattern in EXPECTED if not re.search(pattern, text)]
    if missing:
        print(text, *(f"there is no line like: {pattern}" for pattern in missing), sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
