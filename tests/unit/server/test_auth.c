#include "server/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

static int tenant_of(const struct auth *auth, const char *key) {
    char header[64];
    snprintf(header, sizeof(header), "Bearer %s", key);
    return auth_tenant(auth, header);
}

static void replace(struct auth *auth, char *const *keys, int num_keys) {
    struct error err;
    assert_int_equal(auth_replace(auth, keys, num_keys, &err), 0);
}

/* What the cache holds for a key belongs to that key, whatever comes and goes around it. */
static void test_a_tenant_belongs_to_one_key_for_ever(void **state) {
    char fixed[] = "fixed", a[] = "a", b[] = "b", c[] = "c", d[] = "d";
    char *fixed_keys[] = {fixed};
    struct auth *auth = make(fixed_keys, 1);
    replace(auth, (char *[]){a, b, c, b}, 4);
    int tenants[] = {tenant_of(auth, "fixed"), tenant_of(auth, "a"), tenant_of(auth, "b"),
                     tenant_of(auth, "c")};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_int_not_equal(tenants[i], tenants[j]);
    replace(auth, (char *[]){c, fixed, a}, 3);
    assert_int_equal(tenant_of(auth, "a"), tenants[1]);
    assert_int_equal(tenant_of(auth, "b"), -1);
    assert_int_equal(tenant_of(auth, "c"), tenants[3]);
    assert_int_equal(tenant_of(auth, "fixed"), tenants[0]);
    replace(auth, (char *[]){d, a, b}, 3);
    assert_int_equal(tenant_of(auth, "a"), tenants[1]);
    assert_int_equal(tenant_of(auth, "c"), -1);
    assert_int_equal(tenant_of(auth, "fixed"), tenants[0]);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(tenant_of(auth, "d"), tenants[i]);
    assert_true(tenant_of(auth, "d") > 0);
    assert_int_not_equal(tenant_of(auth, "b"), tenants[0]);
    assert_int_not_equal(tenant_of(auth, "b"), tenants[1]);
    assert_int_not_equal(tenant_of(auth, "b"), tenants[3]);
    assert_int_not_equal(tenant_of(auth, "b"), tenant_of(auth, "d"));
    auth_destroy(auth);
}

static void test_a_bad_list_changes_nothing(void **state) {
    char *keys[] = {key_a};
    char empty[] = "", other[] = "other", next[] = "next";
    struct auth *auth = make(keys, 1);
    struct error err;
    replace(auth, (char *[]){other}, 1);
    int tenant = tenant_of(auth, "other");
    assert_int_equal(auth_replace(auth, (char *[]){next, empty}, 2, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(tenant_of(auth, "other"), tenant);
    assert_int_equal(tenant_of(auth, "next"), -1);
    auth_destroy(auth);
}

static void test_tenants_are_bounded(void **state) {
    char texts[1024][16], *keys[1024];
    struct auth *auth = make(NULL, 0);
    struct error err;
    for (int round = 0; round < AUTH_MAX_TENANTS / 1024; round++) {
        for (int i = 0; i < 1024; i++) {
            snprintf(texts[i], sizeof(texts[i]), "%d", round * 1024 + i);
            keys[i] = texts[i];
        }
        replace(auth, keys, 1024);
    }
    int last = tenant_of(auth, texts[1023]);
    assert_in_range(last, 0, AUTH_MAX_TENANTS - 1);
    snprintf(texts[0], sizeof(texts[0]), "one more");
    assert_int_equal(auth_replace(auth, keys, 1024, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(tenant_of(auth, "one more"), -1);
    replace(auth, keys + 1023, 1);
    assert_int_equal(tenant_of(auth, texts[1023]), last);
    auth_destroy(auth);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_keys_all_pass),
        cmocka_unit_test(test_each_key_passes),
        cmocka_unit_test(test_a_key_given_twice_is_one_tenant),
        cmocka_unit_test(test_others_are_refused),
        cmocka_unit_test(test_empty_key_is_a_config_error),
        cmocka_unit_test(test_a_tenant_belongs_to_one_key_for_ever),
        cmocka_unit_test(test_a_bad_list_changes_nothing),
        cmocka_unit_test(test_tenants_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
