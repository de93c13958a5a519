/* The core's callbacks read the tape of the recorded step: what they are asked for must come next
 * there. Else the core has done something else than it did then, which is a difference too. After
 * the first one nothing is compared any more; the step ends, and with it the replay. */
#include "engine/record/replay.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/record/record_request.h"
#include "engine/record/record_step.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Submitted, but not handed over yet. */
struct late_step {
    const struct batch *batch; /* NULL: none */
    struct step_result *result;
};

struct replay {
    struct replay_config config;
    struct executor executor;         /* the core's: fails where the recorded one did */
    struct late_step late;            /* the step submitted last, if that is one */
    int32_t num_waiting;              /* steps submitted and not waited for */
    struct mask_workers mask_workers; /* the core's: done when the recorded ones were */
    struct grammar_job *mask_jobs;
    bool masks_stopped;
    struct engine_core core;
    struct record_markers markers;
    int32_t num_end_tokens;
    uint64_t last_id;
    int64_t last_ns;
    uint64_t num_ended;       /* choices, before the step */
    struct record_input tape; /* of the step */
    bool is_over;             /* it differs, or ends: nothing is compared */
    struct byte_buffer found, scratch;
    struct token_buffer events;
    struct replay_result *result;
};

static void differ(struct replay *replay, const char *what) {
    if (replay->is_over)
        return;
    replay->is_over = true;
    replay->result->differs = true;
    snprintf(replay->result->difference, sizeof(replay->result->difference), "%s", what);
}

/* Takes the mark if it comes next. */
static bool take_mark(struct replay *replay, enum record_mark mark) {
    if (replay->is_over || record_peek(&replay->tape) != (int)mark)
        return false;
    replay->tape.at++;
    return true;
}

/* --- What enters the core --- */

static int64_t read_clock(void *context) {
    struct replay *replay = context;
    if (!take_mark(replay, RECORD_CLOCK)) {
        differ(replay, "the clock is read where it was not");
        return max_int64(replay->last_ns, 1);
    }
    int64_t since = record_get_signed(&replay->tape, "a time", 0, RECORD_MAX_NS - replay->last_ns);
    replay->last_ns += since;
    return max_int64(replay->last_ns, 1);
}

/* Only what was set is on the tape. */
static bool has_signal(void *context, struct request *request, enum request_signal signal) {
    struct replay *replay = context;
    struct record_input at = replay->tape;
    if (!take_mark(replay, RECORD_SIGNAL))
        return false;
    uint64_t id = record_get_unsigned(&replay->tape, "a request's id", UINT64_MAX);
    uint64_t which = record_get_unsigned(&replay->tape, "a signal", UINT64_MAX);
    if (id == request->id && which == (uint64_t)signal)
        return true;
    replay->tape = at;
    return false;
}

static struct replay *replay_of(struct executor *executor) {
    return (struct replay *)((char *)executor - offsetof(struct replay, executor));
}

/* A step with late inputs is not handed over before these are there: they never come when the
 * recorded ranks were lost. */
static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct replay *replay = replay_of(executor);
    struct executor *real = replay->config.executor;
    replay->num_waiting++;
    if (batch->has_late_inputs)
        replay->late = (struct late_step){batch, result};
    else
        real->ops->submit(real, batch, result);
}

static void supply(struct executor *executor) {
    struct replay *replay = replay_of(executor);
    struct executor *real = replay->config.executor;
    real->ops->submit(real, replay->late.batch, replay->late.result);
    real->ops->supply(real);
    replay->late.batch = NULL;
}

static void destroy(struct executor *executor) {
}

static int step_memory(struct executor *executor, const struct batch_capacity *capacity,
                       void **out) {
    struct executor *real = replay_of(executor)->config.executor;
    return real->ops->step_memory(real, capacity, out);
}

/* Returns what was recorded of the step that is waited for; empty: nothing was. */
static struct text peek_collected(const struct replay *replay) {
    struct record_input at = replay->tape;
    if (replay->is_over || record_peek(&at) != RECORD_COLLECTED)
        return (struct text){"", 0};
    at.at++;
    return record_get_bytes(&at, "a step", RECORD_MAX_FRAME_BYTES);
}

static int wait(struct executor *executor, struct error *err) {
    struct replay *replay = replay_of(executor);
    struct executor *real = replay->config.executor;
    bool is_late = --replay->num_waiting == 0 && replay->late.batch != NULL;
    if (is_late)
        replay->late.batch = NULL;
    else if (real->ops->wait(real, err) != 0)
        return -1;
    struct text recorded = peek_collected(replay);
    enum error_code failure = recorded.length > 0 ? record_step_failure(recorded) : ERROR_NONE;
    if (failure == ERROR_NONE && is_late)
        failure = ERROR_DEVICE; /* nothing was computed */
    if (failure == ERROR_NONE)
        return 0;
    return error_set(err, failure, "as it was recorded");
}

/* Returns how the executor answered then; ERROR_NONE where it was not asked, or all was well. */
static enum error_code take_answer(struct replay *replay, enum executor_answer answer) {
    struct record_input at = replay->tape;
    if (!take_mark(replay, RECORD_ANSWER))
        return ERROR_NONE;
    uint64_t which = record_get_unsigned(&replay->tape, "an answer", UINT64_MAX);
    uint64_t code = record_get_unsigned(&replay->tape, "an answer", ERROR_RESTART);
    if (which == (uint64_t)answer)
        return (enum error_code)code;
    replay->tape = at;
    return ERROR_NONE;
}

static int answer(struct replay *replay, enum executor_answer which, struct error *err) {
    enum error_code code = take_answer(replay, which);
    return code == ERROR_NONE ? 0 : error_set(err, code, "as it was recorded");
}

static int check(struct executor *executor, struct error *err) {
    return answer(replay_of(executor), EXECUTOR_CHECKED, err);
}

static int restart(struct executor *executor, struct error *err) {
    return answer(replay_of(executor), EXECUTOR_RESTARTED, err);
}

static struct replay *replay_of_workers(struct mask_workers *workers) {
    return (struct replay *)((char *)workers - offsetof(struct replay, mask_workers));
}

static void add_mask_job(struct mask_workers *workers, struct grammar_job *job) {
    struct replay *replay = replay_of_workers(workers);
    job->next = replay->mask_jobs;
    replay->mask_jobs = job;
}

/* Returns the job of which the recorded step took note next; once they are stopped, any. */
static struct grammar_job *take_mask_job(struct mask_workers *workers) {
    struct replay *replay = replay_of_workers(workers);
    struct grammar_job **at = &replay->mask_jobs, *job;
    if (!replay->masks_stopped) {
        if (!take_mark(replay, RECORD_MASKS))
            return NULL;
        uint64_t id = record_get_unsigned(&replay->tape, "a job", UINT64_MAX);
        while (*at != NULL && (*at)->id != id)
            at = &(*at)->next;
        if (*at == NULL)
            differ(replay, "masks were found that nobody wants");
    }
    job = *at;
    if (job == NULL)
        return NULL;
    *at = job->next;
    while (!replay->masks_stopped && !grammar_job_run(job, INT64_MAX))
        ;
    return job;
}

static void stop_masks(struct mask_workers *workers) {
    replay_of_workers(workers)->masks_stopped = true;
}

/* --- What leaves it --- */

static void note_collected(void *context, const struct step *step, const struct error *failure) {
    struct replay *replay = context;
    char difference[448];
    if (!take_mark(replay, RECORD_COLLECTED)) {
        differ(replay, "a step is waited for where none was");
        return;
    }
    struct text recorded = record_get_bytes(&replay->tape, "a step", RECORD_MAX_FRAME_BYTES);
    struct byte_buffer *found = &replay->found;
    byte_buffer_clear(found);
    record_step_write(step, failure->code, replay->config.header->limits.hidden_size,
                      &replay->scratch, found);
    if (found->length != recorded.length ||
        memcmp(found->data, recorded.data, recorded.length) != 0) {
        record_step_explain(recorded, (struct text){found->data, found->length}, difference,
                            sizeof(difference));
        differ(replay, difference);
        return;
    }
    if (failure->code == ERROR_NONE)
        record_step_count(recorded, &replay->result->num_entries, &replay->result->num_tokens);
}

static void read_events(void *context, struct request *request) {
    struct replay *replay = context;
    struct token_event event;
    token_stream_take(&request->stream, &replay->events);
    replay->result->num_event_bytes += replay->events.bytes;
    while (token_buffer_next(&replay->events, &event))
        replay->result->num_events++;
}

/* --- Frames --- */

/* Those that requests may use. */
static void list_adapters(struct replay *replay) {
    for (int32_t i = 0; i < LORA_MAX_SLOTS; i++) {
        const struct adapter_slot *slot = &replay->core.adapters.slots[i];
        bool is_usable = slot->was_ready && !slot->is_unloading;
        replay->markers.adapters[i] = is_usable ? slot->adapter : NULL;
    }
}

static int add_request(struct replay *replay, struct record_input *in, struct error *err) {
    struct request *request;
    list_adapters(replay);
    if (record_request_read(in, replay->config.header, replay->num_end_tokens, &replay->markers,
                            &request, err) != 0)
        return -1;
    int status = 0;
    if (request->id <= replay->last_id)
        status = error_set(err, ERROR_SYNTAX, "request %" PRIu64 " comes after %" PRIu64,
                           request->id, replay->last_id);
    else if (request->params.grammar != NULL && replay->config.vocabulary == NULL)
        status = error_set(err, ERROR_SYNTAX, "request %" PRIu64 " has a grammar", request->id);
    else
        engine_core_add(&replay->core, request);
    replay->last_id = request->id;
    replay->result->num_requests++;
    request_unref(request);
    return status;
}

static struct adapter *open_adapter(const struct replay *replay, const char *name,
                                    struct error *err) {
    if (replay->config.open_adapter != NULL)
        return replay->config.open_adapter(replay->config.context, name, err);
    error_set(err, ERROR_CONFIG, "adapter \"%.200s\" was loaded when this was recorded", name);
    return NULL;
}

/* One with other numbers would give other answers. */
static int check_digest(const struct adapter *adapter, const struct text *recorded,
                        struct error *err) {
    const uint8_t *is = lora_adapter_digest(adapter->lora);
    const uint8_t *was = (const uint8_t *)recorded->data;
    if (memcmp(is, was, CONTENT_HASH_BYTES) == 0)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "adapter \"%.200s\" is %02x%02x%02x%02x..., recorded was "
                     "%02x%02x%02x%02x...: its numbers are not the same",
                     adapter->name, is[0], is[1], is[2], is[3], was[0], was[1], was[2], was[3]);
}

/* is_taken: an adapter has it. */
static int32_t read_slot(const struct replay *replay, struct record_input *in, bool is_taken) {
    int32_t num_slots = replay->config.header->core.lora.num_slots;
    int32_t slot = record_get_int32(in, "a slot", 0, num_slots - 1);
    if (in->wrong == NULL && is_taken != (replay->core.adapters.slots[slot].adapter != NULL))
        record_input_refuse(in, "a slot");
    return slot;
}

static int load_adapter(struct replay *replay, struct record_input *in, struct error *err) {
    char name[RECORD_MAX_NAME_BYTES];
    bool is_ready = record_get_bool(in, "whether requests use an adapter");
    int32_t slot = read_slot(replay, in, false);
    record_get_text(in, "an adapter's name", name, sizeof(name));
    struct text digest = record_get_bytes(in, "an adapter's digest", CONTENT_HASH_BYTES);
    if (digest.length != CONTENT_HASH_BYTES)
        record_input_refuse(in, "an adapter's digest");
    if (record_input_finish(in, "load", err) != 0)
        return -1;
    struct adapter *adapter = open_adapter(replay, name, err);
    if (adapter == NULL)
        return -1;
    int status = check_digest(adapter, &digest, err);
    if (status == 0)
        engine_core_load_adapter(&replay->core, slot, adapter, is_ready);
    adapter_unref(adapter);
    return status;
}

static int unload_adapter(struct replay *replay, struct record_input *in, struct error *err) {
    int32_t slot = read_slot(replay, in, true);
    if (record_input_finish(in, "unload", err) != 0)
        return -1;
    if (replay->core.adapters.slots[slot].is_unloading)
        return error_set(err, ERROR_SYNTAX, "slot %d is unloaded twice", slot);
    engine_core_unload_adapter(&replay->core, slot);
    return 0;
}

static void compare_end(struct replay *replay, bool ran, uint64_t ended) {
    char difference[160];
    if (replay->is_over)
        return;
    if (!take_mark(replay, RECORD_END)) {
        differ(replay, "the step ends where it did not");
        return;
    }
    bool recorded_ran = record_get_bool(&replay->tape, "whether a step ran");
    uint64_t recorded_ended = record_get_unsigned(&replay->tape, "choices that ended", UINT64_MAX);
    if (recorded_ran == ran && recorded_ended == ended)
        return;
    snprintf(difference, sizeof(difference),
             "%" PRIu64 " choices ended%s, %" PRIu64 " were recorded%s", ended,
             ran ? "" : " and nothing ran", recorded_ended,
             recorded_ran ? "" : " and that nothing ran");
    differ(replay, difference);
}

static int run_step(struct replay *replay, const struct record_input *in, struct error *err) {
    replay->tape = *in;
    replay->result->num_steps++;
    bool ran = engine_core_step(&replay->core);
    uint64_t ended = engine_stats_num_finished(&replay->core.stats);
    compare_end(replay, ran, ended - replay->num_ended);
    replay->num_ended = ended;
    if (replay->found.failed || replay->scratch.failed)
        return error_set(err, ERROR_MEMORY, "no memory for the results of a step");
    return replay->is_over ? 0 : record_input_finish(&replay->tape, "step", err);
}

static int run_frame(struct replay *replay, enum record_kind kind, struct record_input *in,
                     struct error *err) {
    switch (kind) {
    case RECORD_REQUEST:
        return add_request(replay, in, err);
    case RECORD_FLUSH:
        engine_core_flush_cache(&replay->core);
        return record_input_finish(in, "flush", err);
    case RECORD_LOAD:
        return load_adapter(replay, in, err);
    case RECORD_UNLOAD:
        return unload_adapter(replay, in, err);
    case RECORD_REWRITE:
        engine_core_rewrite_adapters(&replay->core);
        return record_input_finish(in, "rewrite", err);
    case RECORD_STEP:
        return run_step(replay, in, err);
    case RECORD_HEADER:
        break;
    }
    return error_set(err, ERROR_SYNTAX, "a second header");
}

static int run_frames(struct replay *replay, struct error *err) {
    enum record_kind kind;
    struct record_input in;
    int status = 0;
    while (!replay->is_over && status == 0) {
        uint64_t at = replay->config.frames->read;
        struct error why = {0};
        int got = record_frames_next(replay->config.frames, &kind, &in, &why);
        if (got == 0)
            break;
        if (got < 0)
            status = error_set(err, why.code, "%s", why.message);
        else if (run_frame(replay, kind, &in, &why) != 0)
            status =
                error_set(err, why.code, "the record at byte %" PRIu64 ": %s", at, why.message);
    }
    return status;
}

/* --- From beginning to end --- */

static int begin(struct replay *replay, struct error *err) {
    static const struct executor_ops executor_ops = {
        .submit = submit,
        .supply = supply,
        .wait = wait,
        .destroy = destroy,
        .step_memory = step_memory,
        .check = check,
        .restart = restart,
        .sleep = executor_cannot_sleep,
        .wake = executor_cannot_start_again,
        .rank_stats = executor_has_no_stats,
        .host_pools = executor_shares_no_host_pools,
    };
    static const struct mask_workers_ops mask_ops = {
        .add = add_mask_job, .take = take_mask_job, .stop = stop_masks};
    const struct record_header *header = replay->config.header;
    struct engine_core_config core = header->core;
    core.schedule.kv.limits = &header->limits;
    core.num_stages = header->num_stages;
    core.model = replay->config.model;
    core.drafter = replay->config.drafter;
    core.vocabulary = replay->config.vocabulary;
    core.mask_workers = &replay->mask_workers;
    core.mask_budget = replay->config.mask_budget;
    core.clock = read_clock;
    core.has_signal = has_signal;
    core.collected = note_collected;
    core.notify = read_events;
    core.context = replay;
    replay->executor.ops = &executor_ops;
    replay->mask_workers.ops = &mask_ops;
    tokenizer_eos_tokens(replay->config.tokenizer, &replay->num_end_tokens);
    if (block_key_secret_create(&core.schedule.kv.secret) != 0)
        return error_set(err, ERROR_IO, "cannot read random numbers");
    return engine_core_init(&replay->core, &core, &replay->executor, replay->config.tokenizer, err);
}

static void end(struct replay *replay) {
    replay->is_over = true;
    for (const struct sequence_group *g = replay->core.first_group; g != NULL; g = g->next)
        replay->result->num_open++;
    engine_core_abort(&replay->core, FINISH_ABORT);
    engine_core_finish(&replay->core);
}

int replay_run(const struct replay_config *config, struct replay_result *out, struct error *err) {
    struct replay *replay = calloc(1, sizeof(*replay));
    if (replay == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the replay");
    memset(out, 0, sizeof(*out));
    replay->config = *config;
    replay->result = out;
    int status = begin(replay, err);
    if (status == 0) {
        status = run_frames(replay, err);
        end(replay);
    }
    record_markers_finish(&replay->markers);
    byte_buffer_finish(&replay->found);
    byte_buffer_finish(&replay->scratch);
    token_buffer_finish(&replay->events);
    free(replay);
    return status;
}
