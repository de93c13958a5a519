#include "server/program/serve_ranks.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "config/build_hash.h"
#include "config/base/log.h"
#include "engine/executor/rank_process.h"
#include "kernels/transport.h"
#include "server/program/adapter_loader.h"
#include "server/program/command_line.h"
#include "server/program/engine_options.h"
#include "server/process/signals.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static int check_options(const struct options *options, int32_t num_ranks, struct error *err) {
    long long per_stage = options->tensor_parallel_size;
    long long num_stages = options->pipeline_parallel_size;
    if (num_stages == 1 && per_stage != num_ranks)
        return error_set(err, ERROR_CONFIG,
                         "tensor-parallel-size: %lld; %d ranks were started: must be %d", per_stage,
                         num_ranks, num_ranks);
    if (per_stage * num_stages != num_ranks)
        return error_set(err, ERROR_CONFIG,
                         "pipeline-parallel-size: %lld, times tensor-parallel-size, %lld; %d ranks "
                         "were started: the product must be %d",
                         num_stages, per_stage, num_ranks, num_ranks);
    if (strcmp(options->rank_process, "on") == 0)
        return error_set(
            err, ERROR_CONFIG,
            "rank-process: on; ranks that were started as processes have none besides: "
            "must be auto or off");
    if (options->sleep_idle_seconds != 0)
        return error_set(
            err, ERROR_CONFIG,
            "sleep-idle-seconds: %lld; ranks that mpirun has started cannot sleep: must be 0",
            (long long)options->sleep_idle_seconds);
    if (options->kv_store != NULL)
        return error_set(
            err, ERROR_CONFIG,
            "kv-store: cannot be used with ranks that mpirun has started: their blocks "
            "are in other processes");
    if (options->packed_cache != NULL && strcmp(options->load_mode, "broadcast") == 0)
        return error_set(err, ERROR_CONFIG,
                         "packed-cache: cannot be used with load-mode broadcast, in which rank 0 "
                         "reads the model for all");
    return 0;
}

int serve_ranks_open(const struct options *options, struct transport **out, struct error *err) {
    *out = NULL;
    if (!transport_is_expected())
        return 0;
    if (transport_open(out, err) != 0)
        return -1;
    (*out)->timeout_ns = options->rank_timeout * CLOCK_NS_PER_S;
    return check_options(options, (*out)->num_ranks, err);
}

static void report_ready(void *context, const struct executor_info *info) {
    const struct transport *transport = context;
    const struct executor_memory *memory = &info->rank_memory[transport->rank];
    log_info("rank %d of %d: %s, weights %.1f MiB, KV cache %.1f MiB", transport->rank,
             transport->num_ranks, info->device, mib(memory->weight_bytes), mib(memory->kv_bytes));
}

/* As rank 0 has it, which alone reads the adapters. */
static int choose_adapters(const struct options *options, const struct model *model,
                           struct lora_shape *out, struct error *err) {
    struct adapter_loader loader = {0};
    int status = adapter_loader_read(&loader, options, err);
    if (status == 0)
        status = adapter_loader_shape(&loader, options, model, out, err);
    adapter_loader_finish(&loader);
    return status;
}

static int compute(const struct options *options, struct transport *transport, struct error *err) {
    struct executor_config config;
    struct tokenizer *tokenizer = NULL;
    struct model *model = NULL;
    if (command_open_model(options->model, &model, &tokenizer, err) != 0 ||
        engine_options_executor(options, model, &config, err) != 0 ||
        choose_adapters(options, model, &config.lora, err) != 0)
        return -1;
    config.transport = transport;
    config.build = config.packed_cache.build = build_hash();
    if (rank_process_run_remote(model, &config, report_ready, transport, err) != 0)
        return -1;
    tokenizer_close(tokenizer);
    model_close(model);
    transport->ops->destroy(transport);
    return 0;
}

int serve_ranks_compute(const struct options *options, struct transport *transport) {
    struct error err = {0};
    if (compute(options, transport, &err) == 0)
        return EX_OK;
    log_error("rank %d: %s", transport->rank, err.message);
    fflush(NULL);
    _exit(client_exit_status(&err));
}

/* Signals to the whole group are the server's, which ends this process when it ends itself. */
int command_rank(int argc, char *const *argv) {
    if (argc > 0 || !rank_process_is_expected()) {
        fputs("quire: rank-process is for quire serve alone\n", stderr);
        return EX_USAGE;
    }
    signals_block();
    if (rank_process_run() == 0)
        return EX_OK;
    fflush(NULL);
    _exit(EX_SOFTWARE);
}
