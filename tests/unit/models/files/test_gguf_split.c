#include "models/files/tensor_file.h"

#include "tests/unit/models/gguf_writer.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct part {
    uint16_t number, count;
    int32_t num_tensors;
    const char *tensor; /* NULL: none */
};

static int make_folder(void **state) {
    *state = calloc(1, sizeof(struct temporary_folder));
    temporary_folder_make(*state);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(*state);
    free(*state);
    return 0;
}

/* The tensor is eight floats, each the part's number. */
static void write_part(void **state, const char *name, struct part part) {
    const uint64_t dims[1] = {8};
    struct gguf_writer w = {0};
    gguf_put_header(&w, 3, part.tensor != NULL, part.number == 0 ? 4 : 3);
    gguf_put_key(&w, "split.no", GGUF_UINT16), gguf_put(&w, &part.number, 2);
    gguf_put_key(&w, "split.count", GGUF_UINT16), gguf_put(&w, &part.count, 2);
    gguf_put_key(&w, "split.tensors.count", GGUF_INT32), gguf_put(&w, &part.num_tensors, 4);
    if (part.number == 0)
        gguf_put_key_string(&w, "general.name", "tiny");
    if (part.tensor != NULL)
        gguf_put_tensor(&w, part.tensor, 1, dims, GGUF_TENSOR_F32, 0);
    gguf_pad(&w, 32);
    for (int i = 0; i < 8; i++)
        gguf_put(&w, &(float){(float)part.number}, 4);
    temporary_write(*state, name, w.data, w.bytes);
    gguf_finish(&w);
}

static void write_good_parts(void **state) {
    write_part(state, "m-00001-of-00003.gguf", (struct part){0, 3, 2, NULL});
    write_part(state, "m-00002-of-00003.gguf", (struct part){1, 3, 2, "y"});
    write_part(state, "m-00003-of-00003.gguf", (struct part){2, 3, 2, "x"});
}

static void assert_refused(void **state, const char *name, const char *reason) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    const char *path = temporary_file(*state, name);
    assert_int_equal(tensor_file_open(path, &file, &err), -1);
    assert_null(file);
    assert_int_equal(strncmp(err.message, ((struct temporary_folder *)*state)->path,
                             strlen(((struct temporary_folder *)*state)->path)),
                     0);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void test_parts_are_one_model(void **state) {
    struct tensor_file *file;
    struct error err;
    float values[8];
    write_good_parts(state);
    const char *path = temporary_file(*state, "m-00001-of-00003.gguf");
    assert_int_equal(tensor_file_open(path, &file, &err), 0);
    assert_string_equal(tensor_file_path(file), path);
    assert_string_equal(tensor_file_format(file), "GGUF v3, 3 files");
    assert_int_equal(tensor_file_num_tensors(file), 2);
    assert_int_equal(tensor_file_find_metadata(file, "general.name")->as_string.length, 4);
    assert_int_equal(tensor_read(file, tensor_file_find(file, "x"), 0, 32, values, &err), 0);
    assert_true(values[0] == 2.0F && values[7] == 2.0F);
    assert_int_equal(tensor_read(file, tensor_file_find(file, "y"), 28, 4, values, &err), 0);
    assert_true(values[0] == 1.0F);
    tensor_file_close(file);
}

static void test_one_part_may_have_any_name(void **state) {
    struct tensor_file *file;
    struct error err;
    write_part(state, "m.gguf", (struct part){0, 1, 1, "x"});
    assert_int_equal(tensor_file_open(temporary_file(*state, "m.gguf"), &file, &err), 0);
    assert_string_equal(tensor_file_format(file), "GGUF v3");
    tensor_file_close(file);
}

static void test_merged_parts_are_one_file(void **state) {
    static const struct part parts[] = {{0, 0, 1, "x"}, {0, 0, 2, "x"}, {0, 1, 2, "x"}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct tensor_file *file;
        struct error err = {0};
        write_part(state, "m.gguf", parts[i]);
        if (tensor_file_open(temporary_file(*state, "m.gguf"), &file, &err) != 0)
            fail_msg("%s", err.message);
        assert_string_equal(tensor_file_format(file), "GGUF v3");
        assert_int_equal(tensor_file_num_tensors(file), 1);
        tensor_file_close(file);
    }
}

static void test_other_paths_are_refused(void **state) {
    write_good_parts(state);
    assert_refused(state, "m-00002-of-00003.gguf",
                   "is one of 3 parts; the first is needed, and its name ends in "
                   "-00001-of-00003.gguf");
    write_part(state, "m.gguf", (struct part){0, 3, 2, "x"});
    assert_refused(state, "m.gguf", "is one of 3 parts");
    write_part(state, "m-00001-of-00004.gguf", (struct part){0, 3, 2, "x"});
    assert_refused(state, "m-00001-of-00004.gguf", "ends in -00001-of-00003.gguf");
}

static void test_a_missing_part_is_named(void **state) {
    write_good_parts(state);
    assert_int_equal(unlink(temporary_file(*state, "m-00002-of-00003.gguf")), 0);
    assert_refused(state, "m-00001-of-00003.gguf", "m-00002-of-00003.gguf: cannot open");
    write_good_parts(state);
    assert_int_equal(truncate(temporary_file(*state, "m-00003-of-00003.gguf"), 40), 0);
    assert_refused(state, "m-00001-of-00003.gguf", "m-00003-of-00003.gguf: ");
}

static void test_odd_parts_are_refused(void **state) {
    static const struct {
        struct part part;
        const char *reason;
    } cases[] = {
        {{2, 3, 2, "y"}, "00002-of-00003.gguf: metadata 'split.no': 2, expected 1"},
        {{1, 4, 2, "y"}, "00002-of-00003.gguf: metadata 'split.count': 4, expected 3"},
        {{1, 3, 3, "y"}, "00002-of-00003.gguf: metadata 'split.tensors.count': 3, expected 2"},
        {{1, 0, 2, "y"}, "'split.count': 0, expected 3"},
        {{1, 65535, 2, "y"}, "'split.count': 65535 (allowed: 0 to 512)"},
        {{1, 3, -1, "y"}, "'split.tensors.count': is not a number from 0"},
        {{1, 3, 2, "x"}, "tensor 'x' occurs more than once"},
        {{1, 3, 2, NULL}, "'split.tensors.count': 2, but the parts hold 1 tensors"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_good_parts(state);
        write_part(state, "m-00002-of-00003.gguf", cases[i].part);
        assert_refused(state, "m-00001-of-00003.gguf", cases[i].reason);
    }
    write_good_parts(state);
    write_part(state, "m-00001-of-00003.gguf", (struct part){1, 3, 2, NULL});
    assert_refused(state, "m-00001-of-00003.gguf", "metadata 'split.no': 1, expected 0");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_parts_are_one_model),     IN_FOLDER(test_one_part_may_have_any_name),
        IN_FOLDER(test_other_paths_are_refused), IN_FOLDER(test_a_missing_part_is_named),
        IN_FOLDER(test_odd_parts_are_refused),   IN_FOLDER(test_merged_parts_are_one_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
