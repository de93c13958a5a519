#include "models/config/model.h"

#include "tests/unit/models/gguf_writer.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

/* A file without tensors and with the metadata a model needs; one entry may join. */
static int open_with(const char *key, uint32_t type, const void *value, size_t bytes,
                     struct model **out, struct error *err) {
    struct gguf_writer w = {0};
    struct temporary_folder folder;
    gguf_put_header(&w, 3, 0, 8 + (key != NULL));
    gguf_put_key_string(&w, "general.architecture", "llama");
    gguf_put_key_u32(&w, "llama.block_count", 1);
    gguf_put_key_u32(&w, "llama.context_length", 64);
    gguf_put_key_u32(&w, "llama.embedding_length", 16);
    gguf_put_key_u32(&w, "llama.feed_forward_length", 16);
    gguf_put_key_u32(&w, "llama.attention.head_count", 2);
    gguf_put_key_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf_put_key_array(&w, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_put_string(&w, "a");
    if (key != NULL) {
        gguf_put_key(&w, key, type);
        if (type == GGUF_STRING)
            gguf_put_u64(&w, bytes);
        gguf_put(&w, value, bytes);
    }
    temporary_folder_make(&folder);
    int status = model_open(temporary_write(&folder, "m.gguf", w.data, w.bytes), out, err);
    temporary_folder_remove(&folder);
    gguf_finish(&w);
    return status;
}

static struct model *accepted(const char *key, uint32_t type, const void *value, size_t bytes) {
    struct model *model;
    struct error err = {0};
    if (open_with(key, type, value, bytes, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static void assert_refused(const char *key, uint32_t type, const void *value, size_t bytes,
                           const char *reason) {
    struct model *model = NULL;
    struct error err = {0};
    assert_int_equal(open_with(key, type, value, bytes, &model, &err), -1);
    assert_null(model);
    assert_int_equal(err.code, ERROR_MODEL);
    if (strstr(err.message, key) == NULL || strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' and '%s' in '%s'", key, reason, err.message);
}

static void test_says_nothing(void **state) {
    struct model *model = accepted(NULL, 0, NULL, 0);
    assert_null(model->folder);
    assert_null(model->chat_template);
    assert_int_equal(model->num_eos_tokens, 0);
    assert_true(isnan(model->generation.temperature) && isnan(model->generation.top_p));
    assert_true(isnan(model->generation.min_p) && isnan(model->generation.repetition_penalty));
    assert_int_equal(model->generation.top_k, -1);
    model_close(model);
}

static void test_quantisation(void **state) {
    static const struct {
        uint32_t type;
        const char *name;
    } cases[] = {{15, "Q4_K_M"}, {3, "Q4_1"}, {38, "MXFP4"}, {4, "f32"}, {1000, "f32"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model *model =
            accepted("general.file_type", GGUF_UINT32, &cases[i].type, sizeof(cases[i].type));
        assert_string_equal(model_quantisation(model), cases[i].name);
        model_close(model);
    }
    struct model *model = accepted(NULL, 0, NULL, 0);
    assert_string_equal(model_quantisation(model), "f32");
    model_close(model);
}

static void test_chat_template(void **state) {
    static const char key[] = "tokenizer.chat_template";
    struct model *model = accepted(key, GGUF_STRING, "{{ x }}", 7);
    assert_string_equal(model->chat_template, "{{ x }}");
    assert_null(model->tool_chat_template);
    model_close(model);
    model = accepted("tokenizer.chat_template.tool_use", GGUF_STRING, "{{ t }}", 7);
    assert_string_equal(model->tool_chat_template, "{{ t }}");
    assert_null(model->chat_template);
    model_close(model);
    assert_refused(key, GGUF_UINT32, &(uint32_t){1}, 4, "is not a string");
    assert_refused(key, GGUF_STRING, "a\0b", 3, "the template is not UTF-8");
    assert_refused(key, GGUF_STRING, "\xc3", 1, "the template is not UTF-8");
    size_t bytes = (1 << 20) + 1;
    char *large = calloc(1, bytes);
    assert_non_null(large);
    memset(large, 'a', bytes);
    assert_refused(key, GGUF_STRING, large, bytes, "1048577 bytes (allowed: at most 1048576)");
    model = accepted(key, GGUF_STRING, large, bytes - 1);
    assert_int_equal(strlen(model->chat_template), bytes - 1);
    model_close(model);
    free(large);
}

static void test_sampling_defaults(void **state) {
    struct model *model = accepted("general.sampling.temp", GGUF_FLOAT32, &(float){0.5F}, 4);
    assert_true(model->generation.temperature == 0.5F);
    model_close(model);
    model = accepted("general.sampling.top_k", GGUF_INT32, &(int32_t){20}, 4);
    assert_int_equal(model->generation.top_k, 20);
    model_close(model);
    model = accepted("general.sampling.top_p", GGUF_FLOAT32, &(float){0.5F}, 4);
    assert_true(model->generation.top_p == 0.5F);
    model_close(model);
    model = accepted("general.sampling.min_p", GGUF_FLOAT32, &(float){0.0F}, 4);
    assert_true(model->generation.min_p == 0.0F);
    model_close(model);
    model = accepted("general.sampling.penalty_repeat", GGUF_FLOAT32, &(float){1.5F}, 4);
    assert_true(model->generation.repetition_penalty == 1.5F);
    model_close(model);
    model = accepted("general.sampling.xtc_probability", GGUF_FLOAT32, &(float){0.5F}, 4);
    assert_true(model->generation.xtc_probability == 0.5F);
    assert_true(isnan(model->generation.xtc_threshold));
    model_close(model);
    model = accepted("general.sampling.mirostat", GGUF_INT32, &(int32_t){2}, 4);
    assert_int_equal(model->generation.mirostat, 2);
    model_close(model);
    model = accepted("general.sampling.mirostat_tau", GGUF_FLOAT32, &(float){4}, 4);
    assert_true(model->generation.mirostat_tau == 4 && model->generation.mirostat == -1);
    model_close(model);
}

/* Only defaults: what cannot be used is dropped. */
static void assert_dropped(const char *key, uint32_t type, const void *value) {
    struct model *model = accepted(key, type, value, 4);
    assert_true(isnan(model->generation.temperature) && isnan(model->generation.top_p));
    assert_true(isnan(model->generation.min_p) && isnan(model->generation.repetition_penalty));
    assert_int_equal(model->generation.top_k, -1);
    model_close(model);
}

static void test_bad_sampling_defaults(void **state) {
    static const struct {
        const char *key;
        float value;
    } cases[] = {
        {"general.sampling.temp", -1.0F},          {"general.sampling.temp", NAN},
        {"general.sampling.temp", INFINITY},       {"general.sampling.top_p", 0.0F},
        {"general.sampling.top_p", 1.5F},          {"general.sampling.min_p", -0.5F},
        {"general.sampling.penalty_repeat", 0.0F},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_dropped(cases[i].key, GGUF_FLOAT32, &cases[i].value);
    assert_dropped("general.sampling.top_k", GGUF_INT32, &(int32_t){-2});
    assert_dropped("general.sampling.top_k", GGUF_UINT32, &(uint32_t){1U << 31});
    assert_dropped("general.sampling.top_k", GGUF_FLOAT32, &(float){1.0F});
    assert_dropped("general.sampling.temp", GGUF_UINT32, &(uint32_t){1});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_says_nothing),          cmocka_unit_test(test_quantisation),
        cmocka_unit_test(test_chat_template),         cmocka_unit_test(test_sampling_defaults),
        cmocka_unit_test(test_bad_sampling_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
