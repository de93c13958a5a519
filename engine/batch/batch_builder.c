#include "engine/batch/batch_builder.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "engine/batch/sampling_inputs.h"

#include <stdlib.h>
#include <string.h>

/* Distinct tokens of all rows that sample. */
static size_t max_counts(const struct serving_limits *limits) {
    return (size_t)limits->max_num_seqs * (size_t)serving_limits_max_distinct(limits);
}

int32_t batch_builder_max_rows(const struct serving_limits *limits) {
    return limits->max_num_batched_tokens + limits->max_num_seqs;
}

#define NUM_ARRAYS 15

struct array {
    void *pointer; /* the address of one of the builder's */
    size_t count, item_bytes;
};

/* Lists the builder's arrays with their sizes: the only place that knows them all. */
static void list_arrays(struct batch_builder *b, const struct serving_limits *limits,
                        const struct tokenizer *tokenizer, struct array out[static NUM_ARRAYS]) {
    size_t tokens = (size_t)limits->max_num_batched_tokens, seqs = (size_t)limits->max_num_seqs;
    size_t rows = (size_t)batch_builder_max_rows(limits);
    size_t table = (size_t)serving_limits_max_blocks(limits) * sizeof(int32_t);
    size_t biases = (size_t)sampling_inputs_max_biases(tokenizer) * sizeof(struct token_bias);
    size_t mask = (size_t)SAMPLE_MASK_WORDS(limits->vocab_size) * sizeof(uint32_t);
    const struct array arrays[NUM_ARRAYS] = {
        {&b->token_ids, tokens, sizeof(int32_t)},
        {&b->positions, tokens, sizeof(int32_t)},
        {&b->slot_mapping, tokens, sizeof(int32_t)},
        {&b->query_start, seqs + 1, sizeof(int32_t)},
        {&b->context_lens, seqs, sizeof(int32_t)},
        {&b->block_tables, seqs, table},
        {&b->logit_rows, rows, sizeof(int32_t)},
        {&b->sample_rows, rows, sizeof(struct sample_row)},
        {&b->token_counts, max_counts(limits), sizeof(struct token_count)},
        {&b->token_biases, seqs, biases},
        {&b->token_masks, seqs + 1, mask},
        {&b->hidden_spans, seqs, sizeof(struct row_span)},
        {&b->hidden_sums, seqs, ((size_t)limits->hidden_size + 1) * sizeof(float)},
        {&b->row_start, seqs + 1, sizeof(int32_t)},
        {&b->hidden_sum_start, seqs + 1, sizeof(int32_t)},
    };
    memcpy(out, arrays, sizeof(arrays));
}

static int alloc_array(const struct array *array) {
    size_t bytes;
    void *data = checked_mul(array->count, array->item_bytes, &bytes) ? malloc(bytes) : NULL;
    memcpy(array->pointer, &data, sizeof(data));
    return data != NULL ? 0 : -1;
}

static void free_array(const struct array *array) {
    void *data;
    memcpy(&data, array->pointer, sizeof(data));
    free(data);
}

size_t batch_builder_bytes(const struct serving_limits *limits, const struct tokenizer *tokenizer) {
    struct batch_builder none;
    struct array arrays[NUM_ARRAYS];
    size_t bytes = logprob_lists_bytes(limits);
    list_arrays(&none, limits, tokenizer, arrays);
    for (int i = 0; i < NUM_ARRAYS; i++)
        bytes += arrays[i].count * arrays[i].item_bytes;
    return bytes;
}

int batch_builder_init(struct batch_builder *builder, const struct serving_limits *limits,
                       const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary) {
    CHECK(limits->vocab_size == tokenizer_vocab_size(tokenizer));
    struct batch_builder made = {
        .limits = limits, .tokenizer = tokenizer, .vocabulary = vocabulary};
    struct array arrays[NUM_ARRAYS];
    int status = logprob_lists_init(&made.lists, limits);
    list_arrays(&made, limits, tokenizer, arrays);
    for (int i = 0; i < NUM_ARRAYS && status == 0; i++)
        status = alloc_array(&arrays[i]);
    if (status == 0)
        *builder = made;
    else
        batch_builder_finish(&made);
    return status;
}

void batch_builder_finish(struct batch_builder *builder) {
    struct array arrays[NUM_ARRAYS];
    if (builder->limits != NULL) {
        list_arrays(builder, builder->limits, builder->tokenizer, arrays);
        for (int i = 0; i < NUM_ARRAYS; i++)
            free_array(&arrays[i]);
    }
    logprob_lists_finish(&builder->lists);
    memset(builder, 0, sizeof(*builder));
}

/* Rows of block tables are as long as this step needs: a device is sent them whole. */
static int32_t longest_table(const struct step_plan *plan) {
    int32_t longest = 0;
    for (int32_t i = 0; i < plan->num_entries; i++)
        if (plan->entries[i].sequence->table.num_blocks > longest)
            longest = plan->entries[i].sequence->table.num_blocks;
    return longest;
}

static void clear(struct batch_builder *builder, int32_t table_width) {
    CHECK(table_width <= serving_limits_max_blocks(builder->limits));
    builder->batch = (struct batch){
        .inputs =
            {
                .max_blocks_per_seq = table_width,
                .token_ids = builder->token_ids,
                .positions = builder->positions,
                .slot_mapping = builder->slot_mapping,
                .query_start = builder->query_start,
                .context_lens = builder->context_lens,
                .block_tables = builder->block_tables,
            },
        .logit_rows = builder->logit_rows,
        .sample_rows = builder->sample_rows,
        .token_counts = builder->token_counts,
        .token_biases = builder->token_biases,
        .token_masks = builder->token_masks,
        .listed_tokens = builder->lists.tokens,
        .hidden_spans = builder->hidden_spans,
        .hidden_sums = builder->hidden_sums,
    };
    logprob_lists_clear(&builder->lists);
    builder->query_start[0] = 0;
    builder->row_start[0] = 0;
    builder->hidden_sum_start[0] = 0;
}

/* The row belongs to the token added last. */
static void add_row(struct batch_builder *builder, const struct sample_row *row) {
    struct batch *batch = &builder->batch;
    CHECK(batch->num_sample_rows < batch_builder_max_rows(builder->limits));
    builder->logit_rows[batch->num_sample_rows] = batch->inputs.num_tokens - 1;
    builder->sample_rows[batch->num_sample_rows++] = *row;
}

static uint32_t *mask_at(const struct batch_builder *builder, int32_t index) {
    return builder->token_masks +
           (size_t)index * (size_t)SAMPLE_MASK_WORDS(builder->limits->vocab_size);
}

/* The row's biases were added last. */
static void add_mask(struct batch_builder *builder, const struct sampling_position *at,
                     struct sample_row *row) {
    struct batch *batch = &builder->batch;
    uint32_t *mask = mask_at(builder, batch->num_masks);
    uint32_t *scratch = mask_at(builder, builder->limits->max_num_seqs);
    if (!sampling_inputs_fill_mask(at, builder->tokenizer, builder->vocabulary, scratch, mask))
        return;
    row->mask = batch->num_masks++;
    row->num_biases =
        sampling_inputs_drop_bans(mask, builder->limits->vocab_size,
                                  builder->token_biases + row->first_bias, row->num_biases);
    batch->num_biases = row->first_bias + row->num_biases;
}

/* With memory too short for its counts, the sequence ends when the sampled token is appended. */
static void add_sampled_row(struct batch_builder *builder, struct sequence *sequence) {
    struct batch *batch = &builder->batch;
    const struct sampling_position at = sampling_inputs_next(sequence);
    struct sample_row row = sampling_inputs_sample_row(&at);
    row.first_count = batch->num_counts;
    row.num_counts = sampling_inputs_fill_counts(&at, builder->token_counts + batch->num_counts);
    batch->num_counts += row.num_counts;
    row.first_bias = batch->num_biases;
    row.num_biases = sampling_inputs_fill_biases(&at, builder->tokenizer,
                                                 builder->token_biases + batch->num_biases);
    batch->num_biases += row.num_biases;
    add_mask(builder, &at, &row);
    logprob_lists_add(&builder->lists, sequence_params(sequence)->logprob_tokens,
                      sequence_params(sequence)->num_logprob_tokens, &row);
    add_row(builder, &row);
}

static void add_sampled_rows(struct batch_builder *builder, struct sequence *sequence) {
    const struct sequence_group *group = sequence->group;
    add_sampled_row(builder, sequence);
    if (sequence != sequence_group_leader(group))
        return;
    struct sequence *sibling = sequence_group_next_fork(group, -1);
    for (; sibling != NULL; sibling = sequence_group_next_fork(group, sibling->choice))
        add_sampled_row(builder, sibling);
}

/* The logits at a position are about the token after it. */
static void add_rows_at(struct batch_builder *builder, struct sequence *sequence,
                        int32_t position) {
    const struct sequence_group *group = sequence->group;
    int32_t next = position + 1;
    bool scores = sequence->choice == 0 && sequence_group_is_scoring(group) &&
                  next >= group->num_scored && next < group->request->num_prompt_tokens;
    if (scores) {
        struct sample_row row = sampling_inputs_score_row(sequence, sequence_token(sequence, next));
        logprob_lists_add(&builder->lists, NULL, 0, &row);
        add_row(builder, &row);
    } else if (next == sequence->num_tokens && next < sequence->max_tokens) {
        add_sampled_rows(builder, sequence);
    }
}

static void add_token(struct batch_builder *builder, struct sequence *sequence, int32_t position) {
    struct step_inputs *inputs = &builder->batch.inputs;
    int32_t i = inputs->num_tokens++;
    builder->token_ids[i] = sequence_token(sequence, position);
    builder->positions[i] = position;
    builder->slot_mapping[i] =
        block_table_slot(&sequence->table, builder->limits->block_size, position);
    add_rows_at(builder, sequence, position);
}

/* The entry's tokens were added last. A preempted sequence begins again with zeros. */
static void add_hidden_sum(struct batch_builder *builder, const struct planned_sequence *entry) {
    const struct sequence *sequence = entry->sequence;
    struct batch *batch = &builder->batch;
    enum pooling pooling = sequence_params(sequence)->pooling;
    bool is_complete = sequence->num_computed + entry->num_tokens == sequence->num_tokens;
    if (pooling == POOLING_NONE || (pooling == POOLING_LAST && !is_complete))
        return;
    int32_t num_rows = pooling == POOLING_LAST ? 1 : entry->num_tokens;
    size_t width = (size_t)builder->limits->hidden_size;
    float *sum = builder->hidden_sums + (size_t)batch->num_hidden_sums * width;
    if (pooling == POOLING_MEAN && sequence->num_computed > 0)
        memcpy(sum, sequence->hidden_sum, width * sizeof(*sum));
    else
        memset(sum, 0, width * sizeof(*sum));
    builder->hidden_spans[batch->num_hidden_sums++] =
        (struct row_span){batch->inputs.num_tokens - num_rows, num_rows};
}

/* Nothing reads the blocks that fell out of the window; their entries name a block there is. */
static void add_table(struct batch_builder *builder, const struct block_table *table,
                      int32_t index) {
    int32_t *row =
        builder->block_tables + (size_t)index * (size_t)builder->batch.inputs.max_blocks_per_seq;
    memcpy(row, table->blocks, (size_t)table->num_blocks * sizeof(*row));
    memset(row, 0, (size_t)table->num_dropped * sizeof(*row));
}

static void add_sequence(struct batch_builder *builder, const struct planned_sequence *entry) {
    struct sequence *sequence = entry->sequence;
    struct step_inputs *inputs = &builder->batch.inputs;
    int32_t index = inputs->num_seqs++;
    CHECK(index < builder->limits->max_num_seqs);
    CHECK(inputs->num_tokens + entry->num_tokens <= builder->limits->max_num_batched_tokens);
    int32_t end = sequence->num_computed + entry->num_tokens;
    for (int32_t position = sequence->num_computed; position < end; position++)
        add_token(builder, sequence, position);
    builder->query_start[index + 1] = inputs->num_tokens;
    builder->row_start[index + 1] = builder->batch.num_sample_rows;
    add_hidden_sum(builder, entry);
    builder->hidden_sum_start[index + 1] = builder->batch.num_hidden_sums;
    builder->context_lens[index] = end;
    add_table(builder, &sequence->table, index);
}

static struct block_pairs pairs_of(const struct move_list *moves) {
    return (struct block_pairs){.count = moves->count, .from = moves->from, .to = moves->to};
}

const struct batch *batch_builder_build(struct batch_builder *builder, const struct step_plan *plan,
                                        const struct block_manager *blocks) {
    clear(builder, longest_table(plan));
    builder->batch.swap_out = pairs_of(&blocks->swap_out);
    builder->batch.swap_in = pairs_of(&blocks->swap_in);
    builder->batch.copies = pairs_of(&blocks->copies);
    for (int32_t i = 0; i < plan->num_entries; i++)
        add_sequence(builder, &plan->entries[i]);
    builder->batch.num_listed = builder->lists.num_tokens;
    return &builder->batch;
}
