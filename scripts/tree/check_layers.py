#!/usr/bin/env python3
"""Checks the direction of every #include: server -> engine -> models -> kernels, all -> config.

The folders of engine/ have an order too, and third-party headers stay in their room. Prints each
offence as FILE:LINE and exits 1 when there is any. Usage: check_layers.py [ROOT]
"""

import re
import sys
from pathlib import Path

from source_tree import ROOMS, read_sources

# Each folder of the room may include those before it; one that is not named stands apart. The room's top is free.
FOLDERS = {"engine": ["kv", "draft", "grammar", "sequence", "schedule", "batch", "core", "record"]}

# The wiring: it opens the model, builds the engine and starts the server, so it sees every room.
WIRING = re.compile(r"server/(main|commands?_?\w*)\.[ch]")

# What the rest of server/ may know of the rooms below the engine: text <-> tokens, messages -> text, the value types
# that engine/sampling_params.h and engine/token_stream.h are made of, and what sampling settings are called.
SERVER_SEES = {"models/tokenizer/tokenizer.h", "models/chat_template/chat_template.h",
               "models/chat_template/template_value.h", "models/sampling_fields.h", "kernels/sampling.h",
               "kernels/kv_type.h"}

# What server/ may know of the engine: what lies at its top, and how a grammar and a drafter are made.
SERVER_SEES_OF_ENGINE = re.compile(r"engine/(\w+|grammar/(grammar|grammar_regex|grammar_text|grammar_cache|free_text|text_automaton)|draft/ngram_drafter|record/\w+)\.h")

# Who may include which header that is not ours.
THIRD_PARTY = [
    (re.compile(r"microhttpd\.h"), re.compile(r"server/http/\w+\.[ch]")),
    (re.compile(r"(cjson/)?cJSON\.h"),
     re.compile(r"server/(api|json|page)/[\w/]+\.[ch]|models/(files/json_file|config/config_field|tokenizer/tokenizer_json\w*)\.[ch]")),
    (re.compile(r"pcre2\w*\.h"), re.compile(r"models/tokenizer/(pre)?tokenizer\w*\.[ch]")),
    (re.compile(r"utf8proc\.h"), re.compile(r"models/(tokenizer/(characters|normalizer|unicode_form)|chat_template/template_characters)\.c")),
    (re.compile(r"xxhash\.h"), re.compile(r"models/files/content_hash\.c|engine/kv/block_key\.c")),
    (re.compile(r"yaml\.h"), re.compile(r"config/options\w*\.c|server/keys/key_yaml\.c")),
    (re.compile(r"gnutls/.*"), re.compile(r"server/(auth|command_verify|hub/hub_digest)\.c|server/tls/\w+\.[ch]")),
    (re.compile(r"curl/.*"), re.compile(r"server/(http_client|hub/\w+)\.[ch]")),
    (re.compile(r"(histedit|editline/.*)\.h"), re.compile(r"server/chat/chat_terminal\.c")),
    (re.compile(r"zmq\.h|msgpack(/.*|\.h)"), re.compile(r"server/kv_events/\w+\.[ch]|tests/.*")),
    (re.compile(r"systemd/.*"), re.compile(r"server/service\.c")),
    (re.compile(r"(.*intrin|arm_neon|cpuid)\.h"), re.compile(r"kernels/.*")),
    (re.compile(r"(cuda|cublas|nccl)\w*\.h"), re.compile(r"kernels/cuda/.*")),
    (re.compile(r"mpi\w*\.h"), re.compile(r"kernels/mpi/.*")),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_error(room, path, target):
    """Why a folder of the room may not include a header of another folder of it, or None."""
    folder, other = (name.split("/")[1] if name.count("/") > 1 else None for name in (path, target))
    if folder is None or other in (None, folder):
        return None
    order = FOLDERS[room]
    if folder in order and other in order and order.index(other) < order.index(folder):
        return None
    return f"{room}/{folder}/ must not know {room}/{other}/"


def own_include_error(path, target):
    """Why the file may not include this header of ours, or None."""
    room, target_room = path.split("/")[0], target.split("/")[0]
    if target_room not in ROOMS or "/" not in target:
        return 'write own headers from the root: "room/file.h"'
    if ROOMS.index(target_room) > ROOMS.index(room):
        return f"{room}/ must not know {target_room}/"
    if room == target_room and room in FOLDERS:
        return folder_error(room, path, target)
    if room != "config" and target_room == "config":
        return None
    if room == "server" and target_room == "engine" and not SERVER_SEES_OF_ENGINE.fullmatch(target):
        return "server/ sees of engine/ only the headers at its top, the front ends and the cache of grammar/, draft/ngram_drafter.h and record/"
    if room == "server" and target_room in ("kernels", "models"):
        if not WIRING.fullmatch(path) and target not in SERVER_SEES:
            return f"server/ sees of the rooms below engine/ only {', '.join(SERVER_SEES)}"
    return None


def third_party_error(path, target):
    for header, allowed in THIRD_PARTY:
        if header.fullmatch(target) and not allowed.fullmatch(path):
            return f"belongs only in {allowed.pattern}"
    return None


def check_file(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        check = third_party_error if match[1] == "<" else own_include_error
        error = check(path, match[2])
        if error:
            yield f'{path}:{number}: #include {match[2]}: {error}'


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    sources = read_sources(root)
    errors = [error for path, text in sources.items() for error in check_file(path, text)]
    print("\n".join(errors) or f"{len(sources)} files, every include goes the right way")
    return 1 if errors or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
