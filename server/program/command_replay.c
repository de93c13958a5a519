/* `quire replay`: runs what `quire serve --record` has kept, and compares. */
#include "server/program/command_line.h"

#include "config/base/help_text.h"
#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/build_hash.h"
#include "config/base/log.h"
#include "engine/record/replay.h"
#include "server/program/adapter_loader.h"
#include "server/program/command_record.h"
#include "server/program/draft_model.h"
#include "server/program/engine_options.h"
#include "server/program/vocabulary_loader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define STATUS_DIFFERS 1

static const char usage[] =
    "usage: quire replay FILE [--model PATH] [--device NAME] [--cpu-isa NAME] [--gpu-isa NAME] "
    "[--threads N] [--lora-modules NAME=PATH] [--speculative-config JSON] [--log-level NAME]\n"
    "  FILE\twhat `quire serve --record` wrote\n"
    "\n"
    "The options are those of `quire serve`, instead of the ones it was recorded with. Every "
    "recorded step is run again; tokens, logprobs and hidden states are compared bit by bit.\n"
    "\n"
    "Exit status: 0 all are equal, 1 one differs (the first is named), 78 the file is damaged, or "
    "from another model or arithmetic.\n"
    "\n"
    "for example: quire replay record.bin --threads 4\n";

/* Those that say where it is computed, and do not change what. */
static bool is_allowed(const char *word) {
    static const char *const flags[] = {"--model",
                                        "--device",
                                        "--cpu-isa",
                                        "--gpu-isa",
                                        "--threads",
                                        "--lora-modules",
                                        "--speculative-config",
                                        "--log-level"};
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strlen(flags[i]) == length && strncmp(word, flags[i], length) == 0)
            return true;
    return false;
}

struct replaying {
    const char *path;
    struct record_frames frames;
    struct record_header header; /* of the recording */
    struct options options;
    struct model *model;
    struct draft_model draft;
    struct tokenizer *tokenizer;
    struct vocabulary_loader vocabulary;
    struct executor_info info;
    struct executor *executor;
    struct drafter *drafter;
    struct adapter_loader adapters;
};

/* A file that makes no sense is refused like a configuration. */
static int refuse_file(const struct replaying *r, const struct error *why, struct error *err) {
    enum error_code code = why->code == ERROR_SYNTAX ? ERROR_CONFIG : why->code;
    return error_set(err, code, "%.200s: %.300s", r->path, why->message);
}

static int read_header(struct replaying *r, struct error *err) {
    enum record_kind kind;
    struct record_input in;
    struct error why = {0};
    r->frames.file = fopen(r->path, "re");
    if (r->frames.file == NULL)
        return error_set(err, ERROR_CONFIG, "%.200s: %s", r->path, strerror(errno));
    int got = record_frames_next(&r->frames, &kind, &in, &why);
    if (got == 0 || (got > 0 && kind != RECORD_HEADER))
        got = error_set(&why, ERROR_SYNTAX, "is not a recording");
    if (got < 0 || record_header_read(&in, &r->header, &why) != 0)
        return refuse_file(r, &why, err);
    return 0;
}

static int read_options(struct replaying *r, int argc, char *const *argv, struct error *err) {
    enum log_level level;
    if (command_record_options(&r->header, argc, argv, &r->options, err) != 0)
        return -1;
    CHECK(log_level_parse(r->options.log_level, &level));
    log_set_level(level);
    return 0;
}

/* Steps and pools of the sizes that they had. */
static int open_executor(struct replaying *r, struct error *err) {
    struct executor_config config;
    const struct serving_limits *limits = &r->header.limits;
    if (command_open_model(r->options.model, &r->model, &r->tokenizer, err) != 0 ||
        engine_options_executor(&r->options, r->model, &config, err) != 0 ||
        draft_model_open(&r->options, r->model, &r->draft, err) != 0 ||
        draft_model_check(&r->draft, r->tokenizer, err) != 0 ||
        adapter_loader_read(&r->adapters, &r->options, err) != 0)
        return -1;
    draft_model_use(&r->draft, &config);
    config.lora = r->header.core.lora;
    config.limits.max_num_seqs = limits->max_num_seqs;
    config.limits.max_num_batched_tokens = limits->max_num_batched_tokens;
    config.limits.max_model_len = limits->max_model_len;
    config.kv_memory_bytes = (size_t)r->header.kv_bytes;
    config.swap_bytes = (size_t)r->header.swap_bytes;
    return executor_create(r->model, &config, &r->info, &r->executor, err);
}

static int compare_header(struct replaying *r, struct error *err) {
    struct engine_config engine = engine_options_read(&r->options, r->model, &r->info);
    struct record_header *here = malloc(sizeof(*here));
    struct error why = {0};
    if (here == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the header");
    int status = command_record_describe(&r->options, &r->info, &engine, here, &why);
    if (status == 0)
        status = record_header_compare(&r->header, here, &why);
    if (status == 0 && strcmp(r->header.build, here->build) != 0)
        log_warning("recorded by another build of the program");
    free(here);
    return status == 0 ? 0 : refuse_file(r, &why, err);
}

static int open_all(struct replaying *r, int argc, char *const *argv, struct error *err) {
    if (read_header(r, err) != 0 || read_options(r, argc, argv, err) != 0 ||
        open_executor(r, err) != 0 || compare_header(r, err) != 0 ||
        engine_options_drafter(&r->options, &r->drafter, err) != 0 ||
        vocabulary_loader_start(&r->vocabulary, r->tokenizer, err) != 0)
        return -1;
    return vocabulary_loader_wait(&r->vocabulary, err);
}

/* A device that hangs keeps whoever gives something back to it. */
static void close_all(struct replaying *r) {
    if (r->executor != NULL && executor_has_hung(r->executor)) {
        fflush(NULL);
        _exit(EX_SOFTWARE);
    }
    if (r->drafter != NULL)
        r->drafter->ops->destroy(r->drafter);
    if (r->executor != NULL)
        r->executor->ops->destroy(r->executor);
    adapter_loader_finish(&r->adapters);
    vocabulary_loader_finish(&r->vocabulary);
    tokenizer_close(r->tokenizer);
    draft_model_close(&r->draft);
    model_close(r->model);
    options_finish(&r->options);
    record_frames_finish(&r->frames);
    if (r->frames.file != NULL)
        fclose(r->frames.file);
}

static void print_result(const struct replaying *r, const struct replay_result *result,
                         int64_t took_ns) {
    if (result->differs)
        printf("step %" PRIu64 " differs: %s\n", result->num_steps, result->difference);
    if (r->frames.cut > 0)
        printf("the file ends within a record: its last %" PRIu64 " bytes are left out\n",
               r->frames.cut);
    printf("%s: %" PRIu64 " steps, %" PRIu64 " requests (%" PRIu64 " open at the end), %" PRIu64
           " sequences of steps, %" PRIu64 " tokens sampled, %" PRIu64 " events of %" PRIu64
           " bytes; %" PRIu64 " bytes of recording, %.1f s\n",
           result->differs ? "different" : "equal", result->num_steps, result->num_requests,
           result->num_open, result->num_entries, result->num_tokens, result->num_events,
           result->num_event_bytes, r->frames.read, (double)took_ns / (double)CLOCK_NS_PER_S);
}

static struct adapter *open_adapter(void *context, const char *name, struct error *err) {
    struct replaying *r = context;
    return adapter_loader_open(&r->adapters, name, r->model, &r->info.lora, err);
}

static int run(struct replaying *r, struct error *err) {
    const struct replay_config config = {
        .model = &r->model->config,
        .open_adapter = open_adapter,
        .context = r,
        .header = &r->header,
        .frames = &r->frames,
        .executor = r->executor,
        .tokenizer = r->tokenizer,
        .drafter = r->drafter,
        .vocabulary = r->vocabulary.vocabulary,
        .mask_budget = MASK_STEP_BUDGET,
    };
    struct replay_result result;
    struct error why = {0};
    int64_t began_ns = clock_now_ns();
    int status = replay_run(&config, &result, &why);
    if (status != 0) {
        printf("equal up to step %" PRIu64 "\n", result.num_steps);
        return refuse_file(r, &why, err);
    }
    print_result(r, &result, clock_now_ns() - began_ns);
    return result.differs ? STATUS_DIFFERS : EX_OK;
}

/* The options follow FILE. */
static bool are_options(int argc, char *const *argv) {
    for (int i = 0; i < argc; i++) {
        if (!is_allowed(argv[i]))
            return false;
        if (strchr(argv[i], '=') == NULL)
            i++;
    }
    return true;
}

int command_replay(int argc, char *const *argv) {
    struct error err = {0};
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    if (argc < 1 || argv[0][0] == '-' || !are_options(argc - 1, argv + 1)) {
        help_text_print(usage, stderr);
        return EX_USAGE;
    }
    struct replaying *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return EX_OSERR;
    r->path = argv[0];
    int status = open_all(r, argc - 1, argv + 1, &err) == 0 ? run(r, &err) : -1;
    if (status < 0) {
        fflush(stdout);
        fprintf(stderr, "quire: %s\n", err.message);
        status = client_exit_status(&err);
    }
    close_all(r);
    free(r);
    return status;
}
