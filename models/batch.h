/* Describes what one step computes, as flat arrays. The engine's batch builder fills them in, a
 * rank reads them. They all lie in one ARENA: one piece of memory that begins with the counts and
 * holds no pointers, so that it can be copied to another process unchanged and bound there. */
#ifndef QUIRE_MODELS_BATCH_H
#define QUIRE_MODELS_BATCH_H

#include "kernels/backend.h"
#include "models/lora/lora_adapter.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- What a rank reads --- */

/* Pairs of KV block ids, from[i] -> to[i]. Within a list no block is both a source and a
 * destination, and none is a destination twice. */
struct block_pairs {
    int32_t count;
    const int32_t *from; /* [count] */
    const int32_t *to;   /* [count] */
};

/* Rows of an adapter that is being loaded, for a slot that no step before this one uses (see
 * lora_slots_write). */
struct adapter_write {
    int32_t slot;
    struct lora_rows rows;
    size_t first_byte; /* of their data */
};

/* What the draft model does for a sequence of the batch, before the batch is computed: it computes
 * num_inputs tokens of the sequence, of which it has computed all that come before, and proposes
 * num_drafts tokens that may follow them. */
struct draft_request {
    int32_t seq;        /* of inputs; whose last num_drafts tokens are the drafts */
    int32_t begin;      /* position of the first input */
    int32_t num_inputs; /* at least 1 */
    int32_t num_drafts; /* 0: only the inputs are computed */
    int32_t first_row;  /* draft i is sampled like sample row first_row + i, in whose place it is
                           verified: same seed, position and settings */
};

struct batch {
    struct step_inputs
        inputs; /* with no tokens at all, only blocks are moved and adapters written */
    /* Drafts of the draft model stand in inputs.token_ids as zeros: a rank fills them in. Such a
     * batch has no late inputs. */
    int32_t num_draft_requests;
    const struct draft_request *draft_requests; /* [num_draft_requests] at most one of a sequence */
    const int32_t *draft_inputs;                /* those of all requests, in order */
    /* Written before anything is computed. */
    int32_t num_adapter_writes;
    const struct adapter_write *adapter_writes; /* [num_adapter_writes] */
    const uint8_t *adapter_data;
    /* Blocks to move before anything is computed, in this order. */
    struct block_pairs swap_out; /* KV block pool -> host block pool */
    struct block_pairs swap_in;  /* host block pool -> KV block pool */
    struct block_pairs copies;   /* within the KV block pool: copy on write */
    /* Whether the fields below, down to token_masks, except num_sample_rows and logit_rows, are
     * complete only after the executor was supplied (executor.h). Until then only the fields above
     * may be read. */
    bool has_late_inputs;
    /* Rows of the head: row r takes the hidden state of token logit_rows[r], and sample_rows[r]
     * says what to do with it (sample the next token, or score a given one). */
    int32_t num_sample_rows;
    const int32_t *logit_rows; /* [num_sample_rows], each < inputs.num_tokens, not decreasing: a
                                  token may have several rows */
    const struct sample_row *sample_rows; /* [num_sample_rows] */
    int32_t num_counts;
    const struct token_count *token_counts; /* [num_counts], see sample_row.first_count */
    int32_t num_biases;
    const struct token_bias *token_biases; /* [num_biases], see sample_row.first_bias */
    int32_t num_listed;
    const int32_t *listed_tokens; /* [num_listed], see sample_row.num_listed; rows may share them */
    int32_t num_masks;
    const uint32_t *token_masks; /* [num_masks][SAMPLE_MASK_WORDS(vocab_size)], see sample_row.mask;
                                    rows name them in order, without gaps */
    /* Sums of hidden states after the output norm, for embeddings. Sum p starts from row p of
     * hidden_sums (the result of an earlier step, or zeros) and adds the tokens of its span in
     * order: splitting a prompt into steps does not change a bit. */
    int32_t num_hidden_sums;
    const struct row_span
        *hidden_spans;        /* [num_hidden_sums], within inputs.num_tokens, ascending */
    const float *hidden_sums; /* [num_hidden_sums, hidden_size] */
};

/* Holds what a step returns. The caller owns the arrays, with room for batch->num_sample_rows rows
 * and batch->num_hidden_sums sums. */
struct step_result {
    int32_t num_sample_rows;
    struct sample_output *rows;
    float *listed_logprobs; /* see sample_row.first_listed_logprob; NULL while no row lists any */
    float *hidden_sums;     /* [num_hidden_sums, hidden_size]; NULL while no batch has any */
    int32_t *drafts; /* of all draft requests, in order; NULL while no batch has any. Tokens of the
                        vocabulary */
};

/* --- The arena --- */

/* The sizes of the largest batch that fits an arena, and of its result. */
struct batch_capacity {
    int32_t num_tokens;
    int32_t num_seqs;         /* also of hidden sums */
    int32_t num_groups;       /* of layers, see step_inputs; 0: one */
    int32_t num_table_blocks; /* of one sequence */
    int32_t num_sample_rows;
    size_t num_counts;
    size_t num_biases;
    size_t num_listed;
    size_t num_listed_logprobs;
    int32_t num_masks;
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t num_blocks; /* of the two pools: moves into each */
    int32_t num_host_blocks;
    int32_t num_adapter_writes;
    size_t adapter_bytes;     /* of their data together */
    int32_t num_draft_tokens; /* inputs of the draft model; also of its drafts. 0: there is none */
};

/* The head of an arena. */
struct batch_counts {
    int32_t num_tokens;
    int32_t num_seqs;
    int32_t num_groups;
    int32_t max_blocks_per_seq;
    int32_t has_token_rows; /* some token was sampled by the previous step */
    int32_t has_adapters;   /* some sequence uses one: adapter_slots is filled in */
    int32_t num_adapter_writes;
    size_t adapter_bytes;
    int32_t num_draft_requests;
    int32_t num_draft_inputs;
    int32_t num_swap_out;
    int32_t num_swap_in;
    int32_t num_copies;
    int32_t has_late_inputs;
    int32_t num_sample_rows;
    int32_t num_counts;
    int32_t num_biases;
    int32_t num_listed;
    int32_t num_masks;
    int32_t num_hidden_sums;
};

/* The arena's arrays, for filling them in; see struct step_inputs and struct batch. */
struct batch_arena {
    void *memory; /* everything below points into it */
    struct batch_counts *counts;
    int32_t *token_ids, *token_rows, *positions, *slot_mapping;
    int32_t *query_start, *context_lens, *block_tables;
    int32_t *adapter_slots;
    struct adapter_write *adapter_writes;
    uint8_t *adapter_data;
    struct draft_request *draft_requests;
    int32_t *draft_inputs;
    int32_t *swap_out_from, *swap_out_to;
    int32_t *swap_in_from, *swap_in_to;
    int32_t *copy_from, *copy_to;
    int32_t *logit_rows;
    struct sample_row *sample_rows;
    struct token_count *token_counts;
    struct token_bias *token_biases;
    int32_t *listed_tokens;
    uint32_t *token_masks;
    struct row_span *hidden_spans;
    float *hidden_sums;
};

/* Allocates an arena; all counts are 0. Pages that no step needs are never touched. Returns -1 when
 * memory is short. */
int batch_arena_init(struct batch_arena *arena, const struct batch_capacity *capacity);
void batch_arena_finish(struct batch_arena *arena); /* accepts a zeroed one */
/* Returns the capacity that holds just what ranks that do not sample read of the arena's batch: no
 * sampling inputs and no hidden sums. */
struct batch_capacity batch_arena_shape(const struct batch_arena *arena);
/* Returns the capacity that holds just what the sampling rank reads and returns, for an arena of
 * this capacity whose batch is complete. */
struct batch_capacity batch_arena_extent(const struct batch_arena *arena,
                                         const struct batch_capacity *capacity);
/* Copies of each array as much as fits into `to`, which has this capacity and is not larger than
 * `from`. */
void batch_arena_copy(const struct batch_arena *from, const struct batch_capacity *capacity,
                      struct batch_arena *to);
/* Returns the size of the memory; SIZE_MAX on overflow. */
size_t batch_arena_bytes(const struct batch_capacity *capacity);
/* Binds an arena to memory of that size, aligned to 64 bytes, which the caller owns: a copy of
 * another arena of the same capacity, for example. Must not be finished. */
void batch_arena_bind(struct batch_arena *arena, const struct batch_capacity *capacity,
                      void *memory);
/* The same for a step's memory: an arena, followed by the arrays of the result at a multiple of
 * STEP_PART_ALIGNMENT, so that no page holds parts of both. */
#define STEP_PART_ALIGNMENT 65536 /* the largest page of the systems that this runs on */
size_t step_result_offset(const struct batch_capacity *capacity);
size_t step_memory_bytes(const struct batch_capacity *capacity);
void step_memory_bind(const struct batch_capacity *capacity, void *memory,
                      struct batch_arena *arena, struct step_result *result);
/* Copies the rows, logprobs and sums that a result of this capacity has. */
void step_result_copy(const struct step_result *from, const struct batch_capacity *capacity,
                      struct step_result *to);
/* Returns the batch that the current counts describe; its arrays belong to the arena. */
struct batch batch_arena_view(const struct batch_arena *arena);

#endif
