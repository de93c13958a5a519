/* Siblings share the full blocks of the prompt, except the one in which its last token is
 * recomputed (by a choice that starts late); beyond them each has its own blocks. With a window
 * there may be nothing to share: a choice that starts late finds that the others have released what
 * it needs, and computes the prompt for itself. Where blocks are short, it does so a token at a
 * time. */
#include "engine/schedule/kv_demand.h"

#include "engine/kv/block_table.h"
#include "engine/sequence/sequence.h"

int32_t kv_demand_shared_blocks(const struct request *request,
                                const struct serving_limits *limits) {
    return limits->window > 0 ? 0 : (request->num_prompt_tokens - 1) / limits->block_size;
}

static int64_t num_own_blocks(const struct request *request, const struct serving_limits *limits) {
    int32_t kv_limit = sequence_kv_limit(request, limits->max_model_len);
    return serving_limits_blocks_for(limits, kv_limit, 1) -
           kv_demand_shared_blocks(request, limits);
}

struct kv_demand kv_demand_of(const struct request *request, const struct serving_limits *limits) {
    int32_t num_seqs = request->params.beam_width > 0 ? request->params.beam_width : 1;
    bool generates = request->params.max_tokens > 0 && request->num_prompt_tokens < INT32_MAX;
    struct kv_demand demand = {
        .num_tokens = request->num_prompt_tokens + generates,
        .num_seqs = num_seqs,
    };
    if (demand.num_tokens <= limits->max_model_len)
        demand.num_blocks =
            kv_demand_shared_blocks(request, limits) + num_seqs * num_own_blocks(request, limits);
    return demand;
}

bool kv_demand_fits(const struct kv_demand *demand, const struct serving_limits *limits) {
    return demand->num_tokens <= limits->max_model_len &&
           demand->num_seqs <= limits->max_num_seqs && demand->num_blocks <= limits->num_blocks;
}

int32_t kv_demand_max_running(const struct request *request, const struct serving_limits *limits) {
    const struct sampling_params *params = &request->params;
    int32_t all = params->beam_width > 0 ? params->beam_width : params->num_choices;
    int32_t left = limits->num_blocks - kv_demand_shared_blocks(request, limits);
    int64_t most = left / num_own_blocks(request, limits);
    return (int32_t)min_int64(min_int64(most, limits->max_num_seqs), all);
}
