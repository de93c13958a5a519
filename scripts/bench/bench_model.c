/* Speed of a whole model on a device: the forward pass with greedy sampling, one line of JSON for
 * each kind of step (tests/kernels/device_bench.h).
 *
 *   bench_model DEVICE bf16|f16 MODEL [OPTION VALUE]...
 *
 *   batches, contexts   lists as in 1,8,32: decode steps of every batch at every context
 *   prompts             a list: steps that take in a whole prompt
 *   pool-mib            of the KV cache; what needs more is left out
 *   batch-us            length of a timed batch of steps
 *   batch-invariant     1: the device is opened so
 *
 * A step is timed with what the host does for it, from llama_step's call to its return. The same
 * step is done over and over; its context is made of random numbers. */
#include "models/llama.h"
#include "kernels/kv_type.h"
#include "tests/kernels/device_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 16, BLOCK_SIZE = 16 };

struct list {
    int num_values;
    int32_t values[MAX_LIST];
};

struct settings {
    struct list batches, contexts, prompts;
    int64_t pool_mib, batch_us, batch_invariant;
};

struct model_bench {
    struct device_bench bench;
    struct model *model;
    struct model_shard shard;
    struct weights *weights;
    struct serving_limits limits;
    struct llama *llama;
    struct kv_cache cache;
    struct batch batch;
    struct step_result result;
};

/* --- Settings --------------------------------------------------------------------------------- */

static int64_t read_number(const char *name, const char **text, int64_t most) {
    char *end;
    long long value = strtoll(*text, &end, 10);
    if (end == *text || value < 0 || value > most)
        device_bench_fail("%s: %s (allowed: 0 to %lld)", name, *text, (long long)most);
    *text = end;
    return value;
}

static void read_list(const char *name, const char *text, struct list *out) {
    for (out->num_values = 0; out->num_values < MAX_LIST; text++) {
        out->values[out->num_values++] = (int32_t)read_number(name, &text, 1 << 20);
        if (out->values[out->num_values - 1] == 0)
            device_bench_fail("%s: 0 (allowed: 1 to %d)", name, 1 << 20);
        if (*text != ',')
            break;
    }
    if (*text != '\0')
        device_bench_fail("%s: more than %d numbers, or not a number at %s", name, MAX_LIST, text);
}

static void read_setting(struct settings *s, const char *name, const char *text) {
    if (strcmp(name, "batches") == 0)
        read_list(name, text, &s->batches);
    else if (strcmp(name, "contexts") == 0)
        read_list(name, text, &s->contexts);
    else if (strcmp(name, "prompts") == 0)
        read_list(name, text, &s->prompts);
    else if (strcmp(name, "pool-mib") == 0)
        s->pool_mib = read_number(name, &text, 1 << 24);
    else if (strcmp(name, "batch-us") == 0)
        s->batch_us = read_number(name, &text, 1 << 30);
    else if (strcmp(name, "batch-invariant") == 0)
        s->batch_invariant = read_number(name, &text, 1);
    else
        device_bench_fail("unknown option %s", name);
}

static int32_t largest(const struct list *list) {
    int32_t most = 1;
    for (int i = 0; i < list->num_values; i++)
        most = list->values[i] > most ? list->values[i] : most;
    return most;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* --- A model ready to run --------------------------------------------------------------------- */

static void open_cache(struct model_bench *m, size_t pool_bytes) {
    const struct model_config *config = &m->model->config;
    m->cache.layout = (struct kv_layout){
        .num_layers = config->num_layers,
        .num_kv_heads = config->num_kv_heads,
        .head_dim = config->head_dim,
        .block_size = BLOCK_SIZE,
        .type = backend_kv_type(m->bench.backend, kv_type_of_dtype(m->bench.dtype))};
    m->cache.num_blocks = (int32_t)(pool_bytes / kv_block_bytes(&m->cache.layout));
    size_t elements = pool_bytes / kv_type_bytes(m->cache.layout.type);
    m->cache.buffer =
        device_bench_buffer(&m->bench, kv_type_dtype(m->cache.layout.type), 1.0F, elements);
}

static void open_model(struct model_bench *m, int argc, char **argv, const struct settings *s) {
    struct error err = {0};
    if (model_open(argv[3], &m->model, &err) != 0)
        device_bench_fail("%s", err.message);
    int32_t length = larger(largest(&s->contexts), largest(&s->prompts));
    int32_t tokens = larger(largest(&s->batches), largest(&s->prompts));
    m->limits = (struct serving_limits){.max_num_seqs = largest(&s->batches),
                                        .max_num_batched_tokens = tokens,
                                        .max_logit_rows = largest(&s->batches),
                                        .max_model_len = length + BLOCK_SIZE,
                                        .block_size = BLOCK_SIZE,
                                        .vocab_size = m->model->config.vocab_size};
    const struct backend_config config = {.limits = m->limits,
                                          .head_dim = m->model->config.head_dim,
                                          .num_q_heads = m->model->config.num_heads,
                                          .num_kv_heads = m->model->config.num_kv_heads,
                                          .batch_invariant = s->batch_invariant != 0};
    device_bench_open(&m->bench, argc, argv, &config);
    m->bench.batch_seconds = 1e-6 * (double)s->batch_us;
    m->bench.num_batches = 5;
    struct backend *b = m->bench.backend;
    const struct weights_options options = {.max_model_len = length, .quantization = DTYPE_NONE};
    if (model_shard_init(m->model, DTYPE_NONE, 0, 1, &m->shard, &err) != 0 ||
        weights_load_alone(b, m->model, &m->shard, &options, &m->weights, &err) != 0 ||
        llama_create(b, &m->model->config, &m->shard, m->weights, &m->limits, &m->llama, &err) != 0)
        device_bench_fail("%s", err.message);
    open_cache(m, (size_t)s->pool_mib << 20);
    fprintf(stderr, "%s: %s\n", b->name, b->description);
}

static void close_model(struct model_bench *m) {
    struct backend *b = m->bench.backend;
    b->ops->buffer_free(b, &m->cache.buffer);
    llama_destroy(m->llama);
    weights_free(b, m->weights);
    device_bench_close(&m->bench);
    model_close(m->model);
}

/* --- A step ----------------------------------------------------------------------------------- */

struct step {
    int32_t num_seqs, query, context; /* each sequence adds `query` tokens, the last of `context` */
};

static int32_t num_blocks(int32_t tokens) {
    return (tokens + BLOCK_SIZE - 1) / BLOCK_SIZE;
}

/* Block ids go round the sequences, so that those of one lie apart. */
static void build_batch(struct model_bench *m, const struct step *step) {
    int32_t row = num_blocks(step->context), seqs = step->num_seqs, tokens = seqs * step->query;
    int32_t *ids = device_bench_host((size_t)tokens, sizeof(int32_t));
    int32_t *positions = device_bench_host((size_t)tokens, sizeof(int32_t));
    int32_t *slots = device_bench_host((size_t)tokens, sizeof(int32_t));
    int32_t *starts = device_bench_host((size_t)seqs + 1, sizeof(int32_t));
    int32_t *lens = device_bench_host((size_t)seqs, sizeof(int32_t));
    int32_t *tables = device_bench_host((size_t)seqs * (size_t)row, sizeof(int32_t));
    int32_t *logit_rows = device_bench_host((size_t)seqs, sizeof(int32_t));
    struct sample_row *rows = device_bench_host((size_t)seqs, sizeof(*rows));
    for (int32_t i = 0; i < tokens; i++) {
        int32_t seq = i / step->query;
        positions[i] = step->context - step->query + i % step->query;
        slots[i] =
            (positions[i] / BLOCK_SIZE * seqs + seq) * BLOCK_SIZE + positions[i] % BLOCK_SIZE;
        ids[i] = (int32_t)((uint32_t)i * 2654435761U % (uint32_t)m->model->config.vocab_size);
    }
    for (int32_t seq = 0; seq < seqs; seq++) {
        for (int32_t i = 0; i < row; i++)
            tables[seq * row + i] = i * seqs + seq;
        starts[seq + 1] = (seq + 1) * step->query;
        lens[seq] = step->context;
        logit_rows[seq] = starts[seq + 1] - 1;
        rows[seq] = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                        .num_logprobs = -1,
                                        .settings.top_p = 1.0F,
                                        .settings.repetition_penalty = 1.0F,
                                        .mask = SAMPLE_NO_MASK};
    }
    m->batch = (struct batch){.inputs = {.num_tokens = tokens,
                                         .num_seqs = seqs,
                                         .max_blocks_per_seq = row,
                                         .token_ids = ids,
                                         .positions = positions,
                                         .slot_mapping = slots,
                                         .query_start = starts,
                                         .context_lens = lens,
                                         .block_tables = tables},
                              .num_sample_rows = seqs,
                              .logit_rows = logit_rows,
                              .sample_rows = rows};
    m->result.rows = device_bench_host((size_t)seqs, sizeof(*m->result.rows));
}

static void free_batch(struct model_bench *m) {
    const struct step_inputs *inputs = &m->batch.inputs;
    free((void *)inputs->token_ids);
    free((void *)inputs->positions);
    free((void *)inputs->slot_mapping);
    free((void *)inputs->query_start);
    free((void *)inputs->context_lens);
    free((void *)inputs->block_tables);
    free((void *)m->batch.logit_rows);
    free((void *)m->batch.sample_rows);
    free(m->result.rows);
}

static void call_step(void *context, int64_t i) {
    struct model_bench *m = context;
    struct error err = {0};
    if (llama_step(m->llama, &m->cache, &m->batch, &m->result, &err) != 0)
        device_bench_fail("step %lld: %s", (long long)i, err.message);
}

/* Weights once, the context's keys and values once; multiplications of the weights with every token
 * (of the head with every sampled one), and attention's. */
static struct device_bench_work count_work(const struct model_bench *m, const struct step *step) {
    const struct model_config *c = &m->model->config;
    double q_width = (double)c->num_heads * c->head_dim, hidden = c->hidden_size;
    double kv_width = (double)c->num_kv_heads * c->head_dim, ffn = c->intermediate_size;
    double layers = c->num_layers, head = hidden * c->vocab_size;
    double body = layers * (hidden * (2.0 * q_width + 2.0 * kv_width) + 3.0 * hidden * ffn);
    double seqs = step->num_seqs, query = step->query, context = step->context;
    double pairs = seqs * (query * (context - query) + query * (query + 1.0) / 2.0);
    enum dtype weight = m->bench.backend->activation_dtype;
    if (weight == DTYPE_F32)
        weight = model_main_dtype(m->model);
    double weight_bytes = (double)dtype_row_bytes(weight, 32) / 32.0;
    double kv_bytes = (double)kv_type_bytes(m->cache.layout.type);
    return (struct device_bench_work){
        .bytes = (body + head) * weight_bytes + layers * 2.0 * kv_width * seqs * context * kv_bytes,
        .flops = 2.0 * (body * seqs * query + head * seqs) + layers * 4.0 * pairs * q_width,
        .tokens = seqs * query};
}

static void measure(struct model_bench *m, const char *op, const struct step *step) {
    if ((int64_t)step->num_seqs * num_blocks(step->context) > m->cache.num_blocks)
        return;
    build_batch(m, step);
    const struct device_bench_job job = {.context = m, .call = call_step};
    struct device_bench_time time = device_bench_run(&m->bench, &job);
    char shape[64];
    snprintf(shape, sizeof(shape), "%d x %d of %d", step->num_seqs, step->query, step->context);
    device_bench_print(op, shape, time, count_work(m, step), "");
    free_batch(m);
}

int main(int argc, char **argv) {
    struct settings s = {.pool_mib = 64, .batch_us = 100000};
    struct model_bench m = {0};
    if (argc < 4 || argc % 2 != 0)
        device_bench_fail("usage: %s DEVICE bf16|f16 MODEL [OPTION VALUE]...", argv[0]);
    for (int i = 4; i + 1 < argc; i += 2)
        read_setting(&s, argv[i], argv[i + 1]);
    open_model(&m, argc, argv, &s);
    for (int b = 0; b < s.batches.num_values; b++)
        for (int c = 0; c < s.contexts.num_values; c++)
            measure(&m, "decode", &(struct step){s.batches.values[b], 1, s.contexts.values[c]});
    for (int p = 0; p < s.prompts.num_values; p++)
        measure(&m, "prefill", &(struct step){1, s.prompts.values[p], s.prompts.values[p]});
    close_model(&m);
    return 0;
}
