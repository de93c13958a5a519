#include "tests/sim/fake_executor.h"

#include "config/check.h"
#include "tests/sim/fake_tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", OOPSLA 2014). */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t fake_model_hash(uint64_t hash, int32_t token) {
    return mix(hash * 31 + (uint64_t)token + 1);
}

static bool is_banned(const struct fake_draw *draw, int32_t token) {
    if (draw->mask != NULL && (draw->mask[token / 32] >> (token % 32) & 1) == 0)
        return true;
    for (int32_t i = 0; i < draw->num_biases; i++)
        if (draw->biases[i].token == token && isinf(draw->biases[i].bias))
            return true;
    return false;
}

int32_t fake_model_draw(uint64_t history, const struct fake_draw *draw) {
    uint64_t hash = mix(history ^ mix(draw->seed) ^ mix(mix(draw->position)));
    for (int32_t i = 0; i < draw->num_counts; i++)
        hash +=
            mix(((uint64_t)draw->counts[i].token << 32) + (uint64_t)draw->counts[i].output_count);
    for (int32_t i = 0; i < draw->num_biases; i++)
        if (!isinf(draw->biases[i].bias))
            hash +=
                mix((uint64_t)draw->biases[i].token) * (uint64_t)lrintf(draw->biases[i].bias * 8);
    for (uint64_t k = 0;; k++) {
        int32_t token = (int32_t)(mix(hash + k) % FAKE_VOCAB_SIZE);
        if (!is_banned(draw, token) || k > 1000)
            return token;
    }
}

float fake_model_logprob(uint64_t history, int32_t token) {
    return -(float)(mix(history + (uint64_t)token) % 4096) / 256;
}

int32_t fake_model_top_token(uint64_t history, int index) {
    return (int32_t)(mix(history - 1 - (uint64_t)index) % FAKE_VOCAB_SIZE);
}

float fake_model_state(uint64_t history, int dimension) {
    return (float)(mix(history ^ (uint64_t)(dimension + 1)) % 1000) - 500;
}

static int violate(struct fake_executor *fake, const char *what, int64_t a, int64_t b) {
    if (fake->violation[0] == '\0')
        snprintf(fake->violation, sizeof(fake->violation), "call %llu: %s (%lld, %lld)",
                 (unsigned long long)fake->num_calls, what, (long long)a, (long long)b);
    return -1;
}

static int32_t slot_of(const struct fake_executor *fake, const struct step_inputs *in, int32_t seq,
                       int32_t position) {
    int32_t block =
        in->block_tables[(int64_t)seq * in->max_blocks_per_seq + position / fake->block_size];
    if (block < 0 || block >= fake->num_blocks)
        return -1;
    return block * fake->block_size + position % fake->block_size;
}

static int write_tokens(struct fake_executor *fake, const struct step_inputs *in, int32_t seq) {
    int32_t begin = in->query_start[seq], end = in->query_start[seq + 1];
    if (end <= begin)
        return violate(fake, "sequence without tokens", seq, end - begin);
    for (int32_t i = begin; i < end; i++) {
        int32_t position = in->context_lens[seq] - (end - i);
        if (position < 0 || in->positions[i] != position)
            return violate(fake, "wrong position", in->positions[i], position);
        if (in->token_ids[i] < 0 || in->token_ids[i] >= FAKE_VOCAB_SIZE)
            return violate(fake, "token outside the vocabulary", in->token_ids[i], i);
        int32_t slot = slot_of(fake, in, seq, position);
        if (slot < 0 || in->slot_mapping[i] != slot)
            return violate(fake, "slot is not the table's", in->slot_mapping[i], slot);
        struct shadow_slot *shadow = &fake->slots[slot];
        if (shadow->step == fake->num_calls)
            return violate(fake, "slot written twice in one step", slot, seq);
        *shadow = (struct shadow_slot){in->token_ids[i], position, fake->num_calls};
    }
    return 0;
}

static int fill_row(struct fake_executor *fake, const struct batch *batch, int32_t row,
                    uint64_t history, struct sample_output *out) {
    const struct sample_row *in = &batch->sample_rows[row];
    struct fake_draw draw = {
        .seed = in->seed,
        .position = in->position,
        .counts = batch->token_counts + in->first_count,
        .num_counts = in->num_counts,
        .biases = batch->token_biases + in->first_bias,
        .num_biases = in->num_biases,
        .mask = in->mask == SAMPLE_NO_MASK
                    ? NULL
                    : batch->token_masks + in->mask * SAMPLE_MASK_WORDS(FAKE_VOCAB_SIZE),
    };
    if (in->mask != SAMPLE_NO_MASK && in->mask != fake->next_mask++)
        return violate(fake, "masks out of order", row, in->mask);
    if (in->first_count + in->num_counts > batch->num_counts ||
        in->first_bias + in->num_biases > batch->num_biases)
        return violate(fake, "counts or biases out of range", row, in->num_counts);
    out->token = in->target == SAMPLE_NO_TARGET ? fake_model_draw(history, &draw) : in->target;
    out->logprob = fake_model_logprob(history, out->token);
    out->rank = 1;
    out->num_top = in->num_logprobs > 0 ? in->num_logprobs : 0;
    for (int i = 0; i < out->num_top; i++) {
        out->top_tokens[i] = fake_model_top_token(history, i);
        out->top_logprobs[i] = fake_model_logprob(history, out->top_tokens[i]);
    }
    return 0;
}

/* Adds the token's state to the pools it belongs to. */
static void add_to_pools(const struct batch *batch, int32_t token, uint64_t history,
                         struct step_result *result) {
    for (int32_t p = 0; p < batch->num_pools; p++) {
        const struct row_span *span = &batch->pool_spans[p];
        if (token < span->first_row || token >= span->first_row + span->num_rows)
            continue;
        for (int d = 0; d < FAKE_HIDDEN_SIZE; d++)
            result->pool_sums[p * FAKE_HIDDEN_SIZE + d] += fake_model_state(history, d);
    }
}

/* Reads the history of one sequence; answers its rows, which start at *row, on the way. */
static int run_sequence(struct fake_executor *fake, const struct batch *batch, int32_t seq,
                        struct step_result *result, int32_t *row) {
    const struct step_inputs *in = &batch->inputs;
    int32_t query_end = in->query_start[seq + 1], context = in->context_lens[seq];
    uint64_t history = 0;
    for (int32_t position = 0; position < context; position++) {
        int32_t slot = slot_of(fake, in, seq, position);
        if (slot < 0 || fake->slots[slot].position != position)
            return violate(fake, "attention reads a slot of another position", slot, position);
        history = fake_model_hash(history, fake->slots[slot].token);
        int32_t token = query_end - (context - position);
        if (token >= in->query_start[seq])
            add_to_pools(batch, token, history, result);
        if (*row < batch->num_rows && batch->logit_rows[*row] == token) {
            if (fill_row(fake, batch, *row, history, &result->rows[*row]) != 0)
                return -1;
            ++*row;
        }
    }
    return 0;
}

static int check_batch(struct fake_executor *fake, const struct batch *batch,
                       const struct step_result *result) {
    const struct step_inputs *in = &batch->inputs;
    if (in->num_tokens < 1 || in->num_tokens > fake->max_num_batched_tokens)
        return violate(fake, "tokens over budget", in->num_tokens, fake->max_num_batched_tokens);
    if (in->query_start[0] != 0 || in->query_start[in->num_seqs] != in->num_tokens)
        return violate(fake, "query_start does not cover the tokens", in->num_seqs, in->num_tokens);
    if (batch->num_rows > in->num_tokens || result->num_rows != batch->num_rows)
        return violate(fake, "number of rows", batch->num_rows, result->num_rows);
    if (batch->num_pools > in->num_seqs)
        return violate(fake, "number of pools", batch->num_pools, in->num_seqs);
    return 0;
}

static int run(struct executor *executor, const struct batch *batch, struct step_result *result,
               struct error *err) {
    struct fake_executor *fake = (struct fake_executor *)executor;
    fake->num_calls++;
    if (fake->delay_us > 0)
        usleep((useconds_t)fake->delay_us);
    if (fake->fail_at_call > 0 && fake->num_calls >= fake->fail_at_call)
        return error_set(err, ERROR_DEVICE, "scripted failure");
    int status = check_batch(fake, batch, result);
    for (int32_t seq = 0; seq < batch->inputs.num_seqs && status == 0; seq++)
        status = write_tokens(fake, &batch->inputs, seq);
    if (batch->num_pools > 0)
        memcpy(result->pool_sums, batch->pool_sums,
               (size_t)batch->num_pools * FAKE_HIDDEN_SIZE * sizeof(float));
    int32_t row = 0;
    fake->next_mask = 0;
    for (int32_t seq = 0; seq < batch->inputs.num_seqs && status == 0; seq++)
        status = run_sequence(fake, batch, seq, result, &row);
    if (status == 0 && row != batch->num_rows)
        status = violate(fake, "rows out of order", row, batch->num_rows);
    if (status == 0 && fake->next_mask != batch->num_masks)
        status = violate(fake, "masks left over", fake->next_mask, batch->num_masks);
    return status == 0 ? 0 : error_set(err, ERROR_DEVICE, "%s", fake->violation);
}

static void destroy(struct executor *executor) {
    fake_executor_finish((struct fake_executor *)executor);
}

void fake_executor_init(struct fake_executor *fake, int32_t num_blocks, int32_t block_size,
                        int32_t max_num_batched_tokens) {
    static const struct executor_ops ops = {.run = run, .destroy = destroy};
    *fake = (struct fake_executor){
        .base = {.ops = &ops},
        .block_size = block_size,
        .num_blocks = num_blocks,
        .max_num_batched_tokens = max_num_batched_tokens,
        .slots = calloc((size_t)num_blocks * (size_t)block_size, sizeof(*fake->slots)),
    };
    CHECK(fake->slots != NULL);
    for (int64_t i = 0; i < (int64_t)num_blocks * block_size; i++)
        fake->slots[i].position = -1;
}

void fake_executor_finish(struct fake_executor *fake) {
    free(fake->slots);
    fake->slots = NULL;
}
