/* Every byte pair and every way to cut a text: nothing that a terminal obeys comes out. */
#include "server/client/chat/chat_terminal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define R UTF8_REPLACEMENT

static void check(const char *text, const char *expected) {
    size_t length = strlen(text);
    for (size_t piece = 1; piece <= length; piece++) {
        struct terminal_text state = {0};
        struct byte_buffer out = {0};
        for (size_t at = 0; at < length; at += piece)
            terminal_text_write(&state, text + at, length - at < piece ? length - at : piece, &out);
        terminal_text_end(&state, &out);
        assert_int_equal(out.length, strlen(expected));
        assert_memory_equal(out.data, expected, out.length);
        byte_buffer_finish(&out);
    }
}

static void test_texts(void **state) {
    check("plain, gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82\n\tend",
          "plain, gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82\n\tend");
    check("a\r\nb", "a\nb");
    check("\x1b[2J\x1b]0;title\x07\x7f\x08", R "[2J" R "]0;title" R R R);
    check("\xc2\x9b"
          "31m\xc2\x85",
          R "31m" R); /* CSI and NEL of C1 */
    check("\xe2\x80\xae"
          "abc\xe2\x81\xa6",
          R "abc" R); /* RLO and LRI */
    check("\x9b"
          "31m",
          R "31m");
    check("\xe2\x80", R);
    check("\xe2"
          "a\xff\xc0\xaf",
          R "a" R R R);
    check("\xed\xa0\x80", R R R); /* a surrogate */
}

static void test_all_pairs(void **state) {
    for (int first = 0; first < 256; first++) {
        for (int second = 0; second < 256; second++) {
            struct terminal_text text = {0};
            struct byte_buffer out = {0};
            const char bytes[] = {(char)first, (char)second};
            terminal_text_write(&text, bytes, 2, &out);
            terminal_text_end(&text, &out);
            assert_int_equal(utf8_valid_prefix(out.data != NULL ? out.data : "", out.length),
                             out.length);
            for (size_t i = 0; i < out.length; i++) {
                unsigned char byte = (unsigned char)out.data[i];
                assert_true(byte >= 0x20 || byte == '\n' || byte == '\t');
                assert_true(byte != 0x7f);
                assert_false(byte == 0xc2 && (unsigned char)out.data[i + 1] < 0xa0);
            }
            byte_buffer_finish(&out);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_all_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
