#include "engine/batch/batch_builder.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "engine/batch/sampler.h"
#include "engine/batch/token_mask.h"

#include <stdlib.h>
#include <string.h>

static void *alloc_array(size_t count, size_t item_bytes) {
    size_t bytes;
    return checked_mul(count, item_bytes, &bytes) ? malloc(bytes) : NULL;
}

static int32_t max_blocks_per_seq(const struct serving_limits *limits) {
    return block_table_blocks_for(limits->max_model_len, limits->block_size);
}

/* Distinct tokens of all rows that draw. */
static size_t max_counts(const struct serving_limits *limits) {
    int32_t of_row =
        limits->max_model_len < limits->vocab_size ? limits->max_model_len : limits->vocab_size;
    return (size_t)limits->max_num_seqs * (size_t)of_row;
}

int32_t batch_builder_max_rows(const struct serving_limits *limits) {
    return limits->max_num_batched_tokens + limits->max_num_seqs;
}

int batch_builder_init(struct batch_builder *builder, const struct serving_limits *limits,
                       const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary) {
    CHECK(limits->vocab_size == tokenizer_vocab_size(tokenizer));
    size_t num_tokens = (size_t)limits->max_num_batched_tokens;
    size_t num_seqs = (size_t)limits->max_num_seqs;
    size_t num_rows = (size_t)batch_builder_max_rows(limits);
    size_t max_biases = num_seqs * (size_t)sampler_max_biases(tokenizer);
    struct batch_builder made = {
        .limits = limits,
        .tokenizer = tokenizer,
        .vocabulary = vocabulary,
        .token_ids = alloc_array(num_tokens, sizeof(int32_t)),
        .positions = alloc_array(num_tokens, sizeof(int32_t)),
        .slot_mapping = alloc_array(num_tokens, sizeof(int32_t)),
        .query_start = alloc_array(num_seqs + 1, sizeof(int32_t)),
        .context_lens = alloc_array(num_seqs, sizeof(int32_t)),
        .block_tables = alloc_array(num_seqs * (size_t)max_blocks_per_seq(limits), sizeof(int32_t)),
        .logit_rows = alloc_array(num_rows, sizeof(int32_t)),
        .sample_rows = alloc_array(num_rows, sizeof(struct sample_row)),
        .token_counts = alloc_array(max_counts(limits), sizeof(struct token_count)),
        .token_biases = alloc_array(max_biases, sizeof(struct token_bias)),
        .token_masks = alloc_array(num_seqs + 1, (size_t)SAMPLE_MASK_WORDS(limits->vocab_size) *
                                                     sizeof(*made.token_masks)),
        .hidden_spans = alloc_array(num_seqs, sizeof(struct row_span)),
        .hidden_sums = alloc_array(num_seqs, ((size_t)limits->hidden_size + 1) * sizeof(float)),
        .row_start = alloc_array(num_seqs + 1, sizeof(int32_t)),
        .hidden_sum_start = alloc_array(num_seqs + 1, sizeof(int32_t)),
    };
    if (logprob_lists_init(&made.lists, limits) != 0 || made.token_ids == NULL ||
        made.positions == NULL || made.slot_mapping == NULL || made.query_start == NULL ||
        made.context_lens == NULL || made.block_tables == NULL || made.logit_rows == NULL ||
        made.sample_rows == NULL || made.token_counts == NULL || made.token_biases == NULL ||
        made.token_masks == NULL || made.hidden_spans == NULL || made.hidden_sums == NULL ||
        made.row_start == NULL || made.hidden_sum_start == NULL) {
        batch_builder_finish(&made);
        return -1;
    }
    *builder = made;
    return 0;
}

void batch_builder_finish(struct batch_builder *builder) {
    free(builder->token_ids);
    free(builder->positions);
    free(builder->slot_mapping);
    free(builder->query_start);
    free(builder->context_lens);
    free(builder->block_tables);
    free(builder->logit_rows);
    free(builder->sample_rows);
    free(builder->token_counts);
    free(builder->token_biases);
    logprob_lists_finish(&builder->lists);
    free(builder->token_masks);
    free(builder->hidden_spans);
    free(builder->hidden_sums);
    free(builder->row_start);
    free(builder->hidden_sum_start);
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
    CHECK(table_width <= max_blocks_per_seq(builder->limits));
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
static void add_mask(struct batch_builder *builder, struct sequence *sequence,
                     struct sample_row *row) {
    struct batch *batch = &builder->batch;
    uint32_t *mask = mask_at(builder, batch->num_masks);
    uint32_t *scratch = mask_at(builder, builder->limits->max_num_seqs);
    if (!token_mask_fill(sequence, builder->vocabulary, builder->limits->vocab_size, scratch, mask))
        return;
    row->mask = batch->num_masks++;
    row->num_biases =
        token_mask_drop_bans(mask, builder->limits->vocab_size,
                             builder->token_biases + row->first_bias, row->num_biases);
    batch->num_biases = row->first_bias + row->num_biases;
}

/* With memory too short for its counts, the sequence ends when what is drawn is appended. */
static void add_draw_row(struct batch_builder *builder, struct sequence *sequence) {
    struct batch *batch = &builder->batch;
    struct sample_row row = sampler_draw_row(sequence);
    (void)sequence_count_prompt(sequence);
    const struct token_counts *counts = &sequence->counts;
    row.first_count = batch->num_counts;
    row.num_counts = counts->num_items;
    if (counts->num_items > 0)
        memcpy(builder->token_counts + batch->num_counts, counts->items,
               (size_t)counts->num_items * sizeof(*counts->items));
    batch->num_counts += row.num_counts;
    row.first_bias = batch->num_biases;
    row.num_biases = sampler_fill_biases(sequence, builder->tokenizer,
                                         builder->token_biases + batch->num_biases);
    batch->num_biases += row.num_biases;
    add_mask(builder, sequence, &row);
    logprob_lists_add(&builder->lists, sequence_params(sequence)->logprob_tokens,
                      sequence_params(sequence)->num_logprob_tokens, &row);
    add_row(builder, &row);
}

static void add_draw_rows(struct batch_builder *builder, struct sequence *sequence) {
    const struct sequence_group *group = sequence->group;
    add_draw_row(builder, sequence);
    if (sequence != sequence_group_leader(group))
        return;
    struct sequence *sibling = sequence_group_next_fork(group, -1);
    for (; sibling != NULL; sibling = sequence_group_next_fork(group, sibling->choice))
        add_draw_row(builder, sibling);
}

/* The logits at a position are about the token after it. */
static void add_rows_at(struct batch_builder *builder, struct sequence *sequence,
                        int32_t position) {
    const struct sequence_group *group = sequence->group;
    int32_t next = position + 1;
    bool scores = sequence->choice == 0 && sequence_group_is_scoring(group) &&
                  next >= group->num_scored && next < group->request->num_prompt_tokens;
    if (scores) {
        struct sample_row row = sampler_score_row(sequence, sequence_token(sequence, next));
        logprob_lists_add(&builder->lists, NULL, 0, &row);
        add_row(builder, &row);
    } else if (next == sequence->num_tokens && next < sequence->max_tokens) {
        add_draw_rows(builder, sequence);
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
