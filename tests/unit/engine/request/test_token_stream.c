#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/request/token_stream.h"

#include <stdio.h>
#include <string.h>

static void test_event_survives_the_trip(void **state) {
    struct token_stream stream;
    struct token_buffer buffer = {0};
    token_stream_init(&stream);
    struct token_record tokens[] = {{5, -0.5f, 3, 0, 2}, {6, -1.5f, 1, 2, 1}};
    struct top_logprob top[] = {{5, -0.5f}, {9, -2.0f}, {6, -1.5f}};
    char text[] = "hällo";
    struct token_event event = {
        .kind = TOKEN_EVENT_TEXT,
        .choice = 3,
        .text = text,
        .text_bytes = strlen(text),
        .num_tokens = 2,
        .tokens = tokens,
        .top = top,
        .num_top = 3,
        .finish = FINISH_STOP,
        .stop_token = 42,
        .stop_string = -1,
        .num_generated = 17,
        .num_cached_tokens = 4,
    };
    assert_int_equal(token_stream_push(&stream, &event), 0);
    memset(tokens, 0, sizeof(tokens));
    memset(top, 0, sizeof(top));
    memset(text, 'x', sizeof(text));

    token_stream_take(&stream, &buffer);
    assert_int_equal(token_stream_pending_bytes(&stream), 0);
    struct token_event out;
    assert_true(token_buffer_next(&buffer, &out));
    assert_int_equal(out.kind, TOKEN_EVENT_TEXT);
    assert_int_equal(out.choice, 3);
    assert_int_equal(out.text_bytes, strlen("hällo"));
    assert_memory_equal(out.text, "hällo", out.text_bytes);
    assert_int_equal(out.num_tokens, 2);
    assert_int_equal(out.tokens[1].token, 6);
    assert_int_equal(out.tokens[1].first_top, 2);
    assert_int_equal(out.top[1].token, 9);
    assert_int_equal(out.num_top, 3);
    assert_int_equal(out.finish, FINISH_STOP);
    assert_int_equal(out.stop_token, 42);
    assert_int_equal(out.stop_string, -1);
    assert_int_equal(out.num_generated, 17);
    assert_int_equal(out.num_cached_tokens, 4);
    assert_false(token_buffer_next(&buffer, &out));
    token_buffer_finish(&buffer);
    token_stream_finish(&stream);
}

/* Between arrays of other lengths, so that its place in the record counts. */
static void test_embedding_survives_the_trip(void **state) {
    struct token_stream stream;
    struct token_buffer buffer = {0};
    token_stream_init(&stream);
    struct token_record token = {.token = 5};
    float embedding[] = {0.25f, -1, 1e-30f, 3e38f, 7};
    struct token_event event = {
        .kind = TOKEN_EVENT_EMBEDDING,
        .text = "text",
        .text_bytes = 4,
        .num_tokens = 1,
        .tokens = &token,
        .embedding = embedding,
        .num_dimensions = 5,
        .finish = FINISH_STOP,
    };
    assert_int_equal(token_stream_push(&stream, &event), 0);
    event.num_dimensions = 0;
    assert_int_equal(token_stream_push(&stream, &event), 0);
    token_stream_take(&stream, &buffer);
    struct token_event out;
    assert_true(token_buffer_next(&buffer, &out));
    assert_int_equal(out.kind, TOKEN_EVENT_EMBEDDING);
    assert_int_equal(out.num_dimensions, 5);
    assert_memory_equal(out.embedding, embedding, sizeof(embedding));
    assert_int_equal(out.tokens[0].token, 5);
    assert_memory_equal(out.text, "text", 4);
    assert_true(token_buffer_next(&buffer, &out));
    assert_int_equal(out.num_dimensions, 0);
    assert_null(out.embedding);
    assert_memory_equal(out.text, "text", 4);
    token_buffer_finish(&buffer);
    token_stream_finish(&stream);
}

static void push_numbered(struct token_stream *stream, int number) {
    char text[16];
    int length = snprintf(text, sizeof(text), "%d", number);
    struct token_event event = {
        .kind = TOKEN_EVENT_TEXT, .text = text, .text_bytes = (size_t)length, .choice = number};
    assert_int_equal(token_stream_push(stream, &event), 0);
}

/* Texts of all lengths modulo the padding; order is kept over several takes; memory is swapped. */
static void test_order_over_takes(void **state) {
    struct token_stream stream;
    struct token_buffer buffer = {0};
    token_stream_init(&stream);
    int next = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < round * 7; i++)
            push_numbered(&stream, round * 1000 + i);
        token_stream_take(&stream, &buffer);
        struct token_event out;
        for (next = 0; token_buffer_next(&buffer, &out); next++) {
            char text[16];
            int length = snprintf(text, sizeof(text), "%d", round * 1000 + next);
            assert_int_equal(out.choice, round * 1000 + next);
            assert_int_equal(out.text_bytes, length);
            assert_memory_equal(out.text, text, (size_t)length);
        }
        assert_int_equal(next, round * 7);
    }
    token_buffer_finish(&buffer);
    token_stream_finish(&stream);
}

static void test_pending_bytes_show_a_lagging_reader(void **state) {
    struct token_stream stream;
    struct token_buffer buffer = {0};
    token_stream_init(&stream);
    size_t before = 0;
    while (token_stream_pending_bytes(&stream) <= TOKEN_STREAM_STALL_BYTES) {
        push_numbered(&stream, 1);
        assert_true(token_stream_pending_bytes(&stream) > before);
        before = token_stream_pending_bytes(&stream);
    }
    token_stream_take(&stream, &buffer);
    token_stream_take(&stream, &buffer); /* the old content is dropped */
    struct token_event out;
    assert_false(token_buffer_next(&buffer, &out));
    push_numbered(&stream, 2); /* unread events are freed with the stream */
    token_buffer_finish(&buffer);
    token_stream_finish(&stream);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_survives_the_trip),
        cmocka_unit_test(test_embedding_survives_the_trip),
        cmocka_unit_test(test_order_over_takes),
        cmocka_unit_test(test_pending_bytes_show_a_lagging_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
