"""The options of the binary under test, as its --help lists them, and texts checked against them."""

import functools
import re
import subprocess

from quire_server import BINARY

FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*[a-z0-9])")


@functools.cache
def help_of(command):
    return subprocess.run([BINARY, *command.split(), "--help"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


@functools.cache
def serve_options():
    return set(FLAG.findall(help_of("serve")))


@functools.cache
def all_options():
    """Of every command, with --no-NAME for the switches."""
    commands = [""] + re.findall(r"^ *(?:usage: )?quire ([a-z]+) ", help_of(""), re.MULTILINE)
    own = {name for command in commands for name in FLAG.findall(help_of(command))}
    return own | {f"no-{name}" for name in serve_options()} | {"help", "version", "once", "plan", "verify-weights"}


def check_words(text):
    """The flags behind each `quire` of a text."""
    for command in re.findall(r"(?:^|[\s\"(])quire [^\n;|&]*(?:\\\n[^\n;|&]*)*", text, re.MULTILINE):
        unknown = set(FLAG.findall(command)) - all_options()
        assert not unknown, f"quire has no option {unknown}"


def check_yaml_keys(values):
    unknown = set(values) - serve_options() - {"models"}
    assert not unknown, f"quire.yaml has no {unknown}"
