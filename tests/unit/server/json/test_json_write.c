#include "config/base/utf8.h"
#include "server/json/json_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_string(const char *in, size_t length, const char *expected) {
    struct byte_buffer out = {0};
    json_write_string(&out, in, length);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

static void strings_are_escaped(void **state) {
    check_string("", 0, "\"\"");
    check_string("plain", 5, "\"plain\"");
    check_string("\"\\\b\f\n\r\t", 7, "\"\\\"\\\\\\b\\f\\n\\r\\t\"");
    check_string("a\0b\x1f\x7f", 5, "\"a\\u0000b\\u001f\\u007f\"");
    check_string("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9,
                 "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
}

static void invalid_bytes_become_replacement_characters(void **state) {
    check_string("a\xFFz", 3, "\"a\xEF\xBF\xBDz\"");
    check_string("\xE2\x82", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    check_string("\xC0\x80", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

/* Every string of up to three bytes drawn from the interesting ones comes out as valid UTF-8. */
static void output_is_always_valid_utf8(void **state) {
    static const unsigned char bytes[] = {0x00, 0x22, 0x41, 0x7F, 0x80, 0x8F, 0x9F, 0xA0, 0xBF,
                                          0xC0, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xFF};
    const size_t count = sizeof(bytes);
    for (size_t i = 0; i < count * count * count; i++) {
        char in[3] = {(char)bytes[i % count], (char)bytes[i / count % count],
                      (char)bytes[i / count / count]};
        struct byte_buffer out = {0};
        json_write_string(&out, in, sizeof(in));
        assert_int_equal(utf8_valid_prefix(out.data, out.length), out.length);
        byte_buffer_finish(&out);
    }
}

static void check_float(float value, const char *expected) {
    struct byte_buffer out = {0};
    json_write_float(&out, value);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

static void floats_are_short_and_finite(void **state) {
    check_float(0.5f, "0.5");
    check_float(-3.0f, "-3.0");
    check_float(0.1f, "0.1");
    check_float(-INFINITY, "-9999.0");
    check_float(NAN, "-9999.0");
    check_float(1e-20f, "1e-20");
}

static void floats_round_trip(void **state) {
    uint32_t x = 1;
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        float value;
        memcpy(&value, &x, sizeof(value));
        if (!isfinite(value))
            continue;
        struct byte_buffer out = {0};
        json_write_float(&out, value);
        byte_buffer_append(&out, "", 1);
        assert_true(strtof(out.data, NULL) == value);
        byte_buffer_finish(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(invalid_bytes_become_replacement_characters),
        cmocka_unit_test(output_is_always_valid_utf8),
        cmocka_unit_test(floats_are_short_and_finite),
        cmocka_unit_test(floats_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
