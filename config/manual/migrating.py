#!/usr/bin/env python3
"""The tables of docs/migrating.md, from config/peer_flags.c. Usage: migrating.py LIST_OPTIONS PAGE [--write]; without --write,
status 1 if the page is not up to date."""

import re
import subprocess
import sys
from pathlib import Path

HEADER = re.compile(r"^\| (vLLM|llama-server) \| Quire \| remark \|$")


def read_flags(program):
    done = subprocess.run([program, "peers"], stdout=subprocess.PIPE, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def code(words):
    return ", ".join(f"`{word}`" for word in words)


def counterpart(names, kind, option):
    if kind == "same":
        return code([f"--{option}"] if option else names)
    if kind == "none" and option:
        return f"use `--{option}`"
    return {"taken": "taken", "needless": "not needed", "none": "none"}[kind]


def prose(remark):
    """With flags as code, outside of what is code already."""
    parts = re.split(r"(`[^`]*`)", remark)
    return "".join(part if part.startswith("`") else re.sub(r"(?<![\w-])(--[a-z][a-z0-9-]*)", r"`\1`", part) for part in parts)


def table(flags, program):
    rows = []
    for owner, names, kind, option, remark in flags:
        if program in owner.split(" and "):
            names = names.split()
            rows.append(f"| {code(names)} | {counterpart(names, kind, option)} | {prose(remark)} |".replace("|  |", "| |"))
    assert len(rows) > 80, f"{program}: {len(rows)} rows"
    return [f"| {program} | Quire | remark |", "|---|---|---|", *rows]


def generate(page, flags):
    lines, in_table = [], False
    for line in page.splitlines():
        header = HEADER.match(line)
        if header:
            lines += table(flags, header[1])
        in_table = bool(header) or (in_table and line.startswith("|"))
        if not in_table:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    flags, page = read_flags(sys.argv[1]), Path(sys.argv[2])
    new = generate(page.read_text(), flags)
    if "--write" in sys.argv:
        page.write_text(new)
    elif page.read_text() != new:
        raise SystemExit(f"{page} is not what config/peer_flags.c says; {' '.join(sys.argv[:3])} --write makes it so")


if __name__ == "__main__":
    main()
