#!/usr/bin/env python3
"""The manual pages and completions that the build made: every command and option is in each of them, man and mandoc find no
fault, and bash and zsh offer what they should when the tabulator is pressed. Usage: check_manual.py QUIRE FOLDER.
Programs that are not installed are named and left out. Exits 77 (skipped) where a shell can have no terminal."""

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from shell import Shell

PAGES = ("quire.1", "quire.yaml.5")
LINTERS = (["mandoc", "-Tlint"], ["groff", "-man", "-ww", "-Tutf8", "-z"], ["man", "--warnings", "-l", "-Tutf8"])
NO_KEYS = {"config"}  # options that the file cannot have
ISA = {"auto", "portable", "avx2", "amx", "neon", "i8mm"}


def help_of(quire, *words):
    command = [quire, *words, "--help"] + (["all"] if words == ("serve",) else [])
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def serve_options(quire):
    return re.findall(r"^  --([a-z0-9-]+)", help_of(quire, "serve"), re.MULTILINE)


def commands(quire):
    return re.findall(r"^  quire ([a-z]+)", help_of(quire), re.MULTILINE)


def check_contents(quire, folder):
    manual, settings, bash, zsh = ((folder / name).read_text() for name in (*PAGES, "quire.bash", "_quire"))
    options, names = serve_options(quire), commands(quire)
    assert len(options) > 40 and len(names) > 4
    for option in options:
        escaped = option.replace("-", r"\-")
        assert f"\\fB\\-\\-{escaped}\\fR" in manual, option
        assert option in NO_KEYS or f"\n\\fB{escaped}\\fR: " in settings, option
        assert option in NO_KEYS or f"QUIRE_{option.upper().replace('-', '_')}" in settings, option
        assert re.search(rf"(?<![\w-])--{option}(?![\w-])", bash), option
        assert re.search(rf"--{option}[=\[]", zsh), option
    for name in names:
        assert f".SS quire {name}\n" in manual, name
        assert f"\n    {name})\n" in bash and f"\n    {name})\n" in zsh, name
        for flag in re.findall(r"--([a-z][a-z0-9-]+)", help_of(quire, name).split("\n\n")[0]):
            assert flag == "name" or flag.replace("-", r"\-") in manual and f"--{flag}" in bash, (name, flag)
    for page in (manual, settings):
        assert not re.search(r"@[A-Z_]+@", page)


def lint(folder):
    for linter in LINTERS:
        if shutil.which(linter[0]) is None:
            print(f"{linter[0]} is not installed: the pages were not checked by it")
            continue
        for page in PAGES:
            done = subprocess.run([*linter, folder / page], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            said = done.stderr + (done.stdout if linter[0] == "mandoc" else "")
            assert done.returncode == 0 and not said, f"{' '.join(linter)} {page}: {said}"
        with tempfile.NamedTemporaryFile("w", suffix=".1") as broken:
            broken.write(".TH X 1\n.SH NAME\n.frobnicate\n\\[nothing]\n")
            broken.flush()
            done = subprocess.run([*linter, broken.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert re.search("frobnicate|nothing", done.stdout), f"{linter[0]} finds no fault where there is one"
        print(f"{linter[0]}: no fault")


def check_shell(shell, quire):
    """What both shells must offer."""
    shell.complete("quire ", set(commands(quire)))
    shell.complete("quire serve --cpu-isa ", ISA)
    shell.complete("quire serve --cpu-isa=", ISA)
    shell.complete("quire serve --max-n", {"--max-num-seqs", "--max-num-batched-tokens", "--max-n"})
    shell.complete("quire serve --model mod", {"model-a.gguf", "model-b.gguf"})
    shell.complete("quire inspect mod", {"model-a.gguf", "model-b.gguf"})
    shell.complete("quire serve mod", {"model-a.gguf", "model-b.gguf"})
    shell.complete("quire run mod", {"model-a.gguf", "model-b.gguf"})
    shell.complete("quire serve --no-as", {"--no-async-scheduling"})
    shell.complete("quire key ", {"new", "check"})
    shell.complete("quire top --", {"--once", "--interval"})
    shell.complete("quire chat --s", {"--system", "--set", "--seed"})
    shell.complete("quire bench --se", {"--seconds", "--seed"})
    port = shell.complete("quire serve --port mod", set())
    assert "model-b.gguf" not in port, "a port is no file"


def check_bash(quire, folder, work):
    setup = f"set +H; PS1=; bind 'set show-all-if-ambiguous on'; bind 'set completion-query-items 0'; " \
            f"bind 'set page-completions off'; bind 'set enable-bracketed-paste off'; . {folder}/quire.bash"
    shell = Shell(["bash", "--norc", "--noprofile", "-i"], setup, work)
    check_shell(shell, quire)
    shell.close()


def check_zsh(quire, folder, work):
    setup = f"PS1=; unsetopt prompt_sp prompt_cr zle_bracketed_paste; LISTMAX=10000; fpath=({folder} $fpath); " \
            f"autoload -Uz compinit; compinit -u -D; bindkey '^U' kill-whole-line; setopt auto_list no_list_ambiguous no_menu_complete no_auto_menu"
    shell = Shell(["zsh", "-f", "-i"], setup, work)
    check_shell(shell, quire)
    shell.close()


def has_terminals():
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError:
        return False
    return True


def main():
    quire, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    check_contents(quire, folder)
    lint(folder)
    if not has_terminals():
        print("no terminal can be opened (/dev/pts is not mounted): the completions were not tried")
        return 77
    with tempfile.TemporaryDirectory() as name:
        for file in ("model-a.gguf", "model-b.gguf"):
            (Path(name) / file).touch()
        for shell, check in (("bash", check_bash), ("zsh", check_zsh)):
            if shutil.which(shell) is None:
                print(f"{shell} is not installed: its completion was not tried")
                continue
            check(quire, folder, Path(name))
            print(f"{shell}: completes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
