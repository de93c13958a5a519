#include "tests/sim/fake_draft.h"

#include "config/base/check.h"
#include "tests/sim/fake_forward.h"

#include <string.h>

/* Of one of the memories. NULL: the table has no block for it. */
/* It is in the blocks of the first group. */
static bool sees_all(const struct fake_executor *fake) {
    return fake->window == 0 || fake->num_full_groups > 0;
}

static struct shadow_slot *slot_in(struct fake_executor *fake, struct shadow_slot *memory,
                                   const struct step_inputs *in, int32_t seq, int32_t position) {
    int32_t index = position / fake->block_size;
    if (position < 0 || index >= in->max_blocks_per_seq)
        return NULL;
    int32_t block = in->block_tables[(int64_t)seq * in->max_blocks_per_seq + index];
    return block < 0 || block >= fake->num_blocks
               ? NULL
               : &memory[(int64_t)block * fake->block_size + position % fake->block_size];
}

static struct shadow_slot *slot_at(struct fake_executor *fake, const struct step_inputs *in,
                                   int32_t seq, int32_t position) {
    return slot_in(fake, fake->drafted, in, seq, position);
}

/* --- An MTP layer ---
 * Each slot has the token after its own, and the history that the model had there. That token may
 * be another sequence's, where a block ends. */

/* The model's history up to a position, which it has computed. */
static int read_state(struct fake_executor *fake, const struct step_inputs *in, int32_t seq,
                      int32_t position, uint64_t *out) {
    const struct shadow_slot *slot = slot_in(fake, fake->slots, in, seq, position);
    if (slot == NULL || slot->position != position)
        return fake_forward_violate(fake, "the model has no state there", seq, position);
    *out = slot->history;
    return 0;
}

static int read_states_before(struct fake_executor *fake, const struct step_inputs *in,
                              const struct draft_request *request, uint64_t *out_history) {
    uint64_t history = 0;
    for (int32_t p = 0; p < request->begin - 1 && sees_all(fake); p++) {
        const struct shadow_slot *slot = slot_at(fake, in, request->seq, p);
        if (slot == NULL || slot->position != p)
            return fake_forward_violate(fake, "the layer lacks a token", request->seq, p);
        if (read_state(fake, in, request->seq, p, &history) != 0)
            return -1;
        if (slot->history != history)
            return fake_forward_violate(fake, "it has a state of another history", request->seq, p);
    }
    return read_state(fake, in, request->seq, request->begin - 1, out_history);
}

static int write_behind(struct fake_executor *fake, const struct step_inputs *in, int32_t seq,
                        int32_t position, int32_t token, uint64_t *history) {
    struct shadow_slot *slot = slot_at(fake, in, seq, position - 1);
    if (slot == NULL)
        return fake_forward_violate(fake, "no slot for what is drafted", seq, position);
    if (slot->position == position - 1 && slot->call == fake->num_calls && slot->token != token)
        return fake_forward_violate(fake, "two tokens in one slot", seq, position);
    uint64_t scope = fake->scope_of != NULL ? fake->scope_of(fake->context, fake->running, seq) : 0;
    *slot = (struct shadow_slot){token, position - 1, *history, scope, fake->num_calls};
    *history = fake_model_hash(*history, token);
    return 0;
}

/* --- Any drafter --- */

/* Reads what comes before the request's inputs. With a window some of it may be gone. */
static int read_before(struct fake_executor *fake, const struct step_inputs *in,
                       const struct draft_request *request, uint64_t *out_history) {
    *out_history = 0;
    if (fake->has_mtp)
        return read_states_before(fake, in, request, out_history);
    for (int32_t p = 0; p < request->begin && sees_all(fake); p++) {
        const struct shadow_slot *slot = slot_at(fake, in, request->seq, p);
        if (slot == NULL || slot->position != p)
            return fake_forward_violate(fake, "the draft model lacks a token", request->seq, p);
        if (slot->history != fake_model_hash(*out_history, slot->token))
            return fake_forward_violate(fake, "it has a token of another history", request->seq, p);
        *out_history = slot->history;
    }
    return 0;
}

static int write_token(struct fake_executor *fake, const struct step_inputs *in, int32_t seq,
                       int32_t position, int32_t token, uint64_t *history) {
    if (fake->has_mtp)
        return write_behind(fake, in, seq, position, token, history);
    struct shadow_slot *slot = slot_at(fake, in, seq, position);
    if (slot == NULL)
        return fake_forward_violate(fake, "no slot for what is drafted", seq, position);
    *history = fake_model_hash(*history, token);
    uint64_t scope = fake->scope_of != NULL ? fake->scope_of(fake->context, fake->running, seq) : 0;
    *slot = (struct shadow_slot){token, position, *history, scope, fake->num_calls};
    return 0;
}

static int32_t propose(const struct batch *batch, const struct draft_request *request, int32_t i,
                       uint64_t history) {
    const struct sample_row *row = &batch->sample_rows[request->first_row + i];
    const struct fake_sample sample = {.seed = row->seed,
                                       .position = row->position,
                                       .biases = batch->token_biases + row->first_bias,
                                       .num_biases = row->num_biases};
    int32_t right = fake_model_sample(history, &sample);
    return history / 8 % 3 == 0 ? (right + 1) % FAKE_VOCAB_SIZE : right;
}

static int run_request(struct fake_executor *fake, const struct batch *batch,
                       const struct draft_request *request, const int32_t *inputs,
                       int32_t *drafts) {
    const struct step_inputs *in = &batch->inputs;
    int32_t end = request->begin + request->num_inputs;
    uint64_t history = 0;
    if (request->seq < 0 || request->seq >= in->num_seqs || request->num_inputs < 1)
        return fake_forward_violate(fake, "a draft of no sequence", request->seq,
                                    request->num_inputs);
    if (request->num_drafts > 0 && end != in->context_lens[request->seq] - request->num_drafts)
        return fake_forward_violate(fake, "drafts are not at the end", end, request->num_drafts);
    if (read_before(fake, in, request, &history) != 0)
        return -1;
    for (int32_t i = 0; i < request->num_inputs; i++)
        if (write_token(fake, in, request->seq, request->begin + i, inputs[i], &history) != 0)
            return -1;
    for (int32_t i = 0; i < request->num_drafts; i++) {
        const struct sample_row *row = &batch->sample_rows[request->first_row + i];
        if (row->position != (uint64_t)(end + i))
            return fake_forward_violate(fake, "a draft of another row", end + i,
                                        request->first_row);
        drafts[i] = propose(batch, request, i, history);
        if (i < request->num_drafts - 1 &&
            write_token(fake, in, request->seq, end + i, drafts[i], &history) != 0)
            return -1;
        fake->num_model_drafts++;
    }
    return 0;
}

int fake_draft_run(struct fake_executor *fake, const struct batch *batch,
                   struct step_result *result) {
    const int32_t *inputs = batch->draft_inputs;
    int32_t *drafts = result->drafts;
    if (batch->num_draft_requests == 0)
        return 0;
    if (fake->drafted == NULL || batch->has_late_inputs || fake->num_submitted > 1)
        return fake_forward_violate(fake, "drafts that cannot be", fake->num_submitted,
                                    batch->has_late_inputs);
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        const struct draft_request *request = &batch->draft_requests[i];
        if (run_request(fake, batch, request, inputs, drafts) != 0)
            return -1;
        inputs += request->num_inputs;
        drafts += request->num_drafts;
        fake->num_missed += (uint64_t)request->num_inputs;
    }
    if (inputs - batch->draft_inputs > fake->max_num_batched_tokens)
        return fake_forward_violate(fake, "inputs over budget", inputs - batch->draft_inputs, 0);
    return 0;
}

struct batch fake_draft_fill_in(struct fake_executor *fake, const struct batch *batch,
                                const struct step_result *result) {
    struct batch filled = *batch;
    const int32_t *drafts = result->drafts;
    if (batch->num_draft_requests == 0)
        return filled;
    memcpy(fake->token_ids, batch->inputs.token_ids,
           (size_t)batch->inputs.num_tokens * sizeof(*fake->token_ids));
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        const struct draft_request *request = &batch->draft_requests[i];
        int32_t end = batch->inputs.query_start[request->seq + 1];
        for (int32_t k = 0; k < request->num_drafts; k++)
            fake->token_ids[end - request->num_drafts + k] = *drafts++;
    }
    filled.inputs.token_ids = fake->token_ids;
    return filled;
}
