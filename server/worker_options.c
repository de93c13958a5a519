#include "server/worker_options.h"

#include <string.h>

/* DTYPE_COUNT for "auto" and "none". */
static enum dtype parse_dtype(const char *name) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"f32", DTYPE_F32},     {"f16", DTYPE_F16},       {"bf16", DTYPE_BF16},
                 {"float16", DTYPE_F16}, {"bfloat16", DTYPE_BF16}, {"int8", DTYPE_Q8_0}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].dtype;
    return DTYPE_COUNT;
}

static int choose_max_model_len(int64_t wanted, int32_t trained, int32_t *out, struct error *err) {
    if (wanted > trained)
        return error_set(err, ERROR_CONFIG,
                         "max-model-len: %lld; the model was trained for at most %d tokens",
                         (long long)wanted, trained);
    int32_t chosen = wanted > 0 ? (int32_t)wanted : trained;
    if (chosen < 2)
        return error_set(err, ERROR_CONFIG,
                         "max-model-len: %d; must be at least 2, a token of prompt and one of "
                         "output",
                         chosen);
    *out = chosen;
    return 0;
}

static size_t swap_bytes_of(double gib) {
    return gib == OPTIONS_AUTO ? WORKER_SWAP_AUTO : (size_t)(gib * (double)((size_t)1 << 30));
}

int worker_options_read(const struct options *options, const struct model *model,
                        struct worker_config *out, struct error *err) {
    int32_t max_model_len = 0;
    if (choose_max_model_len(options->max_model_len, model->config.max_position, &max_model_len,
                             err) != 0)
        return -1;
    *out = (struct worker_config){
        .device = options->device,
        .dtype = parse_dtype(options->dtype),
        .quantization = parse_dtype(options->quantization),
        .batch_invariant = options->batch_invariant,
        .gpu_memory_utilization = options->gpu_memory_utilization,
        .num_threads = (int32_t)options->threads,
        .max_model_len = max_model_len,
        .max_num_seqs = (int32_t)options->max_num_seqs,
        .max_num_batched_tokens = (int32_t)options->max_num_batched_tokens,
        .block_size = (int32_t)options->block_size,
        .kv_dtype = parse_dtype(options->kv_cache_dtype),
        .swap_bytes = swap_bytes_of(options->swap_space),
        .kv_memory_bytes = (size_t)options->kv_cache_memory_bytes,
    };
    return 0;
}
