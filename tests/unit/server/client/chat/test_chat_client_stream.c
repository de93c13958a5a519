/* Streams as servers send them, in pieces of every size, and what is none. */
#include "server/client/chat/chat_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    char text[256];
    int64_t prompt_tokens, completion_tokens;
};

static void on_event(void *context, const struct completion_event *event) {
    struct seen *seen = context;
    size_t length = strlen(seen->text);
    snprintf(seen->text + length, sizeof(seen->text) - length, "%s%.*s|%.*s%s%s;",
             event->reasoning.length > 0 ? "~" : "", (int)event->reasoning.length,
             event->reasoning.data, (int)event->text.length, event->text.data,
             event->finish_reason != NULL ? "!" : "",
             event->finish_reason != NULL ? event->finish_reason : "");
    if (event->prompt_tokens >= 0)
        seen->prompt_tokens = event->prompt_tokens;
    if (event->completion_tokens >= 0)
        seen->completion_tokens = event->completion_tokens;
}

/* Takes the text in pieces of that many bytes; returns the status. */
static int read_pieces(const char *text, size_t piece, struct seen *seen, bool *out_is_done,
                       struct error *err) {
    struct completion_stream stream = {.on_event = on_event, .context = seen};
    size_t length = strlen(text);
    int status = 0;
    *seen = (struct seen){"", -1, -1};
    for (size_t at = 0; at < length && status == 0; at += piece)
        status = completion_stream_take(&stream, text + at,
                                        length - at < piece ? length - at : piece, err);
    *out_is_done = stream.is_done;
    completion_stream_finish(&stream);
    return status;
}

static const char chat[] =
    ": a comment\n"
    "event: x\nid: 7\n"
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n"
    "data:{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\r\n\r\n"
    "data: {\"choices\":[{\"delta\":{\"reasoning\":\"m\"}}]}\n\n"
    "data: {\"choices\":\n"
    "data: [{\"delta\":{\"content\":\"gr\\u00fc\xc3\x9f\"},\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\n"
    "data: [DONE]\n\n"
    "data: not looked at\n\n";

static void test_a_chat_in_pieces(void **state) {
    struct seen seen;
    struct error err;
    bool is_done;
    for (size_t piece = 1; piece <= sizeof(chat); piece++) {
        assert_int_equal(read_pieces(chat, piece, &seen, &is_done, &err), 0);
        assert_string_equal(seen.text, "|;~hm|;~m|;|gr\xc3\xbc\xc3\x9f;|!stop;|;");
        assert_int_equal(seen.prompt_tokens, 5);
        assert_int_equal(seen.completion_tokens, 3);
        assert_true(is_done);
    }
}

static void test_a_completion(void **state) {
    struct seen seen;
    struct error err;
    bool is_done;
    assert_int_equal(
        read_pieces("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
                    "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n"
                    "data: {\"cut",
                    7, &seen, &is_done, &err),
        0);
    assert_string_equal(seen.text, "|a;|b!length;");
    assert_false(is_done);
}

static void check_bad(const char *text, enum error_code code, const char *part) {
    struct seen seen;
    struct error err;
    bool is_done;
    assert_int_equal(read_pieces(text, 5, &seen, &is_done, &err), -1);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, part));
}

static void test_what_is_no_chunk(void **state) {
    struct seen seen;
    struct error err;
    bool is_done;
    check_bad("data: {\"choices\":\n\n", ERROR_SYNTAX, "an event of the stream");
    check_bad("data: 7\n\n", ERROR_SYNTAX, "an event of the stream");
    check_bad("data: \xff\n\n", ERROR_SYNTAX, "an event of the stream");
    check_bad("data: {\"error\":{\"message\":\"no\x7f more\"}}\n\n", ERROR_IO, "no? more");
    check_bad("data: {\"error\":7}\n\n", ERROR_IO, "an error");
    /* Of another kind than they should be: nothing is said. */
    assert_int_equal(read_pieces("data: {\"choices\":7,\"usage\":{\"prompt_tokens\":-1,"
                                 "\"completion_tokens\":1.5}}\n\n"
                                 "data: {\"choices\":[{\"delta\":[],\"text\":\"a\"}]}\n\n"
                                 "data: {\"choices\":[{\"text\":7}]}\n\n",
                                 3, &seen, &is_done, &err),
                     0);
    assert_string_equal(seen.text, "|;|;|;");
    assert_int_equal(seen.prompt_tokens, -1);
    assert_int_equal(seen.completion_tokens, -1);
}

static void test_an_event_without_end(void **state) {
    struct seen seen = {""};
    struct error err;
    struct completion_stream stream = {.on_event = on_event, .context = &seen};
    size_t piece = 1 << 20, taken = 0;
    char *data = malloc(piece);
    assert_non_null(data);
    memset(data, 'x', piece);
    int status = 0;
    while (status == 0 && taken < 2 * COMPLETION_STREAM_MAX_EVENT_BYTES) {
        status = completion_stream_take(&stream, data, piece, &err);
        taken += piece;
    }
    assert_int_equal(status, -1);
    assert_true(taken <= COMPLETION_STREAM_MAX_EVENT_BYTES + piece);
    completion_stream_finish(&stream);
    free(data);
}

static void check_refusal(const char *body, const char *code, const char *message) {
    struct completion_refusal refusal;
    struct byte_buffer buffer = {0};
    byte_buffer_append_text(&buffer, body);
    completion_refusal_read(&buffer, &refusal);
    assert_string_equal(refusal.code, code);
    assert_string_equal(refusal.message, message);
    byte_buffer_finish(&buffer);
}

static void test_refusals(void **state) {
    char text[600], cut[400];
    memset(text, 'x', 599);
    text[599] = '\0';
    snprintf(cut, sizeof(cut), "%.399s", text);
    check_refusal("{\"error\":{\"message\":\"too long\",\"code\":\"context_length_exceeded\"}}",
                  "context_length_exceeded", "too long");
    check_refusal("{\"error\":{\"message\":\"n\x1b[1mo\",\"code\":7}}", "",
                  "{\"error\":{\"message\":\"n?[1mo\",\"code\":7}}");
    check_refusal("{\"error\":{\"message\":\"n\\u001bo\",\"code\":null}}", "", "n?o");
    check_refusal("Bad gateway", "", "Bad gateway");
    check_refusal("{}", "", "{}");
    check_refusal("", "", "");
    check_refusal(text, "", cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chat_in_pieces), cmocka_unit_test(test_a_completion),
        cmocka_unit_test(test_what_is_no_chunk), cmocka_unit_test(test_an_event_without_end),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
