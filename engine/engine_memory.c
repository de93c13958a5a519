/* The largest terms are exact, small ones are covered by a round number that is larger than any of
 * the structures it stands for. */
#include "engine/engine_memory.h"

#include "engine/batch/logprob_lists.h"
#include "engine/sequence/token_counts.h"
#include "engine/token_stream.h"
#include "kernels/sampling.h"

#define BLOCK_RECORD_BYTES 256 /* of the pool and of the prefix cache, but for the tokens */
#define SEQUENCE_RECORD_BYTES 4096
#define REQUEST_RECORD_BYTES 8192
#define CHOICE_RECORD_BYTES 1024 /* of one that has not begun, here and in the front end */

static size_t tables_entries(const struct serving_limits *limits) {
    return ((size_t)limits->max_model_len + (size_t)limits->block_size - 1) /
           (size_t)limits->block_size;
}

/* Distinct tokens of a sequence that are counted. */
static size_t max_counts(const struct serving_limits *limits) {
    return (size_t)(limits->max_model_len < limits->vocab_size ? limits->max_model_len
                                                               : limits->vocab_size);
}

/* Listed tokens with their logprobs, and the events that tell them, which a step may add to streams
 * beyond what these hold. */
static size_t listed_bytes(const struct serving_limits *limits) {
    size_t of_row = logprob_lists_max_of_row(limits);
    return logprob_lists_max_of_step(limits) * (sizeof(float) + 2 * sizeof(struct top_logprob)) +
           ((size_t)limits->max_num_seqs + 1) * of_row * sizeof(int32_t) +
           of_row * sizeof(struct top_logprob);
}

/* The batch, its result, and the event that is being written. */
static size_t step_bytes(const struct serving_limits *limits) {
    size_t tokens = (size_t)limits->max_num_batched_tokens, seqs = (size_t)limits->max_num_seqs;
    size_t rows = tokens + seqs;
    size_t of_token = 3 * sizeof(int32_t) + sizeof(struct token_record) +
                      SAMPLE_MAX_LOGPROBS * sizeof(struct top_logprob);
    size_t of_row = sizeof(int32_t) + sizeof(struct sample_row) + sizeof(struct sample_output);
    size_t of_seq = tables_entries(limits) * sizeof(int32_t) +
                    max_counts(limits) * sizeof(struct token_count) +
                    (size_t)SAMPLE_MASK_WORDS(limits->vocab_size) * sizeof(uint32_t) +
                    2 * ((size_t)limits->hidden_size + 1) * sizeof(float);
    return tokens * of_token + rows * of_row + (seqs + 1) * of_seq + listed_bytes(limits);
}

static size_t blocks_bytes(const struct serving_limits *limits) {
    size_t of_block = BLOCK_RECORD_BYTES + (size_t)limits->block_size * sizeof(int32_t);
    return (size_t)limits->num_blocks * of_block +
           (size_t)limits->num_host_blocks * BLOCK_RECORD_BYTES;
}

/* Arrays of a sequence double as they grow; counted tokens have a hash table beside them. */
static size_t sequence_bytes(const struct serving_limits *limits) {
    size_t output = (size_t)limits->max_model_len * sizeof(int32_t);
    size_t counts = max_counts(limits) * (sizeof(struct token_count) + 2 * sizeof(int32_t));
    return SEQUENCE_RECORD_BYTES + 2 * (output + counts) +
           tables_entries(limits) * sizeof(int32_t) +
           ((size_t)limits->hidden_size + 1) * sizeof(float);
}

size_t engine_memory_bytes(const struct engine_config *config) {
    const struct serving_limits *limits = config->limits;
    size_t seqs = (size_t)limits->max_num_seqs, queued = (size_t)config->max_queued_requests;
    size_t of_request = REQUEST_RECORD_BYTES + TOKEN_STREAM_STALL_BYTES;
    size_t prompts = (size_t)config->max_queued_tokens + seqs * (size_t)limits->max_model_len;
    return step_bytes(limits) + blocks_bytes(limits) + seqs * sequence_bytes(limits) +
           (seqs + queued) * of_request + (size_t)config->max_choices * CHOICE_RECORD_BYTES +
           prompts * sizeof(int32_t);
}
