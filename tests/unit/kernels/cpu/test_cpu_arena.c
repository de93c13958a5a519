#include "kernels/cpu/memory/cpu_arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NUM_SPANS 200

static size_t span_bytes(size_t i) {
    return i % 50 == 49 ? ((size_t)40 << 20) + i : i * 4001;
}

static void check_filled(const struct cpu_arena_span *span, size_t bytes, unsigned char value) {
    const unsigned char *data = span->data;
    for (size_t i = 0; i < bytes; i += 997)
        assert_int_equal(data[i], value);
    if (bytes > 0)
        assert_int_equal(data[bytes - 1], value);
}

static void test_spans_are_zero_aligned_and_apart(void **state) {
    struct cpu_arena arena = {0};
    struct cpu_arena_span spans[NUM_SPANS];
    for (size_t i = 0; i < NUM_SPANS; i++) {
        assert_int_equal(cpu_arena_alloc(&arena, span_bytes(i), &spans[i], NULL), 0);
        assert_int_equal((uintptr_t)spans[i].data % 64, 0);
        check_filled(&spans[i], span_bytes(i), 0);
        memset(spans[i].data, (int)(i % 255) + 1, span_bytes(i));
    }
    for (size_t i = 0; i < NUM_SPANS; i += 2)
        cpu_arena_free(&arena, &spans[i]);
    for (size_t i = 1; i < NUM_SPANS; i += 2)
        check_filled(&spans[i], span_bytes(i), (unsigned char)(i % 255 + 1));
    for (size_t i = 0; i < NUM_SPANS; i++)
        cpu_arena_free(&arena, &spans[i]);
    assert_null(arena.newest);
}

static void test_memory_is_zero_again_after_a_free(void **state) {
    struct cpu_arena arena = {0};
    struct cpu_arena_span span;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cpu_arena_alloc(&arena, 1000, &span, NULL), 0);
        check_filled(&span, 1000, 0);
        memset(span.data, 7, 1000);
        cpu_arena_free(&arena, &span);
        assert_null(span.data);
    }
}

static void test_impossible_sizes_fail(void **state) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 62, SIZE_MAX - ((size_t)2 << 20),
                                   SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct cpu_arena arena = {0};
        struct cpu_arena_span span = {.data = &arena};
        struct error err = {0};
        assert_int_equal(cpu_arena_alloc(&arena, sizes[i], &span, &err), -1);
        assert_int_equal(err.code, ERROR_MEMORY);
        assert_ptr_equal(span.data, &arena);
        assert_null(arena.newest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans_are_zero_aligned_and_apart),
        cmocka_unit_test(test_memory_is_zero_again_after_a_free),
        cmocka_unit_test(test_impossible_sizes_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
