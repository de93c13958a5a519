#include "server/api/call/logprob_list.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(struct logprob_list *list, int32_t token, float logprob,
                const struct top_logprob *top, int num_top) {
    struct token_record record = {.token = token, .logprob = logprob, .num_top = num_top};
    logprob_list_add(list, NULL, &record, top, true);
}

static void assert_items(const struct byte_buffer *items, const char *expected) {
    assert_int_equal(items->length, strlen(expected));
    assert_memory_equal(items->data, expected, items->length);
}

static void zero_logprobs_still_show_the_token(void **state) {
    struct logprob_list list = {0};
    add(&list, 'q', -0.75f, NULL, 0);
    assert_items(&list.top_logprobs, "{\"q\":-0.75}");
    logprob_list_finish(&list);
}

static void own_token_is_added_to_the_top_ones(void **state) {
    static const struct top_logprob top[] = {{'x', -0.5f}, {'y', -1.0f}};
    struct logprob_list list = {0};
    add(&list, 'z', -7.0f, top, 2);
    add(&list, 'y', -1.0f, top, 2);
    assert_items(&list.top_logprobs, "{\"x\":-0.5,\"y\":-1.0,\"z\":-7.0},{\"x\":-0.5,\"y\":-1.0}");
    logprob_list_finish(&list);
}

static void same_text_keeps_the_more_probable(void **state) {
    static const struct top_logprob top[] = {{'a', -0.5f}, {FAKE_OTHER_A, -1.0f}, {'b', -2.0f}};
    struct logprob_list list = {0};
    add(&list, FAKE_OTHER_A, -1.0f, top, 3);
    assert_items(&list.top_logprobs, "{\"a\":-0.5,\"b\":-2.0}");
    logprob_list_finish(&list);
}

static void ids_are_shown_where_they_are_asked_for(void **state) {
    static const struct top_logprob top[] = {{'a', -0.5f}, {FAKE_OTHER_A, -1.0f}, {'b', -2.0f}};
    struct logprob_list list = {.shows_ids = true};
    add(&list, FAKE_OTHER_A, -1.0f, top, 3);
    add(&list, 'z', -3.0f, top, 1);
    assert_items(&list.tokens, "\"token_id:260\",\"token_id:122\"");
    assert_items(&list.text_offset, "0,1");
    assert_items(&list.top_logprobs,
                 "{\"token_id:97\":-0.5,\"token_id:260\":-1.0,\"token_id:98\":-2.0},"
                 "{\"token_id:97\":-0.5,\"token_id:122\":-3.0}");
    logprob_list_finish(&list);
}

static void cut_characters_are_shown_as_bytes(void **state) {
    struct logprob_list list = {0};
    add(&list, 0xE2, -1.0f, NULL, 0); /* the euro sign in three tokens, then an a */
    add(&list, 0x82, -1.0f, NULL, 0);
    add(&list, 0xAC, -1.0f, NULL, 0);
    add(&list, 'a', -1.0f, NULL, 0);
    assert_items(&list.tokens, "\"bytes:\\\\xe2\",\"bytes:\\\\x82\",\"bytes:\\\\xac\",\"a\"");
    assert_items(&list.text_offset, "0,1,1,1");
    logprob_list_finish(&list);
}

static void impossible_tokens_get_the_floor(void **state) {
    struct logprob_list list = {0};
    add(&list, 'a', -INFINITY, NULL, 0);
    add(&list, 'a', NAN, NULL, 0);
    assert_items(&list.token_logprobs, "-9999.0,null");
    assert_items(&list.top_logprobs, "{\"a\":-9999.0},null");
    logprob_list_finish(&list);
}

static void clear_keeps_the_offset(void **state) {
    struct logprob_list list = {0}, other = {0};
    add(&list, FAKE_HELLO, -1.0f, NULL, 0);
    logprob_list_clear(&list);
    assert_true(logprob_list_is_empty(&list));
    add(&list, FAKE_WORLD, -1.0f, NULL, 0);
    assert_items(&list.text_offset, "5");
    logprob_list_append(&other, &list);
    assert_int_equal(other.offset, 11);
    struct byte_buffer out = {0};
    logprob_list_format(&other, &out);
    assert_items(&out, "{\"text_offset\":[5],\"token_logprobs\":[-1.0],\"tokens\":[\" world\"],"
                       "\"top_logprobs\":[{\" world\":-1.0}]}");
    byte_buffer_finish(&out);
    logprob_list_finish(&list);
    logprob_list_finish(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_logprobs_still_show_the_token),
        cmocka_unit_test(own_token_is_added_to_the_top_ones),
        cmocka_unit_test(same_text_keeps_the_more_probable),
        cmocka_unit_test(ids_are_shown_where_they_are_asked_for),
        cmocka_unit_test(cut_characters_are_shown_as_bytes),
        cmocka_unit_test(impossible_tokens_get_the_floor),
        cmocka_unit_test(clear_keeps_the_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
