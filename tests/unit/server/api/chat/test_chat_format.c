/* Events into a choice, and the JSON that is written of it. */
#include "server/api/chat/chat_format.h"

#include "server/api/call/logprob_format.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static const struct chat_choice_config plain = {.allows_parallel = true};
static const struct chat_choice_config hermes = {
    .parser = {.tools = TOOL_CALL_FORMAT_HERMES, .reasoning = REASONING_FORMAT_THINK},
    .allows_parallel = true,
};

static void begin(struct chat_choice *choice, const struct chat_choice_config *config) {
    *choice = (struct chat_choice){0};
    chat_choice_init(choice, config);
}

static void say(struct chat_choice *choice, const char *text, enum finish_reason finish) {
    const struct token_event event = {.kind = TOKEN_EVENT_TEXT,
                                      .text = text,
                                      .text_bytes = strlen(text),
                                      .finish = finish,
                                      .num_generated = 7,
                                      .stop_token = -1,
                                      .stop_string = -1};
    assert_int_equal(chat_choice_add(choice, &event), 0);
}

/* Replaces the random ids of calls by their numbers. */
static void number_ids(struct chat_choice *choice) {
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        if (choice->tool_calls[i].is_begun)
            continue;
        assert_int_equal(strlen(choice->tool_calls[i].id), 29);
        assert_memory_equal(choice->tool_calls[i].id, "call_", 5);
        assert_int_equal(strspn(choice->tool_calls[i].id + 5, "0123456789abcdef"), 24);
        choice->tool_calls[i].id[5] = (char)('0' + i);
        choice->tool_calls[i].id[6] = '\0';
    }
}

typedef void (*writer)(const struct chat_choice_view *view, struct byte_buffer *out);

static void expect(writer write, struct chat_choice_view view, const char *expected) {
    static const struct api_call_finish none = {.stop_token = -1};
    struct byte_buffer out = {0};
    if (view.finish == NULL)
        view.finish = &none;
    write(&view, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

static void expect_delta(struct chat_choice *choice, const char *delta) {
    char expected[512];
    snprintf(expected, sizeof(expected),
             "{\"index\":0,\"delta\":{%s},\"logprobs\":null,\"finish_reason\":null,"
             "\"stop_reason\":null,\"token_ids\":null}",
             delta);
    number_ids(choice);
    expect(chat_format_delta, (struct chat_choice_view){.choice = choice}, expected);
    chat_choice_clear(choice);
}

static void a_whole_message_has_its_content(void **state) {
    struct chat_choice choice;
    const struct api_call_finish finish = {.reason = FINISH_STOP, .stop_token = -1};
    begin(&choice, &plain);
    say(&choice, "Hi \"you\"", FINISH_NONE);
    say(&choice, "!", FINISH_STOP);
    expect(chat_format_choice,
           (struct chat_choice_view){.index = 3, .choice = &choice, .finish = &finish},
           "{\"index\":3,\"message\":{\"role\":\"assistant\",\"content\":\"Hi \\\"you\\\"!\","
           "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,"
           "\"token_ids\":null}");
    chat_choice_finish(&choice);
}

static void nothing_said_is_an_empty_text(void **state) {
    struct chat_choice choice;
    begin(&choice, &hermes);
    say(&choice, "", FINISH_STOP);
    expect(chat_format_choice, (struct chat_choice_view){.choice = &choice},
           "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
           "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":null}");
    chat_choice_finish(&choice);
}

#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

static void a_whole_message_has_its_calls(void **state) {
    struct chat_choice choice;
    const struct api_call_finish finish = {.reason = FINISH_STOP, .stop_token = -1};
    begin(&choice, &hermes);
    say(&choice, "<think>so</think>" CALL, FINISH_STOP);
    number_ids(&choice);
    expect(chat_format_choice,
           (struct chat_choice_view){
               .choice = &choice, .finish = &finish, .finish_reason = "tool_calls"},
           "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,"
           "\"reasoning\":\"so\",\"reasoning_content\":\"so\",\"tool_calls\":[{\"id\":\"call_0\","
           "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}"
           "]},\"logprobs\":null,\"finish_reason\":\"tool_calls\",\"stop_reason\":null,\"token_"
           "ids\":null}");
    chat_choice_finish(&choice);
}

static void reasoning_can_be_hidden(void **state) {
    struct chat_choice choice;
    struct chat_choice_config config = hermes;
    config.hides_reasoning = true;
    begin(&choice, &config);
    say(&choice, "<think>so</think>Yes", FINISH_STOP);
    assert_int_equal(choice.reasoning.length, 0);
    assert_int_equal(choice.num_reasoning_tokens, 7);
    assert_int_equal(choice.content.length, 3);
    chat_choice_finish(&choice);
}

static void one_call_is_kept_where_parallel_ones_are_forbidden(void **state) {
    struct chat_choice choice;
    struct chat_choice_config config = hermes;
    config.allows_parallel = false;
    begin(&choice, &config);
    say(&choice, CALL "\n" CALL, FINISH_STOP);
    assert_int_equal(choice.num_tool_calls, 1);
    assert_int_equal(choice.tool_calls[0].arguments.length, strlen("{\"a\": 1}"));
    chat_choice_finish(&choice);
}

static void a_call_without_arguments_has_an_empty_object(void **state) {
    struct chat_choice choice;
    begin(&choice, &hermes);
    say(&choice, "<tool_call>{\"name\": \"f\"}</tool_call>", FINISH_STOP);
    assert_int_equal(choice.num_tool_calls, 1);
    assert_int_equal(choice.tool_calls[0].arguments.length, 2);
    assert_memory_equal(choice.tool_calls[0].arguments.data, "{}", 2);
    chat_choice_finish(&choice);
}

static void deltas_follow_one_another(void **state) {
    struct chat_choice choice;
    begin(&choice, &plain);
    assert_false(chat_choice_has_output(&choice));
    say(&choice, "a", FINISH_NONE);
    assert_true(chat_choice_has_output(&choice));
    expect_delta(&choice, "\"content\":\"a\"");
    assert_false(chat_choice_has_output(&choice));
    say(&choice, "b", FINISH_NONE);
    expect_delta(&choice, "\"content\":\"b\"");
    say(&choice, "", FINISH_STOP);
    expect_delta(&choice, "");
    chat_choice_finish(&choice);
}

/* A call that a grammar writes comes in parts. */
static void a_call_is_named_in_its_first_delta_only(void **state) {
    struct chat_choice choice;
    struct chat_choice_config forced = hermes;
    forced.parser.is_forced = true;
    begin(&choice, &forced);
    say(&choice, "<tool_call>\n{\"name\": \"f\", \"arguments\": {", FINISH_NONE);
    expect_delta(&choice, "\"tool_calls\":[{\"index\":0,\"id\":\"call_0\",\"type\":\"function\","
                          "\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]");
    say(&choice, "\"a\"", FINISH_NONE);
    expect_delta(&choice,
                 "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"a\\\"\"}}]");
    say(&choice, ": 1}}\n</tool_call>\n" CALL, FINISH_STOP);
    expect_delta(&choice, "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\": 1}\"}},"
                          "{\"index\":1,\"id\":\"call_1\",\"type\":\"function\","
                          "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]");
    assert_false(chat_choice_has_output(&choice));
    chat_choice_finish(&choice);
}

static void one_delta_may_have_all_kinds(void **state) {
    struct chat_choice choice;
    begin(&choice, &hermes);
    say(&choice, "<think>so</think>Well " CALL, FINISH_STOP);
    expect_delta(&choice, "\"reasoning\":\"so\",\"reasoning_content\":\"so\","
                          "\"content\":\"Well\",\"tool_calls\":[{\"index\":0,\"id\":\"call_0\","
                          "\"type\":\"function\",\"function\":{\"name\":\"f\","
                          "\"arguments\":\"{\\\"a\\\": 1}\"}}]");
    chat_choice_finish(&choice);
}

static void the_role_has_a_chunk_of_its_own(void **state) {
    struct byte_buffer out = {0};
    chat_format_role(2, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data,
                        "{\"index\":2,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                        "\"logprobs\":null,\"finish_reason\":null}");
    byte_buffer_finish(&out);
}

static void logprobs_have_bytes_and_the_most_probable_tokens(void **state) {
    const struct token_record records[] = {
        {.token = FAKE_HELLO, .logprob = -0.5f, .first_top = 0, .num_top = 2},
        {.token = 0xC3, .logprob = -1.0f, .first_top = 2, .num_top = 1},
    };
    const struct top_logprob top[] = {{'a', -0.25f}, {'b', -3.0f}, {0xC3, -1.0f}};
    const struct token_event event = {.num_tokens = 2, .tokens = records, .top = top, .num_top = 3};
    struct chat_choice choice;
    begin(&choice, &plain);
    logprob_format_chat(NULL, &event, 1, LOGPROB_NAMES, &choice.logprobs);
    expect(chat_format_delta, (struct chat_choice_view){.choice = &choice, .has_logprobs = true},
           "{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":["
           "{\"token\":\"hello\",\"logprob\":-0.5,\"bytes\":[104,101,108,108,111],"
           "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97]}]},"
           "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1.0,\"bytes\":[195],\"top_logprobs\":["
           "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1.0,\"bytes\":[195]}]}],\"refusal\":null},"
           "\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":null}");
    chat_choice_finish(&choice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_message_has_its_content),
        cmocka_unit_test(nothing_said_is_an_empty_text),
        cmocka_unit_test(a_whole_message_has_its_calls),
        cmocka_unit_test(reasoning_can_be_hidden),
        cmocka_unit_test(one_call_is_kept_where_parallel_ones_are_forbidden),
        cmocka_unit_test(a_call_without_arguments_has_an_empty_object),
        cmocka_unit_test(deltas_follow_one_another),
        cmocka_unit_test(a_call_is_named_in_its_first_delta_only),
        cmocka_unit_test(one_delta_may_have_all_kinds),
        cmocka_unit_test(the_role_has_a_chunk_of_its_own),
        cmocka_unit_test(logprobs_have_bytes_and_the_most_probable_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
