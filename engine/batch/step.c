#include "engine/batch/step.h"

#include "engine/batch/sampling_inputs.h"

#include <stdlib.h>
#include <string.h>

struct batch_capacity step_batch_capacity(const struct serving_limits *limits,
                                          const struct tokenizer *tokenizer) {
    size_t samples = (size_t)serving_limits_max_sampled(limits);
    return (struct batch_capacity){
        .num_tokens = limits->max_num_batched_tokens,
        .num_seqs = limits->max_num_seqs,
        .num_groups = serving_limits_groups(limits),
        .num_table_blocks = serving_limits_max_blocks(limits),
        .num_sample_rows = serving_limits_max_sample_rows(limits),
        .num_counts = serving_limits_max_counts(limits),
        .num_biases = samples * (size_t)sampling_inputs_max_biases(tokenizer),
        .num_listed = logprob_lists_max_tokens(limits),
        .num_listed_logprobs = logprob_lists_max_of_step(limits),
        .num_masks = serving_limits_max_sampled(limits),
        .vocab_size = limits->vocab_size,
        .hidden_size = limits->hidden_size,
        .num_blocks = limits->num_blocks,
        .num_host_blocks = limits->num_host_blocks,
    };
}

static size_t entries_bytes(const struct serving_limits *limits) {
    return (size_t)limits->max_num_seqs * sizeof(struct planned_sequence);
}

static size_t rows_bytes(const struct serving_limits *limits) {
    return (size_t)serving_limits_max_sample_rows(limits) * sizeof(struct step_row);
}

size_t step_bytes(const struct serving_limits *limits, const struct batch_capacity *capacity) {
    return step_memory_bytes(capacity) + entries_bytes(limits) + rows_bytes(limits);
}

static void *alloc_memory(const struct batch_capacity *capacity) {
    size_t bytes = step_memory_bytes(capacity);
    return bytes < SIZE_MAX ? aligned_alloc(64, bytes) : NULL;
}

int step_init(struct step *step, const struct serving_limits *limits,
              const struct batch_capacity *capacity, void *memory) {
    *step = (struct step){
        .plan = {.entries = malloc(entries_bytes(limits))},
        .rows = malloc(rows_bytes(limits)),
        .owned = memory == NULL ? alloc_memory(capacity) : NULL,
    };
    memory = memory == NULL ? step->owned : memory;
    if (step->plan.entries == NULL || step->rows == NULL || memory == NULL) {
        step_finish(step);
        return -1;
    }
    step_memory_bind(capacity, memory, &step->arena, &step->result);
    *step->arena.counts = (struct batch_counts){0};
    logprob_lists_init(&step->lists, limits, step->arena.listed_tokens);
    return 0;
}

void step_finish(struct step *step) {
    free(step->plan.entries);
    free(step->rows);
    free(step->owned);
    memset(step, 0, sizeof(*step));
}

/* Returns how many drafts may be accepted. Choices fork from their leader all or not at all. */
static int32_t most_accepted(const struct step *step, const struct planned_sequence *entry) {
    const struct step_row *rows = step->rows + entry->first_row + entry->num_scores;
    for (int32_t i = 0; i < entry->num_samples + entry->num_forks; i++)
        if (rows[i].lacks_mask)
            return entry->num_forks > 0 ? -1 : i - 1;
    return entry->num_drafts;
}

const int32_t *step_drafts(const struct step *step, const struct planned_sequence *entry) {
    int32_t end = step->arena.query_start[entry - step->plan.entries + 1];
    return entry->first_draft >= 0 ? step->result.drafts + entry->first_draft
                                   : step->arena.token_ids + end - entry->num_drafts;
}

int32_t step_num_accepted(const struct step *step, const struct planned_sequence *entry) {
    const struct sample_output *sampled = step->result.rows + entry->first_row + entry->num_scores;
    const int32_t *drafts = step_drafts(step, entry);
    int32_t count = 0, most = most_accepted(step, entry);
    while (count < most && sampled[count].token == drafts[count])
        count++;
    return most < 0 ? -1 : count;
}
