/* Stands in for cmocka where the library is not installed: the part of its interface that the tests
 * here use (https://api.cmocka.org), with TAP as the only output. Some differences: a signal ends
 * the program instead of the test, NaN equals nothing, and an assertion outside a test aborts.
 *
 * A failing assertion prints "# FILE:LINE: why" and jumps out of its test, setup or teardown. State
 * is per thread, as in cmocka: only the thread that runs the tests may assert. */
#ifndef QUIRE_TESTS_CMOCKA_FALLBACK_CMOCKA_H
#define QUIRE_TESTS_CMOCKA_FALLBACK_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
    void *initial_state;
};

/* Where an assertion jumps to; a program has one however many of its files include this. */
struct cmocka_context {
    jmp_buf end;
    int is_running;
};
extern __thread struct cmocka_context cmocka_context;
__attribute__((weak)) __thread struct cmocka_context cmocka_context;

enum cmocka_outcome { CMOCKA_PASSED, CMOCKA_FAILED, CMOCKA_SKIPPED };

/* --- Assertions ---------------------------------------------------------------------------------
 */

__attribute__((noreturn)) static inline void cmocka_end_test(enum cmocka_outcome outcome) {
    if (!cmocka_context.is_running)
        abort();
    longjmp(cmocka_context.end, (int)outcome);
}

__attribute__((noreturn, format(printf, 3, 4))) static inline void
cmocka_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    printf("# %s:%d: ", file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    cmocka_end_test(CMOCKA_FAILED);
}

static inline void cmocka_assert(int is_true, const char *what, const char *file, int line) {
    if (!is_true)
        cmocka_fail(file, line, "not so: %s", what);
}

static inline void cmocka_assert_int(uintmax_t a, uintmax_t b, int equal, const char *what,
                                     const char *file, int line) {
    if ((a == b) != equal)
        cmocka_fail(file, line, "%s: %jd and %jd", what, (intmax_t)a, (intmax_t)b);
}

static inline void cmocka_assert_range(uintmax_t value, uintmax_t least, uintmax_t most,
                                       const char *what, const char *file, int line) {
    if (value < least || value > most)
        cmocka_fail(file, line, "%s: %ju is not in %ju to %ju", what, value, least, most);
}

static inline void cmocka_assert_float(float a, float b, float epsilon, const char *what,
                                       const char *file, int line) {
    if (!(a == b || __builtin_fabsf(a - b) <= epsilon))
        cmocka_fail(file, line, "%s: %g and %g", what, (double)a, (double)b);
}

static inline void cmocka_assert_string(const char *a, const char *b, int equal, const char *what,
                                        const char *file, int line) {
    if ((strcmp(a, b) == 0) != equal)
        cmocka_fail(file, line, "%s: \"%s\" and \"%s\"", what, a, b);
}

static inline void cmocka_assert_memory(const void *a, const void *b, size_t bytes,
                                        const char *what, const char *file, int line) {
    const unsigned char *left = (const unsigned char *)a, *right = (const unsigned char *)b;
    for (size_t i = 0; i < bytes; i++)
        if (left[i] != right[i])
            cmocka_fail(file, line, "%s: byte %zu of %zu is %#x and %#x", what, i, bytes, left[i],
                        right[i]);
}

#define CMOCKA_HERE __FILE__, __LINE__
#define assert_true(c) cmocka_assert(!!(c), #c, CMOCKA_HERE)
#define assert_false(c) cmocka_assert(!(c), "!(" #c ")", CMOCKA_HERE)
#define assert_null(p) cmocka_assert((p) == NULL, #p " == NULL", CMOCKA_HERE)
#define assert_non_null(p) cmocka_assert((p) != NULL, #p " != NULL", CMOCKA_HERE)
#define assert_ptr_equal(a, b) cmocka_assert((a) == (b), #a " == " #b, CMOCKA_HERE)
#define assert_ptr_not_equal(a, b) cmocka_assert((a) != (b), #a " != " #b, CMOCKA_HERE)
#define assert_int_equal(a, b)                                                                     \
    cmocka_assert_int((uintmax_t)(a), (uintmax_t)(b), 1, #a " == " #b, CMOCKA_HERE)
#define assert_int_not_equal(a, b)                                                                 \
    cmocka_assert_int((uintmax_t)(a), (uintmax_t)(b), 0, #a " != " #b, CMOCKA_HERE)
#define assert_in_range(value, least, most)                                                        \
    cmocka_assert_range((uintmax_t)(value), (uintmax_t)(least), (uintmax_t)(most), #value,         \
                        CMOCKA_HERE)
#define assert_float_equal(a, b, epsilon)                                                          \
    cmocka_assert_float(a, b, epsilon, #a " == " #b, CMOCKA_HERE)
#define assert_string_equal(a, b) cmocka_assert_string(a, b, 1, #a " == " #b, CMOCKA_HERE)
#define assert_string_not_equal(a, b) cmocka_assert_string(a, b, 0, #a " != " #b, CMOCKA_HERE)
#define assert_memory_equal(a, b, bytes)                                                           \
    cmocka_assert_memory(a, b, bytes, #a " == " #b, CMOCKA_HERE)
#define fail() cmocka_fail(CMOCKA_HERE, "fail()")
#define fail_msg(...) cmocka_fail(CMOCKA_HERE, __VA_ARGS__)
#define skip() cmocka_end_test(CMOCKA_SKIPPED)

#define print_message(...) printf(__VA_ARGS__)
#define print_error(...) fprintf(stderr, __VA_ARGS__)

/* --- Groups of tests ----------------------------------------------------------------------------
 */

#define cmocka_unit_test(f)                                                                        \
    { #f, f, NULL, NULL, NULL }
#define cmocka_unit_test_setup(f, setup)                                                           \
    { #f, f, setup, NULL, NULL }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                        \
    { #f, f, setup, teardown, NULL }
#define cmocka_unit_test_prestate(f, state)                                                        \
    { #f, f, NULL, NULL, state }

/* Runs the function that is given, a test or a fixture. */
static inline enum cmocka_outcome cmocka_run(void (*test)(void **), int (*fixture)(void **),
                                             void **state) {
    int outcome = setjmp(cmocka_context.end);
    if (outcome == CMOCKA_PASSED) {
        cmocka_context.is_running = 1;
        if (test != NULL)
            test(state);
        else if (fixture != NULL && fixture(state) != 0)
            cmocka_fail(CMOCKA_HERE, "a setup or teardown failed");
    }
    cmocka_context.is_running = 0;
    return (enum cmocka_outcome)outcome;
}

/* A teardown runs whatever became of the test, unless its setup failed. */
static inline enum cmocka_outcome cmocka_run_test(const struct CMUnitTest *test, void *state) {
    enum cmocka_outcome outcome = cmocka_run(NULL, test->setup, &state);
    if (outcome != CMOCKA_PASSED)
        return outcome;
    outcome = cmocka_run(test->test, NULL, &state);
    enum cmocka_outcome teardown = cmocka_run(NULL, test->teardown, &state);
    return teardown == CMOCKA_PASSED ? outcome : teardown;
}

/* Returns the number of failed tests, at most 100 so that it fits an exit status. */
static inline int cmocka_run_tests(const struct CMUnitTest *tests, size_t num_tests,
                                   int (*setup)(void **), int (*teardown)(void **)) {
    void *group_state = NULL;
    int num_failed = 0;
    printf("1..%zu\n", num_tests);
    if (cmocka_run(NULL, setup, &group_state) != CMOCKA_PASSED) {
        printf("Bail out! The setup of the tests failed.\n");
        return 1;
    }
    for (size_t i = 0; i < num_tests; i++) {
        enum cmocka_outcome outcome =
            cmocka_run_test(&tests[i], group_state != NULL ? group_state : tests[i].initial_state);
        printf("%s %zu - %s%s\n", outcome == CMOCKA_FAILED ? "not ok" : "ok", i + 1, tests[i].name,
               outcome == CMOCKA_SKIPPED ? " # SKIP" : "");
        fflush(stdout);
        num_failed += outcome == CMOCKA_FAILED;
    }
    if (cmocka_run(NULL, teardown, &group_state) != CMOCKA_PASSED) {
        printf("Bail out! The teardown of the tests failed.\n");
        num_failed++;
    }
    return num_failed < 100 ? num_failed : 100;
}

#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cmocka_run_tests(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

#ifdef __cplusplus
}
#endif

#endif
