#include "server/http/http_model_room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define NOW 100000

static struct http_model pool[4];
static struct http_models models;

/* Each takes 100 MiB awake; 20 of them for its KV cache, and 10 that stay. */
static int set_up(void **state) {
    memset(pool, 0, sizeof(pool));
    models = (struct http_models){
        .count = 4, .memory_bytes = 250 * MIB, .gpu_share = 0.9, .turn_ms = 10000};
    for (int i = 0; i < 4; i++) {
        models.items[i] = &pool[i];
        pool[i].memory = (struct http_model_memory){
            .bytes = 100 * MIB, .rank_bytes = 90 * MIB, .kv_bytes = 20 * MIB};
    }
    return 0;
}

static void be_awake(int i, int num_calls, int64_t used_ms, int64_t awake_ms) {
    pool[i].state = HTTP_MODEL_AWAKE;
    pool[i].num_calls = num_calls;
    pool[i].used_ms = used_ms;
    pool[i].awake_ms = awake_ms;
}

static void expect(enum http_model_room room, int victim, bool with_weights) {
    struct http_model *found;
    bool keeps;
    assert_int_equal(http_model_room_find(&models, &pool[3], NOW, &found, &keeps), room);
    assert_ptr_equal(found, victim >= 0 ? &pool[victim] : NULL);
    if (room == HTTP_ROOM_SLEEPS)
        assert_int_equal(keeps, with_weights);
}

static void one_that_fits_is_loaded(void **state) {
    expect(HTTP_ROOM_ENOUGH, -1, false);
    be_awake(0, 1, 0, 0);
    expect(HTTP_ROOM_ENOUGH, -1, false);
}

static void the_least_recently_used_makes_room(void **state) {
    be_awake(0, 0, 20, 0);
    be_awake(1, 0, 10, 0);
    expect(HTTP_ROOM_SLEEPS, 1, false); /* 50 MiB are missing: its KV cache is not enough */
    models.memory_bytes = 280 * MIB;
    expect(HTTP_ROOM_SLEEPS, 1, true); /* 20 MiB of 2 x 20 */
    pool[1].state = HTTP_MODEL_ASLEEP;
    pool[1].has_weights = true;
    expect(HTTP_ROOM_ENOUGH, -1, false);
    models.memory_bytes = 200 * MIB; /* 80 are missing; asleep it has 70, awake the other has 90 */
    expect(HTTP_ROOM_SLEEPS, 1, false);
}

static void one_with_calls_is_waited_for(void **state) {
    be_awake(0, 1, 20, NOW - 9000);
    be_awake(1, 2, 10, NOW - 5000);
    expect(HTTP_ROOM_LATER, -1, false); /* no turn is over */
    pool[1].awake_ms = NOW - 10000;
    expect(HTTP_ROOM_DRAINS, 1, false);
    pool[1].is_door_closed = true;
    expect(HTTP_ROOM_LATER, -1, false);
    pool[1].num_calls = 0;
    expect(HTTP_ROOM_SLEEPS, 1, false);
}

static void a_contested_one_keeps_its_place(void **state) {
    be_awake(0, 0, 20, NOW - 100);
    models.memory_bytes = 150 * MIB;
    pool[0].keeps_ms = NOW + 1;
    expect(HTTP_ROOM_LATER, -1, false);
    pool[0].keeps_ms = NOW;
    expect(HTTP_ROOM_SLEEPS, 0, false);
}

static void pinned_ones_stay(void **state) {
    be_awake(0, 0, 20, 0);
    be_awake(1, 0, 10, 0);
    pool[0].is_pinned = pool[1].is_pinned = true;
    expect(HTTP_ROOM_NEVER, -1, false);
    assert_string_equal(http_model_room_explain(&models, &pool[3]),
                        "and pinned models have too much of it");
    pool[0].is_pinned = false;
    expect(HTTP_ROOM_SLEEPS, 0, false);
    pool[1].state = HTTP_MODEL_UNLOADED;
    pool[0].state = HTTP_MODEL_ASLEEP; /* the 10 MiB that it holds are too many */
    pool[3].memory.bytes = 245 * MIB;
    expect(HTTP_ROOM_CLOSES, 0, false);
    pool[3].memory.bytes = 251 * MIB;
    expect(HTTP_ROOM_NEVER, -1, false);
    assert_string_equal(http_model_room_explain(&models, &pool[3]),
                        "which is more than all models may have together");
}

static void the_number_of_loaded_ones_is_bounded(void **state) {
    models.memory_bytes = 1000 * MIB;
    models.max_awake = 2;
    be_awake(0, 0, 20, 0);
    expect(HTTP_ROOM_ENOUGH, -1, false);
    be_awake(1, 1, 10, NOW);
    expect(HTTP_ROOM_SLEEPS, 0, true); /* memory is there: its weights may stay */
    pool[0].is_pinned = true;
    pool[1].is_pinned = true;
    expect(HTTP_ROOM_NEVER, -1, false);
    assert_non_null(strstr(http_model_room_explain(&models, &pool[3]), "--models-max"));
}

static void shares_of_a_gpu_add_up(void **state) {
    models.memory_bytes = 1000 * MIB;
    for (int i = 0; i < 4; i++)
        pool[i].memory =
            (struct http_model_memory){.bytes = 50 * MIB, .rank_bytes = 40 * MIB, .gpu_share = 0.3};
    be_awake(0, 0, 20, 0);
    be_awake(1, 0, 10, 0);
    expect(HTTP_ROOM_ENOUGH, -1, false); /* 0.9 */
    be_awake(2, 0, 5, 0);
    expect(HTTP_ROOM_SLEEPS, 2, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_that_fits_is_loaded, set_up),
        cmocka_unit_test_setup(the_least_recently_used_makes_room, set_up),
        cmocka_unit_test_setup(one_with_calls_is_waited_for, set_up),
        cmocka_unit_test_setup(a_contested_one_keeps_its_place, set_up),
        cmocka_unit_test_setup(pinned_ones_stay, set_up),
        cmocka_unit_test_setup(the_number_of_loaded_ones_is_bounded, set_up),
        cmocka_unit_test_setup(shares_of_a_gpu_add_up, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
