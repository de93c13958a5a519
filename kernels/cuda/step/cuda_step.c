/* The arrays of a step go to the device packed, in one launch that puts each in its place; block
 * tables stay there, and only the part of a row that changed goes. */
#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "kernels/cuda/step/cuda_packed.h"
#include "kernels/cuda/step/cuda_streams.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16
#define NUM_ARRAYS 7 /* besides the slots of groups and the rows of block_tables */
#define SAMPLE_ROW_WORDS (sizeof(struct sample_row) / sizeof(int32_t))

_Static_assert(sizeof(struct sample_row) % sizeof(int32_t) == 0, "sent in words");

static int check_limits(const struct serving_limits *limits, struct error *err) {
    size_t table = 0;
    int32_t blocks = limits->block_size > 0 ? serving_limits_max_blocks(limits) : 0;
    if (limits->max_num_batched_tokens <= 0 || limits->max_num_seqs <= 0 || blocks <= 0 ||
        !checked_mul((size_t)limits->max_num_seqs, (size_t)blocks, &table) ||
        table > INT32_MAX / (size_t)serving_limits_groups(limits))
        return error_set(err, ERROR_CONFIG,
                         "cuda device: steps of %d tokens, %d sequences and %d blocks a sequence; "
                         "all must be > 0 and there may be 2^31-1 blocks in all",
                         limits->max_num_batched_tokens, limits->max_num_seqs, blocks);
    return 0;
}

/* Assigns an array its place after the previous ones, or only measures if there is no memory. */
static void *place(char *memory, size_t *offset, size_t bytes) {
    void *at = memory != NULL ? memory + *offset : NULL;
    *offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static size_t place_arrays(struct cuda_step *step, const struct serving_limits *limits) {
    size_t tokens = (size_t)limits->max_num_batched_tokens * sizeof(int32_t);
    size_t seqs = (size_t)limits->max_num_seqs * sizeof(int32_t);
    size_t rows = (size_t)serving_limits_max_sample_rows(limits), offset = 0;
    size_t groups = (size_t)serving_limits_groups(limits);
    char *memory = step->memory.data;
    step->list = place(memory, &offset, CUDA_LIST_LENGTH * sizeof(int32_t));
    step->moved_pairs = place(memory, &offset, CUDA_LIST_LENGTH * sizeof(int32_t));
    step->token_ids = place(memory, &offset, tokens);
    step->token_rows = place(memory, &offset, tokens);
    step->positions = place(memory, &offset, tokens);
    step->slot_mapping = place(memory, &offset, groups * tokens);
    step->sequences = place(memory, &offset, tokens);
    step->adapter_slots = place(memory, &offset, tokens);
    step->logit_rows = place(memory, &offset, rows * sizeof(int32_t));
    step->sample_rows = place(memory, &offset, rows * sizeof(struct sample_row));
    step->block_tables = place(memory, &offset, groups * seqs * (size_t)step->table_stride);
    return offset;
}

static size_t tables_bytes(const struct cuda_backend *b) {
    const struct serving_limits *limits = &b->config.limits;
    return (size_t)serving_limits_groups(limits) * (size_t)limits->max_num_seqs *
           (size_t)b->step.table_stride * sizeof(int32_t);
}

int cuda_step_create(struct cuda_backend *b, struct error *err) {
    const struct serving_limits *limits = &b->config.limits;
    struct cuda_step *step = &b->step;
    if (check_limits(limits, err) != 0)
        return -1;
    step->table_stride = serving_limits_max_blocks(limits);
    step->known_tables = malloc(tables_bytes(b));
    step->known_context_lens = malloc((size_t)limits->max_num_seqs * sizeof(int32_t));
    if (step->known_tables == NULL || step->known_context_lens == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the block tables of a cuda device");
    memset(step->known_tables, 0xff, tables_bytes(b));
    size_t num_rows = (size_t)serving_limits_max_sample_rows(limits);
    if (cuda_buffer_alloc(&b->base, place_arrays(step, limits), &step->memory, err) != 0 ||
        cuda_buffer_alloc(&b->base, num_rows * sizeof(int32_t), &step->sampled_tokens, err) != 0)
        return -1;
    place_arrays(step, limits);
    return 0;
}

void cuda_step_destroy(struct cuda_backend *b) {
    cuda_buffer_free(&b->base, &b->step.sampled_tokens);
    cuda_buffer_free(&b->base, &b->step.memory);
    free(b->step.known_tables);
    free(b->step.known_context_lens);
    b->step.known_tables = b->step.known_context_lens = NULL;
}

/* --- What is sent --- */

struct packed_size {
    size_t num_arrays, num_words;
};

static struct packed_size size_of(const struct cuda_backend *b, size_t num_tokens, size_t num_seqs,
                                  size_t num_rows, size_t num_blocks) {
    size_t groups = (size_t)serving_limits_groups(&b->config.limits);
    struct packed_size plans, size = {NUM_ARRAYS + groups + groups * num_seqs, 0};
    cuda_attention_plan_size(b, (int32_t)num_tokens, (int32_t)num_seqs, &plans.num_arrays,
                             &plans.num_words);
    size.num_arrays += plans.num_arrays;
    size.num_words = (5 + groups) * num_tokens + num_rows * (1 + SAMPLE_ROW_WORDS) +
                     groups * num_seqs * num_blocks + plans.num_words;
    return size;
}

size_t cuda_step_packed_bytes(const struct cuda_backend *b) {
    const struct serving_limits *limits = &b->config.limits;
    struct packed_size size =
        size_of(b, (size_t)limits->max_num_batched_tokens, (size_t)limits->max_num_seqs,
                (size_t)serving_limits_max_sample_rows(limits), (size_t)b->step.table_stride);
    return cuda_packed_bytes(size.num_arrays, size.num_words);
}

/* The host's n, all `filler` where there are none, and the filler for each row of padding. */
static void add_ints(struct cuda_packed *packed, int32_t *device, const int32_t *host, int32_t n,
                     int32_t num_padding, int32_t filler) {
    int32_t *to = cuda_packed_add(packed, device, (size_t)n + (size_t)num_padding);
    if (to == NULL)
        return;
    int32_t num_copied = host != NULL ? n : 0;
    if (num_copied > 0)
        memcpy(to, host, (size_t)num_copied * sizeof(*to));
    for (int32_t i = num_copied; i < n + num_padding; i++)
        to[i] = filler;
}

static int32_t num_groups_of(const struct step_inputs *inputs) {
    return max_int32(inputs->num_groups, 1);
}

static void add_tokens(const struct cuda_backend *b, struct cuda_packed *packed) {
    const struct cuda_step *step = &b->step;
    const struct step_inputs *host = &step->host;
    size_t stride = (size_t)b->config.limits.max_num_batched_tokens;
    int32_t n = host->num_tokens, padding = host->num_padding;
    add_ints(packed, step->token_ids, host->token_ids, n, padding, 0);
    add_ints(packed, step->token_rows, host->token_rows, n, padding, -1);
    add_ints(packed, step->positions, host->positions, n, padding, 0);
    for (int32_t group = 0; group < num_groups_of(host); group++)
        add_ints(packed, step->slot_mapping + (size_t)group * stride,
                 n > 0 ? step_slots(host, group) : NULL, n, padding, -1);
}

/* Padding has none: nothing of it is stored or attended to. */
static void add_sequences(struct cuda_packed *packed, struct cuda_step *step) {
    const struct step_inputs *host = &step->host;
    int32_t *to = cuda_packed_add(packed, step->sequences, (size_t)host->num_tokens);
    for (int32_t s = 0; to != NULL && s < host->num_seqs; s++)
        for (int32_t t = host->query_start[s]; t < host->query_start[s + 1]; t++)
            to[t] = s;
}

/* A step of padding alone is there to be recorded, maybe for those with adapters. */
static void add_adapters(struct cuda_packed *packed, struct cuda_step *step) {
    const struct step_inputs *host = &step->host;
    if (host->adapter_slots == NULL && host->num_tokens > 0)
        return;
    int32_t *to = cuda_packed_add(packed, step->adapter_slots, (size_t)step->num_tokens);
    for (int32_t s = 0; to != NULL && s < host->num_seqs; s++)
        for (int32_t t = host->query_start[s]; t < host->query_start[s + 1]; t++)
            to[t] = host->adapter_slots[s];
    for (int32_t t = host->num_tokens; to != NULL && t < step->num_tokens; t++)
        to[t] = -1;
}

static void add_rows(struct cuda_packed *packed, struct cuda_step *step) {
    const struct step_inputs *host = &step->host;
    size_t n = (size_t)host->num_sample_rows;
    if (host->logit_rows != NULL)
        cuda_packed_copy(packed, step->logit_rows, host->logit_rows, n);
    if (host->sample_rows != NULL)
        cuda_packed_copy(packed, step->sample_rows, host->sample_rows, n * SAMPLE_ROW_WORDS);
}

/* From the first of a row's blocks that the device has not to the last. */
static void add_table(struct cuda_backend *b, struct cuda_packed *packed, int32_t group,
                      int32_t sequence) {
    struct cuda_step *step = &b->step;
    size_t n = (size_t)step->host.max_blocks_per_seq, first = 0;
    size_t index = (size_t)group * (size_t)b->config.limits.max_num_seqs + (size_t)sequence;
    size_t offset = index * (size_t)step->table_stride;
    const int32_t *row = step_table(&step->host, group, sequence);
    int32_t *known = step->known_tables + offset;
    if (memcmp(row, known, n * sizeof(*row)) == 0)
        return;
    while (row[first] == known[first])
        first++;
    while (row[n - 1] == known[n - 1])
        n--;
    if (cuda_packed_copy(packed, step->block_tables + offset + first, row + first, n - first))
        memcpy(known + first, row + first, (n - first) * sizeof(*row));
}

static void forget_tables(struct cuda_backend *b) {
    memset(b->step.known_tables, 0xff, tables_bytes(b));
}

void cuda_step_begin(struct backend *base, const struct step_inputs *inputs) {
    struct cuda_backend *b = cuda_state_of(base);
    struct cuda_step *step = &b->step;
    int32_t padding = inputs->num_padding;
    CHECK(inputs->num_tokens <= b->config.limits.max_num_batched_tokens - padding);
    CHECK(inputs->num_seqs <= b->config.limits.max_num_seqs - padding);
    CHECK(inputs->max_blocks_per_seq <= step->table_stride);
    CHECK(inputs->num_groups <= serving_limits_groups(&b->config.limits));
    step->host = *inputs;
    step->num_tokens = inputs->num_tokens + padding;
    if (inputs->logit_rows == NULL && inputs->sample_rows == NULL)
        step->host.num_sample_rows = 0;
    CHECK(step->host.num_sample_rows <= serving_limits_max_sample_rows(&b->config.limits));
    step->number++;
    step->is_recorded = b->recording != NULL;
    if (step->is_recorded)
        forget_tables(b);
    struct packed_size size =
        size_of(b, (size_t)step->num_tokens, (size_t)inputs->num_seqs,
                (size_t)step->host.num_sample_rows, (size_t)inputs->max_blocks_per_seq);
    struct cuda_packed packed = cuda_packed_begin(b, size.num_arrays, size.num_words);
    add_tokens(b, &packed);
    if (b->config.latent_dim > 0 && inputs->num_tokens > 0)
        add_sequences(&packed, step);
    add_adapters(&packed, step);
    add_rows(&packed, step);
    for (int32_t group = 0; group < num_groups_of(inputs); group++)
        for (int32_t s = 0; s < inputs->num_seqs; s++)
            add_table(b, &packed, group, s);
    if (inputs->num_seqs > 0)
        memcpy(step->known_context_lens, inputs->context_lens,
               (size_t)inputs->num_seqs * sizeof(int32_t));
    cuda_streams_begin_step(b);
    cuda_attention_pack_plans(b, &packed);
    cuda_packed_send(b, &packed);
}

void cuda_step_forget(struct cuda_backend *b) {
    b->step.host = (struct step_inputs){0};
    b->step.num_tokens = 0;
    b->step.number++;
    forget_tables(b);
}

/* Returns the index of `row` in the host's array of that many sample rows; -1: it is elsewhere. */
static ptrdiff_t index_in(const struct cuda_step *step, const void *array, size_t size,
                          const void *row) {
    const char *first = array, *at = row;
    bool is_inside =
        first != NULL && at >= first && at < first + (size_t)step->host.num_sample_rows * size;
    return is_inside ? (at - first) / (ptrdiff_t)size : -1;
}

const int32_t *cuda_step_logit_rows(const struct cuda_backend *b, const int32_t *rows) {
    ptrdiff_t i = index_in(&b->step, b->step.host.logit_rows, sizeof(*rows), rows);
    return i >= 0 ? b->step.logit_rows + i : NULL;
}

const struct sample_row *cuda_step_sample_rows(const struct cuda_backend *b,
                                               const struct sample_row *rows) {
    ptrdiff_t i = index_in(&b->step, b->step.host.sample_rows, sizeof(*rows), rows);
    return i >= 0 ? b->step.sample_rows + i : NULL;
}
