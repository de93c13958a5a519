#include "engine/batch/batch_builder.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/batch/sampling_inputs.h"

#include <stdlib.h>
#include <string.h>

static size_t mask_words(const struct serving_limits *limits) {
    return (size_t)SAMPLE_MASK_WORDS(limits->vocab_size);
}

size_t batch_builder_bytes(const struct serving_limits *limits) {
    return mask_words(limits) * sizeof(uint32_t) + dry_scratch_bytes(limits->max_model_len);
}

int batch_builder_init(struct batch_builder *builder, const struct serving_limits *limits,
                       const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary) {
    CHECK(limits->vocab_size == tokenizer_vocab_size(tokenizer));
    *builder =
        (struct batch_builder){.limits = limits,
                               .tokenizer = tokenizer,
                               .vocabulary = vocabulary,
                               .mask_budget = INT64_MAX,
                               .scratch_mask = malloc(mask_words(limits) * sizeof(uint32_t))};
    if (dry_scratch_init(&builder->dry, limits->max_model_len) == 0 &&
        builder->scratch_mask != NULL)
        return 0;
    batch_builder_finish(builder);
    return -1;
}

void batch_builder_finish(struct batch_builder *builder) {
    free(builder->scratch_mask);
    dry_scratch_finish(&builder->dry);
    memset(builder, 0, sizeof(*builder));
}

/* --- Sample rows --- */

/* The row belongs to the token added last. */
static void add_row(struct batch_builder *builder, struct step *step, struct sequence *sequence,
                    int32_t position, enum step_row_kind kind) {
    struct batch_counts *counts = step->arena.counts;
    int32_t row = counts->num_sample_rows++;
    CHECK(row < serving_limits_max_sample_rows(builder->limits));
    step->rows[row] = (struct step_row){.sequence = sequence, .position = position, .kind = kind};
    step->arena.logit_rows[row] = counts->num_tokens - 1;
}

static void add_forks(struct batch_builder *builder, struct step *step,
                      struct planned_sequence *entry, int32_t position) {
    const struct sequence_group *group = entry->sequence->group;
    if (entry->sequence != sequence_group_leader(group))
        return;
    struct sequence *sibling = sequence_group_next_fork(group, -1);
    for (; sibling != NULL; sibling = sequence_group_next_fork(group, sibling->choice)) {
        add_row(builder, step, sibling, position, STEP_ROW_SAMPLE);
        entry->num_forks++;
    }
}

/* The logits of a token are about the one after it. */
static void add_rows_after(struct batch_builder *builder, struct step *step,
                           struct planned_sequence *entry, int32_t index) {
    struct sequence *sequence = entry->sequence;
    const struct sequence_group *group = sequence->group;
    int32_t next = entry->begin + index + 1;
    bool scores = sequence->choice == 0 && sequence_group_is_scoring(group) &&
                  next >= group->num_scored && next < group->request->num_prompt_tokens;
    int32_t last = entry->num_tokens - entry->num_drafts - 1;
    if (scores) {
        add_row(builder, step, sequence, next, STEP_ROW_SCORE);
        entry->num_scores++;
    } else if (entry->samples && index >= last) {
        enum step_row_kind kind = group->beams != NULL ? STEP_ROW_BEAM : STEP_ROW_SAMPLE;
        add_row(builder, step, sequence, next, index > last ? STEP_ROW_VERIFY : kind);
        entry->num_samples++;
        if (entry->num_drafts == 0)
            add_forks(builder, step, entry, next);
    }
}

/* --- The inputs of sampling --- */

static uint32_t *next_mask(const struct batch_builder *builder, const struct step *step) {
    return step->arena.token_masks +
           (size_t)step->arena.counts->num_masks * mask_words(builder->limits);
}

/* The row's biases were added last. Returns false when its mask is not found yet. */
static bool fill_mask(struct batch_builder *builder, struct step *step,
                      const struct sampling_position *at, struct sample_row *row) {
    struct batch_counts *counts = step->arena.counts;
    uint32_t *mask = next_mask(builder, step);
    int64_t most = min_int64(builder->mask_left, builder->mask_budget / 4), left = most;
    enum sampling_mask found = sampling_inputs_fill_mask(
        at, builder->tokenizer, builder->vocabulary, &left, builder->scratch_mask, mask);
    builder->mask_left -= most - left;
    if (found != SAMPLING_MASK_FILLED)
        return found == SAMPLING_MASK_NONE;
    row->mask = counts->num_masks++;
    row->num_biases =
        sampling_inputs_drop_bans(mask, builder->limits->vocab_size,
                                  step->arena.token_biases + row->first_bias, row->num_biases);
    counts->num_biases = row->first_bias + row->num_biases;
    return true;
}

/* With memory too short for its counts, the sequence ends when the sampled token is appended. */
static struct sample_row fill_sampled(struct batch_builder *builder, struct step *step,
                                      const struct sampling_position *at, bool *out_lacks_mask) {
    struct batch_counts *counts = step->arena.counts;
    struct sample_row row = sampling_inputs_sample_row(at);
    row.first_count = counts->num_counts;
    row.num_counts = sampling_inputs_fill_counts(at, step->arena.token_counts + counts->num_counts);
    counts->num_counts += row.num_counts;
    row.first_bias = counts->num_biases;
    row.num_biases = sampling_inputs_fill_biases(at, builder->tokenizer, &builder->dry,
                                                 step->arena.token_biases + counts->num_biases);
    counts->num_biases += row.num_biases;
    *out_lacks_mask = !fill_mask(builder, step, at, &row);
    return row;
}

/* Tokens between the sequence's and the row's position are drafts, which the batch has; or one that
 * a step in flight samples. */
static struct sampling_position position_of(const struct step *step, int32_t index) {
    const struct step_row *row = &step->rows[index];
    int32_t num_after = row->position - row->sequence->num_tokens;
    const int32_t *end = step->arena.token_ids + step->arena.logit_rows[index] + 1;
    return (struct sampling_position){
        .sequence = row->sequence,
        .position = row->position,
        .drafts = row->kind == STEP_ROW_VERIFY ? end - num_after : NULL,
    };
}

static struct sample_row fill_row(struct batch_builder *builder, struct step *step, int32_t index) {
    struct step_row *row = &step->rows[index];
    const struct sampling_position at = position_of(step, index);
    struct sample_row filled = {
        .target = SAMPLE_NO_TARGET, .settings = SAMPLING_SETTINGS_NEUTRAL, .mask = SAMPLE_NO_MASK};
    if (row->kind == STEP_ROW_SCORE) {
        filled =
            sampling_inputs_score_row(row->sequence, sequence_token(row->sequence, row->position));
        logprob_lists_add(&step->lists, NULL, 0, &filled);
    } else if (row->sequence->status != SEQUENCE_FINISHED) {
        const struct sampling_params *params = sequence_params(row->sequence);
        filled = fill_sampled(builder, step, &at, &row->lacks_mask);
        logprob_lists_add(&step->lists, params->logprob_tokens, params->num_logprob_tokens,
                          &filled);
    }
    return filled;
}

/* The result of a sequence that ended while the step was in flight is thrown away. Nothing but late
 * inputs is written: the executor may be reading the rest. */
void batch_builder_supply(struct batch_builder *builder, struct step *step) {
    struct batch_counts *counts = step->arena.counts;
    logprob_lists_clear(&step->lists);
    builder->mask_left = builder->mask_budget;
    for (int32_t i = 0; i < counts->num_sample_rows; i++)
        step->arena.sample_rows[i] = fill_row(builder, step, i);
    counts->num_listed = step->lists.num_tokens;
    step->batch.num_counts = counts->num_counts;
    step->batch.num_biases = counts->num_biases;
    step->batch.num_listed = counts->num_listed;
    step->batch.num_masks = counts->num_masks;
    step->awaits_supply = false;
}

/* --- Sequences --- */

/* Returns the token at that position, and -1 in *out_row; or any, where a step in flight samples it
 * in that row, or the draft model has yet to propose it. */
static int32_t token_at(const struct planned_sequence *entry, int32_t position, int32_t *out_row) {
    const struct sequence *sequence = entry->sequence;
    int32_t num_after = position - sequence->num_tokens;
    *out_row = -1;
    if (num_after < 0)
        return sequence_token(sequence, position);
    if (num_after < entry->num_drafts)
        return entry->num_draft_inputs > 0 ? 0 : sequence->drafts[num_after];
    CHECK(num_after == 0 && sequence->in_flight.num_samples == 1);
    *out_row = sequence->in_flight.sample_row;
    return 0;
}

static void add_token(struct batch_builder *builder, struct step *step,
                      struct planned_sequence *entry, int32_t index) {
    struct batch_arena *arena = &step->arena;
    int32_t position = entry->begin + index, i = arena->counts->num_tokens++;
    arena->token_ids[i] = token_at(entry, position, &arena->token_rows[i]);
    arena->counts->has_token_rows |= arena->token_rows[i] >= 0;
    arena->positions[i] = position;
    add_rows_after(builder, step, entry, index);
}

/* The entry's tokens were added last. A preempted sequence begins again with zeros. */
static void add_hidden_sum(struct batch_builder *builder, struct step *step,
                           struct planned_sequence *entry) {
    const struct sequence *sequence = entry->sequence;
    struct batch_counts *counts = step->arena.counts;
    enum pooling pooling = sequence_params(sequence)->pooling;
    bool is_complete = entry->begin + entry->num_tokens == sequence->num_tokens;
    if (pooling == POOLING_NONE || (pooling == POOLING_LAST && !is_complete))
        return;
    int32_t num_rows = pooling == POOLING_LAST ? 1 : entry->num_tokens;
    size_t width = (size_t)builder->limits->hidden_size;
    float *sum = step->arena.hidden_sums + (size_t)counts->num_hidden_sums * width;
    if (pooling == POOLING_MEAN && entry->begin > 0)
        memcpy(sum, sequence->hidden_sum, width * sizeof(*sum));
    else
        memset(sum, 0, width * sizeof(*sum));
    entry->hidden_sum = counts->num_hidden_sums++;
    step->arena.hidden_spans[entry->hidden_sum] =
        (struct row_span){counts->num_tokens - num_rows, num_rows};
}

/* The entry's rows were added before. */
static void add_draft_request(struct batch_builder *builder, struct step *step,
                              struct planned_sequence *entry, int32_t seq) {
    struct batch_arena *arena = &step->arena;
    struct batch_counts *counts = arena->counts;
    entry->first_draft = -1;
    if (entry->num_draft_inputs == 0)
        return;
    if (entry->num_drafts > 0)
        entry->first_draft = builder->num_drafts;
    builder->num_drafts += entry->num_drafts;
    arena->draft_requests[counts->num_draft_requests++] =
        (struct draft_request){.seq = seq,
                               .begin = entry->draft_begin,
                               .num_inputs = entry->num_draft_inputs,
                               .num_drafts = entry->num_drafts,
                               .first_row = entry->first_row + entry->num_scores};
    for (int32_t i = 0; i < entry->num_draft_inputs; i++)
        arena->draft_inputs[counts->num_draft_inputs++] =
            sequence_token(entry->sequence, entry->draft_begin + i);
}

/* Nothing reads the blocks that fell out of the window; their entries name a block there is. */
static void add_table(const struct batch_builder *builder, struct step *step,
                      const struct block_table *table, int32_t index) {
    const struct batch_counts *counts = step->arena.counts;
    for (int32_t group = 0; group < table->num_groups; group++) {
        size_t first = (size_t)group * (size_t)step->plan.num_entries + (size_t)index;
        int32_t *row = step->arena.block_tables + first * (size_t)counts->max_blocks_per_seq;
        memcpy(row, block_table_at(table, group, 0), (size_t)table->num_blocks * sizeof(*row));
        if (group >= builder->limits->num_full_groups)
            memset(row, 0, (size_t)table->num_dropped * sizeof(*row));
    }
}

/* The slots of a group come after those of all the step's tokens in the one before it. */
static void add_slots(const struct batch_builder *builder, struct step *step,
                      const struct planned_sequence *entry, int32_t first_token) {
    const struct block_table *table = &entry->sequence->table;
    for (int32_t group = 0; group < table->num_groups; group++) {
        int32_t *slots = step->arena.slot_mapping + (size_t)group * (size_t)step->plan.num_tokens;
        for (int32_t i = 0; i < entry->num_tokens; i++)
            slots[first_token + i] =
                block_table_slot(table, group, builder->limits->block_size, entry->begin + i);
    }
}

static void add_entry(struct batch_builder *builder, struct step *step,
                      struct planned_sequence *entry) {
    struct batch_counts *counts = step->arena.counts;
    int32_t index = counts->num_seqs++;
    CHECK(index < builder->limits->max_num_seqs);
    CHECK(counts->num_tokens + entry->num_tokens <= builder->limits->max_num_batched_tokens);
    entry->first_row = counts->num_sample_rows;
    for (int32_t i = 0; i < entry->num_tokens; i++)
        add_token(builder, step, entry, i);
    add_slots(builder, step, entry, counts->num_tokens - entry->num_tokens);
    step->arena.query_start[index + 1] = counts->num_tokens;
    step->arena.context_lens[index] = entry->begin + entry->num_tokens;
    const struct adapter *adapter = entry->sequence->request->adapter;
    step->arena.adapter_slots[index] = adapter != NULL ? adapter->slot : -1;
    counts->has_adapters |= adapter != NULL;
    add_hidden_sum(builder, step, entry);
    add_draft_request(builder, step, entry, index);
    add_table(builder, step, &entry->sequence->table, index);
    if (entry->samples && entry->sequence->in_flight.num_samples > 0)
        counts->has_late_inputs |= sampling_inputs_need_tokens(entry->sequence);
}

/* --- The step --- */

/* Rows of block tables are as long as this step needs: a device is sent them whole. */
static int32_t longest_table(const struct step_plan *plan) {
    int32_t longest = 0;
    for (int32_t i = 0; i < plan->num_entries; i++)
        if (plan->entries[i].sequence->table.num_blocks > longest)
            longest = plan->entries[i].sequence->table.num_blocks;
    return longest;
}

static int32_t copy_moves(const struct move_list *moves, int32_t *from, int32_t *to) {
    size_t bytes = (size_t)moves->count * sizeof(*from);
    memcpy(from, moves->from, bytes);
    memcpy(to, moves->to, bytes);
    return moves->count;
}

void batch_builder_build(struct batch_builder *builder, struct step *step,
                         const struct block_manager *blocks) {
    struct batch_arena *arena = &step->arena;
    *arena->counts = (struct batch_counts){
        .num_groups = serving_limits_groups(builder->limits),
        .max_blocks_per_seq = longest_table(&step->plan),
        .num_swap_out = copy_moves(&blocks->swap_out, arena->swap_out_from, arena->swap_out_to),
        .num_swap_in = copy_moves(&blocks->swap_in, arena->swap_in_from, arena->swap_in_to),
        .num_copies = copy_moves(&blocks->copies, arena->copy_from, arena->copy_to),
    };
    CHECK(arena->counts->max_blocks_per_seq <= serving_limits_max_blocks(builder->limits));
    arena->query_start[0] = 0;
    builder->num_drafts = 0;
    for (int32_t i = 0; i < step->plan.num_entries; i++)
        add_entry(builder, step, &step->plan.entries[i]);
    CHECK(arena->counts->num_groups == 1 || arena->counts->num_tokens == step->plan.num_tokens);
    step->result.num_sample_rows = 0;
    step->batch = batch_arena_view(arena);
    step->awaits_supply = step->batch.has_late_inputs;
    if (!step->awaits_supply)
        batch_builder_supply(builder, step);
}
