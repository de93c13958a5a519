/* Flattens a step plan into the arrays of a batch. All memory is allocated once, for the largest
 * step there can be; pages of it that no step needs are never touched. Engine thread only. */
#ifndef QUIRE_ENGINE_BATCH_BUILDER_H
#define QUIRE_ENGINE_BATCH_BUILDER_H

#include "engine/kv/block_manager.h"
#include "engine/batch/logprob_lists.h"
#include "engine/schedule/step_plan.h"
#include "models/batch.h"
#include "models/tokenizer/tokenizer.h"

struct grammar_vocabulary;

struct batch_builder {
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct grammar_vocabulary *vocabulary;
    struct batch batch; /* its arrays are those below */
    int32_t *token_ids, *positions, *slot_mapping;
    int32_t *query_start, *context_lens, *block_tables;
    int32_t *logit_rows;
    struct sample_row *sample_rows;
    struct token_count *token_counts;
    struct token_bias *token_biases;
    struct logprob_lists lists;
    uint32_t *token_masks; /* [max_num_seqs + 1][SAMPLE_MASK_WORDS(vocab_size)]; the last one is
                              scratch */
    struct row_span *hidden_spans;
    float *hidden_sums;
    /* [max_num_seqs + 1]: entry i of the plan has the sample rows from row_start[i] to
     * row_start[i + 1], and likewise one hidden sum or none. */
    int32_t *row_start, *hidden_sum_start;
};

/* The limits, the tokenizer and the vocabulary outlive the builder; without a vocabulary no request
 * has a grammar. Returns -1 when memory is short. */
int batch_builder_init(struct batch_builder *builder, const struct serving_limits *limits,
                       const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary);
/* Returns the bytes that batch_builder_init allocates. */
size_t batch_builder_bytes(const struct serving_limits *limits, const struct tokenizer *tokenizer);
void batch_builder_finish(struct batch_builder *builder); /* accepts a zeroed one */

/* Returns how many sample rows a step has at most: each computed token may be scored, and each
 * sequence may sample. */
int32_t batch_builder_max_rows(const struct serving_limits *limits);

/* Builds the batch, which is valid until the next call; its block moves are the manager's lists.
 * The sample rows of an entry: one for each prompt token that is scored, then one at the last token
 * of a sequence that samples its next one, then, in order, one for each sibling that forks from it
 * there (sequence_group_next_fork). A sequence with POOLING_MEAN has a hidden sum in every step,
 * one with POOLING_LAST in that of its last token. */
const struct batch *batch_builder_build(struct batch_builder *builder, const struct step_plan *plan,
                                        const struct block_manager *blocks);

#endif
