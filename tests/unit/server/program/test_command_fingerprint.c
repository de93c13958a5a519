#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/program/command_fingerprint.h"

#include <stdio.h>
#include <string.h>

struct machine {
    struct executor_config config;
    struct executor_info info;
    struct model model;
    const char *build;
};

static struct machine usual(void) {
    return (struct machine){
        .config = {.quantization = DTYPE_NONE},
        .info = {.limits = {.max_model_len = 2048, .block_size = 16},
                 .device = "cpu",
                 .numerics = "avx2 on avx2",
                 .description = "AVX2, 2 threads",
                 .batch_invariant = true,
                 .model_digest = {1, 2, 3},
                 .activation_dtype = DTYPE_F32,
                 .kv_type = KV_F16,
                 .num_ranks = 1,
                 .num_stages = 1},
        .build = "0123456789abcdef",
    };
}

static void print_of(const struct machine *machine, char out[static FINGERPRINT_BYTES]) {
    struct error err;
    assert_int_equal(command_fingerprint(&machine->config, &machine->info, &machine->model,
                                         machine->build, out, &err),
                     0);
}

static void test_form(void **state) {
    char text[FINGERPRINT_BYTES], digits[FINGERPRINT_BYTES];
    int end = 0;
    struct machine machine = usual();
    print_of(&machine, text);
    assert_int_equal(sscanf(text, "quire-%16[0-9a-f]%n", digits, &end), 1);
    assert_int_equal(strlen(digits), 16);
    assert_string_equal(text + end, "");
    machine.info.batch_invariant = false;
    print_of(&machine, text);
    assert_string_equal(text + end, "-variant");
    assert_memory_not_equal(text + strlen("quire-"), digits, 16);
}

static void assert_same(const struct machine *machine, bool same) {
    char text[FINGERPRINT_BYTES], plain[FINGERPRINT_BYTES];
    const struct machine other = usual();
    print_of(machine, text);
    print_of(&other, plain);
    assert_int_equal(strcmp(text, plain) == 0, same);
}

static void test_what_changes_the_bytes(void **state) {
    struct machine machine = usual();
    assert_same(&machine, true);
    machine.config.quantization = DTYPE_Q8_0;
    assert_same(&machine, false);
    machine = usual();
    machine.info.limits.max_model_len++;
    assert_same(&machine, false);
    machine = usual();
    machine.info.model_digest[15] = 1;
    assert_same(&machine, false);
    machine = usual();
    machine.info.kv_type = KV_F32;
    assert_same(&machine, false);
    machine = usual();
    machine.info.activation_dtype = DTYPE_BF16;
    assert_same(&machine, false);
    machine = usual();
    snprintf(machine.info.device, sizeof(machine.info.device), "cpu-ref");
    assert_same(&machine, false);
    machine = usual();
    snprintf(machine.info.numerics, sizeof(machine.info.numerics), "portable on avx2");
    assert_same(&machine, false);
    machine = usual();
    machine.build = "0123456789abcdee";
    assert_same(&machine, false);
    machine = usual();
    machine.info.num_ranks = 2; /* another order of sums */
    assert_same(&machine, false);
    machine = usual();
    machine.model.chat_template = "{{ messages }}";
    assert_same(&machine, false);
    machine.model.tool_chat_template = machine.model.chat_template;
    machine.model.chat_template = NULL;
    assert_same(&machine, false);
}

static void test_what_does_not(void **state) {
    struct machine machine = usual();
    machine.config.num_threads = 7;
    machine.info.limits.max_num_seqs = 3;
    machine.info.limits.num_blocks = 99;
    snprintf(machine.info.description, sizeof(machine.info.description), "AVX2, 7 threads");
    assert_same(&machine, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_what_changes_the_bytes),
        cmocka_unit_test(test_what_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
