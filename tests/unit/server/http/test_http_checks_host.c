#include "server/http/http_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define WORDS(...) ((char *const[]){__VA_ARGS__, NULL})

static int num_words(char *const *words) {
    int count = 0;
    while (words[count] != NULL)
        count++;
    return count;
}

static struct http_hosts make(char *const *names) {
    struct http_hosts hosts;
    struct error err = {0};
    if (http_hosts_init(names, num_words(names), &hosts, &err) != 0)
        fail_msg("%s", err.message);
    return hosts;
}

static void assert_hosts(char *const *names, char *const *values, bool are_allowed) {
    struct http_hosts hosts = make(names);
    for (; *values != NULL; values++)
        if (http_hosts_allow(&hosts, *values) != are_allowed)
            fail_msg("\"%s\" is %s", *values, are_allowed ? "refused" : "allowed");
}

static char *const always[] = {"localhost",
                               "localhost:8000",
                               "LocalHost",
                               "localhost.",
                               "app.localhost:3000",
                               "127.0.0.1",
                               "127.0.0.1:8000",
                               "10.1.2.3:80",
                               "203.0.113.5",
                               "[::1]",
                               "[::1]:8000",
                               "[fe80::1]:1",
                               "[fe80::1%25eth0]:1",
                               "[::ffff:127.0.0.1]",
                               "127.0.0.1:",
                               "",
                               NULL};

static char *const foreign[] = {"evil.example",
                                "evil.example:8000",
                                "notlocalhost",
                                "localhost.evil.example",
                                "127.0.0.1.evil.example",
                                "1.2.3.4.5",
                                "[::1].evil.example",
                                "[evil.example]",
                                "[::1",
                                "::1",
                                "[]",
                                "localhost:80:80",
                                "localhost:80a",
                                "a@localhost",
                                "localhost/",
                                " localhost",
                                ":8000",
                                "http://localhost",
                                "\xc3\xa4.localhost",
                                "..",
                                NULL};

static void test_addresses_and_localhost_always_pass(void **state) {
    struct http_hosts hosts = make(WORDS(NULL));
    assert_true(http_hosts_allow(&hosts, NULL));
    assert_hosts(WORDS(NULL), always, true);
    assert_hosts(WORDS("quire.example"), always, true);
}

static void test_other_names_do_not(void **state) {
    assert_hosts(WORDS(NULL), foreign, false);
    assert_hosts(WORDS("quire.example", ".quire.test", "[::1]", "127.0.0.1", "::1"), foreign,
                 false);
}

static void test_names(void **state) {
    assert_hosts(WORDS("Quire.Example"),
                 WORDS("quire.example", "QUIRE.EXAMPLE:443", "quire.example.", "quire.example.:1"),
                 true);
    assert_hosts(WORDS("quire.example"), WORDS("a.quire.example", "xquire.example", "quire.exampl"),
                 false);
    assert_hosts(WORDS("quire.example:8000", "full.example."),
                 WORDS("quire.example", "quire.example:9", "full.example"), true);
    assert_hosts(WORDS("my_host-1"), WORDS("my_host-1:80"), true);
}

static void test_domains(void **state) {
    assert_hosts(WORDS(".quire.example"),
                 WORDS("quire.example", "a.quire.example", "A.B.Quire.Example:80"), true);
    assert_hosts(WORDS(".quire.example"), WORDS("xquire.example", "quire.example.evil.test"),
                 false);
    assert_hosts(WORDS("*.quire.example"), WORDS("a.quire.example", "a.b.quire.example"), true);
    assert_hosts(WORDS("*.quire.example"),
                 WORDS("quire.example", "xquire.example", ".quire.example"), false);
}

static void test_any(void **state) {
    assert_hosts(WORDS("quire.example", "*"), foreign, true);
}

static void test_a_long_host_is_refused(void **state) {
    char host[400];
    memset(host, 'a', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    assert_hosts(WORDS("a"), WORDS(host), false);
}

static void test_bad_names(void **state) {
    static char *const bad[] = {"http://quire.example",
                                "quire.example/",
                                "a b",
                                "*a",
                                "a.*.b",
                                "..example",
                                "a,b",
                                ".",
                                "*.",
                                "",
                                "quire.example:x",
                                ".127.0.0.1",
                                "*.[::1]",
                                "[::1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct http_hosts hosts;
        struct error err = {0};
        if (http_hosts_init(WORDS("a", bad[i]), 2, &hosts, &err) == 0)
            fail_msg("\"%s\" is taken", bad[i]);
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_non_null(strstr(err.message, "allowed-hosts"));
        assert_non_null(strstr(err.message, bad[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_and_localhost_always_pass),
        cmocka_unit_test(test_other_names_do_not),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_a_long_host_is_refused),
        cmocka_unit_test(test_bad_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
