#include "kernels/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_unknown_device(void **state) {
    struct backend_config config = {.num_threads = 1};
    struct error err = {0};
    assert_null(backend_open("gpu9", &config, &err));
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "gpu9"));
    assert_non_null(strstr(err.message, "must be cpu, cpu-ref, cuda or cuda-sim"));
    backend_close(NULL);
}

static void test_instruction_set_is_named(void **state) {
    struct backend_config config = {.num_threads = 2,
                                    .limits.max_num_batched_tokens = 8,
                                    .limits.max_num_seqs = 2,
                                    .isa = "portable"};
    struct backend *b = backend_open("cpu", &config, NULL);
    assert_non_null(b);
    assert_string_equal(b->name, "cpu");
    assert_string_equal(b->description, "portable, 2 threads");
    backend_close(b);

    struct error err = {0};
    config.isa = "mmx";
    assert_null(backend_open("cpu", &config, &err));
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "mmx"));
    assert_non_null(strstr(err.message, "portable"));
}

static void test_bad_thread_count(void **state) {
    struct backend_config config = {.num_threads = -2,
                                    .limits.max_num_batched_tokens = 8,
                                    .limits.max_num_seqs = 2,
                                    .isa = "auto"};
    struct error err = {0};
    assert_null(backend_open("cpu", &config, &err));
    assert_int_equal(err.code, ERROR_CONFIG);
}

static void test_kv_block_bytes(void **state) {
    struct kv_layout layout = {
        .num_layers = 30, .num_kv_heads = 3, .head_dim = 64, .block_size = 16, .type = KV_BF16};
    assert_int_equal(kv_block_bytes(&layout), 368640);
    layout.type = KV_F32;
    assert_int_equal(kv_block_bytes(&layout), 737280);
}

/* Buffers and copies through the op table of both devices. */
static void test_memory_ops(void **state) {
    static const char *const names[] = {"cpu", "cpu-ref"};
    struct backend_config config = {
        .num_threads = 1, .limits.max_num_batched_tokens = 8, .limits.max_num_seqs = 2};
    for (int i = 0; i < 2; i++) {
        struct backend *b = backend_open(names[i], &config, NULL);
        assert_non_null(b);
        struct buffer buffer;
        assert_int_equal(b->ops->buffer_alloc(b, 100, &buffer, NULL), 0);
        const char text[] = "0123456789";
        char back[sizeof(text)];
        b->ops->upload(b, buffer.data, text, sizeof(text));
        b->ops->download(b, back, buffer.data, sizeof(text));
        assert_int_equal(b->ops->synchronize(b, NULL), 0);
        assert_string_equal(back, text);
        b->ops->buffer_free(b, &buffer);
        size_t free_bytes = 0, total_bytes = 0;
        b->ops->memory_info(b, &free_bytes, &total_bytes);
        assert_true(total_bytes > 0 && free_bytes <= total_bytes);
        backend_close(b);
    }
}

static void test_kv_type(void **state) {
    const struct backend any = {.kv_types = KV_TYPE_BIT(KV_F32) | KV_TYPE_BIT(KV_BF16)};
    const struct backend one = {.kv_types = KV_TYPE_BIT(KV_BF16)};
    assert_int_equal(backend_kv_type(&any, KV_BF16), KV_BF16);
    assert_int_equal(backend_kv_type(&any, KV_F16), KV_F32);
    assert_int_equal(backend_kv_type(&one, KV_F32), KV_BF16);
    assert_int_equal(backend_kv_type(&one, KV_INT8), KV_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_device),   cmocka_unit_test(test_instruction_set_is_named),
        cmocka_unit_test(test_bad_thread_count), cmocka_unit_test(test_kv_block_bytes),
        cmocka_unit_test(test_memory_ops),       cmocka_unit_test(test_kv_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
