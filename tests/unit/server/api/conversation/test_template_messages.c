/* What a template sees of a conversation's messages: rendered by one that writes all of them as
 * JSON. */
#include "server/api/conversation/template_messages.h"

#include "models/chat_template/chat_template.h"

#include "tests/unit/server/api/conversation_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NAME_16 "Role_0123456789-"
#define NAME_64 NAME_16 NAME_16 NAME_16 NAME_16

static const struct chat_message_form usual = {.has_developer = true};

/* Makes the values of a body's messages: 0, or -1 and *err. */
static int make(const char *body, const struct chat_message_form *form,
                struct template_arena *arena, struct template_value **out, struct api_error *err) {
    struct conversation conversation;
    if (conversation_fixture_read(body, &conversation, err) != 0)
        fail_msg("%s: %s", body, err->message);
    int result = template_messages_make(conversation.messages, conversation.num_messages,
                                        "messages", form, arena, out, err);
    conversation_finish(&conversation);
    return result;
}

/* The text that `template` makes of the messages: in the arena. */
static struct chat_text render_in(struct template_arena *arena, const char *template,
                                  const char *body, const struct chat_message_form *form) {
    struct api_error refused = {0};
    struct error err = {0};
    struct template_value *messages;
    struct chat_template *chat;
    struct chat_text text;
    if (make(body, form, arena, &messages, &refused) != 0)
        fail_msg("%s: %s", body, refused.message);
    struct template_value *map = template_map_set(
        arena, template_map(arena), (struct text){"messages", 8}, TEMPLATE_ORIGIN_SERVER, messages);
    if (chat_template_create(template, strlen(template), &chat, &err) != 0 ||
        chat_template_render(chat, arena, map, 0, &text, &err) != 0)
        fail_msg("%s", err.message);
    chat_template_destroy(chat);
    return text;
}

static char *render(const char *template, const char *body, const struct chat_message_form *form) {
    struct template_arena *arena = template_arena_create(16 << 20);
    struct chat_text text = render_in(arena, template, body, form);
    char *copy = strndup(text.data, text.length);
    template_arena_destroy(arena);
    return copy;
}

static void expect_form(const struct chat_message_form *form, const char *messages,
                        const char *expected) {
    char body[2048];
    snprintf(body, sizeof(body), "{\"messages\":[%s]}", messages);
    char *text = render("{{ messages | tojson }}", body, form);
    assert_string_equal(text, expected);
    free(text);
}

static void expect(const char *messages, const char *expected) {
    expect_form(&usual, messages, expected);
}

static void texts_are_taken_as_they_are(void **state) {
    expect("{\"role\":\"system\",\"content\":\"Be brief.\"},"
           "{\"role\":\"user\",\"content\":\"\\u00e9\\n\",\"name\":\"Ann\",\"other\":1,"
           "\"prefix\":false,\"tools\":[]}",
           "[{\"role\": \"system\", \"content\": \"Be brief.\"}, "
           "{\"role\": \"user\", \"content\": \"\xC3\xA9\\n\", \"name\": \"Ann\"}]");
}

static void parts_are_joined_by_line_feeds(void **state) {
    expect("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
           "{\"type\":\"input_text\",\"text\":\"b\"},\"c\"]}",
           "[{\"role\": \"user\", \"content\": \"a\\nb\\nc\"}]");
    expect("{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}",
           "[{\"role\": \"assistant\", \"content\": \"no\"}]");
    expect("{\"role\":\"assistant\",\"content\":null,\"refusal\":\"no\"}",
           "[{\"role\": \"assistant\", \"content\": \"no\"}]");
    expect("{\"role\":\"user\",\"content\":[]}", "[{\"role\": \"user\", \"content\": \"\"}]");
}

static void developer_is_what_the_template_knows(void **state) {
    static const struct chat_message_form old = {.has_developer = false};
    static const char message[] = "{\"role\":\"developer\",\"content\":\"x\"}";
    expect(message, "[{\"role\": \"developer\", \"content\": \"x\"}]");
    expect_form(&old, message, "[{\"role\": \"system\", \"content\": \"x\"}]");
}

#define CALLS(arguments)                                                                           \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"            \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]}"
#define SEEN(content, arguments)                                                                   \
    "[{\"role\": \"assistant\", \"content\": " content                                             \
    ", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", " \
    "\"arguments\": " arguments "}}]}]"

static void arguments_become_a_map(void **state) {
    expect(CALLS("\"{\\\"b\\\": [1, 2.5, null, true], \\\"a\\\": \\\"x\\\"}\""),
           SEEN("\"\"", "{\"b\": [1, 2.5, null, true], \"a\": \"x\"}"));
    expect(CALLS("{\"a\":{}}"), SEEN("\"\"", "{\"a\": {}}"));
    expect(CALLS("\"\""), SEEN("\"\"", "{}"));
    expect(CALLS("null"), SEEN("\"\"", "{}"));
}

#define USER_SAYS(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define USER_SEEN(text) "{\"role\": \"user\", \"content\": \"" text "\"}"

static void arguments_become_an_object_in_any_case(void **state) {
    static const char *const cases[][2] = {
        {"[1]", "{\"input\": \"[1]\"}"},
        {"rm -rf", "{\"input\": \"rm -rf\"}"},
        {"null", "{}"},
        {"{\\\"a\\\":1,\\\"a\\\":2}", "{\"a\": 2}"},
        {"{\\\"a\\\":\\\"x\\\\u0000\\\\ud83d\\\"}", "{\"a\": \"x\xEF\xBF\xBD\xEF\xBF\xBD\"}"},
        {"{\\\"a\\\":\\\"b c", "{\"a\": \"b c\"}"},
        {"{\\\"a\\\":[1,{\\\"b\\\":tr", "{\"a\": [1, {\"b\": null}]}"},
        {"{\\\"a\\\":1,\\\"b", "{\"a\": 1, \"b\": null}"},
        {"{\\\"a\\\":1,", "{\"a\": 1}"},
        {"{\\\"a\\\":", "{\"a\": null}"},
        {"{\\\"a\\\":\\\"\\\\$x\\n\\\\u12", "{\"a\": \"\\\\$x\\n\"}"},
    };
    static const struct chat_message_form text_form = {.takes_text_arguments = true};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char message[512], seen[512];
        snprintf(message, sizeof(message), CALLS("\"%s\""), cases[i][0]);
        snprintf(seen, sizeof(seen), SEEN("\"\"", "%s"), cases[i][1]);
        expect(message, seen);
    }
    expect_form(&text_form, CALLS("\"{\\\"a\\\": 1.0}\""), SEEN("\"\"", "\"{\\\"a\\\": 1.0}\""));
    expect_form(&text_form, CALLS("{\"a\":1}"), SEEN("\"\"", "\"{\\\"a\\\":1}\""));
    expect_form(&text_form, CALLS("{\"a\":[1,1.0,-0.0,1e5,{\"b\":2.50}]}"),
                SEEN("\"\"", "\"{\\\"a\\\":[1,1.0,-0.0,1e5,{\\\"b\\\":2.5}]}\""));
    expect_form(&text_form, CALLS("\"{\\\"a\\\": 1\""), SEEN("\"\"", "\"{\\\"a\\\":1}\""));
    expect_form(&text_form, CALLS("\"x\""), SEEN("\"\"", "\"{\\\"input\\\": \\\"x\\\"}\""));
}

static void numbers_are_pythons(void **state) {
    expect(CALLS("{\"a\":[1,1.0,-0.0,-0,1e5,1E22,12345678901234567890,-9223372036854775808,0.1]}"),
           SEEN("\"\"", "{\"a\": [1, 1.0, -0.0, 0, 100000.0, 1e+22, 12345678901234567890, "
                        "-9223372036854775808, 0.1]}"));
}

#define CALLED(id, at)                                                                             \
    "{\"id\":\"" id "\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":" at "}}}"
#define CALLS_OF(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define RESULT_SEEN(id, text)                                                                      \
    "{\"role\": \"tool\", \"content\": \"" text "\", \"tool_call_id\": \"" id "\"}"
#define CALL_SEEN(id, at)                                                                          \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " \
    "{\"a\": " at "}}}"
#define CALLS_SEEN(calls)                                                                          \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" calls "]}"

static void ids_are_short_where_the_template_wants_it(void **state) {
    static const struct chat_message_form form = {.takes_short_ids = true,
                                                  .has_null_content = true};
    char *texts[2];
    const char *const bodies[] = {
        "{\"messages\":[" CALLS_OF(CALLED("call_1", "1") "," CALLED("abcdefgh9", "2")) "," RESULT(
            "abcdefgh9", "y") "," RESULT("call_1", "x") "]}",
        "{\"messages\":[" CALLS_OF(
            "{\"function\":{\"name\":\"f\"}}") ",{\"role\":\"tool\",\"content\":\"x\"},{\"role\":"
                                               "\"tool\",\"content\":\"y\"}]}"};
    static const char source[] =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} {% endfor %}"
        "{{ m.tool_call_id if m.tool_call_id }} {% endfor %}";
    for (int i = 0; i < 2; i++)
        texts[i] = render(source, bodies[i], &form);
    char first[16], second[16], third[16], fourth[16];
    assert_int_equal(sscanf(texts[0], "%15s %15s %15s %15s", first, second, third, fourth), 4);
    assert_int_equal(strlen(first), 9);
    assert_string_equal(first, fourth);
    assert_string_equal(second, "abcdefgh9");
    assert_string_equal(third, "abcdefgh9");
    assert_int_equal(sscanf(texts[1], "%15s %15s %15s", first, second, third), 3);
    assert_string_equal(first, second);
    assert_int_equal(strlen(third), 9);
    assert_string_not_equal(first, third);
    free(texts[0]);
    free(texts[1]);
}

static void calls_of_a_turn_are_answered_one_by_one(void **state) {
    static const struct chat_message_form form = {.takes_one_call = true, .has_null_content = true};
    expect_form(
        &form,
        CALLS_OF(CALLED("a", "1") "," CALLED("b", "2") "," CALLED("c", "3")) "," RESULT(
            "b", "y") "," RESULT("a", "x") "," USER_SAYS("ok"),
        "[" CALLS_SEEN(CALL_SEEN("b", "2")) ", " RESULT_SEEN("b", "y") ", " CALLS_SEEN(CALL_SEEN(
            "a",
            "1")) ", " RESULT_SEEN("a",
                                   "x") ", " CALLS_SEEN(CALL_SEEN("c",
                                                                  "3")) ", " USER_SEEN("ok") "]");
}

static void calls_that_share_an_id_are_answered_in_turn(void **state) {
    static const struct chat_message_form form = {.takes_one_call = true, .has_null_content = true};
    expect_form(
        &form,
        CALLS_OF(CALLED("", "1") "," CALLED("", "2")) "," RESULT("", "x") "," RESULT("", "y"),
        "[" CALLS_SEEN(CALL_SEEN("", "1")) ", " RESULT_SEEN("", "x") ", " CALLS_SEEN(
            CALL_SEEN("", "2")) ", " RESULT_SEEN("", "y") "]");
}

static void a_result_without_an_id_gets_that_of_its_call(void **state) {
    static const struct chat_message_form form = {.has_null_content = true};
    expect_form(&form,
                CALLS_OF(CALLED("a", "1") "," CALLED("b", "2")) "," RESULT(
                    "a", "x") ",{\"role\":\"tool\",\"content\":\"y\"}",
                "[" CALLS_SEEN(CALL_SEEN("a", "1") ", " CALL_SEEN("b", "2")) ", " RESULT_SEEN(
                    "a", "x") ", " RESULT_SEEN("b", "y") "]");
}

static void neighbours_are_joined(void **state) {
    static const struct chat_message_form results = {.joins_results = true},
                                          users = {.joins_users = true},
                                          systems = {.joins_systems = true};
    static const char messages[] =
        RESULT("a", "x") "," RESULT("b", "y") "," USER_SAYS("ok") "," USER_SAYS("and");
    expect_form(&results, messages,
                "[" RESULT_SEEN("a", "x\\ny") ", " USER_SEEN("ok") ", " USER_SEEN("and") "]");
    expect_form(&users, messages,
                "[" RESULT_SEEN("a", "x") ", " RESULT_SEEN("b", "y\\n\\nok\\n\\nand") "]");
    expect_form(&systems,
                USER_SAYS("a") ",{\"role\":\"developer\",\"content\":\"1\"},"
                               "{\"role\":\"system\",\"content\":\"2\"}",
                "[{\"role\": \"system\", \"content\": \"1\\n\\n2\"}, " USER_SEEN("a") "]");
}

static void contents_have_the_templates_form(void **state) {
    static const struct chat_message_form parts = {.takes_parts = true},
                                          said = {.takes_no_empty_turn = true},
                                          split = {.splits_words = true, .has_null_content = true};
    expect_form(&parts, USER_SAYS("a"),
                "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]");
    expect_form(&said, "{\"role\":\"assistant\",\"content\":\"\"}," USER_SAYS(""),
                "[{\"role\": \"assistant\", \"content\": \" \"}, " USER_SEEN("") "]");
    expect_form(
        &split, "{\"role\":\"assistant\",\"content\":\"w\",\"tool_calls\":[" CALLED("a", "1") "]}",
        "[{\"role\": \"assistant\", \"content\": \"w\"}, " CALLS_SEEN(CALL_SEEN("a", "1")) "]");
}

static void null_content_is_kept_where_it_means_something(void **state) {
    static const struct chat_message_form null_form = {.has_null_content = true};
    expect_form(&null_form, CALLS("\"{}\""), SEEN("null", "{}"));
    expect("{\"role\":\"assistant\"}", "[{\"role\": \"assistant\", \"content\": \"\"}]");
}

static void tool_results_name_their_call(void **state) {
    expect("{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":\"c1\",\"name\":\"f\"}",
           "[{\"role\": \"tool\", \"content\": \"4\", \"name\": \"f\", \"tool_call_id\": \"c1\"}]");
}

static void reasoning_goes_by_all_its_names(void **state) {
    static const char seen[] =
        "[{\"role\": \"assistant\", \"content\": \"x\", \"reasoning_content\": \"so\", "
        "\"thinking\": \"so\", \"reasoning\": \"so\"}]";
    expect("{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":\"so\"}", seen);
    expect("{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"so\"}", seen);
}

static void an_answer_goes_back_as_it_came(void **state) {
    expect("{\"role\":\"assistant\",\"content\":\"x\",\"refusal\":null,\"audio\":null,"
           "\"function_call\":null,\"tool_calls\":null,\"annotations\":[]}",
           "[{\"role\": \"assistant\", \"content\": \"x\"}]");
    expect("{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[]}",
           "[{\"role\": \"assistant\", \"content\": \"x\"}]");
}

static void for_a_template_without_tools_calls_are_text(void **state) {
    static const struct chat_message_form form = {.writes_calls = true, .writes_results = true};
    expect_form(
        &form,
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
        "\"f\",\"arguments\":\"{}\"}},{\"function\":{\"name\":\"g\",\"arguments\":{\"a\":1}}}"
        "]},{\"role\":\"tool\",\"content\":\"4\"}",
        "[{\"role\": \"assistant\", \"content\": \"<tool_call>\\n{\\\"name\\\": "
        "\\\"f\\\", \\\"arguments\\\": {}}\\n</tool_call>\\n<tool_call>\\n{\\\"name\\\": "
        "\\\"g\\\", \\\"arguments\\\": {\\\"a\\\":1}}\\n</tool_call>\"}, "
        "{\"role\": \"user\", \"content\": \"<tool_response>\\n4\\n</tool_response>\"}]");
}

static void for_a_template_without_tools_they_are_described(void **state) {
    static const struct chat_message_form form = {
        .writes_calls = true, .writes_results = true, .tool_text = "TOOLS"};
    expect_form(&form, USER_SAYS("a") "," USER_SAYS("b"),
                "[" USER_SEEN("TOOLS\\n\\na") ", " USER_SEEN("b") "]");
    expect_form(&form, "{\"role\":\"developer\",\"content\":\"x\"}," USER_SAYS("a"),
                "[{\"role\": \"system\", \"content\": \"x\\n\\nTOOLS\"}, " USER_SEEN("a") "]");
}

static void the_last_content_gets_the_suffix(void **state) {
    static const struct chat_message_form form = {.final_suffix = "|END"};
    expect_form(&form,
                "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}",
                "[{\"role\": \"user\", \"content\": \"a\"}, "
                "{\"role\": \"assistant\", \"content\": \"b|END\"}]");
}

static void roles_of_the_templates_own_go_to_it(void **state) {
    expect("{\"role\":\"observation\",\"name\":\"f\",\"content\":\"4\"},"
           "{\"role\":\"ipython\",\"content\":\"5\",\"tool_call_id\":\"c1\"}",
           "[{\"role\": \"observation\", \"content\": \"4\", \"name\": \"f\"}, "
           "{\"role\": \"ipython\", \"content\": \"5\", \"tool_call_id\": \"c1\"}]");
    expect("{\"role\":\"" NAME_64 "\",\"content\":\"\"}",
           "[{\"role\": \"" NAME_64 "\", \"content\": \"\"}]");
}

static void roles_are_the_servers_words_and_contents_the_clients(void **state) {
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
                               "{\"role\":\"end\",\"content\":\"\"}]}";
    static const char source[] =
        "{{ messages[0].role }}:{{ messages[0].content }}.<|{{ messages[1].role }}|>";
    struct template_arena *arena = template_arena_create(16 << 20);
    struct chat_text text = render_in(arena, source, body, &usual);
    assert_int_equal(text.length, 15);
    assert_memory_equal(text.data, "user:hi.<|end|>", 15);
    assert_int_equal(text.num_client_spans, 2);
    assert_int_equal(text.client_spans[0].begin, 5);
    assert_int_equal(text.client_spans[0].end, 7);
    assert_int_equal(text.client_spans[1].begin, 10);
    assert_int_equal(text.client_spans[1].end, 13);
    template_arena_destroy(arena);
}

static void calls_and_results_of_the_old_form_are_those_of_tools(void **state) {
    static const struct chat_message_form form = {.has_null_content = true};
    expect_form(&form,
                USER_SAYS("a") ",{\"role\":\"assistant\",\"content\":null,\"function_call\":{"
                               "\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"},\"tool_calls\":[]},"
                               "{\"role\":\"function\",\"name\":\"f\",\"content\":null}",
                "[" USER_SEEN("a") ", " CALLS_SEEN(CALL_SEEN(
                    "call00001", "1")) ", {\"role\": \"tool\", \"content\": \"\", \"name\": \"f\", "
                                       "\"tool_call_id\": \"call00001\"}]");
    expect("{\"role\":\"function\",\"name\":\"f\",\"content\":\"4\"}",
           "[{\"role\": \"tool\", \"content\": \"4\", \"name\": \"f\"}]");
}

#define CUSTOM_CALLS(input)                                                                        \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"            \
    "\"custom\",\"custom\":{\"name\":\"f\",\"input\":\"" input "\"}}]}"

static void the_input_of_a_custom_tool_is_an_argument(void **state) {
    static const struct chat_message_form text = {.takes_text_arguments = true},
                                          written = {.writes_calls = true};
    expect(CUSTOM_CALLS("x\\n"), SEEN("\"\"", "{\"input\": \"x\\n\"}"));
    expect(CUSTOM_CALLS("{}"), SEEN("\"\"", "{\"input\": \"{}\"}"));
    expect_form(&text, CUSTOM_CALLS("x\\n"), SEEN("\"\"", "\"{\\\"input\\\": \\\"x\\\\n\\\"}\""));
    expect_form(&written, CUSTOM_CALLS("x\\n"),
                "[{\"role\": \"assistant\", \"content\": \"<tool_call>\\n{\\\"name\\\": \\\"f\\\", "
                "\\\"arguments\\\": {\\\"input\\\": \\\"x\\\\n\\\"}}\\n</tool_call>\"}]");
}

static void content_that_is_not_there_cannot_be_continued(void **state) {
    static const struct chat_message_form form = {.final_suffix = "|END"};
    struct template_arena *arena = template_arena_create(16 << 20);
    struct template_value *out;
    struct api_error err = {0};
    assert_int_equal(make("{\"messages\":[" USER_SAYS("a") ",{\"role\":\"assistant\"}]}", &form,
                          arena, &out, &err),
                     -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "messages[1].content");
    template_arena_destroy(arena);
}

static void more_than_the_arena_holds_is_refused(void **state) {
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    struct api_error err = {0};
    struct template_value *out;
    struct template_arena *arena = template_arena_create(8);
    assert_int_equal(make(body, &usual, arena, &out, &err), -1);
    assert_int_equal(err.status, 400);
    template_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_taken_as_they_are),
        cmocka_unit_test(parts_are_joined_by_line_feeds),
        cmocka_unit_test(developer_is_what_the_template_knows),
        cmocka_unit_test(arguments_become_a_map),
        cmocka_unit_test(arguments_become_an_object_in_any_case),
        cmocka_unit_test(numbers_are_pythons),
        cmocka_unit_test(ids_are_short_where_the_template_wants_it),
        cmocka_unit_test(calls_of_a_turn_are_answered_one_by_one),
        cmocka_unit_test(calls_that_share_an_id_are_answered_in_turn),
        cmocka_unit_test(a_result_without_an_id_gets_that_of_its_call),
        cmocka_unit_test(neighbours_are_joined),
        cmocka_unit_test(contents_have_the_templates_form),
        cmocka_unit_test(null_content_is_kept_where_it_means_something),
        cmocka_unit_test(tool_results_name_their_call),
        cmocka_unit_test(reasoning_goes_by_all_its_names),
        cmocka_unit_test(an_answer_goes_back_as_it_came),
        cmocka_unit_test(for_a_template_without_tools_calls_are_text),
        cmocka_unit_test(for_a_template_without_tools_they_are_described),
        cmocka_unit_test(the_last_content_gets_the_suffix),
        cmocka_unit_test(roles_of_the_templates_own_go_to_it),
        cmocka_unit_test(roles_are_the_servers_words_and_contents_the_clients),
        cmocka_unit_test(calls_and_results_of_the_old_form_are_those_of_tools),
        cmocka_unit_test(the_input_of_a_custom_tool_is_an_argument),
        cmocka_unit_test(content_that_is_not_there_cannot_be_continued),
        cmocka_unit_test(more_than_the_arena_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
