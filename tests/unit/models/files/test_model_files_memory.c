/* Fails the first, second, third ... allocation of opening a model's files until one run needs no
 * more: each run opens them or says ERROR_MEMORY, and frees what it took. */
#include "models/files/tensor_file.h"

#include "tests/unit/failing_allocations.h"
#include "tests/unit/models/gguf_writer.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static int make_folder(void **state) {
    static struct temporary_folder folder;
    temporary_folder_make(&folder);
    *state = &folder;
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(*state);
    return 0;
}

/* Two tensors in two files; whether all of it was opened. */
static bool run_open(const char *path, long num_allocations) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    allocations_left = num_allocations;
    int status = tensor_file_open(path, &file, &err);
    allocations_left = -1;
    if (status != 0) {
        assert_null(file);
        if (err.code != ERROR_MEMORY)
            fail_msg("after %ld allocations: %s", num_allocations, err.message);
        return false;
    }
    assert_int_equal(tensor_file_num_tensors(file), 2);
    tensor_file_close(file);
    return true;
}

static void assert_every_failure_is_survived(const char *path, long min_allocations) {
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = free};
    long count = 0;
    cJSON_InitHooks(&hooks);
    while (!run_open(path, count))
        assert_true(++count < 1000);
    cJSON_InitHooks(NULL);
    assert_true(count >= min_allocations);
}

static void write_shard(void **state, const char *name, const char *header) {
    uint8_t image[256];
    uint64_t length = strlen(header);
    memcpy(image, &length, 8);
    memcpy(image + 8, header, length);
    memset(image + 8 + length, 0, 8);
    temporary_write(*state, name, image, 8 + length + 8);
}

static void a_sharded_folder(void **state) {
    static const char index[] = "{\"weight_map\":{\"a\":\"1.safetensors\",\"\\u0062\":"
                                "\"2.safetensors\"}}";
    write_shard(state, "1.safetensors",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    write_shard(state, "2.safetensors",
                "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    temporary_write(*state, "model.safetensors.index.json", index, sizeof(index) - 1);
    assert_every_failure_is_survived(((struct temporary_folder *)*state)->path, 30);
}

static void write_part(void **state, const char *name, uint32_t number, const char *tensor) {
    const uint64_t dims[1] = {2};
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, 1, 4);
    gguf_put_key_u32(&w, "split.no", number);
    gguf_put_key_u32(&w, "split.count", 2);
    gguf_put_key_u32(&w, "split.tensors.count", 2);
    gguf_put_key_array(&w, "texts", GGUF_STRING, 1), gguf_put_string(&w, "x");
    gguf_put_tensor(&w, tensor, 1, dims, GGUF_TENSOR_F32, 0);
    gguf_pad(&w, 32);
    gguf_put_zeros(&w, 8);
    temporary_write(*state, name, w.data, w.bytes);
    gguf_finish(&w);
}

static void a_split_file(void **state) {
    write_part(state, "m-00001-of-00002.gguf", 0, "a");
    write_part(state, "m-00002-of-00002.gguf", 1, "b");
    char *path = strdup(temporary_file(*state, "m-00001-of-00002.gguf"));
    assert_every_failure_is_survived(path, 12);
    free(path);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(a_sharded_folder), IN_FOLDER(a_split_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
