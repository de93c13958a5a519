#include "server/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char key_a[] = "sk-first", key_b[] = "another much longer key 0123456789abcdef0123456789";

static struct auth *make(char *const *keys, int num_keys) {
    struct auth *auth = NULL;
    struct error err;
    assert_int_equal(auth_create(keys, num_keys, &auth, &err), 0);
    return auth;
}

static void test_without_keys_all_pass(void **state) {
    struct auth *auth = make(NULL, 0);
    assert_int_equal(auth_tenant(auth, NULL), 0);
    assert_int_equal(auth_tenant(auth, "Bearer whatever"), 0);
    auth_destroy(auth);
}

static void test_each_key_passes(void **state) {
    char *keys[] = {key_a, key_b};
    struct auth *auth = make(keys, 2);
    assert_int_equal(auth_tenant(auth, "Bearer sk-first"), 0);
    assert_int_equal(auth_tenant(auth, "bearer  sk-first"), 0);
    assert_int_equal(auth_tenant(auth, "Bearer another much longer key 0123456789abcdef0123456789"),
                     1);
    auth_destroy(auth);
}

static void test_a_key_given_twice_is_one_tenant(void **state) {
    char *keys[] = {key_b, key_a, key_b, key_b};
    struct auth *auth = make(keys, 4);
    int tenant = auth_tenant(auth, "Bearer another much longer key 0123456789abcdef0123456789");
    assert_true(tenant == 0 || tenant == 2 || tenant == 3);
    assert_int_equal(auth_tenant(auth, "Bearer sk-first"), 1);
    auth_destroy(auth);
}

static void test_others_are_refused(void **state) {
    char *keys[] = {key_a, key_b};
    struct auth *auth = make(keys, 2);
    static const char *const bad[] = {NULL,
                                      "",
                                      "Bearer",
                                      "Bearer ",
                                      "sk-first",
                                      "Basic sk-first",
                                      "Bearer sk-firs",
                                      "Bearer SK-FIRST",
                                      "Bearer sk-first ",
                                      "Bearersk-first",
                                      "Bearer sk-first2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(auth_tenant(auth, bad[i]), -1);
    auth_destroy(auth);
}

static void test_empty_key_is_a_config_error(void **state) {
    char empty[] = "";
    char *keys[] = {key_a, empty};
    struct auth *auth = NULL;
    struct error err;
    assert_int_equal(auth_create(keys, 2, &auth, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_null(auth);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_keys_all_pass),
        cmocka_unit_test(test_each_key_passes),
        cmocka_unit_test(test_a_key_given_twice_is_one_tenant),
        cmocka_unit_test(test_others_are_refused),
        cmocka_unit_test(test_empty_key_is_a_config_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
