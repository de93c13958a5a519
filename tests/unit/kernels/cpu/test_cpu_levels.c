#include "kernels/cpu/levels/cpu_levels.h"

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/levels/cpu_probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_every_supported_level_is_found(void **state) {
    int num_supported = 0;
    for (int i = 0; i < num_cpu_levels; i++) {
        struct error err = {0};
        const struct cpu_level *level = cpu_levels_select(cpu_levels[i].name, &err);
        if (cpu_levels[i].supported()) {
            assert_ptr_equal(level, &cpu_levels[i]);
            struct cpu_kernels kernels;
            cpu_levels_fill(level, &kernels);
            for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
                assert_non_null(kernels.formats[dtype]);
            assert_non_null(kernels.op.norm);
            for (int type = 0; type < NUM_KV_TYPES; type++)
                assert_non_null(kernels.op.attention[type].attend);
            num_supported++;
        } else {
            assert_null(level);
            assert_int_equal(err.code, ERROR_CONFIG);
        }
    }
    assert_true(num_supported >= 1);
}

/* Weights take at most 5 % more memory than the file's. */
static void test_panels_are_packed(void **state) {
    enum { DEPTH = 2048 };
    for (int i = 0; i < num_cpu_levels; i++) {
        struct cpu_kernels kernels;
        if (!cpu_levels[i].supported())
            continue;
        cpu_levels_fill(&cpu_levels[i], &kernels);
        for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            size_t held = kernels.formats[dtype]->panel->column_bytes(dtype, DEPTH);
            assert_true(100 * held <= 105 * dtype_row_bytes(dtype, DEPTH));
        }
    }
}

static void test_auto_is_the_best_one(void **state) {
    const struct cpu_level *best = cpu_levels_select("auto", NULL);
    assert_non_null(best);
    assert_ptr_equal(cpu_levels_select(NULL, NULL), best);
    assert_true(best->supported());
    for (const struct cpu_level *level = best + 1; level < cpu_levels + num_cpu_levels; level++)
        assert_false(level->supported());
}

/* Whatever is measured: a level that is not on trial gives all it has, others' own bits need leave,
 * and the answer stays what it was. */
static void test_fastest_of_any_machine(void **state) {
    for (int any_bits = 0; any_bits < 2; any_bits++) {
        struct cpu_kernels first, again;
        const struct cpu_level *level = cpu_levels_fill_fastest(any_bits, &first);
        assert_true(level->supported());
        assert_ptr_equal(cpu_levels_fill_fastest(any_bits, &again), level);
        assert_memory_equal(&again, &first, sizeof(first));
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
            assert_non_null(first.formats[dtype]);
            assert_true(any_bits || first.formats[dtype]->numerics == NULL ||
                        dtype_is_quantised((enum dtype)dtype));
        }
        const struct cpu_level *proven = cpu_levels_select(NULL, NULL);
        while (proven->on_trial)
            proven--;
        assert_true(level >= proven);
        struct cpu_kernels all;
        cpu_levels_fill(proven, &all);
        for (int type = 0; type < NUM_KV_TYPES; type++)
            assert_true(any_bits ||
                        first.op.attention[type].numerics == all.op.attention[type].numerics);
        if (level == proven)
            assert_memory_equal(&first, &all, sizeof(all));
        else
            assert_ptr_equal(first.op.norm, all.op.norm);
    }
}

static void test_unknown_names_list_the_known(void **state) {
    struct error err = {0};
    assert_null(cpu_levels_select("AVX2", &err));
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "AVX2"));
    assert_non_null(strstr(err.message, "auto"));
    assert_non_null(strstr(err.message, "portable"));
}

/* --- The probe's rows --- */

static bool is_multiplied[64]; /* by number of rows */
static int32_t smallest_packed, largest_packed;

static size_t float_bytes(size_t depth) {
    return depth * sizeof(float);
}

static void watch_pack(const float *x, int32_t depth, void *tile, int32_t row, int32_t tile_rows) {
    assert_in_range(row, 0, tile_rows - 1);
    smallest_packed = tile_rows < smallest_packed ? tile_rows : smallest_packed;
    largest_packed = tile_rows > largest_packed ? tile_rows : largest_packed;
    memset((char *)tile + (size_t)row * float_bytes((size_t)depth), 1, float_bytes((size_t)depth));
}

static void watch_multiply(const struct gemm_job *job) {
    is_multiplied[job->num_rows] = true;
}

/* A batch in whole tiles, and one row, in tiles that the format has. */
static void check_probed(const int32_t tile_rows[2], int32_t batch) {
    const struct cpu_row_packing rows = {
        .tile_rows = {tile_rows[0], tile_rows[1]}, .row_bytes = float_bytes, .pack = watch_pack};
    const struct cpu_gemm_format format = {
        .panel = &cpu_panel_elements, .rows = &rows, .multiply = watch_multiply};
    struct cpu_kernels portable;
    cpu_levels_fill(&cpu_levels[0], &portable);
    memset(is_multiplied, 0, sizeof(is_multiplied));
    smallest_packed = INT32_MAX, largest_packed = 0;
    /* One row is tried only where the batch was faster: to do nothing is. */
    for (int i = 0; i < 100 && !is_multiplied[1]; i++)
        cpu_probe_is_faster(DTYPE_F32, &format, portable.formats[DTYPE_F32]);
    assert_true(is_multiplied[batch] && is_multiplied[1]);
    assert_int_equal(largest_packed, tile_rows[0]);
    assert_int_equal(smallest_packed, tile_rows[1] > 0 ? tile_rows[1] : tile_rows[0]);
}

static void test_probe_packs_into_tiles_of_the_format(void **state) {
    check_probed((const int32_t[]){16, 0}, 48);
    check_probed((const int32_t[]){10, 1}, 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_supported_level_is_found),
        cmocka_unit_test(test_panels_are_packed),
        cmocka_unit_test(test_auto_is_the_best_one),
        cmocka_unit_test(test_fastest_of_any_machine),
        cmocka_unit_test(test_unknown_names_list_the_known),
        cmocka_unit_test(test_probe_packs_into_tiles_of_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
