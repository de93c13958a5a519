#include "server/program/command_serve_engine.h"

#include "config/base/clock.h"
#include "config/build_hash.h"
#include "config/base/log.h"
#include "engine/executor/distributed_executor.h"
#include "engine/executor/process_executor.h"
#include "kernels/dtype.h"
#include "server/program/command_record.h"
#include "server/program/command_serve_model.h"
#include "server/program/engine_options.h"
#include "server/program/self_test.h"
#include "server/program/serve_ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A client that takes nothing is dropped by the HTTP layer long before; this bounds how long one
 * that takes a byte now and then keeps its KV blocks. */
#define STALL_TIMEOUT_MS 120000
#define SELF_TEST_TIMEOUT_MS 120000

int command_serve_engine_open_ranks(struct serve *serve, struct error *err) {
    if (serve_ranks_open(&serve->options, &serve->transport, err) != 0)
        return -1;
    if (serve->transport == NULL || distributed_rank_number(serve->transport) == 0)
        return 0;
    if (command_serve_model_find(serve, err) != 0)
        return -1;
    exit(serve_ranks_compute(&serve->options, serve->transport));
}

static void show_load(void *context, size_t bytes_read, size_t num_bytes) {
    struct load_progress *progress = context;
    char line[LOAD_PROGRESS_LINE_BYTES];
    enum load_progress_kind kind =
        load_progress_update(progress, bytes_read, num_bytes, clock_now_ns(), line);
    if (kind == LOAD_PROGRESS_STATUS)
        log_status("%s", line);
    else if (kind == LOAD_PROGRESS_LOG)
        log_info("%s", line);
}

static int create_executor(struct serve *serve, struct error *err) {
    static const char *const argv[] = {"quire", "rank-process", NULL};
    const struct process_executor_config config = {
        .program = "/proc/self/exe",
        .argv = argv,
        .model_path = serve->options.model,
        .executor = serve->executor_config,
    };
    if (serve->transport != NULL)
        return distributed_executor_create(serve->model, &serve->executor_config, &serve->info,
                                           &serve->executor, err);
    if (engine_options_have_rank_process(&serve->options))
        return process_executor_create(&config, &serve->info, &serve->executor, err);
    return executor_create(serve->model, &serve->executor_config, &serve->info, &serve->executor,
                           err);
}

int command_serve_engine_open_executor(struct serve *serve, struct error *err) {
    struct executor_config *config = &serve->executor_config;
    load_progress_start(&serve->load_progress, clock_now_ns(), log_is_terminal());
    config->progress = (struct weights_progress){show_load, &serve->load_progress};
    config->transport = serve->transport;
    config->build = build_hash();
    if (create_executor(serve, err) != 0)
        return -1;
    if (config->dtype == DTYPE_F16 && !serve->info.has_dedicated_memory)
        log_warning("dtype %s: the CPU computes in float", serve->options.dtype);
    return command_fingerprint(config, &serve->info, serve->model, build_hash(), serve->fingerprint,
                               err);
}

int command_serve_engine_read_kv_events(struct serve *serve, struct error *err) {
    return kv_event_config_read(&serve->options, &serve->kv_event_config, err);
}

int command_serve_engine_open_kv_events(struct serve *serve, struct error *err) {
    return kv_event_publisher_open(&serve->kv_event_config, serve->info.limits.block_size,
                                   &serve->kv_events, err);
}

static void wake_http(void *context) {
    const struct serve *serve = context;
    const uint64_t one = 1;
    if (write(serve->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        log_error("cannot wake the I/O thread: %s", strerror(errno));
}

static int start_recording(struct serve *serve, const struct engine_config *engine,
                           struct error *err) {
    const struct options *options = &serve->options;
    if (options->record == NULL)
        return 0;
    if (record_file_open(options->record, &serve->record_file, err) != 0)
        return -1;
    const struct recorder_config config = {.max_bytes = options->record_max_bytes / 2,
                                           .write = record_file_write,
                                           .context = serve->record_file};
    struct record_header *header = malloc(sizeof(*header));
    if (header == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the recording");
    int status = command_record_describe(options, &serve->info, engine, header, err);
    if (status == 0)
        status = recorder_create(&config, header, &serve->recorder, err);
    free(header);
    return status;
}

int command_serve_engine_start(struct serve *serve, struct error *err) {
    struct engine_config config = engine_options_read(&serve->options, &serve->info);
    if (engine_options_drafter(&serve->options, &serve->drafter, err) != 0)
        return -1;
    config.core.drafter = serve->drafter;
    config.core.vocabulary = serve->vocabulary.vocabulary;
    config.core.stall_timeout_ns = STALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
    config.sleep_idle_ms = serve->options.sleep_idle_seconds * 1000;
    config.wake = wake_http;
    config.wake_context = serve;
    config.activity = &serve->guard.engine_activity;
    if (start_recording(serve, &config, err) != 0)
        return -1;
    config.recorder = serve->recorder;
    config.core.schedule.kv.events = kv_event_publisher_sink(serve->kv_events);
    serve->memory.engine_bytes = engine_memory_bytes(&config, serve->tokenizer);
    serve->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (serve->wake_fd < 0)
        return error_set(err, ERROR_IO, "eventfd: %s", strerror(errno));
    return engine_create(&config, serve->executor, serve->tokenizer, &serve->engine, err);
}

int command_serve_engine_test(struct serve *serve, struct error *err) {
    int32_t bos = tokenizer_bos(serve->tokenizer);
    return self_test_run(serve->engine, bos >= 0 ? bos : 0, serve->wake_fd, SELF_TEST_TIMEOUT_MS,
                         err);
}
