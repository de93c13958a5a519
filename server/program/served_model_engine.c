#include "server/program/served_model.h"

#include "config/base/clock.h"
#include "config/build_hash.h"
#include "config/base/log.h"
#include "engine/executor/process_executor.h"
#include "engine/executor/store_tier.h"
#include "kernels/dtype.h"
#include "kernels/transport.h"
#include "server/api/call/conversation_slots.h"
#include "server/program/command_record.h"
#include "server/program/engine_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>

/* --- One token through the whole engine --- */

static const struct sampling_params one_greedy_token = {
    .num_choices = 1,
    .max_tokens = 1,
    .settings = SAMPLING_SETTINGS_GREEDY,
    .num_logprobs = 0,
    .num_prompt_logprobs = -1,
    .ignore_eos = true,
    .skip_special_tokens = true,
};

struct outcome {
    int num_tokens;
    bool is_sound; /* every logprob is a number */
    enum finish_reason finish;
};

static void read_events(struct request *request, struct outcome *outcome) {
    struct token_buffer buffer = {0};
    struct token_event event;
    token_stream_take(&request->stream, &buffer);
    while (token_buffer_next(&buffer, &event)) {
        for (int32_t i = 0; i < event.num_tokens; i++)
            outcome->is_sound = outcome->is_sound && isfinite(event.tokens[i].logprob);
        outcome->num_tokens += event.num_tokens;
        if (event.finish != FINISH_NONE)
            outcome->finish = event.finish;
    }
    token_buffer_finish(&buffer);
}

static void take_ready(struct engine *engine, struct outcome *outcome) {
    struct request *ready[4];
    int count;
    do {
        count = engine_take_ready(engine, ready, 4);
        for (int i = 0; i < count; i++) {
            read_events(ready[i], outcome);
            request_unref(ready[i]);
        }
    } while (count == 4);
}

/* Until the request has finished or the time is up. */
static void wait_for_end(struct engine *engine, int wake_fd, int timeout_ms,
                         struct outcome *outcome) {
    int64_t deadline_ms = clock_now_ms() + timeout_ms;
    while (outcome->finish == FINISH_NONE) {
        struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
        int64_t left_ms = deadline_ms - clock_now_ms();
        if (left_ms <= 0 || (poll(&wake, 1, (int)left_ms) < 0 && errno != EINTR))
            return;
        uint64_t count;
        if (read(wake_fd, &count, sizeof(count)) == sizeof(count))
            take_ready(engine, outcome);
    }
}

/* A model or backend that cannot compute then fails at start, not with the first user. Nobody else
 * reads wake_fd or the ready list meanwhile. ERROR_DEVICE when no token comes back within
 * timeout_ms, ERROR_MODEL when one comes whose logits are not numbers. */
static int run_self_test(struct engine *engine, int32_t prompt_token, int wake_fd, int timeout_ms,
                         struct error *err) {
    struct outcome outcome = {.is_sound = true};
    struct request *request = request_create(&prompt_token, 1, &one_greedy_token);
    if (!request)
        return error_set(err, ERROR_MEMORY, "no memory for the self-test");
    enum submit_result result = engine_submit(engine, request);
    if (result == SUBMIT_OK)
        wait_for_end(engine, wake_fd, timeout_ms, &outcome);
    request_unref(request);
    if (result != SUBMIT_OK)
        return error_set(err, ERROR_DEVICE, "self-test: the engine refused a request of 1 token");
    if (outcome.finish == FINISH_NONE)
        return error_set(err, ERROR_DEVICE, "self-test: no token within %d ms", timeout_ms);
    if (engine_has_failed(engine))
        return error_set(err, ERROR_DEVICE, "self-test: the device failed: %s",
                         engine_failure(engine).message);
    if (outcome.finish != FINISH_LENGTH || outcome.num_tokens != 1)
        return error_set(err, ERROR_DEVICE,
                         "self-test: the request of 1 token did not end with it");
    if (!outcome.is_sound) /* the same file would compute the same again */
        return error_set(err, ERROR_MODEL,
                         "self-test: the model computes values that are not numbers");
    return 0;
}

/* A client that takes nothing is dropped by the HTTP layer long before; this bounds how long one
 * that takes a byte now and then keeps its KV blocks. */
#define STALL_TIMEOUT_MS 120000
#define SELF_TEST_TIMEOUT_MS 120000

static void show_load(void *context, size_t bytes_read, size_t num_bytes) {
    struct served_model *served = context;
    struct load_progress *progress = &served->load_progress;
    char line[LOAD_PROGRESS_LINE_BYTES];
    enum load_progress_kind kind =
        load_progress_update(progress, bytes_read, num_bytes, clock_now_ns(), line);
    atomic_store(&served->http.load_progress,
                 num_bytes > 0 ? (int)(1000 * (double)bytes_read / (double)num_bytes) : 0);
    if (kind == LOAD_PROGRESS_STATUS)
        log_status("%s", line);
    else if (kind == LOAD_PROGRESS_LOG)
        log_info("%s", line);
}

bool served_model_has_rank_process(const struct served_model *served) {
    return served->is_one_of_several || engine_options_have_rank_process(served->options);
}

static int create_executor(struct served_model *served, struct error *err) {
    static const char *const argv[] = {"quire", "rank-process", NULL};
    const struct process_executor_config config = {
        .program = "/proc/self/exe",
        .argv = argv,
        .model_path = served->options->model,
        .draft_path = draft_model_path(&served->draft),
        .gives_up = served->gives_up,
        .turns = served->turns,
        .executor = served->executor_config,
    };
    if (served->transport == NULL && served_model_has_rank_process(served))
        return process_executor_create(&config, &served->info, &served->executor, err);
    return executor_create(served->model, &served->executor_config, &served->info,
                           &served->executor, err);
}

static bool has_fp8_weights(const struct model *model) {
    for (size_t i = 0; i < tensor_file_num_tensors(model->file); i++) {
        const struct unsupported_type *type = tensor_file_tensor(model->file, i)->unsupported;
        if (type != NULL && strcmp(type->name, "F8_E4M3") == 0)
            return true;
    }
    return false;
}

int served_model_open_executor(struct served_model *served, struct error *err) {
    struct executor_config *config = &served->executor_config;
    load_progress_start(&served->load_progress, clock_now_ns(), log_is_terminal());
    config->progress = (struct weights_progress){show_load, served};
    config->transport = served->transport;
    config->build = config->packed_cache.build = build_hash();
    if (create_executor(served, err) != 0)
        return -1;
    if (config->dtype == DTYPE_F16 && !served->info.has_dedicated_memory)
        log_warning("dtype %s: the CPU computes in float", served->options->dtype);
    if (config->fp8_activations && !has_fp8_weights(served->model))
        log_warning("fp8-activations: changes nothing here, the model has no weights in fp8");
    if (config->fast_sums &&
        (!served->info.has_dedicated_memory || served->info.num_ranks == served->info.num_stages))
        log_warning(
            "fast-sums: changes nothing here, it is for several GPUs that share each layer");
    return command_fingerprint(config, &served->info, served->model, build_hash(),
                               served->fingerprint, err);
}

int served_model_open_kv_events(struct served_model *served, struct error *err) {
    struct kv_event_config config;
    if (kv_event_config_read(served->options, &config, err) != 0)
        return -1;
    return kv_event_publisher_open(&config, (int32_t)served->options->block_size,
                                   &served->kv_events, err);
}

/* A name of a hub has a folder's separator in it; "." and ".." are other folders. */
static int make_store_path(const struct served_model *served, bool is_read_only, char *out,
                           size_t size, struct error *err) {
    const char *folder = served->options->kv_store;
    int length = snprintf(out, size, "%s/%s", folder, served->http.names[0]);
    if (length < 0 || (size_t)length >= size)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: has %zu bytes, too many with the model's name", strlen(folder));
    for (char *c = out + strlen(folder) + 1; *c != '\0'; c++)
        *c = *c == '/' ? '_' : *c;
    char *name = out + strlen(folder) + 1;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        name[0] = '_';
    if (is_read_only)
        return 0;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_set(err, ERROR_CONFIG, "kv-store: cannot make %s: %s", folder,
                         strerror(errno));
    return 0;
}

int served_model_open_kv_store(struct served_model *served, struct error *err) {
    const struct options *options = served->options;
    char path[4300];
    enum kv_role role;
    if (options->kv_store == NULL)
        return 0;
    if (engine_options_read_kv_role(options->kv_role, &role, err) != 0)
        return -1;
    bool is_shared = strncmp(options->kv_store_mode, "shared", strlen("shared")) == 0;
    bool is_read_only = strstr(options->kv_store_mode, "read-only") != NULL;
    if (make_store_path(served, is_read_only, path, sizeof(path), err) != 0)
        return -1;
    struct kv_store_config config = {
        .directory = path,
        .max_bytes = options->kv_store_bytes,
        .key_file = options->kv_store_key_file,
        .forgets = strcmp(options->kv_store_mode, "forget") == 0,
        .read_only = is_read_only,
        .is_shared = is_shared,
        .hurries = (role & KV_ROLE_PREFILL) != 0,
        .block_bytes = store_tier_block_bytes(&served->info),
        .block_size = served->info.limits.block_size,
    };
    if (command_fingerprint_blocks(&served->executor_config, &served->info, served->model,
                                   build_hash(), config.identity, err) != 0)
        return -1;
    if (kv_store_open(&config, &served->kv_store, err) == 0)
        return 0;
    if (err->code != ERROR_UNAVAILABLE)
        return -1;
    log_warning("%s: it is not used", err->message);
    return 0;
}

/* A server that does not start keeps the recordings that are there. */
int served_model_check_record(struct served_model *served, struct error *err) {
    const char *path = served->options->record;
    return path == NULL ? 0 : record_file_check(path, err);
}

static void wake_http(void *context) {
    const struct served_model *served = context;
    const uint64_t one = 1;
    if (write(served->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        log_error("cannot wake the I/O thread: %s", strerror(errno));
}

static int start_recording(struct served_model *served, const struct engine_config *engine,
                           struct error *err) {
    const struct options *options = served->options;
    if (options->record == NULL)
        return 0;
    if (record_file_open(options->record, &served->record_file, err) != 0)
        return -1;
    const struct recorder_config config = {.max_bytes = options->record_max_bytes / 2,
                                           .write = record_file_write,
                                           .context = served->record_file};
    struct record_header *header = malloc(sizeof(*header));
    if (header == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the recording");
    int status = command_record_describe(options, &served->info, engine, header, err);
    if (status == 0)
        status = recorder_create(&config, header, &served->recorder, err);
    free(header);
    return status;
}

/* Without the store, which cannot be used, it computes what it is to take over. */
static int set_role(struct served_model *served, struct error *err) {
    snprintf(served->kv_store_name, sizeof(served->kv_store_name), "none");
    if (served->kv_store != NULL)
        kv_store_name(served->kv_store, served->kv_store_name);
    served->context.kv_store_name = served->kv_store_name;
    return engine_options_read_kv_role(served->options->kv_role, &served->context.kv_role, err);
}

int served_model_start_engine(struct served_model *served, struct error *err) {
    struct engine_config config =
        engine_options_read(served->options, served->model, &served->info);
    if (engine_options_drafter(served->options, &served->drafter, err) != 0)
        return -1;
    config.core.drafter = served->drafter;
    config.core.vocabulary = served->vocabulary.vocabulary;
    config.core.stall_timeout_ns = STALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
    config.sleep_idle_ms = served->options->sleep_idle_seconds * 1000;
    config.wake = wake_http;
    config.wake_context = served;
    config.activity = served->activity;
    if (start_recording(served, &config, err) != 0)
        return -1;
    config.recorder = served->recorder;
    config.store = served->kv_store;
    config.core.schedule.kv.events = kv_event_publisher_sink(served->kv_events);
    served->memory.engine_bytes = engine_memory_bytes(&config, served->tokenizer);
    if (served->kv_store != NULL) {
        struct kv_store_counts counts;
        kv_store_get_counts(served->kv_store, &counts);
        served->memory.engine_bytes +=
            counts.memory_bytes + conversation_slots_max_bytes(&served->info.limits);
    }
    served->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (served->wake_fd < 0)
        return error_set(err, ERROR_IO, "eventfd: %s", strerror(errno));
    if (engine_create(&config, served->executor, served->tokenizer, &served->engine, err) != 0)
        return -1;
    if (set_role(served, err) != 0)
        return -1;
    if (served->kv_store == NULL)
        return 0;
    served->context.slots = conversation_slots_create(served->info.limits.max_num_seqs,
                                                      served->engine, served->kv_store);
    return served->context.slots != NULL ? 0 : error_set(err, ERROR_MEMORY, "no memory for slots");
}

int served_model_load_adapters(struct served_model *served, struct error *err) {
    if (adapter_loader_start(&served->adapters, served->options, served->model, &served->info.lora,
                             served->engine, err) != 0)
        return -1;
    served->context.adapters = served->adapters.served;
    served->context.adapter_actions =
        served->adapters.served != NULL ? &served->adapters.actions : NULL;
    return 0;
}

int served_model_test(struct served_model *served, struct error *err) {
    int32_t bos = tokenizer_bos(served->tokenizer);
    return run_self_test(served->engine, bos >= 0 ? bos : 0, served->wake_fd, SELF_TEST_TIMEOUT_MS,
                         err);
}
