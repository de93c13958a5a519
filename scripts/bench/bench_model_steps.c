#include "scripts/bench/bench_model_steps.h"

#include "tests/kernels/device_bench.h"

#include <stdlib.h>

const char *const bench_model_sampling_names[NUM_SAMPLINGS] = {[SAMPLING_GREEDY] = "greedy",
                                                               [SAMPLING_TEMPERATURE] =
                                                                   "temperature",
                                                               [SAMPLING_TOP_P] = "top-p"};

static int32_t num_blocks(int32_t tokens) {
    return (tokens + BENCH_MODEL_BLOCK_SIZE - 1) / BENCH_MODEL_BLOCK_SIZE;
}

int32_t bench_model_steps_blocks(const struct bench_model_step *step) {
    return step->num_seqs * num_blocks(step->context) + num_blocks(step->chunk);
}

int32_t bench_model_steps_tokens(const struct bench_model_step *step) {
    return step->num_seqs * step->query + step->chunk;
}

double bench_model_steps_pairs(const struct bench_model_step *step) {
    double seqs = step->num_seqs, query = step->query, context = step->context;
    double chunk = step->chunk;
    return seqs * (query * (context - query) + query * (query + 1.0) / 2.0) +
           chunk * (chunk + 1.0) / 2.0;
}

double bench_model_steps_cached(const struct bench_model_step *step) {
    return (double)step->num_seqs * step->context + step->chunk;
}

/* The arrays of a batch, writable. */
struct arrays {
    int32_t *ids, *positions, *slots, *starts, *lens, *tables, *logit_rows;
    struct sample_row *rows;
};

static struct arrays alloc_arrays(size_t tokens, size_t seqs, size_t table_blocks) {
    return (struct arrays){
        .ids = device_bench_host(tokens, sizeof(int32_t)),
        .positions = device_bench_host(tokens, sizeof(int32_t)),
        .slots = device_bench_host(tokens, sizeof(int32_t)),
        .starts = device_bench_host(seqs + 1, sizeof(int32_t)),
        .lens = device_bench_host(seqs, sizeof(int32_t)),
        .tables = device_bench_host(seqs * table_blocks, sizeof(int32_t)),
        .logit_rows = device_bench_host(seqs, sizeof(int32_t)),
        .rows = device_bench_host(seqs, sizeof(struct sample_row)),
    };
}

/* One more sequence: the last `query` of `context` tokens, in the blocks of its table. */
static void append(struct batch *batch, const struct arrays *a, int32_t query, int32_t context) {
    struct step_inputs *inputs = &batch->inputs;
    int32_t seq = inputs->num_seqs++;
    const int32_t *table = a->tables + (size_t)seq * (size_t)inputs->max_blocks_per_seq;
    for (int32_t position = context - query; position < context; position++) {
        int32_t at = inputs->num_tokens++;
        a->positions[at] = position;
        a->slots[at] = table[position / BENCH_MODEL_BLOCK_SIZE] * BENCH_MODEL_BLOCK_SIZE +
                       position % BENCH_MODEL_BLOCK_SIZE;
    }
    a->starts[seq + 1] = inputs->num_tokens;
    a->lens[seq] = context;
}

static struct sample_row sample_row_of(enum bench_model_sampling sampling, int32_t seq) {
    return (struct sample_row){.target = SAMPLE_NO_TARGET,
                               .num_logprobs = -1,
                               .seed = (uint64_t)seq,
                               .settings.temperature = sampling == SAMPLING_GREEDY ? 0.0F : 1.0F,
                               .settings.top_p = sampling == SAMPLING_TOP_P ? 0.9F : 1.0F,
                               .settings.repetition_penalty = 1.0F,
                               .mask = SAMPLE_NO_MASK};
}

/* Block ids go round the sequences, so that those of one lie apart; the chunk's come last. */
void bench_model_steps_build(const struct bench_model_step *step, int32_t vocab_size,
                             struct batch *out_batch, struct step_result *out_result) {
    int32_t blocks = num_blocks(step->context), of_chunk = num_blocks(step->chunk);
    int32_t seqs = step->num_seqs, tokens = bench_model_steps_tokens(step);
    int32_t row = blocks > of_chunk ? blocks : of_chunk;
    const struct arrays a = alloc_arrays((size_t)tokens, (size_t)seqs + 1, (size_t)row);
    *out_batch = (struct batch){.inputs = {.max_blocks_per_seq = row,
                                           .token_ids = a.ids,
                                           .positions = a.positions,
                                           .slot_mapping = a.slots,
                                           .query_start = a.starts,
                                           .context_lens = a.lens,
                                           .block_tables = a.tables},
                                .num_sample_rows = seqs,
                                .logit_rows = a.logit_rows,
                                .sample_rows = a.rows};
    for (int32_t seq = 0; seq < seqs; seq++) {
        for (int32_t i = 0; i < blocks; i++)
            a.tables[seq * row + i] = i * seqs + seq;
        append(out_batch, &a, step->query, step->context);
        a.logit_rows[seq] = a.starts[seq + 1] - 1;
        a.rows[seq] = sample_row_of(step->sampling, seq);
    }
    for (int32_t i = 0; i < of_chunk; i++)
        a.tables[seqs * row + i] = blocks * seqs + i;
    if (step->chunk > 0)
        append(out_batch, &a, step->chunk, step->chunk);
    for (int32_t i = 0; i < tokens; i++)
        a.ids[i] = (int32_t)((uint32_t)i * 2654435761U % (uint32_t)vocab_size);
    *out_result =
        (struct step_result){.rows = device_bench_host((size_t)seqs, sizeof(*out_result->rows))};
    for (int32_t seq = 0; seq < seqs; seq++)
        out_result->rows[seq].token = -1;
}

void bench_model_steps_free(struct batch *batch, struct step_result *result) {
    const struct step_inputs *inputs = &batch->inputs;
    free((void *)inputs->token_ids);
    free((void *)inputs->positions);
    free((void *)inputs->slot_mapping);
    free((void *)inputs->query_start);
    free((void *)inputs->context_lens);
    free((void *)inputs->block_tables);
    free((void *)batch->logit_rows);
    free((void *)batch->sample_rows);
    free(result->rows);
}
