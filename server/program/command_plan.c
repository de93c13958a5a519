#include "server/program/command_plan.h"

#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "server/program/engine_options.h"
#include "server/http/http_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int command_plan_make(const struct model *model, const struct tokenizer *tokenizer,
                      const struct options *options, struct command_plan *out, struct error *err) {
    struct executor_config config;
    if (engine_options_executor(options, model, &config, err) != 0 ||
        executor_plan(model, &config, &out->info, err) != 0)
        return -1;
    executor_plan_traffic(model, &config, out->traffic);
    const struct engine_config engine = engine_options_read(options, &out->info);
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
