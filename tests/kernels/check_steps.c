/* Two steps at a time, the next enqueued before the one that runs was waited for, against one at a
 * time: the same bits, and each step's results are there after the wait for that step. */
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/sample_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    NUM_STEPS = 7,
    LARGE_STEP = 3, /* moves more, in bytes and in number, than a device keeps memory for */
    LARGE_BYTES = 17 << 20,
    LARGE_NUMBER = 70,
    TOKENS = 24,
    WIDTH = 32,
    VOCAB = 100,
    ROWS = 19,
    CHUNK = 8,  /* rows of a call */
    LISTED = 3, /* tokens of a row, each row's with a gap before the next's */
    PLACES = LISTED + 2,
    SUMS = 2,
};

static struct kernel_fixture fixture;

/* What a step reads and writes on the host. */
struct step {
    int32_t token_ids[TOKENS], token_rows[TOKENS], zeros[TOKENS];
    int32_t logit_rows[ROWS];
    struct sample_row rows[ROWS];
    struct token_bias biases[ROWS];
    struct token_count counts[ROWS];
    uint32_t masks[ROWS][SAMPLE_MASK_WORDS(VOCAB)];
    int32_t listed[ROWS * LISTED];
    struct row_span spans[SUMS];
    float sums_before[SUMS * WIDTH];
    struct results {
        int32_t tokens[ROWS];
        float listed_logprobs[ROWS * PLACES];
        float sums[SUMS * WIDTH];
    } results;
    struct sample_output out[ROWS];
    float large[LARGE_NUMBER];
};

static void fill_tokens(struct step *s, int index, uint64_t *seed) {
    for (int t = 0; t < TOKENS; t++) {
        bool is_sampled = index > 0 && kernel_fixture_random_in(seed, 0, 2) > 0;
        s->token_rows[t] = is_sampled ? kernel_fixture_random_in(seed, 0, ROWS - 1) : -1;
        s->token_ids[t] = kernel_fixture_random_in(seed, 0, VOCAB - 1);
    }
}

static void fill_rows(struct step *s, uint64_t *seed) {
    for (int r = 0; r < ROWS; r++) {
        s->logit_rows[r] = kernel_fixture_random_in(seed, 0, TOKENS - 1);
        s->rows[r] = sample_fixture_plain;
        s->rows[r].seed = kernel_fixture_random(seed);
        s->rows[r].settings.frequency_penalty = 0.5f;
        s->rows[r].first_bias = s->rows[r].first_count = s->rows[r].mask = r;
        s->rows[r].num_biases = s->rows[r].num_counts = 1;
        s->rows[r].num_logprobs = 0;
        s->rows[r].first_listed = r * LISTED;
        s->rows[r].num_listed = LISTED;
        s->rows[r].first_listed_logprob = r * PLACES;
        s->biases[r] = (struct token_bias){kernel_fixture_random_in(seed, 0, VOCAB - 1), 3};
        s->counts[r] = (struct token_count){kernel_fixture_random_in(seed, 0, VOCAB - 1), 2};
        for (int w = 0; w < SAMPLE_MASK_WORDS(VOCAB); w++)
            s->masks[r][w] = kernel_fixture_random(seed) | kernel_fixture_random(seed);
    }
    for (int i = 0; i < ROWS * LISTED; i++)
        s->listed[i] = kernel_fixture_random_in(seed, 0, VOCAB - 1);
    for (int i = 0; i < SUMS * WIDTH; i++)
        s->sums_before[i] = kernel_fixture_uniform(seed);
    for (int i = 0; i < SUMS; i++)
        s->spans[i] = (struct row_span){kernel_fixture_random_in(seed, 0, 9), 11};
}

static struct step *make_steps(void) {
    struct step *steps = calloc(NUM_STEPS, sizeof(*steps));
    uint64_t seed = 11;
    assert_non_null(steps);
    for (int i = 0; i < NUM_STEPS; i++) {
        fill_tokens(&steps[i], i, &seed);
        fill_rows(&steps[i], &seed);
    }
    return steps;
}

/* A model of one matrix, which is its embedding and its head. */
struct parts {
    struct backend *backend;
    struct matrix *table; /* [VOCAB, WIDTH] */
    void *hidden;         /* [TOKENS, WIDTH] */
    void *head_rows;      /* [CHUNK, WIDTH] */
    void *logits;         /* [CHUNK, VOCAB] */
    void *sums;           /* [SUMS, WIDTH] */
    struct buffer large;
    char *large_source;
};

static void parts_init(struct parts *p, struct backend *b) {
    uint64_t seed = 3;
    float *values = kernel_fixture_random_floats(&seed, VOCAB * WIDTH);
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = VOCAB, .data = values};
    *p =
        (struct parts){.backend = b,
                       .table = kernel_fixture_matrix(b, &part, 1, WIDTH, MATRIX_LINEAR),
                       .hidden = kernel_fixture_put(b, b->activation_dtype, NULL, TOKENS * WIDTH),
                       .head_rows = kernel_fixture_put(b, b->activation_dtype, NULL, CHUNK * WIDTH),
                       .logits = kernel_fixture_put(b, DTYPE_F32, NULL, CHUNK * VOCAB),
                       .sums = kernel_fixture_put(b, DTYPE_F32, NULL, SUMS * WIDTH),
                       .large_source = kernel_fixture_memory(LARGE_BYTES)};
    memset(p->large_source, 0x5a, LARGE_BYTES);
    assert_int_equal(b->ops->buffer_alloc(b, LARGE_BYTES, &p->large, NULL), 0);
    free(values);
}

static void parts_finish(struct parts *p) {
    p->backend->ops->buffer_free(p->backend, &p->large);
    kernel_fixture_free(p->backend, p->sums);
    kernel_fixture_free(p->backend, p->logits);
    kernel_fixture_free(p->backend, p->head_rows);
    kernel_fixture_free(p->backend, p->hidden);
    p->backend->ops->matrix_destroy(p->backend, p->table);
    free(p->large_source);
}

static void enqueue_forward(const struct parts *p, const struct step *s) {
    struct backend *b = p->backend;
    b->ops->step_begin(b, &(struct step_inputs){.num_tokens = TOKENS,
                                                .num_seqs = 1,
                                                .max_blocks_per_seq = 1,
                                                .token_ids = s->token_ids,
                                                .token_rows = s->token_rows,
                                                .positions = s->zeros,
                                                .slot_mapping = s->zeros,
                                                .query_start = s->zeros,
                                                .context_lens = s->zeros,
                                                .block_tables = s->zeros});
    b->ops->embed(b, &(struct embed_args){.table = p->table, .out = p->hidden, .scale = 1});
}

static void enqueue_rows(const struct parts *p, struct step *s, int32_t first, int32_t count) {
    struct backend *b = p->backend;
    b->ops->gather_rows(b, &(struct gather_rows_args){.x = p->hidden,
                                                      .rows = s->logit_rows + first,
                                                      .out = p->head_rows,
                                                      .num_rows = count,
                                                      .width = WIDTH});
    b->ops->linear(b, &(struct linear_args){.x = p->head_rows,
                                            .weight = p->table,
                                            .out = p->logits,
                                            .num_rows = count,
                                            .scale = 0.3f,
                                            .float_out = true});
    b->ops->sample(b, &(struct sample_args){.logits = p->logits,
                                            .first_row = first,
                                            .num_sample_rows = count,
                                            .vocab_size = VOCAB,
                                            .rows = s->rows + first,
                                            .counts = s->counts,
                                            .biases = s->biases,
                                            .masks = s->masks[0],
                                            .listed = s->listed,
                                            .out = s->out + first,
                                            .listed_logprobs = s->results.listed_logprobs});
}

static void enqueue_sampling(const struct parts *p, struct step *s, bool is_large) {
    struct backend *b = p->backend;
    for (int32_t first = 0; first < ROWS; first += CHUNK)
        enqueue_rows(p, s, first, ROWS - first < CHUNK ? ROWS - first : CHUNK);
    if (is_large)
        b->ops->upload(b, p->large.data, p->large_source, LARGE_BYTES);
    for (int i = 0; is_large && i < LARGE_NUMBER; i++)
        b->ops->download(b, &s->large[i], &((float *)p->large.data)[i], sizeof(float));
    b->ops->upload(b, p->sums, s->sums_before, sizeof(s->sums_before));
    b->ops->add_rows(
        b,
        &(struct add_rows_args){
            .x = p->hidden, .spans = s->spans, .sums = p->sums, .num_spans = SUMS, .width = WIDTH});
    b->ops->download(b, s->results.sums, p->sums, sizeof(s->results.sums));
}

/* Ends a step that was waited for: keeps what its rows say, and takes what it read away. */
static void close_step(struct step *s) {
    struct results results = s->results;
    for (int r = 0; r < ROWS; r++)
        results.tokens[r] = s->out[r].token;
    memset(s, 0xff, sizeof(*s));
    s->results = results;
}

static void run_one_at_a_time(const struct parts *p, struct step *steps) {
    for (int i = 0; i < NUM_STEPS; i++) {
        enqueue_forward(p, &steps[i]);
        enqueue_sampling(p, &steps[i], i == LARGE_STEP);
        kernel_fixture_synchronize(p->backend);
        close_step(&steps[i]);
    }
}

static void wait_for(const struct parts *p, struct step *s) {
    struct error err = {0};
    if (p->backend->ops->step_wait(p->backend, &err) != 0)
        fail_msg("%s", err.message);
    close_step(s);
}

/* Waits for each step while the next is enqueued: between its two parts, or behind both. */
static void run_two_at_a_time(const struct parts *p, struct step *steps, bool wait_late) {
    for (int i = 0; i < NUM_STEPS; i++) {
        enqueue_forward(p, &steps[i]);
        if (i > 0 && !wait_late)
            wait_for(p, &steps[i - 1]);
        enqueue_sampling(p, &steps[i], i == LARGE_STEP);
        p->backend->ops->step_end(p->backend);
        if (i > 0 && wait_late)
            wait_for(p, &steps[i - 1]);
    }
    if (wait_late)
        kernel_fixture_synchronize(p->backend); /* instead of the last wait */
    else
        wait_for(p, &steps[NUM_STEPS - 1]);
    if (wait_late)
        close_step(&steps[NUM_STEPS - 1]);
}

static void assert_same_results(const struct step *actual, const struct step *expected) {
    for (int i = 0; i < NUM_STEPS; i++) {
        const struct results *a = &actual[i].results, *e = &expected[i].results;
        for (int r = 0; r < ROWS; r++)
            if (a->tokens[r] != e->tokens[r])
                fail_msg("step %d, row %d: token %d, expected %d", i, r, a->tokens[r],
                         e->tokens[r]);
        assert_memory_equal(a->listed_logprobs, e->listed_logprobs, sizeof(a->listed_logprobs));
        assert_memory_equal(a->sums, e->sums, sizeof(a->sums));
    }
}

static void test_two_at_a_time(void **state) {
    for (int i = -1; i < fixture.num_backends; i++) {
        struct parts parts;
        struct step *expected = make_steps();
        parts_init(&parts, i < 0 ? fixture.oracle : fixture.backends[i]);
        run_one_at_a_time(&parts, expected);
        for (int wait_late = 0; wait_late < 2; wait_late++) {
            struct step *steps = make_steps();
            run_two_at_a_time(&parts, steps, wait_late);
            assert_same_results(steps, expected);
            free(steps);
        }
        parts_finish(&parts);
        free(expected);
    }
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = TOKENS,
                                                 .limits.max_num_seqs = 1,
                                                 .limits.max_model_len = 1,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = CHUNK,
                                                 .limits.vocab_size = VOCAB};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_at_a_time)};
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
