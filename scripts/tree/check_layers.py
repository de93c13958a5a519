#!/usr/bin/env python3
"""Checks the direction of every #include: server -> engine -> models -> kernels, all -> config.

The folders of every room have an order too, third-party headers stay in their place, and a test of tests/unit/ lies in a
folder that mirrors one of the sources. Prints each offence as FILE:LINE and exits 1 when there is any. Usage: check_layers.py [ROOT]
"""

import re
import sys
from pathlib import Path

from source_tree import ROOMS, read_sources

# The order of folders: each may include those before it. "." is what lies loose in the folder.
FOLDERS = {
    "": ROOMS,
    "config": ["base", "json", ".", "manual"],
    "kernels": [".", "cpu", "cuda", "mpi"],
    "kernels/cpu": ["simd", "memory", "ranks", "levels", ".", "ops", "sample", "ref"],
    "kernels/cpu/levels": [".", "gemm", "ops"],
    "kernels/cuda": ["nccl", "device", "state", "ranks", "step", "ops", "packed", "matrix", "attention", "experts", "sample", "."],
    "models": ["files", "config", "weights", "lora", "tokenizer", "chat_template", ".", "convert"],
    "engine": ["grammar", "kv", "request", "stats", "draft", "sequence", "schedule", "batch", "executor", "core", "record", "."],
    "engine/grammar": ["build", "machine", "read"],
    "server": ["process", "net", "output", "api", "keys", "tls", "telemetry", "page", "http", "client", "program"],
    "server/api": ["call", "constraint", "fields", "conversation", "chat", "completions", "messages", "responses", "embeddings", "scores",
                   "models", "ollama", "admin"],
    "server/client": ["hub", "chat", "."],
    "server/telemetry": ["kv_events", "metrics", "."],
}

# It opens the backend of a name, and so knows all of them.
OPENS_BACKENDS = "kernels/backend.c"

# The wiring: it opens the model, builds the engine and starts the server, so it sees every room.
WIRING = "server/program/"

# What the rest of server/ may know of the rooms below the engine: text <-> tokens, messages -> text, the value types
# that requests and token streams are made of, and what sampling settings are called.
SERVER_SEES = {"models/tokenizer/tokenizer.h", "models/chat_template/chat_template.h",
               "models/chat_template/template_value.h", "models/config/sampling_fields.h", "models/config/classifier.h",
               "kernels/sampling.h",
               "kernels/kv_type.h"}

# What it may know of the engine: how it is driven, what it is given and what it tells, and the front ends of grammars.
SERVER_SEES_OF_ENGINE = re.compile(
    r"engine/(engine|(request|stats)/\w+|executor/(executor|process_executor)|kv/kv_event_sink|kv/kv_store|record/record_header"
    r"|grammar/(machine/(grammar|grammar_cache)|build/free_text|read/\w+))\.h")

# Who may include which header that is not ours.
THIRD_PARTY = [
    (re.compile(r"microhttpd\.h"), re.compile(r"server/http/\w+\.[ch]")),
    (re.compile(r"(cjson/)?cJSON\.h"),
     re.compile(r"config/json/\w+\.[ch]|engine/grammar/read/\w+\.[ch]|server/(api|page|client|program)/[\w/]+\.[ch]"
                r"|models/(files/json_file|config/config_field|tokenizer/tokenizer_json\w*)\.[ch]")),
    (re.compile(r"pcre2\w*\.h"), re.compile(r"models/tokenizer/(pre)?tokenizer\w*\.[ch]")),
    (re.compile(r"utf8proc\.h"), re.compile(r"models/(tokenizer/(characters|normalizer)|chat_template/template_characters)\.c")),
    (re.compile(r"xxhash\.h"), re.compile(r"models/files/content_hash\.c|engine/kv/(block_key|kv_store_cipher)\.c")),
    (re.compile(r"yaml\.h"), re.compile(r"config/options\w*\.c|server/keys/key_file\.c")),
    (re.compile(r"gnutls/.*"), re.compile(r"server/(keys/auth|program/command_verify|client/hub/hub_cache)\.c|server/tls/\w+\.[ch]|engine/kv/kv_store_cipher\.c")),
    (re.compile(r"curl/.*"), re.compile(r"server/(net/http_client|client/hub/\w+)\.[ch]")),
    (re.compile(r"(histedit|editline/.*)\.h"), re.compile(r"server/client/chat/chat_terminal\.c")),
    (re.compile(r"zmq\.h|msgpack(/.*|\.h)"), re.compile(r"server/telemetry/kv_events/\w+\.[ch]|tests/.*")),
    (re.compile(r"systemd/.*"), re.compile(r"server/process/service\.c")),
    (re.compile(r"(.*intrin|arm_neon|cpuid)\.h"), re.compile(r"kernels/.*")),
    (re.compile(r"(cuda|cublas|nccl)\w*\.h"), re.compile(r"kernels/cuda/.*")),
    (re.compile(r"mpi\w*\.h"), re.compile(r"kernels/mpi/.*")),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_error(path, target):
    """Why a file may not include a header by the order of the innermost folder that both are in, or None."""
    folders, others = path.split("/")[:-1], target.split("/")[:-1]
    depth = next((i for i, (a, b) in enumerate(zip(folders, others)) if a != b), min(len(folders), len(others)))
    common = "/".join(folders[:depth])
    folder, other = (names[depth] if len(names) > depth else "." for names in (folders, others))
    if folder == other or path == OPENS_BACKENDS:
        return None
    order = FOLDERS.get(common, [])
    for name in (folder, other):
        if name not in order:
            return f"{name} has no place in the order of {common}/ (FOLDERS of check_layers.py)"
    if order.index(other) < order.index(folder):
        return None
    return f"{common}/{folder} must not know {common}/{other}".replace("//", "/").replace("/.", "'s top")


def own_include_error(path, target):
    """Why the file may not include this header of ours, or None."""
    room, target_room = path.split("/")[0], target.split("/")[0]
    if target_room not in ROOMS or "/" not in target:
        return 'write own headers from the root: "room/file.h"'
    if room != "server" or target_room in ("config", "server") or path.startswith(WIRING):
        return folder_error(path, target)
    if path.startswith("server/client/") and target_room == "engine":
        return "a client knows nothing of the engine"
    if target_room == "engine" and not SERVER_SEES_OF_ENGINE.fullmatch(target):
        return "server/ sees of engine/ only how it is driven, requests, counters, and the front ends of grammars"
    if target_room in ("kernels", "models") and target not in SERVER_SEES:
        return f"server/ sees of the rooms below engine/ only {', '.join(sorted(SERVER_SEES))}"
    return None


def third_party_error(path, target):
    for header, allowed in THIRD_PARTY:
        if header.fullmatch(target) and not allowed.fullmatch(path):
            return f"belongs only in {allowed.pattern}"
    return None


def guard_error(path, text):
    """Why the header's include guard is not its path, or None."""
    guard = re.search(r"^#ifndef (QUIRE_\w+_H)$", text, re.MULTILINE)
    wanted = "QUIRE_" + re.sub(r"\W", "_", path).upper()
    return f"its guard is to be {wanted}" if guard and path.endswith(".h") and guard[1] != wanted else None


def check_file(path, text):
    error = guard_error(path, text)
    if error:
        yield f"{path}:1: {error}"
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        check = third_party_error if match[1] == "<" else own_include_error
        error = check(path, match[2])
        if error:
            yield f'{path}:{number}: #include {match[2]}: {error}'


def misplaced_tests(root):
    unit = root / "tests/unit"
    for path in sorted(unit.rglob("test_*.c*")):
        folder = path.parent.relative_to(unit)
        if not (root / folder).is_dir():
            yield f"{path.relative_to(root)}:1: there is no folder {folder} that it could be a test of"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    sources = read_sources(root)
    errors = [error for path, text in sources.items() for error in check_file(path, text)] + [*misplaced_tests(root)]
    print("\n".join(errors) or f"{len(sources)} files, every include goes the right way")
    return 1 if errors or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
