#!/usr/bin/env python3
"""Reads the last stage of a Containerfile and prints it as a shell script that does the same to a system in a folder:
container_steps.py CONTAINERFILE STAGES, where STAGES/NAME/... is what the stages before it made. The script calls copy SOURCE
TARGET, run COMMAND, and at the end enter USER VARIABLES COMMAND, which whoever sources it defines. Fails for an instruction it does
not know, a COPY from a stage that is none, and an image that runs as root or exposes nothing."""

import json
import re
import shlex
import sys
from pathlib import Path


def instructions(text):
    """(name, arguments) of each; comments left out, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            name, _, arguments = line.strip().partition(" ")
            yield name.upper(), arguments.strip()


def stages(steps):
    """Each stage's image, name, instructions."""
    found = []
    for name, arguments in steps:
        if name == "FROM":
            image, _, alias = re.fullmatch(r"(\S+)( AS (\S+))?", arguments, re.IGNORECASE).groups()
            found.append((image, alias, []))
        else:
            found[-1][2].append((name, arguments))
    return found


def script(last, earlier, folder):
    lines, user, variables, command, exposed = [], "root", [], [], []
    for name, arguments in last:
        if name == "COPY":
            stage, source, target = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", arguments).groups()
            if stage not in earlier:
                raise SystemExit(f"COPY from {stage!r}, which is no stage")
            lines.append(f"copy {folder}/{stage}{source} {target}")
        elif name == "RUN":
            lines.append(f"run {shlex.quote(arguments)}")
        elif name == "ENV":
            variables += shlex.split(arguments)
        elif name == "USER":
            user = arguments
        elif name == "EXPOSE":
            exposed += arguments.split()
        elif name == "VOLUME":
            lines.append(f"run 'mkdir -p {arguments}'")
        elif name == "ENTRYPOINT":
            command = json.loads(arguments)
        else:
            raise SystemExit(f"unknown instruction {name}")
    if user == "root" or not exposed or not command:
        raise SystemExit("the image must have a user that is not root, a port and an entrypoint")
    return [*lines, f"enter {user} {shlex.quote(shlex.join(variables))} {shlex.quote(shlex.join(command))}"]


def main():
    found = stages(instructions(Path(sys.argv[1]).read_text()))
    images = {image for image, _, _ in found}
    if not images <= {"debian:12", "debian:12-slim"}:
        raise SystemExit(f"other images than Debian 12's: {images}")
    print("\n".join(script(found[-1][2], [alias for _, alias, _ in found[:-1]], sys.argv[2])))


if __name__ == "__main__":
    main()
