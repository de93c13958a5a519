/* Folders become the GGUF files that llama.cpp's converter makes of them, byte for byte, and GGUF
 * files keep what they say. The folder of families is the argument. */
#include "models/convert/conversion.h"
#include "models/files/gguf_writer.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *golden_dir;
static char folder[] = "/tmp/quire-conversion-XXXXXX";
static char in_path[256], out_path[256];

static struct conversion_settings settings_of(const char *type) {
    return (struct conversion_settings){
        .types = {quant_mixture_find(type), DTYPE_NONE, DTYPE_NONE, false, false}};
}

static struct conversion *open_source(const char *path,
                                      const struct conversion_settings *settings) {
    struct conversion *conversion;
    struct error err = {0};
    if (conversion_open(path, settings, &conversion, &err) != 0)
        fail_msg("%s", err.message);
    return conversion;
}

static struct tensor_file *convert(const char *path, const struct conversion_settings *settings) {
    struct conversion *conversion = open_source(path, settings);
    struct tensor_file *file;
    struct error err = {0};
    if (conversion_write(conversion, out_path, 2, NULL, &err) != 0)
        fail_msg("%s", err.message);
    conversion_close(conversion);
    if (tensor_file_open(out_path, &file, &err) != 0)
        fail_msg("%s", err.message);
    return file;
}

static uint8_t *read_tensor(const struct tensor_file *file, const struct tensor_info *tensor) {
    struct error err = {0};
    uint8_t *data = malloc(tensor->bytes + 1);
    assert_non_null(data);
    assert_int_equal(tensor_read(file, tensor, 0, tensor->bytes, data, &err), 0);
    return data;
}

/* --- Folders --- */

static void assert_same_tensor(const char *family, const struct tensor_file *expected,
                               const struct tensor_info *tensor, const struct tensor_file *file) {
    char name[65];
    snprintf(name, sizeof(name), "%.*s", (int)tensor->name.length, tensor->name.data);
    const struct tensor_info *found = tensor_file_find(file, name);
    if (found == NULL || found->dtype != tensor->dtype || found->num_dims != tensor->num_dims ||
        memcmp(found->shape, tensor->shape, sizeof(found->shape)) != 0)
        fail_msg("%s: tensor %s is missing or of another type or shape", family, name);
    uint8_t *a = read_tensor(expected, tensor), *b = read_tensor(file, found);
    if (memcmp(a, b, tensor->bytes) != 0)
        fail_msg("%s: tensor %s has other values", family, name);
    free(a);
    free(b);
}

static void assert_same_metadata(const char *family, const struct metadata *entry,
                                 const struct tensor_file *file) {
    char key[128];
    if (text_is(entry->key, "general.name"))
        return;
    snprintf(key, sizeof(key), "%.*s", (int)entry->key.length, entry->key.data);
    const struct metadata *found = tensor_file_find_metadata(file, key);
    if (found == NULL || text_compare(found->raw, entry->raw) != 0)
        fail_msg("%s: metadata %s is missing or has another value", family, key);
}

static void check_family(const char *name) {
    char path[512];
    struct tensor_file *expected;
    struct error err = {0};
    struct conversion_settings settings =
        settings_of(strcmp(name, "llama-linear") == 0 ? "F16" : "BF16");
    snprintf(path, sizeof(path), "%s/families/%s.gguf", golden_dir, name);
    assert_int_equal(tensor_file_open(path, &expected, &err), 0);
    path[strlen(path) - strlen(".gguf")] = '\0';
    struct tensor_file *file = convert(path, &settings);
    assert_int_equal(tensor_file_num_tensors(file), tensor_file_num_tensors(expected));
    for (size_t i = 0; i < tensor_file_num_tensors(expected); i++)
        assert_same_tensor(name, expected, tensor_file_tensor(expected, i), file);
    for (size_t i = 0; i < tensor_file_num_metadata(expected); i++)
        assert_same_metadata(name, tensor_file_metadata(expected, i), file);
    tensor_file_close(expected);
    tensor_file_close(file);
}

static void test_families(void **state) {
    static const char *const families[] = {
        "cohere",        "deepseek-v2", "deepseek-v3",  "gemma",
        "gemma2",        "gemma3",      "glm4.5",       "glm4.5-air",
        "gpt-oss",       "granite",     "granite-moe",  "granite-moe-shared",
        "llama",         "llama3",      "llama-linear", "mistral",
        "mixtral",       "olmo2",       "olmoe",        "phi3",
        "phi3-longrope", "phi3.5-moe",  "phi4-mini",    "qwen2",
        "qwen2-moe",     "qwen2-yarn",  "qwen3",        "qwen3-moe",
        "qwen3-yarn",    "smollm3",
    };
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        check_family(families[i]);
}

/* What a GGUF file cannot say is refused when the file is checked, and nothing is left. */
static void check_refused(const char *name, const char *reason) {
    struct conversion_settings settings = settings_of("Q8_0");
    struct error err = {0};
    char path[512];
    snprintf(path, sizeof(path), "%s/families/%s", golden_dir, name);
    struct conversion *conversion = open_source(path, &settings);
    unlink(out_path);
    assert_int_equal(conversion_write(conversion, out_path, 1, NULL, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
    assert_int_equal(access(out_path, F_OK), -1);
    conversion_close(conversion);
}

static void test_what_the_format_cannot_say(void **state) {
    check_refused("gemma2-scalar", "the attention's scale");
    check_refused("llama-dynamic", "max_position_embeddings");
}

/* --- GGUF files --- */

enum { ROWS = 6, COLS = 256, EXPERTS = 2 };

static float value_at(size_t i) {
    return 0.01F * (float)((i * 2654435761U >> 8) % 1001) - 5.0F;
}

static void add_tensor(struct gguf_writer *w, const char *name, int num_dims,
                       const int64_t *shape) {
    struct tensor_info info = {.name = {name, strlen(name)},
                               .dtype = DTYPE_F32,
                               .num_dims = num_dims,
                               .bytes = sizeof(float)};
    for (int d = 0; d < num_dims; d++) {
        info.shape[d] = shape[d];
        info.bytes *= (size_t)shape[d];
    }
    gguf_writer_tensor(w, &info);
}

/* Writes a model of one layer with experts to in_path; its values are value_at of their index. */
static void write_source(void) {
    static const int64_t vector[] = {COLS}, experts[] = {EXPERTS, ROWS, COLS};
    static const int64_t matrix[] = {ROWS, COLS}, odd[] = {ROWS, 96};
    struct gguf_writer w = {0};
    struct byte_buffer bytes = {0};
    struct error err = {0};
    gguf_writer_string(&w, "general.architecture", (struct text){"llama", 5});
    gguf_writer_string(&w, "test.kept", (struct text){"as it is", 8});
    gguf_writer_u32(&w, "llama.block_count", 1);
    gguf_writer_u32(&w, "llama.expert_count", EXPERTS);
    gguf_writer_u32(&w, "general.file_type", 0);
    add_tensor(&w, "token_embd.weight", 2, matrix);
    add_tensor(&w, "output.weight", 2, matrix);
    add_tensor(&w, "blk.0.attn_norm.weight", 1, vector);
    add_tensor(&w, "blk.0.attn_q.weight", 2, odd);
    add_tensor(&w, "blk.0.ffn_gate_inp.weight", 2, matrix);
    add_tensor(&w, "blk.0.ffn_up_exps.weight", 3, experts);
    assert_int_equal(gguf_writer_end(&w, &bytes, &err), 0);
    for (size_t i = 0; i < w.data_bytes / sizeof(float); i++) {
        float value = value_at(i);
        byte_buffer_append(&bytes, &value, sizeof(value));
    }
    FILE *file = fopen(in_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.data, 1, bytes.length, file), bytes.length);
    fclose(file);
    gguf_writer_finish(&w);
    byte_buffer_finish(&bytes);
}

static enum dtype type_in(const struct tensor_file *file, const char *name) {
    const struct tensor_info *tensor = tensor_file_find(file, name);
    assert_non_null(tensor);
    return tensor->dtype;
}

/* Reads the source's floats of a tensor and quantises them as one thread does. */
static void assert_quantised(const struct tensor_file *file, const char *name,
                             const float *importance) {
    struct tensor_file *source;
    struct error err = {0};
    assert_int_equal(tensor_file_open(in_path, &source, &err), 0);
    const struct tensor_info *from = tensor_file_find(source, name);
    const struct tensor_info *to = tensor_file_find(file, name);
    float *values = (float *)read_tensor(source, from);
    uint8_t *data = read_tensor(file, to), row[COLS * 4];
    size_t cols = (size_t)to->shape[to->num_dims - 1];
    size_t row_bytes = dtype_row_bytes(to->dtype, cols), rows = to->bytes / row_bytes;
    for (size_t r = 0; r < rows; r++) {
        const float *columns = importance != NULL ? importance + r / ROWS * cols : NULL;
        assert_true(dtype_quantise(to->dtype, values + r * cols, columns, row, cols));
        assert_memory_equal(row, data + r * row_bytes, row_bytes);
    }
    free(values);
    free(data);
    tensor_file_close(source);
}

static void test_gguf_is_quantised(void **state) {
    struct conversion_settings settings = settings_of("q4_k_m");
    write_source();
    struct tensor_file *file = convert(in_path, &settings);
    assert_int_equal(type_in(file, "token_embd.weight"), DTYPE_Q4_K);
    assert_int_equal(type_in(file, "output.weight"), DTYPE_Q6_K);
    assert_int_equal(type_in(file, "blk.0.attn_norm.weight"), DTYPE_F32);
    assert_int_equal(type_in(file, "blk.0.attn_q.weight"), DTYPE_Q5_0); /* rows of 96 */
    assert_int_equal(type_in(file, "blk.0.ffn_gate_inp.weight"), DTYPE_F32);
    assert_int_equal(type_in(file, "blk.0.ffn_up_exps.weight"), DTYPE_Q4_K);
    assert_quantised(file, "token_embd.weight", NULL);
    assert_quantised(file, "blk.0.attn_q.weight", NULL);
    assert_quantised(file, "blk.0.ffn_up_exps.weight", NULL);
    assert_true(text_is(tensor_file_find_metadata(file, "test.kept")->as_string, "as it is"));
    assert_int_equal(tensor_file_find_metadata(file, "general.file_type")->as_uint, 15);
    assert_int_equal(tensor_file_find_metadata(file, "general.quantization_version")->as_uint, 2);
    tensor_file_close(file);
}

static void test_overrides(void **state) {
    struct conversion_settings settings = settings_of("Q4_K_M");
    settings.num_overrides = 2;
    settings.overrides[0] = (struct tensor_override){"^blk\\.\\d+\\.attn_q", DTYPE_Q8_0};
    settings.overrides[1] = (struct tensor_override){"attn|exps", DTYPE_F16};
    settings.types.output_dtype = DTYPE_BF16;
    settings.types.embedding_dtype = DTYPE_Q2_K;
    struct tensor_file *file = convert(in_path, &settings);
    assert_int_equal(type_in(file, "blk.0.attn_q.weight"), DTYPE_Q8_0);
    assert_int_equal(type_in(file, "blk.0.ffn_up_exps.weight"), DTYPE_F16);
    assert_int_equal(type_in(file, "output.weight"), DTYPE_BF16);
    assert_int_equal(type_in(file, "token_embd.weight"), DTYPE_Q2_K);
    assert_int_equal(type_in(file, "blk.0.attn_norm.weight"), DTYPE_F32);
    tensor_file_close(file);
}

/* An importance matrix of both experts in the older format: each expert has its own columns. */
static void test_importance_of_experts(void **state) {
    static const char name[] = "blk.0.ffn_up_exps.weight";
    char path[300];
    float importance[EXPERTS * COLS];
    for (int i = 0; i < EXPERTS * COLS; i++)
        importance[i] = i % 7 == (i < COLS ? 0 : 3) ? 64.0F : 1.0F;
    snprintf(path, sizeof(path), "%s/matrix.dat", folder);
    FILE *matrix = fopen(path, "wb");
    assert_non_null(matrix);
    const int32_t head[] = {1, (int32_t)strlen(name)}, sizes[] = {1, EXPERTS * COLS};
    fwrite(head, sizeof(head), 1, matrix);
    fwrite(name, strlen(name), 1, matrix);
    fwrite(sizes, sizeof(sizes), 1, matrix);
    fwrite(importance, sizeof(importance), 1, matrix);
    fclose(matrix);
    struct conversion_settings settings = settings_of("Q4_K_S");
    settings.imatrix_path = path;
    struct tensor_file *file = convert(in_path, &settings);
    assert_quantised(file, name, importance);
    assert_quantised(file, "token_embd.weight", NULL);
    assert_int_equal(tensor_file_find_metadata(file, "quantize.imatrix.entries_count")->as_uint, 1);
    tensor_file_close(file);
    unlink(path);
}

static bool stop(void *context, uint64_t bytes_done, uint64_t num_bytes) {
    assert_true(bytes_done <= num_bytes);
    return true;
}

static int count_files(void) {
    int count = 0;
    DIR *files = opendir(folder);
    while (readdir(files) != NULL)
        count++;
    closedir(files);
    return count;
}

static void test_stopped_conversion_leaves_nothing(void **state) {
    struct conversion_settings settings = settings_of("Q8_0");
    const struct conversion_watcher watcher = {.advanced = stop};
    struct error err = {0};
    unlink(out_path);
    int before = count_files();
    struct conversion *conversion = open_source(in_path, &settings);
    assert_int_equal(conversion_write(conversion, out_path, 1, &watcher, &err), -1);
    assert_int_equal(err.code, ERROR_INTERRUPTED);
    assert_int_equal(count_files(), before);
    conversion_close(conversion);
}

static void test_quantised_sources(void **state) {
    struct conversion_settings settings = settings_of("Q4_K_M");
    struct conversion *conversion;
    struct error err = {0};
    struct tensor_file *file = convert(in_path, &settings);
    tensor_file_close(file);
    rename(out_path, in_path);
    settings = settings_of("Q8_0");
    assert_int_equal(conversion_open(in_path, &settings, &conversion, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_non_null(strstr(err.message, "--allow-requantize"));
    settings.allow_requantize = true;
    file = convert(in_path, &settings);
    assert_int_equal(type_in(file, "blk.0.ffn_up_exps.weight"), DTYPE_Q8_0);
    tensor_file_close(file);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_what_the_format_cannot_say),
        cmocka_unit_test(test_gguf_is_quantised),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_importance_of_experts),
        cmocka_unit_test(test_stopped_conversion_leaves_nothing),
        cmocka_unit_test(test_quantised_sources),
    };
    if (argc != 2 || mkdtemp(folder) == NULL)
        return 2;
    golden_dir = argv[1];
    snprintf(in_path, sizeof(in_path), "%s/in.gguf", folder);
    snprintf(out_path, sizeof(out_path), "%s/out.gguf", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(in_path);
    unlink(out_path);
    rmdir(folder);
    return failed;
}
