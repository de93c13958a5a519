#include "config/base/cores.h"

#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[] = "/tmp/test_cores_XXXXXX";

static int make_root(void **state) {
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    return remove(path);
}

static int remove_root(void **state) {
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file below the root, and makes the folders above it. */
static void write_file(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* As the file that lists the process' groups says `cgroups`. */
static int quota(const char *cgroups) {
    char path[256];
    write_file("proc", cgroups);
    snprintf(path, sizeof(path), "%s/proc", root);
    return cores_quota(path, root);
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

static void test_nonsense_limits_nothing(void **state) {
    char path[256], line[9000];
    snprintf(path, sizeof(path), "%s/none", root);
    assert_int_equal(cores_quota(path, root), CORES_UNLIMITED);
    assert_int_equal(quota("nonsense\n:\n::\n0::relative\n\n"), CORES_UNLIMITED);
    memset(line, 'a', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    memcpy(line, "0::/", 4);
    assert_int_equal(quota(line), CORES_UNLIMITED);
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
        TEST(test_nonsense_limits_nothing),
        TEST(test_available_are_no_more_than_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
