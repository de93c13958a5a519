#include "server/program/memory_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static void collect(void *context, const char *line) {
    char *text = context;
    strcat(strcat(text, line), "\n");
}

/* MiB of the part at the start of a line; -1: there is none. */
static double part(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return strtod(line + length, NULL);
    return -1;
}

static struct executor_info info(bool is_gpu) {
    return (struct executor_info){.limits = {.max_num_seqs = 4,
                                             .max_num_batched_tokens = 32,
                                             .block_size = 16,
                                             .num_blocks = 100,
                                             .num_host_blocks = 50},
                                  .device = "cpu",
                                  .description = "a thread",
                                  .has_dedicated_memory = is_gpu,
                                  .kv_type = KV_F16,
                                  .swap_block_ns = 12340,
                                  .records_steps = is_gpu,
                                  .num_recorded = is_gpu ? 23 : 0,
                                  .recording_ns = 1500000000,
                                  .memory = {.weight_bytes = 10 * MIB,
                                             .workspace_bytes = 20 * MIB,
                                             .kv_bytes = 40 * MIB,
                                             .swap_bytes = 320 * MIB,
                                             .recorded_bytes = 7 * MIB,
                                             .overhead_bytes = 80 * MIB,
                                             .free_bytes = 160 * MIB}};
}

static double write_table(const struct executor_info *executor, char *out) {
    const struct memory_table table = {.executor = executor,
                                       .engine_bytes = 640 * MIB,
                                       .http_bytes = 1280 * MIB,
                                       .response_bytes = 5120 * MIB,
                                       .program_bytes = 2560 * MIB,
                                       .max_connections = 7};
    memory_table_write(&table, collect, out);
    return (double)memory_table_total(&table) / (double)MIB;
}

static void test_cpu(void **state) {
    static const char *const parts[] = {"weights",  "workspace", "KV cache",  "swap",
                                        "requests", "HTTP",      "responses", "program"};
    const struct executor_info worker = info(false);
    char text[4096] = "";
    double sum = 0, total = write_table(&worker, text);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        assert_true(part(text, parts[i]) > 0);
        sum += part(text, parts[i]);
    }
    assert_true(part(text, "total") == total && total == sum && sum == 9990);
    assert_true(part(text, "overhead") < 0 && part(text, "left free") < 0);
    assert_true(part(text, "recorded") < 0);
    assert_non_null(
        strstr(text, "KV cache       40.0 MiB = 100 blocks of 16 = 1600 tokens in f16, 26214 bytes "
                     "each"));
    assert_non_null(strstr(text, "swap          320.0 MiB = 50 blocks, 12.3 us to move one"));
    assert_non_null(strstr(text, "7 connections"));
}

/* Their line is there if there is room for any. */
static void test_adapters(void **state) {
    struct executor_info worker = info(false);
    char text[4096] = "";
    double without = write_table(&worker, text);
    assert_true(part(text, "adapters") < 0);
    worker.lora = (struct lora_shape){.num_slots = 8, .max_rank = 64, .dtype = DTYPE_F16};
    worker.memory.adapter_bytes = 24 * MIB;
    text[0] = '\0';
    assert_true(write_table(&worker, text) == without + 24);
    assert_non_null(strstr(text, "adapters       24.0 MiB = 8 slots of rank 64 in f16"));
}

/* Its line is there if there is one. */
static void test_draft_model(void **state) {
    struct executor_info worker = info(false);
    char text[4096] = "";
    double without = write_table(&worker, text);
    assert_true(part(text, "draft") < 0);
    worker.memory.draft_bytes = 32 * MIB;
    text[0] = '\0';
    assert_true(write_table(&worker, text) == without + 32);
    assert_non_null(strstr(text, "draft          32.0 MiB of the draft model\n"));
    worker.has_dedicated_memory = true;
    text[0] = '\0';
    assert_true(write_table(&worker, text) == without - 70);
    assert_true(part(text, "draft") == 32);
}

/* What is on the GPU is no part of the system's memory. */
static void test_gpu(void **state) {
    const struct executor_info worker = info(true);
    char text[4096] = "";
    assert_true(write_table(&worker, text) == 320 + 640 + 1280 + 5120 + 2560);
    assert_true(part(text, "total") == 9920);
    assert_true(part(text, "weights") == 10 && part(text, "overhead") == 80);
    assert_true(part(text, "recorded") == 7);
    assert_non_null(strstr(text, "for decode steps of 23 sizes, in 1.5 s"));
    assert_true(part(text, "left free") == 160);
}

static void assert_context(const struct executor_info *worker, const char *line) {
    char text[16384] = "";
    write_table(worker, text);
    if (strstr(text, line) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", text, line);
}

/* The context is told with its reason and the options that change it. */
static void test_context(void **state) {
    struct executor_info worker = info(false);
    worker.limits.max_model_len = 1024;
    assert_context(&worker, "context    1024 tokens, by --max-model-len\n");
    worker.most_model_len = 1024;
    assert_context(&worker,
                   "context    1024 tokens, the model's longest; --max-model-len sets another\n");
    worker.most_model_len = 4096;
    assert_context(&worker,
                   "context    1024 tokens fit half of the available memory; the model's 4096 need "
                   "102.4 MiB of KV cache: see --kv-cache-memory-bytes, --max-model-len, "
                   "--kv-cache-dtype int8\n");
    worker.kv_was_requested = true;
    worker.kv_type = KV_INT8;
    assert_context(&worker, "context    1024 tokens fit --kv-cache-memory-bytes; the model's 4096 "
                            "need 102.4 MiB of KV cache: see --kv-cache-memory-bytes, "
                            "--max-model-len\n");
    worker = info(true);
    worker.limits.max_model_len = 1024;
    worker.most_model_len = 4096;
    assert_context(&worker, "1024 tokens fit the GPU; the model's 4096 need 102.4 MiB of KV cache: "
                            "see --gpu-memory-utilization, --max-model-len, ");
}

/* The line is there where responses are kept alone. */
static void test_no_responses(void **state) {
    const struct executor_info worker = info(false);
    char text[4096] = "";
    const struct memory_table table = {.executor = &worker};
    memory_table_write(&table, collect, text);
    assert_null(strstr(text, "responses"));
}

/* A plan does not know what they take, and an executor without them has no line. */
static void test_recorded_steps(void **state) {
    struct executor_info worker = info(true);
    char text[4096] = "";
    worker.num_recorded = 0;
    write_table(&worker, text);
    assert_true(part(text, "recorded") == 0);
    assert_non_null(strstr(text, "recorded   decode steps take of the KV cache what is measured at "
                                 "start\n"));
    *text = '\0';
    worker.records_steps = false;
    write_table(&worker, text);
    assert_null(strstr(text, "recorded"));
}

static void test_tuning(void **state) {
    struct executor_info worker = info(true);
    char text[4096] = "";
    write_table(&worker, text);
    assert_null(strstr(text, "products"));
    *text = '\0';
    worker.tuning =
        (struct tuning_report){.num_timed = 61, .num_changed = 12, .num_left = 3, .seconds = 0.84};
    write_table(&worker, text);
    assert_non_null(strstr(text, "products   61 timed in 0.8 s, 3 untimed; 12 not by the library's "
                                 "first algorithm\n"));
}

/* A pool that is only planned was not timed. */
static void test_planned_swap(void **state) {
    struct executor_info worker = info(false);
    char text[4096] = "";
    worker.swap_block_ns = 0;
    write_table(&worker, text);
    assert_non_null(strstr(text, "= 50 blocks\n"));
}

/* Each rank's part of what is above; it is no part of the total of its own. */
static void test_ranks(void **state) {
    struct executor_info worker = info(false);
    char text[4096] = "";
    worker.num_ranks = 2;
    worker.rank_memory[0] = (struct executor_memory){.weight_bytes = 6 * MIB,
                                                     .workspace_bytes = 12 * MIB,
                                                     .kv_bytes = 20 * MIB,
                                                     .swap_bytes = 160 * MIB};
    worker.rank_memory[1] = (struct executor_memory){.weight_bytes = 4 * MIB,
                                                     .workspace_bytes = 8 * MIB,
                                                     .kv_bytes = 20 * MIB,
                                                     .swap_bytes = 160 * MIB};
    strcpy(worker.rank_places[0], "node1, 4 threads");
    strcpy(worker.rank_places[1], "node2, 1 thread");
    assert_true(write_table(&worker, text) == 9990);
    assert_non_null(strstr(text, "rank 0      198.0 MiB: weights 6.0, workspace 12.0, KV cache "
                                 "20.0, swap 160.0; node1, 4 threads\n"));
    assert_non_null(strstr(text, "rank 1      192.0 MiB: weights 4.0, workspace 8.0, KV cache "
                                 "20.0, swap 160.0; node2, 1 thread\n"));
    *text = '\0';
    worker.num_ranks = 1;
    write_table(&worker, text);
    assert_null(strstr(text, "rank 0"));
}

static void test_program(void **state) {
    struct executor_info worker = info(false);
    size_t resident = memory_table_resident();
    assert_true(resident > MIB / 4 && resident < 4096 * MIB);
    worker.memory.swap_bytes = MIB / 4;
    worker.limits.vocab_size = 1 << 20;
    size_t planned = memory_table_program_bytes(&worker, 1, false);
    assert_true(planned > 384 * MIB && planned < 512 * MIB);
    assert_int_equal(memory_table_program_bytes(&worker, 1, true), planned);
    assert_true(memory_table_program_bytes(&worker, 2, false) > planned);
    worker.has_dedicated_memory = true;
    assert_true(memory_table_program_bytes(&worker, 1, false) >= resident / 2);
    assert_true(memory_table_program_bytes(&worker, 2, false) >= resident);
    assert_true(memory_table_program_bytes(&worker, 1, true) > 0);
    assert_true(memory_table_program_bytes(&worker, 1, true) <
                memory_table_program_bytes(&worker, 1, false));
    worker.memory.swap_bytes = SIZE_MAX;
    assert_int_equal(memory_table_program_bytes(&worker, 1, true), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),          cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_gpu),          cmocka_unit_test(test_context),
        cmocka_unit_test(test_no_responses), cmocka_unit_test(test_recorded_steps),
        cmocka_unit_test(test_tuning),       cmocka_unit_test(test_planned_swap),
        cmocka_unit_test(test_ranks),        cmocka_unit_test(test_program),
        cmocka_unit_test(test_draft_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
