#include "config/base/byte_buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void appends_grow_and_keep_their_bytes(void **state) {
    struct byte_buffer buffer = {0};
    char expected[10000];
    for (size_t i = 0; i < sizeof(expected); i++) {
        expected[i] = (char)(i * 7);
        byte_buffer_append(&buffer, &expected[i], 1);
    }
    assert_false(buffer.failed);
    assert_int_equal(buffer.length, sizeof(expected));
    assert_memory_equal(buffer.data, expected, sizeof(expected));
    byte_buffer_finish(&buffer);
    assert_null(buffer.data);
}

static void printf_appends_exactly_the_text(void **state) {
    struct byte_buffer buffer = {0};
    byte_buffer_append_text(&buffer, "a");
    byte_buffer_printf(&buffer, "%d-%s", 42, "x");
    byte_buffer_printf(&buffer, "%0300d", 7);
    assert_int_equal(buffer.length, 5 + 300);
    assert_memory_equal(buffer.data, "a42-x000", 8);
    assert_int_equal(buffer.data[304], '7');
    byte_buffer_finish(&buffer);
}

static void consume_drops_from_the_front(void **state) {
    struct byte_buffer buffer = {0};
    byte_buffer_append_text(&buffer, "hello world");
    byte_buffer_consume(&buffer, 6);
    assert_int_equal(buffer.length, 5);
    assert_memory_equal(buffer.data, "world", 5);
    byte_buffer_consume(&buffer, 0);
    assert_int_equal(buffer.length, 5);
    byte_buffer_consume(&buffer, 99);
    assert_int_equal(buffer.length, 0);
    byte_buffer_finish(&buffer);
}

static void nothing_is_appended_beyond_the_bound(void **state) {
    struct byte_buffer buffer = {.max_length = 5};
    byte_buffer_append_text(&buffer, "12345");
    assert_false(buffer.failed);
    byte_buffer_append_text(&buffer, "6");
    assert_true(buffer.failed && buffer.is_full);
    assert_int_equal(buffer.length, 5);
    byte_buffer_clear(&buffer);
    assert_false(buffer.failed || buffer.is_full);
    byte_buffer_finish(&buffer);
}

static void reserve_makes_just_the_room(void **state) {
    struct byte_buffer buffer = {0};
    byte_buffer_reserve(&buffer, 1000);
    assert_int_equal(buffer.capacity, 1000);
    byte_buffer_reserve(&buffer, 10);
    assert_int_equal(buffer.capacity, 1000);
    char bytes[1000] = {0};
    byte_buffer_append(&buffer, bytes, sizeof(bytes));
    assert_int_equal(buffer.capacity, 1000);
    byte_buffer_finish(&buffer);
}

static void impossible_size_fails_and_stays_failed(void **state) {
    struct byte_buffer buffer = {0};
    byte_buffer_append_text(&buffer, "keep");
    byte_buffer_append(&buffer, "x", SIZE_MAX - 2);
    assert_true(buffer.failed);
    byte_buffer_append_text(&buffer, "more");
    assert_int_equal(buffer.length, 4);
    assert_memory_equal(buffer.data, "keep", 4);
    byte_buffer_clear(&buffer);
    assert_false(buffer.failed);
    byte_buffer_append_text(&buffer, "new");
    assert_int_equal(buffer.length, 3);
    byte_buffer_finish(&buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_grow_and_keep_their_bytes),
        cmocka_unit_test(printf_appends_exactly_the_text),
        cmocka_unit_test(consume_drops_from_the_front),
        cmocka_unit_test(nothing_is_appended_beyond_the_bound),
        cmocka_unit_test(reserve_makes_just_the_room),
        cmocka_unit_test(impossible_size_fails_and_stays_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
