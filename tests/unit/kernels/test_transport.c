/* Waiting for messages, and whether a process is one of several. The messages are those of the fake
 * transport; those of MPI are tests/kernels/check_mpi.c's. */
#include "kernels/transport.h"
#include "tests/kernels/fake_transport.h"

#include "config/base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NUM_MESSAGES (TRANSPORT_MAX_REQUESTS / 2)

/* --- Messages --- */

static void *echo(void *argument) {
    struct transport *t = argument;
    int32_t value[2];
    static int32_t status;
    status = transport_receive(t, TRANSPORT_STEPS, 0, value, sizeof(value), NULL);
    value[0] += 1;
    status |= transport_send(t, TRANSPORT_STEPS, 0, value, sizeof(value), NULL);
    return &status;
}

/* Longer than they spin. */
static void test_send_and_receive(void **state) {
    struct fake_network *network = fake_network_create(2, 0);
    struct transport *t = fake_network_transport(network, 0);
    int32_t sent[2] = {41, 7}, received[2] = {0};
    pthread_t thread;
    void *status;
    fake_network_delay(network, 2 * CLOCK_NS_PER_MS);
    assert_int_equal(pthread_create(&thread, NULL, echo, fake_network_transport(network, 1)), 0);
    assert_int_equal(transport_send(t, TRANSPORT_STEPS, 1, sent, sizeof(sent), NULL), 0);
    assert_int_equal(transport_receive(t, TRANSPORT_STEPS, 1, received, sizeof(received), NULL), 0);
    assert_int_equal(received[0], 42);
    assert_int_equal(received[1], 7);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal(*(int32_t *)status, 0);
    fake_network_destroy(network);
}

/* As many as may be, in the order they were sent in, the two channels apart. */
static void test_order(void **state) {
    struct fake_network *network = fake_network_create(2, 0);
    struct transport *a = fake_network_transport(network, 0);
    struct transport *b = fake_network_transport(network, 1);
    int32_t sent[TRANSPORT_NUM_CHANNELS][NUM_MESSAGES],
        received[TRANSPORT_NUM_CHANNELS][NUM_MESSAGES];
    struct transport_request *requests[TRANSPORT_NUM_CHANNELS][2 * NUM_MESSAGES];
    int32_t ranks[2 * NUM_MESSAGES];
    for (int c = 0; c < TRANSPORT_NUM_CHANNELS; c++)
        for (int i = 0; i < NUM_MESSAGES; i++) {
            sent[c][i] = 100 * c + i;
            requests[c][i] = a->ops->send(a, c, 1, &sent[c][i], 4, NULL);
            requests[c][NUM_MESSAGES + i] = b->ops->receive(b, c, 0, &received[c][i], 4, NULL);
            ranks[i] = 1;
            ranks[NUM_MESSAGES + i] = 0;
        }
    for (int c = TRANSPORT_NUM_CHANNELS - 1; c >= 0; c--) {
        assert_int_equal(transport_wait(a, requests[c], ranks, 2 * NUM_MESSAGES, NULL), 0);
        assert_memory_equal(received[c], sent[c], sizeof(sent[c]));
    }
    fake_network_destroy(network);
}

/* Messages with rank 1 are done, and it is rank 2 that nothing comes from. */
static void test_timeout(void **state) {
    struct fake_network *network = fake_network_create(3, 1500 * CLOCK_NS_PER_MS / 100);
    struct transport *t = fake_network_transport(network, 0);
    struct transport *other = fake_network_transport(network, 1);
    int32_t value = 3, received[2] = {0};
    struct error err = {0};
    assert_non_null(other->ops->send(other, TRANSPORT_SUMS, 0, &value, 4, NULL));
    struct transport_request *requests[] = {
        t->ops->receive(t, TRANSPORT_SUMS, 1, &received[0], 4, NULL),
        t->ops->receive(t, TRANSPORT_SUMS, 2, &received[1], 4, NULL)};
    assert_int_equal(transport_wait(t, requests, (int32_t[]){1, 2}, 2, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_string_equal(err.message, "rank 2 has not answered within 0.015 s (--rank-timeout)");
    assert_int_equal(received[0], 3);
    fake_network_destroy(network);
}

static void test_gone(void **state) {
    struct fake_network *network = fake_network_create(2, 0);
    struct transport *t = fake_network_transport(network, 0);
    int32_t value = 0;
    struct error err = {0};
    fake_network_close(network, 1);
    assert_int_equal(transport_receive(t, TRANSPORT_SUMS, 1, &value, 4, &err), -1);
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_string_equal(err.message, "rank 1 is gone");
    fake_network_destroy(network);
}

/* A message that cannot be begun is not waited for. */
static struct transport_request *refuse(struct transport *t, enum transport_channel channel,
                                        int32_t rank, const void *data, size_t bytes,
                                        struct error *err) {
    error_set(err, ERROR_DEVICE, "rank %d cannot be reached", rank);
    return NULL;
}

static void test_not_begun(void **state) {
    const struct transport_ops ops = {.send = refuse};
    struct transport t = {.ops = &ops, .num_ranks = 2};
    struct error err = {0};
    assert_int_equal(transport_send(&t, TRANSPORT_STEPS, 1, "", 1, &err), -1);
    assert_string_equal(err.message, "rank 1 cannot be reached");
}

/* --- The environment --- */

struct environment {
    const char *variables[6][2];
    bool is_expected;
};

static void set_environment(const struct environment *e) {
    static const char *const names[] = {
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_SIZE",    "PMI_RANK",
        "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",         "SLURM_NTASKS", "SLURM_JOB_ID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(unsetenv(names[i]), 0);
    for (size_t i = 0; i < 6 && e->variables[i][0] != NULL; i++)
        assert_int_equal(setenv(e->variables[i][0], e->variables[i][1], 1), 0);
}

static void test_is_expected(void **state) {
    static const struct environment cases[] = {
        {{{0}}, false},
        /* mpirun of Open MPI */
        {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}, true},
        {{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}, false},
        /* mpiexec of MPICH */
        {{{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}, true},
        {{{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}, false},
        /* srun -n 2, and -n 1 */
        {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMIX_RANK", "1"}}, true},
        {{{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, false},
        /* a batch script of eight tasks; a shell of salloc */
        {{{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "5"}}, false},
        {{{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "5"}}, false},
        /* one process of mpirun, whose daemons srun started on two machines */
        {{{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}},
         false},
        {{{"OMPI_COMM_WORLD_SIZE", ""}}, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set_environment(&cases[i]);
        if (transport_is_expected() != cases[i].is_expected)
            fail_msg("case %zu", i);
    }
}

static void check_refused(const struct environment *e, const char *message) {
    struct transport *t = NULL;
    struct error err = {0};
    set_environment(e);
    assert_int_equal(transport_open(&t, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_string_equal(err.message, message);
    assert_null(t);
}

/* This program's run path has no module of MPI. */
static void test_not_installed(void **state) {
    static const struct environment cases[] = {
        {{{"OMPI_COMM_WORLD_SIZE", "2"}}, true},
        {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMIX_RANK", "1"}}, true},
        {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMI_SIZE", "2"}}, true},
        {{{"SLURM_STEP_NUM_TASKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_refused(&cases[i], "the module libquire-mpi.so is not installed");
}

static void test_srun_without_pmix(void **state) {
    static const struct environment e = {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}},
                                         true};
    check_refused(&e, "started by srun, whose processes find each other with --mpi=pmix alone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_send_and_receive), cmocka_unit_test(test_order),
        cmocka_unit_test(test_timeout),          cmocka_unit_test(test_gone),
        cmocka_unit_test(test_not_begun),        cmocka_unit_test(test_is_expected),
        cmocka_unit_test(test_not_installed),    cmocka_unit_test(test_srun_without_pmix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
