/* What becomes of keys and of what they used when the file is replaced, and what their limits say.
 */
#include "server/keys/api_keys.h"

#include "config/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct given {
    const char *key, *field, *value;
};

/* A file with these keys, each named as itself, with one field. */
static struct key_file make_file(const struct given *given, int count) {
    struct key_file file = {.num_keys = count, .keys = calloc((size_t)count, sizeof(*file.keys))};
    char what[KEY_WHAT_BYTES];
    struct error err;
    for (int i = 0; i < count; i++) {
        struct key_entry *entry = &file.keys[i];
        key_entry_init(entry);
        snprintf(entry->name, sizeof(entry->name), "%s", given[i].key);
        assert_int_equal(auth_hash_key(given[i].key, &entry->hash, &err), 0);
        if (given[i].field == NULL)
            continue;
        int field = key_field_find(given[i].field, strlen(given[i].field));
        assert_int_equal(key_entry_set(entry, field, given[i].value, what), 0);
    }
    return file;
}

static void replace(struct api_keys *keys, const struct given *given, int count) {
    struct key_file file = make_file(given, count);
    struct error err;
    assert_int_equal(api_keys_replace(keys, &file, &err), 0);
    key_file_finish(&file);
}

static struct api_keys *make(char *const *texts, int count) {
    struct api_keys *keys = NULL;
    struct error err;
    assert_int_equal(api_keys_create(texts, count, &keys, &err), 0);
    return keys;
}

static struct api_key *find(const struct api_keys *keys, const char *key) {
    char header[64];
    snprintf(header, sizeof(header), "Bearer %s", key);
    return api_keys_find(keys, header, NULL);
}

static void test_fixed_keys(void **state) {
    char a[] = "a", b[] = "b", empty[] = "";
    struct api_keys *keys = make(NULL, 0), *none = NULL;
    struct error err;
    assert_false(api_keys_are_needed(keys));
    api_keys_destroy(keys);
    keys = make((char *[]){a, b, a}, 3);
    assert_true(api_keys_are_needed(keys));
    assert_int_equal(api_keys_count(keys), 2);
    assert_string_equal(find(keys, "a")->entry.name, "#1");
    assert_string_equal(find(keys, "b")->entry.name, "#2");
    assert_null(find(keys, "c"));
    assert_null(api_keys_find(keys, NULL, NULL));
    assert_ptr_equal(api_keys_find(keys, NULL, "b"), find(keys, "b"));
    assert_null(api_keys_find(keys, NULL, "Bearer b"));
    assert_null(api_keys_find(keys, NULL, ""));
    assert_null(api_keys_find(keys, "Bearer c", "b")); /* Authorization comes first */
    api_keys_destroy(keys);
    assert_int_equal(api_keys_create((char *[]){a, empty}, 2, &none, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_null(none);
}

static void test_keys_come_and_go(void **state) {
    char fixed[] = "fixed";
    struct api_keys *keys = make((char *[]){fixed}, 1);
    replace(keys, (struct given[]){{"a", "weight", "9"}, {"b", NULL, NULL}}, 2);
    struct api_key *a = find(keys, "a"), *b = find(keys, "b");
    assert_int_equal(api_keys_count(keys), 3);
    assert_int_equal(a->entry.weight, 9);
    key_limits_begin(b, 0);
    replace(keys, (struct given[]){{"a", "weight", "5"}, {"fixed", "weight", "7"}}, 2);
    assert_ptr_equal(find(keys, "a"), a);
    assert_int_equal(a->entry.weight, 5);
    assert_int_equal(find(keys, "fixed")->entry.weight, 7);
    assert_null(find(keys, "b"));
    assert_int_equal(api_keys_count(keys), 2);
    assert_false(b->is_listed);
    key_limits_end(b); /* its request outlives it */
    const struct api_key *first = api_keys_next(keys, -1);
    const struct api_key *second = api_keys_next(keys, first->tenant);
    assert_string_equal(first->entry.name, "fixed");
    assert_ptr_equal(second, a);
    assert_null(api_keys_next(keys, second->tenant));
    replace(keys, NULL, 0);
    assert_string_equal(find(keys, "fixed")->entry.name, "#1");
    assert_int_equal(api_keys_count(keys), 1);
    api_keys_destroy(keys);
}

/* 10,240 keys over reloads, each with one that was stolen before and is in use still. */
static void test_places_are_given_again(void **state) {
    enum { NUM_KEYS = KEY_FILE_MAX_KEYS };
    static char texts[NUM_KEYS][16];
    static struct given given[NUM_KEYS];
    char fixed[] = "fixed", stolen[16] = "";
    struct api_keys *keys = make((char *[]){fixed}, 1);
    struct api_key *first = NULL;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < NUM_KEYS; i++) {
            snprintf(texts[i], sizeof(texts[i]), "%d", round * NUM_KEYS + i);
            given[i] = (struct given){texts[i], "requests-per-minute", "1"};
        }
        replace(keys, given, NUM_KEYS);
        assert_int_equal(api_keys_count(keys), NUM_KEYS + 1);
        struct api_key *key = find(keys, texts[0]);
        assert_string_equal(key->entry.name, texts[0]);
        assert_int_equal(key->stats.prompt_tokens, 0);
        assert_int_equal(rate_limit_remaining(&key->requests, 0), 1);
        key_limits_take_prompt(key, 1, 0, 0);
        key_limits_begin(key, 0);
        key_limits_end(key);
        if (round == 0)
            api_key_use(first = key);
        else
            assert_null(find(keys, stolen));
        snprintf(stolen, sizeof(stolen), "%s", texts[0]);
    }
    assert_string_equal(first->entry.name, "0");
    assert_false(first->is_listed);
    api_key_leave(first);
    api_keys_destroy(keys);
}

/* Requests of keys that are gone hold all places but one: what is removed is out all the same. */
static void test_what_has_no_place_is_left(void **state) {
    static struct api_key *gone[AUTH_MAX_TENANTS - 1];
    struct api_keys *keys = make(NULL, 0);
    struct error err;
    for (int i = 0; i < AUTH_MAX_TENANTS - 1; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", i);
        replace(keys, (struct given[]){{text, NULL, NULL}, {"stolen", NULL, NULL}}, 2);
        api_key_use(gone[i] = find(keys, text));
    }
    struct key_file file = make_file((struct given[]){{"a", NULL, NULL}, {"b", NULL, NULL}}, 2);
    assert_int_equal(api_keys_replace(keys, &file, &err), 1);
    assert_null(find(keys, "stolen"));
    assert_non_null(find(keys, "a"));
    assert_null(find(keys, "b"));
    assert_int_equal(api_keys_count(keys), 1);
    assert_int_equal(file.keys[0].weight, 0);
    assert_string_equal(file.keys[1].name, "b");
    key_file_finish(&file);
    for (int i = 0; i < AUTH_MAX_TENANTS - 1; i++)
        api_key_leave(gone[i]);
    api_keys_destroy(keys);
}

/* Reading the file again is no way to begin a new minute. */
static void test_use_outlives_the_file(void **state) {
    char fixed[] = "b";
    struct given given[] = {{"a", "requests-per-minute", "10"}, {"b", "tokens-per-minute", "100"}};
    struct api_keys *keys = make((char *[]){fixed}, 1);
    struct api_error err;
    int64_t retry_ms, reserved = 0;
    replace(keys, given, 2);
    int64_t now_ms = clock_now_ms();
    for (int i = 0; i < 10; i++)
        key_limits_begin(find(keys, "a"), now_ms);
    key_limits_take_output(find(keys, "b"), 1000000, &reserved, now_ms);
    replace(keys, given, 2);
    assert_int_equal(key_limits_check(find(keys, "a"), now_ms, &err, &retry_ms), -1);
    assert_int_equal(key_limits_check(find(keys, "b"), now_ms, &err, &retry_ms), -1);
    api_keys_destroy(keys);
}

static struct api_key key_with(const char *field, const char *value) {
    struct api_key key = {0};
    char what[KEY_WHAT_BYTES];
    key_entry_init(&key.entry);
    assert_int_equal(key_entry_set(&key.entry, key_field_find(field, strlen(field)), value, what),
                     0);
    rate_limit_set(&key.requests, key.entry.requests_per_minute, 0);
    rate_limit_set(&key.tokens, key.entry.tokens_per_minute, 0);
    return key;
}

static void test_requests(void **state) {
    struct api_key key = key_with("requests-per-minute", "2");
    struct key_limit_field fields[KEY_LIMIT_MAX_FIELDS];
    struct api_error err;
    int64_t retry_ms;
    assert_int_equal(key_limits_check(&key, 0, &err, &retry_ms), 0);
    key_limits_begin(&key, 0);
    key_limits_begin(&key, 0);
    assert_int_equal(key_limits_check(&key, 500, &err, &retry_ms), -1);
    assert_int_equal(err.status, 429);
    assert_string_equal(err.code, "rate_limit_exceeded");
    assert_string_equal(err.type, "requests");
    assert_non_null(strstr(err.message, "2 requests per minute"));
    assert_non_null(strstr(err.message, "29.5s"));
    assert_int_equal(retry_ms, 29500);
    assert_int_equal(key_limits_fields(&key, 500, fields), 3);
    assert_string_equal(fields[0].name, "x-ratelimit-limit-requests");
    assert_string_equal(fields[0].value, "2");
    assert_string_equal(fields[1].value, "0");
    assert_string_equal(fields[2].name, "x-ratelimit-reset-requests");
    assert_string_equal(fields[2].value, "59.5s");
    assert_int_equal(key_limits_check(&key, 30000, &err, &retry_ms), 0);
    key_limits_fields(&key, 59800, fields);
    assert_string_equal(fields[2].value, "200ms");
    assert_int_equal(key_limits_check_tokens(&key, 1000000, 0, &err, &retry_ms), 0);
}

static void test_tokens(void **state) {
    struct api_key key = key_with("tokens-per-minute", "1000");
    struct key_limit_field fields[KEY_LIMIT_MAX_FIELDS];
    struct api_error err;
    int64_t retry_ms, reserved = 0;
    assert_int_equal(key_limits_check_tokens(&key, 600, 0, &err, &retry_ms), 0);
    key_limits_take_prompt(&key, 600, 0, 0);
    assert_int_equal(key_limits_check_tokens(&key, 600, 0, &err, &retry_ms), -1);
    assert_string_equal(err.type, "tokens");
    assert_int_equal(err.status, 429);
    assert_int_equal(retry_ms, 12000);
    assert_int_equal(key_limits_check_tokens(&key, 1001, 0, &err, &retry_ms), -1);
    assert_non_null(strstr(err.message, "1001 tokens"));
    assert_int_equal(retry_ms, -1);
    assert_int_equal(key_limits_check(&key, 0, &err, &retry_ms), 0);
    key_limits_take_output(&key, 1400, &reserved, 0); /* what was not reserved is paid off */
    assert_int_equal(key_limits_check(&key, 0, &err, &retry_ms), -1);
    assert_int_equal(retry_ms, 60060);
    assert_int_equal(key_limits_check(&key, 60060, &err, &retry_ms), 0);
    assert_int_equal(key.stats.prompt_tokens, 600);
    assert_int_equal(key.stats.generation_tokens, 1400);
    assert_int_equal(key_limits_fields(&key, 0, fields), 3);
    assert_string_equal(fields[0].name, "x-ratelimit-limit-tokens");
    assert_string_equal(fields[1].name, "x-ratelimit-remaining-tokens");
    assert_string_equal(fields[1].value, "0");
    assert_string_equal(fields[2].value, "2m0s");
}

/* What a call may generate is taken when it begins; what it did not is given back at its end. */
static void test_reservations(void **state) {
    struct api_key key = key_with("tokens-per-minute", "1000"), free = key_with("weight", "1");
    struct api_error err;
    int64_t retry_ms, reserved = 300;
    assert_int_equal(key_limits_share(&key, 100, 0), 450); /* half of what is left */
    assert_int_equal(key_limits_share(&key, 2000, 0), 0);
    assert_int_equal(key_limits_share(&free, 100, 0), INT64_MAX);
    key_limits_take_prompt(&key, 100, reserved, 0);
    assert_int_equal(rate_limit_remaining(&key.tokens, 0), 600);
    assert_int_equal(key_limits_check_tokens(&key, 600, 0, &err, &retry_ms), 0);
    assert_int_equal(key_limits_check_tokens(&key, 601, 0, &err, &retry_ms), -1);
    assert_true(retry_ms > 0);
    key_limits_take_output(&key, 50, &reserved, 0);
    assert_int_equal(reserved, 250);
    assert_int_equal(rate_limit_remaining(&key.tokens, 0), 600);
    key_limits_give_back(&key, reserved, 0);
    assert_int_equal(rate_limit_remaining(&key.tokens, 0), 850);
    assert_int_equal(key.stats.prompt_tokens, 100);
    assert_int_equal(key.stats.generation_tokens, 50);
    key_limits_give_back(&key, 1000000, 0); /* never more than a minute's */
    assert_int_equal(rate_limit_remaining(&key.tokens, 0), 1000);
}

static void test_concurrency(void **state) {
    struct api_key key = key_with("max-concurrency", "1");
    struct key_limit_field fields[KEY_LIMIT_MAX_FIELDS];
    struct api_error err;
    int64_t retry_ms;
    assert_int_equal(key_limits_check(&key, 0, &err, &retry_ms), 0);
    key_limits_begin(&key, 0);
    assert_int_equal(key_limits_check(&key, 0, &err, &retry_ms), -1);
    assert_int_equal(err.status, 429);
    assert_string_equal(err.code, "rate_limit_exceeded");
    key_limits_end(&key);
    assert_int_equal(key_limits_check(&key, 0, &err, &retry_ms), 0);
    assert_int_equal(key_limits_fields(&key, 0, fields), 0);
}

static void test_priority(void **state) {
    struct api_key low = key_with("min-priority", "5"), high = key_with("max-priority", "-5");
    struct api_key any = key_with("weight", "1");
    assert_int_equal(key_limits_priority(&low, 0), 5);
    assert_int_equal(key_limits_priority(&low, 7), 7);
    assert_int_equal(key_limits_priority(&high, 0), -5);
    assert_int_equal(key_limits_priority(&high, INT32_MIN), INT32_MIN);
    assert_int_equal(key_limits_priority(&any, INT32_MAX), INT32_MAX);
}

static void test_models(void **state) {
    char small[] = "small", large[] = "large";
    char *names[] = {small, large};
    struct api_context context = {.model_names = names, .num_model_names = 2};
    struct key_models models;
    struct api_error err;
    struct api_key all = key_with("weight", "1"), one = key_with("models", "large");
    struct api_key other = key_with("models", "other");
    all.tenant = 7;
    assert_ptr_equal(key_models_context(NULL, &context, &models), &context);
    const struct api_context *same = key_models_context(&all, &context, &models);
    assert_int_equal(same->num_model_names, context.num_model_names);
    assert_ptr_equal(same->model_names, context.model_names);
    assert_int_equal(same->tenant, 7);
    assert_true(key_models_any(NULL, &context) && key_models_any(&all, &context));
    const struct api_context *seen = key_models_context(&one, &context, &models);
    assert_true(key_models_any(&one, &context));
    assert_int_equal(seen->num_model_names, 1);
    assert_ptr_equal(seen->model_names[0], large);
    assert_int_equal(api_context_check_model(seen, "large", &err), 0);
    assert_int_equal(api_context_check_model(seen, "small", &err), -1);
    assert_int_equal(err.status, 404);
    assert_string_equal(err.code, "model_not_found");
    seen = key_models_context(&other, &context, &models);
    assert_false(key_models_any(&other, &context));
    assert_int_equal(seen->num_model_names, 0);
    assert_int_equal(api_context_check_model(seen, "small", &err), -1);
    assert_int_equal(err.status, 404);
    key_entry_finish(&one.entry);
    key_entry_finish(&other.entry);
}

static void test_administrators(void **state) {
    char fixed[] = "fixed";
    struct api_keys *keys = make((char *[]){fixed}, 1);
    assert_true(api_keys_is_admin(keys, find(keys, "fixed"))); /* the only one */
    replace(keys,
            (struct given[]){{"a", "admin", "true"}, {"b", "admin", "false"}, {"c", "weight", "2"}},
            3);
    assert_false(api_keys_is_admin(keys, find(keys, "fixed")));
    assert_true(api_keys_is_admin(keys, find(keys, "a")));
    assert_false(api_keys_is_admin(keys, find(keys, "b")));
    assert_false(api_keys_is_admin(keys, find(keys, "c")));
    replace(keys, (struct given[]){{"fixed", "admin", "false"}}, 1);
    assert_false(api_keys_is_admin(keys, find(keys, "fixed"))); /* the only one, but says no */
    api_keys_destroy(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_keys),
        cmocka_unit_test(test_keys_come_and_go),
        cmocka_unit_test(test_places_are_given_again),
        cmocka_unit_test(test_what_has_no_place_is_left),
        cmocka_unit_test(test_use_outlives_the_file),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_reservations),
        cmocka_unit_test(test_concurrency),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_administrators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
