#include "scripts/bench/cluster_sim/replica.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "scripts/bench/cluster_sim/synthetic_tokenizer.h"

#include <stdlib.h>

/* --- What the core asks --- */

static int64_t read_clock(void *context) {
    return ((struct replica *)context)->executor.now_ns;
}

/* Nobody cancels, and streams are read after every step. */
static bool has_signal(void *context, struct request *request, enum request_signal signal) {
    return false;
}

static void note_news(void *context, struct request *request) {
    struct replica *replica = context;
    CHECK(array_reserve(&replica->ready, &replica->ready_capacity, replica->num_ready + 1,
                        sizeof(*replica->ready)));
    replica->ready[replica->num_ready++] = request->user;
}

/* --- Its life --- */

struct replica *replica_create(const struct replica_config *config) {
    struct replica *replica = calloc(1, sizeof(*replica));
    if (replica == NULL)
        return NULL;
    const struct engine_core_config core = {
        .schedule.kv.limits = &config->device->limits,
        .schedule.max_step_ns = -1, /* --max-inter-token-ms auto */
        .schedule.kv.num_tenants = 1,
        .schedule.kv.caching = config->prefix_caching,
        .schedule.kv.secret = config->secret,
        .async_scheduling = true,
        .clock = read_clock,
        .has_signal = has_signal,
        .notify = note_news,
        .context = replica,
    };
    struct error err = {0};
    virtual_executor_init(&replica->executor, &config->device->cost);
    if (engine_core_init(&replica->core, &core, &replica->executor.base, synthetic_tokenizer(),
                         &err) != 0) {
        free(replica);
        return NULL;
    }
    return replica;
}

struct call *replica_destroy(struct replica *replica) {
    if (replica == NULL)
        return NULL;
    engine_core_abort(&replica->core, FINISH_ABORT);
    engine_core_finish(&replica->core);
    struct call *left = replica->first_call;
    for (struct call *call = left; call != NULL; call = call->next) {
        request_unref(call->request);
        call->request = NULL;
        call->previous = NULL;
    }
    token_buffer_finish(&replica->events);
    free(replica->ready);
    free(replica);
    return left;
}

struct block_key replica_prefix_root(const struct replica_config *config) {
    return block_key_root(&config->secret, 0, NULL, 0);
}

/* --- Requests --- */

static struct request *make_request(const struct call *call) {
    int32_t count = call->turn.num_prompt_tokens;
    struct sampling_params params = {
        .num_choices = 1,
        .max_tokens = call->turn.num_output_tokens,
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .seed = call->conversation.id,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
        .skip_special_tokens = true,
    };
    int32_t *prompt = malloc((size_t)count * sizeof(*prompt));
    if (prompt == NULL)
        return NULL;
    conversation_write(&call->conversation, count, prompt);
    struct request *request = request_create(prompt, count, &params);
    free(prompt);
    return request;
}

int replica_send(struct replica *replica, struct call *call, int64_t now_ns) {
    struct request *request = make_request(call);
    if (request == NULL)
        return -1;
    request->id = ++replica->next_id;
    request->arrival_ns = now_ns;
    request->user = call;
    call->request = request;
    call->num_tokens = call->num_cached_tokens = 0;
    call->has_ended = false;
    call->next = NULL;
    call->previous = replica->last_call;
    *(replica->last_call != NULL ? &replica->last_call->next : &replica->first_call) = call;
    replica->last_call = call;
    engine_core_add(&replica->core, request);
    return 0;
}

bool replica_step(struct replica *replica, int64_t now_ns, int64_t *end_ns) {
    replica->executor.now_ns = now_ns;
    bool has_run = engine_core_step(&replica->core);
    CHECK(has_run || engine_core_is_idle(&replica->core));
    *end_ns = replica->executor.now_ns;
    return has_run;
}

static void unlink_call(struct replica *replica, struct call *call) {
    *(call->previous != NULL ? &call->previous->next : &replica->first_call) = call->next;
    *(call->next != NULL ? &call->next->previous : &replica->last_call) = call->previous;
    call->next = call->previous = NULL;
}

static void read_events(struct replica *replica, struct call *call) {
    struct token_event event;
    int64_t now_ns = replica->executor.now_ns;
    token_stream_take(&call->request->stream, &replica->events);
    while (token_buffer_next(&replica->events, &event)) {
        if (event.num_tokens > 0 && call->num_tokens == 0)
            call->first_token_ns = now_ns;
        call->last_token_ns = now_ns;
        call->num_tokens += event.num_tokens;
        call->num_cached_tokens = event.num_cached_tokens;
        call->has_ended |= event.finish != FINISH_NONE;
        CHECK(event.finish == FINISH_NONE || event.finish == FINISH_LENGTH);
    }
}

struct call *replica_take_ended(struct replica *replica) {
    struct call *ended = NULL, **last = &ended;
    for (size_t i = 0; i < replica->num_ready; i++) {
        struct call *call = replica->ready[i];
        if (call->request == NULL) /* has ended before in this list */
            continue;
        read_events(replica, call);
        if (!call->has_ended)
            continue;
        CHECK(call->num_tokens == call->turn.num_output_tokens);
        unlink_call(replica, call);
        request_unref(call->request);
        call->request = NULL;
        *last = call;
        last = &call->next;
    }
    replica->num_ready = 0;
    return ended;
}

/* --- What a router that follows the cache sees --- */

int32_t replica_cached_tokens(const struct replica *replica, const int32_t *prompt,
                              const struct block_key *keys, int32_t num_blocks) {
    const struct prefix_cache *cache = &replica->core.scheduler.blocks.cache;
    int32_t block_size = cache->block_size, cached = 0;
    if (cache->num_known == 0) /* a cache that is off has no buckets */
        return 0;
    while (cached < num_blocks) {
        int32_t tried = cached + (num_blocks - cached + 1) / 2; /* blocks */
        const struct block_content content = {
            .key = keys[tried],
            .previous = keys[tried - 1],
            .is_first = tried == 1,
            .tokens = prompt + (size_t)(tried - 1) * (size_t)block_size,
        };
        if (prefix_cache_find(cache, &content) >= 0)
            cached = tried;
        else
            num_blocks = tried - 1;
    }
    return cached * block_size;
}
