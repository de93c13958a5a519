#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/sequence/detokenizer.h"
#include "tests/sim/oracle.h"
#include "tests/sim/random_request.h"

#include <stdlib.h>
#include <string.h>

static void push(struct detokenizer *d, const char *bytes, unsigned flags, const char *expected) {
    struct detokenized out;
    assert_int_equal(detokenizer_push(d, bytes, strlen(bytes), flags, &out), 0);
    assert_int_equal(out.text_bytes, strlen(expected));
    assert_memory_equal(out.text, expected, out.text_bytes);
    assert_int_equal(out.stop_string, -1);
}

static void push_stop(struct detokenizer *d, const char *bytes, const char *expected, int stop) {
    struct detokenized out;
    assert_int_equal(detokenizer_push(d, bytes, strlen(bytes), DETOKENIZER_MATCH_STOPS, &out), 0);
    assert_int_equal(out.stop_string, stop);
    assert_int_equal(out.text_bytes, strlen(expected));
    assert_memory_equal(out.text, expected, out.text_bytes);
}

static const struct sampling_params no_stops;

static void test_whole_characters_only(void **state) {
    struct detokenizer d;
    detokenizer_init(&d, &no_stops);
    push(&d, "a\xe2", 0, "a");
    push(&d, "\x82", 0, "");
    push(&d,
         "\xac"
         "b",
         0, "€b");
    push(&d, "\xf0\x9f\x98", 0, "");
    push(&d, "\x80", 0, "😀");
    push(&d, "", DETOKENIZER_FINAL, "");
    detokenizer_finish(&d);
}

/* Expected values: Python, bytes(...).decode(errors="replace"). */
static void test_invalid_bytes(void **state) {
    static const char *const cases[][2] = {
        {"\xff", "\xef\xbf\xbd"},
        {"a\x80z", "a\xef\xbf\xbdz"},
        {"\xe2\x82z", "\xef\xbf\xbdz"},                           /* cut short: one */
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", "\xef\xbf\xbd😀"},        /* begun anew */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"x\xf0\x9f", "x\xef\xbf\xbd"}, /* at the end */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct detokenizer d;
        detokenizer_init(&d, &no_stops);
        push(&d, cases[i][0], DETOKENIZER_FINAL, cases[i][1]);
        detokenizer_finish(&d);
    }
}

/* Any bytes cut anywhere give what decoding them whole gives. */
static void test_random_bytes(void **state) {
    static const unsigned char alphabet[] = {0x41, 0x80, 0x82, 0x9f, 0xa0, 0xac, 0xbf, 0xc0,
                                             0xc3, 0xe0, 0xe2, 0xed, 0xef, 0xf0, 0xf4, 0xf5};
    struct random random = random_from(3);
    for (int round = 0; round < 3000; round++) {
        unsigned char bytes[24];
        char expected[72], text[72];
        size_t used = 0, length = (size_t)random_range(&random, 0, 24);
        for (size_t i = 0; i < length; i++)
            bytes[i] = alphabet[random_range(&random, 0, 15)];
        size_t expected_bytes = oracle_decode(bytes, length, true, expected);
        struct detokenizer d;
        detokenizer_init(&d, &no_stops);
        for (size_t i = 0; i <= length;) {
            size_t n = (size_t)random_range(&random, 1, 4);
            n = n < length - i ? n : length - i;
            struct detokenized out;
            unsigned flags = i + n == length ? DETOKENIZER_FINAL : 0;
            assert_int_equal(detokenizer_push(&d, (char *)bytes + i, n, flags, &out), 0);
            memcpy(text + used, out.text, out.text_bytes);
            used += out.text_bytes;
            i += n > 0 ? n : 1;
        }
        assert_int_equal(used, expected_bytes);
        assert_memory_equal(text, expected, used);
        detokenizer_finish(&d);
    }
}

static const struct stop_string two_stops[] = {{"END", 3}, {"\n\n", 2}};

static void test_stop_across_tokens(void **state) {
    struct sampling_params params = {.num_stop_strings = 2, .stop_strings = two_stops};
    struct detokenizer d;
    detokenizer_init(&d, &params);
    push(&d, "one E", DETOKENIZER_MATCH_STOPS, "one ");
    push(&d, "N", DETOKENIZER_MATCH_STOPS, "");
    push(&d, "T E", DETOKENIZER_MATCH_STOPS, "ENT "); /* it was not one */
    push(&d, "N", DETOKENIZER_MATCH_STOPS, "");
    push_stop(&d, "Dxyz", "", 0);
    detokenizer_finish(&d);
}

static void test_held_text_is_released_at_the_end(void **state) {
    struct sampling_params params = {.num_stop_strings = 2, .stop_strings = two_stops};
    struct detokenizer d;
    detokenizer_init(&d, &params);
    push(&d, "a\n", DETOKENIZER_MATCH_STOPS, "a");
    push(&d, "EN", DETOKENIZER_MATCH_STOPS, "\n");
    push(&d, "\xe2", DETOKENIZER_MATCH_STOPS | DETOKENIZER_FINAL, "EN\xef\xbf\xbd");
    detokenizer_finish(&d);
}

static void test_include_stop_string(void **state) {
    struct sampling_params params = {
        .num_stop_strings = 2, .stop_strings = two_stops, .include_stop_string = true};
    struct detokenizer d;
    detokenizer_init(&d, &params);
    push(&d, "xE", DETOKENIZER_MATCH_STOPS, "x");
    push_stop(&d, "NDy", "END", 0);
    detokenizer_finish(&d);
}

static void test_first_to_end_wins_then_the_longest(void **state) {
    static const struct stop_string stops[] = {{"c", 1}, {"abcd", 4}, {"bc", 2}};
    struct sampling_params params = {.num_stop_strings = 3, .stop_strings = stops};
    struct detokenizer d;
    detokenizer_init(&d, &params);
    push_stop(&d, "xabcd", "xa", 2);
    detokenizer_finish(&d);
}

/* The first min_tokens tokens cannot complete a stop string, but may begin one. */
static void test_unmatched_text_can_begin_a_stop(void **state) {
    struct sampling_params params = {.num_stop_strings = 2, .stop_strings = two_stops};
    struct detokenizer d;
    detokenizer_init(&d, &params);
    push(&d, "END EN", 0, "END ");
    push_stop(&d, "D", "", 0);
    detokenizer_finish(&d);
}

static void test_stop_of_a_split_character(void **state) {
    static const struct stop_string stops[] = {{"é€", 5}};
    struct sampling_params params = {.num_stop_strings = 1, .stop_strings = stops};
    struct detokenizer d;
    detokenizer_init(&d, &params);
    push(&d, "a\xc3", DETOKENIZER_MATCH_STOPS, "a");
    push(&d, "\xa9\xe2\x82", DETOKENIZER_MATCH_STOPS, "");
    push_stop(&d, "\xac", "", 0);
    detokenizer_finish(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_characters_only),
        cmocka_unit_test(test_invalid_bytes),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_stop_across_tokens),
        cmocka_unit_test(test_held_text_is_released_at_the_end),
        cmocka_unit_test(test_include_stop_string),
        cmocka_unit_test(test_first_to_end_wins_then_the_longest),
        cmocka_unit_test(test_unmatched_text_can_begin_a_stop),
        cmocka_unit_test(test_stop_of_a_split_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
