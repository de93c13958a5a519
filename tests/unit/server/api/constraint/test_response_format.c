/* Bodies and the texts that the forms they request admit. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/api/constraint/response_format.h"
#include "config/json/json_parse.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdlib.h>
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

static int read_form(const char *body, struct grammar **out, struct api_error *err) {
    cJSON *json = cJSON_Parse(body);
    if (json == NULL)
        fail_msg("the test's body is no JSON: %s", body);
    int result = response_format_read(json, &openai_names, NULL, NULL, NULL, out, err);
    cJSON_Delete(json);
    return result;
}

static bool matches(struct grammar *grammar, const char *text) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    const char *at = text;
    while (*at != '\0' && grammar_state_accept(state, (uint8_t)*at) == 0)
        at++;
    bool whole = *at == '\0' && grammar_state_accept(state, tokenizer.end) == 0;
    grammar_state_destroy(state);
    return whole;
}

static void test_forms(void **unused) {
    static const struct {
        const char *body, *matched, *refused;
    } cases[] = {
        {"{\"response_format\":{\"type\":\"json_object\"}}", "{\"a\": 1}", "1"},
        {"{\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"integer\"}}}", "1",
         "{}"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":true,\"schema\":{\"type\":\"boolean\"}}}}",
         "true", "1"},
        {"{\"structured_outputs\":{\"json\":{\"type\":\"null\"}}}", "null", "1"},
        {"{\"structured_outputs\":{\"json\":\"{\\\"type\\\":\\\"null\\\"}\"}}", "null", "1"},
        {"{\"structured_outputs\":{\"choice\":[\"yes\",\"no\"],\"regex\":null}}", "no", "maybe"},
        {"{\"structured_outputs\":{\"regex\":\"a+b\"}}", "aab", "b"},
        {"{\"structured_outputs\":{\"json_object\":true}}", "{}", "[]"},
        {"{\"structured_outputs\":{\"regex\":\"a+b\",\"disable_any_whitespace\":false,"
         "\"whitespace_pattern\":null}}",
         "aab", "b"},
        {"{\"guided_json\":{\"const\":1}}", "1", "2"},
        {"{\"json_schema\":{\"const\":1}}", "1", "2"},
        {"{\"json_schema\":\"{\\\"type\\\": \\\"null\\\"}\"}", "null", "1"},
        {"{\"regex\":\"a+b\"}", "aab", "b"},
        {"{\"guided_regex\":\"\\\\w{2}\"}", "a_", "a b"},
        {"{\"structured_outputs\":{\"grammar\":\"root ::= \\\"a\\\" [0-9]\"}}", "a1", "a"},
        {"{\"structured_outputs\":{\"grammar\":\"start: /a+/ \\\"b\\\"i\"}}", "aaB", "b"},
        {"{\"guided_grammar\":\"root ::= [0-9]\"}", "1", "a"},
        {"{\"ebnf\":\"root ::= [0-9]\",\"grammar\":\"\"}", "1", "a"},
        {"{\"grammar\":\"root ::= [0-9]\",\"ebnf\":\"\"}", "1", "a"},
        {"{\"guided_choice\":[\"a\"],\"response_format\":{\"type\":\"text\"}}", "a", "b"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar *grammar = NULL;
        struct api_error err = {0};
        if (read_form(cases[i].body, &grammar, &err) != 0)
            fail_msg("%s: %s", cases[i].body, err.message);
        assert_true(matches(grammar, cases[i].matched));
        assert_false(matches(grammar, cases[i].refused));
        grammar_unref(grammar);
    }
}

static void test_no_form(void **unused) {
    static const char *const bodies[] = {
        "{}",
        "{\"response_format\":null}",
        ("{\"response_format\":{\"type\":\"text\"},\"structured_outputs\":null,"
         "\"guided_json\":null}"),
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct grammar *other, *grammar;
        struct api_error err;
        assert_int_equal(read_form("{\"guided_choice\":[\"a\"]}", &other, &err), 0);
        grammar = other;
        assert_int_equal(read_form(bodies[i], &grammar, &err), 0);
        assert_null(grammar);
        grammar_unref(other);
    }
}

/* A tag with digits in it, and a structural tag of a format. */
#define TAG(begin)                                                                                 \
    "{\"type\":\"tag\",\"begin\":\"" begin                                                         \
    "\",\"content\":{\"type\":\"regex\",\"pattern\":\"[0-9]+\"},\"end\":\"</>\"}"
#define TAG_FORMAT(format)                                                                         \
    "{\"structured_outputs\":{\"structural_tag\":{\"type\":\"structural_tag\",\"format\":" format  \
    "}}}"
#define TRIGGERED(more)                                                                            \
    TAG_FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<a\",\"<b\"],\"tags\":[" TAG(         \
        "<a>") "," TAG("<ab>") "," TAG("<b>") "]" more "}")
#define SEPARATED(more)                                                                            \
    TAG_FORMAT("{\"type\":\"tags_with_separator\",\"separator\":\";\",\"tags\":[" TAG(             \
        "<a>") "," TAG("<b>") "]" more "}")

static void test_structural_tags(void **unused) {
    static const struct {
        const char *body;
        const char *matched[5], *refused[6];
    } cases[] = {
        {TRIGGERED(""),
         {"", "no tags < at all", "x<a>1</>y<b>22</><ab>3</>", "<<a>1</> <", "<c <x>"},
         {"<a", "<a>x</>", "<a>1", "<ac>1</>", "<ab>1</><b>"}},
        {TRIGGERED(",\"at_least_one\":true"),
         {"x<a>1</>", "<a>1</>y<b>2</>z"},
         {"", "xyz", "<a>1"}},
        {TRIGGERED(",\"stop_after_first\":true"),
         {"x<a>1</>", "xyz"},
         {"<a>1</>x", "<a>1</><b>2</>"}},
        {TRIGGERED(",\"stop_after_first\":true,\"at_least_one\":true"), {"x<a>1</>"}, {"", "x"}},
        {SEPARATED(""), {"", "<a>1</>", "<a>1</>;<b>2</>"}, {";", "<a>1</>;", "<a>1</><b>2</>"}},
        {SEPARATED(",\"at_least_one\":true"), {"<a>1</>;<a>1</>"}, {""}},
        {SEPARATED(",\"stop_after_first\":true"), {"", "<a>1</>"}, {"<a>1</>;<b>2</>"}},
        {TAG_FORMAT(
             "{\"type\":\"tag\",\"begin\":\"<t>\",\"content\":{\"type\":\"any_text\"},\"end\":"
             "\"</t>\"}"),
         {"<t></t>", "<t>a</</t>", "<t>\n<t></t>"},
         {"<t>a", "<t>a</t>b", "<t></t></t>"}},
        {TAG_FORMAT(
             "{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":\"a\"},{"
             "\"type\":\"or\",\"elements\":[{\"type\":\"json_schema\",\"json_schema\":{\"type\":"
             "\"null\"}},{\"type\":\"grammar\",\"grammar\":\"root ::= [0-9]\"}]},{\"type\":\"any_"
             "text\"}]}"),
         {"anull", "a7", "a7xyz"},
         {"a", "ax", "null"}},
        {TAG_FORMAT("{\"type\":\"tag\",\"begin\":\"\",\"content\":{\"type\":\"any_text\"},\"end\":"
                    "\"abacabad\"}"),
         {"abacabad", "abacabacabad", "ababacabad", "abacababacabad", "aabacabad"},
         {"abacaba", "abacabada", "abacabadabacabad"}},
        {TAG_FORMAT("{\"type\":\"tag\",\"begin\":\"\",\"content\":{\"type\":\"any_text\"},\"end\":"
                    "\"aabaaac\"}"),
         {"aabaaac", "aabaaabaaac"},
         {"aabaaabaac", "aabaaaca"}},
        {"{\"response_format\":{\"type\":\"structural_tag\",\"structures\":[{\"begin\":\"<f=x>\","
         "\"schema\":{\"type\":\"integer\"},\"end\":\"</f>\"}],\"triggers\":[\"<f=\"]}}",
         {"say", "a<f=x>12</f>b<f=x>3</f>", "<f"},
         {"<f=", "<f=y>1</f>", "<f=x>\"a\"</f>"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar *grammar = NULL;
        struct api_error err = {0};
        if (read_form(cases[i].body, &grammar, &err) != 0)
            fail_msg("%s: %s", cases[i].body, err.message);
        for (int k = 0; k < 5 && cases[i].matched[k] != NULL; k++)
            if (!matches(grammar, cases[i].matched[k]))
                fail_msg("%s must match %s", cases[i].matched[k], cases[i].body);
        for (int k = 0; k < 6 && cases[i].refused[k] != NULL; k++)
            if (matches(grammar, cases[i].refused[k]))
                fail_msg("%s must not match %s", cases[i].refused[k], cases[i].body);
        grammar_unref(grammar);
    }
}

/* The second time the grammar is the one of the first, if the body says the same of the output. */
static void test_cache(void **unused) {
    static const struct {
        const char *body;
        bool is_hit;
    } bodies[] = {
        {"{\"regex\":\"a+\"}", false},
        {"{\"regex\":\"a+\",\"max_tokens\":3}", true},
        {"{\"guided_regex\":\"a+\"}", false},
        {"{\"regex\":\"a+b\"}", false},
        {"{\"guided_json\":{\"type\":\"integer\",\"minimum\":1}}", false},
        {"{\"guided_json\":{\"type\":\"integer\",\"minimum\":2}}", false},
        {"{\"guided_json\":{\"type\": \"integer\",\"minimum\":1}}", true},
        {"{\"guided_json\":{\"const\":9007199254740991}}", false},
        {"{\"guided_json\":{\"const\":9007199254740990}}", false},
        {"{\"guided_json\":{\"const\":9007199254740993}}", false},
        {"{\"guided_json\":{\"const\":9007199254740992}}", false},
        {"{\"grammar\":\"root ::= [0-9]\"}", false},
        {"{\"grammar\":\"root ::= [0-9]\"}", true},
        {"{\"regex\":\"(\"}", false},
        {"{\"regex\":\"(\"}", false},
        {"{\"regex\":\"a+\"}", true},
    };
    struct grammar_cache *cache = grammar_cache_create(1 << 20);
    struct grammar_cache_stats stats;
    uint64_t hits = 0;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct grammar *grammar = NULL;
        struct api_error err = {0};
        cJSON *json = json_parse(bodies[i].body, strlen(bodies[i].body), &err);
        assert_non_null(json);
        response_format_read(json, &openai_names, NULL, cache, NULL, &grammar, &err);
        hits += bodies[i].is_hit;
        grammar_cache_stats(cache, &stats);
        if (stats.hits != hits || stats.misses != i + 1 - hits)
            fail_msg("%s", bodies[i].body);
        grammar_unref(grammar);
        cJSON_Delete(json);
    }
    assert_int_equal(stats.num_grammars, 10);
    grammar_cache_destroy(cache);
}

#define UNKNOWN_SCHEMA(members)                                                                    \
    "{\"guided_json\":{\"type\":\"object\",\"properties\":{\"a\":{" members                        \
    "}},\"required\":[\"a\"]}}"

/* What no output can be held to is refused, or left out and named; all else holds. */
static void test_ignored_keywords(void **unused) {
    static const struct {
        const char *body, *names, *matched, *refused;
    } cases[] = {
        {UNKNOWN_SCHEMA("\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true,"
                        "\"maxItems\":2"),
         "guided_json.properties.a.uniqueItems", "{\"a\": [\"b\", \"b\"]}", "{\"a\": [1]}"},
        {UNKNOWN_SCHEMA(
             "\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":1},\"uniqueItems\":true"),
         "guided_json.properties.a.uniqueItems", "{\"a\": [1, 1]}", "{\"a\": [1, 2]}"},
        {UNKNOWN_SCHEMA("\"type\":\"string\",\"format\":\"iri\",\"maxLength\":2"),
         "guided_json.properties.a.format", "{\"a\": \"b\"}", "{\"a\": \"bcd\"}"},
        {UNKNOWN_SCHEMA("\"type\":\"string\",\"pattern\":\"(?=b).*\",\"maxLength\":2"),
         "guided_json.properties.a.pattern", "{\"a\": \"c\"}", "{\"a\": \"bcd\"}"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":true,"
         "\"schema\":{\"type\":\"boolean\",\"x-order\":1}}}}",
         "response_format.json_schema.schema.x-order", "true", "1"},
    };
    struct grammar_cache *cache = grammar_cache_create(1 << 20);
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) { /* the second time too */
        struct grammar *grammar = NULL;
        struct byte_buffer names = {0};
        struct api_error err = {0};
        cJSON *json = cJSON_Parse(cases[i / 2].body);
        assert_int_equal(
            response_format_read(json, &openai_names, NULL, cache, NULL, &grammar, &err), -1);
        assert_string_equal(err.code, "unsupported_json_schema");
        assert_int_equal(
            response_format_read(json, &openai_names, NULL, cache, &names, &grammar, &err), 0);
        byte_buffer_append(&names, "", 1);
        assert_string_equal(names.data, cases[i / 2].names);
        assert_true(matches(grammar, cases[i / 2].matched));
        assert_false(matches(grammar, cases[i / 2].refused));
        byte_buffer_finish(&names);
        grammar_unref(grammar);
        cJSON_Delete(json);
    }
    grammar_cache_destroy(cache);
}

static void test_refused(void **unused) {
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"response_format\":3}", "response_format"},
        {"{\"response_format\":\"json_object\"}", "response_format"},
        {"{\"response_format\":{}}", "response_format.type"},
        {"{\"response_format\":{\"type\":\"json\"}}", "response_format.type"},
        {"{\"response_format\":{\"type\":3}}", "response_format.type"},
        {"{\"response_format\":{\"type\":\"json_schema\"}}", "response_format.json_schema"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}}",
         "response_format.json_schema.schema"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"strict\":"
         "1}}}",
         "response_format.json_schema.strict"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"name\":1}"
         "}}",
         "response_format.json_schema.name"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
         "\"int\"}}}}",
         "response_format.json_schema.schema"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":true,"
         "\"schema\":"
         "{\"not\":{}}}}}",
         "response_format.json_schema.schema"},
        {"{\"structured_outputs\":{}}", "structured_outputs"},
        {"{\"structured_outputs\":[]}", "structured_outputs"},
        {"{\"structured_outputs\":{\"grammar\":\"root ::= root\"}}", "structured_outputs.grammar"},
        {"{\"structured_outputs\":{\"structural_tag\":\"{}\"}}",
         "structured_outputs.structural_tag.type"},
        {"{\"structured_outputs\":{\"structural_tag\":\"{\"}}",
         "structured_outputs.structural_tag"},
        {TAG_FORMAT("{\"type\":\"qwen_xml_parameter\"}"),
         "structured_outputs.structural_tag.format.type"},
        {TAG_FORMAT("{\"type\":\"any_text\",\"excludes\":[\"a\"]}"),
         "structured_outputs.structural_tag.format.excludes"},
        {TAG_FORMAT("{\"type\":\"sequence\",\"elements\":[]}"),
         "structured_outputs.structural_tag.format.elements"},
        {TAG_FORMAT("{\"type\":\"regex\",\"pattern\":\"(\"}"),
         "structured_outputs.structural_tag.format.pattern"},
        {TAG_FORMAT(
             "{\"type\":\"triggered_tags\",\"triggers\":[\"<b\"],\"tags\":[" TAG("<a>") "]}"),
         "structured_outputs.structural_tag.format.triggers"},
        {TAG_FORMAT("{\"type\":\"triggered_tags\",\"triggers\":[\"<a\"],\"tags\":[" TAG(
             "<a>") "," TAG("<b>") "]}"),
         "structured_outputs.structural_tag.format.triggers"},
        {"{\"ebnf\":\"root ::= x\"}", "ebnf"},
        {"{\"grammar\":\"root ::= \\\"\"}", "grammar"},
        {"{\"grammar\":[]}", "grammar"},
        {"{\"guided_grammar\":\"\"}", "guided_grammar"},
        {"{\"guided_grammar\":\"start: \\\"a\\\" start\"}", "guided_grammar"},
        {"{\"structured_outputs\":{\"regex\":\"(\"}}", "structured_outputs.regex"},
        {"{\"structured_outputs\":{\"regex\":1}}", "structured_outputs.regex"},
        {"{\"structured_outputs\":{\"choice\":[]}}", "structured_outputs.choice"},
        {"{\"structured_outputs\":{\"choice\":[1]}}", "structured_outputs.choice"},
        {"{\"structured_outputs\":{\"choice\":\"a\"}}", "structured_outputs.choice"},
        {"{\"structured_outputs\":{\"json\":\"{\"}}", "structured_outputs.json"},
        {"{\"structured_outputs\":{\"json\":\"[1]\"}}", "structured_outputs.json"},
        {"{\"structured_outputs\":{\"json_object\":3}}", "structured_outputs.json_object"},
        {"{\"structured_outputs\":{\"json\":{},\"choice\":[\"a\"]}}", "structured_outputs.choice"},
        {"{\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":1}}",
         "structured_outputs.disable_any_whitespace"},
        {"{\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true,"
         "\"whitespace_pattern\":\" \"}}",
         "structured_outputs.whitespace_pattern"},
        {"{\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\"\\\\s*\"}}",
         "structured_outputs.whitespace_pattern"},
        {"{\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\" {\"}}",
         "structured_outputs.whitespace_pattern"},
        {"{\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\" \"},"
         "\"guided_whitespace_pattern\":\" \"}",
         "guided_whitespace_pattern"},
        {"{\"guided_whitespace_pattern\":\"a?\"}", "guided_whitespace_pattern"},
        {"{\"guided_whitespace_pattern\":1}", "guided_whitespace_pattern"},
        {"{\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":true}}",
         "structured_outputs.disable_additional_properties"},
        {"{\"guided_grammar\":\"x\"}", "guided_grammar"},
        {"{\"guided_json\":{},\"response_format\":{\"type\":\"json_object\"}}", "guided_json"},
        {"{\"guided_json\":{},\"structured_outputs\":{\"choice\":[\"a\"]}}",
         "structured_outputs.choice"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar *grammar = NULL;
        struct api_error err = {0};
        if (read_form(cases[i].body, &grammar, &err) == 0)
            fail_msg("%s must be refused", cases[i].body);
        assert_int_equal(err.status, 400);
        if (strcmp(err.param, cases[i].param) != 0)
            fail_msg("%s: %s: %s", cases[i].body, err.param, err.message);
        assert_null(grammar);
    }
}

/* The form where an endpoint has it: of a schema the members stand in the form itself. */
static void test_named_place(void **unused) {
    static const struct body_names names = {.format = "text.format", .has_flat_format = true};
    static const struct {
        const char *body, *param, *unknown; /* param NULL: not refused */
    } cases[] = {
        {"{\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,"
         "\"schema\":{\"const\":1},\"a\":1,\"json_schema\":{\"b\":1}}}}",
         NULL, "text.format.a,text.format.json_schema"},
        {"{\"text\":{\"format\":{\"type\":\"json_object\",\"a\":1,\"json_schema\":{\"b\":1}}}}",
         NULL, "text.format.a,text.format.json_schema.b"},
        {"{\"response_format\":{\"type\":\"x\"}}", NULL, ""},
        {"{\"text\":[]}", NULL, ""},
        {"{\"text\":{\"format\":1}}", "text.format", ""},
        {"{\"text\":{\"format\":{\"type\":1}}}", "text.format.type", ""},
        {"{\"text\":{\"format\":{\"type\":\"json_schema\"}}}", "text.format.schema", ""},
        {"{\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"a\"}}}}",
         "text.format.schema", ""},
        {"{\"text\":{\"format\":{\"type\":\"json_schema\",\"strict\":1}}}", "text.format.strict",
         ""},
        {"{\"text\":{\"format\":{\"type\":\"structural_tag\",\"format\":{\"type\":\"a\"}}}}",
         "text.format.format.type", ""},
        {"{\"text\":{\"format\":{\"type\":\"json_object\"}},\"regex\":\"a\"}", "regex", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar *grammar = NULL;
        struct api_error err = {0};
        struct byte_buffer unknown = {0};
        cJSON *json = cJSON_Parse(cases[i].body);
        assert_non_null(json);
        int result = response_format_read(json, &names, NULL, NULL, NULL, &grammar, &err);
        if (result != (cases[i].param == NULL ? 0 : -1) ||
            strcmp(err.param, cases[i].param != NULL ? cases[i].param : "") != 0)
            fail_msg("%s: %s: %s", cases[i].body, err.param, err.message);
        response_format_list_unknown(json, &names, &unknown);
        byte_buffer_append(&unknown, "", 1);
        assert_string_equal(unknown.data, cases[i].unknown);
        if (i == 0)
            assert_true(matches(grammar, "1") && !matches(grammar, "2"));
        byte_buffer_finish(&unknown);
        grammar_unref(grammar);
        cJSON_Delete(json);
    }
}

/* Every gap between two tokens is one match of the pattern: of arrays and objects, empty or not, of
 * given values and of any. */
static void test_whitespace(void **unused) {
    static const char *const bodies[] = {
        "\"structured_outputs\":{\"json\":%s,\"disable_any_whitespace\":true}",
        "\"structured_outputs\":{\"json\":%s,\"whitespace_pattern\":\"\\t|\\n\"}",
        "\"guided_json\":%s,\"guided_whitespace_pattern\":\"\\t|\\n\"",
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":%s}},"
        "\"guided_whitespace_pattern\":\"\\t|\\n\"",
    };
    static const struct {
        const char *schema, *text; /* _: a gap */
    } cases[] = {
        {"{\"type\":\"object\"}", "{_\"a\"_:_[_1_,_{_}_,_[_]_]_,_\"b\"_:_true_}"},
        {"{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":1}",
         "{_\"a\"_:_\"x_y\"_,_\"b\"_:_{_}_}"},
        {"{\"properties\":{\"a\":{}}}", "{_}"},
        {"{\"additionalProperties\":{\"type\":\"null\"}}", "{_\"x\"_:_null_,_\"y\"_:_null_}"},
        {"{\"enum\":[{\"a\":[1,{}],\"b\":\" \"}]}", "{_\"a\"_:_[_1_,_{_}_]_,_\"b\"_:_\" \"_}"},
        {"{\"items\":{\"type\":\"boolean\"}}", "[_true_,_false_]"},
        {"{\"items\":{\"type\":\"boolean\"}}", "[_]"},
        {"{\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}", "[_1_,_2_]"},
        {"{\"prefixItems\":[{\"const\":1}],\"contains\":{\"const\":2},\"items\":true}",
         "[_1_,_2_]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t form = 0; form < sizeof(bodies) / sizeof(bodies[0]); form++) {
            char inner[400], body[600];
            struct grammar *grammar = NULL;
            struct api_error err = {0};
            snprintf(inner, sizeof(inner), bodies[form], cases[i].schema);
            snprintf(body, sizeof(body), "{%s}", inner);
            if (read_form(body, &grammar, &err) != 0)
                fail_msg("%s: %s", body, err.message);
            /* All gaps right, and one of them left out, doubled or a space. */
            static const char *const gaps[] = {"", "\t\t", " "};
            for (int wrong = -1; wrong < 3 * 20; wrong++) {
                char text[400] = "";
                int num_gaps = 0;
                bool in_string = false;
                for (const char *at = cases[i].text; *at != '\0'; at++) {
                    in_string ^= *at == '"';
                    const char *right = form == 0 ? "" : num_gaps % 2 == 0 ? "\t" : "\n";
                    if (*at != '_' || in_string)
                        strncat(text, at, 1);
                    else if (num_gaps++ == wrong / 3 && wrong >= 0)
                        strcat(text, gaps[wrong % 3]);
                    else
                        strcat(text, right);
                }
                bool is_right = wrong < 0 || (form == 0 && wrong % 3 == 0);
                if (wrong / 3 < num_gaps && matches(grammar, text) != is_right)
                    fail_msg("%s: %s is %s", body, text, is_right ? "refused" : "admitted");
            }
            grammar_unref(grammar);
        }
    }
}

static void test_unknown_members(void **unused) {
    static const struct {
        const char *body, *names;
    } cases[] = {
        {"{\"guided_json\":{\"x\":1}}", ""},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":"
         "true,\"description\":\"d\",\"schema\":{\"x\":1},\"a\":1},\"b\":2}}",
         "response_format.b,response_format.json_schema.a"},
        {"{\"response_format\":{\"type\":\"text\",\"json_schema\":[1]}}", ""},
        {"{\"structured_outputs\":{\"regex\":\"a\",\"a\":1,\"disable_any_whitespace\":false}}",
         "structured_outputs.a"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct byte_buffer names = {0};
        cJSON *body = cJSON_Parse(cases[i].body);
        assert_non_null(body);
        response_format_list_unknown(body, &openai_names, &names);
        byte_buffer_append(&names, "", 1);
        assert_string_equal(names.data, cases[i].names);
        byte_buffer_finish(&names);
        cJSON_Delete(body);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whitespace),
        cmocka_unit_test(test_unknown_members),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_no_form),
        cmocka_unit_test(test_structural_tags),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_ignored_keywords),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_named_place),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
