/* Groups by messages whose ranks are silent or gone: the first failure of an op is kept, later ops
 * come back and do nothing, and every wait says which rank it was. And what of messages is counted.
 */
#include "tests/kernels/fake_transport.h"
#include "tests/kernels/kernel_fixture.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    ROWS = 3,
    WIDTH = 50,
    MAX_RANKS = 4,
    LARGE = 2100,
    EVEN = 2112 /* floats whose sum is cut into slices */
};
#define TIMEOUT_NS (20 * CLOCK_NS_PER_MS)

static const char *const devices[] = {"cpu-ref", "cpu"};
#define NUM_DEVICES (sizeof(devices) / sizeof(devices[0]))

struct member {
    struct backend_group *group;
    struct backend *backend;
    int32_t rank, vocab_size, first_token; /* of the ranks' columns */
    float x[ROWS * WIDTH], out[ROWS * WIDTH * MAX_RANKS], weight[WIDTH], large[EVEN];
    struct backend_group_traffic traffic; /* of one call of an op */
    pthread_t thread;
};

static void open_backend(struct member *member, struct backend_group *group, int32_t rank,
                         const char *device) {
    *member = (struct member){.group = group, .rank = rank};
    const struct backend_config config = {.num_threads = 1,
                                          .limits.max_num_batched_tokens = ROWS,
                                          .limits.max_num_seqs = ROWS,
                                          .limits.max_logit_rows = ROWS,
                                          .limits.vocab_size = WIDTH * MAX_RANKS,
                                          .limits.hidden_size = EVEN / ROWS,
                                          .group = member->group,
                                          .rank = rank};
    member->backend = backend_open(device, &config, NULL);
    assert_non_null(member->backend);
    for (int i = 0; i < ROWS * WIDTH; i++)
        member->x[i] = (float)(i + rank);
}

static void open_member(struct member *member, struct fake_network *network, int32_t rank,
                        const char *device) {
    struct transport *transport = fake_network_transport(network, rank);
    struct backend_group *group;
    assert_int_equal(
        backend_group_create_remote(device, transport, 0, transport->num_ranks, &group, NULL), 0);
    open_backend(member, group, rank, device);
    for (int32_t r = 0; r < transport->num_ranks; r++) {
        member->vocab_size += WIDTH - r;
        member->first_token += r < rank ? WIDTH - r : 0;
    }
}

static void close_member(struct member *member) {
    backend_close(member->backend);
    backend_group_destroy(member->group);
}

/* --- The ops --- */

static void all_reduce(struct member *m) {
    m->backend->ops->all_reduce(
        m->backend,
        &(struct all_reduce_args){.x = m->x, .out = m->out, .num_rows = ROWS, .width = WIDTH});
}

static void reduce_large(struct member *m) {
    m->backend->ops->all_reduce(
        m->backend,
        &(struct all_reduce_args){.x = m->large, .out = m->large, .num_rows = 1, .width = LARGE});
}

static void gather_columns(struct member *m) {
    m->backend->ops->gather_columns(
        m->backend, &(struct gather_columns_args){
                        .x = m->x, .out = m->out, .num_rows = ROWS, .width = WIDTH - m->rank});
}

static void share_samples(struct member *m) {
    m->backend->ops->share_samples(m->backend,
                                   &(struct share_samples_args){.num_sample_rows = ROWS});
}

static void norm(struct member *m) {
    m->backend->ops->norm(m->backend, &(struct norm_args){.x = m->x,
                                                          .weight = m->weight,
                                                          .out = m->out,
                                                          .num_rows = ROWS,
                                                          .row_stride = WIDTH,
                                                          .width = WIDTH,
                                                          .total_width = 2 * WIDTH,
                                                          .epsilon = 1});
}

/* A row that is drawn of all tokens, the likeliest of another, and one of which all logits are
 * needed. */
static void sample(struct member *m) {
    struct sample_row rows[ROWS];
    struct sample_output outputs[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        rows[i] = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                      .num_logprobs = i == 2 ? 0 : -1,
                                      .settings = SAMPLING_SETTINGS_NEUTRAL,
                                      .mask = SAMPLE_NO_MASK};
    rows[1].settings.temperature = 0;
    const struct sample_args args = {.logits = m->out,
                                     .num_sample_rows = ROWS,
                                     .vocab_size = m->vocab_size,
                                     .rows = rows,
                                     .out = outputs};
    if (m->backend->ops->sample_vocab_parallel == NULL) {
        gather_columns(m);
        return;
    }
    m->backend->ops->sample_vocab_parallel(
        m->backend, &(struct vocab_parallel_sample_args){.share = m->x,
                                                         .first_token = m->first_token,
                                                         .num_tokens = WIDTH - m->rank,
                                                         .num_sample_rows = ROWS,
                                                         .sample = m->rank == 0 ? &args : NULL});
}

static void (*const ops[])(struct member *member) = {all_reduce,    reduce_large, gather_columns,
                                                     share_samples, norm,         sample};
#define NUM_OPS (sizeof(ops) / sizeof(ops[0]))

/* --- Failures --- */

static void assert_failed(struct member *member, const char *message) {
    struct backend *b = member->backend;
    for (int i = 0; i < 2; i++) {
        struct error of_step = {0}, of_all = {0};
        b->ops->step_end(b);
        assert_int_equal(b->ops->step_wait(b, &of_step), -1);
        assert_int_equal(b->ops->synchronize(b, &of_all), -1);
        assert_int_equal(of_step.code, ERROR_DEVICE);
        assert_int_equal(of_all.code, ERROR_DEVICE);
        assert_string_equal(of_step.message, message);
        assert_string_equal(of_all.message, message);
        assert_int_equal(b->ops->step_wait(b, NULL), -1);
    }
}

/* There is no limit of time any more, and nobody answers. */
static void assert_idle(struct member *member, struct transport *transport, const char *message) {
    struct backend_group_traffic before, after;
    transport->timeout_ns = 0;
    backend_group_get_traffic(member->group, member->rank, &before);
    for (size_t op = 0; op < NUM_OPS; op++)
        ops[op](member);
    backend_group_get_traffic(member->group, member->rank, &after);
    assert_int_equal(after.bytes_sent, before.bytes_sent);
    assert_int_equal(after.bytes_received, before.bytes_received);
    assert_failed(member, message);
}

/* Of share_samples there is nothing that rank 0 waits for but that it is taken. */
static void test_silent_rank(void **state) {
    for (size_t device = 0; device < NUM_DEVICES; device++)
        for (size_t op = 0; op < NUM_OPS; op++)
            for (int32_t rank = 0; rank < 2; rank++) {
                struct fake_network *network = fake_network_create(2, TIMEOUT_NS);
                struct member member;
                char message[64];
                open_member(&member, network, rank, devices[device]);
                assert_int_equal(member.backend->ops->step_wait(member.backend, NULL), 0);
                ops[op](&member);
                snprintf(message, sizeof(message),
                         "rank %d has not answered within 0.02 s (--rank-timeout)", 1 - (int)rank);
                assert_failed(&member, message);
                assert_idle(&member, fake_network_transport(network, rank), message);
                fake_network_destroy(network);
                close_member(&member);
            }
}

/* Begins what rank 1 sends rank 0 in reduce_large, and receives, of slices of 44, 44 and 44 lines
 * of 16 floats but for the end: it is not late. */
static void begin_parts(struct transport *t, float *x) {
    assert_non_null(t->ops->send(t, TRANSPORT_SUMS, 0, x, (size_t)44 * 16 * 4, NULL));
    assert_non_null(t->ops->receive(t, TRANSPORT_SUMS, 0, x + 44 * 16, (size_t)44 * 16 * 4, NULL));
}

static void test_names_the_silent_one(void **state) {
    struct fake_network *network = fake_network_create(3, TIMEOUT_NS);
    struct member member;
    float x[LARGE] = {0};
    begin_parts(fake_network_transport(network, 1), x);
    fake_network_silence(network, 2);
    open_member(&member, network, 0, "cpu");
    for (int i = 0; i < LARGE; i++)
        member.large[i] = (float)i;
    reduce_large(&member);
    assert_failed(&member, "rank 2 has not answered within 0.02 s (--rank-timeout)");
    assert_memory_equal(x + 44 * 16, member.large + 44 * 16, 44 * 16 * sizeof(float));
    fake_network_destroy(network);
    close_member(&member);
}

static void test_closed_rank(void **state) {
    for (size_t device = 0; device < NUM_DEVICES; device++)
        for (size_t op = 0; op < NUM_OPS; op++)
            for (int32_t rank = 0; rank < 2; rank++) {
                struct fake_network *network = fake_network_create(2, 0);
                struct member member;
                open_member(&member, network, rank, devices[device]);
                fake_network_close(network, 1 - rank);
                ops[op](&member);
                const char *message = rank == 0 ? "rank 1 is gone" : "rank 0 is gone";
                assert_failed(&member, message);
                assert_idle(&member, fake_network_transport(network, rank), message);
                fake_network_destroy(network);
                close_member(&member);
            }
}

/* Rank 1 has begun to send to rank 2, which never answers, when it comes to rank 0. */
static void test_closed_after_one_was_begun(void **state) {
    struct fake_network *network = fake_network_create(3, 0);
    struct member member;
    open_member(&member, network, 1, "cpu");
    fake_network_close(network, 0);
    all_reduce(&member);
    assert_failed(&member, "rank 0 is gone");
    assert_idle(&member, fake_network_transport(network, 1), "rank 0 is gone");
    fake_network_destroy(network);
    close_member(&member);
}

static void *close_later(void *network) {
    nanosleep(&(struct timespec){.tv_nsec = 5 * CLOCK_NS_PER_MS}, NULL);
    fake_network_close(network, 1);
    return NULL;
}

static void test_closed_while_waited_for(void **state) {
    struct fake_network *network = fake_network_create(2, 0);
    struct member member;
    pthread_t closer;
    open_member(&member, network, 0, "cpu");
    assert_int_equal(pthread_create(&closer, NULL, close_later, network), 0);
    all_reduce(&member);
    assert_failed(&member, "rank 1 is gone");
    assert_int_equal(pthread_join(closer, NULL), 0);
    fake_network_destroy(network);
    close_member(&member);
}

/* --- Traffic --- */

static void (*counted_op)(struct member *member);

static void *run_counted(void *argument) {
    struct member *member = argument;
    counted_op(member);
    backend_group_get_traffic(member->group, member->rank, &member->traffic);
    return NULL;
}

static void run_members(void (*op)(struct member *member), int32_t num_ranks,
                        struct member *members) {
    counted_op = op;
    for (int32_t r = 0; r < num_ranks; r++)
        assert_int_equal(pthread_create(&members[r].thread, NULL, run_counted, &members[r]), 0);
    for (int32_t r = 0; r < num_ranks; r++)
        assert_int_equal(pthread_join(members[r].thread, NULL), 0);
}

static void run_op(void (*op)(struct member *member), int32_t num_ranks, struct member *members,
                   struct fake_network **out_network) {
    struct fake_network *network = fake_network_create(num_ranks, 0);
    for (int32_t r = 0; r < num_ranks; r++)
        open_member(&members[r], network, r, "cpu");
    run_members(op, num_ranks, members);
    *out_network = network;
}

/* As backend.h says, of one op. */
static void expect_traffic(void (*op)(struct member *member), int32_t num_ranks, int32_t rank,
                           struct backend_group_traffic *out) {
    uint64_t others = (uint64_t)num_ranks - 1, n = LARGE, num_lines = (n + 15) / 16;
    uint64_t own = min_int64((int64_t)n, (int64_t)(num_lines * (uint64_t)(rank + 1) /
                                                   (uint64_t)num_ranks * 16)) -
                   num_lines * (uint64_t)rank / (uint64_t)num_ranks * 16;
    *out = (struct backend_group_traffic){0};
    if (op == all_reduce || (op == reduce_large && num_ranks == 2)) {
        out->bytes_sent = out->bytes_received = 4 * others * (op == all_reduce ? ROWS * WIDTH : n);
    } else if (op == reduce_large) {
        out->bytes_sent = out->bytes_received = 4 * (n - own + others * own);
    } else if (op == norm) {
        out->bytes_sent = out->bytes_received = 8 * others * ROWS;
    } else if (op == share_samples) {
        *(rank == 0 ? &out->bytes_sent : &out->bytes_received) =
            4 * ROWS * (rank == 0 ? others : 1);
    } else {
        uint64_t answers = op == sample ? 3 * 24 * ROWS : 0, num_rows = op == sample ? 1 : ROWS;
        uint64_t requests = op == sample ? 2 * 40 * ROWS : 0;
        out->bytes_sent = rank == 0 ? others * requests : 0;
        out->bytes_received = rank == 0 ? 0 : requests;
        for (uint64_t r = 1; r <= others; r++)
            if (rank == 0)
                out->bytes_received += answers + 4 + 4 * num_rows * (WIDTH - r);
            else if (r == (uint64_t)rank)
                out->bytes_sent += answers + 4 + 4 * num_rows * (WIDTH - r);
    }
}

static void assert_counted(void (*op)(struct member *member), int32_t num_ranks) {
    struct member members[MAX_RANKS];
    struct fake_network *network;
    run_op(op, num_ranks, members, &network);
    for (int32_t r = 0; r < num_ranks; r++) {
        struct backend_group_traffic expected;
        size_t sent = 0, received = 0;
        for (int32_t other = 0; other < num_ranks; other++) {
            sent += fake_network_bytes(network, r, other);
            received += fake_network_bytes(network, other, r);
        }
        expect_traffic(op, num_ranks, r, &expected);
        assert_int_equal(members[r].traffic.bytes_sent, expected.bytes_sent);
        assert_int_equal(members[r].traffic.bytes_received, expected.bytes_received);
        assert_int_equal(sent, expected.bytes_sent);
        assert_int_equal(received, expected.bytes_received);
        assert_true(members[r].traffic.wait_ns > 0);
        close_member(&members[r]);
    }
    fake_network_destroy(network);
}

static void test_traffic(void **state) {
    for (size_t op = 0; op < NUM_OPS; op++)
        for (int32_t num_ranks = 2; num_ranks <= MAX_RANKS; num_ranks++)
            assert_counted(ops[op], num_ranks);
}

/* Slices of the same size: the formula of the whole. */
static void sum_even(struct member *m) {
    m->backend->ops->all_reduce(
        m->backend, &(struct all_reduce_args){
                        .x = m->large, .out = m->large, .num_rows = 2, .width = EVEN / 2});
}

static void test_traffic_of_even_slices(void **state) {
    for (int32_t num_ranks = 2; num_ranks <= MAX_RANKS; num_ranks *= 2) {
        struct member members[MAX_RANKS];
        struct fake_network *network;
        run_op(sum_even, num_ranks, members, &network);
        for (int32_t r = 0; r < num_ranks; r++) {
            assert_int_equal(members[r].traffic.bytes_sent, 8 * (num_ranks - 1) * EVEN / num_ranks);
            close_member(&members[r]);
        }
        fake_network_destroy(network);
    }
}

/* All but the last to come wait for it. */
static void test_only_waits_within_a_process(void **state) {
    for (size_t op = 0; op < NUM_OPS; op++)
        for (int32_t num_ranks = 2; num_ranks <= MAX_RANKS; num_ranks++) {
            struct backend_group *group = NULL;
            struct member members[MAX_RANKS];
            int64_t start_ns = clock_now_ns(), wait_ns = 0;
            assert_int_equal(backend_group_create("cpu", num_ranks, &group, NULL), 0);
            for (int32_t r = 0; r < num_ranks; r++)
                open_backend(&members[r], group, r, "cpu");
            run_members(ops[op], num_ranks, members);
            for (int32_t r = 0; r < num_ranks; r++) {
                assert_int_equal(members[r].traffic.bytes_sent, 0);
                assert_int_equal(members[r].traffic.bytes_received, 0);
                assert_in_range(members[r].traffic.wait_ns, 0, clock_now_ns() - start_ns);
                wait_ns += members[r].traffic.wait_ns;
                backend_close(members[r].backend);
            }
            assert_true(wait_ns > 0);
            backend_group_destroy(group);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_rank),
        cmocka_unit_test(test_names_the_silent_one),
        cmocka_unit_test(test_closed_rank),
        cmocka_unit_test(test_closed_after_one_was_begun),
        cmocka_unit_test(test_closed_while_waited_for),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_traffic_of_even_slices),
        cmocka_unit_test(test_only_waits_within_a_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
