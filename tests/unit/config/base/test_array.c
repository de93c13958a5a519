#include "config/base/array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void room_doubles_and_items_stay(void **state) {
    int32_t *items = NULL;
    size_t capacity = 0;
    for (int32_t i = 0; i < 1000; i++) {
        assert_true(array_reserve(&items, &capacity, (size_t)i + 1, sizeof(*items)));
        items[i] = i;
    }
    assert_int_equal(capacity, 1024);
    for (int32_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i);
    free(items);
}

static void much_is_reserved_at_once(void **state) {
    char *bytes = NULL;
    size_t capacity = 0;
    assert_true(array_reserve(&bytes, &capacity, 0, 1));
    assert_null(bytes);
    assert_true(array_reserve(&bytes, &capacity, 1, 1));
    assert_int_equal(capacity, 256);
    assert_true(array_reserve(&bytes, &capacity, 5000, 1));
    assert_int_equal(capacity, 8192);
    free(bytes);
}

static void large_items_come_one_by_one_at_first(void **state) {
    struct large {
        char bytes[1000];
    } *items = NULL;
    size_t capacity = 0;
    assert_true(array_reserve(&items, &capacity, 1, sizeof(*items)));
    assert_int_equal(capacity, 1);
    assert_true(array_reserve(&items, &capacity, 2, sizeof(*items)));
    assert_int_equal(capacity, 2);
    free(items);
}

static void what_no_size_holds_is_refused(void **state) {
    int64_t *items = NULL;
    size_t capacity = 0;
    assert_true(array_reserve(&items, &capacity, 1, sizeof(*items)));
    int64_t *before = items;
    size_t room = capacity;
    assert_false(array_reserve(&items, &capacity, SIZE_MAX, sizeof(*items)));
    assert_false(array_reserve(&items, &capacity, SIZE_MAX / sizeof(*items) + 1, sizeof(*items)));
    assert_false(array_reserve(&items, &capacity, SIZE_MAX / sizeof(*items), sizeof(*items)));
    assert_ptr_equal(items, before);
    assert_int_equal(capacity, room);
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_doubles_and_items_stay),
        cmocka_unit_test(much_is_reserved_at_once),
        cmocka_unit_test(large_items_come_one_by_one_at_first),
        cmocka_unit_test(what_no_size_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
