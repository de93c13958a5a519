#include "server/keys/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct auth_hash hash_of(const char *key) {
    struct auth_hash hash;
    struct error err;
    assert_int_equal(auth_hash_key(key, &hash, &err), 0);
    return hash;
}

#define MAX_KEYS 1024

static int replace_beside(struct auth *auth, const char *const *keys, int num_keys,
                          const bool *is_held, int32_t *out_tenants) {
    static struct auth_hash hashes[MAX_KEYS];
    struct error err;
    for (int i = 0; i < num_keys; i++)
        hashes[i] = hash_of(keys[i]);
    return auth_replace(auth, hashes, num_keys, is_held, out_tenants, &err);
}

static int replace(struct auth *auth, const char *const *keys, int num_keys, int32_t *out_tenants) {
    return replace_beside(auth, keys, num_keys, NULL, out_tenants);
}

static struct auth *make(const char *const *keys, int num_keys) {
    struct auth *auth = NULL;
    struct error err;
    int32_t tenants[MAX_KEYS];
    assert_int_equal(auth_create(&auth, &err), 0);
    assert_int_equal(replace(auth, keys, num_keys, tenants), 0);
    return auth;
}

static const char key_a[] = "sk-first",
                  key_b[] = "another much longer key 0123456789abcdef0123456789";

static void test_hash_is_sha256(void **state) {
    static const unsigned char expected[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                             0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
                                             0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
                                             0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    struct auth_hash hash = hash_of("abc"); /* FIPS 180-4's example */
    assert_memory_equal(hash.bytes, expected, sizeof(expected));
}

static void test_without_keys_all_pass(void **state) {
    struct auth *auth = make(NULL, 0);
    assert_false(auth_has_keys(auth));
    assert_int_equal(auth_tenant(auth, NULL), 0);
    assert_int_equal(auth_tenant(auth, "Bearer whatever"), 0);
    auth_destroy(auth);
}

static void test_each_key_passes(void **state) {
    struct auth *auth = make((const char *[]){key_a, key_b}, 2);
    assert_int_equal(auth_tenant(auth, "Bearer sk-first"), 0);
    assert_int_equal(auth_tenant(auth, "bearer  sk-first"), 0);
    assert_int_equal(auth_tenant(auth, "Bearer another much longer key 0123456789abcdef0123456789"),
                     1);
    auth_destroy(auth);
}

static void test_others_are_refused(void **state) {
    struct auth *auth = make((const char *[]){key_a, key_b}, 2);
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

/* Who knows the hash, as it stands in a file, does not have the key. */
static void test_a_hash_is_no_key(void **state) {
    struct auth *auth = make((const char *[]){key_a}, 1);
    struct auth_hash hash = hash_of(key_a);
    char header[128] = "Bearer ";
    for (int i = 0; i < AUTH_HASH_BYTES; i++)
        sprintf(header + strlen(header), "%02x", hash.bytes[i]);
    assert_int_equal(auth_tenant(auth, header), -1);
    auth_destroy(auth);
}

static int32_t tenant_of(const struct auth *auth, const char *key) {
    char header[64];
    snprintf(header, sizeof(header), "Bearer %s", key);
    return auth_tenant(auth, header);
}

/* What the cache holds for a key belongs to that key, whatever comes and goes around it. */
static void test_a_tenant_belongs_to_one_key_for_ever(void **state) {
    struct auth *auth = make(NULL, 0);
    int32_t first[4], second[2], third[3];
    assert_int_equal(replace(auth, (const char *[]){"a", "b", "c", "b"}, 4, first), 0);
    assert_int_equal(first[3], first[1]);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            assert_int_not_equal(first[i], first[j]);
    assert_int_equal(replace(auth, (const char *[]){"c", "a"}, 2, second), 0);
    assert_int_equal(tenant_of(auth, "a"), first[0]);
    assert_int_equal(tenant_of(auth, "b"), -1);
    assert_int_equal(tenant_of(auth, "c"), first[2]);
    assert_int_equal(second[0], first[2]);
    assert_int_equal(replace(auth, (const char *[]){"d", "a", "b"}, 3, third), 0);
    assert_int_equal(tenant_of(auth, "a"), first[0]);
    assert_int_equal(tenant_of(auth, "c"), -1);
    for (int i = 0; i < 4; i++) {
        assert_int_not_equal(tenant_of(auth, "d"), first[i]);
        assert_int_not_equal(tenant_of(auth, "b"), first[i]);
    }
    assert_int_not_equal(tenant_of(auth, "b"), tenant_of(auth, "d"));
    auth_destroy(auth);
}

/* Names keys as texts say, from `first` on. */
static void name_keys(char texts[static MAX_KEYS][16], const char **keys, int first) {
    for (int i = 0; i < MAX_KEYS; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%d", first + i);
        keys[i] = texts[i];
    }
}

static void test_places_are_given_again(void **state) {
    static char texts[MAX_KEYS][16];
    static bool was_tenant[16 * MAX_KEYS];
    const char *keys[MAX_KEYS];
    int32_t tenants[MAX_KEYS];
    struct auth *auth = make(NULL, 0);
    for (int round = 0; round < 10; round++) {
        name_keys(texts, keys, round * MAX_KEYS);
        assert_int_equal(replace(auth, keys, MAX_KEYS, tenants), 0);
        for (int i = 0; i < MAX_KEYS; i++) {
            assert_in_range(tenants[i], 0, 16 * MAX_KEYS - 1);
            assert_false(was_tenant[tenants[i]]);
            was_tenant[tenants[i]] = true;
        }
        assert_int_equal(tenant_of(auth, texts[MAX_KEYS - 1]), tenants[MAX_KEYS - 1]);
        if (round > 0)
            assert_int_equal(tenant_of(auth, "1"), -1);
    }
    auth_destroy(auth);
}

/* What is held is not given out; keys that are gone are out all the same. */
static void test_without_a_place_a_key_is_not_let_in(void **state) {
    bool is_held[AUTH_MAX_TENANTS];
    int32_t tenants[3];
    struct auth *auth = make((const char *[]){"old", "stays"}, 2);
    memset(is_held, true, sizeof(is_held));
    const char *const keys[] = {"new", "stays", "newer"};
    assert_int_equal(replace_beside(auth, keys, 3, is_held, tenants), 0);
    assert_memory_equal(tenants, ((int32_t[]){-1, 1, -1}), sizeof(tenants));
    assert_int_equal(tenant_of(auth, "old"), -1);
    assert_int_equal(tenant_of(auth, "new"), -1);
    assert_int_equal(tenant_of(auth, "stays"), 1);
    is_held[0] = false;
    assert_int_equal(replace_beside(auth, keys, 3, is_held, tenants), 0);
    assert_memory_equal(tenants, ((int32_t[]){AUTH_MAX_TENANTS, 1, -1}), sizeof(tenants));
    assert_int_equal(tenant_of(auth, "new"), AUTH_MAX_TENANTS);
    auth_destroy(auth);
}

static void test_shares_of_addresses(void **state) {
    struct auth *auth = make(NULL, 0), *other = make(NULL, 0);
    int num_different = 0, num_elsewhere = 0;
    int32_t first = auth_share(auth, &(int){0}, sizeof(int));
    for (int id = 0; id < 100; id++) {
        int32_t share = auth_share(auth, &id, sizeof(id));
        assert_in_range(share, 0, AUTH_MAX_TENANTS - 1);
        assert_int_equal(auth_share(auth, &id, sizeof(id)), share);
        num_different += share != first;
        num_elsewhere += auth_share(other, &id, sizeof(id)) != share;
    }
    assert_true(num_different > 80);
    assert_true(num_elsewhere > 80); /* nobody can work it out beforehand */
    auth_destroy(auth);
    auth_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_is_sha256),
        cmocka_unit_test(test_without_keys_all_pass),
        cmocka_unit_test(test_each_key_passes),
        cmocka_unit_test(test_others_are_refused),
        cmocka_unit_test(test_a_hash_is_no_key),
        cmocka_unit_test(test_a_tenant_belongs_to_one_key_for_ever),
        cmocka_unit_test(test_places_are_given_again),
        cmocka_unit_test(test_without_a_place_a_key_is_not_let_in),
        cmocka_unit_test(test_shares_of_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
