/* Names in the objects of a text: none comes twice, and their number is what the schema says. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/read/json_schema.h"
#include "config/json/json_read.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 4000
#define LONG_TEXT 80
#define NUM_WALKS 200

static struct tokenizer tokenizer; /* bytes */
static struct tokenizer longer;    /* and tokens as large vocabularies have them */
static struct grammar_vocabulary *vocabulary, *longer_vocabulary;
static uint64_t random_state;

static const char *const tokens[] = {
    "\":",      "\",\"",       "a\":",       "\"a\"",     "\",\"a\":",   "{\"a\":1,\"b",
    "},\"a\":", "\":1,\"a\":", "\"}",        "}}",        "}{",          "\"a\":{\"a\":",
    "ab",       "ab\"",        "\\u0061\"",  "\\u00",     "1,",          ",\"",
    "\":{\"",   "\":\"",       "\"},{\"a\"", "\":[\"a\"", "\\\"",        "\xc3\xa9\"",
    "}, \"a\"", "b\":2",       "{\"",        "{\"a\":1",  "\":2,\"b\":", "]}",
};
#define NUM_TOKENS ((int)(sizeof(tokens) / sizeof(tokens[0])))

static int set_up(void **state) {
    struct error err;
    fixture_init_bytes(&tokenizer);
    fixture_init_bytes(&longer);
    for (int i = 0; i < NUM_TOKENS; i++)
        fixture_add(&longer, tokens[i], strlen(tokens[i]));
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err) != 0
               ? -1
               : grammar_vocabulary_create(&longer, &longer_vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    grammar_vocabulary_destroy(longer_vocabulary);
    return 0;
}

static struct grammar *build(const char *text, struct api_error *err) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, 1 << 16};
    struct error why;
    cJSON *schema = json_read(text, strlen(text), &limits, &why);
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    grammar_node node;
    assert_non_null(schema);
    if (json_schema_node(builder, schema, "schema", false, NULL, &node, err) == 0)
        json_schema_build(builder, node, "schema", &grammar, err);
    cJSON_Delete(schema);
    grammar_builder_destroy(builder);
    return grammar;
}

static struct grammar *must_build(const char *schema) {
    struct api_error err = {0};
    struct grammar *grammar = build(schema, &err);
    if (grammar == NULL)
        fail_msg("%s: %s", schema, err.message);
    return grammar;
}

static void take(struct grammar_state *state, const char *text) {
    for (; *text != '\0'; text++)
        assert_int_equal(grammar_state_accept(state, (uint8_t)*text), 0);
}

static bool allows(struct grammar_state *state, const char *token) {
    uint32_t mask[FIXTURE_WORDS];
    int32_t id = token[1] == '\0' ? (uint8_t)token[0] : 258;
    while (id >= 258 && strcmp(tokens[id - 258], token) != 0)
        id++;
    assert_int_equal(grammar_state_mask(state, mask), 0);
    return fixture_allows(mask, id);
}

#define ANY "{\"type\":\"object\"}"
#define FEW                                                                                        \
    "{\"propertyNames\":{\"enum\":[\"a\",\"ab\",\"b\"]},\"additionalProperties\":{\"type\":"       \
    "\"integer\"}}"
#define NESTED                                                                                     \
    "{\"properties\":{\"x\":{\"additionalProperties\":{\"type\":\"integer\"}},\"y\":{\"type\":"    \
    "\"object\"}}}"

static const struct {
    const char *schema, *text, *token;
    bool allowed;
} cases[] = {
    {ANY, "{\"a\":1,\"a", "\"", false},
    {ANY, "{\"a\":1,\"a", "\":", false},
    {ANY, "{\"a\":1,\"a", "b", true},
    {ANY, "{\"a\":1,\"", "a\":", false},
    {ANY, "{\"a\":1,\"", "ab\"", true},
    {ANY, "{\"ab\":1,\"", "ab\"", false},
    {ANY, "{\"a\":1", ",\"", true},
    {ANY, "{\"a\":1,", "\"a\"", false},
    {ANY, "{\"b\":1,", "\"a\"", true},
    {ANY, "{", "\"a\"", true},
    {ANY, "{\"a\":1,\"b", "\":", true},
    {ANY, "{\"\":1,\"", "\"", false},
    /* By escapes. */
    {ANY, "{\"a\":1,\"\\u006", "1", true},
    {ANY, "{\"a\":1,\"\\u0061", "\"", false},
    {ANY, "{\"a\":1,\"", "\\u0061\"", false},
    {ANY, "{\"b\":1,\"", "\\u0061\"", true},
    {ANY, "{\"a\":1,\"\\u0061\\u0061", "\"", true},
    {ANY, "{\"\\u00e9\":1,\"\xc3\xa9", "\"", false},
    {ANY, "{\"\\u00E9\":1,\"", "\xc3\xa9\"", false},
    {ANY, "{\"\\n\":1,\"\\u000a", "\"", false},
    {ANY, "{\"\\/\":1,\"/", "\"", false},
    {ANY, "{\"n\":1,\"\\n", "\"", true},
    {ANY, "{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00", "\"", false},
    {ANY, "{\"\xf0\x9f\x98\x81\":1,\"\\ud83d\\ude00", "\"", true},
    {ANY, "{\"a\\\"\":1,\"a\\", "\"", true},
    {ANY, "{\"a\\\"\":1,\"a\\\"", "\"", false},
    {ANY, "{\"a\\\"\":1,\"a", "\\\"", true},
    {ANY, "{\"a\\\\\":1,\"a\\\\", "\"", false},
    /* Values are no names. */
    {ANY, "{\"a\":\"a", "\"", true},
    {ANY, "{\"a\":[\"a\",\"a\",\"a", "\"", true},
    {ANY, "{\"a\":[1,", "\"a\"", true},
    {ANY, "{\"a\":\"x", "\",\"a\":", false},
    {ANY, "{\"b\":\"x", "\",\"a\":", true},
    {ANY, "{\"b\":[\"x", "\",\"", true},
    /* Each object has its own. */
    {ANY, "{\"a\":{\"a\":1,\"b\":2},\"b", "\"", true},
    {ANY, "{\"a\":{\"b\":1},\"a", "\"", false},
    {ANY, "{\"a\":[{\"a\":1},{\"a", "\"", true},
    {ANY, "{\"a\":[{\"a\":1,\"a", "\"", false},
    {ANY, "{\"a\":{\"b\":1", "},\"a\":", false},
    {ANY, "{\"b\":{\"a\":1", "},\"a\":", true},
    {ANY, "{\"a\":1,", "\"a\":{\"a\":", false},
    {ANY, "{\"b\":1,", "\"a\":{\"a\":", true},
    {ANY, "{\"b\":", "{\"a\":1,\"b", true},
    {ANY, "{\"a\":[{\"a\":\"x", "\"},{\"a\"", true},
    {ANY, "{\"a", "\":1,\"a\":", false},
    {ANY, "{\"b", "\":1,\"a\":", true},
    {ANY, "{\"b\":{\"a\":1},\"b", "\":1,\"a\":", false},
    {ANY, "{\"b\":{\"a\":1},\"c", "\":1,\"a\":", true},
    {"{\"type\":\"array\",\"items\":{\"type\":\"object\"}}", "[{\"a\":1},{\"a", "\"", true},
    {"{\"type\":\"array\",\"items\":{\"type\":\"object\"}}", "[{\"a\":1},{\"a\":1,\"a", "\"",
     false},
    {NESTED, "{\"x\":{\"x\":1,\"x", "\"", false},
    {NESTED, "{\"x\":{\"x\":1,\"y\":2},\"y", "\"", true},
    {NESTED, "{\"x\":{\"x\":1},\"y\":{\"x\":1,\"x", "\"", false},
    {"{}", "{\"a\":[],\"a", "\"", false},
    {"{\"anyOf\":[{\"type\":\"object\"},{\"const\":{\"a\":2}}]}", "{\"a\":1,\"a", "\"", false},
    {"{\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}", "{\"x\":1,\"x", "\"", false},
    {"{\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}", "{\"x\":1,\"x", "a", true},
    /* Few names: nothing is begun that only a repeated one can end. */
    {FEW, "{\"b\":1,\"", "b", false},
    {FEW, "{\"b\":1,\"", "a", true},
    {FEW, "{\"a\":1,\"", "a", true},
    {FEW, "{\"ab\":1,\"", "ab", false},
    {FEW, "{\"a\":1,\"ab\":1,\"", "a", false},
    {FEW, "{\"a\":1,\"ab\":1,\"", "b", true},
    {FEW, "{\"a\":1,\"ab\":1,\"b\":1", ",", false},
    {FEW, "{\"a\":1,\"ab\":1,\"b\":1", "}", true},
    {FEW, "{\"a\":1,\"ab\":1", ",", true},
};

static void test_masks(void **unused) {
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar *grammar = must_build(cases[i].schema);
        struct grammar_state *state = grammar_state_create(grammar, longer_vocabulary);
        take(state, cases[i].text);
        struct grammar_state *clone = grammar_state_clone(state);
        if (allows(clone, cases[i].token) != cases[i].allowed ||
            allows(state, cases[i].token) != cases[i].allowed)
            fail_msg("case %zu: %s: '%s' after '%s' is %s", i, cases[i].schema, cases[i].token,
                     cases[i].text, cases[i].allowed ? "not allowed" : "allowed");
        grammar_state_destroy(state);
        grammar_state_destroy(clone);
        grammar_unref(grammar);
    }
}

/* A grammar that was written and read is the same, and its bytes are. */
static void test_bytes(void **unused) {
    struct grammar *grammar = must_build(ANY), *read;
    struct byte_buffer bytes = {0}, again = {0};
    struct error err;
    grammar_write(grammar, &bytes);
    grammar_unref(grammar);
    const struct text written = {bytes.data, bytes.length};
    assert_int_equal(grammar_read(written, tokenizer.num_tokens, &read, &err), 0);
    grammar_write(read, &again);
    assert_int_equal(again.length, bytes.length);
    assert_memory_equal(again.data, bytes.data, bytes.length);
    struct grammar_state *state = grammar_state_create(read, longer_vocabulary);
    take(state, "{\"a\":1,\"a");
    assert_false(allows(state, "\""));
    grammar_state_destroy(state);
    grammar_unref(read);
    byte_buffer_finish(&bytes);
    byte_buffer_finish(&again);
}

/* Texts without an x, or an object. */
static struct grammar *object_or(bool any_character) {
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err;
    const struct character_range x = {'x', 'x'};
    grammar_node prose = grammar_repeat(b, grammar_characters(b, &x, 1, true), 0, -1);
    grammar_node call[] = {grammar_literal(b, "{", 1), prose};
    grammar_node items[] = {any_character ? prose : grammar_sequence(b, call, 2),
                            json_schema_any_object(b, NULL)};
    assert_int_equal(grammar_build(b, grammar_alternatives(b, items, 2), &grammar, &err), 0);
    grammar_builder_destroy(b);
    return grammar;
}

/* What may be prose is not held to what objects are. */
static void test_prose(void **unused) {
    for (int any = 0; any < 2; any++) {
        struct grammar *grammar = object_or(any);
        struct grammar_state *state = grammar_state_create(grammar, longer_vocabulary);
        take(state, "{\"a\":1,\"a");
        assert_int_equal(allows(state, "\""), any);
        grammar_state_destroy(state);
        grammar_unref(grammar);
    }
}

/* What one sequence wrote is nothing to another that stands on the same set. */
static void test_sequences_share_nothing(void **unused) {
    struct grammar *grammar = must_build(ANY);
    struct grammar_state *first = grammar_state_create(grammar, longer_vocabulary);
    struct grammar_state *second = grammar_state_create(grammar, longer_vocabulary);
    take(first, "{\"a\":1,\"b");
    take(second, "{\"b\":1,\"b");
    assert_int_equal(first->set, second->set);
    assert_true(allows(first, "\""));
    assert_false(allows(second, "\""));
    struct grammar_state *clone = grammar_state_clone(first);
    take(clone, "\":2,\"b");
    assert_false(allows(clone, "\""));
    assert_true(allows(first, "\""));
    grammar_state_destroy(first);
    grammar_state_destroy(second);
    grammar_state_destroy(clone);
    grammar_unref(grammar);
}

/* The end of memory for names is no end of the text. */
static void test_bounds(void **unused) {
    struct grammar *grammar = must_build(ANY);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    char name[32];
    take(state, "{");
    for (int i = 0; i <= OBJECT_NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "\"n%d\":1,", i);
        take(state, name);
    }
    snprintf(name, sizeof(name), "\"n%d", OBJECT_NAMES_MAX - 1);
    take(state, name);
    assert_false(allows(state, "\""));
    take(state, "\":1,");
    snprintf(name, sizeof(name), "\"n%d", OBJECT_NAMES_MAX);
    take(state, name);
    assert_true(allows(state, "\""));
    assert_true(state->names.place.num_names <= OBJECT_NAMES_MAX);
    grammar_state_destroy(state);
    /* Those of objects that have ended are forgotten, with too many objects all of the outermost.
     */
    state = grammar_state_create(grammar, vocabulary);
    take(state, "{\"a\":[{\"b\":1}");
    for (int i = 0; i < 2 * OBJECT_NAMES_MAX; i++)
        take(state, ",{\"b\":1}");
    assert_int_equal(state->names.place.num_names, 1);
    assert_int_equal(state->names.place.num_frames, 2);
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

/* A search through more names than the cache of steps holds ends. When no name is new, the mask
 * stays as it was found; such a search has dropped that. */
static void test_small_cache(void **unused) {
    enum { NUM_NAMES = 300 }; /* more than a grammar counts */
    struct byte_buffer schema = {0}, text = {0};
    uint32_t mask[FIXTURE_WORDS];
    for (int i = 0; i < NUM_NAMES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%d%c%d%c%d", i * 7919 % 997, 'a' + i % 26, i * 31,
                 'A' + i % 26, i);
        byte_buffer_printf(&schema, "%s\"%s\"", i > 0 ? "," : "{\"propertyNames\":{\"enum\":[",
                           name);
        byte_buffer_printf(&text, "%s\"%s\":1", i > 0 ? "," : "{", name);
    }
    byte_buffer_append_text(&schema, "]},\"additionalProperties\":{\"type\":\"integer\"}}");
    byte_buffer_append(&schema, "", 1);
    byte_buffer_append(&text, "", 1);
    struct grammar *grammar = must_build(schema.data);
    grammar->cache_bytes = 0;
    struct grammar_state *state = grammar_state_create(grammar, longer_vocabulary);
    take(state, text.data);
    take(state, ",");
    assert_int_equal(grammar_state_mask(state, mask), 0);
    assert_true(fixture_allows(mask, '"'));
    take(state, "\"");
    assert_int_equal(grammar_state_mask(state, mask), 0);
    assert_true(fixture_allows(mask, '1'));
    assert_false(fixture_allows(mask, 'a'));
    grammar_state_destroy(state);
    grammar_unref(grammar);
    byte_buffer_finish(&schema);
    byte_buffer_finish(&text);
}

/* Many tokens may come, and names are short: one that the object has cannot be begun as a whole. */
static void test_short_names(void **unused) {
    static struct tokenizer pairs;
    struct grammar_vocabulary *of_pairs;
    struct error err;
    uint32_t mask[FIXTURE_WORDS];
    fixture_init_bytes(&pairs);
    for (char a = 'A'; a <= 'Z'; a++)
        for (char b = 'A'; b <= 'Z'; b++)
            fixture_add(&pairs, (char[]){a, b}, 2);
    const int32_t first = pairs.num_tokens - 26 * 26;
    assert_int_equal(grammar_vocabulary_create(&pairs, &of_pairs, &err), 0);
    static const char *const schemas[] = {
        "{\"propertyNames\":{\"pattern\":\"^[A-Z]{2}$\"}}",
        "{\"propertyNames\":{\"maxLength\":2}}",
        "{\"type\":\"object\"}",
        "{\"propertyNames\":{\"maxLength\":3}}",
    };
    for (int i = 0; i < 4; i++) {
        struct grammar *grammar = must_build(schemas[i]);
        struct grammar_state *state = grammar_state_create(grammar, of_pairs);
        take(state, "{\"AC\":1,\"");
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_true(fixture_allows(mask, first + 1));
        assert_int_equal(fixture_allows(mask, first + 2), i >= 2);
        assert_true(fixture_allows(mask, first + 3));
        assert_true(fixture_allows(mask, 'A'));
        take(state, "A");
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_int_equal(fixture_allows(mask, 'C'), i >= 2);
        grammar_state_destroy(state);
        grammar_unref(grammar);
    }
    grammar_vocabulary_destroy(of_pairs);
}

/* --- Random walks --- */

static uint32_t draw(uint32_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

/* Letters that make few names, what JSON is made of, and longer tokens are likelier than others; a
 * long text takes what may close it. -1: the end. */
static int32_t choose(const struct tokenizer *t, const uint32_t *mask, size_t length) {
    static const char likely[] = "ab\"\",,:{}[1", closing[] = "\"}]:1ab";
    const char *bytes = length > LONG_TEXT ? closing : likely;
    if (fixture_allows(mask, t->end) && (length > LONG_TEXT || draw(4) == 0))
        return -1;
    if (length > LONG_TEXT && fixture_allows(mask, '"'))
        return '"';
    for (int i = 0; i < 40; i++) {
        int32_t token = bytes[draw((uint32_t)strlen(bytes))];
        if (length <= LONG_TEXT && t->num_tokens > 258 && draw(2) == 0)
            token = 258 + (int32_t)draw((uint32_t)NUM_TOKENS);
        if (fixture_allows(mask, token))
            return token;
    }
    for (int32_t i = 0, token = (int32_t)draw(256); i < t->num_tokens;
         i++, token = (token + 1) % t->num_tokens)
        if (token != t->end && fixture_allows(mask, token))
            return token;
    return -1;
}

/* Returns the length; 0: the text became too long. */
static size_t walk(struct grammar *grammar, const struct tokenizer *t,
                   const struct grammar_vocabulary *v, char *out) {
    struct grammar_state *state = grammar_state_create(grammar, v);
    uint32_t mask[FIXTURE_WORDS];
    size_t length = 0;
    int32_t token;
    for (;;) {
        assert_int_equal(grammar_state_mask(state, mask), 0);
        if ((token = choose(t, mask, length)) < 0)
            break;
        struct text piece = t->pieces[token];
        assert_int_equal(grammar_state_accept(state, token), 0);
        if (length + piece.length >= MAX_TEXT)
            break;
        memcpy(out + length, piece.data, piece.length);
        length += piece.length;
    }
    grammar_state_destroy(state);
    out[length] = '\0';
    return token < 0 ? length : 0;
}

static bool repeats_a_name(const cJSON *value) {
    const cJSON *item, *other;
    cJSON_ArrayForEach(item, value) {
        for (other = item->next; cJSON_IsObject(value) && other != NULL; other = other->next)
            if (strcmp(item->string, other->string) == 0)
                return true;
        if (repeats_a_name(item))
            return true;
    }
    return false;
}

static const struct {
    const char *schema;
    int min, max; /* members of the outermost object */
} walked[] = {
    {ANY, 0, 10000},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":2}", 2,
     10000},
    {"{\"type\":\"object\",\"minProperties\":3,\"maxProperties\":4}", 3, 4},
    {"{\"properties\":{\"a\":{\"const\":1}},\"minProperties\":2}", 2, 10000},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"b\"],\"minProperties\":4,"
     "\"maxProperties\":6,\"additionalProperties\":{\"type\":\"object\"}}",
     4, 6},
    {"{\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"b$\":{\"minimum\":3,\"type\":"
     "\"integer\"}},\"properties\":{\"ab\":{}},\"minProperties\":3,\"maxProperties\":5}",
     3, 5},
    {FEW, 0, 3},
    {"{\"propertyNames\":{\"enum\":[\"a\",\"ab\",\"b\"]},\"minProperties\":3}", 3, 3},
    {"{\"propertyNames\":{\"pattern\":\"^[ab]{1,2}$\"},\"minProperties\":5}", 5, 6},
    {"{\"patternProperties\":{\"^[ab]$\":{\"type\":\"integer\"}},\"properties\":{\"x\":{}},"
     "\"additionalProperties\":false,\"minProperties\":2}",
     2, 3},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}}],\"unevaluatedProperties\":"
     "{\"type\":\"integer\"},\"minProperties\":4}",
     4, 10000},
};

static void walk_all(const struct tokenizer *t, const struct grammar_vocabulary *v) {
    static char text[MAX_TEXT + 64];
    for (size_t i = 0; i < sizeof(walked) / sizeof(walked[0]); i++) {
        struct grammar *grammar = must_build(walked[i].schema);
        int num_whole = 0, most = 0;
        for (int k = 0; k < NUM_WALKS; k++) {
            size_t length = walk(grammar, t, v, text);
            cJSON *value = length > 0 ? cJSON_Parse(text) : NULL;
            int size = cJSON_GetArraySize(value);
            if (length > 0 && (value == NULL || repeats_a_name(value) || size < walked[i].min ||
                               size > walked[i].max))
                fail_msg("%s: %s", walked[i].schema, text);
            num_whole += length > 0;
            most = size > most ? size : most;
            cJSON_Delete(value);
        }
        if (num_whole <= NUM_WALKS / 2 || most < 2)
            fail_msg("%s: %d whole texts, up to %d members", walked[i].schema, num_whole, most);
        grammar_unref(grammar);
    }
}

static void test_walks(void **unused) {
    random_state = 7;
    walk_all(&tokenizer, vocabulary);
    walk_all(&longer, longer_vocabulary);
}

/* Counts that nothing can have. */
static void test_contradictions(void **unused) {
    static const char *const schemas[] = {
        "{\"properties\":{\"a\":{}},\"additionalProperties\":false,\"minProperties\":2}",
        "{\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"minProperties\":3}",
        "{\"properties\":{\"a\":{}},\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"minProperties\":"
        "3}",
        "{\"type\":\"object\",\"minProperties\":3,\"maxProperties\":2}",
    };
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        struct api_error err = {0};
        if (build(schemas[i], &err) != NULL)
            fail_msg("%s must be refused", schemas[i]);
        assert_int_equal(err.status, 400);
        if (strstr(err.message, "minProperties") == NULL)
            fail_msg("%s: %s", schemas[i], err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),          cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_prose),          cmocka_unit_test(test_sequences_share_nothing),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_short_names),    cmocka_unit_test(test_walks),
        cmocka_unit_test(test_contradictions),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
