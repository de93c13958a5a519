#include "kernels/cpu/memory/cpu_memory.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static struct temporary_folder root;

static int make_root(void **state) {
    temporary_folder_make(&root);
    return 0;
}

static int remove_root(void **state) {
    temporary_folder_remove(&root);
    return 0;
}

static void write_file(const char *name, const char *text) {
    temporary_write(&root, name, text, strlen(text));
}

/* A file of the unit's group, or of one above it. */
static void write_group(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "sys/fs/cgroup/%s", name);
    write_file(path, text);
}

static void check_info(size_t expected_free, size_t expected_total) {
    size_t free_bytes = 1, total_bytes = 1;
    cpu_memory_info(root.path, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, expected_free);
    assert_int_equal(total_bytes, expected_total);
}

static void test_memory_of_the_machine(void **state) {
    check_info(0, 0);
    write_file("proc/meminfo", "MemTotal: 4000 kB\nMemFree:   500 kB\nMemAvailable:   1000 kB\n");
    check_info(1000 * 1024, 4000 * 1024);
}

/* A unit of systemd in a slice, in groups of version 2. */
static void test_groups_of_version_2(void **state) {
    write_file("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:   1000 kB\n");
    write_file("proc/self/cgroup", "0::/system.slice/quire.service\n");
    write_file("proc/self/mountinfo", "31 22 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    write_group("system.slice/quire.service/memory.max", "max\n");
    write_group("system.slice/quire.service/memory.current", "1000\n");
    check_info(1000 * 1024, 4000 * 1024);
    write_group("system.slice/quire.service/memory.max", "500000\n"); /* MemoryMax= */
    check_info(499000, 500000);
    write_group("system.slice/quire.service/memory.high", "400000\n"); /* MemoryHigh= */
    check_info(399000, 400000);
    write_group("system.slice/memory.max", "300000\n");
    check_info(399000, 400000); /* what is used of it is not known */
    write_group("system.slice/memory.current", "250000\n");
    check_info(50000, 300000);
    write_group("system.slice/memory.stat", "anon 50000\ninactive_file 110000\nactive_file 40000\n"
                                            "slab_reclaimable 20000\nslab_unreclaimable 9\n");
    check_info(220000, 300000); /* the page cache makes room */
    write_group("system.slice/memory.current", "100000\n");
    check_info(300000, 300000);
    write_group("system.slice/quire.service/memory.max", "900\n");
    check_info(0, 900);
    write_group("system.slice/memory.max", "9000000\n");
    write_group("system.slice/quire.service/memory.max", "3000000\n");
    write_group("system.slice/quire.service/memory.high", "max\n");
    check_info(1000 * 1024, 3000000);
}

static void test_groups_of_version_1(void **state) {
    write_file("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:   1000 kB\n");
    write_file("proc/self/cgroup", "5:cpu:/\n4:memory:/docker/0123/own\n0::/\n");
    write_file("proc/self/mountinfo",
               "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    write_group("memory/own/memory.limit_in_bytes", "9223372036854771712\n");
    write_group("memory/own/memory.usage_in_bytes", "1000\n");
    check_info(1000 * 1024, 4000 * 1024);
    write_group("memory/memory.limit_in_bytes", "600000\n");
    write_group("memory/memory.usage_in_bytes", "590000\n");
    check_info(10000, 600000);
    write_group("memory/memory.stat", "inactive_file 3\nactive_file 4\ntotal_rss 50000\n"
                                      "total_inactive_file 400000\ntotal_active_file 100000\n");
    check_info(510000, 600000);
    write_group("memory/own/memory.limit_in_bytes", "500000\n");
    check_info(499000, 500000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_are_aligned_and_zero),
        cmocka_unit_test(test_impossible_sizes_fail),
        cmocka_unit_test_setup_teardown(test_memory_of_the_machine, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_groups_of_version_2, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_groups_of_version_1, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
