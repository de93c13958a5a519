/* The language of chat templates against Jinja2: every line of chat_templates/expressions.json is
 * a template and its text, or null where Jinja2 refuses it. */
#include "tests/golden/chat_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;

/* What Jinja2 has for web pages, and Python for bytes, is refused. */
static bool is_left_out(const char *source) {
    static const char *const names[] = {"|urlize",  "|xmlattr",  "|pprint",         "|striptags",
                                        "|random",  "lipsum()",  "|filesizeformat", "|wordwrap",
                                        ".encode(", "autoescape"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strstr(source, names[i]) != NULL)
            return true;
    }
    return false;
}

static bool agrees(const cJSON *variables, int64_t now, const char *source, const char *expected) {
    struct error err = {0};
    struct chat_template *chat = chat_case_compile(source, strlen(source), &err);
    if (chat == NULL) {
        if (expected != NULL)
            fprintf(stderr, "# %s: %s; expected %s\n", source, err.message, expected);
        return expected == NULL;
    }
    struct chat_case got = chat_case_render(chat, variables, now);
    bool same = got.status == 0 ? expected != NULL && got.text.length == strlen(expected) &&
                                      memcmp(got.text.data, expected, got.text.length) == 0
                                : expected == NULL;
    if (!same)
        fprintf(stderr, "# %s: %.*s; expected %s\n", source,
                got.status == 0 ? (int)got.text.length : (int)strlen(got.err.message),
                got.status == 0 ? got.text.data : got.err.message,
                expected != NULL ? expected : "an error");
    template_arena_destroy(got.arena);
    chat_template_destroy(chat);
    return same;
}

static void test_every_expression(void **state) {
    size_t length;
    char *text = chat_case_read(folder, "expressions.json", &length);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    int count = 0, errors = 0, differences = 0;
    const cJSON *variables = cJSON_GetObjectItem(root, "variables");
    int64_t now = (int64_t)cJSON_GetObjectItem(root, "now")->valuedouble;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(root, "cases")) {
        const char *source = item->child->valuestring, *expected = item->child->next->valuestring;
        expected = is_left_out(source) ? NULL : expected;
        count++;
        errors += expected == NULL;
        differences += !agrees(variables, now, source, expected);
    }
    print_message("# %d expressions, %d of them errors; %d differences\n", count, errors,
                  differences);
    cJSON_Delete(root);
    free(text);
    assert_int_equal(differences, 0);
    assert_true(count > 700 && errors < 120);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_expression)};
    if (argc != 2)
        return fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 2;
    folder = argv[1];
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
