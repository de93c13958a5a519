#include "server/http/http_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct field {
    const char *name, *value;
};

/* Status of a request with these header fields, 0 when it is accepted. */
static int status_of(const struct field *fields, size_t count, struct http_framing *out) {
    struct http_framing framing = {0};
    struct api_error err = {0};
    for (size_t i = 0; i < count; i++)
        http_framing_add(&framing, fields[i].name, fields[i].value);
    if (out)
        *out = framing;
    return http_framing_check(&framing, &err) == 0 ? 0 : err.status;
}

#define STATUS(out, ...)                                                                           \
    status_of((const struct field[]){__VA_ARGS__},                                                 \
              sizeof((const struct field[]){__VA_ARGS__}) / sizeof(struct field), out)

static void test_plain_requests_pass(void **state) {
    struct http_framing framing;
    assert_int_equal(STATUS(&framing, {"Host", "x"}), 0);
    assert_int_equal(framing.length, 0);
    assert_int_equal(STATUS(&framing, {"content-length", "123"}), 0);
    assert_int_equal(framing.length, 123);
    assert_int_equal(STATUS(&framing, {"Transfer-Encoding", "Chunked"}), 0);
    assert_true(framing.is_chunked);
}

static void test_doubtful_extent_is_refused(void **state) {
    assert_int_equal(STATUS(NULL, {"Content-Length", "4"}, {"Transfer-Encoding", "chunked"}), 400);
    assert_int_equal(STATUS(NULL, {"Content-Length", "4"}, {"CONTENT-LENGTH", "4"}), 400);
    assert_int_equal(STATUS(NULL, {"Content-Length", "-1"}), 400);
    assert_int_equal(STATUS(NULL, {"Content-Length", ""}), 400);
    assert_int_equal(STATUS(NULL, {"Content-Length", "4, 4"}), 400);
    assert_int_equal(STATUS(NULL, {"Content-Length", "99999999999999999999999"}), 400);
    assert_int_equal(STATUS(NULL, {"Transfer-Encoding", "xchunked"}), 501);
    assert_int_equal(STATUS(NULL, {"Transfer-Encoding", "gzip, chunked"}), 501);
    assert_int_equal(STATUS(NULL, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "x"}),
                     501);
}

static void test_one_host_is_wanted(void **state) {
    struct http_framing framing = {.needs_host = true};
    struct api_error err = {0};
    assert_int_equal(http_framing_check(&framing, &err), -1);
    assert_int_equal(err.status, 400);
    http_framing_add(&framing, "host", "a");
    assert_int_equal(http_framing_check(&framing, &err), 0);
    http_framing_add(&framing, "Host", "a");
    assert_int_equal(http_framing_check(&framing, &err), -1);
    assert_int_equal(STATUS(NULL, {"Host", "a"}, {"HOST", "b"}), 400);
    assert_int_equal(STATUS(NULL, {"Authorization", "a"}, {"authorization", "a"}), 400);
    assert_int_equal(STATUS(NULL, {"X-Api-Key", "a"}), 0);
    assert_int_equal(STATUS(NULL, {"X-Api-Key", "a"}, {"x-api-key", "a"}), 400);
}

static void test_hosts_have_their_characters(void **state) {
    assert_int_equal(STATUS(NULL, {"Host", "[::1]:8000"}), 0);
    assert_int_equal(STATUS(NULL, {"Host", ""}), 0);
    assert_int_equal(STATUS(NULL, {"Host", "a b"}), 400);
    assert_int_equal(STATUS(NULL, {"Host", "a/b"}), 400);
    assert_int_equal(STATUS(NULL, {"Host", "user@a"}), 400);
    assert_int_equal(STATUS(NULL, {"Host", "a\xc3\xa4"}), 400);
}

static void test_target_is_a_path_or_our_url(void **state) {
    struct api_error err = {0};
    assert_string_equal(http_target_path("/a", NULL, &err), "/a");
    assert_string_equal(http_target_path("*", NULL, &err), "*");
    assert_string_equal(http_target_path("http://Here:80/a/b", "here:80", &err), "/a/b");
    assert_string_equal(http_target_path("HTTP://here", "here", &err), "/");
    assert_string_equal(http_target_path("https://here/a", "here", &err), "/a");
    const char *const others[] = {
        "a", "", "http://there/a", "http://here:80/a", "ftp://here/a", "http:/here/a"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        err.status = 0;
        assert_null(http_target_path(others[i], "here", &err));
        assert_int_equal(err.status, 400);
    }
    assert_null(http_target_path("http://here/a", NULL, &err));
}

static void test_sane_request_id_is_echoed(void **state) {
    char id[REQUEST_ID_BYTES];
    http_request_id("Abc-1_2.3:4", id);
    assert_string_equal(id, "Abc-1_2.3:4");
}

static void test_other_request_ids_are_replaced(void **state) {
    char long_id[REQUEST_ID_BYTES + 1], id[REQUEST_ID_BYTES], other[REQUEST_ID_BYTES];
    memset(long_id, 'a', REQUEST_ID_BYTES);
    long_id[REQUEST_ID_BYTES] = '\0';
    const char *const bad[] = {NULL, "", "a b", "a\r\nSet-Cookie: x", "\xc3\xa4", long_id};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        http_request_id(bad[i], id);
        assert_memory_equal(id, "req-", 4);
        assert_int_equal(strlen(id), 36);
    }
    http_request_id(NULL, other);
    assert_string_not_equal(id, other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_requests_pass),
        cmocka_unit_test(test_doubtful_extent_is_refused),
        cmocka_unit_test(test_one_host_is_wanted),
        cmocka_unit_test(test_hosts_have_their_characters),
        cmocka_unit_test(test_target_is_a_path_or_our_url),
        cmocka_unit_test(test_sane_request_id_is_echoed),
        cmocka_unit_test(test_other_request_ids_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
