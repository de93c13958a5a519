#include "models/weights/weights.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>

#define GOOD_HEADER                                                                                \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                       \
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"                           \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}"

struct image {
    uint8_t *data;
    size_t bytes;
};

/* A file with this header and data 0, 1, 2, ... behind it; length replaces the header's own unless
 * 0. The allocation ends with the file, so that a sanitizer sees any read past it. */
static struct image make_image(const char *header, size_t data_bytes, uint64_t length) {
    size_t header_bytes = strlen(header);
    struct image image = {.bytes = 8 + header_bytes + data_bytes};
    image.data = malloc(image.bytes);
    assert_non_null(image.data);
    length = length != 0 ? length : header_bytes;
    memcpy(image.data, &length, sizeof(length));
    memcpy(image.data + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        image.data[8 + header_bytes + i] = (uint8_t)i;
    return image;
}

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

static const char *folder_path(void **state) {
    return ((struct temporary_folder *)*state)->path;
}

static void write_image(void **state, const char *name, const char *header, size_t data_bytes) {
    struct image image = make_image(header, data_bytes, 0);
    temporary_write(*state, name, image.data, image.bytes);
    free(image.data);
}

static void write_text(void **state, const char *name, const char *text) {
    temporary_write(*state, name, text, strlen(text));
}

static void assert_message(const struct error *err, const char *reason) {
    assert_int_equal(err->code, ERROR_MODEL);
    assert_null(strchr(err->message, '\n'));
    if (strstr(err->message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err->message);
}

static void assert_image_refused(struct image image, const char *reason) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    if (tensor_file_open_memory(image.data, image.bytes, "m", &file, &err) == 0)
        fail_msg("opened a file that lacks '%s'", reason);
    assert_null(file);
    assert_int_equal(strncmp(err.message, "m: ", 3), 0);
    assert_message(&err, reason);
    free(image.data);
}

static void assert_folder_refused(void **state, const char *reason) {
    struct tensor_file *file = NULL;
    struct error err = {0};
    assert_int_equal(tensor_file_open(folder_path(state), &file, &err), -1);
    assert_null(file);
    assert_int_equal(strncmp(err.message, folder_path(state), strlen(folder_path(state))), 0);
    assert_message(&err, reason);
}

/* --- One file --- */

static void assert_good_tensors(const struct tensor_file *file) {
    uint8_t bytes[24];
    struct error err;
    assert_int_equal(tensor_file_num_tensors(file), 2);
    assert_int_equal(tensor_file_num_metadata(file), 0);
    const struct tensor_info *a = tensor_file_find(file, "a"), *b = tensor_file_find(file, "b");
    assert_int_equal(a->dtype, DTYPE_F32);
    assert_int_equal(a->num_dims, 2);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->bytes, 24);
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_int_equal(b->num_dims, 1);
    assert_int_equal(b->bytes, 8);
    assert_int_equal(tensor_read(file, a, 0, 24, bytes, &err), 0);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[23], 23);
    assert_int_equal(tensor_read(file, b, 6, 2, bytes, &err), 0);
    assert_int_equal(bytes[1], 31);
}

/* The order in the header is not the order of the data; a header may be padded with spaces. */
static void good_files_are_read(void **state) {
    static const char *const headers[] = {GOOD_HEADER, GOOD_HEADER "     "};
    struct tensor_file *file;
    struct error err;
    for (size_t i = 0; i < 2; i++) {
        struct image image = make_image(headers[i], 32, 0);
        assert_int_equal(tensor_file_open_memory(image.data, image.bytes, "m", &file, &err), 0);
        assert_string_equal(tensor_file_format(file), "safetensors");
        assert_int_equal(tensor_file_bytes(file), image.bytes);
        assert_good_tensors(file);
        tensor_file_close(file);
        free(image.data);
    }
    struct image half = make_image(
        "{\"\\u00e9\\\"\":{\"dtype\":\"F16\",\"shape\":[1,1,2],\"data_offsets\":[0,4]}}", 4, 0);
    assert_int_equal(tensor_file_open_memory(half.data, half.bytes, "m", &file, &err), 0);
    assert_int_equal(tensor_file_find(file, "\xC3\xA9\"")->dtype, DTYPE_F16);
    tensor_file_close(file);
    free(half.data);
}

/* --- Types that nothing here computes with ----------------------------------------------------
 */

static void unsupported_types_are_listed(void **state) {
    struct image image =
        make_image("{\"p\":{\"dtype\":\"I64\",\"shape\":[1,3],\"data_offsets\":[0,24]},"
                   "\"m\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[24,27]},"
                   "\"n\":{\"dtype\":\"U16\",\"shape\":[],\"data_offsets\":[27,29]},"
                   "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[29,33]}}",
                   33, 0);
    struct tensor_file *file;
    struct error err = {0};
    if (tensor_file_open_memory(image.data, image.bytes, "m", &file, &err) != 0)
        fail_msg("%s", err.message);
    const struct tensor_info *p = tensor_file_find(file, "p"), *s = tensor_file_find(file, "s");
    assert_string_equal(p->unsupported->name, "I64");
    assert_int_equal(p->dtype, DTYPE_NONE);
    assert_int_equal(p->bytes, 24);
    assert_int_equal(tensor_file_find(file, "m")->bytes, 3);
    assert_int_equal(tensor_file_find(file, "n")->bytes, 2);
    assert_null(s->unsupported);
    assert_int_equal(s->num_dims, 0);
    assert_int_equal(s->bytes, 4);
    tensor_file_close(file);
    free(image.data);
}

static struct model one_tensor_model(const struct image *image) {
    struct model model = {.config = {.naming = TENSOR_NAMING_HF,
                                     .tensor_prefix = "model.",
                                     .vocab_size = 2,
                                     .hidden_size = 3,
                                     .intermediate_size = 4,
                                     .num_layers = 1,
                                     .num_heads = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 8}};
    struct error err = {0};
    if (tensor_file_open_memory(image->data, image->bytes, "m", &model.file, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static void an_unsupported_type_is_refused_where_it_is_needed(void **state) {
    const struct weights_options options = {.max_model_len = 8, .quantization = DTYPE_NONE};
    const struct backend_config config = {
        .num_threads = 1, .limits.max_num_batched_tokens = 8, .limits.max_num_seqs = 1};
    struct weights *weights = NULL;
    struct backend *backend;
    struct error err = {0};
    struct image image = make_image("{\"model.embed_tokens.weight\":{\"dtype\":\"I16\","
                                    "\"shape\":[2,3],\"data_offsets\":[0,12]}}",
                                    12, 0);
    struct model model = one_tensor_model(&image);
    struct model_shard shard;
    assert_int_equal(model_shard_init(&model, DTYPE_NONE, 0, 1, &shard, &err), 0);
    assert_non_null(backend = backend_open("cpu-ref", &config, &err));
    assert_int_equal(weights_load_alone(backend, &model, &shard, &options, &weights, &err), -1);
    assert_null(weights);
    assert_message(&err, "m: tensor 'model.embed_tokens.weight': type I16 is not supported");
    assert_true(weights_needed(&model, &shard, &options, backend) < 1000);
    assert_true(model_main_dtype(&model) < DTYPE_NONE);
    FILE *out = tmpfile();
    assert_non_null(out);
    model_print(&model, out);
    assert_int_equal(fclose(out), 0);
    backend_close(backend);
    tensor_file_close(model.file);
    free(image.data);
}

/* --- What is refused --- */

#define A(rest) "{\"a\":{\"dtype\":\"F32\"," rest "}}"
#define TWO(a, b)                                                                                  \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" a "},"                             \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" b "}}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *reason;
} bad_headers[] = {
    /* sizes, order and cover */
    {A("\"shape\":[2],\"data_offsets\":[0,8]"), 7, "data ends at byte 70 but the file has 69"},
    {A("\"shape\":[2],\"data_offsets\":[0,8]"), 9, "the last 1 bytes belong to no tensor"},
    {A("\"shape\":[2],\"data_offsets\":[4,12]"), 12, "a gap before its data"},
    {TWO("[0,8]", "[4,12]"), 12, "overlaps"},
    {TWO("[0,8]", "[0,8]"), 8, "overlaps"},
    {TWO("[0,8]", "[12,20]"), 20, "tensor 'b': data_offsets: a gap"},
    {TWO("[8,0]", "[8,16]"), 16, "data_offsets: 8 to 0, but its shape and type take 8 bytes"},
    {A("\"shape\":[3],\"data_offsets\":[0,8]"), 8, "take 12 bytes"},
    {A("\"shape\":[2],\"data_offsets\":[0,4503599627370496]"), 8, "take 8 bytes"},
    {A("\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "beyond 2^63-1"},
    {A("\"shape\":[9007199254740991,1024],\"data_offsets\":[0,0]"), 0, "beyond 2^63-1"},
    {"{}", 1, "the last 1 bytes"},
    /* fields */
    {A("\"shape\":[2],\"data_offsets\":[0,8.5]"), 8, "data_offsets: is not an array"},
    {A("\"shape\":[2],\"data_offsets\":[-8,0]"), 8, "data_offsets: is not an array"},
    {A("\"shape\":[2],\"data_offsets\":[0]"), 8, "data_offsets: is not an array"},
    {A("\"shape\":[2],\"data_offsets\":[0,8,16]"), 8, "data_offsets: is not an array"},
    {A("\"shape\":[2],\"data_offsets\":[0,1e18]"), 8, "data_offsets: is not an array"},
    {A("\"shape\":[2],\"data_offsets\":{\"a\":0,\"b\":8}"), 8, "data_offsets: is not an array"},
    {A("\"shape\":[2]"), 8, "data_offsets: is not an array"},
    {A("\"data_offsets\":[0,8]"), 8, "shape: is missing"},
    {A("\"shape\":[],\"data_offsets\":[0,0]"), 0, "take 4 bytes"},
    {A("\"shape\":[0],\"data_offsets\":[0,0]"), 0, "a dimension is not a whole number from 1"},
    {A("\"shape\":[-2],\"data_offsets\":[0,8]"), 8, "a dimension is not"},
    {A("\"shape\":[\"2\"],\"data_offsets\":[0,8]"), 8, "a dimension is not"},
    {A("\"shape\":[1,1,1,1,2],\"data_offsets\":[0,8]"), 8, "more than 4 dimensions"},
    {A("\"shape\":[2],\"data_offsets\":[0,8],\"x\":1"), 8, "an unknown field"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype: is missing"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
     "tensor 'a': dtype 'F4' is not known; weights are F32, F16 or BF16, those of"},
    {"{\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "take 16 bytes"},
    {"{\"a\":[]}", 8, "tensor 'a': is not an object"},
    {"{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "name of 0 bytes"},
    {"{\"a\\n\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "a control character"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: 'a' is not a text"},
    {"{\"__metadata__\":[]}", 0, "__metadata__: is not an object"},
    /* the header as JSON */
    {" {}", 0, "does not start with the magic"},
    {"{\"a\":1,\"a\":2}", 0, "header: is not valid JSON: a key that the object already has"},
    {A("\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]"), 8, "already has"},
    {"{\"\xFF\":1}", 0, "invalid UTF-8 at byte 2"},
    {"{\"a\\u0000\":1}", 0, "\\u0000"},
    {"{\"a\":", 0, "header: is not valid JSON: it ends at byte 5"},
    {"{}{}", 0, "the end is expected"},
};

static void bad_headers_are_refused(void **state) {
    for (size_t i = 0; i < sizeof(bad_headers) / sizeof(bad_headers[0]); i++)
        assert_image_refused(make_image(bad_headers[i].header, bad_headers[i].data_bytes, 0),
                             bad_headers[i].reason);
}

static void bad_header_lengths_are_refused(void **state) {
    assert_image_refused(make_image(GOOD_HEADER, 32, (uint64_t)1 << 63), "(allowed: 1 to 1000000");
    assert_image_refused(make_image(GOOD_HEADER, 32, UINT64_MAX), "(allowed: 1 to 1000000");
    assert_image_refused(make_image(GOOD_HEADER, 32, 100000001), "(allowed: 1 to 100000000)");
    assert_image_refused(make_image(GOOD_HEADER, 32, 100000000), "but the file has");
    assert_image_refused(make_image(GOOD_HEADER, 0, strlen(GOOD_HEADER) + 1), "but the file has");
    assert_image_refused(make_image(GOOD_HEADER, 32, strlen(GOOD_HEADER) - 1), "not valid JSON");
    assert_image_refused(make_image(GOOD_HEADER, 32, strlen(GOOD_HEADER) + 1), "not valid JSON");
    assert_image_refused(make_image(GOOD_HEADER, 32, 1), "not valid JSON");
}

/* --- Folders --- */

static void a_folder_with_one_file_is_opened(void **state) {
    struct tensor_file *file;
    struct error err;
    char slashes[300];
    write_image(state, "model.safetensors", GOOD_HEADER, 32);
    snprintf(slashes, sizeof(slashes), "%s//", folder_path(state));
    assert_int_equal(tensor_file_open(slashes, &file, &err), 0);
    assert_string_equal(tensor_file_path(file), slashes);
    assert_good_tensors(file);
    tensor_file_close(file);
    assert_int_equal(tensor_file_open(temporary_file(*state, "model.safetensors"), &file, &err),
                     -1);
    assert_message(&err, "is a safetensors file; name the folder that holds it");
}

#define SHARD_1 "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define SHARD_2                                                                                    \
    "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"                             \
    "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}"
#define NAME_1 "model-00001-of-00002.safetensors"
#define NAME_2 "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"
#define MAP(entries) "{\"metadata\":{\"total_size\":20},\"weight_map\":{" entries "}}"
#define GOOD_MAP MAP("\"c\":\"" NAME_2 "\",\"a\":\"" NAME_1 "\",\"b\":\"" NAME_2 "\"")

static void a_sharded_folder_is_opened(void **state) {
    struct tensor_file *file;
    struct error err;
    uint8_t bytes[4];
    write_image(state, NAME_1, SHARD_1, 8);
    write_image(state, NAME_2, SHARD_2, 12);
    write_text(state, INDEX, GOOD_MAP);
    assert_int_equal(tensor_file_open(folder_path(state), &file, &err), 0);
    assert_string_equal(tensor_file_format(file), "safetensors, 2 files");
    assert_int_equal(tensor_file_bytes(file), 36 + strlen(SHARD_1) + strlen(SHARD_2));
    assert_int_equal(tensor_file_num_tensors(file), 3);
    assert_int_equal(tensor_read(file, tensor_file_find(file, "a"), 4, 4, bytes, &err), 0);
    assert_int_equal(bytes[0], 4);
    assert_int_equal(tensor_read(file, tensor_file_find(file, "c"), 0, 4, bytes, &err), 0);
    assert_int_equal(bytes[0], 8);
    tensor_file_close(file);
}

/* The map names a tensor that is not stored, and leaves out one that is. */
static void an_index_may_differ_from_its_shards(void **state) {
    struct tensor_file *file;
    struct error err = {0};
    write_image(state, NAME_1, SHARD_1, 8);
    write_image(state, NAME_2, SHARD_2, 12);
    write_text(state, INDEX,
               MAP("\"a\":\"" NAME_1 "\",\"b\":\"" NAME_2 "\",\"lm_head\":\"" NAME_2 "\""));
    if (tensor_file_open(folder_path(state), &file, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(tensor_file_num_tensors(file), 3);
    assert_non_null(tensor_file_find(file, "c"));
    assert_null(tensor_file_find(file, "lm_head"));
    tensor_file_close(file);
}

static const struct {
    const char *index, *reason;
} bad_indices[] = {
    {MAP("\"a\":\"" NAME_1 "\",\"b\":\"" NAME_1 "\",\"c\":\"" NAME_2 "\""),
     "tensor 'b' is in the shard " NAME_2 " and not, as the map says, in " NAME_1},
    {MAP("\"a\":\"none.safetensors\""), "none.safetensors: cannot open"},
    {MAP("\"a\":\"../" NAME_1 "\""), "'a': the shard is not a plain file name"},
    {MAP("\"a\":\"/etc/x.safetensors\""), "not a plain file name"},
    {MAP("\"a\":\"..\""), "not a plain file name"},
    {MAP("\"a\":\"\""), "not a plain file name"},
    {MAP("\"a\":\"config.json\""), "not a plain file name"},
    {MAP("\"a\":1"), "not a plain file name"},
    {MAP(""), "weight_map: is missing, empty"},
    {"{}", "weight_map: is missing, empty"},
    {"{\"weight_map\":[]}", "weight_map: is missing, empty"},
    {"{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}", "already has"},
};

static void bad_indices_are_refused(void **state) {
    write_image(state, NAME_1, SHARD_1, 8);
    write_image(state, NAME_2, SHARD_2, 12);
    for (size_t i = 0; i < sizeof(bad_indices) / sizeof(bad_indices[0]); i++) {
        struct tensor_file *file = NULL;
        struct error err = {0};
        write_text(state, INDEX, bad_indices[i].index);
        assert_int_equal(tensor_file_open(folder_path(state), &file, &err), -1);
        assert_null(file);
        if (strstr(err.message, bad_indices[i].reason) == NULL)
            fail_msg("expected '%s' in '%s'", bad_indices[i].reason, err.message);
    }
    write_text(state, INDEX, GOOD_MAP);
    write_image(state, NAME_2, SHARD_1, 8);
    assert_folder_refused(state, "tensor 'a' occurs more than once");
    write_image(state, NAME_2, SHARD_2, 11);
    assert_folder_refused(state, NAME_2 ": tensor 'c': data ends at byte");
}

static void other_folders_say_what_is_missing(void **state) {
    assert_folder_refused(state, "is a directory with neither model.safetensors nor");
    write_text(state, "m.gguf", "GGUF");
    assert_folder_refused(state, "name the GGUF file in it (m.gguf)");
    write_text(state, "pytorch_model.bin", "x");
    assert_folder_refused(state, "as pytorch_model.bin: pickle files can run code and are never");
    const char *inside = temporary_file(*state, "model.safetensors");
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_folder_refused(state, "model.safetensors: is a directory");
    assert_int_equal(rmdir(temporary_file(*state, "model.safetensors")), 0);
    assert_int_equal(mkfifo(temporary_file(*state, "model.safetensors"), 0600), 0);
    assert_folder_refused(state, "model.safetensors: is not a regular file");
    assert_int_equal(unlink(temporary_file(*state, "model.safetensors")), 0);
    write_text(state, "model.safetensors", "");
    assert_folder_refused(state, "model.safetensors: is empty");
    write_text(state, "model.safetensors", "{}");
    assert_folder_refused(state, "header: the file ends at byte 2");
}

/* --- Files that are cut --- */

#define LARGE_HEADER "{\"t\":{\"dtype\":\"F32\",\"shape\":[32,256],\"data_offsets\":[0,32768]}}"

static void a_file_cut_before_it_is_opened(void **state) {
    struct image image = make_image(LARGE_HEADER, 32768, 0);
    for (size_t bytes = 4096; bytes < image.bytes; bytes += 4096) {
        temporary_write(*state, "model.safetensors", image.data, bytes);
        assert_folder_refused(state, "tensor 't': data ends at byte");
    }
    for (size_t bytes = 1; bytes < 8 + strlen(LARGE_HEADER); bytes++) {
        temporary_write(*state, "model.safetensors", image.data, bytes);
        assert_folder_refused(state, "header: ");
    }
    free(image.data);
}

static void a_file_cut_while_it_is_open(void **state) {
    struct tensor_file *file;
    struct error err;
    uint8_t *bytes = malloc(32768);
    write_image(state, "model.safetensors", LARGE_HEADER, 32768);
    assert_int_equal(tensor_file_open(folder_path(state), &file, &err), 0);
    const struct tensor_info *tensor = tensor_file_find(file, "t");
    const char *path = temporary_file(*state, "model.safetensors");
    assert_int_equal(tensor_read(file, tensor, 0, 32768, bytes, &err), 0);
    for (off_t cut = 32768; cut >= 0; cut -= 4096) {
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(tensor_read(file, tensor, 0, 32768, bytes, &err), -1);
        assert_message(&err, "model.safetensors: tensor 't': the file ended at byte");
    }
    tensor_file_close(file);
    free(bytes);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_are_read),
        cmocka_unit_test(unsupported_types_are_listed),
        cmocka_unit_test(an_unsupported_type_is_refused_where_it_is_needed),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_header_lengths_are_refused),
        IN_FOLDER(a_folder_with_one_file_is_opened),
        IN_FOLDER(a_sharded_folder_is_opened),
        IN_FOLDER(an_index_may_differ_from_its_shards),
        IN_FOLDER(bad_indices_are_refused),
        IN_FOLDER(other_folders_say_what_is_missing),
        IN_FOLDER(a_file_cut_before_it_is_opened),
        IN_FOLDER(a_file_cut_while_it_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
