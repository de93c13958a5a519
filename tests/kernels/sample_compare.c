#include "tests/kernels/sample_compare.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *allocate(size_t n, size_t bytes) {
    void *memory = calloc(n, bytes);
    assert_non_null(memory);
    return memory;
}

static bool has_mu(const struct sample_row *row) {
    return row->target == SAMPLE_NO_TARGET && row->settings.mirostat != 0 &&
           row->settings.temperature > 0;
}

void sample_compare_keep_meaningful(const struct sample_call *call, struct sample_output *outputs) {
    for (int32_t r = 0; r < call->num_rows; r++) {
        const struct sample_output full = outputs[r];
        memset(&outputs[r], 0, sizeof(full));
        outputs[r].token = full.token;
        if (has_mu(&call->rows[r]))
            outputs[r].mirostat_mu = full.mirostat_mu;
        if (call->rows[r].num_logprobs < 0)
            continue;
        outputs[r].logprob = full.logprob;
        outputs[r].rank = full.rank;
        outputs[r].num_top = full.num_top;
        for (int i = 0; i < full.num_top && i < SAMPLE_MAX_LOGPROBS; i++) {
            outputs[r].top_tokens[i] = full.top_tokens[i];
            outputs[r].top_logprobs[i] = full.top_logprobs[i];
        }
    }
}

/* Returns the backend's copy of the logits, behind each row of which lie columns that would be
 * sampled, or spoil every sum. */
static void *put_padded(struct backend *b, const struct sample_call *call) {
    static const float poison[] = {NAN, INFINITY, FLT_MAX, 1e30f};
    size_t vocab = (size_t)call->vocab_size, stride = vocab + (size_t)call->padding;
    float *logits = allocate((size_t)call->num_rows * stride, sizeof(*logits));
    for (int32_t r = 0; r < call->num_rows; r++) {
        float *row = logits + (size_t)r * stride;
        memcpy(row, call->logits + (size_t)r * vocab, vocab * sizeof(*row));
        for (size_t i = vocab; i < stride; i++)
            row[i] = poison[(i + (size_t)r) % (sizeof(poison) / sizeof(poison[0]))];
    }
    void *out = kernel_fixture_put(b, DTYPE_F32, logits, (size_t)call->num_rows * stride);
    free(logits);
    return out;
}

void sample_compare_run_listed(const struct sample_compare *c, struct backend *b,
                               const struct sample_call *call, struct sample_output *out,
                               float *listed_logprobs) {
    static int32_t num_runs;
    struct sample_call padded = *call;
    padded.padding = num_runs++ % 10;
    if (padded.padding > c->max_vocab - call->vocab_size)
        padded.padding = c->max_vocab - call->vocab_size;
    void *logits = put_padded(b, &padded);
    sample_fixture_run(b, &padded, logits, out, listed_logprobs);
    kernel_fixture_free(b, logits);
    if (c->fixture->dtype != DTYPE_F32)
        sample_compare_keep_meaningful(call, out);
}

void sample_compare_run(const struct sample_compare *c, struct backend *b,
                        const struct sample_call *call, struct sample_output *out) {
    sample_compare_run_listed(c, b, call, out, NULL);
}

/* For kernel_fixture_run, which compares arrays of the backend. */
struct compared {
    const struct sample_compare *compare;
    const struct sample_call *call;
    struct sample_output *out;
    void *device_out; /* struct sample_output [num_rows] */
};

static void run_compared(struct backend *b, const void *args) {
    const struct compared *c = args;
    sample_compare_run(c->compare, b, c->call, c->out);
    b->ops->upload(b, c->device_out, c->out, (size_t)c->call->num_rows * sizeof(c->out[0]));
}

/* The same bits in every order of threads. */
static void run_in_all_orders(const struct sample_compare *compare, struct backend *b,
                              const struct sample_call *call, struct sample_output *out) {
    size_t bytes = (size_t)call->num_rows * sizeof(*out);
    struct compared c = {compare, call, out,
                         kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float))};
    kernel_fixture_run(b, run_compared, &c, c.device_out, bytes);
    kernel_fixture_free(b, c.device_out);
}

static struct sample_call one_row(const struct sample_call *call, int32_t r,
                                  struct sample_row *row) {
    struct sample_call one = *call;
    *row = call->rows[r];
    one.num_rows = 1;
    one.logits = call->logits + (size_t)r * (size_t)call->vocab_size;
    one.rows = row;
    return one;
}

/* Returns whether a small change of a parameter makes the oracle choose `token`: a device rounds
 * its weights otherwise, so a token or a cut may fall on the other side of a limit it nearly hits.
 */
static bool is_nearly_chosen(const struct sample_compare *c, const struct sample_call *call,
                             int32_t r, int32_t token) {
    for (int change = -9; change <= 9; change++) {
        struct sample_row row;
        struct sample_output out;
        struct sample_call one = one_row(call, r, &row);
        float factor = change < 0 ? 1 - 4e-6f : 1 + 4e-6f;
        row.num_logprobs = -1;
        row.settings.temperature *= abs(change) == 1 ? factor : 1;
        row.settings.top_p = fminf(row.settings.top_p * (abs(change) == 2 ? factor : 1), 1);
        row.settings.min_p = fminf(row.settings.min_p * (abs(change) == 3 ? factor : 1), 1);
        row.settings.typical_p = fminf(row.settings.typical_p * (abs(change) == 4 ? factor : 1), 1);
        row.settings.xtc_threshold *= abs(change) == 5 ? factor : 1;
        row.settings.top_n_sigma *= abs(change) == 6 ? factor : 1;
        row.mirostat_mu *= abs(change) == 7 ? factor : 1;
        row.settings.dynatemp_range *= abs(change) == 8 ? factor : 1;
        row.settings.dynatemp_exponent *= abs(change) == 9 ? factor : 1;
        sample_compare_run(c, c->fixture->oracle, &one, &out);
        if (out.token == token)
            return true;
    }
    return false;
}

/* Returns how many tokens are only nearly the oracle's: on the CPU none. */
static int assert_outputs(const struct sample_compare *c, const struct sample_call *call,
                          const struct sample_output *actual,
                          const struct sample_output *expected) {
    int num_near = 0;
    for (int32_t r = 0; r < call->num_rows; r++) {
        bool is_same = actual[r].token == expected[r].token;
        if (!is_same &&
            (c->fixture->dtype == DTYPE_F32 || !is_nearly_chosen(c, call, r, actual[r].token)))
            fail_msg("row %d: token %d, expected %d", r, actual[r].token, expected[r].token);
        num_near += !is_same;
        if (is_same && has_mu(&call->rows[r]))
            assert_float_equal(actual[r].mirostat_mu, expected[r].mirostat_mu,
                               1e-4 * (1 + fabsf(expected[r].mirostat_mu)));
        if (call->rows[r].num_logprobs < 0)
            continue;
        if (is_same) {
            sample_fixture_assert_logprob(actual[r].logprob, expected[r].logprob);
            assert_int_equal(actual[r].rank, expected[r].rank);
        }
        sample_fixture_assert_top(&actual[r], &expected[r]);
    }
    return num_near;
}

int sample_compare_check(const struct sample_compare *c, const struct sample_call *call,
                         struct sample_output *out) {
    size_t num_rows = (size_t)call->num_rows;
    struct sample_output *expected = allocate(num_rows, sizeof(*expected));
    struct sample_output *other = allocate(num_rows, sizeof(*other));
    int num_near = 0;
    sample_compare_run(c, c->fixture->oracle, call, expected);
    memset(out, 0, num_rows * sizeof(*out));
    for (int i = 0; i < c->fixture->num_backends; i++) {
        struct sample_output *actual = i == 0 ? out : other;
        run_in_all_orders(c, c->fixture->backends[i], call, actual);
        num_near += assert_outputs(c, call, actual, expected);
        assert_memory_equal(actual, out, num_rows * sizeof(*out));
    }
    free(other);
    free(expected);
    return num_near;
}

void sample_compare_check_batches(const struct sample_compare *c, const struct sample_call *call,
                                  int32_t batch, const struct sample_output *together) {
    struct sample_output *out = allocate((size_t)batch, sizeof(*out));
    for (int32_t first = 0; first < call->num_rows; first += batch) {
        struct sample_call part = *call;
        part.num_rows = call->num_rows - first < batch ? call->num_rows - first : batch;
        part.logits = call->logits + (size_t)first * (size_t)call->vocab_size;
        part.rows = call->rows + first;
        run_in_all_orders(c, c->fixture->backends[0], &part, out);
        for (int32_t r = 0; r < part.num_rows; r++)
            if (memcmp(&out[r], &together[first + r], sizeof(out[r])) != 0)
                fail_msg("row %d in a batch of %d is not as in one of %d: token %d, %d", first + r,
                         part.num_rows, call->num_rows, out[r].token, together[first + r].token);
    }
    free(out);
}

#define PICK(seed, values)                                                                         \
    (values)[kernel_fixture_random_in(seed, 0, (int)(sizeof(values) / sizeof((values)[0])) - 1)]

/* llama.cpp's steps, each in some of the rows, Mirostat in a few. */
static void pick_steps(uint64_t *seed, struct sample_row *row) {
    static const float typical_ps[] = {0, 1, 0.95f, 0.5f, 0.2f, 1e-6f};
    static const float probabilities[] = {0, 0.5f, 1};
    static const float thresholds[] = {0.1f, 0.5f, 0.02f, 1e-3f, 0.6f};
    static const float ranges[] = {0, 0, 0.5f, 2, 0.01f};
    static const float exponents[] = {1, 0, 0.3f, 4};
    static const float sigmas[] = {0, 0, -1, 1, 3, 0.3f, 1e-6f, 10};
    static const int32_t versions[] = {0, 0, 0, 1, 2};
    static const float mus[] = {10, 6, 3, 1, 0.1f, -2, 40};
    row->settings.typical_p = PICK(seed, typical_ps);
    row->settings.xtc_probability = PICK(seed, probabilities);
    row->settings.xtc_threshold = PICK(seed, thresholds);
    row->settings.dynatemp_range = PICK(seed, ranges);
    row->settings.dynatemp_exponent = PICK(seed, exponents);
    row->settings.top_n_sigma = PICK(seed, sigmas);
    row->settings.mirostat = PICK(seed, versions);
    row->settings.mirostat_tau = 5;
    row->settings.mirostat_eta = 0.1f;
    row->mirostat_mu = PICK(seed, mus);
}

bool sample_compare_has_steps(const struct sample_row *row) {
    return row->settings.mirostat_tau > 0;
}

struct sample_row sample_compare_random_row(uint64_t *seed, int32_t vocab_size, int32_t num_edits) {
    static const float temperatures[] = {0, 1e-40f, 0.01f, 0.3f, 0.7f, 1, 1, 1.5f, 3, 100, 1e6f};
    static const float top_ps[] = {1, 1, 1, 0.99f, 0.95f, 0.5f, 0.1f, 1e-6f, 1e-30f};
    static const float min_ps[] = {0, 0, 0, 0, 1, 0.1f, 0.02f, 1e-5f, 1e-30f};
    const int32_t top_ks[] = {0, -1, 0, 1, 2, 40, 1000, vocab_size - 1, vocab_size, 1 << 30};
    struct sample_row row = sample_fixture_plain;
    row.seed = kernel_fixture_random(seed);
    row.position = kernel_fixture_random(seed);
    row.settings.temperature = PICK(seed, temperatures);
    row.settings.top_p = PICK(seed, top_ps);
    row.settings.min_p = PICK(seed, min_ps);
    row.settings.top_k = PICK(seed, top_ks);
    if (kernel_fixture_random_in(seed, 0, 1))
        pick_steps(seed, &row);
    row.num_logprobs = kernel_fixture_random_in(seed, -10, SAMPLE_MAX_LOGPROBS);
    if (row.num_logprobs < 0)
        row.num_logprobs = -1;
    if (kernel_fixture_random_in(seed, 0, 1)) {
        row.settings.repetition_penalty = kernel_fixture_random_in(seed, 0, 1) ? 1.3f : 1;
        row.settings.frequency_penalty = kernel_fixture_random_in(seed, 0, 1) ? 0.4f : 0;
        row.settings.presence_penalty = kernel_fixture_random_in(seed, 0, 1) ? -0.7f : 0;
        row.num_counts = kernel_fixture_random_in(seed, 0, num_edits);
        row.num_biases = kernel_fixture_random_in(seed, 0, num_edits);
        row.first_bias = num_edits - row.num_biases;
    }
    if (kernel_fixture_random_in(seed, 0, 9) == 0)
        row.target = kernel_fixture_random_in(seed, 0, vocab_size - 1);
    if (kernel_fixture_random_in(seed, 0, 2) == 0)
        row.mask = kernel_fixture_random_in(seed, 0, SAMPLE_FIXTURE_NUM_MASKS - 1);
    return row;
}
