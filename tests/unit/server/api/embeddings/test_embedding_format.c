/* Base64 against RFC 4648's test vectors, and by decoding what is longer than a chunk. */
#include "server/api/embeddings/embedding_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *data, const char *expected) {
    struct byte_buffer out = {0};
    byte_buffer_append_text(&out, ">");
    embedding_format_base64(&out, (const unsigned char *)data, strlen(data));
    assert_int_equal(out.length, 1 + strlen(expected));
    assert_memory_equal(out.data + 1, expected, strlen(expected));
    byte_buffer_finish(&out);
}

static void vectors_of_the_standard(void **state) {
    check("", "");
    check("f", "Zg==");
    check("fo", "Zm8=");
    check("foo", "Zm9v");
    check("foob", "Zm9vYg==");
    check("fooba", "Zm9vYmE=");
    check("foobar", "Zm9vYmFy");
    check("\xFB\xFF\xBF", "+/+/");
}

static unsigned value_of(char c) {
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(alphabet, c);
    assert_true(at != NULL && c != '\0');
    return (unsigned)(at - alphabet);
}

/* Every length around the size of a chunk; the bytes are all different from their neighbours. */
static void long_runs_read_back(void **state) {
    unsigned char data[1000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 37 + i / 256);
    for (size_t length = 150; length < sizeof(data); length += length < 400 ? 1 : 97) {
        struct byte_buffer out = {0};
        embedding_format_base64(&out, data, length);
        assert_int_equal(out.length, (length + 2) / 3 * 4);
        for (size_t i = 0; i < length; i++) {
            const char *group = out.data + i / 3 * 4;
            unsigned high = value_of(group[i % 3]), low = value_of(group[i % 3 + 1]);
            unsigned both = high << 6 | low;
            assert_int_equal(both >> (4 - 2 * (i % 3)) & 255, data[i]);
        }
        byte_buffer_finish(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_the_standard),
        cmocka_unit_test(long_runs_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
