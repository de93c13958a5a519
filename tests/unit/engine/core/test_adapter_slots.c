/* The slots alone, with steps that are built by hand: what a step writes and when an adapter may be
 * used. tests/sim and test_engine_adapters.c have them in the engine. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/core/adapter_slots.h"
#include "tests/sim/fake_lora.h"

#include <stdlib.h>

struct fixture {
    struct adapter_slots slots;
    struct step step;
};

static void setup(struct fixture *f, int32_t num_slots) {
    const struct lora_shape shape = fake_lora_shape(num_slots);
    struct batch_capacity capacity = {0};
    *f = (struct fixture){0};
    adapter_slots_init(&f->slots, NULL, &shape);
    adapter_slots_add_capacity(NULL, &shape, &capacity);
    assert_int_equal(batch_arena_init(&f->step.arena, &capacity), 0);
}

static void teardown(struct fixture *f) {
    adapter_slots_finish(&f->slots);
    batch_arena_finish(&f->step.arena);
    assert_int_equal(fake_lora_num_open(), 0);
}

static void write(struct fixture *f, size_t max_bytes) {
    *f->step.arena.counts = (struct batch_counts){0};
    adapter_slots_write(&f->slots, max_bytes, &f->step);
    adapter_slots_submitted(&f->slots);
    assert_int_equal(f->step.batch.num_adapter_writes, f->step.arena.counts->num_adapter_writes);
}

static struct adapter *load(struct fixture *f, int32_t slot, const char *name) {
    struct adapter *adapter = fake_lora_adapter(name, (uint64_t)slot + 1);
    adapter_slots_load(&f->slots, slot, adapter, false);
    adapter_unref(adapter); /* the slots have one */
    return adapter;
}

static void load_wholly(struct fixture *f) {
    while (adapter_slots_have_writes(&f->slots)) {
        write(f, ADAPTER_IDLE_BYTES);
        adapter_slots_collected(&f->slots, true);
    }
}

static enum adapter_state state_of(const struct adapter *adapter) {
    return atomic_load(&adapter->state);
}

static void no_slots_take_no_room(void **state) {
    const struct lora_shape shape = {.num_slots = 0};
    struct batch_capacity capacity = {0};
    struct adapter_slots slots;
    adapter_slots_add_capacity(NULL, &shape, &capacity);
    assert_true(capacity.num_adapter_writes == 0 && capacity.adapter_bytes == 0);
    adapter_slots_init(&slots, NULL, &shape);
    assert_false(adapter_slots_have_writes(&slots));
    adapter_slots_count(&slots, NULL);
}

/* All rows, each once and in order, within the bound of each step. */
static void a_step_writes_what_it_may(void **state) {
    static const size_t bounds[] = {1, ADAPTER_STEP_BYTES, ADAPTER_IDLE_BYTES};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        int32_t num_rows = 0, num_steps = 0;
        setup(&f, 1);
        load(&f, 0, "a");
        for (; adapter_slots_have_writes(&f.slots); num_steps++) {
            write(&f, bounds[i]);
            size_t bytes = f.step.arena.counts->adapter_bytes;
            assert_true(bytes > 0 && bytes <= (i == 0 ? sizeof(struct fake_lora_row) : bounds[i]));
            for (int32_t w = 0; w < f.step.batch.num_adapter_writes; w++) {
                const struct adapter_write *written = &f.step.arena.adapter_writes[w];
                const struct fake_lora_row *rows =
                    (const void *)(f.step.arena.adapter_data + written->first_byte);
                assert_int_equal(written->slot, 0);
                for (int32_t r = 0; r < written->rows.num_rows; r++, num_rows++)
                    assert_int_equal(rows[r].matrix * FAKE_LORA_ROWS + rows[r].row, num_rows);
            }
        }
        assert_int_equal(num_rows, 2 * FAKE_LORA_ROWS);
        size_t bytes = 2 * FAKE_LORA_ROWS * sizeof(struct fake_lora_row);
        assert_int_equal(num_steps, i == 0 ? num_rows : (int)((bytes - 1) / bounds[i]) + 1);
        teardown(&f);
    }
}

static void it_is_ready_when_the_last_write_was_waited_for(void **state) {
    struct fixture f;
    setup(&f, 2);
    struct adapter *adapter = load(&f, 1, "a");
    assert_int_equal(state_of(adapter), ADAPTER_LOADING);
    while (adapter_slots_have_writes(&f.slots))
        write(&f, ADAPTER_IDLE_BYTES);
    for (uint64_t left = f.slots.num_submitted; left > 0; left--) {
        assert_int_equal(state_of(adapter), ADAPTER_LOADING);
        assert_false(f.slots.has_news);
        adapter_slots_collected(&f.slots, true);
    }
    assert_int_equal(state_of(adapter), ADAPTER_READY);
    assert_true(f.slots.has_news && adapter->slot == 1);
    teardown(&f);
}

static void a_step_that_failed_makes_none_ready(void **state) {
    struct fixture f;
    setup(&f, 1);
    struct adapter *adapter = load(&f, 0, "a");
    while (adapter_slots_have_writes(&f.slots)) {
        write(&f, ADAPTER_IDLE_BYTES);
        adapter_slots_collected(&f.slots, false);
    }
    assert_int_equal(state_of(adapter), ADAPTER_LOADING);
    teardown(&f);
}

static void one_that_is_loading_goes_at_once(void **state) {
    struct fixture f;
    setup(&f, 1);
    struct adapter *adapter = adapter_ref(load(&f, 0, "a"));
    write(&f, ADAPTER_STEP_BYTES);
    adapter_slots_unload(&f.slots, 0);
    assert_int_equal(state_of(adapter), ADAPTER_GONE);
    assert_false(adapter_slots_have_writes(&f.slots));
    adapter_slots_collected(&f.slots, true);
    assert_int_equal(state_of(adapter), ADAPTER_GONE);
    load(&f, 0, "b"); /* from its first row */
    write(&f, ADAPTER_STEP_BYTES);
    assert_int_equal(f.step.arena.adapter_writes[0].rows.first_row, 0);
    adapter_unref(adapter);
    teardown(&f);
}

static void requests_end_before_the_slot_is_free(void **state) {
    struct fixture f;
    setup(&f, 1);
    struct adapter *adapter = adapter_ref(load(&f, 0, "a"));
    load_wholly(&f);
    adapter_slots_take(&f.slots, adapter);
    adapter_slots_take(&f.slots, adapter);
    adapter_slots_unload(&f.slots, 0);
    assert_int_equal(state_of(adapter), ADAPTER_UNLOADING);
    adapter_slots_release(&f.slots, adapter);
    assert_int_equal(state_of(adapter), ADAPTER_UNLOADING);
    f.slots.has_news = false;
    adapter_slots_release(&f.slots, adapter);
    assert_int_equal(state_of(adapter), ADAPTER_GONE);
    assert_true(f.slots.has_news && f.slots.slots[0].adapter == NULL);
    adapter_slots_take(&f.slots, NULL);
    adapter_slots_release(&f.slots, NULL);
    adapter_unref(adapter);
    teardown(&f);
}

/* First those that requests wait for; who loads waits on. */
static void what_is_lost_is_written_again(void **state) {
    struct fixture f;
    setup(&f, 2);
    struct adapter *ready = load(&f, 1, "ready");
    load_wholly(&f);
    struct adapter *loading = load(&f, 0, "loading");
    write(&f, ADAPTER_IDLE_BYTES);
    assert_int_equal(f.step.arena.adapter_writes[0].slot, 0);
    assert_false(adapter_slots_must_write(&f.slots));
    adapter_slots_forget(&f.slots);
    adapter_slots_collected(&f.slots, false);
    assert_true(adapter_slots_must_write(&f.slots));
    assert_int_equal(state_of(ready), ADAPTER_READY);
    write(&f, ADAPTER_IDLE_BYTES);
    assert_int_equal(f.step.arena.adapter_writes[0].slot, 1);
    assert_int_equal(f.step.arena.adapter_writes[0].rows.first_row, 0);
    adapter_slots_collected(&f.slots, true);
    load_wholly(&f);
    assert_false(adapter_slots_must_write(&f.slots));
    assert_int_equal(state_of(loading), ADAPTER_READY);
    teardown(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_slots_take_no_room),
        cmocka_unit_test(a_step_writes_what_it_may),
        cmocka_unit_test(it_is_ready_when_the_last_write_was_waited_for),
        cmocka_unit_test(a_step_that_failed_makes_none_ready),
        cmocka_unit_test(one_that_is_loading_goes_at_once),
        cmocka_unit_test(requests_end_before_the_slot_is_free),
        cmocka_unit_test(what_is_lost_is_written_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
