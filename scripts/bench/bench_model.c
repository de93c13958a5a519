/* Speed of a whole model on a device: the forward pass with sampling, one line of JSON for each
 * kind of step (tests/kernels/device_bench.h).
 *
 *   bench_model DEVICE bf16|f16 MODEL [OPTION VALUE]...
 *
 *   batches, contexts   lists as in 1,8,32: decode steps of every batch at every context
 *   prompts             a list: steps that take in a whole prompt
 *   mixed               a list: steps of decodes and a chunk of that many tokens, the first of a
 *                       prompt; mixed-seqs (63) decodes at a context of mixed-context (1024)
 *   sampling            a list of greedy, temperature (1) and top-p (0.9, at temperature 1): every
 *                       decode and mixed step with each, prompts with the first; default: greedy
 *   kv-type             f32, f16, bf16, int8 or fp8: of the KV cache; default: as the activations
 *   isa                 as --cpu-isa or --gpu-isa of the server; default: what is fastest
 *   pool-mib            of the KV cache; what needs more is left out
 *   batch-us            length of a timed batch of steps
 *   batch-invariant     1: the device is opened so
 *   adapters            a number: every decode step is also done with that many low-rank adapters
 *                       of random numbers, in turn, on all projections ("decode-adapters"), right
 *                       after the one without, with the same numbers of sequences and contexts
 *   adapter-rank        of them; default: 16
 *   replay              1: decode steps are recorded, as the server's are, and replayed; a device
 *                       that does not record runs them op by op. 2: all op by op, then decodes so
 *
 * A step is timed with what the host does for it: from the call of llama_forward until all was
 * waited for ("us"). Beside it stand the time that the device's own clock shows between the
 * beginning and the end of its work ("device_us"), and the host's until everything was enqueued
 * ("enqueue_us"), where the device has them; both are the medians of all steps that were run. The
 * same step is done over and over; its context is made of random numbers. Before, each kind of step
 * is done once, meanwhile the algorithms of its products are timed, as when the server starts.
 *
 * The first line is the cold start, op "start": from main to the first result, a step of one token,
 * with its parts: the model file and the device opened ("open_us"), the weights read and brought
 * into the device's form ("weights_us"), the workspace and the first step ("first_step_us"), whose
 * products are timed; and
 * the type that most of the weights are stored in ("weights"), with what they take in the types of
 * the file ("weights_bytes"). The random numbers of the KV cache are left out. What of the file
 * lies in the page cache is read from there: for a start from the disk, drop it first. */
#include "models/llama.h"
#include "kernels/kv_type.h"
#include "scripts/bench/bench_model_settings.h"
#include "tests/kernels/device_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STEPS = 4096 };

#define TUNING_SECONDS 2.0 /* as the server's */

/* Of the steps run with one batch, in microseconds. */
struct step_times {
    int64_t num_steps;
    double enqueue[MAX_STEPS], device[MAX_STEPS];
};

struct model_bench {
    struct device_bench bench;
    struct model *model;
    struct model_shard shard;
    struct weights *weights;
    struct serving_limits limits;
    struct lora_shape lora_shape;
    struct lora_slots *lora; /* NULL: none */
    int32_t *adapter_slots;  /* of a step's sequences */
    struct llama *llama;
    struct kv_cache cache;
    struct batch batch;
    struct step_result result;
    struct mark *begin, *end; /* of a step; NULL: the device has no clock */
    struct step_times times;
    bool is_tuning, is_recorded;
};

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* --- A model ready to run --- */

static enum kv_type choose_kv_type(const struct backend *b, enum dtype dtype, const char *name) {
    if (name == NULL)
        return backend_kv_type(b, kv_type_of_dtype(dtype));
    enum kv_type type = kv_type_of(name);
    if (type >= NUM_KV_TYPES || (b->kv_types & KV_TYPE_BIT(type)) == 0)
        device_bench_fail("kv-type: %s has no KV cache of %s", b->name, name);
    return type;
}

/* Codes and scales are the bytes of random 16-bit numbers. */
static void open_cache(struct model_bench *m, const char *kv_type, size_t pool_bytes) {
    const struct model_config *config = &m->model->config;
    m->cache.layout =
        (struct kv_layout){.num_layers = config->num_layers,
                           .num_kv_heads = config->num_kv_heads,
                           .head_dim = config->head_dim,
                           .block_size = BENCH_MODEL_BLOCK_SIZE,
                           .type = choose_kv_type(m->bench.backend, m->bench.dtype, kv_type)};
    m->cache.num_blocks = (int32_t)(pool_bytes / kv_block_bytes(&m->cache.layout));
    if (m->cache.num_blocks == 0)
        device_bench_fail("pool-mib: too little for a block");
    enum dtype dtype = kv_type_dtype(m->cache.layout.type);
    if (dtype == DTYPE_NONE)
        dtype = m->bench.dtype;
    size_t elements = pool_bytes / dtype_row_bytes(dtype, 1);
    m->cache.buffer = device_bench_buffer(&m->bench, dtype, 1.0F, elements);
}

static void open_model(struct model_bench *m, int argc, char **argv,
                       const struct bench_model_settings *s) {
    struct error err = {0};
    if (model_open(argv[3], &m->model, &err) != 0)
        device_bench_fail("%s", err.message);
    m->limits = bench_model_settings_limits(s, m->model->config.vocab_size);
    const struct backend_config config = {.limits = m->limits,
                                          .isa = s->isa,
                                          .head_dim = m->model->config.head_dim,
                                          .num_q_heads = m->model->config.num_heads,
                                          .num_kv_heads = m->model->config.num_kv_heads,
                                          .batch_invariant = s->batch_invariant != 0};
    device_bench_open(&m->bench, argc, argv, &config);
    m->bench.batch_seconds = 1e-6 * (double)s->batch_us;
    m->bench.num_batches = 5;
    fprintf(stderr, "%s: %s\n", m->bench.backend->name, m->bench.backend->description);
}

static void load_weights(struct model_bench *m, const char *kv_type) {
    struct error err = {0};
    const struct weights_options options = {.max_model_len = m->limits.max_model_len,
                                            .quantization = DTYPE_NONE,
                                            .cuts_key_bias = kv_type_has_scales(choose_kv_type(
                                                m->bench.backend, m->bench.dtype, kv_type))};
    if (model_shard_init(m->model, DTYPE_NONE, 0, 1, &m->shard, &err) != 0 ||
        weights_load_alone(m->bench.backend, m->model, &m->shard, &options, &m->weights, &err) != 0)
        device_bench_fail("%s", err.message);
    device_bench_wait(&m->bench);
}

/* Random numbers in every slot. */
static void fill_adapters(struct model_bench *m) {
    const struct model_config *config = &m->model->config;
    struct lora_rows rows = {0};
    struct error err = {0};
    while (lora_rows_next(config, &m->lora_shape, 1 << 16, &rows)) {
        size_t bytes = lora_rows_bytes(config, &m->lora_shape, &rows);
        size_t count = bytes / dtype_row_bytes(m->lora_shape.dtype, 1);
        float *values = malloc(count * sizeof(*values));
        void *data = malloc(bytes);
        if (values == NULL || data == NULL)
            device_bench_fail("no memory for adapters");
        for (int32_t slot = 0; slot < m->lora_shape.num_slots; slot++) {
            for (size_t i = 0; i < count; i++)
                values[i] = 0.02F * ((float)rand() / (float)RAND_MAX - 0.5F);
            dtype_from_f32(m->lora_shape.dtype, values, data, count);
            if (lora_slots_write(m->lora, slot, &rows, data, &err) != 0)
                device_bench_fail("%s", err.message);
            device_bench_wait(&m->bench);
        }
        free(values);
        free(data);
    }
}

static void create_adapters(struct model_bench *m, const struct bench_model_settings *s) {
    struct error err = {0};
    enum dtype dtype = m->bench.backend->activation_dtype;
    if (s->adapters == 0)
        return;
    m->lora_shape = (struct lora_shape){.num_slots = (int32_t)s->adapters,
                                        .max_rank = (int32_t)s->adapter_rank,
                                        .dtype = dtype == DTYPE_F32 ? DTYPE_F16 : dtype};
    m->adapter_slots = calloc((size_t)m->limits.max_num_seqs, sizeof(*m->adapter_slots));
    if (m->adapter_slots == NULL)
        device_bench_fail("no memory for adapters");
    for (int32_t i = 0; i < m->limits.max_num_seqs; i++)
        m->adapter_slots[i] = i % m->lora_shape.num_slots;
    if (lora_slots_create(m->bench.backend, &m->model->config, &m->shard, &m->lora_shape, &m->lora,
                          &err) != 0)
        device_bench_fail("%s", err.message);
    fill_adapters(m);
}

static void create_llama(struct model_bench *m) {
    struct error err = {0};
    struct backend *b = m->bench.backend;
    const struct recording_ops *ops = b->ops->recording;
    if (llama_create(b, &m->model->config, &m->shard, m->weights, m->lora, &m->limits, &m->llama,
                     &err) != 0 ||
        (ops != NULL &&
         (ops->mark_create(b, &m->begin, &err) != 0 || ops->mark_create(b, &m->end, &err) != 0)))
        device_bench_fail("%s", err.message);
}

static void close_model(struct model_bench *m) {
    struct backend *b = m->bench.backend;
    if (b->ops->recording != NULL) {
        b->ops->recording->mark_destroy(b, m->begin);
        b->ops->recording->mark_destroy(b, m->end);
    }
    b->ops->buffer_free(b, &m->cache.buffer);
    llama_destroy(m->llama);
    lora_slots_destroy(m->lora);
    free(m->adapter_slots);
    weights_free(b, m->weights);
    device_bench_close(&m->bench);
    model_close(m->model);
}

/* --- A step --- */

static void set_mark(struct model_bench *m, struct mark *mark) {
    if (mark != NULL)
        m->bench.backend->ops->recording->mark_set(m->bench.backend, mark);
}

static void call_step(void *context, int64_t i) {
    struct model_bench *m = context;
    struct backend *b = m->bench.backend;
    double start = now_us();
    set_mark(m, m->begin);
    llama_forward(m->llama, &m->cache, &m->batch);
    llama_sample(m->llama, &m->batch, &m->result);
    set_mark(m, m->end);
    double enqueued = now_us();
    device_bench_wait(&m->bench);
    int64_t at = m->times.num_steps++ % MAX_STEPS;
    m->times.enqueue[at] = enqueued - start;
    if (m->begin != NULL)
        m->times.device[at] = 1e6 * b->ops->recording->mark_seconds(b, m->begin, m->end);
}

static void begin_step(struct model_bench *m, const struct bench_model_step *step) {
    m->times.num_steps = 0;
    bench_model_steps_build(step, m->model->config.vocab_size, &m->batch, &m->result);
}

/* Checks that the steps have sampled. */
static void end_step(struct model_bench *m) {
    int32_t vocab_size = m->model->config.vocab_size;
    for (int32_t i = 0; i < m->batch.num_sample_rows; i++)
        if (m->result.rows[i].token < 0 || m->result.rows[i].token >= vocab_size)
            device_bench_fail("row %d of a step has no token", i);
    bench_model_steps_free(&m->batch, &m->result);
}

/* Weights once, the context's keys and values once; multiplications of the weights with every token
 * (of the head with every sampled one), and attention's. */
static struct device_bench_work count_work(const struct model_bench *m,
                                           const struct bench_model_step *step) {
    const struct model_config *c = &m->model->config;
    double q_width = (double)c->num_heads * c->head_dim, hidden = c->hidden_size;
    double kv_width = (double)c->num_kv_heads * c->head_dim, ffn = c->intermediate_size;
    double layers = c->num_layers, head = hidden * c->vocab_size;
    double body = layers * (hidden * (2.0 * q_width + 2.0 * kv_width) + 3.0 * hidden * ffn);
    double tokens = bench_model_steps_tokens(step), cached = bench_model_steps_cached(step);
    enum dtype weight = m->bench.backend->activation_dtype;
    if (weight == DTYPE_F32)
        weight = model_main_dtype(m->model);
    double weight_bytes = (double)dtype_row_bytes(weight, 256) / 256.0;
    double kv_bytes = (double)kv_type_bytes(m->cache.layout.type);
    return (struct device_bench_work){
        .bytes = (body + head) * weight_bytes + layers * 2.0 * kv_width * cached * kv_bytes,
        .flops = 2.0 * (body * tokens + head * step->num_seqs) +
                 layers * 4.0 * bench_model_steps_pairs(step) * q_width,
        .tokens = tokens};
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int64_t count) {
    int64_t kept = count < MAX_STEPS ? count : MAX_STEPS;
    qsort(values, (size_t)kept, sizeof(values[0]), compare_doubles);
    return values[kept / 2];
}

static void measure_with(struct model_bench *m, const char *op, const struct bench_model_step *step,
                         bool with_adapters) {
    if (bench_model_steps_blocks(step) > m->cache.num_blocks)
        return;
    const struct device_bench_job job = {.context = m, .call = call_step};
    char shape[64], more[128];
    begin_step(m, step);
    m->batch.inputs.adapter_slots = with_adapters ? m->adapter_slots : NULL;
    if (m->is_tuning) {
        call_step(m, 0);
        end_step(m);
        return;
    }
    struct device_bench_time time = device_bench_run(&m->bench, &job);
    int used =
        snprintf(shape, sizeof(shape), "%d x %d of %d", step->num_seqs, step->query, step->context);
    if (step->chunk > 0)
        snprintf(shape + used, sizeof(shape) - (size_t)used, " + %d", step->chunk);
    used = snprintf(more, sizeof(more), ", \"sampling\": \"%s\", \"replayed\": %s",
                    bench_model_sampling_names[step->sampling], m->is_recorded ? "true" : "false");
    if (m->begin != NULL)
        snprintf(more + used, sizeof(more) - (size_t)used,
                 ", \"device_us\": %.3f, \"enqueue_us\": %.3f",
                 median(m->times.device, m->times.num_steps),
                 median(m->times.enqueue, m->times.num_steps));
    device_bench_print(op, shape, time, count_work(m, step), more);
    end_step(m);
}

static void measure(struct model_bench *m, const char *op, const struct bench_model_step *step) {
    measure_with(m, op, step, false);
}

static void measure_decode(struct model_bench *m, const struct bench_model_step *step) {
    measure(m, "decode", step);
    if (m->lora != NULL)
        measure_with(m, "decode-adapters", step, true);
}

/* --- The program --- */

static void begin_tuning(struct model_bench *m) {
    struct backend *b = m->bench.backend;
    struct error err = {0};
    m->is_tuning = b->ops->tuning != NULL;
    if (m->is_tuning && b->ops->tuning->begin(b, TUNING_SECONDS, &err) != 0)
        device_bench_fail("%s", err.message);
}

static void end_tuning(struct model_bench *m) {
    struct backend *b = m->bench.backend;
    struct tuning_report report;
    b->ops->tuning->end(b, &report);
    m->is_tuning = false;
    fprintf(stderr, "%d products timed in %.1f s, %d untimed; %d not by the first algorithm\n",
            report.num_timed, report.seconds, report.num_left, report.num_changed);
}

static void start(struct model_bench *m, int argc, char **argv,
                  const struct bench_model_settings *s) {
    const struct bench_model_step first = {.num_seqs = 1, .query = 1, .context = 1};
    double at[5] = {now_us()};
    open_model(m, argc, argv, s);
    at[1] = now_us();
    load_weights(m, s->kv_type);
    at[2] = now_us();
    open_cache(m, s->kv_type, (size_t)s->pool_mib << 20);
    create_adapters(m, s);
    at[3] = now_us();
    create_llama(m);
    begin_tuning(m);
    begin_step(m, &first);
    call_step(m, 0);
    at[4] = now_us();
    end_step(m);
    double open = at[1] - at[0], weights = at[2] - at[1], step = at[4] - at[3];
    printf("{\"op\": \"start\", \"shape\": \"1 x 1 of 1\", \"us\": %.0f, \"clock\": \"host\", "
           "\"open_us\": %.0f, \"weights_us\": %.0f, \"first_step_us\": %.0f, "
           "\"weights\": \"%s\", \"weights_bytes\": %zu}\n",
           open + weights + step, open, weights, step, dtype_name(model_main_dtype(m->model)),
           m->weights->bytes);
    fflush(stdout);
}

static void record_decodes(struct model_bench *m) {
    struct error err = {0};
    if (llama_record(m->llama, &m->cache, &err) != 0)
        device_bench_fail("%s", err.message);
    m->is_recorded = true;
}

static void measure_decodes(struct model_bench *m, const struct bench_model_settings *s) {
    for (int i = 0; i < s->num_samplings; i++)
        for (int b = 0; b < s->batches.num_values; b++)
            for (int c = 0; c < s->contexts.num_values; c++)
                measure_decode(m, &(struct bench_model_step){.num_seqs = s->batches.values[b],
                                                             .query = 1,
                                                             .context = s->contexts.values[c],
                                                             .sampling = s->samplings[i]});
}

static void measure_all(struct model_bench *m, const struct bench_model_settings *s) {
    measure_decodes(m, s);
    for (int p = 0; p < s->prompts.num_values; p++)
        measure(m, "prefill",
                &(struct bench_model_step){.num_seqs = 1,
                                           .query = s->prompts.values[p],
                                           .context = s->prompts.values[p],
                                           .sampling = s->samplings[0]});
    for (int i = 0; i < s->num_samplings; i++)
        for (int c = 0; c < s->mixed.num_values; c++)
            measure(m, "mixed",
                    &(struct bench_model_step){.num_seqs = (int32_t)s->mixed_seqs,
                                               .query = 1,
                                               .context = (int32_t)s->mixed_context,
                                               .chunk = s->mixed.values[c],
                                               .sampling = s->samplings[i]});
}

int main(int argc, char **argv) {
    static struct model_bench m;
    struct bench_model_settings s;
    bench_model_settings_read(&s, argc, argv);
    start(&m, argc, argv, &s);
    if (m.is_tuning) {
        measure_all(&m, &s);
        end_tuning(&m);
    }
    if (s.replay != BENCH_MODEL_REPLAYED)
        measure_all(&m, &s);
    if (s.replay != BENCH_MODEL_OP_BY_OP) {
        record_decodes(&m);
        (s.replay == BENCH_MODEL_BOTH ? measure_decodes : measure_all)(&m, &s);
    }
    close_model(&m);
    return 0;
}
