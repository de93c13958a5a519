/* Fields by other names. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/json/json_field.h"
#include "config/json/json_parse.h"

#include <string.h>

struct target {
    int64_t length, count;
    const char *text;
};

static const struct json_field fields[] = {
    JSON_INT(struct target, length, 0, 100),
    JSON_INT(struct target, count, 1, 10),
    JSON_TEXT(struct target, text),
};
static const struct json_alias aliases[] = {
    {"length", "n_length", .has_none = true, .none = -1},
    {"text", "words"},
};
#define NUM_ALIASES ((int)(sizeof(aliases) / sizeof(aliases[0])))
static const struct json_table table = {
    .fields = fields, .num_fields = 3, .aliases = aliases, .num_aliases = NUM_ALIASES};

static int read_fields(const char *body, struct target *out, struct api_error *err) {
    cJSON *json = json_parse(body, strlen(body), err);
    assert_non_null(json);
    *out = (struct target){.length = 7, .count = 7};
    *err = (struct api_error){0};
    int result = json_fields_read(json, table, out, err);
    if (result == 0)
        out->text = out->text != NULL ? "given" : NULL; /* it dies with the tree */
    cJSON_Delete(json);
    return result;
}

static void a_field_has_its_alias_or_its_name(void **unused) {
    static const struct {
        const char *body;
        int64_t length;
    } cases[] = {
        {"{}", 7},
        {"{\"n_length\":3}", 3},
        {"{\"length\":4}", 4},
        {"{\"length\":4,\"n_length\":3}", 3},
        {"{\"n_length\":3,\"length\":\"not looked at\"}", 3},
        {"{\"n_length\":null,\"length\":4}", 4},
        {"{\"n_length\":-1}", 7},
        {"{\"n_length\":-1,\"length\":4}", 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct target target;
        struct api_error err;
        if (read_fields(cases[i].body, &target, &err) != 0)
            fail_msg("%s: %s", cases[i].body, err.message);
        if (target.length != cases[i].length)
            fail_msg("%s: %d", cases[i].body, (int)target.length);
    }
}

static void an_error_has_the_clients_name(void **unused) {
    static const struct {
        const char *body, *param, *message;
    } cases[] = {
        {"{\"n_length\":101}", "n_length", "n_length must be an integer from -1 to 100, not 101"},
        {"{\"n_length\":-2}", "n_length", "n_length must be an integer from -1 to 100, not -2"},
        {"{\"length\":-1}", "length", "length must be an integer from 0 to 100, not -1"},
        {"{\"n_length\":-1,\"length\":-1}", "length",
         "length must be an integer from 0 to 100, not -1"},
        {"{\"words\":1}", "words", "words must be a string, not 1"},
        {"{\"text\":1}", "text", "text must be a string, not 1"},
        {"{\"count\":0}", "count", "count must be an integer from 1 to 10, not 0"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct target target;
        struct api_error err;
        assert_int_equal(read_fields(cases[i].body, &target, &err), -1);
        assert_string_equal(err.param, cases[i].param);
        assert_string_equal(err.message, cases[i].message);
    }
}

static void a_member_and_its_name_are_found(void **unused) {
    static const struct {
        const char *body, *name, *found; /* found NULL: no member */
    } cases[] = {
        {"{\"n_length\":1}", "n_length", "n_length"},
        {"{\"length\":1}", "length", "length"},
        {"{\"length\":1,\"n_length\":2}", "n_length", "n_length"},
        {"{\"length\":1,\"n_length\":-1}", "length", "length"},
        {"{\"n_length\":-1}", "n_length", NULL},
        {"{\"length\":null}", "n_length", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *json = cJSON_Parse(cases[i].body);
        const cJSON *item = json_aliased_member(json, aliases, NUM_ALIASES, "length");
        assert_string_equal(json_aliased_name(json, aliases, NUM_ALIASES, "length"), cases[i].name);
        assert_int_equal(item != NULL, cases[i].found != NULL);
        if (item != NULL)
            assert_string_equal(item->string, cases[i].found);
        assert_string_equal(json_aliased_name(json, aliases, NUM_ALIASES, "count"), "count");
        assert_string_equal(json_aliased_name(json, NULL, 0, "length"), "length");
        cJSON_Delete(json);
    }
}

/* Of the three a client sends one; with several, the endpoint's own names come first. */
static void a_synonym_stands_for_a_field(void **unused) {
    static const struct json_alias names[] = {
        {"length", "size", .is_synonym = true, .has_none = true, .none = -1},
        {"length", "extent", .is_synonym = true},
        {"text", "words"},
        {"text", "prose", .is_synonym = true},
    };
    static const struct json_table known = {
        .fields = fields, .num_fields = 3, .aliases = names, .num_aliases = 4};
    static const struct {
        const char *body, *name;
        int64_t length; /* -2: refused by that name */
    } cases[] = {
        {"{}", "length", 7},
        {"{\"size\":3}", "size", 3},
        {"{\"extent\":4}", "extent", 4},
        {"{\"size\":null,\"extent\":4}", "extent", 4},
        {"{\"extent\":4,\"size\":3}", "size", 3},
        {"{\"size\":3,\"length\":5}", "length", 5},
        {"{\"size\":-1}", "size", -1},
        {"{\"length\":-1}", "length", -1},
        {"{\"size\":-2}", "size", -2},
        {"{\"extent\":101}", "extent", -2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct target target = {.length = 7};
        struct api_error err = {0};
        cJSON *json = cJSON_Parse(cases[i].body);
        int status = json_fields_read(json, known, &target, &err);
        assert_string_equal(json_aliased_name(json, names, 4, "length"), cases[i].name);
        assert_int_equal(status, cases[i].length == -2 ? -1 : 0);
        if (status == 0)
            assert_int_equal(target.length, cases[i].length);
        else
            assert_string_equal(err.param, cases[i].name);
        cJSON_Delete(json);
    }
    cJSON *json = cJSON_Parse("{\"prose\":\"\",\"text\":\"\",\"words\":\"\"}");
    assert_string_equal(json_aliased_name(json, names, 4, "text"), "words");
    assert_string_equal(json_aliased_name(NULL, names, 4, "text"), "words");
    assert_true(json_fields_know(&known, 1, "prose"));
    cJSON_Delete(json);
}

static void an_alias_is_known(void **unused) {
    struct byte_buffer names = {0};
    cJSON *json = cJSON_Parse("{\"n_length\":1,\"length\":2,\"words\":\"\",\"word\":1}");
    assert_true(json_fields_know(&table, 1, "words"));
    assert_false(json_fields_know(&table, 1, "word"));
    json_fields_list_unknown(json, &table, 1, NULL, "", &names);
    byte_buffer_append(&names, "", 1);
    assert_string_equal(names.data, "word");
    byte_buffer_finish(&names);
    cJSON_Delete(json);
}

static void a_path_leads_through_objects(void **unused) {
    cJSON *json = cJSON_Parse("{\"a\":{\"b\":{\"c\":1},\"d\":[1]},\"a.b\":2}");
    assert_int_equal(json_member_at(json, "a.b.c")->valueint, 1);
    assert_true(cJSON_IsObject(json_member_at(json, "a")));
    assert_null(json_member_at(json, "a.d.c"));
    assert_null(json_member_at(json, "a.x.c"));
    assert_null(json_member_at(NULL, "a.b"));
    cJSON_Delete(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_has_its_alias_or_its_name),
        cmocka_unit_test(an_error_has_the_clients_name),
        cmocka_unit_test(a_member_and_its_name_are_found),
        cmocka_unit_test(a_synonym_stands_for_a_field),
        cmocka_unit_test(an_alias_is_known),
        cmocka_unit_test(a_path_leads_through_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
