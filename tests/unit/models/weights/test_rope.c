/* Tables against what Hugging Face Transformers computes (rope_cases.txt, written by
 * scripts/golden/make_rope_cases.py). */
#include "models/weights/rope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 64, NUM_ROWS = 3 };

static const char *cases_path;

struct rope_case {
    char name[32];
    struct rope_config rope;
    int32_t rotary_dim;
    int32_t max_model_len;
    int32_t positions[NUM_ROWS];
    float rows[NUM_ROWS][MAX_DIM];
};

static void read_numbers(FILE *file, int32_t count, float *out) {
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(fscanf(file, "%f", &out[i]), 1);
}

static void read_list(FILE *file, const char *key, int32_t count, float *out) {
    char found[32];
    assert_int_equal(fscanf(file, "%31s", found), 1);
    assert_string_equal(found, key);
    read_numbers(file, count, out);
}

/* False at the end of the file. */
static bool read_case(FILE *file, struct rope_case *out) {
    int scaling;
    float fields[11];
    *out = (struct rope_case){0};
    if (fscanf(file, " case %31s %d", out->name, &scaling) != 2)
        return false;
    read_numbers(file, 11, fields);
    out->rotary_dim = (int32_t)fields[0];
    out->max_model_len = (int32_t)fields[1];
    assert_in_range(out->rotary_dim, 2, MAX_DIM);
    out->rope = (struct rope_config){
        .scaling = (enum rope_scaling)scaling,
        .original_max_position = (int32_t)fields[2],
        .theta = fields[3],
        .attention_factor = fields[4],
        .factor = fields[5],
        .beta_fast = fields[6],
        .beta_slow = fields[7],
        .truncate = fields[8] != 0.0F,
        .low_freq_factor = fields[9],
        .high_freq_factor = fields[10],
    };
    read_list(file, "short_factor", out->rotary_dim / 2, out->rope.short_factors);
    read_list(file, "long_factor", out->rotary_dim / 2, out->rope.long_factors);
    for (int r = 0; r < NUM_ROWS; r++) {
        assert_int_equal(fscanf(file, " row %d", &out->positions[r]), 1);
        read_numbers(file, out->rotary_dim, out->rows[r]);
    }
    return true;
}

/* At position 1 the sine is the frequency. Further out a frequency's last bit grows with the
 * position. */
static void check_case(const struct rope_case *c) {
    size_t dim = (size_t)c->rotary_dim;
    float *table = malloc((size_t)c->max_model_len * dim * sizeof(float));
    assert_non_null(table);
    rope_fill_table(&c->rope, c->rotary_dim, c->max_model_len, 0, c->max_model_len, table);
    for (int r = 0; r < NUM_ROWS; r++) {
        for (size_t i = 0; i < dim; i++) {
            size_t position = (size_t)c->positions[r];
            double got = table[position * dim + i], want = c->rows[r][i];
            double allowed = position == 1 ? 1e-6 * fabs(want) : 2e-7 * (double)position;
            if (!(fabs(got - want) <= allowed))
                fail_msg("%s, position %zu, element %zu: %.9g, Transformers has %.9g", c->name,
                         position, i, got, want);
        }
    }
    free(table);
}

static void test_against_transformers(void **state) {
    struct rope_case c;
    int num_cases = 0;
    bool seen[ROPE_SCALING_LONGROPE + 1] = {false};
    FILE *file = fopen(cases_path, "r");
    assert_non_null(file);
    for (; read_case(file, &c); num_cases++) {
        check_case(&c);
        seen[c.rope.scaling] = true;
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(num_cases, 12);
    for (int scaling = 0; scaling <= ROPE_SCALING_LONGROPE; scaling++)
        assert_true(seen[scaling]);
}

static void test_position_0_does_not_turn(void **state) {
    float table[8 * 3];
    const struct rope_config rope = {.theta = 10000.0F, .attention_factor = 1.5F};
    rope_fill_table(&rope, 8, 3, 0, 3, table);
    for (int i = 0; i < 4; i++) {
        assert_true(table[i] == 1.5F);
        assert_true(table[4 + i] == 0.0F);
    }
}

/* The factor of the list that is used. */
static void test_factor_of_the_short_list(void **state) {
    struct rope_config rope = {.theta = 10000.0F,
                               .scaling = ROPE_SCALING_LONGROPE,
                               .original_max_position = 2,
                               .attention_factor = 1.5F,
                               .short_attention_factor = 1.25F,
                               .short_factors = {1.0F, 1.0F, 1.0F, 1.0F},
                               .long_factors = {1.0F, 1.0F, 1.0F, 1.0F}};
    float table[8];
    rope_fill_table(&rope, 8, 2, 0, 1, table);
    assert_true(table[0] == 1.25F);
    rope_fill_table(&rope, 8, 3, 0, 1, table);
    assert_true(table[0] == 1.5F);
    rope.short_attention_factor = 0.0F;
    rope_fill_table(&rope, 8, 2, 0, 1, table);
    assert_true(table[0] == 1.5F);
}

/* Piece by piece it is the same table, though the frequencies depend on its length. */
static void test_a_piece_of_a_table(void **state) {
    const struct rope_config rope = {.theta = 10000.0F,
                                     .attention_factor = 1.0F,
                                     .scaling = ROPE_SCALING_DYNAMIC,
                                     .factor = 2.0F,
                                     .original_max_position = 5};
    float whole[20 * 8], piece[6 * 8];
    rope_fill_table(&rope, 8, 20, 0, 20, whole);
    rope_fill_table(&rope, 8, 20, 14, 6, piece);
    assert_memory_equal(piece, whole + 14 * 8, sizeof(piece));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_transformers),
        cmocka_unit_test(test_position_0_does_not_turn),
        cmocka_unit_test(test_factor_of_the_short_list),
        cmocka_unit_test(test_a_piece_of_a_table),
    };
    if (argc < 2)
        return 1;
    cases_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
