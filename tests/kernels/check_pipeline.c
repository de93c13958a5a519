/* Pipelines of 2 to 4 stages, of one rank or two, each a thread with a backend of its own: what a
 * stage sends, the rank of its number in the next one receives, whether stages reach one another's
 * memory or send messages; and what is left when a stage is silent. */
#include "tests/kernels/fake_transport.h"
#include "tests/kernels/kernel_fixture.h"

#include "config/base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MAX_RANKS = 8, MAX_ROWS = 40, MAX_WIDTH = 1000, NUM_STEPS = 60 };
#define TIMEOUT_NS (20 * CLOCK_NS_PER_MS)

static const char *const devices[] = {"cpu-ref", "cpu"};
#define NUM_DEVICES (sizeof(devices) / sizeof(devices[0]))

struct form {
    const char *device;
    int32_t num_stages, num_ranks;
    bool by_messages;
};

struct member {
    const struct form *form;
    struct backend_pipeline *pipeline; /* of all, or of this one alone */
    int32_t stage, rank;
    int num_wrong;
    pthread_t thread;
};

static struct backend *open_backend(const struct member *member) {
    const struct backend_config config = {.num_threads = 1,
                                          .limits.max_num_batched_tokens = MAX_ROWS,
                                          .limits.max_num_seqs = 1,
                                          .limits.max_logit_rows = 1,
                                          .limits.vocab_size = 8,
                                          .rank = member->rank,
                                          .pipeline = member->pipeline,
                                          .stage = member->stage};
    return backend_open(member->form->device, &config, NULL);
}

/* --- Rows that go through all stages --- */

static float value(const struct member *member, int step, int32_t stage, size_t i) {
    return (float)(step * 8 + member->rank) + (float)i / MAX_WIDTH + (float)stage * 1000.0F;
}

/* Of a size of its own in each step. */
static struct stage_rows_args rows_of(float *x, int step) {
    return (struct stage_rows_args){
        .x = x, .num_rows = 1 + step * 7 % MAX_ROWS, .width = 1 + step * 331 % MAX_WIDTH};
}

/* Now one stage is late, and now another, for longer than they spin. */
static void be_late(const struct member *member, int step) {
    if (step % 10 == member->stage)
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
}

static void pass_on(struct member *member, struct backend *b, float *x, int step) {
    const struct stage_rows_args args = rows_of(x, step);
    size_t n = (size_t)args.num_rows * (size_t)args.width;
    if (member->stage > 0)
        b->ops->receive_rows(b, &args);
    for (size_t i = 0; i < n; i++) {
        float expected = value(member, step, member->stage - 1, i);
        member->num_wrong += member->stage > 0 && x[i] != expected;
        x[i] = value(member, step, member->stage, i);
    }
    if (member->stage + 1 < member->form->num_stages)
        b->ops->send_rows(b, &args);
    for (size_t i = 0; i < n; i++)
        x[i] = -1;
}

static void *run_member(void *argument) {
    struct member *member = argument;
    struct backend *b = open_backend(member);
    float *x = calloc((size_t)MAX_ROWS * MAX_WIDTH, sizeof(*x));
    if (b == NULL || x == NULL)
        abort();
    for (int step = 0; step < NUM_STEPS; step++) {
        be_late(member, step);
        pass_on(member, b, x, step);
    }
    member->num_wrong += b->ops->synchronize(b, NULL) != 0;
    backend_close(b);
    free(x);
    return NULL;
}

static void create(const struct form *form, struct fake_network *network, struct member *members) {
    struct backend_pipeline *pipeline = NULL;
    if (network == NULL)
        assert_int_equal(backend_pipeline_create(form->device, form->num_stages, form->num_ranks,
                                                 &pipeline, NULL),
                         0);
    for (int32_t i = 0; i < form->num_stages * form->num_ranks; i++) {
        members[i] = (struct member){.form = form,
                                     .pipeline = pipeline,
                                     .stage = i / form->num_ranks,
                                     .rank = i % form->num_ranks};
        if (network != NULL)
            assert_int_equal(backend_pipeline_create_remote(
                                 form->device, fake_network_transport(network, i), form->num_stages,
                                 form->num_ranks, &members[i].pipeline, NULL),
                             0);
    }
}

static size_t bytes_of_all_steps(void) {
    size_t bytes = 0;
    for (int step = 0; step < NUM_STEPS; step++) {
        const struct stage_rows_args args = rows_of(NULL, step);
        bytes += (size_t)args.num_rows * (size_t)args.width * sizeof(float);
    }
    return bytes;
}

/* Within a process nothing is sent. */
static void assert_counted(const struct member *member) {
    const struct form *form = member->form;
    struct backend_group_traffic traffic;
    size_t bytes = form->by_messages ? bytes_of_all_steps() : 0;
    backend_pipeline_get_traffic(member->pipeline, member->stage, member->rank, &traffic);
    assert_int_equal(traffic.bytes_sent, member->stage + 1 < form->num_stages ? bytes : 0);
    assert_int_equal(traffic.bytes_received, member->stage > 0 ? bytes : 0);
    assert_true(traffic.wait_ns > 0);
}

/* Returns the bytes that stage 0 has sent to stage 1 as messages. */
static size_t run(const struct form *form) {
    struct member members[MAX_RANKS];
    int32_t count = form->num_stages * form->num_ranks;
    struct fake_network *network = form->by_messages ? fake_network_create(count, 0) : NULL;
    size_t num_bytes = 0;
    if (network != NULL)
        fake_network_delay(network, 300000);
    create(form, network, members);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&members[i].thread, NULL, run_member, &members[i]), 0);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
    for (int32_t i = 0; i < count; i++)
        assert_counted(&members[i]);
    for (int32_t i = 0; i < count; i++) {
        assert_int_equal(members[i].num_wrong, 0);
        if (network != NULL || i == 0)
            backend_pipeline_destroy(members[i].pipeline);
    }
    if (network != NULL) {
        num_bytes = fake_network_bytes(network, 0, form->num_ranks);
        fake_network_destroy(network);
    }
    return num_bytes;
}

static void test_rows_go_through(void **state) {
    size_t expected = bytes_of_all_steps();
    for (size_t device = 0; device < NUM_DEVICES; device++)
        for (int32_t num_stages = 2; num_stages <= 4; num_stages++)
            for (int32_t num_ranks = 1; num_ranks <= 2; num_ranks++) {
                struct form form = {devices[device], num_stages, num_ranks, false};
                run(&form);
                form.by_messages = true;
                assert_int_equal(run(&form), expected);
            }
}

/* --- Failures --- */

/* Of three stages the one in the middle, the others of which are silent. */
static void test_silent_stage(void **state) {
    for (size_t device = 0; device < NUM_DEVICES; device++)
        for (int sends = 0; sends < 2; sends++) {
            struct fake_network *network = fake_network_create(3, TIMEOUT_NS);
            const struct form form = {devices[device], 3, 1, true};
            struct member member = {.form = &form, .stage = 1};
            struct transport *transport = fake_network_transport(network, 1);
            struct error err = {0};
            float x[4] = {0};
            const struct stage_rows_args args = {.x = x, .num_rows = 1, .width = 4};
            assert_int_equal(backend_pipeline_create_remote(form.device, transport, 3, 1,
                                                            &member.pipeline, NULL),
                             0);
            struct backend *b = open_backend(&member);
            assert_non_null(b);
            (sends ? b->ops->send_rows : b->ops->receive_rows)(b, &args);
            transport->timeout_ns = 0; /* nothing is waited for any more */
            b->ops->send_rows(b, &args);
            b->ops->receive_rows(b, &args);
            assert_int_equal(b->ops->step_wait(b, &err), -1);
            assert_int_equal(err.code, ERROR_DEVICE);
            assert_string_equal(err.message,
                                sends ? "rank 2 has not answered within 0.02 s (--rank-timeout)"
                                      : "rank 0 has not answered within 0.02 s (--rank-timeout)");
            assert_int_equal(b->ops->synchronize(b, NULL), -1);
            fake_network_destroy(network);
            backend_close(b);
            backend_pipeline_destroy(member.pipeline);
        }
}

/* What is wrong for want of another rank of its stage does not reach the next stage. */
static void test_nothing_is_sent_after_a_failed_sum(void **state) {
    struct fake_network *network = fake_network_create(4, TIMEOUT_NS);
    struct transport *transport = fake_network_transport(network, 0);
    struct backend_group *group;
    struct backend_pipeline *pipeline;
    float x[4] = {0};
    assert_int_equal(backend_group_create_remote("cpu", transport, 0, 2, &group, NULL), 0);
    assert_int_equal(backend_pipeline_create_remote("cpu", transport, 2, 2, &pipeline, NULL), 0);
    const struct backend_config config = {.num_threads = 1,
                                          .limits.max_num_batched_tokens = 1,
                                          .limits.max_num_seqs = 1,
                                          .limits.max_logit_rows = 1,
                                          .limits.hidden_size = 4,
                                          .group = group,
                                          .pipeline = pipeline};
    struct backend *b = backend_open("cpu", &config, NULL);
    assert_non_null(b);
    b->ops->all_reduce(b, &(struct all_reduce_args){.x = x, .out = x, .num_rows = 1, .width = 4});
    transport->timeout_ns = 0;
    b->ops->send_rows(b, &(struct stage_rows_args){.x = x, .num_rows = 1, .width = 4});
    assert_int_equal(b->ops->step_wait(b, NULL), -1);
    assert_int_equal(fake_network_bytes(network, 0, 2), 0);
    fake_network_destroy(network);
    backend_close(b);
    backend_group_destroy(group);
    backend_pipeline_destroy(pipeline);
}

/* --- Refused --- */

static void assert_refused(const char *device, int32_t num_stages, int32_t num_ranks,
                           const char *piece) {
    struct backend_pipeline *pipeline = NULL;
    struct error err = {0};
    assert_int_equal(backend_pipeline_create(device, num_stages, num_ranks, &pipeline, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, piece));
    assert_null(pipeline);
}

static void test_refused(void **state) {
    assert_refused("cpu", 0, 1, "must be 1 to 8 stages");
    assert_refused("cpu", 9, 1, "must be 1 to 8 stages");
    assert_refused("cpu-ref", 3, 3, "at most 8 ranks in all");
    assert_refused("cuda", 9, 1, "must be 1 to 8 stages");
    const struct form form = {"cpu", 2, 2, false};
    struct member member = {.form = &form};
    assert_int_equal(backend_pipeline_create("cpu", 2, 2, &member.pipeline, NULL), 0);
    for (int32_t i = -1; i <= 2; i += 3) {
        member.stage = i;
        member.rank = 0;
        assert_null(open_backend(&member));
        member.stage = 0;
        member.rank = i;
        assert_null(open_backend(&member));
    }
    backend_pipeline_destroy(member.pipeline);
    backend_pipeline_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_go_through),
        cmocka_unit_test(test_silent_stage),
        cmocka_unit_test(test_nothing_is_sent_after_a_failed_sum),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
