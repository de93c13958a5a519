#include "scripts/bench/cluster_sim/cost_model.h"

#include "scripts/bench/cluster_sim/synthetic_tokenizer.h"

#include <string.h>

#define NUM_DEVICES 2

static const struct simulated_device devices[NUM_DEVICES] = {
    /* Paper model, not measured: `fit_cost_model.py --h100`. The pool is what 0.9 of 79.6 GiB
     * leaves beside 16.1 GB of bf16 weights and 2.5 GB of workspace and libraries, at 128 KiB of
     * keys and values a token. */
    {.name = "h100-8b",
     .cost = {.step = 6612294, .token = 19736, .context_token = 36.8, .pair = 3.46},
     .limits = {.max_num_seqs = 1024,
                .max_num_batched_tokens = 8192,
                .max_logit_rows = 256,
                .max_model_len = 8192,
                .block_size = 16,
                .num_blocks = 27000,
                .vocab_size = SYNTHETIC_VOCAB_SIZE}},
    /* Fitted to bench_model: SmolLM2-135M-Instruct.Q4_1 on 2 cores. The pool is 1 GiB
     * (docs/scale.md) at 45 KiB of F32 keys and values a token. */
    {.name = "cpu-135m",
     .cost = {.step = 3286149, .token = 817288, .context_token = 1200, .pair = 1089},
     .limits = {.max_num_seqs = 64,
                .max_num_batched_tokens = 512,
                .max_logit_rows = 64,
                .max_model_len = 4096,
                .block_size = 16,
                .num_blocks = 1456,
                .vocab_size = SYNTHETIC_VOCAB_SIZE}},
};

const struct simulated_device *simulated_device_find(const char *name) {
    for (int i = 0; i < NUM_DEVICES; i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

const char *simulated_device_names(void) {
    return "h100-8b, cpu-135m";
}

/* A sequence's n queries come last in its context: the first of them sees all but n - 1 of it. */
struct step_size step_size_of(const struct batch *batch) {
    const struct step_inputs *in = &batch->inputs;
    struct step_size size = {.tokens = in->num_tokens, .samples = batch->num_sample_rows};
    for (int32_t i = 0; i < in->num_seqs; i++) {
        int64_t n = in->query_start[i + 1] - in->query_start[i];
        int64_t context = in->context_lens[i];
        size.context_tokens += context;
        size.pairs += n * (context - n) + n * (n + 1) / 2;
    }
    return size;
}

int64_t cost_model_ns(const struct cost_model *model, const struct step_size *step) {
    double ns = model->step + model->token * (double)step->tokens +
                model->context_token * (double)step->context_tokens +
                model->pair * (double)step->pairs + model->sample * (double)step->samples;
    return ns < 1.0 ? 1 : (int64_t)ns;
}
