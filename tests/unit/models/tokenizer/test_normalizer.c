#include "models/tokenizer/normalizer.h"
#include "models/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static void run(const struct tokenizer_spec *spec, struct text text, bool continues,
                struct byte_buffer *out) {
    struct normalizer normalizer;
    struct normalizer_scratch scratch = {.budget_bytes = normalizer_budget(text.length)};
    struct error err = {0};
    struct text result;
    if (normalizer_init(spec, &normalizer, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(normalizer_run(&normalizer, &scratch, text, continues, &result), 0);
    byte_buffer_append(out, result.data, result.length);
    normalizer_scratch_finish(&scratch);
    normalizer_finish(&normalizer);
}

static void assert_becomes(const struct tokenizer_spec *spec, const char *text, bool continues,
                           const char *expected) {
    struct byte_buffer out = {0};
    run(spec, (struct text){text, strlen(text)}, continues, &out);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

/* One step, whose fields follow. */
#define ASSERT_BECOMES(text, expected, ...)                                                        \
    assert_becomes(                                                                                \
        &(const struct tokenizer_spec){.num_normalizers = 1, .normalizers = {{__VA_ARGS__}}},      \
        text, false, expected)

static void test_form_c(void **state) {
    ASSERT_BECOMES("plain", "plain", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("e\u0301te\u0301", "\u00e9t\u00e9", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("\u00e9\u4e00 \u0439", "\u00e9\u4e00 \u0439", .kind = NORMALIZER_NFC);
    /* Marks are put in order before they join. */
    ASSERT_BECOMES("q\u0307\u0323", "q\u0323\u0307", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("s\u0307\u0323x", "\u1e69x", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("\u1100\u1161\u11a8", "\uac01", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("\uac00\u11a8", "\uac01", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("\u212b\u2126", "\u00c5\u03a9", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("\u0301e\u0301", "\u0301\u00e9", .kind = NORMALIZER_NFC);
    ASSERT_BECOMES("\ufb01\u00bd", "\ufb01\u00bd", .kind = NORMALIZER_NFC);
}

static void test_form_kc(void **state) {
    ASSERT_BECOMES("\ufb01\u00bd", "fi1\u20442", .kind = NORMALIZER_NFKC);
    ASSERT_BECOMES("\uff21\u3000\uff76\uff9e", "A \u30ac", .kind = NORMALIZER_NFKC);
    ASSERT_BECOMES("a\u00a0b", "a b", .kind = NORMALIZER_NFKC);
}

/* A million marks on one letter, in the worst order: more than a few seconds if it took n squared.
 */
static void test_many_marks(void **state) {
    const struct tokenizer_spec spec = {.num_normalizers = 1,
                                        .normalizers = {{.kind = NORMALIZER_NFC}}};
    struct byte_buffer text = {0}, out = {0};
    byte_buffer_append(&text, "q", 1);
    for (int i = 0; i < 500000; i++)
        byte_buffer_append(&text, "\u0301\u0316", 4);
    run(&spec, (struct text){text.data, text.length}, false, &out);
    assert_int_equal(out.length, text.length);
    assert_memory_equal(out.data, "q\u0316\u0316", 5);
    assert_memory_equal(out.data + out.length - 4, "\u0301\u0301", 4);
    byte_buffer_finish(&text);
    byte_buffer_finish(&out);
}

static void test_lowercase(void **state) {
    /* Characters by themselves: no final sigma. */
    ASSERT_BECOMES("ÀÉ \u0130X \u0391\u03a3", "àé i\u0307x \u03b1\u03c3",
                   .kind = NORMALIZER_LOWERCASE);
}

static void test_strip(void **state) {
    ASSERT_BECOMES(" \u3000a b\n", "a b\n", .kind = NORMALIZER_STRIP, .left = true);
    ASSERT_BECOMES(" a b\u2003\n", " a b", .kind = NORMALIZER_STRIP, .right = true);
    ASSERT_BECOMES(" \n", "", .kind = NORMALIZER_STRIP, .left = true, .right = true);
}

static void test_replace(void **state) {
    ASSERT_BECOMES("a b ", "a\u2581b\u2581", .kind = NORMALIZER_REPLACE, .pattern = {" ", 1},
                   .content = {"\u2581", 3});
    ASSERT_BECOMES("aaa", "ba", .kind = NORMALIZER_REPLACE, .pattern = {"aa", 2},
                   .content = {"b", 1});
    ASSERT_BECOMES("aaa", "", .kind = NORMALIZER_REPLACE, .pattern = {"a", 1});
}

static void test_prepend(void **state) {
    const struct tokenizer_spec spec = {
        .num_normalizers = 2,
        .normalizers = {{.kind = NORMALIZER_PREPEND, .content = {"_", 1}},
                        {.kind = NORMALIZER_REPLACE, .pattern = {" ", 1}, .content = {"_", 1}}}};
    assert_becomes(&spec, "a b", false, "_a_b");
    assert_becomes(&spec, "", false, "");
    assert_becomes(&spec, "a b", true, "a_b");
}

/* Each step makes 256 of every byte, eight steps in a row 2^64. */
static void test_growth_is_bounded(void **state) {
    char many[256];
    struct tokenizer_spec spec = {.num_normalizers = 8};
    struct normalizer normalizer;
    struct normalizer_scratch scratch = {.budget_bytes = normalizer_budget(1)};
    struct error err = {0};
    struct text out = {"x", 1};
    memset(many, 'a', sizeof(many));
    for (int i = 0; i < 8; i++)
        spec.normalizers[i] = (struct normalizer_step){
            .kind = NORMALIZER_REPLACE, .pattern = {"a", 1}, .content = {many, sizeof(many)}};
    assert_int_equal(normalizer_init(&spec, &normalizer, &err), 0);
    assert_int_equal(normalizer_run(&normalizer, &scratch, (struct text){"a", 1}, false, &out),
                     TOKENIZER_TOO_COSTLY);
    assert_int_equal(out.length, 1);
    assert_true(scratch.buffers[0].capacity + scratch.buffers[1].capacity < 4 << 20);
    normalizer_scratch_finish(&scratch);
    normalizer_finish(&normalizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form_c),     cmocka_unit_test(test_form_kc),
        cmocka_unit_test(test_many_marks), cmocka_unit_test(test_lowercase),
        cmocka_unit_test(test_strip),      cmocka_unit_test(test_replace),
        cmocka_unit_test(test_prepend),    cmocka_unit_test(test_growth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
