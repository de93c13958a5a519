#include "server/program/command_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static void collect(void *context, const char *line) {
    strcat(strcat(context, line), "\n");
}

/* Rank 1 has twice the heads, and less besides. */
static struct executor_info info_of(size_t at_hand_bytes) {
    return (struct executor_info){.limits = {.block_size = 16, .num_blocks = 64},
                                  .at_hand_bytes = at_hand_bytes,
                                  .num_ranks = 2,
                                  .rank_memory = {{.weight_bytes = 10 * MIB,
                                                   .workspace_bytes = 5 * MIB,
                                                   .kv_bytes = 1 * MIB,
                                                   .swap_bytes = 2 * MIB},
                                                  {.weight_bytes = 12 * MIB,
                                                   .workspace_bytes = 3 * MIB,
                                                   .kv_bytes = 2 * MIB,
                                                   .swap_bytes = 4 * MIB}}};
}

static void write_plan(const struct executor_info *info, char *out) {
    static const struct executor_traffic traffic[] = {{1000, 4}, {2000, 300}};
    const struct memory_table table = {.executor = info,
                                       .engine_bytes = 30 * MIB,
                                       .http_bytes = 40 * MIB,
                                       .program_bytes = 7 * MIB};
    out[0] = '\0';
    command_plan_write_ranks(&(struct rank_plan){&table, traffic}, collect, out);
}

static void test_lines(void **state) {
    const struct executor_info info = info_of(100 * MIB);
    char text[2048];
    write_plan(&info, text);
    assert_string_equal(
        text, "ranks      as processes on a machine each, with the program; rank 0 with requests "
              "and HTTP\n"
              "  rank 0       94.0 MiB and 1024 bytes of KV cache for a token: 95.0 MiB for 1024\n"
              "  rank 1       26.0 MiB and 2048 bytes of KV cache for a token: 28.0 MiB for 1024\n"
              "           machines of 107.0 MiB hold 13312 tokens, by the room of rank 0\n"
              "  rank 0   sends 1000 bytes for a token, 1004 for one sampled\n"
              "  rank 1   sends 2000 bytes for a token, 2300 for one sampled\n");
}

/* With much memory, what a token takes decides; without enough for the rest, there is room for
 * none, and of what is left only whole blocks count. */
static void test_the_smallest_decides(void **state) {
    struct executor_info info = info_of(993 * MIB);
    char text[2048];
    write_plan(&info, text);
    assert_non_null(
        strstr(text, "machines of 1000.0 MiB hold 498688 tokens, by the room of rank 1"));
    info = info_of(50 * MIB);
    write_plan(&info, text);
    assert_non_null(strstr(text, "machines of 57.0 MiB hold 0 tokens, by the room of rank 0"));
    info = info_of(87 * MIB + 17 * 1024);
    write_plan(&info, text);
    assert_non_null(strstr(text, "hold 16 tokens, by the room of rank 0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_the_smallest_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
