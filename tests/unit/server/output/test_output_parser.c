/* Each case gives what it must, and it does so however its text is cut: whole, in two at every
 * byte, byte by byte and at random. What is out after k bytes is the same in all of them, and so is
 * the end of a text that breaks off at any byte. */
#include "server/output/tool_call.h"

#include "tests/unit/server/output/output_cases.h"
#include "tests/unit/server/output/output_render.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TEXT_BYTES 1024

static char *take_text(struct output_render *render) {
    char *text = strndup(render->text.length > 0 ? render->text.data : "", render->text.length);
    assert_non_null(text);
    return text;
}

/* What is out after pushes that end at the given places, the last of which is the text's end. */
static char *render_cut(const struct output_case *test, const size_t *ends, int num_ends,
                        enum output_end how) {
    struct output_render render;
    size_t start = 0;
    output_render_begin(&render, &test->config);
    for (int i = 0; i < num_ends; i++) {
        output_render_push(&render, test->text + start, ends[i] - start, OUTPUT_GOES_ON);
        start = ends[i];
    }
    if (how != OUTPUT_GOES_ON)
        output_render_push(&render, NULL, 0, how);
    char *text = take_text(&render);
    output_render_finish(&render);
    return text;
}

static void expect_cut(const struct output_case *test, const size_t *ends, int num_ends,
                       enum output_end how, const char *expected) {
    char *text = render_cut(test, ends, num_ends, how);
    if (strcmp(text, expected) != 0)
        print_message("of %s\n", test->text);
    assert_string_equal(text, expected);
    free(text);
}

static void cases_come_out_as_they_must(void **state) {
    for (int i = 0; i < num_output_cases; i++) {
        size_t end = strlen(output_cases[i].text);
        assert_true(end < MAX_TEXT_BYTES);
        expect_cut(&output_cases[i], &end, 1, OUTPUT_ENDS, output_cases[i].expected);
    }
}

static void two_pieces_give_what_the_whole_gives(void **state) {
    for (int i = 0; i < num_output_cases; i++) {
        size_t length = strlen(output_cases[i].text);
        for (size_t cut = 0; cut <= length; cut++)
            expect_cut(&output_cases[i], (size_t[]){cut, length}, 2, OUTPUT_ENDS,
                       output_cases[i].expected);
    }
}

/* A prefix's outcome, in one piece, must be what byte by byte has given at that place. */
static void check_prefixes(const struct output_case *test) {
    struct output_render render;
    size_t length = strlen(test->text);
    output_render_begin(&render, &test->config);
    for (size_t end = 1; end <= length; end++) {
        output_render_push(&render, test->text + end - 1, 1, OUTPUT_GOES_ON);
        char *so_far = take_text(&render);
        expect_cut(test, &end, 1, OUTPUT_GOES_ON, so_far);
        free(so_far);
    }
    output_render_push(&render, NULL, 0, OUTPUT_ENDS);
    char *all = take_text(&render);
    assert_string_equal(all, test->expected);
    free(all);
    output_render_finish(&render);
}

static void every_prefix_releases_the_same(void **state) {
    for (int i = 0; i < num_output_cases; i++)
        check_prefixes(&output_cases[i]);
}

static uint32_t random_below(uint32_t *seed, uint32_t bound) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % bound;
}

static int random_ends(uint32_t *seed, size_t length, size_t *ends) {
    int count = 0;
    for (size_t at = 0; at < length;) {
        at += random_below(seed, 12);
        ends[count++] = at < length ? at : length;
    }
    return count;
}

static void random_pieces_give_the_same(void **state) {
    uint32_t seed = 1;
    for (int i = 0; i < num_output_cases; i++) {
        for (int round = 0; round < 20; round++) {
            size_t ends[16 * MAX_TEXT_BYTES];
            int num_ends = random_ends(&seed, strlen(output_cases[i].text), ends);
            expect_cut(&output_cases[i], ends, num_ends, OUTPUT_ENDS, output_cases[i].expected);
        }
    }
}

static void a_text_broken_off_anywhere_ends_the_same(void **state) {
    for (int i = 0; i < num_output_cases; i++) {
        size_t ends[MAX_TEXT_BYTES];
        for (size_t end = 1; end <= strlen(output_cases[i].text); end++) {
            ends[end - 1] = end;
            for (int how = OUTPUT_ENDS; how <= OUTPUT_IS_CUT; how++) {
                char *whole = render_cut(&output_cases[i], &end, 1, (enum output_end)how);
                expect_cut(&output_cases[i], ends, (int)end, (enum output_end)how, whole);
                free(whole);
            }
        }
    }
}

/* Whatever is written, and wherever it ends, no call is out whose arguments are half. */
static void no_call_is_half(void **state) {
    static const char bytes[] = "\\\"'{}[]<>,:`\n tTN$u1/";
    uint32_t seed = 1;
    for (int i = 0; i < num_output_cases; i++) {
        size_t length = strlen(output_cases[i].text);
        for (int round = 0; round < 60 && length > 0 && !output_cases[i].config.is_forced;
             round++) {
            struct output_render render;
            char text[MAX_TEXT_BYTES];
            memcpy(text, output_cases[i].text, length + 1);
            for (int change = 0; change < round % 4; change++)
                text[random_below(&seed, (uint32_t)length)] =
                    bytes[random_below(&seed, sizeof(bytes) - 1)];
            size_t end = round < 4 ? length : random_below(&seed, (uint32_t)length + 1);
            output_render_begin(&render, &output_cases[i].config);
            output_render_push(&render, text, end, round % 2 == 0 ? OUTPUT_ENDS : OUTPUT_IS_CUT);
            if (!output_render_calls_are_whole(&render))
                fail_msg("%s of %s", render.text.data, text);
            output_render_finish(&render);
        }
    }
}

/* A call that is cut is content, and said to be broken where another one is out. What only closes a
 * call may be missing where the model ends, and not where a stop string does. */
static void a_cut_is_no_end(void **state) {
    static const struct {
        struct output_case test;
        bool is_broken;
    } cuts[] = {
        {{{.tools = TOOL_CALL_FORMAT_HERMES},
          "<tool_call>{\"name\":\"f\"}</"
          "tool_call><tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1}",
          "|call 0:f|arguments "
          "0:{}|content:<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1}"},
         true},
        {{{.tools = TOOL_CALL_FORMAT_QWEN3_CODER},
          "<tool_call><function=f><parameter=a>1</parameter>\n",
          "|content:<tool_call><function=f><parameter=a>1</parameter>\n"},
         false},
        {{{.tools = TOOL_CALL_FORMAT_HARMONY},
          "<|channel|>commentary to=functions.f<|message|>{\"a\":",
          "|content:<|channel|>commentary to=functions.f<|message|>{\"a\":"},
         false},
        {{{.tools = TOOL_CALL_FORMAT_HERMES, .is_forced = true},
          "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":",
          "|call 0:f|arguments 0:{\"a\":"},
         true},
        {{{.tools = TOOL_CALL_FORMAT_HERMES},
          "<tool_call>{\"name\":\"f\"}\n",
          "|call 0:f|arguments 0:{}"},
         false},
    };
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        const struct output_case *test = &cuts[i].test;
        struct output_render render;
        output_render_begin(&render, &test->config);
        output_render_push(&render, test->text, strlen(test->text), OUTPUT_IS_CUT);
        char *text = take_text(&render);
        assert_string_equal(text, test->expected);
        assert_int_equal(output_parser_is_broken(render.parser), cuts[i].is_broken);
        free(text);
        output_render_finish(&render);
    }
}

/* A call longer than what is held comes out as it comes, and is said to be broken if it breaks. */
static void a_long_call_comes_out(void **state) {
    static const char start[] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"";
    static const char *const ends[] = {"\"}}</tool_call> x", "\" \"}}"};
    for (int i = 0; i < 2; i++) {
        const struct output_parser_config config = {.tools = TOOL_CALL_FORMAT_HERMES};
        struct output_render render;
        output_render_begin(&render, &config);
        output_render_push(&render, start, strlen(start), OUTPUT_GOES_ON);
        for (int k = 0; k < 70000; k++)
            output_render_push(&render, "x", 1, OUTPUT_GOES_ON);
        assert_int_equal(render.arguments.length, strlen("{\"a\":\"") + 70000);
        output_render_push(&render, ends[i], strlen(ends[i]), OUTPUT_ENDS);
        assert_int_equal(output_parser_is_broken(render.parser), i == 1);
        assert_int_equal(render.content.length, i == 1 ? 3 : 1);
        output_render_finish(&render);
    }
}

/* Each piece releases what is expected of it. */
static void expect_released(enum tool_call_format format, bool is_forced,
                            const char *const pieces[][2], size_t num_pieces) {
    const struct output_parser_config config = {.tools = format, .is_forced = is_forced};
    struct output_render render;
    size_t before = 0;
    output_render_begin(&render, &config);
    for (size_t i = 0; i < num_pieces; i++) {
        output_render_push(&render, pieces[i][0], strlen(pieces[i][0]), OUTPUT_GOES_ON);
        assert_int_equal(render.text.length - before, strlen(pieces[i][1]));
        assert_memory_equal(render.text.data + before, pieces[i][1], strlen(pieces[i][1]));
        before = render.text.length;
    }
    assert_int_equal(output_parser_num_tool_calls(render.parser), 1);
    output_render_finish(&render);
}

/* A forced call: the name once it is certain that a call follows, the arguments as they are
 * written; another one when it is whole. */
static void calls_stream(void **state) {
    static const char *const hermes[][2] = {{"Hi <tool", "|content:Hi"},
                                            {"_call>{\"name\":\"f\"", ""},
                                            {",\"arguments\":", ""},
                                            {"{\"a", "|call 0:f|arguments 0:{\"a"},
                                            {"\":1", "\":"},
                                            {"}", "1}"},
                                            {"}</tool_call", ""}};
    static const char *const free[][2] = {{"Hi <tool_call>{\"name\":\"f\"", "|content:Hi"},
                                          {",\"arguments\":{\"a\":", ""},
                                          {"1}", ""},
                                          {"}", "|call 0:f|arguments 0:{\"a\":1}"},
                                          {"</tool_call>", ""}};
    static const char *const pythonic[][2] = {{"[f(", ""},
                                              {"a=", ""},
                                              {"'", "|call 0:f|arguments 0:{\"a\": \""},
                                              {"x\\", "x"},
                                              {"n", "\\n"},
                                              {"'", ""},
                                              {", b=", "\""},
                                              {"Tru", ""},
                                              {"e", ""},
                                              {",", ", \"b\": true"},
                                              {"c=[1", ", \"c\": ["},
                                              {"2,", "12"},
                                              {"3]", ", 3]"},
                                              {")", "}"},
                                              {"]", ""}};
    expect_released(TOOL_CALL_FORMAT_HERMES, true, hermes, sizeof(hermes) / sizeof(hermes[0]));
    expect_released(TOOL_CALL_FORMAT_HERMES, false, free, sizeof(free) / sizeof(free[0]));
    expect_released(TOOL_CALL_FORMAT_PYTHONIC, true, pythonic,
                    sizeof(pythonic) / sizeof(pythonic[0]));
}

/* A number and the name of an argument have bounds, beyond which they are content. */
static void the_words_of_python_are_bounded(void **state) {
    static const char *const starts[] = {"[f(a=", "[f("};
    static const char *const ends[] = {")]", "=1)]"};
    static const size_t most[] = {320, 1024};
    for (int i = 0; i < 4; i++) {
        const struct output_parser_config config = {.tools = TOOL_CALL_FORMAT_PYTHONIC};
        const char *start = starts[i / 2], *end = ends[i / 2];
        size_t bytes = most[i / 2] + (size_t)(i % 2);
        struct output_render render;
        output_render_begin(&render, &config);
        output_render_push(&render, start, strlen(start), OUTPUT_GOES_ON);
        for (size_t k = 0; k < bytes; k++)
            output_render_push(&render, "9", 1, OUTPUT_GOES_ON);
        output_render_push(&render, end, strlen(end), OUTPUT_ENDS);
        assert_int_equal(output_parser_num_tool_calls(render.parser), 1 - i % 2);
        assert_int_equal(render.content.length,
                         i % 2 == 0 ? 0 : strlen(start) + bytes + strlen(end));
        output_render_finish(&render);
    }
}

static void calls_beyond_the_bound_are_content(void **state) {
    static const char call[] = "<tool_call>{\"name\":\"f\"}</tool_call>";
    const struct output_parser_config config = {.tools = TOOL_CALL_FORMAT_HERMES};
    struct output_render render;
    output_render_begin(&render, &config);
    for (int i = 0; i < OUTPUT_MAX_TOOL_CALLS + 1; i++)
        output_render_push(&render, call, strlen(call), OUTPUT_GOES_ON);
    output_render_push(&render, NULL, 0, OUTPUT_ENDS);
    assert_int_equal(output_parser_num_tool_calls(render.parser), OUTPUT_MAX_TOOL_CALLS);
    assert_int_equal(render.content.length, strlen(call));
    assert_memory_equal(render.content.data, call, strlen(call));
    output_render_finish(&render);
}

static void a_bound_may_be_lower(void **state) {
    static const char text[] = "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\"}]";
    static const char call[] = "<tool_call>{\"name\":\"f\"}</tool_call>";
    struct output_parser_config config = {.tools = TOOL_CALL_FORMAT_HERMES, .max_tool_calls = 1};
    struct output_render render;
    output_render_begin(&render, &config);
    output_render_push(&render, call, strlen(call), OUTPUT_GOES_ON);
    output_render_push(&render, call, strlen(call), OUTPUT_ENDS);
    assert_int_equal(output_parser_num_tool_calls(render.parser), 1);
    assert_int_equal(render.content.length, strlen(call));
    output_render_finish(&render);
    config.tools = TOOL_CALL_FORMAT_MISTRAL;
    output_render_begin(&render, &config);
    output_render_push(&render, text, strlen(text), OUTPUT_ENDS);
    assert_int_equal(output_parser_num_tool_calls(render.parser), 1);
    assert_non_null(memmem(render.content.data, render.content.length, "{\"name\":\"g\"}", 12));
    output_render_finish(&render);
}

/* Arguments in front of the name are held up to a bound, and come out as content beyond it. */
static void what_is_held_is_bounded(void **state) {
    static const char start[] = " <tool_call>{\"arguments\":{\"a\":\"";
    const struct output_parser_config config = {.tools = TOOL_CALL_FORMAT_HERMES};
    struct output_render render;
    output_render_begin(&render, &config);
    output_render_push(&render, start, strlen(start), OUTPUT_GOES_ON);
    size_t bytes = strlen(start);
    for (; render.text.length == 0; bytes++)
        output_render_push(&render, "x", 1, OUTPUT_GOES_ON);
    assert_int_equal(bytes, 65536 + 1);
    assert_int_equal(render.content.length, bytes);
    output_render_push(&render, "y\"", 2, OUTPUT_ENDS);
    assert_int_equal(render.content.length, bytes + 2);
    output_render_finish(&render);
}

static void white_space_held_is_bounded(void **state) {
    const struct output_parser_config config = {.tools = TOOL_CALL_FORMAT_MISTRAL};
    struct output_render render;
    output_render_begin(&render, &config);
    for (int i = 0; i < 70000; i++)
        output_render_push(&render, "\n", 1, OUTPUT_GOES_ON);
    assert_int_equal(render.content.length, 65537);
    output_render_push(&render, NULL, 0, OUTPUT_ENDS);
    assert_int_equal(render.content.length, 70000);
    output_render_finish(&render);
}

static void destroy_takes_null(void **state) {
    output_parser_destroy(NULL);
}

static void names_are_found(void **state) {
    static const char names[] = "a\0bc\0";
    assert_true(tool_call_name_is_listed(names, 2, "a", 1));
    assert_true(tool_call_name_is_listed(names, 2, "bcd", 2));
    assert_false(tool_call_name_is_listed(names, 2, "b", 1));
    assert_false(tool_call_name_is_listed(names, 1, "bc", 2));
    assert_false(tool_call_name_is_listed(NULL, 0, "a", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_come_out_as_they_must),
        cmocka_unit_test(two_pieces_give_what_the_whole_gives),
        cmocka_unit_test(every_prefix_releases_the_same),
        cmocka_unit_test(random_pieces_give_the_same),
        cmocka_unit_test(a_text_broken_off_anywhere_ends_the_same),
        cmocka_unit_test(no_call_is_half),
        cmocka_unit_test(a_cut_is_no_end),
        cmocka_unit_test(a_long_call_comes_out),
        cmocka_unit_test(calls_stream),
        cmocka_unit_test(the_words_of_python_are_bounded),
        cmocka_unit_test(calls_beyond_the_bound_are_content),
        cmocka_unit_test(a_bound_may_be_lower),
        cmocka_unit_test(what_is_held_is_bounded),
        cmocka_unit_test(white_space_held_is_bounded),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(destroy_takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
