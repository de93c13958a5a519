/* The language of chat templates against Jinja2: the small templates of
 * chat_templates/expressions.json with their texts, or null where Jinja2 ends with an error, and
 * those that are refused (scripts/golden/make_chat_template_cases.py explains the file). */
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

static cJSON *read_expressions(void) {
    size_t length;
    char *text = chat_case_read(folder, "expressions.json", &length);
    cJSON *root = cJSON_Parse(text);
    free(text);
    assert_non_null(root);
    return root;
}

static void test_every_expression(void **state) {
    cJSON *root = read_expressions();
    int count = 0, errors = 0, differences = 0;
    const cJSON *variables = cJSON_GetObjectItem(root, "variables");
    int64_t now = (int64_t)cJSON_GetObjectItem(root, "now")->valuedouble;
    const cJSON *topic, *item;
    cJSON_ArrayForEach(topic, cJSON_GetObjectItem(root, "cases")) {
        cJSON_ArrayForEach(item, topic) {
            const char *source = item->child->valuestring;
            const char *expected = item->child->next->valuestring;
            count++;
            errors += expected == NULL;
            differences += !agrees(variables, now, source, expected);
        }
    }
    print_message("# %d expressions, %d of them errors; %d differences\n", count, errors,
                  differences);
    cJSON_Delete(root);
    assert_int_equal(differences, 0);
    assert_true(count > 640 && errors < 120);
}

/* What no published template uses of Jinja2 and Python is refused before anything is rendered. */
static void test_what_is_refused(void **state) {
    cJSON *root = read_expressions();
    const cJSON *item;
    int count = 0, accepted = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(root, "refused")) {
        struct error err = {0};
        const char *source = item->valuestring;
        struct chat_template *chat = chat_case_compile(source, strlen(source), &err);
        bool is_named =
            strncmp(err.message, "line 1: ", 8) == 0 &&
            (strstr(err.message, "unknown ") != NULL || strstr(err.message, "expected ") != NULL ||
             strstr(err.message, "are not supported") != NULL);
        if (chat != NULL || !is_named)
            fprintf(stderr, "# %s: %s\n", source, chat != NULL ? "is accepted" : err.message);
        accepted += chat != NULL || !is_named;
        count++;
        chat_template_destroy(chat);
    }
    print_message("# %d refused\n", count);
    cJSON_Delete(root);
    assert_int_equal(accepted, 0);
    assert_true(count > 60);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_expression),
                                       cmocka_unit_test(test_what_is_refused)};
    if (argc != 2)
        return fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 2;
    folder = argv[1];
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
