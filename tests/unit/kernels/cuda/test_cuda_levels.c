#include "kernels/cuda/state/cuda_levels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *name_of(const char *isa, int capability, int code, struct error *err) {
    const struct cuda_level *level = cuda_levels_select(isa, capability, code, err);
    return level == NULL ? "none" : level->name;
}

static void test_the_last_that_gpu_and_code_have(void **state) {
    struct error err = {0};
    assert_string_equal(name_of(NULL, 80, 80, &err), "sm_80");
    assert_string_equal(name_of("auto", 86, 80, &err), "sm_80");
    assert_string_equal(name_of("auto", 89, 80, &err), "sm_89");
    assert_string_equal(name_of("auto", 90, 90, &err), QUIRE_CUDA_SM_90A ? "sm_90a" : "sm_90");
    assert_string_equal(name_of("auto", 103, 90, &err), "sm_90"); /* which lacks wgmma */
    assert_string_equal(name_of("auto", 120, 90, &err), "sm_90");
    assert_string_equal(name_of("auto", 90, 80, &err), "sm_89"); /* the module has no code of 9.0 */
}

static void test_named(void **state) {
    struct error err = {0};
    assert_string_equal(name_of("sm_80", 90, 90, &err), "sm_80");
    assert_string_equal(name_of("sm_90", 90, 90, &err), "sm_90");
    assert_string_equal(name_of("sm_90", 120, 90, &err), "sm_90");
    assert_string_equal(name_of("sm_90a", 120, 90, &err), "none");
    assert_string_equal(name_of("sm_90", 89, 80, &err), "none");
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_string_equal(err.message, "instruction set 'sm_90': with this module this GPU, of "
                                     "compute capability 8.9, has auto, sm_89, sm_80");
    assert_string_equal(name_of("avx2", 120, 90, &err), "none");
    assert_string_equal(err.message,
                        "instruction set 'avx2': with this module this GPU, of compute capability "
                        "12.0, has auto, sm_90, sm_89, sm_80");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_that_gpu_and_code_have),
        cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
