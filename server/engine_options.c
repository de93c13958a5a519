#include "server/engine_options.h"

#include "server/auth.h"

/* Choices that a queue full of common requests has; one with all that --max-n allows always fits.
 */
#define CHOICES_PER_REQUEST 16

static int64_t max_choices(const struct options *options, int32_t max_num_seqs) {
    int64_t common = CHOICES_PER_REQUEST * (max_num_seqs + options->max_queued_requests);
    int64_t of_call = engine_options_call_choices(options);
    return common > of_call ? common : of_call;
}

int32_t engine_options_call_choices(const struct options *options) {
    return (int32_t)(options->max_n > MAX_PROMPTS ? options->max_n : MAX_PROMPTS);
}

int32_t engine_options_max_logprobs(const struct options *options, int32_t vocab_size) {
    bool is_all = options->max_logprobs < 0 || options->max_logprobs > vocab_size;
    return is_all ? vocab_size : (int32_t)options->max_logprobs;
}

struct serving_limits engine_options_limits(const struct options *options,
                                            const struct model *model,
                                            const struct worker_config *worker,
                                            const struct worker_info *info) {
    return (struct serving_limits){
        .max_num_seqs = info->max_num_seqs,
        .max_num_batched_tokens = info->max_num_batched_tokens,
        .max_model_len = worker->max_model_len,
        .max_logprobs = engine_options_max_logprobs(options, model->config.vocab_size),
        .block_size = worker->block_size,
        .num_blocks = info->num_blocks,
        .num_host_blocks = info->num_host_blocks,
        .vocab_size = model->config.vocab_size,
        .hidden_size = model->config.hidden_size,
        .window = model_window(&model->config),
    };
}

struct engine_config engine_options_read(const struct options *options, const struct model *model,
                                         const struct worker_info *info,
                                         const struct serving_limits *limits) {
    return (struct engine_config){
        .limits = limits,
        .swap_block_ns = info->swap_block_ns,
        .num_tenants = options->api_key_file != NULL ? AUTH_MAX_TENANTS
                       : options->api_keys.count > 0 ? options->api_keys.count
                                                     : 1,
        .prefix_caching = options->enable_prefix_caching,
        .max_queued_requests = (int32_t)options->max_queued_requests,
        .max_queued_tokens = options->max_queued_tokens,
        .max_choices = max_choices(options, info->max_num_seqs),
    };
}
