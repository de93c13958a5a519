#include "scripts/paged_memory/paged.h"

#include "config/base/check.h"
#include "engine/core/engine_core.h"
#include "scripts/paged_memory/gpu_model.h"
#include "scripts/paged_memory/hash.h"
#include "scripts/paged_memory/trace_executor.h"
#include "tests/sim/fake_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SEQUENCES 1024                   /* at once */
#define MAX_STEP_TOKENS 2560                 /* a whole context beside what decodes */
#define STALL_TIMEOUT_NS INT64_C(1000000000) /* never: streams are read at once */

struct paged {
    const struct trace *trace;
    struct paged_setup setup;
    int32_t next_arrival;
    struct trace_executor executor;
    struct serving_limits limits;
    struct engine_core core;
    struct token_buffer events;
    int32_t *filled; /* [blocks of the pool] tokens in each one */
    struct memory_account account;
};

static int64_t read_clock(void *context) {
    return (int64_t)(((struct paged *)context)->executor.now_s * 1e9) + 1;
}

static void read_events(void *context, struct request *request) {
    token_stream_take(&request->stream, &((struct paged *)context)->events);
}

/* Notes how full its blocks are, and adds them to what would be given without sharing. */
static void add_table(struct paged *paged, const struct sequence *sequence,
                      struct memory_use *use) {
    const struct block_table *table = &sequence->table;
    int32_t block_size = paged->setup.block_size;
    int32_t num_tokens = sequence_num_computed_ahead(sequence);
    for (int32_t i = 0; i < table->num_blocks; i++) {
        int32_t left = num_tokens - i * block_size;
        int32_t count = left < block_size ? left : block_size;
        int32_t *filled = &paged->filled[table->blocks[i]];
        *filled = count > *filled ? count : *filled;
    }
    use->unshared_slots += (int64_t)table->num_blocks * block_size;
}

static void on_step(void *context, double seconds) {
    struct paged *paged = context;
    const struct block_pool *pool = &paged->core.scheduler.blocks.pool;
    struct memory_use use = {.given_slots = (int64_t)pool->num_used * paged->setup.block_size};
    memset(paged->filled, 0, (size_t)pool->num_blocks * sizeof(*paged->filled));
    const struct sequence_group *group = paged->core.scheduler.running.first;
    for (; group != NULL; group = group->list_next) {
        int64_t before = use.unshared_slots;
        for (int32_t i = 0; i < group->num_sequences; i++)
            add_table(paged, &group->sequences[i], &use);
        use.num_requests += use.unshared_slots > before;
    }
    for (int32_t i = 0; i < pool->num_blocks; i++)
        use.token_slots += paged->filled[i];
    use.internal_slots = use.given_slots - use.token_slots;
    memory_account_add(&paged->account, &use, seconds);
}

static struct request *create_request(const struct paged *paged, int32_t index) {
    const struct traced_request *traced = &paged->trace->requests[index];
    struct sampling_params params = {
        .num_choices = paged->setup.num_choices,
        .beam_width = paged->setup.beam_width,
        .length_penalty = 1,
        .max_tokens = traced->num_output_tokens,
        .settings.temperature = paged->setup.beam_width > 0 ? 0 : 1,
        .settings.top_p = 1,
        .settings.repetition_penalty = 1,
        .seed = (uint64_t)index,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
    };
    int32_t prompt[TRACE_MAX_LENGTH];
    for (int32_t i = 0; i < traced->num_prompt_tokens; i++) {
        uint64_t random = hash_mix(((uint64_t)index << 32) + (uint64_t)i);
        prompt[i] = FAKE_FIRST_PLAIN + (int32_t)(random % (FAKE_VOCAB_SIZE - FAKE_FIRST_PLAIN));
    }
    struct request *request = request_create(prompt, traced->num_prompt_tokens, &params);
    CHECK(request != NULL);
    request->id = (uint64_t)index + 1;
    return request;
}

static void add_arrivals(struct paged *paged) {
    while (paged->next_arrival < paged->trace->num_requests &&
           paged->trace->requests[paged->next_arrival].arrival_s <= paged->executor.now_s) {
        struct request *request = create_request(paged, paged->next_arrival++);
        engine_core_add(&paged->core, request);
        request_unref(request);
    }
}

/* False when nothing runs and nobody comes any more. */
static bool step(struct paged *paged) {
    add_arrivals(paged);
    if (engine_core_step(&paged->core))
        return true;
    CHECK(engine_core_is_idle(&paged->core));
    if (paged->next_arrival == paged->trace->num_requests)
        return false;
    paged->executor.now_s = paged->trace->requests[paged->next_arrival].arrival_s;
    return true;
}

static void begin(struct paged *paged) {
    const struct serving_limits *limits = &paged->limits;
    paged->limits = (struct serving_limits){
        .max_num_seqs = MAX_SEQUENCES,
        .max_num_batched_tokens = MAX_STEP_TOKENS,
        .max_model_len = TRACE_MAX_LENGTH,
        .block_size = paged->setup.block_size,
        .num_blocks = GPU_NUM_SLOTS / paged->setup.block_size,
        .vocab_size = FAKE_VOCAB_SIZE,
    };
    struct engine_core_config config = {
        .schedule.kv.limits = limits,
        .schedule.kv.num_tenants = 1,
        .schedule.kv.caching = paged->setup.prefix_caching,
        .stall_timeout_ns = STALL_TIMEOUT_NS,
        .clock = read_clock,
        .notify = read_events,
        .context = paged,
    };
    struct error err;
    CHECK(trace_executor_init(&paged->executor, limits->num_blocks, limits->block_size) == 0);
    paged->executor.on_step = on_step;
    paged->executor.context = paged;
    paged->filled = calloc((size_t)limits->num_blocks, sizeof(*paged->filled));
    CHECK(paged->filled != NULL);
    CHECK(engine_core_init(&paged->core, &config, &paged->executor.base, fake_tokenizer(), &err) ==
          0);
}

void paged_run(const struct paged_setup *setup, const struct trace *trace,
               struct memory_account *out) {
    struct paged *paged = calloc(1, sizeof(*paged));
    CHECK(paged != NULL);
    paged->setup = *setup;
    paged->trace = trace;
    paged->account.num_slots = GPU_NUM_SLOTS;
    begin(paged);
    while (paged->executor.now_s < trace->duration_s && step(paged))
        ;
    paged->account.num_finished = paged->core.stats.finished[FINISH_LENGTH];
    paged->account.num_preempted = paged->core.stats.preemptions;
    *out = paged->account;
    engine_core_abort(&paged->core, FINISH_ABORT);
    CHECK(paged->core.scheduler.blocks.pool.num_used == 0);
    engine_core_finish(&paged->core);
    trace_executor_finish(&paged->executor);
    token_buffer_finish(&paged->events);
    free(paged->filled);
    free(paged);
}
