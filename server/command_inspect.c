/* `quire inspect`: what a model is, and with --plan what serving it would take. */
#include "server/command_line.h"

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "server/command_verify.h"
#include "server/engine_options.h"
#include "server/http/http_capacity.h"
#include "server/memory_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const char usage[] =
    "usage: quire inspect PATH [--verify-weights] [--plan [--name value ...]]\n"
    "  PATH              GGUF file or Hugging Face folder\n"
    "  --verify-weights  compare its files with the SHA-256 that is known of them\n"
    "  --plan            the memory that `quire serve` would take with these options\n";

static void print_line(void *context, const char *line) {
    puts(line);
}

static void print_table(const struct options *options, const struct tokenizer *tokenizer,
                        const struct executor_info *info) {
    const struct engine_config engine = engine_options_read(options, info);
    size_t num_processes = engine_options_have_rank_process(options) ? 2 : 1;
    const struct memory_table table = {
        .executor = info,
        .engine_bytes = engine_memory_bytes(&engine, tokenizer),
        .http_bytes = http_capacity_bytes(options),
        .program_bytes = num_processes * memory_table_program_bytes(info, false),
        .max_connections = options->max_connections,
    };
    memory_table_write(&table, print_line, NULL);
}

static int plan(const struct model *model, const struct tokenizer *tokenizer,
                const struct options *options, struct error *err) {
    struct executor_config config;
    struct executor_info info;
    if (engine_options_executor(options, model, &config, err) != 0 ||
        executor_plan(model, &config, &info, err) != 0)
        return -1;
    putchar('\n');
    print_table(options, tokenizer, &info);
    return 0;
}

/* The options of `quire serve` behind --plan, for this model. */
static int load_options(char *path, int argc, char *const *argv, struct options *out,
                        struct error *err) {
    static char model_flag[] = "--model";
    char **words = calloc((size_t)argc + 2, sizeof(*words));
    if (words == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %d options", argc);
    memcpy(words, argv, (size_t)argc * sizeof(*words));
    words[argc] = model_flag;
    words[argc + 1] = path;
    int status = options_load(argc + 2, words, environ, out, err);
    free(words);
    return status;
}

static int plan_with_options(const struct model *model, const struct tokenizer *tokenizer,
                             char *path, int argc, char *const *argv, struct error *err) {
    struct options options;
    if (load_options(path, argc, argv, &options, err) != 0)
        return -1;
    options_warn_of_variables(environ);
    int status = plan(model, tokenizer, &options, err);
    options_finish(&options);
    return status;
}

static int verify_weights(const struct model *model, struct error *err) {
    struct command_verify verify;
    char line[512];
    if (command_verify_start(&verify, model->file, err) != 0 ||
        command_verify_wait(&verify, err) != 0)
        return -1;
    command_verify_describe(&verify, line, sizeof(line));
    printf("%-24s%s\n", "weights", line);
    return 0;
}

static int inspect(char *path, bool verifies, bool with_plan, int argc, char *const *argv,
                   struct error *err) {
    struct model *model;
    struct tokenizer *tokenizer;
    if (command_open_model(path, &model, &tokenizer, err) != 0)
        return -1;
    model_print(model, stdout);
    printf("%-24s%s\n", "tokenizer", tokenizer_description(tokenizer));
    int status = verifies ? verify_weights(model, err) : 0;
    if (status == 0 && with_plan)
        status = plan_with_options(model, tokenizer, path, argc, argv, err);
    tokenizer_close(tokenizer);
    model_close(model);
    return status;
}

int command_inspect(int argc, char *const *argv) {
    struct error err = {0};
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        fputs(usage, stdout);
        return EX_OK;
    }
    int words = 1;
    bool verifies = argc > words && strcmp(argv[words], "--verify-weights") == 0;
    words += verifies;
    bool with_plan = argc > words && strcmp(argv[words], "--plan") == 0;
    words += with_plan;
    if (argc < 1 || (argc > words && !with_plan)) {
        fputs(usage, stderr);
        return EX_USAGE;
    }
    if (inspect(argv[0], verifies, with_plan, argc - words, argv + words, &err) == 0)
        return EX_OK;
    fflush(stdout);
    fprintf(stderr, "quire: %s\n", err.message);
    return command_exit_status(&err);
}
