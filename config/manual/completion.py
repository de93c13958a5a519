"""What bash and zsh complete: commands, their verbs and options, values that are enumerated, and paths."""

import re
import shlex

PATHS = {"PATH", "FILE", "DIR", "FOLDER", "MODEL"}


def serve_flags(options):
    names = []
    for option in options:
        names.append(f"--{option.name}")
        if option.type == "flag":
            names.append(f"--no-{option.name}")
    return names


def value_kinds(command, options):
    """Of the options with a value, by name: the choices, or the option's kind of value as a string."""
    known = {option.name: option.choices or option.value for option in options if option.type != "flag"}
    kinds = {flag.name: known.get(flag.name, flag.value) for flag in command.flags if flag.value}
    return known | kinds if command.takes_serve_options else kinds


def bash_commands(commands, options):
    """A branch of `case` for each command: what its options take, and what else may stand there."""
    lines = []
    for command in commands:
        kinds = value_kinds(command, options)
        choices = {name: " ".join(kind) for name, kind in kinds.items() if isinstance(kind, list)}
        paths = [name for name, kind in kinds.items() if not isinstance(kind, list) and kind in PATHS]
        others = [name for name in kinds if name not in choices and name not in paths]
        lines += [f"    {command.name})", '        case "$option" in']
        lines += [f"        --{name}) values={shlex.quote(words)} ;;" for name, words in choices.items()]
        if paths:
            lines.append(f"        {'|'.join('--' + name for name in paths)}) paths=yes ;;")
        if others:
            lines.append(f"        {'|'.join('--' + name for name in others)}) return ;;")
        words = [f"--{flag.name}" for flag in command.flags] + ["--help"]
        words = serve_flags(options) + words if command.takes_serve_options else words
        lines.append("        *)")
        if command.verbs:
            lines += ['            if [ "$COMP_CWORD" = 2 ]; then', f"                values={shlex.quote(' '.join(command.verbs))}",
                      "            fi"]
        lines.append(f"            words={shlex.quote(' '.join(dict.fromkeys(words)))}")
        if PATHS & set(command.arguments):
            lines.append("            paths=yes")
        lines += ["            ;;", "        esac", "        ;;"]
    return lines


def zsh_text(text):
    """Inside [...] of a specification, in single quotes."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_value(kind):
    if isinstance(kind, list):
        return f":value:({' '.join(kind)})"
    return f":{kind}:_files" if kind in PATHS else f":{kind}: "


def zsh_option(option):
    if option.type == "flag":
        return [f"'--{option.name}[{zsh_text(option.meaning)}]'", f"'--no-{option.name}[not\\: {zsh_text(option.meaning)}]'"]
    repeated = "*" if option.type == "list" else ""
    return [f"'{repeated}--{option.name}=[{zsh_text(option.meaning)}]{zsh_value(option.choices or option.value)}'"]


def zsh_flag(flag, kinds):
    value = zsh_value(kinds[flag.name]) if flag.value else ""
    return f"'--{flag.name}{'=' if value else ''}[{zsh_text(flag.meaning)}]{value}'"


def zsh_commands(commands, options):
    lines = []
    for command in commands:
        kinds = value_kinds(command, options)
        specs = [zsh_flag(flag, kinds) for flag in command.flags] + ["'--help[say what it does]'"]
        if command.takes_serve_options:
            own = {flag.name for flag in command.flags}
            specs += [spec for option in options if option.name not in own for spec in zsh_option(option)]
        if command.verbs:
            specs.append(f"'1:verb:({' '.join(command.verbs)})'")
        if PATHS & set(command.arguments):
            specs.append("'*:path:_files'")
        lines += [f"    {command.name})", "        _arguments -S \\"]
        lines += [f"            {spec} \\" for spec in specs[:-1]] + [f"            {specs[-1]}", "        ;;"]
    return lines


def zsh_list(commands):
    return [f"        '{command.name}:{zsh_text(command.meaning)}'" for command in commands]
