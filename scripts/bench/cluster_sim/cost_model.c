#include "scripts/bench/cluster_sim/cost_model.h"

#include "scripts/bench/cluster_sim/synthetic_tokenizer.h"

#include <string.h>

/* Paper models, not measured. The pool is what 0.9 of 79.6 GiB leaves beside the weights and 2.5 GB
 * of workspace and libraries, on each of the ranks' GPUs. */
#define H100(device, step_ns, token_ns, context_ns, pair_ns, blocks)                               \
    {                                                                                              \
        .name = (device),                                                                          \
        .cost = {.step = (step_ns),                                                                \
                 .token = (token_ns),                                                              \
                 .context_token = (context_ns),                                                    \
                 .pair = (pair_ns)},                                                               \
        .limits = {                                                                                \
            .max_num_seqs = 1024,                                                                  \
            .max_num_batched_tokens = 8192,                                                        \
            .max_logit_rows = 256,                                                                 \
            .max_model_len = 8192,                                                                 \
            .block_size = 16,                                                                      \
            .num_blocks = (blocks),                                                                \
            .vocab_size = SYNTHETIC_VOCAB_SIZE                                                     \
        }                                                                                          \
    }

static const struct simulated_device devices[] = {
    /* `fit_cost_model.py --h100` */
    H100("h100-8b", 6612294, 19736, 36.8, 3.46, 27000),
    /* `gpu_model.py --devices` */
    H100("h100-8b-tp2", 4450989, 11323.28, 18.41, 1.73, 63317),
    H100("h100-8b-tp4", 3696494, 7116.51, 9.20, 0.87, 134292),
    H100("h100-8b-tp8", 2994247, 5013.12, 4.60, 0.43, 276242),
    H100("h100-70b-tp2", 30119963, 98654.54, 46.02, 8.65, 1477),
    H100("h100-70b-tp4", 18714981, 56534.44, 23.01, 4.33, 29867),
    H100("h100-70b-tp8", 12207491, 35474.39, 11.51, 2.16, 86647),
    H100("h100-70b-q4", 18285243, 182894.74, 92.04, 17.30, 6031),
    H100("h100-70b-q4-tp2", 11992622, 98654.54, 46.02, 8.65, 20226),
    H100("h100-70b-q4-tp4", 9651311, 56534.44, 23.01, 4.33, 48616),
    H100("h100-70b-q4-tp8", 7675655, 35474.39, 11.51, 2.16, 105396),
    H100("h100-120b", 25074801, 13421.05, 10.36, 3.89, 15806),
    H100("h100-120b-tp2", 13825401, 7859.38, 5.18, 1.95, 141984),
    H100("h100-120b-tp4", 8565700, 5078.54, 2.59, 0.97, 394340),
    H100("h100-120b-tp8", 5570850, 3688.12, 1.29, 0.49, 899052),
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

#define NUM_DEVICES ((int)(sizeof(devices) / sizeof(devices[0])))

const struct simulated_device *simulated_device_find(const char *name) {
    for (int i = 0; i < NUM_DEVICES; i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

const char *simulated_device_names(void) {
    return "h100-8b, h100-70b-q4, h100-120b and these with -tp2, -tp4 or -tp8, h100-70b-tp2, -tp4 "
           "and -tp8, cpu-135m";
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
