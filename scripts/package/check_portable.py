#!/usr/bin/env python3
"""Whether a build runs on every x86-64 machine: flags that allow instructions beyond the baseline's stand only in the commands of
the kernels' levels, which the program chooses among when it starts. Usage: check_portable.py BUILD/compile_commands.json."""

import json
import re
import sys
from pathlib import Path

LEVEL = re.compile(r"kernels/cpu/levels/(gemm|ops)/cpu_\1_(avx\w+|amx)\.c$")
WIDER = re.compile(r"(?<=\s)-m(?:arch=|cpu=|avx|amx|fma|f16c|sse[34]|bmi|popcnt)\S*")


def main():
    commands = [command for command in json.loads(Path(sys.argv[1]).read_text()) if "tests/" not in command["file"]]
    levels = [command for command in commands if LEVEL.search(command["file"])]
    for command in commands:
        wider = WIDER.findall(command["command"])
        if wider and command not in levels or any(re.search("native", flag) for flag in wider):
            sys.exit(f"{command['file']} is compiled for other machines: {' '.join(wider)}")
    if not levels or not all(WIDER.search(command["command"]) for command in levels):
        sys.exit("no command has the flags of a level: the check cannot fail")
    print(f"{len(levels)} files of levels, {len(commands) - len(levels)} for the baseline")


if __name__ == "__main__":
    main()
