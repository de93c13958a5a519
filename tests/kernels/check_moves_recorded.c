/* Block moves beside recorded steps that are replayed, as check_moves.c has them without. */
#include "tests/kernels/moves_fixture.h"

#include "kernels/kv_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- Recordings --- */

static void begin_recording(struct moves_parts *p) {
    struct error err = {0};
    if (p->backend->ops->recording->begin(p->backend, MOVES_RECORDED_BYTES, &err) != 0)
        fail_msg("%s", err.message);
    p->is_recording = true;
}

static struct recording *end_recording(struct moves_parts *p) {
    struct error err = {0};
    struct recording *recording = NULL;
    if (p->backend->ops->recording->end(p->backend, &recording, &err) != 0)
        fail_msg("%s", err.message);
    p->is_recording = false;
    return recording;
}

static void replay(struct moves_parts *p, struct recording *recording) {
    p->backend->ops->recording->replay(p->backend, recording);
    moves_may_wait(p);
}

static void free_recording(struct moves_parts *p, struct recording *recording) {
    kernel_fixture_synchronize(p->backend);
    p->is_step_in_flight = false;
    p->backend->ops->recording->free(p->backend, recording);
}

/* Ops are recorded that were called before. */
static void call_first(struct moves_parts *p, const struct moves_step *s) {
    moves_begin_step(p, s);
    moves_store(p, 0);
    moves_end_step(p);
    kernel_fixture_synchronize(p->backend);
    p->is_step_in_flight = false;
}

/* The step is recorded too: nobody knows its blocks when it is replayed. */
static void replays_of_a_step(struct moves_parts *p) {
    const struct moves_step s = moves_step_in(0);
    call_first(p, &s);
    begin_recording(p);
    moves_begin_step(p, &s);
    moves_store(p, 1);
    struct recording *recording = end_recording(p);
    moves_swap_one(p, SWAP_OUT, 0, 0);
    replay(p, recording);
    moves_end_step(p);
    moves_swap_one(p, SWAP_OUT, 0, 1);
    moves_end_step(p);
    free_recording(p, recording);
}

/* In a step, and after its end. */
static void replays_in_a_step(struct moves_parts *p) {
    const struct moves_step s = moves_step_in(0);
    call_first(p, &s);
    moves_begin_step(p, &s);
    moves_may_wait(p);
    begin_recording(p);
    moves_store(p, 1);
    struct recording *recording = end_recording(p);
    moves_end_step(p);
    moves_swap_one(p, SWAP_OUT, 0, 0);
    moves_begin_step(p, &s);
    replay(p, recording);
    moves_end_step(p);
    moves_swap_one(p, SWAP_OUT, 0, 1);
    moves_swap_one(p, SWAP_IN, 0, 3);
    moves_swap_one(p, SWAP_OUT, 0, 4);
    replay(p, recording);
    moves_swap_one(p, SWAP_OUT, 0, 2);
    moves_end_step(p);
    free_recording(p, recording);
}

/* With it the blocks of the step before are forgotten, whose work is not done. */
static void recording_after_a_step(struct moves_parts *p) {
    const struct moves_step s = moves_step_in(0), other = moves_step_in(1);
    call_first(p, &s);
    moves_begin_step(p, &s);
    moves_store(p, 1);
    moves_may_wait(p);
    moves_end_step(p);
    begin_recording(p);
    moves_begin_step(p, &other);
    moves_store(p, 2);
    struct recording *recording = end_recording(p);
    moves_swap_one(p, SWAP_OUT, 0, 0);
    moves_end_step(p);
    free_recording(p, recording);
}

/* Moves that are recorded, behind one that is not and before another; also in a step that has
 * nothing to do with them. */
static void recorded_moves(struct moves_parts *p) {
    const struct moves_step s = moves_step_in(0);
    begin_recording(p);
    moves_copy(p, &moves_numbers[3], &moves_numbers[4], 1);
    struct recording *recording = end_recording(p);
    moves_swap_one(p, SWAP_IN, 3, 1);
    replay(p, recording);
    moves_swap_one(p, SWAP_IN, 3, 2);
    moves_swap_one(p, SWAP_OUT, 4, 3);
    moves_end_step(p);
    moves_swap_one(p, SWAP_IN, 3, 4);
    moves_begin_step(p, &s);
    replay(p, recording);
    moves_end_step(p);
    moves_swap_one(p, SWAP_OUT, 4, 4);
    moves_end_step(p);
    free_recording(p, recording);
}

static void test_replays_of_a_step(void **state) {
    moves_check_all(replays_of_a_step);
}

static void test_replays_in_a_step(void **state) {
    moves_check_all(replays_in_a_step);
}

static void test_recording_after_a_step(void **state) {
    moves_check_all(recording_after_a_step);
}

static void test_recorded_moves(void **state) {
    moves_check_all(recorded_moves);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replays_of_a_step),
        cmocka_unit_test(test_replays_in_a_step),
        cmocka_unit_test(test_recording_after_a_step),
        cmocka_unit_test(test_recorded_moves),
    };
    moves_fixture_open(argc, argv);
    int failed = moves_fixture.backends[0]->ops->recording != NULL
                     ? cmocka_run_group_tests(tests, NULL, NULL)
                     : 0;
    kernel_fixture_close(&moves_fixture);
    return failed;
}
