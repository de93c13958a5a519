#include "config/base/help_text.h"
#include "server/program/build_facts.h"
#include "server/program/command_line.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

/* The commands as --help lists them; each heading begins a group. */
static const struct command {
    const char *name, *arguments, *meaning;
    int (*run)(int argc, char *const *argv);
    const char *heading, *example; /* of a group, at its first and last command; else NULL */
} commands[] = {
    {"serve", "MODEL", "serve a model over HTTP", command_serve, "Serve and talk:", NULL},
    {"run", "MODEL", "talk to a model in this terminal", command_run, NULL, NULL},
    {"chat", "[QUESTION]", "talk to a running server", command_chat, NULL, "quire run model.gguf"},
    {"pull", "ORG/NAME", "fetch a model from a hub", command_pull, "Models:", NULL},
    {"list", "[PATH ...]", "list the models on this machine", command_list, NULL, NULL},
    {"inspect", "PATH", "describe a model, and the memory that it needs", command_inspect, NULL,
     NULL},
    {"quantize", "IN OUT", "make a smaller GGUF file of a model", command_quantize, NULL,
     "quire pull Qwen/Qwen3-1.7B-GGUF:Q8_0"},
    {"top", "[URL]", "show what a running server is doing", command_top, "Operation:", NULL},
    {"bench", "[URL]", "put a load on a running server", command_bench, NULL, NULL},
    {"key", "new NAME", "make and check API keys with limits", command_key, NULL, NULL},
    {"replay", "FILE", "repeat a recording of --record", command_replay, NULL, "quire top --once"},
};

#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* To whoever types the name alone. */
static const char next[] =
    "What to type next:\n"
    "  quire inspect MODEL\tdescribe a model, and the memory that it needs\n"
    "  quire run MODEL\ttalk to it in this terminal\n"
    "  quire serve MODEL\tserve it at http://127.0.0.1:8000/v1, with a chat page\n"
    "  quire chat\ttalk to a running server\n"
    "  quire bench\tmeasure how fast that server is\n"
    "MODEL: a .gguf file, a folder with config.json and .safetensors files, or ORG/NAME of a hub.\n"
    "quire --help lists all commands; quire help COMMAND explains one.\n";

static void print_usage(FILE *file) {
    struct byte_buffer text = {0};
    byte_buffer_append_text(&text, "usage: quire COMMAND [argument ...]\n");
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (commands[i].heading != NULL)
            byte_buffer_printf(&text, "\n%s\n", commands[i].heading);
        byte_buffer_printf(&text, "  quire %s %s\t%s\n", commands[i].name, commands[i].arguments,
                           commands[i].meaning);
        if (commands[i].example != NULL)
            byte_buffer_printf(&text, "  for example: %s\n", commands[i].example);
    }
    byte_buffer_append_text(
        &text, "\n`quire help COMMAND` or `quire COMMAND --help` explains one of them; `quire "
               "--version` shows version and build.\n");
    byte_buffer_append(&text, "", 1);
    if (!text.failed)
        help_text_print(text.data, file);
    byte_buffer_finish(&text);
}

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int refuse(const char *name) {
    fprintf(stderr, "quire: unknown command '%.64s'\n", name);
    print_usage(stderr);
    return EX_USAGE;
}

/* help, and what follows it. */
static int help(int argc, char **argv) {
    static char help_flag[] = "--help";
    if (argc < 2 || strncmp(argv[1], "-", 1) == 0) {
        print_usage(stdout);
        return EX_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (command == NULL)
        return refuse(argv[1]);
    argv[1] = help_flag;
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    const struct command *command = find_command(name);
    if (command != NULL)
        return command->run(argc - 2, argv + 2);
    if (strcmp(name, "rank-process") == 0)
        return command_rank(argc - 2, argv + 2);
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        fputs(build_facts(), stdout);
        return EX_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (argc < 2) {
        help_text_print(next, stderr);
        return EX_USAGE;
    }
    return refuse(name);
}
