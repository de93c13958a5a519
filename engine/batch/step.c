#include "engine/batch/step.h"

#include "config/base/checked.h"
#include "engine/batch/sampling_inputs.h"

#include <stdlib.h>
#include <string.h>

struct batch_capacity step_batch_capacity(const struct serving_limits *limits,
                                          const struct tokenizer *tokenizer) {
    size_t samples = (size_t)serving_limits_max_sampled(limits);
    return (struct batch_capacity){
        .num_tokens = limits->max_num_batched_tokens,
        .num_seqs = limits->max_num_seqs,
        .num_table_blocks = serving_limits_max_blocks(limits),
        .num_sample_rows = serving_limits_max_sample_rows(limits),
        .num_counts = serving_limits_max_counts(limits),
        .num_biases = samples * (size_t)sampling_inputs_max_biases(tokenizer),
        .num_listed = logprob_lists_max_tokens(limits),
        .num_masks = serving_limits_max_sampled(limits),
        .vocab_size = limits->vocab_size,
        .hidden_size = limits->hidden_size,
        .num_blocks = limits->num_blocks,
        .num_host_blocks = limits->num_host_blocks,
    };
}

struct sizes {
    size_t entries, rows, outputs, listed_logprobs, hidden_sums;
};

static struct sizes sizes_of(const struct serving_limits *limits) {
    size_t seqs = (size_t)limits->max_num_seqs,
           rows = (size_t)serving_limits_max_sample_rows(limits);
    return (struct sizes){
        .entries = seqs * sizeof(struct planned_sequence),
        .rows = rows * sizeof(struct step_row),
        .outputs = rows * sizeof(struct sample_output),
        .listed_logprobs = logprob_lists_max_of_step(limits) * sizeof(float),
        .hidden_sums = seqs * ((size_t)limits->hidden_size + 1) * sizeof(float),
    };
}

size_t step_bytes(const struct serving_limits *limits, const struct tokenizer *tokenizer) {
    const struct batch_capacity capacity = step_batch_capacity(limits, tokenizer);
    const struct sizes sizes = sizes_of(limits);
    return batch_arena_bytes(&capacity) + sizes.entries + sizes.rows + sizes.outputs +
           sizes.listed_logprobs + sizes.hidden_sums;
}

int step_init(struct step *step, const struct serving_limits *limits,
              const struct tokenizer *tokenizer) {
    const struct batch_capacity capacity = step_batch_capacity(limits, tokenizer);
    const struct sizes sizes = sizes_of(limits);
    *step = (struct step){
        .plan = {.entries = malloc(sizes.entries)},
        .rows = malloc(sizes.rows),
        .result = {.rows = malloc(sizes.outputs),
                   .listed_logprobs = malloc(sizes.listed_logprobs),
                   .hidden_sums = malloc(sizes.hidden_sums)},
    };
    if (step->plan.entries == NULL || step->rows == NULL || step->result.rows == NULL ||
        step->result.listed_logprobs == NULL || step->result.hidden_sums == NULL ||
        batch_arena_init(&step->arena, &capacity) != 0) {
        step_finish(step);
        return -1;
    }
    logprob_lists_init(&step->lists, limits, step->arena.listed_tokens);
    return 0;
}

void step_finish(struct step *step) {
    free(step->plan.entries);
    free(step->rows);
    free(step->result.rows);
    free(step->result.listed_logprobs);
    free(step->result.hidden_sums);
    batch_arena_finish(&step->arena);
    memset(step, 0, sizeof(*step));
}

int32_t step_num_accepted(const struct step *step, const struct planned_sequence *entry) {
    const struct sample_output *sampled = step->result.rows + entry->first_row + entry->num_scores;
    int32_t end = step->arena.query_start[entry - step->plan.entries + 1];
    const int32_t *drafts = step->arena.token_ids + end - entry->num_drafts;
    int32_t count = 0;
    while (count < entry->num_drafts && sampled[count].token == drafts[count])
        count++;
    return count;
}
