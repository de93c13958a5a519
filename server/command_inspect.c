#include "server/command_line.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

int command_inspect(int argc, char *const *argv) {
    static const char usage[] = "usage: quire inspect PATH\n";
    if (argc == 1 && strcmp(argv[0], "--help") == 0) {
        fputs(usage, stdout);
        return EX_OK;
    }
    if (argc != 1) {
        fputs(usage, stderr);
        return EX_USAGE;
    }
    struct model *model;
    struct tokenizer *tokenizer;
    struct error err;
    if (command_open_model(argv[0], &model, &tokenizer, &err) != 0) {
        fprintf(stderr, "quire: %s\n", err.message);
        return command_exit_status(&err);
    }
    model_print(model, stdout);
    printf("%-24s%s\n", "tokenizer", tokenizer_description(tokenizer));
    tokenizer_close(tokenizer);
    model_close(model);
    return EX_OK;
}
