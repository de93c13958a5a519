/* Allocations of the description fail in turn: it fails as a whole, and nothing leaks. */
#include "server/page/openapi.h"

#include "tests/unit/failing_allocations.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct api_context context = {
    .limits = &(const struct serving_limits){.vocab_size = 1}, .max_n = 16};

static void test_every_allocation(void **state) {
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = free};
    cJSON_InitHooks(&hooks);
    int result = -1;
    /* There are some thousands of them, most of them the parser's: every 7th. */
    for (long allowed = 0; result != 0; allowed += 7) {
        struct byte_buffer out = {0};
        allocations_left = allowed;
        result = openapi_write(&context, &out);
        long left = allocations_left;
        allocations_left = -1;
        assert_true(result == 0 || left == 0);
        byte_buffer_finish(&out);
    }
    cJSON_InitHooks(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
