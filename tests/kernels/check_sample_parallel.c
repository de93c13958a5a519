/* Sampling where each rank has the logits of a part of the vocabulary: groups of 2 to 4 ranks, by
 * memory and by messages, give what one backend gives that has the whole rows, to the byte; and
 * bring less than those.
 *
 * check_sample_parallel: of the CPU. check_sample_parallel DEVICE TYPE [RANKS]: as
 * check_group; 77 (skip) where there is one device. */
#include "kernels/sample_shape.h"
#include "tests/kernels/group_fixture.h"
#include "tests/kernels/sample_compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROWS = GROUP_MAX_ROWS, NUM_EDITS = 20 };

static const struct group_kind cpu_kinds[] = {{"cpu", "portable", 1, DTYPE_F32},
                                              {"cpu", "auto", 1, DTYPE_F32},
                                              {"cpu", "auto", 3, DTYPE_F32}};

/* What the program's arguments say. */
static struct group_kind device_kind;
static const struct group_kind *kinds = cpu_kinds;
static size_t num_kinds = sizeof(cpu_kinds) / sizeof(cpu_kinds[0]);
static int num_ways = NUM_GROUP_WAYS;
static int32_t max_ranks = GROUP_MAX_RANKS;

struct parallel_case {
    struct sample_call call;
    int32_t first_tokens[GROUP_MAX_RANKS + 1];
    struct sample_output *out;
    float *brought; /* [num_rows, vocab_size] what rank 0 has of the logits afterwards; or NULL */
    uint64_t bytes_sent[GROUP_MAX_RANKS];
};

/* Logits of an earlier step, which would all be sampled. */
static float *put_stale(struct backend *b, size_t n) {
    float *stale = malloc(n * sizeof(*stale));
    for (size_t i = 0; i < n; i++)
        stale[i] = 1e30F;
    float *out = kernel_fixture_put(b, DTYPE_F32, stale, n);
    free(stale);
    return out;
}

static void sample(struct group_member *member, void *context) {
    struct parallel_case *c = context;
    const struct sample_call *call = &c->call;
    struct backend *b = member->backend;
    int32_t first = c->first_tokens[member->rank];
    int32_t width = c->first_tokens[member->rank + 1] - first;
    size_t num_logits = (size_t)call->num_rows * (size_t)call->vocab_size;
    float *columns = malloc((size_t)call->num_rows * (size_t)width * sizeof(*columns));
    for (int32_t row = 0; row < call->num_rows; row++)
        memcpy(columns + (size_t)row * (size_t)width,
               call->logits + (size_t)row * (size_t)call->vocab_size + first,
               (size_t)width * sizeof(float));
    float *share =
        kernel_fixture_put(b, DTYPE_F32, columns, (size_t)call->num_rows * (size_t)width);
    float *logits = member->rank == 0 ? put_stale(b, num_logits) : NULL;
    free(columns);
    const struct sample_args args = {.logits = logits,
                                     .num_sample_rows = call->num_rows,
                                     .vocab_size = call->vocab_size,
                                     .rows = call->rows,
                                     .counts = call->counts,
                                     .biases = call->biases,
                                     .masks = call->masks,
                                     .out = c->out};
    b->ops->sample_vocab_parallel(
        b, &(struct vocab_parallel_sample_args){.share = share,
                                                .first_token = first,
                                                .num_tokens = width,
                                                .num_sample_rows = call->num_rows,
                                                .rows = call->rows,
                                                .sample = member->rank == 0 ? &args : NULL});
    kernel_fixture_synchronize(b);
    struct backend_group_traffic traffic;
    backend_group_get_traffic(member->group, member->rank, &traffic);
    c->bytes_sent[member->rank] = traffic.bytes_sent;
    kernel_fixture_free(b, share);
    if (logits == NULL)
        return;
    if (c->brought != NULL)
        kernel_fixture_download(b, c->brought, logits, num_logits * sizeof(float));
    kernel_fixture_free(b, logits);
}

/* Fills in what the whole rows give. */
static void sample_whole(const struct group_kind *kind, const struct sample_call *call,
                         struct sample_output *out) {
    struct kernel_fixture fixture = {.dtype = kind->dtype};
    const struct sample_compare compare = {&fixture, call->vocab_size};
    const struct backend_config config = {.num_threads = kind->num_threads,
                                          .isa = kind->isa,
                                          .activation_dtype = kind->dtype,
                                          .limits.max_num_batched_tokens = MAX_ROWS,
                                          .limits.max_num_seqs = MAX_ROWS,
                                          .limits.max_logit_rows = MAX_ROWS,
                                          .limits.vocab_size = call->vocab_size,
                                          .limits.max_model_len = MAX_ROWS,
                                          .limits.block_size = 16};
    struct backend *b = backend_open(kind->device, &config, NULL);
    assert_non_null(b);
    sample_compare_run(&compare, b, call, out);
    backend_close(b);
}

/* Cuts the vocabulary anywhere, or a token from its end. */
static void cut(uint64_t *seed, int32_t vocab_size, int32_t num_ranks, int32_t *first_tokens) {
    first_tokens[0] = 0;
    for (int32_t r = 1; r < num_ranks; r++)
        first_tokens[r] = kernel_fixture_random_in(seed, first_tokens[r - 1] + 1,
                                                   kernel_fixture_random_in(seed, 0, 3) == 0
                                                       ? first_tokens[r - 1] + 1
                                                       : vocab_size - (num_ranks - r));
    first_tokens[num_ranks] = vocab_size;
}

/* brought: as of the case. Returns the bytes that all ranks have sent. */
static uint64_t check_call(const struct group_form *form, uint64_t *seed,
                           const struct sample_call *call, float *brought) {
    struct sample_output whole[MAX_ROWS], out[MAX_ROWS];
    struct parallel_case c = {.call = *call, .out = out, .brought = brought};
    memset(out, 0x55, sizeof(out));
    cut(seed, call->vocab_size, form->num_ranks, c.first_tokens);
    sample_whole(form->kind, call, whole);
    group_fixture_run(form, sample, &c);
    if (form->kind->dtype != DTYPE_F32)
        sample_compare_keep_meaningful(call, out);
    for (int32_t r = 0; r < call->num_rows; r++) {
        if (out[r].token != whole[r].token)
            fail_msg("row %d of %d ranks: token %d, of the whole row %d (temperature %g, top_k %d, "
                     "top_p %g, min_p %g)",
                     (int)r, (int)form->num_ranks, (int)out[r].token, (int)whole[r].token,
                     (double)call->rows[r].settings.temperature, (int)call->rows[r].settings.top_k,
                     (double)call->rows[r].settings.top_p, (double)call->rows[r].settings.min_p);
        if (call->rows[r].num_logprobs >= 0)
            assert_memory_equal(&out[r], &whole[r], sizeof(out[r]));
        if (sample_is_shaped(&call->rows[r]) && call->rows[r].settings.mirostat != 0)
            assert_true(out[r].mirostat_mu == whole[r].mirostat_mu);
    }
    uint64_t bytes_sent = 0;
    for (int32_t r = 0; r < form->num_ranks; r++)
        bytes_sent += c.bytes_sent[r];
    return bytes_sent;
}

static void for_all_groups(void (*check)(const struct group_form *form, uint64_t *seed)) {
    uint64_t seed = 1;
    for (size_t kind = 0; kind < num_kinds; kind++)
        for (int32_t num_ranks = 2; num_ranks <= max_ranks; num_ranks++)
            for (int way = 0; way < num_ways; way++)
                check(
                    &(struct group_form){.kind = &kinds[kind], .num_ranks = num_ranks, .way = way},
                    &seed);
}

/* Leaves what the settings of temperature and filters say, and what is reported. */
static void make_plain(struct sample_row *row) {
    struct sample_row plain = sample_fixture_plain;
    plain.seed = row->seed;
    plain.position = row->position;
    plain.target = row->target;
    plain.num_logprobs = row->num_logprobs;
    plain.settings.temperature = row->settings.temperature;
    plain.settings.top_k = row->settings.top_k;
    plain.settings.top_p = row->settings.top_p;
    plain.settings.min_p = row->settings.min_p;
    *row = plain;
}

/* odd_share: of how many rows one is not plain; 0: all of a few are. */
static void check_random(const struct group_form *form, uint64_t *seed, int32_t vocab_size,
                         float spread, int odd_share) {
    struct token_count counts[NUM_EDITS];
    struct token_bias biases[NUM_EDITS];
    struct sample_row rows[MAX_ROWS];
    int32_t num_edits = vocab_size < NUM_EDITS ? vocab_size : NUM_EDITS;
    struct sample_call call = {.num_rows =
                                   odd_share == 0 ? kernel_fixture_random_in(seed, 1, 3) : MAX_ROWS,
                               .vocab_size = vocab_size,
                               .rows = rows,
                               .counts = counts,
                               .biases = biases};
    size_t n = (size_t)call.num_rows * (size_t)vocab_size;
    call.logits = kernel_fixture_random_floats(seed, n);
    for (size_t i = 0; i < n; i++)
        call.logits[i] = spread > 0 ? call.logits[i] * spread : roundf(call.logits[i]);
    for (int32_t i = 0; i < num_edits; i++) {
        int32_t token = (int32_t)((int64_t)i * vocab_size / num_edits);
        counts[i] = (struct token_count){token, kernel_fixture_random_in(seed, 0, 3)};
        biases[i] = (struct token_bias){token, i % 3 ? -INFINITY : 5};
    }
    for (int32_t r = 0; r < MAX_ROWS; r++) {
        rows[r] = sample_compare_random_row(seed, vocab_size, num_edits);
        if (odd_share == 0 || kernel_fixture_random_in(seed, 1, odd_share) > 1)
            make_plain(&rows[r]);
    }
    uint32_t *masks = sample_fixture_masks(seed, vocab_size);
    call.masks = masks;
    check_call(form, seed, &call, NULL);
    free(masks);
    free(call.logits);
}

/* spread 0: many equal logits. */
static void check_all(const struct group_form *form, uint64_t *seed) {
    static const int32_t vocab_sizes[] = {GROUP_MAX_RANKS, 300, 4099};
    static const float spreads[] = {0, 3};
    for (size_t v = 0; v < sizeof(vocab_sizes) / sizeof(vocab_sizes[0]); v++)
        for (size_t s = 0; s < sizeof(spreads) / sizeof(spreads[0]); s++)
            for (int odd_share = 0; odd_share <= 4; odd_share += 4)
                check_random(form, seed, vocab_sizes[v], spreads[s], odd_share);
}

static void test_tokens_are_those_of_whole_rows(void **state) {
    for_all_groups(check_all);
}

/* Nothing but bans, NaN, infinities, and one rank that has all of the weight. */
static void check_odd_logits(const struct group_form *form, uint64_t *seed) {
    enum { VOCAB = 90, NUM_KINDS_OF_ROWS = 6 };
    float *logits = kernel_fixture_random_floats(seed, (size_t)MAX_ROWS * VOCAB);
    struct sample_row rows[MAX_ROWS];
    for (int32_t r = 0; r < MAX_ROWS; r++) {
        float *row = logits + r * VOCAB;
        for (int32_t i = 0; i < VOCAB; i++)
            switch (r % NUM_KINDS_OF_ROWS) {
            case 0:
                row[i] = -INFINITY;
                break;
            case 1:
                row[i] = NAN;
                break;
            case 2:
                row[i] = i % 40 == 39 ? INFINITY : row[i];
                break;
            case 3:
                row[i] -= i / 30 == r / 6 % 3 ? 0 : 50;
                break; /* the others weigh nothing */
            case 4:
                row[i] = i % 3 ? NAN : row[i] - 1e30F;
                break;
            default:
                row[i] = 0;
                break;
            }
        rows[r] = sample_compare_random_row(seed, VOCAB, 0);
        make_plain(&rows[r]);
    }
    check_call(form, seed,
               &(struct sample_call){
                   .num_rows = MAX_ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows},
               NULL);
    free(logits);
}

static void test_odd_logits(void **state) {
    for_all_groups(check_odd_logits);
}

/* --- What is sent --- */

/* Rows of a vocabulary with few likely tokens: a rank sends at most this share of its logits. */
static void check_traffic(float temperature, int32_t top_k, float top_p, float min_p, double most) {
    enum { VOCAB = 8000, ROWS = 16 };
    uint64_t seed = 5;
    struct sample_row rows[ROWS];
    struct sample_output out[ROWS];
    float *logits = kernel_fixture_random_floats(&seed, (size_t)ROWS * VOCAB);
    struct parallel_case c = {
        .call = {.num_rows = ROWS, .vocab_size = VOCAB, .logits = logits, .rows = rows},
        .first_tokens = {0, VOCAB / 2, VOCAB},
        .out = out};
    for (int32_t r = 0; r < ROWS; r++) {
        for (int32_t i = 0; i < VOCAB; i++)
            logits[r * VOCAB + i] *= 4;
        rows[r] = sample_fixture_plain;
        rows[r].position = (uint64_t)r;
        rows[r].settings.temperature = temperature;
        rows[r].settings.top_k = top_k;
        rows[r].settings.top_p = top_p;
        rows[r].settings.min_p = min_p;
    }
    group_fixture_run(&(struct group_form){.kind = &kinds[1], .num_ranks = 2, .way = BY_MESSAGES},
                      sample, &c);
    double share = (double)c.bytes_sent[1] / ((double)ROWS * VOCAB / 2 * sizeof(float));
    if (share > most)
        fail_msg("rank 1 sent %.4f of its logits (temperature %g, top_k %d, top_p %g, min_p %g)",
                 share, (double)temperature, (int)top_k, (double)top_p, (double)min_p);
    free(logits);
}

static void test_less_than_the_logits_is_sent(void **state) {
    check_traffic(0, 0, 1, 0, 0.002);
    check_traffic(1, 0, 1, 0, 0.005);
    check_traffic(0.7F, 40, 1, 0, 0.06);
    check_traffic(0.7F, 0, 1, 0.1F, 0.1);
    check_traffic(0.7F, 0, 0.9F, 0, 0.8);
}

/* A row's settings, and how many logits rank 0 is brought of it by each rank, and in how many
 * rounds all ranks tell one another 8 bytes of each row before: as many as the row with the most
 * takes. num_logprobs, is_given: 0 for none. */
struct brought_row {
    float temperature, top_p, min_p;
    int32_t top_k, most, num_rounds, num_logprobs;
    bool is_given;
};

enum { BROUGHT_VOCAB = 4000, PART_LOGITS = 22 };

/* By all ranks: what is said before, the widths once, and of each row an excerpt. */
static uint64_t bytes_of(const struct brought_row *rows, int32_t num_rows, int32_t num_ranks) {
    uint64_t others = (uint64_t)num_ranks - 1, num_logits = 0;
    int32_t num_rounds = 0;
    for (int32_t r = 0; r < num_rows; r++) {
        num_logits += (uint64_t)rows[r].most + (rows[r].num_logprobs > 0 ? PART_LOGITS : 0);
        num_rounds = rows[r].num_rounds > num_rounds ? rows[r].num_rounds : num_rounds;
    }
    return others * (4 + 8 * (uint64_t)num_rounds * (uint64_t)num_rows) * (uint64_t)num_ranks +
           others * num_logits * 8;
}

static void check_brought_rows(const struct group_form *form, uint64_t *seed,
                               const struct brought_row *brought_rows, int32_t num_rows) {
    enum { VOCAB = BROUGHT_VOCAB };
    struct sample_row rows[MAX_ROWS];
    float *logits = kernel_fixture_random_floats(seed, (size_t)num_rows * VOCAB);
    float *brought = malloc((size_t)num_rows * VOCAB * sizeof(float));
    for (int32_t r = 0; r < num_rows; r++) {
        const struct brought_row *by = &brought_rows[r];
        rows[r] = sample_fixture_plain;
        rows[r].position = kernel_fixture_random(seed);
        rows[r].settings.temperature = by->temperature;
        rows[r].settings.top_k = by->top_k;
        rows[r].settings.top_p = by->top_p;
        rows[r].settings.min_p = by->min_p;
        rows[r].num_logprobs = by->num_logprobs > 0 ? by->num_logprobs : -1;
        if (by->is_given)
            rows[r].target = kernel_fixture_random_in(seed, 0, VOCAB - 1);
    }
    uint64_t bytes_sent =
        check_call(form, seed,
                   &(struct sample_call){
                       .num_rows = num_rows, .vocab_size = VOCAB, .logits = logits, .rows = rows},
                   brought);
    assert_int_equal(bytes_sent, bytes_of(brought_rows, num_rows, form->num_ranks));
    for (int32_t r = 0; r < num_rows; r++) {
        bool is_one = brought_rows[r].num_rounds > 1;
        int32_t most = is_one ? 1 : brought_rows[r].most * form->num_ranks, count = 0;
        for (int32_t i = 0; i < VOCAB; i++)
            count += brought[r * VOCAB + i] > -INFINITY;
        if (count < 1 || count > most)
            fail_msg("row %d of %d ranks: %d logits are brought, %d at most are needed", (int)r,
                     (int)form->num_ranks, (int)count, (int)most);
    }
    free(brought);
    free(logits);
}

/* As many candidates as are no more than the row; and logprobs. */
static void check_brought(const struct group_form *form, uint64_t *seed) {
    const int32_t most = BROUGHT_VOCAB / 2 / form->num_ranks;
    const struct brought_row top[] = {{.temperature = 0, .top_p = 1, .most = 1},
                                      {.temperature = 0, .top_p = 0.5F, .top_k = 7, .most = 1},
                                      {1, 1, 0, 1, 1, 0, 0, false},
                                      {0.7F, 0.9F, 0.01F, 40, 40, 0, 0, false},
                                      {1, 1, 0, 255, 255, 0, 0, false},
                                      {100, 0.5F, 0, most, most, 0, 0, false},
                                      {100, 1, 0, most, most, 0, 0, false}};
    const struct brought_row reported[] = {{0, 1, 0, 0, 1, 1, 20, false},
                                           {1, 0.9F, 0, most, most, 1, 1, false}};
    const struct brought_row drawn[] = {{1, 1, 0, 0, 1, 2, 0, false},
                                        {0.7F, 1, 0.02F, 0, 1, 2, 0, false}};
    const struct brought_row drawn_reported[] = {{1, 1, 0, 0, 1, 3, 20, false},
                                                 {3, 1, 0.02F, 0, 1, 3, 2, false},
                                                 {1, 1, 0, 0, 1, 3, 5, true}};
    const struct brought_row given[] = {{0, 1, 0, 0, 1, 2, 20, true}};
    check_brought_rows(form, seed, top, sizeof(top) / sizeof(top[0]));
    check_brought_rows(form, seed, reported, sizeof(reported) / sizeof(reported[0]));
    check_brought_rows(form, seed, drawn, sizeof(drawn) / sizeof(drawn[0]));
    check_brought_rows(form, seed, drawn_reported,
                       sizeof(drawn_reported) / sizeof(drawn_reported[0]));
    check_brought_rows(form, seed, given, sizeof(given) / sizeof(given[0]));
}

static void test_few_logits_are_brought(void **state) {
    for_all_groups(check_brought);
}

int main(int argc, char **argv) {
    const struct CMUnitTest of_cpu[] = {
        cmocka_unit_test(test_tokens_are_those_of_whole_rows),
        cmocka_unit_test(test_odd_logits),
        cmocka_unit_test(test_less_than_the_logits_is_sent),
    };
    const struct CMUnitTest of_device[] = {
        cmocka_unit_test(test_tokens_are_those_of_whole_rows),
        cmocka_unit_test(test_odd_logits),
        cmocka_unit_test(test_few_logits_are_brought),
    };
    if (argc == 1)
        return cmocka_run_group_tests(of_cpu, NULL, NULL);
    device_kind = group_fixture_choose_device(argc, argv, &max_ranks);
    if (max_ranks < 2)
        return GROUP_EXIT_SKIPPED;
    kinds = &device_kind;
    num_kinds = num_ways = 1;
    return cmocka_run_group_tests(of_device, NULL, NULL);
}
