/* A call makes all moves, then writes the tokens of all sequences, then reads: so a slot that a
 * sequence reads below its own new tokens and that was written in the same call is another
 * one's. */
#include "tests/sim/fake_forward.h"

#include "tests/sim/fake_draft.h"
#include "tests/sim/fake_lora.h"

#include <stdio.h>
#include <string.h>

int fake_forward_violate(struct fake_executor *fake, const char *what, int64_t a, int64_t b) {
    if (fake->violation[0] == '\0')
        snprintf(fake->violation, sizeof(fake->violation), "call %llu: %s (%lld, %lld)",
                 (unsigned long long)fake->num_calls, what, (long long)a, (long long)b);
    return -1;
}

/* One side of a list of moves. */
struct side {
    struct shadow_slot *slots, *drafted;
    int32_t num_blocks;
};

/* The pairs of a list may be moved in any order, or all at once. */
static int check_moves(struct fake_executor *fake, const struct block_pairs *pairs,
                       const struct side *from, const struct side *to) {
    int32_t list = ++fake->num_lists;
    for (int32_t i = 0; i < pairs->count; i++) {
        if (pairs->from[i] < 0 || pairs->from[i] >= from->num_blocks)
            return fake_forward_violate(fake, "moves from no block", pairs->from[i],
                                        from->num_blocks);
        if (pairs->to[i] < 0 || pairs->to[i] >= to->num_blocks)
            return fake_forward_violate(fake, "moves to no block", pairs->to[i], to->num_blocks);
        if (fake->last_to[pairs->to[i]] == list)
            return fake_forward_violate(fake, "moves to a block twice", pairs->from[i],
                                        pairs->to[i]);
        fake->last_to[pairs->to[i]] = list;
        fake->last_from[pairs->from[i]] = list;
    }
    for (int32_t i = 0; i < pairs->count && from->slots == to->slots; i++)
        if (fake->last_from[pairs->to[i]] == list)
            return fake_forward_violate(fake, "moves from and to a block", pairs->from[i],
                                        pairs->to[i]);
    return 0;
}

static void copy_slots(const struct fake_executor *fake, const struct block_pairs *pairs,
                       const struct shadow_slot *from, struct shadow_slot *to) {
    size_t size = (size_t)fake->block_size;
    for (int32_t i = 0; i < pairs->count && from != NULL; i++)
        memcpy(to + (size_t)pairs->to[i] * size, from + (size_t)pairs->from[i] * size,
               size * sizeof(*to));
}

static int move_blocks(struct fake_executor *fake, const struct block_pairs *pairs,
                       const struct side *from, const struct side *to, uint64_t *count) {
    if (check_moves(fake, pairs, from, to) != 0)
        return -1;
    copy_slots(fake, pairs, from->slots, to->slots);
    copy_slots(fake, pairs, from->drafted, to->drafted);
    *count += (uint64_t)pairs->count;
    return 0;
}

static int make_moves(struct fake_executor *fake, const struct batch *batch) {
    struct side device = {fake->slots, fake->drafted, fake->num_blocks};
    struct side host = {fake->host, fake->drafted_host, fake->num_host_blocks};
    if (move_blocks(fake, &batch->swap_out, &device, &host, &fake->num_swapped_out) != 0 ||
        move_blocks(fake, &batch->swap_in, &host, &device, &fake->num_swapped_in) != 0)
        return -1;
    return move_blocks(fake, &batch->copies, &device, &device, &fake->num_copied);
}

static int32_t block_of(const struct fake_executor *fake, const struct step_inputs *in,
                        int32_t group, int32_t seq, int32_t position) {
    int32_t index = position / fake->block_size;
    if (index >= in->max_blocks_per_seq)
        return -1;
    int32_t block = step_table(in, group, seq)[index];
    return block < fake->num_blocks ? block : -1;
}

/* -1: the table has no block for it. */
static int32_t slot_of(const struct fake_executor *fake, const struct step_inputs *in,
                       int32_t group, int32_t seq, int32_t position) {
    int32_t block = block_of(fake, in, group, seq, position);
    return block < 0 ? -1 : block * fake->block_size + position % fake->block_size;
}

static uint64_t scope_of(const struct fake_executor *fake, int32_t seq) {
    return fake->scope_of != NULL ? fake->scope_of(fake->context, fake->running, seq) : 0;
}

/* First position that the sequence's first new token attends to. */
static int32_t first_attended(const struct fake_executor *fake, int32_t group, int32_t first_new) {
    bool has_window = fake->window > 0 && group >= fake->num_full_groups;
    return has_window && first_new >= fake->window ? first_new - fake->window + 1 : 0;
}

/* Takes the block for the sequence, whose alone it must be in this call. */
static int claim_block(struct fake_executor *fake, int32_t seq, int32_t block) {
    struct block_writer *writer = &fake->writers[block];
    if (writer->call == fake->num_calls && writer->seq != seq)
        return fake_forward_violate(fake, "block written by two sequences", block, seq);
    *writer = (struct block_writer){fake->num_calls, seq};
    return 0;
}

/* The hash of the history before the sequence's first new token. */
static int read_past(struct fake_executor *fake, const struct step_inputs *in, int32_t group,
                     int32_t seq, int32_t first_new, uint64_t *out) {
    *out = 0;
    if (first_new == 0)
        return 0;
    int32_t slot = slot_of(fake, in, group, seq, first_new - 1);
    if (slot < 0)
        return fake_forward_violate(fake, "no slot for what is computed", seq, first_new - 1);
    *out = fake->slots[slot].history;
    return 0;
}

/* Returns token i of the batch, which the step before may have sampled; -1: there is none. */
static int32_t token_of(struct fake_executor *fake, const struct step_inputs *in, int32_t i) {
    int32_t row = in->token_rows != NULL ? in->token_rows[i] : -1;
    if (row < 0)
        return in->token_ids[i];
    fake->num_token_rows++;
    return row < fake->num_sampled ? fake->sampled[row] : -1;
}

static int write_tokens(struct fake_executor *fake, const struct step_inputs *in, int32_t group,
                        int32_t seq) {
    int32_t begin = in->query_start[seq], end = in->query_start[seq + 1];
    int32_t first_new = in->context_lens[seq] - (end - begin);
    uint64_t history, scope = scope_of(fake, seq);
    if (end <= begin || first_new < 0)
        return fake_forward_violate(fake, "sequence without tokens, or with too many", seq,
                                    end - begin);
    if (read_past(fake, in, group, seq, first_new, &history) != 0)
        return -1;
    for (int32_t i = begin; i < end; i++) {
        int32_t position = first_new + i - begin;
        if (in->positions[i] != position)
            return fake_forward_violate(fake, "wrong position", in->positions[i], position);
        int32_t token = token_of(fake, in, i);
        if (token < 0 || token >= FAKE_VOCAB_SIZE)
            return fake_forward_violate(fake, "token outside the vocabulary, or of no sampled row",
                                        token, i);
        int32_t slot = slot_of(fake, in, group, seq, position), given = step_slots(in, group)[i];
        if (slot < 0 || given != slot)
            return fake_forward_violate(fake, "slot is not the table's", given, slot);
        if (claim_block(fake, seq, slot / fake->block_size) != 0)
            return -1;
        struct shadow_slot *shadow = &fake->slots[slot];
        if (shadow->call == fake->num_calls)
            return fake_forward_violate(fake, "slot written twice in one step", slot, seq);
        history = fake_model_hash(history, token);
        *shadow = (struct shadow_slot){token, position, history, scope, fake->num_calls, group};
    }
    return 0;
}

static int list_logprobs(struct fake_executor *fake, const struct batch *batch, int32_t row,
                         uint64_t history, float *out) {
    const struct sample_row *in = &batch->sample_rows[row];
    if (in->first_listed + in->num_listed > batch->num_listed)
        return fake_forward_violate(fake, "listed tokens out of range", row, in->num_listed);
    for (int32_t i = 0; i < in->num_listed; i++)
        out[in->first_listed_logprob + i] =
            fake_model_logprob(history, batch->listed_tokens[in->first_listed + i]);
    return 0;
}

static int fill_row(struct fake_executor *fake, const struct batch *batch, int32_t row,
                    uint64_t history, struct step_result *result) {
    const struct sample_row *in = &batch->sample_rows[row];
    struct sample_output *out = &result->rows[row];
    struct fake_sample sample = {
        .seed = in->seed,
        .position = in->position,
        .counts = batch->token_counts + in->first_count,
        .num_counts = in->num_counts,
        .biases = batch->token_biases + in->first_bias,
        .num_biases = in->num_biases,
        .mirostat_mu = in->settings.mirostat != 0 ? in->mirostat_mu : 0,
        .mask = in->mask == SAMPLE_NO_MASK
                    ? NULL
                    : batch->token_masks + in->mask * SAMPLE_MASK_WORDS(FAKE_VOCAB_SIZE),
    };
    if (in->mask != SAMPLE_NO_MASK && in->mask != fake->next_mask++)
        return fake_forward_violate(fake, "masks out of order", row, in->mask);
    if (in->first_count + in->num_counts > batch->num_counts ||
        in->first_bias + in->num_biases > batch->num_biases)
        return fake_forward_violate(fake, "counts or biases out of range", row, in->num_counts);
    if (in->num_logprobs > SAMPLE_MAX_LOGPROBS)
        return fake_forward_violate(fake, "number of logprobs", row, in->num_logprobs);
    *out = (struct sample_output){
        .token = in->target == SAMPLE_NO_TARGET ? fake_model_sample(history, &sample) : in->target,
    };
    if (in->settings.mirostat != 0)
        out->mirostat_mu = fake_model_next_mu(in->mirostat_mu, out->token);
    if (in->num_logprobs < 0)
        return 0;
    struct fake_distribution all;
    fake_model_distribution(history, &all);
    out->logprob = fake_model_logprob(history, out->token);
    out->rank = fake_model_rank(&all, out->token);
    out->num_top = in->num_logprobs;
    memcpy(out->top_tokens, all.tokens, (size_t)out->num_top * sizeof(*out->top_tokens));
    memcpy(out->top_logprobs, all.logprobs, (size_t)out->num_top * sizeof(*out->top_logprobs));
    return list_logprobs(fake, batch, row, history, result->listed_logprobs);
}

/* Adds the token's hidden state to the sums it belongs to. */
static void add_to_hidden_sums(const struct batch *batch, int32_t token, uint64_t history,
                               struct step_result *result) {
    for (int32_t p = 0; p < batch->num_hidden_sums; p++) {
        const struct row_span *span = &batch->hidden_spans[p];
        if (token < span->first_row || token >= span->first_row + span->num_rows)
            continue;
        for (int d = 0; d < FAKE_HIDDEN_SIZE; d++)
            result->hidden_sums[p * FAKE_HIDDEN_SIZE + d] += fake_model_state(history, d);
    }
}

/* Reads what the sequence attends to at a position. *history is that of the position before, if
 * `chained`, and becomes that of this one. */
static int attend(struct fake_executor *fake, const struct step_inputs *in, int32_t group,
                  int32_t seq, int32_t position, bool chained, uint64_t *history) {
    int32_t slot = slot_of(fake, in, group, seq, position);
    if (slot < 0 || fake->slots[slot].position != position || fake->slots[slot].group != group)
        return fake_forward_violate(fake, "attention reads a slot of another position", slot,
                                    position);
    const struct shadow_slot *shadow = &fake->slots[slot];
    const struct block_writer *writer = &fake->writers[slot / fake->block_size];
    int32_t first_new = in->context_lens[seq] - (in->query_start[seq + 1] - in->query_start[seq]);
    if (writer->call == fake->num_calls && writer->seq != seq)
        return fake_forward_violate(fake, "block held by one sequence, written by another", seq,
                                    writer->seq);
    if ((shadow->call == fake->num_calls) != (position >= first_new))
        return fake_forward_violate(fake, "attention reads what this step overwrote", slot,
                                    position);
    if (shadow->scope != scope_of(fake, seq))
        return fake_forward_violate(fake, "attention reads what another tenant or salt computed",
                                    slot, seq);
    if (chained && shadow->history != fake_model_hash(*history, shadow->token))
        return fake_forward_violate(fake, "attention reads a slot of another history", slot,
                                    position);
    *history = shadow->history;
    return 0;
}

/* Reads what one sequence attends to in the groups after the first. */
static int read_groups(struct fake_executor *fake, const struct step_inputs *in, int32_t seq) {
    int32_t context = in->context_lens[seq];
    int32_t first_new = context - (in->query_start[seq + 1] - in->query_start[seq]);
    for (int32_t group = 1; group < in->num_groups; group++) {
        int32_t first = first_attended(fake, group, first_new);
        uint64_t history = 0;
        for (int32_t position = first; position < context; position++)
            if (attend(fake, in, group, seq, position, position > first || first == 0, &history) !=
                0)
                return -1;
    }
    return 0;
}

/* Reads the history of one sequence; answers its rows, which start at *row, on the way. */
static int read_history(struct fake_executor *fake, const struct batch *batch, int32_t seq,
                        struct step_result *result, int32_t *row) {
    const struct step_inputs *in = &batch->inputs;
    int32_t query_end = in->query_start[seq + 1], context = in->context_lens[seq];
    int32_t first_new = context - (query_end - in->query_start[seq]);
    int32_t first = first_attended(fake, 0, first_new);
    uint64_t history = 0;
    if (read_groups(fake, in, seq) != 0)
        return -1;
    for (int32_t position = first; position < context; position++) {
        if (attend(fake, in, 0, seq, position, position > first || first == 0, &history) != 0)
            return -1;
        if (position < first_new)
            continue;
        int32_t token = query_end - (context - position);
        add_to_hidden_sums(batch, token, history, result);
        for (; *row < batch->num_sample_rows && batch->logit_rows[*row] == token; ++*row)
            if (fill_row(fake, batch, *row, history, result) != 0)
                return -1;
    }
    return 0;
}

static int check_batch(struct fake_executor *fake, const struct batch *batch) {
    const struct step_inputs *in = &batch->inputs;
    int32_t num_moves = batch->swap_out.count + batch->swap_in.count + batch->copies.count;
    if (in->num_tokens < 0 || in->num_tokens > fake->max_num_batched_tokens)
        return fake_forward_violate(fake, "tokens over budget", in->num_tokens,
                                    fake->max_num_batched_tokens);
    if (in->num_tokens == 0 &&
        (in->num_seqs > 0 || (num_moves == 0 && batch->num_adapter_writes == 0)))
        return fake_forward_violate(fake, "nothing to compute, nothing to move", in->num_seqs,
                                    num_moves);
    if (in->num_seqs > 0 &&
        (in->query_start[0] != 0 || in->query_start[in->num_seqs] != in->num_tokens))
        return fake_forward_violate(fake, "query_start does not cover the tokens", in->num_seqs,
                                    in->num_tokens);
    if (fake->max_num_seqs > 0 &&
        (in->num_seqs > fake->max_num_seqs ||
         batch->num_sample_rows > fake->max_num_batched_tokens + fake->max_num_seqs))
        return fake_forward_violate(fake, "sequences or rows over the limit", in->num_seqs,
                                    batch->num_sample_rows);
    if (batch->num_hidden_sums > in->num_seqs)
        return fake_forward_violate(fake, "number of hidden sums", batch->num_hidden_sums,
                                    in->num_seqs);
    return 0;
}

/* Those that fell out of the window name some block, too. */
static int check_tables(struct fake_executor *fake, const struct step_inputs *in) {
    for (int32_t group = 0; group < in->num_groups; group++)
        for (int32_t seq = 0; seq < in->num_seqs; seq++)
            for (int32_t p = 0; p < in->context_lens[seq]; p += fake->block_size)
                if (block_of(fake, in, group, seq, p) < 0)
                    return fake_forward_violate(fake, "block table without a block", seq, p);
    return 0;
}

/* Pieces come in order; the first one begins another adapter. */
static int write_rows(struct fake_executor *fake, const struct adapter_write *write,
                      const struct fake_lora_row *rows) {
    if (write->slot < 0 || write->slot >= LORA_MAX_SLOTS)
        return fake_forward_violate(fake, "slot of an adapter", write->slot, LORA_MAX_SLOTS);
    struct shadow_adapter *shadow = &fake->adapters[write->slot];
    if (write->rows.matrix == 0 && write->rows.first_row == 0)
        *shadow = (struct shadow_adapter){.number = rows[0].number};
    for (int32_t i = 0; i < write->rows.num_rows; i++, shadow->num_rows++)
        if (rows[i].number != shadow->number || rows[i].row != write->rows.first_row + i ||
            rows[i].matrix * FAKE_LORA_ROWS + rows[i].row != shadow->num_rows)
            return fake_forward_violate(fake, "row of an adapter", rows[i].row, shadow->num_rows);
    return 0;
}

static int write_adapters(struct fake_executor *fake, const struct batch *batch) {
    for (int32_t i = 0; i < batch->num_adapter_writes; i++) {
        const struct adapter_write *write = &batch->adapter_writes[i];
        const void *rows = batch->adapter_data + write->first_byte;
        if (write_rows(fake, write, rows) != 0)
            return -1;
        fake->num_written++;
        fake->num_written_idle += batch->inputs.num_tokens == 0;
    }
    return 0;
}

static int use_adapters(struct fake_executor *fake, const struct batch *batch) {
    const int32_t *slots = batch->inputs.adapter_slots;
    int32_t first = -1;
    bool is_mixed = false;
    for (int32_t seq = 0; seq < batch->inputs.num_seqs; seq++) {
        int32_t slot = slots != NULL ? slots[seq] : -1;
        const struct shadow_adapter *shadow = slot >= 0 ? &fake->adapters[slot] : NULL;
        uint64_t number = shadow != NULL ? shadow->number : 0;
        if (shadow != NULL && shadow->num_rows != 2 * FAKE_LORA_ROWS)
            return fake_forward_violate(fake, "an adapter is not complete", slot, shadow->num_rows);
        if (fake->adapter_of != NULL && fake->adapter_of(fake->context, batch, seq) != number)
            return fake_forward_violate(fake, "another adapter", slot, (int64_t)number);
        fake->num_adapted += slot >= 0;
        is_mixed |= first >= 0 && slot >= 0 && slot != first;
        first = slot >= 0 ? slot : first;
    }
    fake->num_mixed += is_mixed;
    return 0;
}

static int compute(struct fake_executor *fake, const struct batch *batch,
                   struct step_result *result) {
    for (int32_t group = 0; group < batch->inputs.num_groups; group++)
        for (int32_t seq = 0; seq < batch->inputs.num_seqs; seq++)
            if (write_tokens(fake, &batch->inputs, group, seq) != 0)
                return -1;
    if (batch->num_hidden_sums > 0)
        memcpy(result->hidden_sums, batch->hidden_sums,
               (size_t)batch->num_hidden_sums * FAKE_HIDDEN_SIZE * sizeof(float));
    int32_t row = 0;
    fake->next_mask = 0;
    for (int32_t seq = 0; seq < batch->inputs.num_seqs; seq++)
        if (read_history(fake, batch, seq, result, &row) != 0)
            return -1;
    if (row != batch->num_sample_rows)
        return fake_forward_violate(fake, "rows out of order", row, batch->num_sample_rows);
    if (fake->next_mask != batch->num_masks)
        return fake_forward_violate(fake, "masks left over", fake->next_mask, batch->num_masks);
    result->num_sample_rows = batch->num_sample_rows;
    return 0;
}

int fake_forward_run(struct fake_executor *fake, const struct batch *batch,
                     struct step_result *result) {
    if (check_batch(fake, batch) != 0 || check_tables(fake, &batch->inputs) != 0 ||
        write_adapters(fake, batch) != 0 || make_moves(fake, batch) != 0 ||
        use_adapters(fake, batch) != 0 || fake_draft_run(fake, batch, result) != 0)
        return -1;
    const struct batch filled = fake_draft_fill_in(fake, batch, result);
    return compute(fake, &filled, result);
}
