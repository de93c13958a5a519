/* What the cache keeps, drops and counts. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_cache.h"
#include "engine/grammar/machine/grammar_machine.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdio.h>
#include <string.h>

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;

static int set_up(void **state) {
    struct error err;
    fixture_init_bytes(&tokenizer);
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

/* Up to `max` letters. */
static struct grammar *make(int max) {
    static const struct character_range letters = {'a', 'z'};
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err;
    grammar_node letter = grammar_characters(b, &letters, 1, false);
    assert_int_equal(grammar_build(b, grammar_repeat(b, letter, 0, max), &grammar, &err), 0);
    grammar_builder_destroy(b);
    return grammar;
}

static struct text key(const char *text) {
    return (struct text){text, strlen(text)};
}

static void add(struct grammar_cache *cache, const char *name, int max) {
    struct grammar *grammar = make(max);
    grammar_cache_add(cache, key(name), grammar);
    grammar_unref(grammar);
}

static bool has(struct grammar_cache *cache, const char *name) {
    struct grammar *grammar = grammar_cache_find(cache, key(name));
    grammar_unref(grammar);
    return grammar != NULL;
}

static struct grammar_cache_stats stats_of(struct grammar_cache *cache) {
    struct grammar_cache_stats stats;
    grammar_cache_stats(cache, &stats);
    return stats;
}

static void test_found(void **unused) {
    struct grammar_cache *cache = grammar_cache_create(1 << 20);
    assert_false(has(cache, "a"));
    struct grammar *grammar = make(3), *other = make(3);
    grammar_cache_add(cache, key("a"), grammar);
    grammar_cache_add(cache, key("a"), other); /* was made at the same time */
    struct grammar *found = grammar_cache_find(cache, key("a"));
    assert_ptr_equal(found, grammar);
    assert_false(has(cache, "ab"));
    struct grammar_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.hits, 1);
    assert_int_equal(stats.misses, 2);
    assert_int_equal(stats.num_grammars, 1);
    assert_int_equal(stats.bytes, 1 + grammar_bytes(grammar));
    grammar_unref(found);
    grammar_unref(grammar);
    grammar_unref(other);
    grammar_cache_destroy(cache);
}

/* The one that was asked for longest ago goes first; one that alone is too large is not kept. */
static void test_bytes(void **unused) {
    struct grammar *grammar = make(3);
    size_t bytes = grammar_bytes(grammar) + 1;
    grammar_unref(grammar);
    struct grammar_cache *cache = grammar_cache_create(2 * bytes);
    add(cache, "a", 3);
    add(cache, "b", 3);
    assert_true(has(cache, "a"));
    add(cache, "c", 3);
    assert_true(has(cache, "a") && has(cache, "c"));
    assert_false(has(cache, "b"));
    assert_int_equal(stats_of(cache).bytes, 2 * bytes);
    grammar_cache_destroy(cache);
    cache = grammar_cache_create(bytes - 1);
    add(cache, "a", 3);
    assert_int_equal(stats_of(cache).num_grammars, 0);
    grammar_cache_destroy(cache);
}

static void walk(struct grammar_state *state, int count) {
    uint32_t mask[FIXTURE_WORDS];
    for (int i = 0; i < count; i++) {
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_int_equal(grammar_state_accept(state, 'a' + i % 26), 0);
    }
}

/* What machines remember counts; a sequence that goes on keeps a grammar that was dropped. */
static void test_machines(void **unused) {
    struct grammar_cache *cache = grammar_cache_create(200000);
    struct grammar *grammar = make(5000);
    grammar_cache_add(cache, key("a"), grammar);
    struct grammar_state *first = grammar_state_create(grammar, vocabulary);
    walk(first, 100);
    grammar_state_destroy(first);
    size_t known = stats_of(cache).bytes;
    assert_in_range(known, 10000, 200000);
    struct grammar_state *second = grammar_state_create(grammar, vocabulary);
    walk(second, 100);
    grammar_state_destroy(second);
    assert_int_equal(stats_of(cache).bytes, known); /* nothing new was met */
    struct grammar_state *third = grammar_state_create(grammar, vocabulary);
    grammar_unref(grammar);
    walk(third, 3000);
    struct grammar_state *fourth = grammar_state_clone(third);
    grammar_state_destroy(third);
    assert_int_equal(stats_of(cache).num_grammars, 0);
    walk(fourth, 1000);
    grammar_state_destroy(fourth);
    grammar_cache_destroy(cache);
}

/* From then on each has one of its own, and what the first had is freed. */
static void test_given_up(void **unused) {
    struct grammar_cache *cache = grammar_cache_create(1 << 20);
    struct grammar *grammar = make(3);
    grammar_cache_add(cache, key("a"), grammar);
    assert_true(has(cache, "a"));
    atomic_store(&grammar->has_given_up, true);
    assert_false(has(cache, "a"));
    grammar_unref(grammar);
    add(cache, "a", 3);
    assert_false(has(cache, "a"));
    assert_int_equal(stats_of(cache).bytes, 1);
    assert_int_equal(stats_of(cache).hits, 1);
    grammar_cache_destroy(cache);
}

/* There are never more than 512. */
static void test_many(void **unused) {
    struct grammar_cache *cache = grammar_cache_create((size_t)1 << 30);
    char name[16];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "%d", i);
        add(cache, name, 3);
    }
    assert_int_equal(stats_of(cache).num_grammars, 512);
    assert_false(has(cache, "87"));
    assert_true(has(cache, "88") && has(cache, "599"));
    grammar_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),    cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_machines), cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
