#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "scripts/paged_memory/beam_rows.h"

#include <math.h>

static void test_rows_are_distributions(void **state) {
    for (uint64_t history = 0; history < 2000; history++) {
        const int16_t *row = beam_row_choose(history, 1, 5);
        double mass = 0;
        for (int i = 0; i < BEAM_ROW_LOGPROBS; i++) {
            assert_true(row[i] <= (i > 0 ? row[i - 1] : 0));
            mass += exp(row[i] / 1000.0);
        }
        assert_true(mass < 1.01); /* rounded to thousandths */
    }
}

/* Beams of one search often get the same row; of two searches hardly ever. */
static void test_common_rows(void **state) {
    int num_common = 0, num_equal = 0;
    for (int32_t position = 0; position < 1000; position++) {
        const int16_t *row = beam_row_choose(17, 1, position);
        num_common += row == beam_row_choose(18, 1, position);
        num_equal += row == beam_row_choose(18, 2, position);
    }
    assert_in_range(num_common, 500, 700);
    assert_in_range(num_equal, 0, 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_distributions),
        cmocka_unit_test(test_common_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
