#include "scripts/paged_memory/trace_executor.h"

#include "config/base/check.h"
#include "scripts/paged_memory/beam_rows.h"
#include "scripts/paged_memory/gpu_model.h"
#include "scripts/paged_memory/hash.h"
#include "tests/sim/fake_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define NUM_PLAIN_TOKENS (FAKE_VOCAB_SIZE - FAKE_FIRST_PLAIN)
#define PROMPT_POSITION 2 /* every prompt is longer */

static struct step_load load_of(const struct step_inputs *inputs) {
    struct step_load load = {.num_sequences = inputs->num_seqs};
    for (int32_t i = 0; i < inputs->num_seqs; i++) {
        int32_t num_tokens = inputs->query_start[i + 1] - inputs->query_start[i];
        load.num_context_tokens += inputs->context_lens[i];
        load.num_prompt_tokens += num_tokens > 1 ? num_tokens : 0;
    }
    return load;
}

static void copy_blocks(struct trace_executor *trace, const struct block_pairs *copies) {
    size_t block_size = (size_t)trace->block_size;
    for (int32_t i = 0; i < copies->count; i++)
        memcpy(trace->histories + (size_t)copies->to[i] * block_size,
               trace->histories + (size_t)copies->from[i] * block_size,
               block_size * sizeof(*trace->histories));
}

static uint64_t *history_at(const struct trace_executor *trace, const struct step_inputs *inputs,
                            int32_t seq, int32_t position) {
    const int32_t *table = inputs->block_tables + (int64_t)seq * inputs->max_blocks_per_seq;
    int32_t block = table[position / trace->block_size];
    return &trace->histories[block * trace->block_size + position % trace->block_size];
}

static void compute_sequence(struct trace_executor *trace, const struct step_inputs *inputs,
                             int32_t seq) {
    int32_t end = inputs->query_start[seq + 1];
    for (int32_t i = inputs->query_start[seq]; i < end; i++) {
        int32_t position = inputs->positions[i];
        uint64_t before = position > 0 ? *history_at(trace, inputs, seq, position - 1) : 0;
        *history_at(trace, inputs, seq, position) =
            hash_mix(before + hash_mix((uint64_t)inputs->token_ids[i]));
    }
}

/* Ordinary tokens, all different. */
static int32_t token_of(uint64_t random, int32_t index) {
    return FAKE_FIRST_PLAIN + (int32_t)((random + (uint64_t)index) % NUM_PLAIN_TOKENS);
}

static void answer(const struct trace_executor *trace, const struct step_inputs *inputs,
                   int32_t seq, const struct sample_row *row, struct sample_output *out) {
    int32_t position = (int32_t)row->position - 1;
    uint64_t history = *history_at(trace, inputs, seq, position);
    uint64_t random = hash_mix(history + row->seed);
    *out = (struct sample_output){.token = token_of(random, 0)};
    if (row->num_logprobs <= 0)
        return;
    CHECK(row->num_logprobs <= BEAM_ROW_LOGPROBS);
    uint64_t prompt = *history_at(trace, inputs, seq, PROMPT_POSITION);
    const int16_t *logprobs = beam_row_choose(history, prompt, position);
    out->num_top = row->num_logprobs;
    for (int32_t i = 0; i < out->num_top; i++) {
        out->top_tokens[i] = token_of(random, i);
        out->top_logprobs[i] = (float)logprobs[i] / 1000;
    }
    out->logprob = out->top_logprobs[0];
}

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct trace_executor *trace = (struct trace_executor *)executor;
    CHECK(trace->batch == NULL && !batch->has_late_inputs);
    trace->batch = batch;
    trace->result = result;
}

static int wait(struct executor *executor, struct error *err) {
    struct trace_executor *trace = (struct trace_executor *)executor;
    const struct batch *batch = trace->batch;
    struct step_result *result = trace->result;
    const struct step_inputs *inputs = &batch->inputs;
    CHECK(batch->swap_out.count == 0 && batch->swap_in.count == 0);
    copy_blocks(trace, &batch->copies);
    int32_t row = 0;
    for (int32_t seq = 0; seq < inputs->num_seqs; seq++) {
        compute_sequence(trace, inputs, seq);
        for (;
             row < batch->num_sample_rows && batch->logit_rows[row] < inputs->query_start[seq + 1];
             row++)
            answer(trace, inputs, seq, &batch->sample_rows[row], &result->rows[row]);
    }
    result->num_sample_rows = batch->num_sample_rows;
    struct step_load load = load_of(inputs);
    double seconds = gpu_step_seconds(&load);
    trace->on_step(trace->context, seconds);
    trace->now_s += seconds;
    trace->batch = NULL;
    return 0;
}

/* No batch has late inputs. */
static void supply(struct executor *executor) {
    CHECK(false);
}

static void destroy(struct executor *executor) {
    trace_executor_finish((struct trace_executor *)executor);
}

int trace_executor_init(struct trace_executor *executor, int32_t num_blocks, int32_t block_size) {
    static const struct executor_ops ops = {
        .submit = submit, .supply = supply, .wait = wait, .destroy = destroy, EXECUTOR_RUNS_STEPS};
    *executor = (struct trace_executor){.base = {.ops = &ops}, .block_size = block_size};
    executor->histories =
        calloc((size_t)num_blocks * (size_t)block_size, sizeof(*executor->histories));
    return executor->histories != NULL ? 0 : -1;
}

void trace_executor_finish(struct trace_executor *executor) {
    free(executor->histories);
    executor->histories = NULL;
}
