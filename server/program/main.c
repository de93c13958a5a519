#include "server/program/build_facts.h"
#include "server/program/command_line.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static const char usage[] =
    "usage: quire serve [--name value ...]   serve a model over HTTP; --help lists the options\n"
    "       quire inspect PATH [--plan ...]  say what a model is, and what serving it takes\n"
    "       quire key new NAME | check FILE  make API keys with limits; --help says more\n"
    "       quire list [PATH ...]            show the models that are here; --help says more\n"
    "       quire pull ORG/NAME[:Q4_K_M]     fetch a model from a hub; --help says more\n"
    "       quire replay FILE                run what --record kept again; --help says more\n"
    "       quire chat [QUESTION]            talk to a running server, or a model; --help says "
    "more\n"
    "       quire run MODEL                  talk to a model in this terminal; --help says more\n"
    "       quire bench [URL] [--json FILE]  put a load on a running server; --help says more\n"
    "       quire top [URL] [--once]         show what a running server does; --help says more\n"
    "       quire --version | --help\n";

/* To whoever types the name alone. */
static const char next[] =
    "What to type next:\n"
    "  quire inspect MODEL           what a model is, and what serving it takes\n"
    "  quire run MODEL               talk to it in this terminal\n"
    "  quire serve --model MODEL     serve it at http://127.0.0.1:8000/v1, with a chat page at /\n"
    "  quire chat                    talk to a running server\n"
    "  quire bench                   how fast that is\n"
    "MODEL: a .gguf file, a folder with config.json and .safetensors files, or ORG/NAME of a hub.\n"
    "quire --help lists all commands, quire COMMAND --help what each takes.\n";

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "serve") == 0)
        return command_serve(argc - 2, argv + 2);
    if (strcmp(command, "inspect") == 0)
        return command_inspect(argc - 2, argv + 2);
    if (strcmp(command, "key") == 0)
        return command_key(argc - 2, argv + 2);
    if (strcmp(command, "list") == 0)
        return command_list(argc - 2, argv + 2);
    if (strcmp(command, "pull") == 0)
        return command_pull(argc - 2, argv + 2);
    if (strcmp(command, "replay") == 0)
        return command_replay(argc - 2, argv + 2);
    if (strcmp(command, "top") == 0)
        return command_top(argc - 2, argv + 2);
    if (strcmp(command, "bench") == 0)
        return command_bench(argc - 2, argv + 2);
    if (strcmp(command, "chat") == 0)
        return command_chat(argc - 2, argv + 2);
    if (strcmp(command, "run") == 0)
        return command_run(argc - 2, argv + 2);
    if (strcmp(command, "rank-process") == 0)
        return command_rank(argc - 2, argv + 2);
    if (strcmp(command, "--version") == 0) {
        fputs(build_facts(), stdout);
        return EX_OK;
    }
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
        fputs(usage, stdout);
        return EX_OK;
    }
    if (argc < 2) {
        fputs(next, stderr);
        return EX_USAGE;
    }
    fprintf(stderr, "quire: unknown command '%.64s'\n", command);
    fputs(usage, stderr);
    return EX_USAGE;
}
