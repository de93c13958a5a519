#include "server/http/http_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "https://chat.example"
#define EVIL "https://evil.example"
#define JSON "application/json"

static char host_option[] = "127.0.0.1", any[] = "*";

static struct options plain_options(void) {
    return (struct options){
        .host = host_option, .allowed_methods = {1, {any}}, .allowed_headers = {1, {any}}};
}

static struct http_origin_rules make(const struct options *options, bool is_private) {
    struct http_origin_rules rules;
    struct error err = {0};
    if (http_origin_rules_init(options, &rules, &err) != 0)
        fail_msg("%s", err.message);
    if (is_private)
        http_origin_rules_set_private(&rules);
    return rules;
}

/* Status with these fields, 0 when it passes; Host is 127.0.0.1:8000 unless given. */
static int status_of(const struct http_origin_rules *rules, struct http_origin_request request) {
    struct api_error err = {0};
    if (request.host == NULL)
        request.host = "127.0.0.1:8000";
    int rc = http_origin_check(rules, &request, &err);
    assert_int_equal(rc, err.status == 0 ? 0 : -1);
    return err.status;
}

#define STATUS(rules, ...) status_of(rules, (struct http_origin_request){__VA_ARGS__})
#define POST .method = "POST"
#define GET .method = "GET"

static void test_what_is_no_page_passes(void **state) {
    struct options options = plain_options();
    struct http_origin_rules rules = make(&options, true);
    static const char *const types[] = {NULL, JSON, "text/plain", "multipart/form-data; boundary=a",
                                        "application/x-www-form-urlencoded"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_int_equal(STATUS(&rules, POST, .content_type = types[i]), 0);
        assert_int_equal(STATUS(&rules, POST, .content_type = types[i], .origin = ""), 0);
        assert_int_equal(STATUS(&rules, POST, .content_type = types[i], .fetch_site = "none"), 0);
    }
}

static void test_own_pages_pass(void **state) {
    struct options options = plain_options();
    struct http_origin_rules rules = make(&options, false);
    static const char *const own[][2] = {{"http://127.0.0.1:8000", "127.0.0.1:8000"},
                                         {"http://quire:8000", "Quire:8000"},
                                         {"https://quire.example", "quire.example"},
                                         {"https://quire.example", "quire.example:443"},
                                         {"http://quire.example", "quire.example:80"}};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        assert_int_equal(STATUS(&rules, POST, .origin = own[i][0], .host = own[i][1],
                                .content_type = "text/plain"),
                         0);
    /* Behind a proxy that puts another Host: the browser's word counts, or the type. */
    assert_int_equal(STATUS(&rules, POST, .origin = CHAT, .fetch_site = "same-origin"), 0);
    assert_int_equal(STATUS(&rules, POST, .origin = CHAT, .content_type = JSON), 0);
}

static void test_posts_without_a_preflight_are_refused(void **state) {
    struct options options = plain_options();
    struct http_origin_rules rules = make(&options, true);
    static const char *const types[] = {NULL,
                                        "",
                                        "text/plain",
                                        "Text/Plain ",
                                        "text/plain;charset=UTF-8",
                                        "multipart/form-data; boundary=a",
                                        "application/x-www-form-urlencoded",
                                        "text/plain; application/json",
                                        "application/jsonx"};
    static const char *const origins[] = {EVIL,
                                          "null",
                                          "http://127.0.0.1:3000",
                                          "http://127.0.0.1",
                                          "https://127.0.0.1:80",
                                          "127.0.0.1:8000",
                                          "http://",
                                          "http://127.0.0.1:8000.evil.example"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (size_t k = 0; k < sizeof(origins) / sizeof(origins[0]); k++)
            assert_int_equal(STATUS(&rules, POST, .origin = origins[k], .content_type = types[i]),
                             403);
    assert_int_equal(STATUS(&rules, POST, .origin = EVIL, .content_type = "Application/JSON ; a=b"),
                     0);
    assert_int_equal(STATUS(&rules, .method = "PUT", .origin = EVIL), 403);
}

static void test_what_the_browser_calls_foreign_is_refused(void **state) {
    struct options options = plain_options();
    struct http_origin_rules rules = make(&options, true);
    static const char *const sites[] = {"cross-site", "same-site", "something-new"};
    for (size_t i = 0; i < sizeof(sites) / sizeof(sites[0]); i++) {
        const char *site = sites[i];
        assert_int_equal(
            STATUS(&rules, POST, .origin = EVIL, .fetch_site = site, .content_type = JSON), 403);
        assert_int_equal(STATUS(&rules, POST, .fetch_site = site, .content_type = JSON), 403);
        assert_int_equal(STATUS(&rules, GET, .origin = EVIL, .fetch_site = site), 403);
        assert_int_equal(
            STATUS(&rules, POST, .origin = "http://127.0.0.1:8000", .fetch_site = site), 403);
        /* A link to the chat page, an image. */
        assert_int_equal(STATUS(&rules, GET, .fetch_site = site), 0);
        assert_int_equal(STATUS(&rules, .method = "HEAD", .fetch_site = site), 0);
        assert_int_equal(STATUS(&rules, .method = "OPTIONS", .origin = EVIL, .fetch_site = site),
                         0);
    }
}

static void test_the_refusal_names_site_and_option(void **state) {
    struct options options = plain_options();
    struct http_origin_rules rules = make(&options, true);
    struct http_origin_request request = {POST, .host = "localhost", .origin = EVIL};
    struct api_error err = {0};
    assert_int_equal(http_origin_check(&rules, &request, &err), -1);
    assert_string_equal(err.code, "origin_not_allowed");
    assert_non_null(strstr(err.message, EVIL));
    assert_non_null(strstr(err.message, "--allowed-origins"));
    request.host = "evil.example:8000";
    assert_int_equal(http_origin_check(&rules, &request, &err), -1);
    assert_int_equal(err.status, 421);
    assert_string_equal(err.code, "host_not_allowed");
    assert_non_null(strstr(err.message, "evil.example:8000"));
    assert_non_null(strstr(err.message, "--allowed-hosts"));
}

static void test_hosts_by_default(void **state) {
    struct options options = plain_options();
    options.host = (char[]){"mine"};
    struct http_origin_rules rules = make(&options, true);
    assert_int_equal(STATUS(&rules, GET, .host = "mine:8000"), 0);
    assert_int_equal(STATUS(&rules, GET, .host = "localhost:8000"), 0);
    assert_int_equal(STATUS(&rules, GET, .host = "10.0.0.1"), 0);
    assert_int_equal(STATUS(&rules, GET, .host = "other:8000"), 421);
    options.host = (char[]){"::1"};
    rules = make(&options, true);
    assert_int_equal(STATUS(&rules, GET, .host = "[::1]:8000"), 0);
    assert_int_equal(STATUS(&rules, GET, .host = "other:8000"), 421);
    rules = make(&options, false);
    assert_int_equal(STATUS(&rules, GET, .host = "other:8000"), 0);
}

static void test_hosts_that_are_given(void **state) {
    struct options options = plain_options();
    options.host = (char[]){"mine"};
    options.allowed_hosts = (struct option_list){1, {(char[]){"quire.example"}}};
    for (int is_private = 0; is_private < 2; is_private++) {
        struct http_origin_rules rules = make(&options, is_private);
        assert_int_equal(STATUS(&rules, GET, .host = "quire.example"), 0);
        assert_int_equal(STATUS(&rules, GET, .host = "10.0.0.1:8000"), 0);
        assert_int_equal(STATUS(&rules, GET, .host = "other"), 421);
        assert_int_equal(STATUS(&rules, GET, .host = "mine"), 421);
    }
}

/* "name: value" lines of what an answer to the request must have. */
static const char *fields_of(const struct http_origin_rules *rules,
                             struct http_origin_request request) {
    static char lines[8192];
    struct header_field fields[HTTP_ORIGIN_MAX_FIELDS];
    http_origin_fields(rules, &request, fields);
    size_t length = 0;
    lines[0] = '\0';
    for (const struct header_field *field = fields; field->name; field++)
        length += (size_t)snprintf(lines + length, sizeof(lines) - length, "%s: %s\n", field->name,
                                   field->value);
    return lines;
}

#define FIELDS(rules, ...) fields_of(rules, (struct http_origin_request){__VA_ARGS__})
#define ASKS .method = "OPTIONS", .preflight_method = "POST"
#define EXPOSED                                                                                    \
    "Access-Control-Expose-Headers: X-Request-Id, request-id, Retry-After, "                       \
    "retry-after-ms, x-should-retry, "                                                             \
    "X-Ignored-Params\n"

static void test_without_origins_there_is_no_cors(void **state) {
    struct options options = plain_options();
    struct http_origin_rules rules = make(&options, true);
    assert_string_equal(FIELDS(&rules, POST), "");
    assert_string_equal(FIELDS(&rules, POST, .origin = EVIL), "");
    assert_string_equal(FIELDS(&rules, ASKS, .origin = EVIL), "");
    struct http_origin_request request = {ASKS, .origin = EVIL};
    assert_false(http_origin_is_preflight(&rules, &request));
}

static void test_listed_origins(void **state) {
    struct options options = plain_options();
    options.allowed_origins =
        (struct option_list){3, {(char[]){CHAT ":443"}, (char[]){"null"}, (char[]){"app://X"}}};
    struct http_origin_rules rules = make(&options, true);
    static const char *const good[] = {CHAT, "null", "app://x"};
    for (size_t i = 0; i < 3; i++) {
        char expected[256];
        snprintf(expected, sizeof(expected),
                 "Vary: Origin\nAccess-Control-Allow-Origin: %s\n" EXPOSED, good[i]);
        assert_string_equal(FIELDS(&rules, POST, .origin = good[i]), expected);
        assert_int_equal(STATUS(&rules, POST, .origin = good[i], .fetch_site = "cross-site"), 0);
        assert_int_equal(STATUS(&rules, POST, .origin = good[i], .content_type = "text/plain"), 0);
    }
    static const char *const bad[] = {EVIL, CHAT ":8000",         "http://chat.example", "",
                                      NULL, CHAT ".evil.example", "https://chat.exampl"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_string_equal(FIELDS(&rules, POST, .origin = bad[i]), "Vary: Origin\n");
        assert_int_equal(STATUS(&rules, POST, .origin = bad[i], .fetch_site = "cross-site"), 403);
    }
}

static void test_preflight(void **state) {
    struct options options = plain_options();
    options.allowed_origins = (struct option_list){1, {(char[]){CHAT}}};
    struct http_origin_rules rules = make(&options, true);
    assert_string_equal(
        FIELDS(&rules, ASKS, .origin = CHAT, .preflight_headers = "authorization, content-type"),
        "Vary: Origin\nAccess-Control-Allow-Origin: " CHAT
        "\nAccess-Control-Allow-Methods: GET, HEAD, POST, DELETE\n"
        "Access-Control-Allow-Headers: authorization, content-type\n"
        "Access-Control-Max-Age: 600\n");
    assert_string_equal(FIELDS(&rules, ASKS, .origin = EVIL), "Vary: Origin\n");
    struct http_origin_request request = {ASKS, .origin = CHAT};
    assert_true(http_origin_is_preflight(&rules, &request));
    request.method = "POST";
    assert_false(http_origin_is_preflight(&rules, &request));
    request = (struct http_origin_request){.method = "OPTIONS", .origin = CHAT};
    assert_false(http_origin_is_preflight(&rules, &request));
}

/* What is sent back goes into a header field. */
static void test_asked_headers_are_names(void **state) {
    struct options options = plain_options();
    options.allowed_origins = (struct option_list){1, {any}};
    struct http_origin_rules rules = make(&options, true);
    char much[4096];
    memset(much, 'a', sizeof(much) - 1);
    much[sizeof(much) - 1] = '\0';
    const char *const bad[] = {"a\r\nSet-Cookie: b", "a: b", "a\tb", "\"a\"", "\xc3\xa4", much};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(strstr(FIELDS(&rules, ASKS, .origin = CHAT, .preflight_headers = bad[i]),
                           "Access-Control-Allow-Headers"));
}

static void test_listed_methods_and_headers(void **state) {
    struct options options = plain_options();
    options.allowed_origins = (struct option_list){1, {any}};
    options.allowed_methods = (struct option_list){2, {(char[]){"GET"}, (char[]){"POST"}}};
    options.allowed_headers =
        (struct option_list){2, {(char[]){"Authorization"}, (char[]){"Content-Type"}}};
    struct http_origin_rules rules = make(&options, true);
    assert_string_equal(FIELDS(&rules, ASKS, .origin = CHAT, .preflight_headers = "x-other"),
                        "Access-Control-Allow-Origin: *\n"
                        "Access-Control-Allow-Methods: GET, POST\n"
                        "Access-Control-Allow-Headers: Authorization, Content-Type\n"
                        "Access-Control-Max-Age: 600\n");
    assert_string_equal(FIELDS(&rules, GET, .origin = "null"),
                        "Access-Control-Allow-Origin: *\n" EXPOSED);
}

static void test_credentials(void **state) {
    struct options options = plain_options();
    options.allow_credentials = true;
    options.allowed_origins = (struct option_list){1, {(char[]){CHAT}}};
    struct http_origin_rules rules = make(&options, true);
    assert_string_equal(FIELDS(&rules, POST, .origin = CHAT),
                        "Vary: Origin\nAccess-Control-Allow-Origin: " CHAT
                        "\nAccess-Control-Allow-Credentials: true\n" EXPOSED);
    assert_string_equal(FIELDS(&rules, POST, .origin = EVIL), "Vary: Origin\n");
}

static void assert_refused(const struct options *options, const char *option, const char *value) {
    struct http_origin_rules rules;
    struct error err = {0};
    if (http_origin_rules_init(options, &rules, &err) == 0)
        fail_msg("%s is taken", value);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, option));
    assert_non_null(strstr(err.message, value));
}

static void test_bad_options(void **state) {
    static char *const bad[] = {
        "chat.example",           "https://chat.example/", "https://",    "://a",
        "https://*.chat.example", "https://a b",           "https://a/b", "NULL"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct options options = plain_options();
        options.allowed_origins = (struct option_list){1, {bad[i]}};
        assert_refused(&options, "allowed-origins", bad[i]);
    }
    struct options options = plain_options();
    options.allowed_methods = (struct option_list){1, {(char[]){"GET POST"}}};
    assert_refused(&options, "allowed-methods", "GET POST");
    options = plain_options();
    options.allowed_headers = (struct option_list){1, {(char[]){"a:b"}}};
    assert_refused(&options, "allowed-headers", "a:b");
    options = plain_options();
    options.allowed_hosts = (struct option_list){1, {(char[]){"a/b"}}};
    assert_refused(&options, "allowed-hosts", "a/b");
    options = plain_options();
    options.allowed_origins = (struct option_list){2, {(char[]){CHAT}, any}};
    options.allow_credentials = true;
    assert_refused(&options, "allow-credentials", "allowed-origins");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_page_passes),
        cmocka_unit_test(test_own_pages_pass),
        cmocka_unit_test(test_posts_without_a_preflight_are_refused),
        cmocka_unit_test(test_what_the_browser_calls_foreign_is_refused),
        cmocka_unit_test(test_the_refusal_names_site_and_option),
        cmocka_unit_test(test_hosts_by_default),
        cmocka_unit_test(test_hosts_that_are_given),
        cmocka_unit_test(test_without_origins_there_is_no_cors),
        cmocka_unit_test(test_listed_origins),
        cmocka_unit_test(test_preflight),
        cmocka_unit_test(test_asked_headers_are_names),
        cmocka_unit_test(test_listed_methods_and_headers),
        cmocka_unit_test(test_credentials),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
