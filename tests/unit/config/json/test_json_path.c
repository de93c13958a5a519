#include "config/json/json_path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct json_path *path, const char *expected) {
    char text[JSON_PATH_BYTES];
    json_path_text(path, text);
    assert_string_equal(text, expected);
}

static void a_path_names_members_and_items(void **state) {
    const struct json_path *messages = JSON_MEMBER_PATH(NULL, "messages");
    const struct json_path *message = JSON_ITEM_PATH(messages, 3);
    const struct json_path *content = JSON_MEMBER_PATH(message, "content");
    expect(messages, "messages");
    expect(message, "messages[3]");
    expect(content, "messages[3].content");
    expect(JSON_MEMBER_PATH(JSON_ITEM_PATH(content, 0), "text"), "messages[3].content[0].text");
    expect(JSON_ITEM_PATH(JSON_ITEM_PATH(messages, 12), 2147483647), "messages[12][2147483647]");
}

/* Takes `length` bytes, and tells whether those are the names' own or end in "...". */
static void expect_length(int length, bool is_cut) {
    char name[2 * JSON_PATH_BYTES], text[JSON_PATH_BYTES];
    const struct json_path *parent = JSON_MEMBER_PATH(NULL, "a");
    memset(name, 'n', sizeof(name));
    name[length - 2] = '\0';
    const struct json_path *path = JSON_MEMBER_PATH(parent, name);
    json_path_text(path, text);
    assert_memory_equal(text, "a.nnnn", 6);
    assert_int_equal(strlen(text), length < JSON_PATH_BYTES ? length : JSON_PATH_BYTES - 1);
    assert_string_equal(text + strlen(text) - 3, is_cut ? "..." : "nnn");
    if (!is_cut)
        return;
    expect(JSON_ITEM_PATH(path, 7), text); /* what follows the cut changes nothing */
    expect(JSON_MEMBER_PATH(JSON_ITEM_PATH(path, 7), "b"), text);
}

static void a_long_path_is_cut(void **state) {
    expect_length(JSON_PATH_BYTES - 1, false);
    expect_length(JSON_PATH_BYTES, true);
    expect_length(JSON_PATH_BYTES + 1, true);
    expect_length(2 * JSON_PATH_BYTES, true);
}

/* The item at which the text is full, and the names after it. */
static void a_path_of_many_names_is_cut(void **state) {
    struct json_path paths[JSON_PATH_BYTES];
    char text[JSON_PATH_BYTES];
    for (int i = 0; i < JSON_PATH_BYTES; i++)
        paths[i] = (struct json_path){i > 0 ? &paths[i - 1] : NULL, "b", 0};
    json_path_text(&paths[JSON_PATH_BYTES - 1], text);
    assert_int_equal(strlen(text), JSON_PATH_BYTES - 1);
    assert_memory_equal(text, "b.b.b.", 6);
    assert_string_equal(text + JSON_PATH_BYTES - 6, "b....");
}

static void a_value_is_refused_at_its_place(void **state) {
    struct api_error err = {0};
    cJSON *item = cJSON_Parse("3");
    const struct json_path *path = JSON_ITEM_PATH(JSON_MEMBER_PATH(NULL, "stop"), 1);
    assert_int_equal(json_refuse_at(item, path, "a string", &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "stop[1]");
    assert_string_equal(err.code, "invalid_type");
    assert_string_equal(err.message, "stop[1] must be a string, not 3");
    cJSON_Delete(item);
}

static void what_is_wrong_follows_the_path(void **state) {
    struct api_error err = {0};
    const struct json_path *path = JSON_ITEM_PATH(JSON_MEMBER_PATH(NULL, "tools"), 2);
    assert_int_equal(bad_request_at(&err, "unknown_tool", path, " is \"%s\", one of %d", "a%s", 4),
                     -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.type, "invalid_request_error");
    assert_string_equal(err.param, "tools[2]");
    assert_string_equal(err.code, "unknown_tool");
    assert_string_equal(err.message, "tools[2] is \"a%s\", one of 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_names_members_and_items),
        cmocka_unit_test(a_long_path_is_cut),
        cmocka_unit_test(a_path_of_many_names_is_cut),
        cmocka_unit_test(a_value_is_refused_at_its_place),
        cmocka_unit_test(what_is_wrong_follows_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
