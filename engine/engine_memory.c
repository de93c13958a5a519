#include "engine/engine_memory.h"

#include "engine/core/engine_core.h"

#define CHOICE_RECORD_BYTES 1024 /* of one that has not begun, here and in the front end */

/* Events that a step may add to streams beyond what these hold: their buffers double. */
static size_t listed_event_bytes(const struct serving_limits *limits) {
    return 2 * logprob_lists_max_of_step(limits) * sizeof(struct top_logprob);
}

size_t engine_memory_bytes(const struct engine_config *config, const struct tokenizer *tokenizer) {
    const struct serving_limits *limits = config->limits;
    const struct engine_core_config core = {
        .limits = limits,
        .num_tenants = config->num_tenants > 0 ? config->num_tenants : 1,
        .prefix_caching = config->prefix_caching,
    };
    size_t seqs = (size_t)limits->max_num_seqs, queued = (size_t)config->max_queued_requests;
    size_t prompt_tokens = (size_t)config->max_queued_tokens + seqs * (size_t)limits->max_model_len;
    return sizeof(struct engine_core) + engine_core_bytes(&core, tokenizer) +
           listed_event_bytes(limits) + seqs * sequence_max_bytes(limits) +
           (seqs + queued) * request_max_bytes() +
           (size_t)config->max_choices * CHOICE_RECORD_BYTES + prompt_tokens * sizeof(int32_t);
}
