/* Header fields as a hub and its stores send them, and what answers that are none mean. */
#include "server/client/hub/hub_http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void read_lines(struct hub_answer *answer, const char *lines) {
    hub_answer_clear(answer);
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n") + 1;
        hub_answer_read_line(answer, lines, length);
        lines += length;
    }
}

static void test_fields(void **state) {
    struct hub_answer answer;
    read_lines(&answer, "HTTP/1.1 100 Continue\r\nETag: \"no\"\r\n\r\n"
                        "HTTP/2 302 \r\netag: \"small\"\r\nX-LINKED-ETAG:\"large\"  \r\n"
                        "x-linked-size: 123\r\nContent-Length: 7\r\nX-Repo-Commit: abc\r\n"
                        "X-Error-Code: GatedRepo\r\nX-Error-Message: why: so\r\n"
                        "Retry-After: 9\r\nContent-Range: bytes 5-9/10\r\nOther: x\r\n\r\n");
    assert_int_equal(answer.status, 302);
    assert_string_equal(answer.etag, "\"small\"");
    assert_string_equal(answer.linked_etag, "\"large\"");
    assert_string_equal(answer.commit, "abc");
    assert_string_equal(answer.error_code, "GatedRepo");
    assert_string_equal(answer.error_message, "why: so");
    assert_int_equal(answer.linked_bytes, 123);
    assert_int_equal(answer.content_bytes, 7);
    assert_int_equal(answer.retry_after_s, 9);
    assert_int_equal(answer.range_begin, 5);
    assert_int_equal(answer.range_total, 10);
}

static void test_values_that_make_no_sense(void **state) {
    static const char *const numbers[] = {"",   "-1", "7x", "0x7", "99999999999999999999999",
                                          "+1", " ",  "1 2"};
    static const char *const ranges[] = {"bytes */10", "bytes 5-4/10", "5-9/10",     "bytes 5",
                                         "bytes 5-",   "bytes -9/10",  "bytes 5-9|9"};
    struct hub_answer answer;
    char line[600];
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        snprintf(line, sizeof(line), "Content-Length: %s\r\n", numbers[i]);
        read_lines(&answer, line);
        assert_int_equal(answer.content_bytes, -1);
    }
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        snprintf(line, sizeof(line), "Content-Range: %s\r\n", ranges[i]);
        read_lines(&answer, line);
        assert_int_equal(answer.range_begin, -1);
    }
    read_lines(&answer, "Content-Range: bytes 5-9/*\r\n");
    assert_int_equal(answer.range_begin, 5);
    assert_int_equal(answer.range_total, -1);
    memset(line, 'a', sizeof(line));
    memcpy(line, "ETag:", 5);
    hub_answer_clear(&answer);
    hub_answer_read_line(&answer, line, sizeof(line));
    assert_string_equal(answer.etag, "");
    hub_answer_read_line(&answer, "HTTP/1.1", 8);
    assert_int_equal(answer.status, 0);
    hub_answer_read_line(&answer, "HTTP/1.1 7", 10);
    assert_int_equal(answer.status, 0);
}

static void test_etags(void **state) {
    static const char *const cases[][2] = {{"\"abc\"", "abc"}, {"W/\"abc\"", "abc"}, {"abc", "abc"},
                                           {"", ""},           {"\"", ""},           {"W/", ""}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[HUB_FIELD_BYTES];
        hub_answer_normalise_etag(cases[i][0], out);
        assert_string_equal(out, cases[i][1]);
    }
}

static void check(int status, const char *code, const char *message, bool has_token,
                  enum error_code expected, const char *word) {
    static const char file[] = "m.gguf";
    struct hub_request *request = calloc(1, sizeof(*request));
    const struct hub_subject subject = {"org/name", "v1", "https://hub", file, has_token};
    struct error err = {0};
    assert_non_null(request);
    hub_answer_clear(&request->answer);
    request->answer.status = status;
    snprintf(request->answer.error_code, sizeof(request->answer.error_code), "%s", code);
    snprintf(request->answer.error_message, sizeof(request->answer.error_message), "%s", message);
    assert_int_equal(hub_answer_refuse(request, &subject, &err), -1);
    assert_int_equal(err.code, expected);
    assert_non_null(strstr(err.message, word));
    assert_int_equal(hub_answer_may_retry(request), status == 408 || status == 429 || status > 499);
    free(request);
}

static void test_refusals(void **state) {
    check(401, "GatedRepo", "", false, ERROR_CONFIG, "https://hub/org/name");
    check(403, "GatedRepo", "", true, ERROR_CONFIG, "may not read it");
    check(401, "RepoNotFound", "", false, ERROR_CONFIG, "needs a token in HF_TOKEN");
    check(404, "RepoNotFound", "", true, ERROR_CONFIG, "not this token's");
    check(401, "", "Invalid credentials in Authorization header", true, ERROR_CONFIG,
          "does not take this token");
    check(401, "", "", false, ERROR_CONFIG, "no such model");
    check(403, "", "Access is disabled", false, ERROR_CONFIG, "Access is disabled");
    check(404, "RevisionNotFound", "", false, ERROR_CONFIG, "no revision 'v1'");
    check(404, "EntryNotFound", "", false, ERROR_CONFIG, "no file 'm.gguf'");
    check(404, "", "", false, ERROR_CONFIG, "HF_ENDPOINT");
    check(429, "", "", false, ERROR_UNAVAILABLE, "too many requests");
    check(408, "", "", false, ERROR_UNAVAILABLE, "status 408");
    check(500, "", "broken", false, ERROR_UNAVAILABLE, "status 500: broken");
    check(418, "", "", false, ERROR_UNAVAILABLE, "status 418");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_values_that_make_no_sense),
        cmocka_unit_test(test_etags),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
