#include "server/api/fields/request_fit.h"

static int refuse_tokens(const struct kv_demand *demand, const struct serving_limits *limits,
                         struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "context_length_exceeded", "prompt",
                         "the prompt and what is asked for have at least %d tokens; the maximum "
                         "context length is %d tokens (--max-model-len)",
                         (int)demand->num_tokens, (int)limits->max_model_len);
}

/* The field a search has its width from. */
static const char *width_field(const struct request *request) {
    return request->params.beam_width > request->params.num_choices ? "best_of" : "n";
}

static int refuse_seqs(const struct request *request, const struct kv_demand *demand,
                       const struct serving_limits *limits, struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "out_of_range", width_field(request),
                         "a beam search of width %d runs as many sequences at once; this server "
                         "runs at most %d (--max-num-seqs)",
                         (int)demand->num_seqs, (int)limits->max_num_seqs);
}

static int refuse_blocks(const struct request *request, const struct kv_demand *demand,
                         const struct serving_limits *limits, struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "out_of_range", width_field(request),
                         "%d sequences of up to %d tokens behind a prompt of %d may need %lld KV "
                         "blocks of %d tokens; the pool has %d (--kv-cache-memory-bytes). Fewer "
                         "beams or a smaller max_tokens need less",
                         (int)demand->num_seqs, (int)request->params.max_tokens,
                         (int)request->num_prompt_tokens, (long long)demand->num_blocks,
                         (int)limits->block_size, (int)limits->num_blocks);
}

int request_fit_refuse(const struct request *request, const struct serving_limits *limits,
                       struct api_error *err) {
    struct kv_demand demand = kv_demand_of(request, limits);
    if (demand.num_tokens > limits->max_model_len)
        return refuse_tokens(&demand, limits, err);
    if (demand.num_seqs > limits->max_num_seqs)
        return refuse_seqs(request, &demand, limits, err);
    return refuse_blocks(request, &demand, limits, err);
}
