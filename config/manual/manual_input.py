"""What the manual and the completions are made of, read from the program itself: the option table, the commands with their
help texts, and the exit statuses of docs/memory.md."""

import os
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Option:
    name: str
    type: str
    value: str  # what its value is called: PATH, N; empty for a switch
    in_file: bool
    default: str
    range: str
    choices: list[str]
    meaning: str

    @property
    def variable(self):
        return "QUIRE_" + self.name.upper().replace("-", "_")


@dataclass
class Flag:
    """An option of a command other than serve."""
    name: str
    value: str = ""
    meaning: str = ""


@dataclass
class Command:
    name: str
    meaning: str
    usage: list[str] = field(default_factory=list)  # without "quire"
    text: list = field(default_factory=list)  # a paragraph (str), or a list of terms with their meanings
    flags: list[Flag] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)  # key: new, check
    takes_serve_options: bool = False

    @property
    def arguments(self):
        """What stands without a flag: PATH, FILE, NAME."""
        plain = re.sub(r"\[?--[a-z0-9-]+( [A-Z]+)?\]?|\[--.*\]", "", " ".join(self.usage))
        return re.findall(r"\b[A-Z]{2,}\b", plain)


def run(program, *words):
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"})
    if done.returncode != 0:
        raise SystemExit(f"{program} {' '.join(words)} ended with status {done.returncode}")
    return done.stdout


def read_options(program):
    options = []
    for line in run(program).splitlines():
        name, kind, value, in_file, default, allowed, choices, meaning = line.split("\t")
        options.append(Option(name, kind, value, bool(in_file), default, allowed, choices.split(), meaning))
    return options


def read_commands(quire):
    """From `quire --help`, which has a line "  quire COMMAND ...  meaning" for each, and `quire COMMAND --help`."""
    lines = re.findall(r"^  quire ([a-z]+)\b.*? {2,}(\S.*)$", run(quire, "--help"), re.MULTILINE)
    if len(lines) < 5:
        raise SystemExit("`quire --help` has no lines `  quire COMMAND WORDS  meaning`")
    return [read_command(quire, name, meaning) for name, meaning in lines]


def read_command(quire, name, meaning):
    command = Command(name, meaning)
    if name == "serve":
        command.usage, command.takes_serve_options = ["serve MODEL [--name value ...]"], True
        return command
    usage, rest = split_help(run(quire, name, "--help"))
    command.usage, command.text = usage, read_text(rest)
    words = " ".join(usage)
    command.takes_serve_options = "[--name value" in words or "[option of quire serve" in words
    command.verbs = sorted({match for match in re.findall(rf"\b{name} ([a-z]+)\b", words)})
    meanings = {term: text for part in command.text if isinstance(part, list) for term, text in part}
    for flag, value in re.findall(r"--([a-z][a-z0-9-]*)(?:[ =]([A-Z]+))?", words):
        if flag != "name":
            term = f"--{flag} {value}".strip()
            command.flags.append(Flag(flag, value, meanings.get(term, meanings.get(f"--{flag}", ""))))
    for term, text in meanings.items():  # those that stand in no line of usage
        match = re.fullmatch(r"--([a-z][a-z0-9-]*)(?: ([A-Z]\S*))?", term)
        if match and match[1] not in {flag.name for flag in command.flags}:
            command.flags.append(Flag(match[1], match[2] or "", text))
    if "--FIELD" in words:
        command.flags += [Flag(term, "VALUE", text) for terms, text in meanings.items() for term in terms.split(", ")
                          if re.fullmatch(r"[a-z0-9-]+", term)]
    return command


def split_help(text):
    """The lines of usage, each joined, and the others."""
    usage, lines = [], text.splitlines()
    while lines and re.match(r"usage: quire | {7}quire | {8,}\S", lines[0]):
        line = lines.pop(0)
        if " quire " in line[:13]:
            usage.append(line.split(" quire ", 1)[1])
        else:
            usage[-1] += " " + line.strip()
    return usage, lines


def read_text(lines):
    """Paragraphs and lists of a help text. A line with two spaces in front is a term with its meaning behind two more; a
    line with ten goes on with it, or begins it. Any other line is prose."""
    parts = [""]
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        term, *meaning = re.split(r" {2,}", line.strip(), maxsplit=1)
        if not line.strip():
            parts.append("")
        elif line.startswith(" " * 10):
            parts[-1][-1][1] = f"{parts[-1][-1][1]} {line.strip()}".strip()
        elif line.startswith("  ") and (meaning or below.startswith(" " * 10)):
            if not isinstance(parts[-1], list):
                parts.append([])
            parts[-1].append([term, "".join(meaning)])
        elif isinstance(parts[-1], list):
            parts.append(line.strip())
        else:
            parts[-1] = f"{parts[-1]} {line.strip()}".strip()
    return [part for part in parts if part]


def read_exit_statuses(page):
    return re.findall(r"^\| (\d+) \| (.+?) \| (?:.*?) ?\|$", page.split("## Exit statuses")[1], re.MULTILINE)
