"""Text in man(7)'s language: https://man.openbsd.org/man.7 and groff_man(7)."""

import re
import textwrap


def escape(text):
    """Text as it shall appear, "`" around words aside, which become bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return re.sub(r"^\.", r"\\&.", text)


def plain(text):
    """Prose: a hyphen between words stays one that a line may break at."""
    return re.sub(r"(?<=\w)\\-(?=\w)", "-", escape(text))


def term(heading, *paragraphs):
    lines = [".TP", heading]
    for number, paragraph in enumerate(paragraphs):
        lines += [".IP"] * (number > 0) + [paragraph]
    return lines


def flag(option):
    value = f" \\fI{option.value}\\fR" if option.value else ""
    return f"\\fB\\-\\-{escape(option.name)}\\fR{value}"


def short_options(options):
    """For quire(1): the flags with what they mean."""
    return [line for option in options for line in term(flag(option), plain(sentence(option.meaning)))]


def full_options(options):
    """For quire.yaml(5): key, meaning, what is allowed, default, variable."""
    lines = []
    for option in options:
        if not option.in_file:
            continue
        facts = [f"Allowed: {plain(option.range)}." if option.range else "",
                 "A list." if option.type == "list" else "",
                 "Allowed: true, false." if option.type == "flag" else "",
                 "Suffixes: K, M, G, T." if option.type == "bytes" else "",
                 f"Default: \\fB{escape(option.default)}\\fR." if option.default else "",
                 f"Environment: \\fB{option.variable}\\fR."]
        heading = f"\\fB{escape(option.name)}\\fR: \\fI{option.value or 'true|false'}\\fR"
        lines += term(heading, plain(sentence(option.meaning)), " ".join(filter(None, facts)))
    return lines


def sentence(text):
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def synopsis(commands):
    lines = []
    for command in commands:
        for usage in command.usage:
            lines += [f"\\fBquire {escape(usage.split(' ', 1)[0])}\\fR {escape((usage + ' ').split(' ', 1)[1]).strip()}", ".br"]
    return lines[:-1]


def command_sections(commands):
    lines = []
    for command in commands:
        lines += [f".SS quire {command.name}", plain(sentence(command.meaning))]
        for part in command.text:
            if isinstance(part, str):
                lines += [".PP", plain(part)]
                continue
            for heading, meaning in part:
                lines += term(f"\\fB{escape(heading)}\\fR", plain(meaning))
    return lines


def exit_statuses(rows):
    return [line for status, meaning in rows for line in term(f"\\fB{status}\\fR", plain(sentence(meaning)))]


def wrap(page):
    """The page with lines of prose that have at most 80 columns, as mandoc wants them; a line that begins with a dot or an
    apostrophe would be a request."""
    lines = []
    for line in page.splitlines():
        if len(line) <= 80 or line.startswith("."):
            lines.append(line)
            continue
        wrapped = textwrap.wrap(line, 78, break_long_words=False, break_on_hyphens=False)
        lines += [wrapped[0], *(re.sub(r"^([.'])", r"\\&\1", rest) for rest in wrapped[1:])]
    return "\n".join(lines) + "\n"
