#include "models/batch.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64 /* a cache line */
#define NUM_ARRAYS 27
#define NUM_RESULTS 4

struct array {
    void *pointer; /* the address of one of the arena's */
    size_t count, item_bytes;
};

/* Lists the arrays in the order of the memory: the only place that knows them all. */
static void list_arrays(struct batch_arena *a, const struct batch_capacity *c,
                        struct array out[static NUM_ARRAYS]) {
    size_t tokens = (size_t)c->num_tokens, seqs = (size_t)c->num_seqs;
    size_t rows = (size_t)c->num_sample_rows, blocks = (size_t)c->num_blocks;
    size_t host_blocks = (size_t)c->num_host_blocks;
    size_t groups = (size_t)max_int32(c->num_groups, 1);
    size_t table_bytes = groups * (size_t)c->num_table_blocks * sizeof(int32_t);
    size_t mask_bytes = (size_t)SAMPLE_MASK_WORDS(c->vocab_size) * sizeof(uint32_t);
    const struct array arrays[NUM_ARRAYS] = {
        {&a->counts, 1, sizeof(struct batch_counts)},
        {&a->token_ids, tokens, sizeof(int32_t)},
        {&a->token_rows, tokens, sizeof(int32_t)},
        {&a->positions, tokens, sizeof(int32_t)},
        {&a->slot_mapping, tokens, groups * sizeof(int32_t)},
        {&a->query_start, seqs + 1, sizeof(int32_t)},
        {&a->context_lens, seqs, sizeof(int32_t)},
        {&a->block_tables, seqs, table_bytes},
        {&a->adapter_slots, seqs, sizeof(int32_t)},
        {&a->adapter_writes, (size_t)c->num_adapter_writes, sizeof(struct adapter_write)},
        {&a->adapter_data, c->adapter_bytes, 1},
        {&a->draft_requests, c->num_draft_tokens > 0 ? seqs : 0, sizeof(struct draft_request)},
        {&a->draft_inputs, (size_t)c->num_draft_tokens, sizeof(int32_t)},
        {&a->swap_out_from, host_blocks, sizeof(int32_t)},
        {&a->swap_out_to, host_blocks, sizeof(int32_t)},
        {&a->swap_in_from, blocks, sizeof(int32_t)},
        {&a->swap_in_to, blocks, sizeof(int32_t)},
        {&a->copy_from, blocks, sizeof(int32_t)},
        {&a->copy_to, blocks, sizeof(int32_t)},
        {&a->logit_rows, rows, sizeof(int32_t)},
        {&a->sample_rows, rows, sizeof(struct sample_row)},
        {&a->token_counts, c->num_counts, sizeof(struct token_count)},
        {&a->token_biases, c->num_biases, sizeof(struct token_bias)},
        {&a->listed_tokens, c->num_listed, sizeof(int32_t)},
        {&a->token_masks, (size_t)c->num_masks, mask_bytes},
        {&a->hidden_spans, seqs, sizeof(struct row_span)},
        {&a->hidden_sums, seqs, (size_t)c->hidden_size * sizeof(float)},
    };
    memcpy(out, arrays, sizeof(arrays));
}

/* Returns the bytes up to the next array; SIZE_MAX when that is beyond size_t. */
static size_t padded_bytes(const struct array *array) {
    size_t bytes;
    if (!checked_mul(array->count, array->item_bytes, &bytes) || bytes > SIZE_MAX - ALIGNMENT)
        return SIZE_MAX;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t sum_bytes(const struct array *arrays, int count) {
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = padded_bytes(&arrays[i]);
        if (bytes > SIZE_MAX - total)
            return SIZE_MAX;
        total += bytes;
    }
    return total;
}

static void place(const struct array *arrays, int count, char *memory) {
    for (int i = 0; i < count; i++) {
        memcpy(arrays[i].pointer, &memory, sizeof(memory));
        memory += padded_bytes(&arrays[i]);
    }
}

size_t batch_arena_bytes(const struct batch_capacity *capacity) {
    struct batch_arena none;
    struct array arrays[NUM_ARRAYS];
    list_arrays(&none, capacity, arrays);
    return sum_bytes(arrays, NUM_ARRAYS);
}

struct batch_capacity batch_arena_shape(const struct batch_arena *arena) {
    const struct batch_counts *counts = arena->counts;
    return (struct batch_capacity){
        .num_tokens = counts->num_tokens,
        .num_seqs = counts->num_seqs,
        .num_groups = counts->num_groups,
        .num_table_blocks = counts->max_blocks_per_seq,
        .num_sample_rows = counts->num_sample_rows,
        .num_blocks = max_int32(counts->num_swap_in, counts->num_copies),
        .num_host_blocks = counts->num_swap_out,
        .num_adapter_writes = counts->num_adapter_writes,
        .adapter_bytes = counts->adapter_bytes,
    };
}

static size_t num_listed_logprobs(const struct batch_arena *arena) {
    int64_t end = 0;
    for (int32_t i = 0; i < arena->counts->num_sample_rows; i++) {
        const struct sample_row *row = &arena->sample_rows[i];
        if (row->num_listed > 0)
            end = max_int64(end, row->first_listed_logprob + row->num_listed);
    }
    return (size_t)end;
}

struct batch_capacity batch_arena_extent(const struct batch_arena *arena,
                                         const struct batch_capacity *capacity) {
    const struct batch_counts *counts = arena->counts;
    struct batch_capacity extent = batch_arena_shape(arena);
    CHECK(!counts->has_late_inputs);
    extent.num_counts = (size_t)counts->num_counts;
    extent.num_biases = (size_t)counts->num_biases;
    extent.num_listed = (size_t)counts->num_listed;
    extent.num_listed_logprobs = num_listed_logprobs(arena);
    extent.num_masks = counts->num_masks;
    extent.vocab_size = capacity->vocab_size;
    extent.hidden_size = counts->num_hidden_sums > 0 ? capacity->hidden_size : 0;
    return extent;
}

static void copy_arrays(const struct array *from, const struct array *to, int count) {
    for (int i = 0; i < count; i++) {
        const void *src;
        void *dst;
        memcpy(&src, from[i].pointer, sizeof(src));
        memcpy(&dst, to[i].pointer, sizeof(dst));
        if (to[i].count > 0)
            memcpy(dst, src, to[i].count * to[i].item_bytes);
    }
}

void batch_arena_copy(const struct batch_arena *from, const struct batch_capacity *capacity,
                      struct batch_arena *to) {
    struct batch_arena source = *from;
    struct array sources[NUM_ARRAYS], targets[NUM_ARRAYS];
    list_arrays(&source, capacity, sources);
    list_arrays(to, capacity, targets);
    copy_arrays(sources, targets, NUM_ARRAYS);
}

void batch_arena_bind(struct batch_arena *arena, const struct batch_capacity *capacity,
                      void *memory) {
    struct array arrays[NUM_ARRAYS];
    arena->memory = memory;
    list_arrays(arena, capacity, arrays);
    place(arrays, NUM_ARRAYS, memory);
}

static void list_results(struct step_result *r, const struct batch_capacity *c,
                         struct array out[static NUM_RESULTS]) {
    const struct array arrays[NUM_RESULTS] = {
        {&r->rows, (size_t)c->num_sample_rows, sizeof(struct sample_output)},
        {&r->listed_logprobs, c->num_listed_logprobs, sizeof(float)},
        {&r->hidden_sums, (size_t)c->num_seqs, (size_t)c->hidden_size * sizeof(float)},
        {&r->drafts, (size_t)c->num_draft_tokens, sizeof(int32_t)},
    };
    memcpy(out, arrays, sizeof(arrays));
}

size_t step_result_offset(const struct batch_capacity *capacity) {
    size_t bytes = batch_arena_bytes(capacity);
    if (bytes > SIZE_MAX - STEP_PART_ALIGNMENT)
        return SIZE_MAX;
    return (bytes + STEP_PART_ALIGNMENT - 1) / STEP_PART_ALIGNMENT * STEP_PART_ALIGNMENT;
}

size_t step_memory_bytes(const struct batch_capacity *capacity) {
    struct step_result none;
    struct array results[NUM_RESULTS];
    list_results(&none, capacity, results);
    size_t offset = step_result_offset(capacity), result = sum_bytes(results, NUM_RESULTS);
    return offset > SIZE_MAX - result ? SIZE_MAX : offset + result;
}

void step_memory_bind(const struct batch_capacity *capacity, void *memory,
                      struct batch_arena *arena, struct step_result *result) {
    struct array results[NUM_RESULTS];
    batch_arena_bind(arena, capacity, memory);
    *result = (struct step_result){0};
    list_results(result, capacity, results);
    place(results, NUM_RESULTS, (char *)memory + step_result_offset(capacity));
}

void step_result_copy(const struct step_result *from, const struct batch_capacity *capacity,
                      struct step_result *to) {
    struct step_result source = *from;
    struct array sources[NUM_RESULTS], targets[NUM_RESULTS];
    list_results(&source, capacity, sources);
    list_results(to, capacity, targets);
    copy_arrays(sources, targets, NUM_RESULTS);
    to->num_sample_rows = capacity->num_sample_rows;
}

int batch_arena_init(struct batch_arena *arena, const struct batch_capacity *capacity) {
    size_t bytes = batch_arena_bytes(capacity);
    void *memory = bytes < SIZE_MAX ? aligned_alloc(ALIGNMENT, bytes) : NULL;
    if (memory == NULL)
        return -1;
    batch_arena_bind(arena, capacity, memory);
    *arena->counts = (struct batch_counts){0};
    return 0;
}

void batch_arena_finish(struct batch_arena *arena) {
    free(arena->memory);
    *arena = (struct batch_arena){0};
}

struct batch batch_arena_view(const struct batch_arena *a) {
    const struct batch_counts *counts = a->counts;
    return (struct batch){
        .inputs =
            {
                .num_tokens = counts->num_tokens,
                .num_seqs = counts->num_seqs,
                .num_groups = counts->num_groups,
                .max_blocks_per_seq = counts->max_blocks_per_seq,
                .token_ids = a->token_ids,
                .token_rows = counts->has_token_rows ? a->token_rows : NULL,
                .positions = a->positions,
                .slot_mapping = a->slot_mapping,
                .query_start = a->query_start,
                .context_lens = a->context_lens,
                .block_tables = a->block_tables,
                .adapter_slots = counts->has_adapters ? a->adapter_slots : NULL,
            },
        .num_draft_requests = counts->num_draft_requests,
        .draft_requests = a->draft_requests,
        .draft_inputs = a->draft_inputs,
        .num_adapter_writes = counts->num_adapter_writes,
        .adapter_writes = a->adapter_writes,
        .adapter_data = a->adapter_data,
        .swap_out = {counts->num_swap_out, a->swap_out_from, a->swap_out_to},
        .swap_in = {counts->num_swap_in, a->swap_in_from, a->swap_in_to},
        .copies = {counts->num_copies, a->copy_from, a->copy_to},
        .has_late_inputs = counts->has_late_inputs,
        .num_sample_rows = counts->num_sample_rows,
        .logit_rows = a->logit_rows,
        .sample_rows = a->sample_rows,
        .num_counts = counts->num_counts,
        .token_counts = a->token_counts,
        .num_biases = counts->num_biases,
        .token_biases = a->token_biases,
        .num_listed = counts->num_listed,
        .listed_tokens = a->listed_tokens,
        .num_masks = counts->num_masks,
        .token_masks = a->token_masks,
        .num_hidden_sums = counts->num_hidden_sums,
        .hidden_spans = a->hidden_spans,
        .hidden_sums = a->hidden_sums,
    };
}
