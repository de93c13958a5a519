#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "scripts/paged_memory/trace.h"

struct moments {
    double prompt, output, output_still_to_come; /* E[x], E[x], E[x^2] / 2E[x] */
};

static struct moments moments_of(const struct trace *trace) {
    double prompt = 0, output = 0, square = 0;
    for (int32_t i = 0; i < trace->num_requests; i++) {
        const struct traced_request *request = &trace->requests[i];
        assert_in_range(request->num_prompt_tokens, 1, TRACE_MAX_LENGTH - 1);
        assert_in_range(request->num_output_tokens, 1,
                        TRACE_MAX_LENGTH - request->num_prompt_tokens);
        prompt += request->num_prompt_tokens;
        output += request->num_output_tokens;
        square += (double)request->num_output_tokens * request->num_output_tokens;
    }
    return (struct moments){prompt / trace->num_requests, output / trace->num_requests,
                            square / (2 * output)};
}

static void assert_near(double value, double wanted, double tolerance) {
    if (!(value > wanted - tolerance && value < wanted + tolerance))
        fail_msg("%g, not %g +- %g", value, wanted, tolerance);
}

static void test_sharegpt(void **state) {
    struct trace trace;
    assert_int_equal(trace_init(&trace, length_law_sharegpt(), 2, 30000, 7), 0);
    struct moments moments = moments_of(&trace);
    assert_near(moments.prompt, 161.31, 8);
    assert_near(moments.output, 337.99, 8);
    assert_near(moments.output_still_to_come, 299, 12);
    trace_finish(&trace);
}

static void test_alpaca(void **state) {
    struct trace trace;
    assert_int_equal(trace_init(&trace, length_law_alpaca(), 30, 2000, 7), 0);
    struct moments moments = moments_of(&trace);
    assert_near(moments.prompt, 19.31, 0.5);
    assert_near(moments.output, 58.45, 1.5);
    trace_finish(&trace);
}

static void test_arrivals(void **state) {
    struct trace trace;
    assert_int_equal(trace_init(&trace, length_law_alpaca(), 30, 2000, 3), 0);
    assert_near(trace.num_requests, 60000, 1000); /* 4 standard deviations */
    for (int32_t i = 1; i < trace.num_requests; i++)
        assert_true(trace.requests[i].arrival_s > trace.requests[i - 1].arrival_s);
    assert_true(trace.requests[trace.num_requests - 1].arrival_s <= 2000);
    trace_finish(&trace);
}

static void test_a_seed_is_a_trace(void **state) {
    struct trace a, b, other;
    assert_int_equal(trace_init(&a, length_law_sharegpt(), 2, 1000, 3), 0);
    assert_int_equal(trace_init(&b, length_law_sharegpt(), 2, 1000, 3), 0);
    assert_int_equal(trace_init(&other, length_law_sharegpt(), 2, 1000, 4), 0);
    assert_int_equal(a.num_requests, b.num_requests);
    assert_memory_equal(a.requests, b.requests, (size_t)a.num_requests * sizeof(*a.requests));
    assert_true(a.requests[0].arrival_s != other.requests[0].arrival_s);
    trace_finish(&a);
    trace_finish(&b);
    trace_finish(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharegpt),
        cmocka_unit_test(test_alpaca),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_a_seed_is_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
