/* Devices in modules, and what is said of one that is missing, incomplete or of another build. The
 * modules are those of modules/, among them one that takes the place of CUDA's. */
#include "kernels/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_refused(const char *name, const char *first, const char *second) {
    struct backend_config config = {0};
    struct error err = {0};
    assert_null(module_open(name, &config, &err));
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, first));
    assert_non_null(strstr(err.message, second));
    assert_null(strchr(err.message, '\n'));
}

static void test_missing_module(void **state) {
    assert_refused("there-is-none", "libquire-there-is-none.so", "is not installed");
}

static void test_missing_library(void **state) {
    assert_refused("incomplete", "libquire-incomplete.so cannot be loaded", "libmissing.so.13");
}

static void test_not_a_module(void **state) {
    assert_refused("no-symbol", "libquire-no-symbol.so", QUIRE_MODULE_SYMBOL);
}

static void test_other_build(void **state) {
    char other[32], own[32];
    snprintf(other, sizeof(other), "interface %d", QUIRE_MODULE_INTERFACE + 1);
    snprintf(own, sizeof(own), "needs %d", QUIRE_MODULE_INTERFACE);
    assert_refused("other-build", other, own);
}

static void test_transport_of_other_build(void **state) {
    struct transport *t = NULL;
    struct error err = {0};
    assert_int_equal(transport_open(&t, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "libquire-mpi.so has interface"));
    assert_null(t);
}

static void test_module_device(void **state) {
    struct backend_config config = {.head_dim = ERROR_NONE};
    struct backend *b = backend_open("cuda", &config, NULL);
    assert_non_null(b);
    assert_string_equal(b->name, "fake");
    backend_close(b);

    struct error err = {0};
    config.head_dim = ERROR_DEVICE;
    assert_null(backend_open("cuda", &config, &err));
    assert_int_equal(err.code, ERROR_DEVICE);
    assert_string_equal(err.message, "the fake GPU has trouble");
}

static void test_device_memory(void **state) {
    assert_int_equal(backend_device_memory("cuda"), 123);
    assert_int_equal(backend_device_memory("cpu"), 0);
    assert_int_equal(module_device_memory("there-is-none"), 0);
    assert_int_equal(module_device_memory("other-build"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_module),
        cmocka_unit_test(test_missing_library),
        cmocka_unit_test(test_not_a_module),
        cmocka_unit_test(test_other_build),
        cmocka_unit_test(test_transport_of_other_build),
        cmocka_unit_test(test_module_device),
        cmocka_unit_test(test_device_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
