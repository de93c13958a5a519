#include "server/program/command_plan.h"

#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "server/program/adapter_loader.h"
#include "server/program/draft_model.h"
#include "server/program/engine_options.h"
#include "server/http/http_memory.h"
#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>

int command_plan_options(const char *path, int argc, char *const *argv, struct options *out,
                         struct error *err) {
    static char model_flag[] = "--model";
    char **words = calloc((size_t)argc + 2, sizeof(*words)), *model = strdup(path);
    int status = -1;
    if (words == NULL || model == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %d options", argc);
    } else {
        memcpy(words, argv, (size_t)argc * sizeof(*words));
        words[argc] = model_flag;
        words[argc + 1] = model;
        status = options_load(argc + 2, words, environ, out, err);
    }
    free(words);
    free(model);
    return status;
}

static int plan_executor(const struct model *model, const struct tokenizer *tokenizer,
                         const struct options *options, struct command_plan *out,
                         struct error *err) {
    struct executor_config config;
    struct adapter_loader adapters = {0};
    struct draft_model draft = {0};
    int status = engine_options_executor(options, model, &config, err);
    if (status == 0)
        status = adapter_loader_read(&adapters, options, err);
    if (status == 0)
        status = adapter_loader_shape(&adapters, options, model, &config.lora, err);
    adapter_loader_finish(&adapters);
    if (status == 0)
        status = draft_model_open(options, model, &draft, err);
    if (status == 0)
        status = draft_model_check(&draft, tokenizer, err);
    draft_model_use(&draft, &config);
    if (status == 0)
        status = executor_plan(model, &config, &out->info, err);
    if (status == 0)
        executor_plan_traffic(model, &config, &out->info, out->traffic);
    draft_model_close(&draft);
    return status;
}

int command_plan_make(const struct model *model, const struct tokenizer *tokenizer,
                      const struct options *options, struct command_plan *out, struct error *err) {
    if (plan_executor(model, tokenizer, options, out, err) != 0)
        return -1;
    const struct engine_config engine = engine_options_read(options, model, &out->info);
    out->memory = (struct memory_table){
        .executor = &out->info,
        .engine_bytes = engine_memory_bytes(&engine, tokenizer),
        .http_bytes = http_memory_planned_bytes(options),
        .response_bytes = (size_t)options->response_store_bytes,
        .program_bytes = memory_table_program_bytes(
            &out->info, engine_options_have_rank_process(options) ? 2 : 1, false),
        .max_connections = options->max_connections,
    };
    return 0;
}

/* --- Ranks on machines of their own --- */

#define MAX_LINE 256

/* All but the KV cache. The first has the front end as well, the program each. */
static size_t fixed_bytes(const struct memory_table *table, int32_t rank) {
    const struct executor_memory *memory = &table->executor->rank_memory[rank];
    size_t bytes = memory->weight_bytes + memory->adapter_bytes + memory->draft_bytes +
                   memory->workspace_bytes + memory->swap_bytes + table->program_bytes;
    return rank == 0 ? bytes + table->engine_bytes + table->http_bytes + table->response_bytes
                     : bytes;
}

static int64_t num_tokens(const struct executor_info *info) {
    return serving_limits_tokens_in(&info->limits, info->limits.num_blocks);
}

static int64_t token_bytes(const struct executor_info *info, int32_t rank) {
    return (int64_t)info->rank_memory[rank].kv_bytes / num_tokens(info);
}

static void describe_rank(const struct memory_table *table, int32_t rank, char *line) {
    const struct executor_info *info = table->executor;
    size_t fixed = fixed_bytes(table, rank);
    snprintf(line, MAX_LINE,
             "  rank %d   %8.1f MiB and %lld bytes of KV cache for a token: %.1f MiB for %lld",
             rank, mib(fixed), (long long)token_bytes(info, rank),
             mib(fixed + info->rank_memory[rank].kv_bytes), (long long)num_tokens(info));
}

/* All have as many blocks as the one with the least room. */
static void describe_room(const struct memory_table *table, size_t machine_bytes, char *line) {
    const struct executor_info *info = table->executor;
    int64_t least = INT64_MAX;
    int32_t smallest = 0;
    for (int32_t r = 0; r < info->num_ranks; r++) {
        size_t fixed = fixed_bytes(table, r), left = machine_bytes - min_size(fixed, machine_bytes);
        int64_t room = (int64_t)left / token_bytes(info, r);
        smallest = room < least ? r : smallest;
        least = min_int64(room, least);
    }
    snprintf(line, MAX_LINE,
             "           machines of %.1f MiB hold %lld tokens, by the room of rank %d",
             mib(machine_bytes), (long long)(least - least % info->limits.block_size), smallest);
}

void command_plan_write_ranks(const struct rank_plan *plan,
                              void (*write)(void *context, const char *line), void *context) {
    const struct memory_table *table = plan->table;
    const struct executor_info *info = table->executor;
    char line[MAX_LINE];
    write(context,
          "ranks      as processes on a machine each, with the program; rank 0 with requests "
          "and HTTP");
    for (int32_t r = 0; r < info->num_ranks; r++) {
        describe_rank(table, r, line);
        write(context, line);
    }
    describe_room(table, table->program_bytes + info->at_hand_bytes, line);
    write(context, line);
    for (int32_t r = 0; r < info->num_ranks; r++) {
        snprintf(line, sizeof(line),
                 "  rank %d   sends %lld bytes for a token, %lld for one sampled", r,
                 (long long)plan->traffic[r].token_bytes,
                 (long long)(plan->traffic[r].token_bytes + plan->traffic[r].row_bytes));
        write(context, line);
    }
}
