#include "server/telemetry/access_log.h"
#include "server/telemetry/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

static const struct api_call_summary call = {
    .id = "cmpl-1",
    .model = "m",
    .is_stream = true,
    .num_choices = 2,
    .prompt_tokens = 10,
    .cached_tokens = 4,
    .completion_tokens = 20,
    .finish_reason = "stop",
    .stop_text = {.data = "a\"\n", .length = 3},
    .stop_token = -1,
    .arrival_ns = 2 * S,
    .scheduled_ns = 2 * S + 500000,
    .first_token_ns = 3 * S,
    .last_token_ns = 4 * S,
};

static const struct trace_context trace = {.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"};

static const struct access_record full = {
    .start_ns = 1 * S,
    .end_ns = 5 * S,
    .time_ns = 1795461892315000000,
    .trace = &trace,
    .request_id = "req-1",
    .key = "team-a",
    .client = "127.0.0.1",
    .method = "POST",
    .route = "/v1/completions",
    .status = 200,
    .received_bytes = 37,
    .sent_bytes = 467,
    .call = &call,
};

#define FULL_LINE                                                                                  \
    "{\"time\":\"2026-11-23T19:24:52.315Z\",\"request_id\":\"req-1\",\"trace_id\":"                \
    "\"4bf92f3577b34da6a3ce929d0e0e4736\",\"key\":\"team-a\",\"client\":\"127.0.0.1\","            \
    "\"method\":\"POST\",\"route\":\"/v1/completions\",\"status\":200,\"id\":\"cmpl-1\","          \
    "\"model\":\"m\",\"stream\":true,\"choices\":2,\"prompt_tokens\":10,\"cached_tokens\":4,"      \
    "\"completion_tokens\":20,\"finish_reason\":\"stop\",\"queue_seconds\":0.000500,"              \
    "\"first_token_seconds\":2.000000,\"total_seconds\":4.000000,\"received_bytes\":37,"           \
    "\"sent_bytes\":467,\"stop_reason\":\"a\\\"\\n\"}\n"

static void check_json(const struct access_record *record, const char *expected) {
    struct byte_buffer out = {0};
    access_record_write_json(record, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

static void test_whole_record(void **state) {
    check_json(&full, FULL_LINE);
}

static void test_what_is_not_known_is_left_out(void **state) {
    const struct access_record record = {.status = 400, .error_code = "bad_request"};
    check_json(&record, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"status\":400,"
                        "\"error\":\"bad_request\",\"received_bytes\":0,\"sent_bytes\":0}\n");
}

static void test_call_that_never_ran(void **state) {
    struct api_call_summary aborted = {.id = "i", .finish_reason = "abort", .stop_token = 7};
    const struct access_record record = {.status = ACCESS_CLIENT_GONE, .call = &aborted};
    check_json(&record, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"status\":499,\"id\":\"i\","
                        "\"stream\":false,\"choices\":0,\"prompt_tokens\":0,\"cached_tokens\":0,"
                        "\"completion_tokens\":0,\"finish_reason\":\"abort\",\"received_bytes\":0,"
                        "\"sent_bytes\":0,\"stop_reason\":7}\n");
}

static void test_deadline(void **state) {
    struct api_call_summary late = {.finish_reason = "length",
                                    .stop_text = {.data = "deadline", .length = 8},
                                    .stop_token = -1};
    const struct access_record record = {.status = 200, .call = &late};
    check_json(&record, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"status\":200,"
                        "\"stream\":false,\"choices\":0,\"prompt_tokens\":0,\"cached_tokens\":0,"
                        "\"completion_tokens\":0,\"finish_reason\":\"length\",\"received_bytes\":0,"
                        "\"sent_bytes\":0,\"stop_reason\":\"deadline\"}\n");
}

/* Whatever is in a body, the line stays one. */
static void test_body(void **state) {
    const struct access_record record = {.status = 200, .body = "{\"a\":\n\xff", .body_bytes = 7};
    check_json(&record, "{\"time\":\"1970-01-01T00:00:00.000Z\",\"status\":200,"
                        "\"received_bytes\":0,\"sent_bytes\":0,"
                        "\"body\":\"{\\\"a\\\":\\n\xef\xbf\xbd\"}\n");
}

static void test_journal_fields(void **state) {
    struct byte_buffer out = {0};
    access_record_write_journal(&full, &out);
    byte_buffer_append(&out, "", 1);
    assert_ptr_equal(strstr(out.data, "PRIORITY=6\nMESSAGE=" FULL_LINE), out.data);
    assert_non_null(strstr(out.data, "\nQUIRE_REQUEST_ID=req-1\n"));
    assert_non_null(strstr(out.data, "\nQUIRE_STATUS=200\n"));
    assert_non_null(strstr(out.data, "\nQUIRE_PROMPT_TOKENS=10\n"));
    assert_non_null(strstr(out.data, "\nQUIRE_TOTAL_SECONDS=4.000000\n"));
    assert_null(strstr(out.data, "\n\n"));
    assert_null(strstr(out.data, "QUIRE_STOP_REASON"));
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_record),
        cmocka_unit_test(test_what_is_not_known_is_left_out),
        cmocka_unit_test(test_call_that_never_ran),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_body),
        cmocka_unit_test(test_journal_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
