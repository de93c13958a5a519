/* Nodes as Linux describes them, in a folder of the test's own. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/numa_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void assert_set(const cpu_set_t *set, const int *cpus, int count) {
    assert_int_equal(CPU_COUNT(set), count);
    for (int i = 0; i < count; i++)
        assert_true(CPU_ISSET((size_t)cpus[i], set));
}

#define CPUS(...)                                                                                  \
    ((const int[]){__VA_ARGS__}), (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void test_lists(void **state) {
    cpu_set_t set;
    assert_true(numa_nodes_parse("0", &set));
    assert_set(&set, CPUS(0));
    assert_true(numa_nodes_parse("0-3,8,10-11", &set));
    assert_set(&set, CPUS(0, 1, 2, 3, 8, 10, 11));
    assert_true(numa_nodes_parse("5-5,0-1,1", &set));
    assert_set(&set, CPUS(0, 1, 5));
    assert_true(numa_nodes_parse("1023", &set));
    assert_set(&set, CPUS(1023));
    assert_true(numa_nodes_parse("", &set)); /* a node of memory alone */
    assert_int_equal(CPU_COUNT(&set), 0);
}

static void test_what_is_no_list(void **state) {
    static const char *const bad[] = {
        ",",
        "0,",
        ",0",
        "0,,1",
        "-",
        "0-",
        "-1",
        "3-1",
        "0-1-2",
        "a",
        "0x1",
        " 0",
        "0 ",
        "0;1",
        "1024",
        "0-1024",
        "99999999999999999999",
        "0-99999999999999999999",
        "0-3\n1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cpu_set_t set;
        if (numa_nodes_parse(bad[i], &set))
            fail_msg("\"%s\" is taken for a list", bad[i]);
    }
}

static void write_file(const char *dir, const char *name, const char *text) {
    char path[512];
    assert_in_range(snprintf(path, sizeof(path), "%s/%s", dir, name), 1, sizeof(path) - 1);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* list: NULL for a node without the file. */
static void write_node(const char *dir, int node, const char *list) {
    char path[512];
    snprintf(path, sizeof(path), "%s/node%d", dir, node);
    assert_int_equal(mkdir(path, 0700), 0);
    if (list != NULL)
        write_file(path, "cpulist", list);
}

static void remove_node(const char *dir, int node) {
    char path[512];
    snprintf(path, sizeof(path), "%s/node%d/cpulist", dir, node);
    unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
}

static void allow(int first, int last, cpu_set_t *out) {
    CPU_ZERO(out);
    for (int i = first; i <= last; i++)
        CPU_SET((size_t)i, out);
}

static void test_nodes(void **state) {
    char dir[] = "numa_nodes_XXXXXX", path[64], long_list[9000];
    struct numa_nodes nodes;
    cpu_set_t allowed;
    assert_non_null(mkdtemp(dir));
    allow(0, 9, &allowed);
    numa_nodes_read(dir, &allowed, &nodes); /* nothing is there */
    assert_int_equal(nodes.count, 0);
    write_file(dir, "online", "0-1,3-7\n");
    write_node(dir, 0, "0-1,4\n");
    write_node(dir, 1, "\n");  /* memory alone */
    write_node(dir, 2, "8\n"); /* not online */
    write_node(dir, 3, "2-3,12\n");
    write_node(dir, 4, NULL);
    write_node(dir, 5, "nonsense\n");
    write_node(dir, 6, "10-11\n"); /* not allowed */
    memset(long_list, '1', sizeof(long_list) - 1);
    long_list[sizeof(long_list) - 1] = '\0';
    write_node(dir, 7, long_list);
    numa_nodes_read(dir, &allowed, &nodes);
    assert_int_equal(nodes.count, 2);
    assert_set(&nodes.cpus[0], CPUS(0, 1, 4));
    assert_set(&nodes.cpus[1], CPUS(2, 3));
    for (int node = 0; node < 8; node++)
        remove_node(dir, node);
    snprintf(path, sizeof(path), "%s/online", dir);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

static void test_shares(void **state) {
    struct numa_nodes nodes = {.count = 5};
    cpu_set_t share;
    for (int i = 0; i < 5; i++)
        allow(2 * i, 2 * i + 1, &nodes.cpus[i]);
    assert_true(numa_nodes_share(&nodes, 0, 2, &share));
    assert_set(&share, CPUS(0, 1, 2, 3));
    assert_true(numa_nodes_share(&nodes, 1, 2, &share));
    assert_set(&share, CPUS(4, 5, 6, 7, 8, 9));
    for (int i = 0; i < 5; i++) {
        assert_true(numa_nodes_share(&nodes, i, 5, &share));
        assert_set(&share, CPUS(2 * i, 2 * i + 1));
    }
    assert_false(numa_nodes_share(&nodes, 0, 6, &share));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_what_is_no_list),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
