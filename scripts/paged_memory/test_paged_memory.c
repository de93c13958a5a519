/* The figures of the PagedAttention paper that the policies must reproduce, and what the engine
 * must reach on the same requests, on shorter traces than the report's. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "scripts/paged_memory/orca.h"
#include "scripts/paged_memory/paged.h"

static void assert_near(double value, double wanted, double tolerance) {
    if (!(value > wanted - tolerance && value < wanted + tolerance))
        fail_msg("%g, not %g +- %g", value, wanted, tolerance);
}

static struct trace sharegpt(void) {
    struct trace trace;
    assert_int_equal(trace_init(&trace, length_law_sharegpt(), 2, 2400, 1), 0);
    return trace;
}

/* Figure 2, and figure 13 for ShareGPT at 2 requests/s. */
static void test_reservations(void **state) {
    static const struct {
        double requests, token, reserved, internal, others;
    } paper[] = {{7.00, 20.4, 13.3, 57.3, 8.9},
                 {9.81, 26.8, 17.9, 13.6, 41.6},
                 {13.62, 38.2, 25.2, 0, 36.6}};
    struct trace trace = sharegpt();
    for (int i = 0; i < 3; i++) {
        struct memory_account account;
        orca_run((enum orca_policy)i, &trace, &account);
        assert_near(memory_account_requests(&account), paper[i].requests, i == 0 ? 0.01 : 1);
        assert_near(100 * memory_account_token(&account), paper[i].token, 3);
        assert_near(100 * memory_account_reserved(&account), paper[i].reserved, 3);
        assert_near(100 * memory_account_internal(&account), paper[i].internal, 3);
        assert_near(100 * memory_account_others(&account), paper[i].others, 4);
    }
    trace_finish(&trace);
}

static void test_paged(void **state) {
    struct trace trace = sharegpt();
    struct memory_account oracle, ours;
    orca_run(ORCA_ORACLE, &trace, &oracle);
    paged_run(&(struct paged_setup){.block_size = 16, .num_choices = 1}, &trace, &ours);
    assert_true(memory_account_useful(&ours) >= 0.96);
    assert_true(memory_account_requests(&ours) >= 2.2 * memory_account_requests(&oracle));
    assert_true(memory_account_saved(&ours) == 0);
    trace_finish(&trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reservations),
        cmocka_unit_test(test_paged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
