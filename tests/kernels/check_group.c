/* The collective ops: groups of 1 to 4 ranks, each a thread with a backend of its own, against sums
 * taken here in the order of the ranks. Every rank has the same bits, and the same in every run,
 * whether ranks reach one another's memory or send messages. */
#include "tests/kernels/fake_transport.h"
#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_RANKS 4
#define MAX_ROWS 70
#define MAX_WIDTH 1024   /* of what is summed */
#define MAX_COLUMNS 2000 /* of a rank, gathered */
#define NUM_RUNS 3
#define FIRST_RANK 1 /* of the transport's, that is in a group by messages */

static const struct {
    const char *device, *isa;
    int num_threads;
} kinds[] = {
    {"cpu-ref", NULL, 1}, {"cpu", "portable", 1}, {"cpu", "portable", 2},
    {"cpu", "auto", 1},   {"cpu", "auto", 3},
};

#define NUM_KINDS (sizeof(kinds) / sizeof(kinds[0]))

enum way { BY_MEMORY, BY_MESSAGES, NUM_WAYS };

/* A kind of group. */
struct form {
    size_t kind;
    int32_t num_ranks;
    enum way way;
    int64_t max_delay_ns; /* of a message */
};

/* What one rank's thread does with its backend. cmocka fails in the thread of the test only, so
 * results are looked at once all threads have ended. */
struct member {
    struct backend_group *group; /* of all, or of this one alone */
    struct backend *backend;
    int32_t rank;
    size_t kind;
    void (*body)(struct member *member, void *context);
    void *context;
    pthread_t thread;
};

static void *run_member(void *argument) {
    struct member *member = argument;
    const struct backend_config config = {.num_threads = kinds[member->kind].num_threads,
                                          .isa = kinds[member->kind].isa,
                                          .limits.max_num_batched_tokens = MAX_ROWS,
                                          .limits.max_num_seqs = MAX_ROWS,
                                          .limits.max_logit_rows = MAX_ROWS,
                                          .limits.vocab_size = MAX_RANKS * MAX_COLUMNS,
                                          .limits.hidden_size = MAX_WIDTH,
                                          .group = member->group,
                                          .rank = member->rank};
    member->backend = backend_open(kinds[member->kind].device, &config, NULL);
    if (member->backend == NULL)
        abort();
    member->body(member, member->context);
    backend_close(member->backend);
    return NULL;
}

/* Every rank of a group by messages has a group of its own, as it has in another process. */
static void create_groups(const struct form *form, struct fake_network *network,
                          struct member *members) {
    struct backend_group *group = NULL;
    if (network == NULL)
        assert_int_equal(
            backend_group_create(kinds[form->kind].device, form->num_ranks, &group, NULL), 0);
    for (int32_t r = 0; r < form->num_ranks; r++) {
        members[r].group = group;
        if (network != NULL)
            assert_int_equal(
                backend_group_create_remote(kinds[form->kind].device,
                                            fake_network_transport(network, FIRST_RANK + r),
                                            FIRST_RANK, form->num_ranks, &members[r].group, NULL),
                0);
    }
}

static void destroy_groups(const struct form *form, struct fake_network *network,
                           struct member *members) {
    for (int32_t r = 0; r < (network == NULL ? 1 : form->num_ranks); r++)
        backend_group_destroy(members[r].group);
    if (network != NULL)
        fake_network_destroy(network);
}

static void run_group(const struct form *form, void (*body)(struct member *member, void *context),
                      void *context) {
    struct member members[MAX_RANKS] = {{0}};
    struct fake_network *network = NULL;
    if (form->way == BY_MESSAGES) {
        network = fake_network_create(FIRST_RANK + form->num_ranks, 0);
        fake_network_delay(network, form->max_delay_ns);
    }
    create_groups(form, network, members);
    for (int32_t r = 0; r < form->num_ranks; r++) {
        members[r].rank = r;
        members[r].kind = form->kind;
        members[r].body = body;
        members[r].context = context;
        assert_int_equal(pthread_create(&members[r].thread, NULL, run_member, &members[r]), 0);
    }
    for (int32_t r = 0; r < form->num_ranks; r++)
        assert_int_equal(pthread_join(members[r].thread, NULL), 0);
    destroy_groups(form, network, members);
}

static void for_all_groups(void (*check)(const struct form *form, uint64_t *seed)) {
    uint64_t seed = 1;
    for (size_t kind = 0; kind < NUM_KINDS; kind++)
        for (int32_t num_ranks = 1; num_ranks <= MAX_RANKS; num_ranks++)
            for (int way = 0; way < NUM_WAYS; way++)
                check(&(struct form){.kind = kind, .num_ranks = num_ranks, .way = way}, &seed);
}

static float *copy_of(const float *values, size_t n) {
    float *copy = kernel_fixture_guarded(n);
    memcpy(copy, values, n * sizeof(*copy));
    return copy;
}

/* --- all_reduce ------------------------------------------------------------------------------- */

enum { IN_PLACE, ELSEWHERE, ADDED, NUM_MODES };

struct reduce_case {
    int32_t num_rows, width;
    int mode;
    const float *in[MAX_RANKS]; /* left as they are */
    const float *before;        /* of every rank's out */
    float *out[MAX_RANKS][NUM_RUNS];
};

static void reduce(struct member *member, void *context) {
    struct reduce_case *c = context;
    size_t n = (size_t)c->num_rows * (size_t)c->width;
    for (int run = 0; run < NUM_RUNS; run++) {
        float *x = copy_of(c->in[member->rank], n);
        float *out = c->mode == IN_PLACE ? x : copy_of(c->before, n);
        member->backend->ops->all_reduce(member->backend,
                                         &(struct all_reduce_args){.x = x,
                                                                   .out = out,
                                                                   .num_rows = c->num_rows,
                                                                   .width = c->width,
                                                                   .accumulate = c->mode == ADDED});
        c->out[member->rank][run] = out;
        if (out != x)
            kernel_fixture_guarded_free(x);
    }
}

static void assert_reduced(const struct reduce_case *c, int32_t num_ranks) {
    size_t n = (size_t)c->num_rows * (size_t)c->width;
    for (size_t i = 0; i < n; i++) {
        float sum = c->in[0][i];
        for (int32_t r = 1; r < num_ranks; r++)
            sum += c->in[r][i];
        if (c->mode == ADDED)
            sum = c->before[i] + sum;
        for (int32_t r = 0; r < num_ranks; r++)
            for (int run = 0; run < NUM_RUNS; run++)
                if (memcmp(&c->out[r][run][i], &sum, sizeof(sum)) != 0)
                    fail_msg("%d ranks, mode %d, %d x %d: element %zu of rank %d is %.9g in run "
                             "%d, expected %.9g",
                             (int)num_ranks, c->mode, (int)c->num_rows, (int)c->width, i, (int)r,
                             (double)c->out[r][run][i], run, (double)sum);
    }
}

static void check_reduce(const struct form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    static const int32_t shapes[][2] = {{1, 1},  {1, 15},  {1, 16},   {1, 17},
                                        {3, 31}, {1, 576}, {17, 129}, {MAX_ROWS, MAX_WIDTH}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (int mode = 0; mode < NUM_MODES; mode++) {
            struct reduce_case c = {.num_rows = shapes[s][0], .width = shapes[s][1], .mode = mode};
            size_t n = (size_t)c.num_rows * (size_t)c.width;
            float *in[MAX_RANKS], *before = kernel_fixture_random_floats(seed, n);
            c.before = before;
            for (int32_t r = 0; r < num_ranks; r++)
                c.in[r] = in[r] = kernel_fixture_random_floats(seed, n);
            run_group(form, reduce, &c);
            assert_reduced(&c, num_ranks);
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

/* --- gather_columns --------------------------------------------------------------------------- */

struct gather_case {
    int32_t num_rows, widths[MAX_RANKS];
    const float *in[MAX_RANKS];
    float *out; /* of rank 0 */
};

static void gather(struct member *member, void *context) {
    const struct gather_case *c = context;
    float *x = copy_of(c->in[member->rank], (size_t)c->num_rows * (size_t)c->widths[member->rank]);
    member->backend->ops->gather_columns(
        member->backend, &(struct gather_columns_args){.x = x,
                                                       .out = member->rank == 0 ? c->out : NULL,
                                                       .num_rows = c->num_rows,
                                                       .width = c->widths[member->rank]});
    kernel_fixture_guarded_free(x);
}

static void check_gather(const struct form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    for (int round = 0; round < 4; round++) {
        struct gather_case c = {.num_rows =
                                    round == 0 ? 1 : kernel_fixture_random_in(seed, 2, MAX_ROWS)};
        float *in[MAX_RANKS];
        int32_t total = 0;
        for (int32_t r = 0; r < num_ranks; r++) {
            c.widths[r] = kernel_fixture_random_in(seed, 1, round < 3 ? 40 : MAX_COLUMNS);
            total += c.widths[r];
            c.in[r] = in[r] =
                kernel_fixture_random_floats(seed, (size_t)c.num_rows * (size_t)c.widths[r]);
        }
        c.out = kernel_fixture_guarded((size_t)c.num_rows * (size_t)total);
        run_group(form, gather, &c);
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

/* --- share_samples, and embed of a part of the rows ------------------------------------------- */

#define VOCAB 24
#define NUM_SAMPLES 5
#define WIDTH 32

struct sample_case {
    int32_t num_ranks;
    const float *table; /* [VOCAB, WIDTH] */
    int32_t tokens[NUM_SAMPLES];
    float *out[MAX_RANKS]; /* [NUM_SAMPLES, WIDTH] embedded by each rank */
};

/* Rank 0 scores tokens, in two calls, as sampled; the next step embeds them by their rows, each rank
 * from its share of the table. */
static void share(struct member *member, void *context) {
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
    float logits[NUM_SAMPLES * VOCAB] = {0};
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
    if (b->ops->matrix_create(b, &part, 1, WIDTH, &table, NULL) != 0)
        abort();
    b->ops->embed(
        b, &(struct embed_args){
               .table = table, .out = c->out[member->rank], .first_row = first_row, .scale = 1});
    b->ops->matrix_destroy(b, table);
}

static void check_share(const struct form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    float *table = kernel_fixture_random_floats(seed, VOCAB * WIDTH);
    struct sample_case c = {.num_ranks = num_ranks, .table = table};
    for (int32_t i = 0; i < NUM_SAMPLES; i++)
        c.tokens[i] = kernel_fixture_random_in(seed, 0, VOCAB - 1);
    c.tokens[0] = 0;
    c.tokens[NUM_SAMPLES - 1] = VOCAB - 1;
    for (int32_t r = 0; r < num_ranks; r++)
        c.out[r] = kernel_fixture_guarded(NUM_SAMPLES * WIDTH);
    run_group(form, share, &c);
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

/* --- norm over all ranks ---------------------------------------------------------------------- */

struct norm_case {
    int32_t num_rows, widths[MAX_RANKS], total_width;
    bool in_place, accumulate;
    const float *weight;  /* [total_width] */
    const float *x;       /* [num_rows, total_width]; before of out, too */
    float *out[NUM_RUNS]; /* [num_rows, total_width] */
};

#define EPSILON 1e-5F

static void normalise(struct member *member, void *context) {
    const struct norm_case *c = context;
    int32_t width = c->widths[member->rank], stride = width + 3;
    size_t n = (size_t)c->num_rows * (size_t)stride;
    int32_t first = 0;
    for (int32_t r = 0; r < member->rank; r++)
        first += c->widths[r];
    for (int run = 0; run < NUM_RUNS; run++) {
        float *x = kernel_fixture_guarded(n);
        for (int32_t row = 0; row < c->num_rows; row++)
            memcpy(x + row * stride, c->x + (size_t)row * (size_t)c->total_width + first,
                   (size_t)width * sizeof(float));
        float *out = c->in_place ? x : copy_of(x, n);
        member->backend->ops->norm(member->backend,
                                   &(struct norm_args){.x = x,
                                                       .weight = c->weight + first,
                                                       .out = out,
                                                       .num_rows = c->num_rows,
                                                       .row_stride = stride,
                                                       .num_groups = 1,
                                                       .width = width,
                                                       .total_width = c->total_width,
                                                       .epsilon = EPSILON,
                                                       .accumulate = c->accumulate});
        for (int32_t row = 0; row < c->num_rows; row++)
            memcpy(c->out[run] + (size_t)row * (size_t)c->total_width + first, out + row * stride,
                   (size_t)width * sizeof(float));
        kernel_fixture_guarded_free(x);
        if (out != x)
            kernel_fixture_guarded_free(out);
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
            kernel_fixture_assert_near(c->out[0] + row * c->total_width + i, &expected, 1, 2e-6);
        }
    }
}

static void assert_same_by_memory(const struct form *form, const struct norm_case *c) {
    struct form by_memory = *form;
    struct norm_case again = *c;
    size_t n = (size_t)c->num_rows * (size_t)c->total_width;
    by_memory.way = BY_MEMORY;
    for (int run = 0; run < NUM_RUNS; run++)
        again.out[run] = kernel_fixture_guarded(n);
    run_group(&by_memory, normalise, &again);
    assert_memory_equal(again.out[0], c->out[0], n * sizeof(float));
    for (int run = 0; run < NUM_RUNS; run++)
        kernel_fixture_guarded_free(again.out[run]);
}

static void check_norm(const struct form *form, uint64_t *seed) {
    int32_t num_ranks = form->num_ranks;
    for (int round = 0; round < 6; round++) {
        struct norm_case c = {.num_rows = round == 0 ? 1 : kernel_fixture_random_in(seed, 2, 9),
                              .in_place = round % 2 == 0,
                              .accumulate = round % 3 == 1};
        for (int32_t r = 0; r < num_ranks; r++)
            c.total_width += c.widths[r] =
                kernel_fixture_random_in(seed, 1, round == 5 ? 9000 : 100);
        size_t n = (size_t)c.num_rows * (size_t)c.total_width;
        float *x = kernel_fixture_random_floats(seed, n);
        float *weight = kernel_fixture_random_floats(seed, (size_t)c.total_width);
        c.x = x;
        c.weight = weight;
        for (int run = 0; run < NUM_RUNS; run++)
            c.out[run] = kernel_fixture_guarded(n);
        run_group(form, normalise, &c);
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

/* --- Groups ----------------------------------------------------------------------------------- */

/* Ranks of which one or another is late, one op after the other: nobody goes on early, and nobody
 * is left asleep. */
static void meet_often(struct member *member, void *context) {
    struct backend *b = member->backend;
    int32_t *num_wrong = context;
    for (int i = 0; i < 300; i++) {
        float x = (float)(i + member->rank);
        if (i % 50 == member->rank)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* longer than they spin */
        b->ops->all_reduce(
            b, &(struct all_reduce_args){.x = &x, .out = &x, .num_rows = 1, .width = 1});
        num_wrong[member->rank] += x != (float)(MAX_RANKS * i + 6); /* 0 + 1 + 2 + 3 */
    }
}

static void test_many_meetings(void **state) {
    int32_t num_wrong[MAX_RANKS] = {0};
    for (size_t kind = 0; kind < 2; kind++)
        for (int way = 0; way < NUM_WAYS; way++)
            run_group(
                &(struct form){
                    .kind = kind, .num_ranks = MAX_RANKS, .way = way, .max_delay_ns = 300000},
                meet_often, num_wrong);
    for (int32_t r = 0; r < MAX_RANKS; r++)
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
    assert_group_refused("cuda", 2, "only the CPU");
    assert_group_refused("cuda-sim", 2, "only the CPU");
    struct backend_group *group = NULL;
    assert_int_equal(backend_group_create("cuda", 1, &group, NULL), 0);
    backend_group_destroy(group);
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
    transport.num_ranks = 2;
    assert_int_equal(backend_group_create_remote("cuda", &transport, 0, 2, &group, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "on cuda it must be 1"));
    assert_null(group);
    transport = (struct transport){.rank = 1, .num_ranks = 3};
    assert_int_equal(backend_group_create_remote("cpu", &transport, 0, 3, &group, NULL), 0);
    for (int32_t rank = -1; rank <= 3; rank++)
        if (rank != transport.rank)
            assert_rank_refused(group, rank);
    backend_group_destroy(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce),     cmocka_unit_test(test_gather_columns),
        cmocka_unit_test(test_share_samples),  cmocka_unit_test(test_norm),
        cmocka_unit_test(test_many_meetings),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_remote_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
