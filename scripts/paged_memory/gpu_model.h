/* The GPU and the model of the simulation: OPT-13B on an A100 of 40 GB, as in table 1 of the
 * PagedAttention paper (arXiv 2309.06180). LLaMA-13B has the same 40 layers of 5,120 values, so
 * every figure is that of LLaMA-13B as well. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_GPU_MODEL_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_GPU_MODEL_H

#include <stdint.h>

/* Keys and values of 40 layers x 5,120 values x 2 bytes. */
#define GPU_TOKEN_BYTES (2 * 40 * 5120 * 2)
/* 12 GiB are left beside 26 GB of weights: 15,728 tokens. */
#define GPU_NUM_SLOTS ((int32_t)(INT64_C(12) * 1024 * 1024 * 1024 / GPU_TOKEN_BYTES))

/* Counts what one step computes. */
struct step_load {
    int32_t num_sequences;
    int64_t num_context_tokens; /* whose keys and values are read, for each sequence that reads */
    int64_t num_prompt_tokens;  /* computed in this step, of prompts (again, after a preemption) */
};

/* Returns the seconds of a step: the weights are read once, the context once, prompts are computed
 * at a realistic share of the GPU's rate, and there is a cost per step and per sequence. The last
 * is fitted: with it the paged system carries the paper's load of ShareGPT lengths with about as
 * many requests at once as in its figure 13. What is full all the time (the three reservation
 * policies on ShareGPT) does not depend on it. */
double gpu_step_seconds(const struct step_load *load);

#endif
