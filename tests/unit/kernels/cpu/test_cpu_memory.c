#include "kernels/cpu/cpu_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_buffers_are_aligned_and_zero(void **state) {
    static const size_t sizes[] = {0, 1, 63, 64, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct buffer buffer;
        assert_int_equal(cpu_memory_alloc(sizes[i], &buffer, NULL), 0);
        assert_non_null(buffer.data);
        assert_int_equal(buffer.bytes, sizes[i]);
        assert_int_equal((uintptr_t)buffer.data % 64, 0);
        unsigned char *bytes = buffer.data;
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(bytes[j], 0);
            bytes[j] = 0xff;
        }
        cpu_memory_free(&buffer);
        assert_null(buffer.data);
        cpu_memory_free(&buffer);
    }
}

static void test_impossible_sizes_fail(void **state) {
    struct buffer buffer = {.bytes = 77};
    struct error err = {0};
    assert_int_equal(cpu_memory_alloc(SIZE_MAX / 2, &buffer, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_int_equal(buffer.bytes, 77);
}

static char directory[] = "/tmp/test_cpu_memory_XXXXXX";

static int make_directory(void **state) {
    return mkdtemp(directory) == NULL ? -1 : 0;
}

static void write_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int remove_directory(void **state) {
    static const char *const names[] = {"meminfo", "memory.max", "memory.current"};
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

static void check_info(const char *cgroup_dir, size_t expected_free, size_t expected_total) {
    char meminfo[128];
    size_t free_bytes = 1, total_bytes = 1;
    snprintf(meminfo, sizeof(meminfo), "%s/meminfo", directory);
    cpu_memory_info(meminfo, cgroup_dir, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, expected_free);
    assert_int_equal(total_bytes, expected_total);
}

static void test_memory_info(void **state) {
    check_info(directory, 0, 0);
    write_file("meminfo", "MemTotal:     4000 kB\nMemFree:   500 kB\nMemAvailable:   1000 kB\n");
    check_info("/nonexistent", 1000 * 1024, 4000 * 1024);
    write_file("memory.max", "max\n");
    write_file("memory.current", "1000\n");
    check_info(directory, 1000 * 1024, 4000 * 1024);
    write_file("memory.max", "500000\n");
    check_info(directory, 499000, 500000);
    write_file("memory.max", "3000000\n");
    check_info(directory, 1000 * 1024, 3000000);
    write_file("memory.max", "900\n");
    check_info(directory, 0, 900);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_are_aligned_and_zero),
        cmocka_unit_test(test_impossible_sizes_fail),
        cmocka_unit_test_setup_teardown(test_memory_info, make_directory, remove_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
