#include "config/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void characters_are_those_of_rfc_3629(void **state) {
    assert_int_equal(utf8_char_bytes("", 0), 0);
    assert_int_equal(utf8_char_bytes("\0", 1), 1);
    assert_int_equal(utf8_char_bytes("\x7F\x80", 2), 1);
    assert_int_equal(utf8_char_bytes("\x80", 1), 0);
    assert_int_equal(utf8_char_bytes("\xC1\xBF", 2), 0);
    assert_int_equal(utf8_char_bytes("\xC2\x80", 2), 2);
    assert_int_equal(utf8_char_bytes("\xC2\x80", 1), 0);
    assert_int_equal(utf8_char_bytes("\xE0\x9F\xBF", 3), 0);
    assert_int_equal(utf8_char_bytes("\xE0\xA0\x80", 3), 3);
    assert_int_equal(utf8_char_bytes("\xED\x9F\xBF", 3), 3);
    assert_int_equal(utf8_char_bytes("\xED\xA0\x80", 3), 0); /* a surrogate */
    assert_int_equal(utf8_char_bytes("\xE2\x82\x41", 3), 0);
    assert_int_equal(utf8_char_bytes("\xF0\x8F\xBF\xBF", 4), 0);
    assert_int_equal(utf8_char_bytes("\xF0\x9F\x98\x80", 4), 4);
    assert_int_equal(utf8_char_bytes("\xF0\x9F\x98", 3), 0);
    assert_int_equal(utf8_char_bytes("\xF4\x8F\xBF\xBF", 4), 4);
    assert_int_equal(utf8_char_bytes("\xF4\x90\x80\x80", 4), 0);
    assert_int_equal(utf8_char_bytes("\xF5\x80\x80\x80", 4), 0);
}

static void characters_are_encoded_and_decoded(void **state) {
    static const struct {
        uint32_t character;
        const char *bytes;
    } cases[] = {{0, ""},
                 {0x41, "A"},
                 {0x7F, "\x7F"},
                 {0x80, "\xC2\x80"},
                 {0x7FF, "\xDF\xBF"},
                 {0x800, "\xE0\xA0\x80"},
                 {0xFFFD, UTF8_REPLACEMENT},
                 {0xFFFF, "\xEF\xBF\xBF"},
                 {0x10000, "\xF0\x90\x80\x80"},
                 {0x10FFFF, "\xF4\x8F\xBF\xBF"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char bytes[UTF8_MAX_BYTES] = {0};
        size_t length = utf8_encode(cases[i].character, bytes);
        assert_memory_equal(bytes, cases[i].bytes, length);
        assert_int_equal(length, i == 0 ? 1 : strlen(cases[i].bytes));
        assert_int_equal(utf8_char_bytes(bytes, length), length);
        assert_int_equal(utf8_decode(bytes, length), cases[i].character);
    }
}

static void lead_and_second_byte_decide_a_character(void **state) {
    for (int lead = 0; lead < 256; lead++) {
        size_t length = utf8_lead_bytes((unsigned char)lead);
        assert_int_equal(utf8_continues((char)lead), lead >= 0x80 && lead < 0xC0);
        for (int second = 0; length > 1 && second < 256; second++) {
            char bytes[] = {(char)lead, (char)second, (char)0x80, (char)0x80};
            bool fits = utf8_second_fits((unsigned char)lead, (unsigned char)second);
            assert_int_equal(utf8_char_bytes(bytes, sizeof(bytes)), fits ? length : 0);
        }
    }
}

static void valid_prefix_ends_before_the_first_bad_byte(void **state) {
    assert_int_equal(utf8_valid_prefix("", 0), 0);
    assert_int_equal(utf8_valid_prefix("plain text of many bytes", 24), 24);
    assert_int_equal(utf8_valid_prefix("plain text\xFFof", 13), 10);
    assert_int_equal(utf8_valid_prefix("12345678\xE2\x82\xAC\xE2\x82", 13), 11);
}

static void controls_are_hidden(void **state) {
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"", ""},
        {"plain \u00e9\u4e2d", "plain \u00e9\u4e2d"},
        {"a\033[2J\nb\tc\177", "a?[2J?b?c?"},
        {"\xc2\x9b"
         "1m\x9b\xff",
         "??1m??"},
        {"\u202eabc\u2066", "???abc???"},
        {"cut \xe4\xb8", "cut ??"},
    };
    char text[32];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        strcpy(text, cases[i].text);
        utf8_hide_controls(text, strlen(text));
        assert_string_equal(text, cases[i].shown);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_those_of_rfc_3629),
        cmocka_unit_test(characters_are_encoded_and_decoded),
        cmocka_unit_test(lead_and_second_byte_decide_a_character),
        cmocka_unit_test(valid_prefix_ends_before_the_first_bad_byte),
        cmocka_unit_test(controls_are_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
