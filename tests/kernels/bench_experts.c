/* Speed of a layer of experts (OLMoE 1B-7B's: 64, of which a token chooses 8, hidden size 2048,
 * inner size 1024) beside a dense layer of the same active parameters: milliseconds of each, and
 * GB/s of the weights that one token or GMAC/s that several need.
 *
 *   bench_experts [ISA [THREADS [TYPE]]]     default: auto, one per core, q4_k
 *
 * The two take turns. Each takes copies in turn that exceed the caches, tokens choose at random.
 * Best of several repeats, because other work on the machine only ever makes it slower. */
#include "kernels/backend.h"
#include "tests/kernels/random_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NUM_EXPERTS 64
#define NUM_CHOSEN 8
#define HIDDEN 2048
#define INNER 1024
#define NUM_LAYERS 2 /* of experts */
#define NUM_DENSE (NUM_LAYERS * NUM_EXPERTS / NUM_CHOSEN)
#define MAX_TOKENS 256
#define MIN_CALLS 4 /* of a repeat */
#define CELL_SECONDS 0.02
#define REPEATS 40

/* gate and up, then down: of all experts, or of a dense layer. */
struct layer {
    struct matrix *in, *out;
};

struct bench {
    struct backend *backend;
    enum dtype dtype;
    struct layer experts[NUM_LAYERS], dense[NUM_DENSE];
    float *x, *logits, *inner, *activated, *down, *out;
    void *choices;
    uint64_t seed;
    unsigned next; /* layer */
};

_Noreturn static void fail(const char *message) {
    fprintf(stderr, "bench_experts: %s\n", message);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *p = calloc(1, bytes);
    if (p == NULL)
        fail("out of memory");
    return p;
}

/* num_parts parts of [rows, cols], all with the same bytes. */
static struct matrix *make_matrix(const struct bench *bench, int num_parts, int32_t rows,
                                  int32_t cols) {
    size_t row_bytes = dtype_row_bytes(bench->dtype, (size_t)cols);
    char *data = allocate(row_bytes * (size_t)rows);
    struct matrix_part *parts = allocate((size_t)num_parts * sizeof(*parts));
    struct matrix *matrix;
    struct error err;
    uint64_t seed = 1;
    for (int32_t r = 0; r < rows; r++)
        random_weights_row(&seed, bench->dtype, data + (size_t)r * row_bytes, (size_t)cols);
    for (int p = 0; p < num_parts; p++)
        parts[p] = (struct matrix_part){.dtype = bench->dtype, .rows = rows, .data = data};
    if (bench->backend->ops->matrix_create(bench->backend, parts, num_parts, cols, MATRIX_GROUPED,
                                           &matrix, &err))
        fail(err.message);
    free(parts);
    free(data);
    return matrix;
}

static void make_layers(struct bench *bench) {
    for (int i = 0; i < NUM_LAYERS; i++)
        bench->experts[i] = (struct layer){make_matrix(bench, 2 * NUM_EXPERTS, INNER, HIDDEN),
                                           make_matrix(bench, NUM_EXPERTS, HIDDEN, INNER)};
    for (int i = 0; i < NUM_DENSE; i++)
        bench->dense[i] = (struct layer){make_matrix(bench, 2, NUM_CHOSEN * INNER, HIDDEN),
                                         make_matrix(bench, 1, HIDDEN, NUM_CHOSEN * INNER)};
}

static void destroy_layers(struct bench *bench) {
    const struct backend_ops *ops = bench->backend->ops;
    for (int i = 0; i < NUM_LAYERS + NUM_DENSE; i++) {
        struct layer *l = i < NUM_LAYERS ? &bench->experts[i] : &bench->dense[i - NUM_LAYERS];
        ops->matrix_destroy(bench->backend, l->in);
        ops->matrix_destroy(bench->backend, l->out);
    }
}

static void activate(const struct bench *bench, int32_t num_rows, int32_t width) {
    bench->backend->ops->act_mul(bench->backend, &(struct act_mul_args){.gate_up = bench->inner,
                                                                        .out = bench->activated,
                                                                        .num_rows = num_rows,
                                                                        .width = width});
}

static void run_experts(struct bench *bench, const struct layer *layer, int32_t num_tokens) {
    struct backend *b = bench->backend;
    struct route_args route = {
        .logits = bench->logits,
        .choices = expert_choices_at(bench->choices, num_tokens, NUM_CHOSEN, NUM_EXPERTS),
        .num_tokens = num_tokens,
        .num_experts = NUM_EXPERTS,
        .num_chosen = NUM_CHOSEN,
        .num_own = NUM_EXPERTS,
        .scale = 1,
        .num_groups = 1,
        .num_chosen_groups = 1};
    struct expert_linear_args args = {.x = bench->x,
                                      .weight = layer->in,
                                      .choices = &route.choices,
                                      .out = bench->inner,
                                      .num_tokens = num_tokens,
                                      .num_chosen = NUM_CHOSEN,
                                      .num_own = NUM_EXPERTS};
    b->ops->route(b, &route);
    b->ops->linear_experts(b, &args);
    activate(bench, num_tokens * NUM_CHOSEN, INNER);
    args.x = bench->activated, args.per_choice = true;
    args.weight = layer->out, args.out = bench->down;
    b->ops->linear_experts(b, &args);
    b->ops->combine_experts(b, &(struct combine_args){.x = bench->down,
                                                      .choices = &route.choices,
                                                      .out = bench->out,
                                                      .num_tokens = num_tokens,
                                                      .num_chosen = NUM_CHOSEN,
                                                      .num_own = NUM_EXPERTS,
                                                      .width = HIDDEN,
                                                      .scale = 1,
                                                      .accumulate = true});
}

static void run_dense(struct bench *bench, const struct layer *layer, int32_t num_tokens) {
    struct backend *b = bench->backend;
    struct linear_args args = {.x = bench->x,
                               .weight = layer->in,
                               .out = bench->inner,
                               .num_rows = num_tokens,
                               .scale = 1};
    b->ops->linear(b, &args);
    activate(bench, num_tokens, NUM_CHOSEN * INNER);
    args.x = bench->activated, args.weight = layer->out, args.out = bench->out;
    args.accumulate = true;
    b->ops->linear(b, &args);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds per call. */
static double time_layers(struct bench *bench, bool is_dense, int32_t num_tokens) {
    double seconds = 0;
    int calls = 0;
    for (; seconds < CELL_SECONDS || calls < MIN_CALLS; calls++, bench->next++) {
        for (int32_t i = 0; i < num_tokens * NUM_EXPERTS; i++) {
            bench->seed = bench->seed * 6364136223846793005u + 1442695040888963407u;
            bench->logits[i] = (float)(bench->seed >> 40) / 0x1p22F; /* softmax tells all apart */
        }
        double start = now();
        if (is_dense)
            run_dense(bench, &bench->dense[bench->next % NUM_DENSE], num_tokens);
        else
            run_experts(bench, &bench->experts[bench->next % NUM_LAYERS], num_tokens);
        seconds += now() - start;
    }
    return seconds / calls;
}

static void compare(struct bench *bench, int32_t num_tokens) {
    double experts = 1e9, dense = 1e9, macs = 3.0 * NUM_CHOSEN * INNER * HIDDEN;
    double bytes = (double)dtype_row_bytes(bench->dtype, (size_t)macs);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double seconds = time_layers(bench, false, num_tokens);
        experts = seconds < experts ? seconds : experts;
        seconds = getenv("NODENSE") ? 1 : time_layers(bench, true, num_tokens);
        dense = seconds < dense ? seconds : dense;
    }
    double scale = num_tokens == 1 ? bytes / 1e9 : macs * num_tokens / 1e9;
    printf("%3d tokens: experts %8.3f ms (%.1f %s), dense %8.3f ms (%.1f): %.2f of its rate\n",
           num_tokens, 1e3 * experts, scale / experts, num_tokens == 1 ? "GB/s" : "GMAC/s",
           1e3 * dense, scale / dense, dense / experts);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int32_t counts[] = {1, 2, 4, 8, 32, 64, 128, MAX_TOKENS};
    struct backend_config config = {.isa = argc > 1 ? argv[1] : "auto",
                                    .num_threads = argc > 2 ? atoi(argv[2]) : 0,
                                    .limits.max_num_batched_tokens = MAX_TOKENS,
                                    .limits.max_num_seqs = 1};
    struct error err;
    struct bench bench = {.backend = backend_open("cpu", &config, &err), .dtype = DTYPE_Q4_K};
    if (bench.backend == NULL)
        fail(err.message);
    for (int d = 0; argc > 3 && d < DTYPE_COUNT; d++)
        if (strcmp(argv[3], dtype_name((enum dtype)d)) == 0)
            bench.dtype = (enum dtype)d;
    const size_t choices = (size_t)MAX_TOKENS * NUM_CHOSEN;
    bench.x = allocate((size_t)MAX_TOKENS * HIDDEN * sizeof(float));
    bench.logits = allocate((size_t)MAX_TOKENS * NUM_EXPERTS * sizeof(float));
    bench.inner = allocate(choices * 2 * INNER * sizeof(float));
    bench.activated = allocate(choices * INNER * sizeof(float));
    bench.down = allocate(choices * HIDDEN * sizeof(float));
    bench.out = allocate((size_t)MAX_TOKENS * HIDDEN * sizeof(float));
    bench.choices = allocate(expert_choices_bytes(MAX_TOKENS, NUM_CHOSEN, NUM_EXPERTS));
    for (int i = 0; i < MAX_TOKENS * HIDDEN; i++)
        bench.x[i] = (float)(i * 37 % 201 - 100) / 1000.0F;
    make_layers(&bench);
    printf("%s, %s\n", bench.backend->description, dtype_name(bench.dtype));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        compare(&bench, counts[i]);
    destroy_layers(&bench);
    backend_close(bench.backend);
    free(bench.x), free(bench.logits), free(bench.inner), free(bench.activated);
    free(bench.down), free(bench.out), free(bench.choices);
    return 0;
}
