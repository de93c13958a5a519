/* The arrays of a step go to the device in one copy: side by side in pinned memory, each aligned to
 * 16 bytes, and so on the device. */
#include "config/base/check.h"
#include "config/base/checked.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_staging.h"

#include <string.h>

#define ALIGNMENT 16
#define NUM_ARRAYS 7

static struct cuda_backend *state_of(struct backend *b) {
    return (struct cuda_backend *)b;
}

static size_t padded_bytes(size_t num_ints) {
    size_t bytes = num_ints * sizeof(int32_t);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int largest_bytes(const struct serving_limits *limits, size_t *out, struct error *err) {
    size_t table = 0;
    int32_t blocks = limits->block_size > 0 ? serving_limits_max_blocks(limits) : 0;
    if (limits->max_num_batched_tokens <= 0 || limits->max_num_seqs <= 0 || blocks <= 0 ||
        !checked_mul((size_t)limits->max_num_seqs, (size_t)blocks, &table) || table > INT32_MAX)
        return error_set(err, ERROR_CONFIG,
                         "cuda device: steps of %d tokens, %d sequences and %d blocks a sequence; "
                         "all must be > 0 and there may be 2^31-1 blocks in all",
                         limits->max_num_batched_tokens, limits->max_num_seqs, blocks);
    *out = 4 * padded_bytes((size_t)limits->max_num_batched_tokens) +
           2 * padded_bytes((size_t)limits->max_num_seqs + 1) + padded_bytes(table) +
           padded_bytes(CUDA_LIST_LENGTH);
    return 0;
}

int cuda_step_create(struct cuda_backend *b, struct error *err) {
    size_t bytes = 0;
    if (largest_bytes(&b->config.limits, &bytes, err) != 0)
        return -1;
    size_t num_rows = (size_t)serving_limits_max_sample_rows(&b->config.limits);
    if (cuda_buffer_alloc(&b->base, bytes, &b->step.memory, err) != 0 ||
        cuda_buffer_alloc(&b->base, num_rows * sizeof(int32_t), &b->step.sampled_tokens, err) != 0)
        return -1;
    b->step.list = b->step.memory.data;
    return 0;
}

void cuda_step_destroy(struct cuda_backend *b) {
    cuda_buffer_free(&b->base, &b->step.sampled_tokens);
    cuda_buffer_free(&b->base, &b->step.memory);
}

void cuda_step_begin(struct backend *base, const struct step_inputs *inputs) {
    struct cuda_backend *b = state_of(base);
    struct cuda_step *step = &b->step;
    CHECK(inputs->num_tokens <= b->config.limits.max_num_batched_tokens);
    CHECK(inputs->num_seqs <= b->config.limits.max_num_seqs);
    CHECK(inputs->max_blocks_per_seq <= serving_limits_max_blocks(&b->config.limits));
    step->host = *inputs;
    step->number++;
    size_t num_tokens = (size_t)inputs->num_tokens, num_seqs = (size_t)inputs->num_seqs;
    size_t num_token_rows = inputs->token_rows != NULL ? num_tokens : 0;
    const struct {
        const int32_t *host;
        size_t length;
        int32_t **device;
    } arrays[NUM_ARRAYS] = {
        {inputs->token_ids, num_tokens, &step->token_ids},
        {inputs->token_rows, num_token_rows, &step->token_rows},
        {inputs->positions, num_tokens, &step->positions},
        {inputs->slot_mapping, num_tokens, &step->slot_mapping},
        {inputs->query_start, num_seqs + 1, &step->query_start},
        {inputs->context_lens, num_seqs, &step->context_lens},
        {inputs->block_tables, num_seqs * (size_t)inputs->max_blocks_per_seq, &step->block_tables},
    };
    size_t total = 0;
    for (int i = 0; i < NUM_ARRAYS; i++)
        total += padded_bytes(arrays[i].length);
    char *pinned = cuda_staging_reserve(b, total);
    if (pinned == NULL)
        return;
    char *device = (char *)step->memory.data + padded_bytes(CUDA_LIST_LENGTH);
    size_t offset = 0;
    for (int i = 0; i < NUM_ARRAYS; i++) {
        *arrays[i].device = (int32_t *)(device + offset);
        if (arrays[i].host != NULL)
            memcpy(pinned + offset, arrays[i].host, arrays[i].length * sizeof(int32_t));
        offset += padded_bytes(arrays[i].length);
    }
    if (inputs->token_rows == NULL)
        step->token_rows = NULL;
    cuda_staging_send(b, device, pinned, total);
}

void cuda_step_forget(struct cuda_backend *b) {
    b->step.host = (struct step_inputs){0};
    b->step.number++;
}
