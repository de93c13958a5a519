/* `quire inspect`: what a model is, and with --plan what serving it would take. */
#include "server/program/command_line.h"

#include "config/base/help_text.h"
#include "server/program/command_plan.h"
#include "server/program/command_verify.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const char usage[] =
    "usage: quire inspect PATH [--verify-weights] [--plan [--name value ...]]\n"
    "  PATH\tGGUF file or Hugging Face folder\n"
    "  --verify-weights\tcompare its files with the SHA-256 that is known of them\n"
    "  --plan\tthe memory that `quire serve` would take with these options\n"
    "\n"
    "for example: quire inspect model.gguf --plan --max-num-seqs 32\n";

static void print_line(void *context, const char *line) {
    puts(line);
}

static void print_mistake(void *context, const char *line) {
    fprintf(stderr, "quire: %s\n", line);
}

static int plan(const struct model *model, const struct tokenizer *tokenizer,
                const struct options *options, struct error *err) {
    struct command_plan made;
    if (command_plan_make(model, tokenizer, options, &made, err) != 0)
        return -1;
    putchar('\n');
    memory_table_write(&made.memory, print_line, NULL);
    if (made.info.num_ranks > 1)
        command_plan_write_ranks(&(struct rank_plan){&made.memory, made.traffic}, print_line, NULL);
    return 0;
}

static int plan_with_options(const struct model *model, const struct tokenizer *tokenizer,
                             char *path, int argc, char *const *argv, struct error *err) {
    struct options options;
    if (command_plan_options(path, argc, argv, &options, err) != 0)
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
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    int words = 1;
    bool verifies = argc > words && strcmp(argv[words], "--verify-weights") == 0;
    words += verifies;
    bool with_plan = argc > words && strcmp(argv[words], "--plan") == 0;
    words += with_plan;
    if (argc < 1 || (argc > words && !with_plan)) {
        help_text_print(usage, stderr);
        return EX_USAGE;
    }
    if (inspect(argv[0], verifies, with_plan, argc - words, argv + words, &err) == 0)
        return EX_OK;
    fflush(stdout);
    options_list_mistakes(argc - words, argv + words, &err, print_mistake, NULL);
    return client_exit_status(&err);
}
