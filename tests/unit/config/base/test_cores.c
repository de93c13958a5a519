#include "config/base/cores.h"

#include "tests/unit/temporary_files.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct temporary_folder root;

/* A machine whose groups of version 2 and, of the controllers cpu and cpuacct, version 1 are where
 * most have them. */
static int make_root(void **state) {
    static const char mounts[] =
        "22 1 0:20 / /proc rw,relatime - proc proc rw\n"
        "31 22 0:27 / /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        "33 22 0:29 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpuacct,cpu\n"
        "34 22 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    temporary_folder_make(&root);
    temporary_write(&root, "proc/self/mountinfo", mounts, strlen(mounts));
    return 0;
}

static int remove_root(void **state) {
    temporary_folder_remove(&root);
    return 0;
}

static void write_file(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "sys/fs/cgroup/%s", name);
    temporary_write(&root, path, text, strlen(text));
}

static void mount_at(const char *mount_root) {
    char line[256];
    snprintf(line, sizeof(line), "31 22 0:27 %s /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
             mount_root);
    temporary_write(&root, "proc/self/mountinfo", line, strlen(line));
}

/* As the file that lists the process' groups says `cgroups`. */
static int quota(const char *cgroups) {
    temporary_write(&root, "proc/self/cgroup", cgroups, strlen(cgroups));
    return cores_quota(root.path);
}

static void test_quotas_are_rounded_to_whole_cores(void **state) {
    static const struct {
        const char *line;
        int cores;
    } cases[] = {{"200000 100000\n", 2},
                 {"150000 100000\n", 2},
                 {"149999 100000\n", 1},
                 {"10000 100000\n", 1},
                 {"1000 3\n", 333},
                 {"max 100000\n", CORES_UNLIMITED},
                 {"200000\n", CORES_UNLIMITED},
                 {"-5 100000\n", CORES_UNLIMITED},
                 {"200000 0\n", CORES_UNLIMITED},
                 {"9223372036854775807 1\n", CORES_UNLIMITED},
                 {"1 9223372036854775807\n", 1},
                 {"", CORES_UNLIMITED}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file("cpu.max", cases[i].line);
        assert_int_equal(quota("0::/\n"), cases[i].cores);
    }
}

static void test_groups_above_count_too(void **state) {
    const char *group = "0::/system.slice/quire.service\n";
    assert_int_equal(quota(group), CORES_UNLIMITED);
    write_file("system.slice/quire.service/cpu.max", "max 100000\n");
    assert_int_equal(quota(group), CORES_UNLIMITED);
    write_file("system.slice/cpu.max", "300000 100000\n");
    assert_int_equal(quota(group), 3);
    write_file("system.slice/quire.service/cpu.max", "200000 100000\n");
    assert_int_equal(quota(group), 2);
    write_file("cpu.max", "50000 50000\n");
    assert_int_equal(quota(group), 1);
    write_file("other.slice/cpu.max", "100 100000\n");
    write_file("cpu.max", "max 50000\n");
    assert_int_equal(quota(group), 2);
}

/* The path is the host's, of which the container sees its own group alone, as the root. */
static void test_path_that_is_not_there(void **state) {
    write_file("cpu.max", "400000 100000\n");
    assert_int_equal(quota("0::/docker/0123456789abcdef\n"), 4);
}

static void test_version_1(void **state) {
    const char *groups = "12:cpuset:/\n5:memory:/pod\n4:cpuacct,cpu:/pod/quire\n0::/\n";
    write_file("cpu/pod/quire/cpu.cfs_quota_us", "-1\n");
    write_file("cpu/pod/quire/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(groups), CORES_UNLIMITED);
    write_file("cpu/pod/cpu.cfs_quota_us", "250000\n");
    write_file("cpu/pod/cpu.cfs_period_us", "100000\n");
    assert_int_equal(quota(groups), 3);
    write_file("cpu/pod/quire/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(quota(groups), 2);
    assert_int_equal(quota("12:cpuset:/pod/quire\n"), CORES_UNLIMITED);
}

/* Where a namespace begins is "/", and what lies above it is told by "/..". */
static void test_namespaces(void **state) {
    write_file("cpu.max", "400000 100000\n");
    write_file("own/cpu.max", "200000 100000\n");
    mount_at("/");
    assert_int_equal(quota("0::/\n"), 4);
    assert_int_equal(quota("0::/own\n"), 2);
    mount_at(
        "/docker/01234567"); /* without a namespace: the mount begins at the container's group */
    assert_int_equal(quota("0::/docker/01234567\n"), 4);
    assert_int_equal(quota("0::/docker/01234567/own\n"), 2);
    assert_int_equal(quota("0::/docker/012345678\n"), CORES_UNLIMITED); /* others */
    mount_at("/../..");
    assert_int_equal(quota("0::/../..\n"), 4);
    assert_int_equal(quota("0::/../../own\n"), 2);
    assert_int_equal(quota("0::/\n"), 4); /* below it, at a place that has no name in here */
}

static void test_nonsense_limits_nothing(void **state) {
    char line[9000];
    assert_int_equal(cores_quota("/none"), CORES_UNLIMITED);
    assert_int_equal(quota("nonsense\n:\n::\n0::relative\n\n"), CORES_UNLIMITED);
    memset(line, 'a', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    memcpy(line, "0::/", 4);
    assert_int_equal(quota(line), CORES_UNLIMITED);
    write_file("cpu.max", "400000 100000\n");
    static const char mounts[] = "\n - \n1 2 3\n1 2 3 / /sys - cgroup2\n1 2 3 / - cgroup2 a rw\n";
    temporary_write(&root, "proc/self/mountinfo", mounts, strlen(mounts));
    assert_int_equal(quota("0::/\n"), CORES_UNLIMITED);
}

static void test_available_are_no_more_than_allowed(void **state) {
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    assert_int_equal(cores_allowed(), CPU_COUNT(&allowed));
    assert_in_range(cores_available(), 1, CPU_COUNT(&allowed));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_quotas_are_rounded_to_whole_cores),
        TEST(test_groups_above_count_too),
        TEST(test_path_that_is_not_there),
        TEST(test_version_1),
        TEST(test_namespaces),
        TEST(test_nonsense_limits_nothing),
        TEST(test_available_are_no_more_than_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
