#!/usr/bin/env python3
"""Writes the manual pages quire(1) and quire.yaml(5) and the completions of bash and zsh, from the program itself and the
templates beside this file. Usage: manual.py LIST_OPTIONS QUIRE VERSION SOURCE_ROOT OUT_FOLDER TEMPLATE..."""

import re
import sys
from pathlib import Path

import completion
import man_page
from manual_input import read_commands, read_exit_statuses, read_options


def release_date(changelog):
    """Of the newest release: the same pages whenever they are built."""
    return re.search(r"^## \[[\d.]+\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)[1]


def fill(template, values):
    """Each line of the template that is @NAME@ becomes a text of several lines; inside a line it is a word."""
    return re.sub(r"@([A-Z_]+)@", lambda marker: values[marker[1]], template)


def main():
    list_options, quire, version = sys.argv[1:4]
    root, out = map(Path, sys.argv[4:6])
    options, commands = read_options(list_options), read_commands(quire)
    texts = {
        "SYNOPSIS": man_page.synopsis(commands),
        "COMMANDS": man_page.command_sections(commands),
        "OPTIONS": man_page.short_options(options),
        "SETTINGS": man_page.full_options(options),
        "EXIT_STATUSES": man_page.exit_statuses(read_exit_statuses((root / "docs/memory.md").read_text())),
        "BASH_COMMANDS": completion.bash_commands(commands, options),
        "ZSH_COMMANDS": completion.zsh_commands(commands, options),
        "ZSH_LIST": completion.zsh_list(commands),
        "VERSION": [version],
        "DATE": [release_date((root / "CHANGELOG.md").read_text())],
        "WORDS": [" ".join([command.name for command in commands] + ["--version", "--help"])],
    }
    values = {name: "\n".join(lines) for name, lines in texts.items()}
    for template in map(Path, sys.argv[6:]):
        text = fill(template.read_text(), values)
        (out / template.stem).write_text(man_page.wrap(text) if text.startswith(".TH") else text)


if __name__ == "__main__":
    main()
