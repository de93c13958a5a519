/* The collective ops: groups of 1 to 4 ranks, each a thread with a backend of its own, against sums
 * taken here in the order of the ranks. Every rank has the same bits, and the same in every run,
 * whether ranks reach one another's memory or send messages.
 *
 * check_group: of the CPU. check_group DEVICE TYPE [RANKS]: of "cuda" or "cuda-sim" with
 * activations of TYPE, with as many ranks as there are devices, RANKS at least; 77 (skip) where
 * there is none. */
#include "config/base/clock.h"
#include "kernels/transport.h"
#include "tests/kernels/group_fixture.h"
#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NUM_RUNS 3

static const struct group_kind cpu_kinds[] = {
    {"cpu-ref", NULL, 1, DTYPE_F32},   {"cpu", "portable", 1, DTYPE_F32},
    {"cpu", "portable", 2, DTYPE_F32}, {"cpu", "auto", 1, DTYPE_F32},
    {"cpu", "auto", 3, DTYPE_F32},
};

/* What the program's arguments say. */
static struct group_kind device_kind;
static const struct group_kind *kinds = cpu_kinds;
static size_t num_kinds = sizeof(cpu_kinds) / sizeof(cpu_kinds[0]);
static int num_ways = NUM_GROUP_WAYS;
static int32_t max_ranks = GROUP_MAX_RANKS;
static struct kernel_fixture numbers = {.dtype = DTYPE_F32}; /* as the backends hold them */
static double norm_tolerance = 2e-6;

/* Of a GPU the ranks are as in other processes only on the simulator, which has one GPU more than
 * ranks, and as many as there can be. */
static int ways_of(int32_t num_ranks) {
    return kinds == cpu_kinds || num_ranks == max_ranks ? num_ways : 1;
}

static void for_all_groups(void (*check)(const struct group_form *form, uint64_t *seed)) {
    uint64_t seed = 1;
    for (size_t kind = 0; kind < num_kinds; kind++)
        for (int32_t num_ranks = 1; num_ranks <= max_ranks; num_ranks++)
            for (int way = 0; way < ways_of(num_ranks); way++)
                check(
                    &(struct group_form){.kind = &kinds[kind], .num_ranks = num_ranks, .way = way},
                    &seed);
}

static float *random_numbers(uint64_t *seed, size_t n) {
    return kernel_fixture_rounded_floats(&numbers, seed, n);
}

/* Activations in the member's memory. */
static void *put(struct group_member *member, const float *values, size_t n) {
    return kernel_fixture_put(member->backend, numbers.dtype, values, n);
}

/* --- all_reduce --- */

enum { IN_PLACE, ELSEWHERE, ADDED, NUM_MODES };

struct reduce_case {
    int32_t num_rows, width;
    int mode;
    const float *in[GROUP_MAX_RANKS]; /* left as they are */
    const float *before;              /* of every rank's out */
    float *out[GROUP_MAX_RANKS][NUM_RUNS];
    uint64_t bytes_sent[GROUP_MAX_RANKS];
};

static void reduce(struct group_member *member, void *context) {
    struct reduce_case *c = context;
    size_t n = (size_t)c->num_rows * (size_t)c->width;
    for (int run = 0; run < NUM_RUNS; run++) {
        void *x = put(member, c->in[member->rank], n);
        void *out = c->mode == IN_PLACE ? x : put(member, c->before, n);
        member->backend->ops->all_reduce(member->backend,
                                         &(struct all_reduce_args){.x = x,
                                                                   .out = out,
                                                                   .num_rows = c->num_rows,
                                                                   .width = c->width,
                                                                   .accumulate = c->mode == ADDED});
        kernel_fixture_get(member->backend, numbers.dtype, out, c->out[member->rank][run], n);
        kernel_fixture_free(member->backend, x);
        if (out != x)
            kernel_fixture_free(member->backend, out);
    }
    if (member->group == NULL)
        return;
    struct backend_group_traffic traffic;
    backend_group_get_traffic(member->group, member->rank, &traffic);
    c->bytes_sent[member->rank] = traffic.bytes_sent;
}

/* By all ranks, each a GPU, for a sum of n elements of two bytes: each part to all; or, of more
 * than two ranks and at least 512 KiB, each part's slices, and each slice's sum; or as a ring. */
static uint64_t bytes_of_sum(int32_t num_ranks, size_t n) {
    uint64_t bytes = 2 * n, others = (uint64_t)num_ranks - 1;
    bool is_sliced = num_ranks > 2 && bytes >= 524288;
    if (device_kind.fast_sums)
        return (uint64_t)num_ranks * (2 * others * bytes / (uint64_t)num_ranks);
    return is_sliced ? 2 * others * bytes : others * (uint64_t)num_ranks * bytes;
}

static void assert_sent(const struct reduce_case *c, int32_t num_ranks) {
    size_t n = (size_t)c->num_rows * (size_t)c->width;
    uint64_t sum = 0;
    for (int32_t r = 0; r < num_ranks; r++)
        sum += c->bytes_sent[r];
    assert_int_equal(sum, NUM_RUNS * bytes_of_sum(num_ranks, n));
}

static void assert_reduced(const struct reduce_case *c, int32_t num_ranks) {
    size_t n = (size_t)c->num_rows * (size_t)c->width;
    for (size_t i = 0; i < n; i++) {
        float sum = c->in[0][i];
        for (int32_t r = 1; r < num_ranks; r++)
            sum += c->in[r][i];
        if (c->mode == ADDED)
            sum = c->before[i] + sum;
        kernel_fixture_round(&numbers, &sum, 1);
        for (int32_t r = 0; r < num_ranks; r++)
            for (int run = 0; run < NUM_RUNS; run++)
                if (memcmp(&c->out[r][run][i], &sum, sizeof(sum)) != 0)
                    fail_msg("%d ranks, mode %d, %d x %d: element %zu of rank %d is %.9g in run "
                             "%d, expected %.9g",
                             (int)num_ranks, c->mode, (int)c->num_rows, (int)c->width, i, (int)r,
                             (double)c->out[r][run][i], run, (double)sum);
    }
}

/* NCCL may round at every rank; but all ranks have the same bits, and here in every run. */
static void assert_near(const struct reduce_case *c, int32_t num_ranks) {
    const double unit = numbers.dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    size_t n = (size_t)c->num_rows * (size_t)c->width, num_other = 0;
    for (size_t i = 0; i < n; i++) {
        float sum = 0, before = c->mode == ADDED ? c->before[i] : 0;
        double size = fabsf(before);
        for (int32_t r = 0; r < num_ranks; r++) {
            sum += c->in[r][i];
            size += fabsf(c->in[r][i]);
        }
        sum = before + sum;
        for (int32_t r = 0; r < num_ranks; r++)
            for (int run = 0; run < NUM_RUNS; run++)
                assert_memory_equal(&c->out[r][run][i], &c->out[0][0][i], sizeof(sum));
        assert_true(fabs((double)c->out[0][0][i] - sum) <= num_ranks * unit * size);
        kernel_fixture_round(&numbers, &sum, 1);
        num_other += c->out[0][0][i] != sum;
    }
    if (num_ranks == 1)
        assert_int_equal(num_other, 0);
    else if (num_ranks > 2 && n > 500 && num_ways > 1) /* as the simulator's NCCL adds */
        assert_true(num_other > 0);
}

static void check_reduce(const struct group_form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    static const int32_t shapes[][2] = {
        {1, 1},
        {1, 15},
        {1, 16},
        {1, 17},
        {3, 31},
        {1, 576},
        {17, 129},
        {GROUP_MAX_ROWS, GROUP_MAX_WIDTH / 4},
        {GROUP_MAX_ROWS, GROUP_MAX_WIDTH}}; /* which GPUs divide into slices */
    const size_t num_shapes = sizeof(shapes) / sizeof(shapes[0]);
    const bool has_slices = kinds != cpu_kinds && num_ranks > 2;
    for (size_t s = 0; s < num_shapes - !has_slices; s++)
        for (int mode = 0; mode < (s == num_shapes - 1 ? 1 : NUM_MODES); mode++) {
            struct reduce_case c = {.num_rows = shapes[s][0], .width = shapes[s][1], .mode = mode};
            size_t n = (size_t)c.num_rows * (size_t)c.width;
            float *in[GROUP_MAX_RANKS], *before = random_numbers(seed, n);
            c.before = before;
            for (int32_t r = 0; r < num_ranks; r++) {
                c.in[r] = in[r] = random_numbers(seed, n);
                for (int run = 0; run < NUM_RUNS; run++)
                    c.out[r][run] = kernel_fixture_guarded(n);
            }
            group_fixture_run(form, reduce, &c);
            if (form->kind->fast_sums)
                assert_near(&c, num_ranks);
            else
                assert_reduced(&c, num_ranks);
            if (kinds != cpu_kinds)
                assert_sent(&c, num_ranks);
            for (int32_t r = 0; r < num_ranks; r++) {
                free(in[r]);
                for (int run = 0; run < NUM_RUNS; run++)
                    kernel_fixture_guarded_free(c.out[r][run]);
            }
            free(before);
        }
}

static void test_all_reduce(void **state) {
    for_all_groups(check_reduce);
}

static void test_fast_sums(void **state) {
    device_kind.fast_sums = true;
    for_all_groups(check_reduce);
    device_kind.fast_sums = false;
}

/* --- gather_columns --- */

struct gather_case {
    int32_t num_rows, widths[GROUP_MAX_RANKS], total_width;
    const float *in[GROUP_MAX_RANKS];
    float *out; /* of rank 0 */
};

static void gather(struct group_member *member, void *context) {
    const struct gather_case *c = context;
    struct backend *b = member->backend;
    size_t n = (size_t)c->num_rows * (size_t)c->widths[member->rank];
    size_t total = (size_t)c->num_rows * (size_t)c->total_width;
    void *x = kernel_fixture_put(b, DTYPE_F32, c->in[member->rank], n);
    void *out = member->rank == 0 ? kernel_fixture_put(b, DTYPE_F32, NULL, total) : NULL;
    b->ops->gather_columns(
        b, &(struct gather_columns_args){
               .x = x, .out = out, .num_rows = c->num_rows, .width = c->widths[member->rank]});
    if (out != NULL)
        kernel_fixture_get(b, DTYPE_F32, out, c->out, total);
    kernel_fixture_synchronize(b);
    kernel_fixture_free(b, out);
    kernel_fixture_free(b, x);
}

static void check_gather(const struct group_form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    for (int round = 0; round < 4; round++) {
        struct gather_case c = {
            .num_rows = round == 0 ? 1 : kernel_fixture_random_in(seed, 2, GROUP_MAX_ROWS)};
        float *in[GROUP_MAX_RANKS];
        for (int32_t r = 0; r < num_ranks; r++) {
            c.widths[r] = kernel_fixture_random_in(seed, 1, round < 3 ? 40 : GROUP_MAX_COLUMNS);
            c.total_width += c.widths[r];
            c.in[r] = in[r] =
                kernel_fixture_random_floats(seed, (size_t)c.num_rows * (size_t)c.widths[r]);
        }
        c.out = kernel_fixture_guarded((size_t)c.num_rows * (size_t)c.total_width);
        group_fixture_run(form, gather, &c);
        for (int32_t row = 0, at = 0; row < c.num_rows; row++)
            for (int32_t r = 0; r < num_ranks; at += c.widths[r++])
                assert_memory_equal(c.out + at, in[r] + (size_t)row * (size_t)c.widths[r],
                                    (size_t)c.widths[r] * sizeof(float));
        kernel_fixture_guarded_free(c.out);
        for (int32_t r = 0; r < num_ranks; r++)
            free(in[r]);
    }
}

static void test_gather_columns(void **state) {
    for_all_groups(check_gather);
}

/* --- share_samples, and embed of a part of the rows --- */

#define VOCAB 24
#define NUM_SAMPLES 5
#define WIDTH 32

struct sample_case {
    int32_t num_ranks;
    const float *table; /* [VOCAB, WIDTH] */
    int32_t tokens[NUM_SAMPLES];
    float *out[GROUP_MAX_RANKS]; /* [NUM_SAMPLES, WIDTH] embedded by each rank */
};

/* Rank 0 scores tokens, in two calls, as sampled; the next step embeds them by their rows, each
 * rank from its share of the table. */
static void share(struct group_member *member, void *context) {
    struct sample_case *c = context;
    struct backend *b = member->backend;
    int32_t zeros[NUM_SAMPLES + 1] = {0}, rows[NUM_SAMPLES], starts[NUM_SAMPLES + 1];
    for (int32_t i = 0; i <= NUM_SAMPLES; i++)
        starts[i] = i;
    for (int32_t i = 0; i < NUM_SAMPLES; i++)
        rows[i] = i;
    struct step_inputs step = {.num_tokens = NUM_SAMPLES,
                               .num_seqs = NUM_SAMPLES,
                               .max_blocks_per_seq = 1,
                               .token_ids = zeros,
                               .positions = zeros,
                               .slot_mapping = zeros,
                               .query_start = starts,
                               .context_lens = starts + 1,
                               .block_tables = zeros};
    b->ops->step_begin(b, &step);
    float zero_logits[NUM_SAMPLES * VOCAB] = {0};
    void *logits = kernel_fixture_put(b, DTYPE_F32, zero_logits, NUM_SAMPLES * VOCAB);
    void *embedded = put(member, NULL, NUM_SAMPLES * WIDTH);
    struct sample_row sample_rows[NUM_SAMPLES];
    struct sample_output outputs[NUM_SAMPLES];
    for (int32_t i = 0; i < NUM_SAMPLES; i++)
        sample_rows[i] = (struct sample_row){.target = c->tokens[i], .num_logprobs = -1};
    for (int32_t first = 0, count = 2; first < NUM_SAMPLES; first += count, count = 3) {
        if (member->rank == 0)
            b->ops->sample(b, &(struct sample_args){.logits = logits,
                                                    .first_row = first,
                                                    .num_sample_rows = count,
                                                    .vocab_size = VOCAB,
                                                    .rows = sample_rows + first,
                                                    .out = outputs});
        b->ops->share_samples(
            b, &(struct share_samples_args){.first_row = first, .num_sample_rows = count});
    }
    step.token_rows = rows;
    b->ops->step_begin(b, &step);
    int32_t first_row = VOCAB * member->rank / c->num_ranks;
    const struct matrix_part part = {.dtype = DTYPE_F32,
                                     .rows = VOCAB * (member->rank + 1) / c->num_ranks - first_row,
                                     .data = c->table + (size_t)first_row * WIDTH};
    struct matrix *table = NULL;
    if (b->ops->matrix_create(b, &part, 1, WIDTH, MATRIX_LINEAR, &table, NULL) != 0)
        abort();
    b->ops->embed(b, &(struct embed_args){
                         .table = table, .out = embedded, .first_row = first_row, .scale = 1});
    kernel_fixture_get(b, numbers.dtype, embedded, c->out[member->rank], NUM_SAMPLES * WIDTH);
    b->ops->matrix_destroy(b, table);
    kernel_fixture_free(b, embedded);
    kernel_fixture_free(b, logits);
}

static void check_share(const struct group_form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    float *table = random_numbers(seed, VOCAB * WIDTH);
    struct sample_case c = {.num_ranks = num_ranks, .table = table};
    for (int32_t i = 0; i < NUM_SAMPLES; i++)
        c.tokens[i] = kernel_fixture_random_in(seed, 0, VOCAB - 1);
    c.tokens[0] = 0;
    c.tokens[NUM_SAMPLES - 1] = VOCAB - 1;
    for (int32_t r = 0; r < num_ranks; r++)
        c.out[r] = kernel_fixture_guarded(NUM_SAMPLES * WIDTH);
    group_fixture_run(form, share, &c);
    for (int32_t i = 0; i < NUM_SAMPLES; i++)
        for (int32_t r = 0; r < num_ranks; r++) {
            bool is_here =
                c.tokens[i] >= VOCAB * r / num_ranks && c.tokens[i] < VOCAB * (r + 1) / num_ranks;
            for (int32_t d = 0; d < WIDTH; d++)
                assert_true(c.out[r][i * WIDTH + d] ==
                            (is_here ? table[c.tokens[i] * WIDTH + d] : 0));
        }
    for (int32_t r = 0; r < num_ranks; r++)
        kernel_fixture_guarded_free(c.out[r]);
    free(table);
}

static void test_share_samples(void **state) {
    for_all_groups(check_share);
}

/* --- norm over all ranks --- */

struct norm_case {
    int32_t num_rows, widths[GROUP_MAX_RANKS], total_width;
    bool in_place, accumulate;
    const float *weight;  /* [total_width] */
    const float *x;       /* [num_rows, total_width]; before of out, too */
    float *out[NUM_RUNS]; /* [num_rows, total_width] */
};

#define EPSILON 1e-5F

static void normalise(struct group_member *member, void *context) {
    const struct norm_case *c = context;
    int32_t width = c->widths[member->rank], stride = width + 3;
    size_t n = (size_t)c->num_rows * (size_t)stride;
    int32_t first = 0;
    for (int32_t r = 0; r < member->rank; r++)
        first += c->widths[r];
    for (int run = 0; run < NUM_RUNS; run++) {
        float *rows = kernel_fixture_guarded(n);
        for (int32_t row = 0; row < c->num_rows; row++)
            memcpy(rows + row * stride, c->x + (size_t)row * (size_t)c->total_width + first,
                   (size_t)width * sizeof(float));
        void *x = put(member, rows, n), *out = c->in_place ? x : put(member, rows, n);
        void *weight =
            kernel_fixture_put(member->backend, DTYPE_F32, c->weight + first, (size_t)width);
        member->backend->ops->norm(member->backend,
                                   &(struct norm_args){.x = x,
                                                       .weight = weight,
                                                       .out = out,
                                                       .num_rows = c->num_rows,
                                                       .row_stride = stride,
                                                       .width = width,
                                                       .total_width = c->total_width,
                                                       .epsilon = EPSILON,
                                                       .accumulate = c->accumulate});
        kernel_fixture_get(member->backend, numbers.dtype, out, rows, n);
        for (int32_t row = 0; row < c->num_rows; row++)
            memcpy(c->out[run] + (size_t)row * (size_t)c->total_width + first, rows + row * stride,
                   (size_t)width * sizeof(float));
        kernel_fixture_guarded_free(rows);
        kernel_fixture_free(member->backend, weight);
        kernel_fixture_free(member->backend, x);
        if (out != x)
            kernel_fixture_free(member->backend, out);
    }
}

static void assert_normalised(const struct norm_case *c) {
    for (int32_t row = 0; row < c->num_rows; row++) {
        const float *x = c->x + (size_t)row * (size_t)c->total_width;
        double sum = 0;
        for (int32_t i = 0; i < c->total_width; i++)
            sum += (double)x[i] * x[i];
        double scale = 1 / sqrt(sum / c->total_width + EPSILON);
        for (int32_t i = 0; i < c->total_width; i++) {
            float expected = (float)(x[i] * scale * c->weight[i] + (c->accumulate ? x[i] : 0));
            kernel_fixture_assert_near(c->out[0] + row * c->total_width + i, &expected, 1,
                                       norm_tolerance);
        }
    }
}

static void assert_same_by_memory(const struct group_form *form, const struct norm_case *c) {
    struct group_form by_memory = *form;
    struct norm_case again = *c;
    size_t n = (size_t)c->num_rows * (size_t)c->total_width;
    by_memory.way = BY_MEMORY;
    for (int run = 0; run < NUM_RUNS; run++)
        again.out[run] = kernel_fixture_guarded(n);
    group_fixture_run(&by_memory, normalise, &again);
    assert_memory_equal(again.out[0], c->out[0], n * sizeof(float));
    for (int run = 0; run < NUM_RUNS; run++)
        kernel_fixture_guarded_free(again.out[run]);
}

static void check_norm(const struct group_form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    for (int round = 0; round < 6; round++) {
        struct norm_case c = {.num_rows = round == 0 ? 1 : kernel_fixture_random_in(seed, 2, 9),
                              .in_place = round % 2 == 0,
                              .accumulate = round % 3 == 1};
        for (int32_t r = 0; r < num_ranks; r++)
            c.total_width += c.widths[r] =
                kernel_fixture_random_in(seed, 1, round == 5 ? 9000 : 100);
        size_t n = (size_t)c.num_rows * (size_t)c.total_width;
        float *x = random_numbers(seed, n);
        float *weight = kernel_fixture_random_floats(seed, (size_t)c.total_width);
        c.x = x;
        c.weight = weight;
        for (int run = 0; run < NUM_RUNS; run++)
            c.out[run] = kernel_fixture_guarded(n);
        group_fixture_run(form, normalise, &c);
        assert_normalised(&c);
        for (int run = 0; run < NUM_RUNS; run++)
            assert_memory_equal(c.out[run], c.out[0], n * sizeof(float));
        assert_same_by_memory(form, &c);
        for (int run = 0; run < NUM_RUNS; run++)
            kernel_fixture_guarded_free(c.out[run]);
        free(weight);
        free(x);
    }
}

static void test_norm(void **state) {
    for_all_groups(check_norm);
}

/* --- Groups --- */

/* Ranks of which one or another is late, one op after the other: nobody goes on early, and nobody
 * is left asleep. */
static void meet_often(struct group_member *member, void *context) {
    struct backend *b = member->backend;
    int32_t *num_wrong = context;
    void *sum = put(member, NULL, 1);
    for (int i = 0; i < 300; i++) {
        float x = (float)(i % 32 + member->rank), expected = 0;
        if (i % 50 == member->rank)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* longer than they spin */
        kernel_fixture_set(b, numbers.dtype, sum, &x, 1);
        b->ops->all_reduce(
            b, &(struct all_reduce_args){.x = sum, .out = sum, .num_rows = 1, .width = 1});
        kernel_fixture_get(b, numbers.dtype, sum, &x, 1);
        for (int32_t r = 0; r < max_ranks; r++)
            expected += (float)(i % 32 + r);
        num_wrong[member->rank] += x != expected;
    }
    kernel_fixture_free(b, sum);
}

static void test_many_meetings(void **state) {
    int32_t num_wrong[GROUP_MAX_RANKS] = {0};
    for (size_t kind = 0; kind < num_kinds && kind < 2; kind++)
        for (int way = 0; way < num_ways; way++)
            group_fixture_run(&(struct group_form){.kind = &kinds[kind],
                                                   .num_ranks = max_ranks,
                                                   .way = way,
                                                   .max_delay_ns = 300000},
                              meet_often, num_wrong);
    for (int32_t r = 0; r < GROUP_MAX_RANKS; r++)
        assert_int_equal(num_wrong[r], 0);
}

static void assert_group_refused(const char *device, int32_t num_ranks, const char *word) {
    struct backend_group *group = NULL;
    struct error err = {0};
    assert_int_equal(backend_group_create(device, num_ranks, &group, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, word));
    assert_null(group);
}

static void assert_rank_refused(struct backend_group *group, int32_t rank) {
    for (size_t kind = 0; kind < 2; kind++) {
        const struct backend_config config = {.num_threads = 1,
                                              .limits.max_num_batched_tokens = 1,
                                              .limits.max_num_seqs = 1,
                                              .limits.max_logit_rows = 1,
                                              .group = group,
                                              .rank = rank};
        struct error err = {0};
        assert_null(backend_open(kinds[kind].device, &config, &err));
        assert_int_equal(err.code, ERROR_CONFIG);
    }
}

static void test_refused(void **state) {
    assert_group_refused("cpu", 0, "must be 1 to 8");
    assert_group_refused("cpu", -1, "must be 1 to 8");
    assert_group_refused("cpu-ref", BACKEND_MAX_RANKS + 1, "must be 1 to 8");
    struct backend_group *group = NULL;
    backend_group_destroy(NULL);
    assert_int_equal(backend_group_create("cpu", 2, &group, NULL), 0);
    assert_rank_refused(group, -1);
    assert_rank_refused(group, 2);
    backend_group_destroy(group);
}

static void test_remote_refused(void **state) {
    struct backend_group *group = NULL;
    struct error err = {0};
    struct transport transport = {.num_ranks = BACKEND_MAX_RANKS + 1};
    assert_int_equal(
        backend_group_create_remote("cpu", &transport, 0, BACKEND_MAX_RANKS + 1, &group, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_null(group);
    transport = (struct transport){.rank = 1, .num_ranks = 3};
    assert_int_equal(backend_group_create_remote("cpu", &transport, 0, 3, &group, NULL), 0);
    for (int32_t rank = -1; rank <= 3; rank++)
        if (rank != transport.rank)
            assert_rank_refused(group, rank);
    backend_group_destroy(group);
}

/* --- Devices --- */

/* One rank more than there are devices. */
static void test_too_many_ranks(void **state) {
    struct backend_group *group = NULL;
    struct error err = {0};
    int32_t num_ranks = max_ranks + 1;
    char word[32];
    while (backend_group_create(device_kind.device, num_ranks, &group, &err) == 0) {
        backend_group_destroy(group);
        group = NULL;
        num_ranks++;
    }
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_null(group);
    snprintf(word, sizeof(word),
             num_ranks <= BACKEND_MAX_RANKS ? "there are %d" : "must be 1 to %d", num_ranks - 1);
    assert_non_null(strstr(err.message, word));
}

/* A rank that the group does not have. */
static void test_rank_refused(void **state) {
    struct backend_group *group = NULL;
    assert_int_equal(backend_group_create(device_kind.device, 1, &group, NULL), 0);
    for (int32_t rank = -1; rank <= 1; rank += 2) {
        const struct backend_config config = {
            .activation_dtype = numbers.dtype, .group = group, .rank = rank};
        struct error err = {0};
        assert_null(backend_open(device_kind.device, &config, &err));
        assert_int_equal(err.code, ERROR_CONFIG);
    }
    backend_group_destroy(group);
}

/* Ranks of several processes: a machine with too few devices, and the rank of another process. */
static void test_process_refused(void **state) {
    struct backend_group *group = NULL;
    struct error err = {0};
    struct transport transport = {.num_ranks = 2, .num_local = 1000};
    assert_int_equal(
        backend_group_create_remote(device_kind.device, &transport, 0, 2, &group, &err),
        max_ranks > 1 ? -1 : 0);
    if (max_ranks > 1)
        assert_non_null(strstr(err.message, "1000 ranks need a GPU each; there are"));
    backend_group_destroy(group);
    transport.num_local = 1;
    assert_int_equal(
        backend_group_create_remote(device_kind.device, &transport, 0, 2, &group, NULL), 0);
    const struct backend_config config = {
        .activation_dtype = numbers.dtype, .group = group, .rank = 1};
    assert_null(backend_open(device_kind.device, &config, &err));
    assert_non_null(strstr(err.message, "rank 1: this process is rank 0"));
    backend_group_destroy(group);
}

static void choose_device(int argc, char **argv) {
    device_kind = group_fixture_choose_device(argc, argv, &max_ranks);
    kinds = &device_kind;
    num_kinds = 1;
    num_ways = strcmp(device_kind.device, "cuda-sim") == 0 ? NUM_GROUP_WAYS : 1;
    numbers.dtype = device_kind.dtype;
    norm_tolerance = numbers.dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

/* --- A rank that is lost --- */

#define LOST_S 30   /* a rank that waits for ever ends the program */
#define TIMEOUT_S 3 /* of messages; ranks of one process know at once */

struct lost_case {
    struct error of_wait, of_replay; /* rank 0's */
};

/* Rank 0 replays once more than the others, which are closed, while its recording lives. */
static void lose(struct group_member *member, void *context) {
    struct lost_case *c = context;
    struct backend *b = member->backend;
    const struct recording_ops *ops = b->ops->recording;
    struct buffer x;
    struct recording *recording = NULL;
    if (b->ops->buffer_alloc(b, WIDTH * sizeof(float), &x, NULL) != 0)
        abort();
    const struct all_reduce_args args = {.x = x.data, .out = x.data, .num_rows = 1, .width = WIDTH};
    b->ops->all_reduce(b, &args);
    if (b->ops->synchronize(b, NULL) != 0 || ops->begin(b, 0, NULL) != 0)
        abort();
    b->ops->all_reduce(b, &args);
    if (ops->end(b, &recording, NULL) != 0)
        abort();
    ops->replay(b, recording);
    b->ops->synchronize(b, NULL);
    if (member->rank == 0) {
        ops->replay(b, recording);
        b->ops->synchronize(b, &c->of_wait);
        ops->replay(b, recording);
        b->ops->synchronize(b, &c->of_replay);
    }
    ops->free(b, recording);
    b->ops->buffer_free(b, &x);
}

static void check_lost(const struct group_form *form, uint64_t *seed) {
    struct lost_case c = {0};
    bool by_messages = form->way == BY_MESSAGES;
    if (form->num_ranks == 1)
        return;
    struct group_form with_timeout = *form;
    with_timeout.timeout_ns = TIMEOUT_S * CLOCK_NS_PER_S;
    group_fixture_run(&with_timeout, lose, &c);
    assert_int_equal(c.of_wait.code, ERROR_DEVICE);
    assert_int_equal(strstr(c.of_wait.message, "(--rank-timeout)") != NULL, by_messages);
    assert_string_equal(c.of_replay.message, c.of_wait.message);
}

static void test_lost_rank_with_recordings(void **state) {
    alarm(LOST_S);
    for_all_groups(check_lost);
    alarm(0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest of_cpu[] = {
        cmocka_unit_test(test_all_reduce),     cmocka_unit_test(test_gather_columns),
        cmocka_unit_test(test_share_samples),  cmocka_unit_test(test_norm),
        cmocka_unit_test(test_many_meetings),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_remote_refused),
    };
    const struct CMUnitTest of_device[] = {
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_fast_sums),
        cmocka_unit_test(test_gather_columns),
        cmocka_unit_test(test_share_samples),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_many_meetings),
        cmocka_unit_test(test_too_many_ranks),
        cmocka_unit_test(test_rank_refused),
        cmocka_unit_test(test_process_refused),
        cmocka_unit_test(test_lost_rank_with_recordings),
    };
    if (argc == 1)
        return cmocka_run_group_tests(of_cpu, NULL, NULL);
    choose_device(argc, argv);
    return cmocka_run_group_tests(of_device, NULL, NULL);
}
