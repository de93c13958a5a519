/* Which tokens mark the parts of a text with a gap. */
#include "models/tokenizer/tokenizer.h"

#include "tests/unit/models/tokenizer/tokenizer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define FIRST 256 /* behind the bytes */

static void expect(struct fixture_spec spec, int32_t prefix, int32_t suffix, int32_t middle) {
    struct fixture fixture;
    struct error err = {0};
    if (fixture_open(&spec, &fixture, &err) != 0)
        fail_msg("%s", err.message);
    const int32_t *fim = tokenizer_fim(fixture.tokenizer);
    if (prefix < 0) {
        assert_null(fim);
    } else {
        assert_non_null(fim);
        assert_int_equal(fim[FIM_PREFIX], prefix);
        assert_int_equal(fim[FIM_SUFFIX], suffix);
        assert_int_equal(fim[FIM_MIDDLE], middle);
    }
    fixture_close(&fixture);
}

static void every_family_is_known(void **state) {
    static const char *const names[][3] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
        {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
        {"<PRE>", "<SUF>", "<MID>"},
        {"▁<PRE>", "▁<SUF>", "▁<MID>"},
        {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
        {"<|prefix|>", "<|suffix|>", "<|middle|>"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (int type = 1; type <= 4; type += type == 1 ? 2 : 1) {
            const struct fixture_token tokens[] = {
                {names[i][2], type}, {"<s>", 3}, {names[i][0], type}, {names[i][1], type}};
            expect((struct fixture_spec){.num_tokens = 4, .tokens = tokens}, FIRST + 2, FIRST + 3,
                   FIRST);
        }
    }
}

static void two_of_three_are_none(void **state) {
    static const struct fixture_token tokens[] = {
        {"<fim_prefix>", 3}, {"<fim_suffix>", 3}, {"<|fim_middle|>", 3}};
    expect((struct fixture_spec){.num_tokens = 3, .tokens = tokens}, -1, -1, -1);
    expect((struct fixture_spec){.num_tokens = 0}, -1, -1, -1);
}

static void keys_go_before_names(void **state) {
    static const struct fixture_token tokens[] = {
        {"<fim_prefix>", 3}, {"<fim_suffix>", 3}, {"<fim_middle>", 3}, {"<p>", 3}, {"<q>", 3}};
    static const char *const keys[] = {"tokenizer.ggml.fim_pre_token_id",
                                       "tokenizer.ggml.fim_suf_token_id",
                                       "tokenizer.ggml.fim_mid_token_id"};
    static const char *const older[] = {"tokenizer.ggml.prefix_token_id",
                                        "tokenizer.ggml.suffix_token_id",
                                        "tokenizer.ggml.middle_token_id"};
    static const char *const both[] = {"tokenizer.ggml.prefix_token_id",
                                       "tokenizer.ggml.fim_pre_token_id"};
    static const uint32_t ids[] = {FIRST + 3, FIRST + 4, FIRST + 2};
    struct fixture_spec spec = {
        .num_tokens = 5, .tokens = tokens, .num_ids = 3, .id_keys = keys, .ids = ids};
    expect(spec, FIRST + 3, FIRST + 4, FIRST + 2);
    spec.id_keys = older;
    expect(spec, FIRST + 3, FIRST + 4, FIRST + 2);
    spec.id_keys = both; /* the newer one counts; the others follow from their names */
    spec.num_ids = 2;
    expect(spec, FIRST + 4, FIRST + 1, FIRST + 2);
    spec.id_keys = keys;
    spec.ids = (const uint32_t[]){1000000}; /* counts as missing */
    spec.num_ids = 1;
    expect(spec, FIRST, FIRST + 1, FIRST + 2);
}

static void expect_marks(struct fixture_spec spec, const int32_t marks[NUM_FIM_MARKS],
                         const int32_t *ends, int num_ends) {
    struct fixture fixture;
    struct error err = {0};
    int count;
    if (fixture_open(&spec, &fixture, &err) != 0)
        fail_msg("%s", err.message);
    const int32_t *found = tokenizer_fim_ends(fixture.tokenizer, &count);
    assert_memory_equal(tokenizer_fim_marks(fixture.tokenizer), marks,
                        NUM_FIM_MARKS * sizeof(int32_t));
    assert_int_equal(count, num_ends);
    assert_memory_equal(found, ends, (size_t)num_ends * sizeof(int32_t));
    fixture_close(&fixture);
}

/* What is the end of every text needs no second mention. */
static void other_tokens_end_what_fills_a_gap(void **state) {
    static const struct fixture_token tokens[] = {
        {"<|fim_prefix|>", 3}, {"<|fim_suffix|>", 3}, {"<|fim_middle|>", 3},
        {"<|file_sep|>", 3},   {"<|endoftext|>", 3},  {"<|repo_name|>", 1},
        {"<|fim_pad|>", 4},    {"▁<EOT>", 1},         {"[PAD]", 1}};
    static const char *const keys[] = {"tokenizer.ggml.fim_sep_token_id"};
    static const uint32_t ids[] = {FIRST + 8};
    const int32_t marks[] = {FIRST + 6, FIRST + 5, FIRST + 3};
    const int32_t ends[] = {FIRST + 6, FIRST + 8, FIRST + 5, FIRST + 3, FIRST + 7};
    struct fixture_spec spec = {.num_tokens = 9, .tokens = tokens};
    expect_marks(spec, marks, ends, 5);
    spec.num_ids = 1;
    spec.id_keys = keys;
    spec.ids = ids;
    expect_marks(spec, (const int32_t[]){FIRST + 6, FIRST + 5, FIRST + 8}, ends, 5);
    spec.ids = (const uint32_t[]){1000000};
    expect_marks(spec, marks, ends, 5);
    spec.tokens = tokens + 1; /* a model that fills no gaps */
    spec.num_tokens = 8;
    expect_marks(spec, (const int32_t[]){FIRST + 5, FIRST + 4, FIRST + 2}, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_known),
        cmocka_unit_test(two_of_three_are_none),
        cmocka_unit_test(keys_go_before_names),
        cmocka_unit_test(other_tokens_end_what_fills_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
