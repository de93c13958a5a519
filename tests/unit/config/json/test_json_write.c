#include "config/base/utf8.h"
#include "config/json/json_write.h"

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

static void check_text(struct byte_buffer *out, const char *expected) {
    byte_buffer_append(out, "", 1);
    assert_false(out->failed);
    assert_string_equal(out->data, expected);
    byte_buffer_finish(out);
}

static void commas_stand_between_values(void **state) {
    struct byte_buffer out = {0};
    json_write_begin_object(&out);
    json_write_text_member(&out, "a", "x:");
    json_write_text_member(&out, "b\"", NULL);
    json_write_key(&out, "list");
    json_write_begin_array(&out);
    json_write_int(&out, -1);
    json_write_bool(&out, true);
    json_write_null(&out);
    json_write_float(&out, 0.5f);
    json_write_string(&out, "{", 1);
    json_write_begin_array(&out);
    json_write_end_array(&out);
    json_write_begin_object(&out);
    json_write_end_object(&out);
    json_write_begin_string(&out);
    byte_buffer_append_text(&out, "plain");
    json_write_end_string(&out);
    json_write_end_array(&out);
    json_write_int_member(&out, "n", 7);
    json_write_begin_string(&out);
    byte_buffer_append_text(&out, "key");
    json_write_end_string(&out);
    json_write_end_key(&out);
    json_write_bool(&out, false);
    json_write_raw_member(&out, "raw", "[1,{}]");
    json_write_end_object(&out);
    check_text(&out,
               "{\"a\":\"x:\",\"b\\\"\":null,\"list\":[-1,true,null,0.5,\"{\",[],{},\"plain\"],"
               "\"n\":7,\"key\":false,\"raw\":[1,{}]}");
}

static void items_of_a_buffer_become_an_array_or_members(void **state) {
    struct byte_buffer out = {0}, items = {0};
    const struct byte_buffer empty = {0};
    json_write_int(&items, 1);
    json_write_int(&items, 2);
    json_write_begin_object(&out);
    json_write_array_member(&out, "none", NULL);
    json_write_array_member(&out, "empty", &empty);
    json_write_array_member(&out, "items", &items);
    json_write_items(&out, &empty);
    byte_buffer_clear(&items);
    json_write_int_member(&items, "m", 3);
    json_write_string_member(&items, "s", &empty);
    json_write_items(&out, &items);
    json_write_items(&out, &items);
    json_write_end_object(&out);
    byte_buffer_finish(&items);
    check_text(
        &out, "{\"none\":null,\"empty\":[],\"items\":[1,2],\"m\":3,\"s\":\"\",\"m\":3,\"s\":\"\"}");
}

static void a_value_behind_white_space_begins_anew(void **state) {
    struct byte_buffer out = {0};
    byte_buffer_append_text(&out, "data: ");
    json_write_int(&out, 1);
    byte_buffer_append_text(&out, "\n\n");
    json_write_text(&out, "x");
    check_text(&out, "data: 1\n\n\"x\"");
}

static void a_full_buffer_takes_no_more(void **state) {
    struct byte_buffer out = {.max_length = 8};
    json_write_begin_array(&out);
    for (int i = 0; i < 100; i++)
        json_write_int(&out, 11);
    json_write_end_array(&out);
    assert_true(out.failed && out.is_full);
    assert_true(out.length <= 8);
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(invalid_bytes_become_replacement_characters),
        cmocka_unit_test(output_is_always_valid_utf8),
        cmocka_unit_test(floats_are_short_and_finite),
        cmocka_unit_test(floats_round_trip),
        cmocka_unit_test(commas_stand_between_values),
        cmocka_unit_test(items_of_a_buffer_become_an_array_or_members),
        cmocka_unit_test(a_value_behind_white_space_begins_anew),
        cmocka_unit_test(a_full_buffer_takes_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
