#include "server/api/fields/request_limits.h"

#include "config/base/check.h"

#include <string.h>

struct limit {
    const char *field, *option;
    int64_t min, max;
};

struct json_field request_limits_bind(const struct api_context *context,
                                      const struct json_field *field) {
    const int64_t min = context->limits->max_logprobs == context->limits->vocab_size ? -1 : 0,
                  max = context->limits->max_logprobs;
    const struct limit limits[] = {
        {"n", "--max-n", 1, context->max_n},
        {"best_of", "--max-n", 1, context->max_n},
        {"logprobs", "--max-logprobs", min, max},
        {"top_logprobs", "--max-logprobs", min, max},
        {"prompt_logprobs", "--max-logprobs", min, max},
    };
    struct json_field bound = *field;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (field->kind != JSON_FIELD_INT || strcmp(limits[i].field, field->name) != 0)
            continue;
        bound.min = (double)limits[i].min;
        bound.max = (double)limits[i].max;
        bound.max_option = limits[i].option;
    }
    return bound;
}

int request_limits_read(const struct api_context *context, const cJSON *json,
                        struct json_table table, void *target, struct api_error *err) {
    struct json_field fields[REQUEST_LIMITS_MAX_FIELDS];
    CHECK(table.num_fields <= REQUEST_LIMITS_MAX_FIELDS);
    for (int i = 0; i < table.num_fields; i++)
        fields[i] = request_limits_bind(context, &table.fields[i]);
    table.fields = fields;
    return json_fields_read(json, table, target, err);
}

int64_t request_limits_logprobs(const struct api_context *context, int64_t value) {
    return value < 0 ? context->limits->max_logprobs : value;
}

int request_limits_refuse(const struct request *request, const struct serving_limits *limits,
                          struct api_error *err) {
    const struct sampling_params *params = &request->params;
    const struct kv_demand demand = kv_demand_of(request, limits);
    const char *width_field = params->beam_width > params->num_choices ? "best_of" : "n";
    if (demand.num_tokens > limits->max_model_len)
        return bad_request(err, "context_length_exceeded", "prompt",
                           "the prompt and the requested tokens have at least %d tokens; the "
                           "maximum context length is %d tokens (--max-model-len)",
                           (int)demand.num_tokens, (int)limits->max_model_len);
    if (demand.num_seqs > limits->max_num_seqs)
        return bad_request(err, "out_of_range", width_field,
                           "a beam search of width %d runs that many sequences at once; this "
                           "server runs at most %d (--max-num-seqs)",
                           (int)demand.num_seqs, (int)limits->max_num_seqs);
    return bad_request(err, "out_of_range", width_field,
                       "%d sequences of up to %d tokens after a prompt of %d may need %lld KV "
                       "blocks of %d tokens; the pool has %d (--kv-cache-memory-bytes). Fewer "
                       "beams or a smaller max_tokens need less",
                       (int)demand.num_seqs, (int)params->max_tokens,
                       (int)request->num_prompt_tokens, (long long)demand.num_blocks,
                       (int)limits->block_size, (int)limits->num_blocks);
}
