#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv/block_key.h"

#include <string.h>

static const int32_t tokens[] = {1, 2, 3, 4};

static struct block_key_secret fixed_secret(unsigned char first) {
    struct block_key_secret secret;
    for (int i = 0; i < BLOCK_KEY_SECRET_BYTES; i++)
        secret.bytes[i] = (unsigned char)(first + 37 * i + i * i);
    return secret;
}

static void assert_differ(struct block_key a, struct block_key b) {
    assert_false(block_key_equal(&a, &b));
    assert_true(a.low != b.low);
    assert_true(a.high != b.high);
}

static void assert_same(struct block_key a, struct block_key b) {
    assert_true(block_key_equal(&a, &b));
}

static void test_equal_takes_both_halves(void **state) {
    struct block_key key = {1, 2}, low = {9, 2}, high = {1, 9};
    assert_true(block_key_equal(&key, &key));
    assert_false(block_key_equal(&key, &low));
    assert_false(block_key_equal(&key, &high));
}

static void test_a_root_is_its_tenant_and_its_salt(void **state) {
    struct block_key_secret secret = fixed_secret(1);
    struct block_key root = block_key_root(&secret, 0, "ab", 2);
    assert_same(root, block_key_root(&secret, 0, "ab", 2));
    assert_differ(root, block_key_root(&secret, 1, "ab", 2));
    assert_differ(root, block_key_root(&secret, 0, "ac", 2));
    assert_differ(root, block_key_root(&secret, 0, "a", 1));
    assert_differ(root, block_key_root(&secret, 0, NULL, 0));
    assert_same(block_key_root(&secret, 0, "", 0), block_key_root(&secret, 0, NULL, 0));
    assert_differ(block_key_root(&secret, 0, "\0", 1), block_key_root(&secret, 0, "", 0));
}

static void test_an_adapter_has_roots_of_its_own(void **state) {
    struct block_key_secret secret = fixed_secret(1), other_secret = fixed_secret(2);
    struct block_key root = block_key_root(&secret, 0, NULL, 0);
    struct block_key salted = block_key_root(&secret, 0, "ab", 2);
    struct block_key adapted = block_key_root_of(&secret, &root, "0123456789abcdef", 16);
    assert_same(adapted, block_key_root_of(&secret, &root, "0123456789abcdef", 16));
    assert_differ(adapted, root);
    assert_differ(adapted, block_key_root_of(&secret, &root, "0123456789abcdeF", 16));
    assert_differ(adapted, block_key_root_of(&secret, &salted, "0123456789abcdef", 16));
    assert_differ(adapted, block_key_root_of(&other_secret, &root, "0123456789abcdef", 16));
    assert_differ(adapted, block_key_root(&secret, 0, "0123456789abcdef", 16));
}

static void test_a_key_is_its_history_and_its_tokens(void **state) {
    struct block_key_secret secret = fixed_secret(1);
    struct block_key root = block_key_root(&secret, 0, NULL, 0);
    struct block_key first = block_key_next(&secret, &root, tokens, 2);
    assert_same(first, block_key_next(&secret, &root, tokens, 2));
    assert_differ(first, root);
    assert_differ(first, block_key_next(&secret, &root, tokens + 1, 2));
    assert_differ(first, block_key_next(&secret, &root, tokens, 1));
    assert_differ(block_key_next(&secret, &first, tokens + 2, 2),
                  block_key_next(&secret, &root, tokens + 2, 2));
}

static void test_the_secret_decides(void **state) {
    struct block_key_secret one = fixed_secret(1), other = fixed_secret(2);
    struct block_key root = {1, 2};
    assert_differ(block_key_root(&one, 0, "salt", 4), block_key_root(&other, 0, "salt", 4));
    /* the hash treats short, middling and long inputs in different ways */
    static int32_t many[BLOCK_KEY_MAX_TOKENS];
    const int32_t lengths[] = {1, 16, 32, 64, 128, BLOCK_KEY_MAX_TOKENS};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        assert_differ(block_key_next(&one, &root, many, lengths[i]),
                      block_key_next(&other, &root, many, lengths[i]));
}

static void test_two_secrets_differ(void **state) {
    struct block_key_secret one = {{0}}, other = {{0}};
    assert_int_equal(block_key_secret_create(&one), 0);
    assert_int_equal(block_key_secret_create(&other), 0);
    /* in every part: nothing is left as it was */
    for (size_t i = 0; i + 16 <= sizeof(one.bytes); i += 16)
        assert_memory_not_equal(one.bytes + i, other.bytes + i, 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_takes_both_halves),
        cmocka_unit_test(test_a_root_is_its_tenant_and_its_salt),
        cmocka_unit_test(test_an_adapter_has_roots_of_its_own),
        cmocka_unit_test(test_a_key_is_its_history_and_its_tokens),
        cmocka_unit_test(test_the_secret_decides),
        cmocka_unit_test(test_two_secrets_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
