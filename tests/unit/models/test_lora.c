/* Adapters in which something is wrong, and the rows in which a slot is written.
 *
 * test_lora GOLDEN_FOLDER: adapters of the tiny families are changed byte by byte. */
#include "models/lora/lora_adapter.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *golden;
static const struct lora_shape shape = {.num_slots = 2, .max_rank = 64, .dtype = DTYPE_F16};

struct bytes {
    char *data;
    size_t length;
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

static struct bytes read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct bytes bytes = {.data = calloc(1, 1 << 20)};
    bytes.length = fread(bytes.data, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* Replaces the first occurrence by a text of the same length. */
static void replace(struct bytes bytes, const char *text, const char *by) {
    assert_int_equal(strlen(text), strlen(by));
    char *at = memmem(bytes.data, bytes.length, text, strlen(text));
    assert_non_null(at);
    memcpy(at, by, strlen(by));
}

static struct model *open_model(const char *name) {
    char path[512];
    struct error err = {0};
    struct model *model = NULL;
    snprintf(path, sizeof(path), "%s/families/%s", golden, name);
    if (model_open(path, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static int open_adapter_as(const char *path, const struct model *model, const struct lora_shape *as,
                           struct error *err) {
    struct lora_adapter *adapter = NULL;
    int status = lora_adapter_open(path, model, as, &adapter, err);
    lora_adapter_close(adapter);
    return status;
}

static int open_adapter(const char *path, const struct model *model, struct error *err) {
    return open_adapter_as(path, model, &shape, err);
}

static void assert_refused(const char *path, const struct model *model, const char *said) {
    struct error err = {0};
    assert_int_equal(open_adapter(path, model, &err), -1);
    if (strstr(err.message, said) == NULL)
        fail_msg("'%s' does not say '%s'", err.message, said);
    assert_null(strchr(err.message, '\n'));
}

static void test_whole_adapters(void **state) {
    static const char *const names[] = {"llama-r8.gguf", "phi3-r8.gguf"};
    static const char *const models[] = {"llama.gguf", "phi3.gguf"};
    char path[512];
    struct error err = {0};
    for (int i = 0; i < 2; i++) {
        struct model *model = open_model(models[i]);
        snprintf(path, sizeof(path), "%s/adapters/%s", golden, names[i]);
        if (open_adapter(path, model, &err) != 0)
            fail_msg("%s", err.message);
        model_close(model);
    }
}

/* A text of the file is another of the same length. */
static void test_changed_files(void **state) {
    static const struct {
        const char *text, *by, *said;
    } cases[] = {
        {"adapter.type", "adapter.typo", "adapter.type: is not 'lora'"},
        {"general.type", "general.typo", "general.type: is not 'adapter'"},
        {"adapter.lora.alpha", "adapter.lora.alphb", "adapter.lora.alpha: is missing"},
        {"\x05\0\0\0\0\0\0\0llama", NULL, "general.architecture: is not 'llama'"},
        {"blk.0.attn_q.weight.lora_a", "blk.9.attn_q.weight.lora_a", "the model has no such layer"},
        {"blk.0.attn_q.weight.lora_a", "blk.0.attn_x.weight.lora_a",
         "is not supported (supported:"},
        {"blk.0.attn_q.weight.lora_a", "blk.0.attn_k.weight.lora_c", "only these are supported"},
        {"blk.0.attn_q.weight.lora_b", "blk.0.attn_q.weighs.lora_b", "its module has no B"},
        {"blk.0.attn_q.weight.lora_a", "blk.x.attn_q.weight.lora_a",
         "is not supported (supported:"},
    };
    struct temporary_folder *folder = *state;
    struct model *model = open_model("llama.gguf");
    char path[512];
    snprintf(path, sizeof(path), "%s/adapters/llama-r8.gguf", golden);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes bytes = read_file(path);
        if (cases[i].by != NULL)
            replace(bytes, cases[i].text, cases[i].by);
        else
            memcpy((char *)memmem(bytes.data, bytes.length, cases[i].text, 13) + 8, "qwen2", 5);
        temporary_write(folder, "a.gguf", bytes.data, bytes.length);
        assert_refused(temporary_file(folder, "a.gguf"), model, cases[i].said);
        free(bytes.data);
    }
    model_close(model);
}

/* Cut short anywhere, it is refused or read; never more than that. */
static void test_cut_files(void **state) {
    struct temporary_folder *folder = *state;
    struct model *model = open_model("llama.gguf");
    char path[512];
    snprintf(path, sizeof(path), "%s/adapters/llama-r8.gguf", golden);
    struct bytes bytes = read_file(path);
    for (size_t length = bytes.length - 1; length > 100; length -= length / 7) {
        struct error err = {0};
        temporary_write(folder, "a.gguf", bytes.data, length);
        assert_int_equal(open_adapter(temporary_file(folder, "a.gguf"), model, &err), -1);
    }
    free(bytes.data);
    model_close(model);
}

static void test_another_base(void **state) {
    struct model *model = open_model("qwen3.gguf");
    char path[512];
    snprintf(path, sizeof(path), "%s/adapters/llama-r8.gguf", golden);
    assert_refused(path, model, "general.architecture: is not 'qwen3'");
    model_close(model);
    model = open_model("llama3/");
    assert_refused(path, model, "as the model's module wants");
    model_close(model);
    model = open_model("mixtral.gguf");
    assert_refused(path, model, "experts");
    model_close(model);
    model = open_model("llama.gguf");
    snprintf(path, sizeof(path), "%s/families/llama.gguf", golden);
    assert_refused(path, model, "general.type: is not 'adapter'");
    assert_refused("/nowhere/at/all", model, "/nowhere/at/all");
    model_close(model);
}

/* A PEFT folder whose settings are `settings`. */
static void write_folder(struct temporary_folder *folder, const char *name, const char *settings) {
    char path[512];
    snprintf(path, sizeof(path), "%s/adapters/%s/adapter_model.safetensors", golden, name);
    struct bytes bytes = read_file(path);
    temporary_write(folder, "adapter_model.safetensors", bytes.data, bytes.length);
    free(bytes.data);
    temporary_write(folder, "adapter_config.json", settings, strlen(settings));
}

static void test_settings(void **state) {
    static const struct {
        const char *settings, *said;
    } cases[] = {
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8", "adapter_config.json"},
        {"{\"lora_alpha\":8}", "peft_type"},
        {"{\"peft_type\":\"IA3\",\"lora_alpha\":8}", "'IA3' is not supported (supported: LORA)"},
        {"{\"peft_type\":\"LORA\"}", "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":0}", "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":\"8\"}", "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"use_dora\":true}",
         "use_dora: is not supported"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"bias\":\"all\"}",
         "bias: 'all' is not supported"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"lora_bias\":true}", "lora_bias"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"modules_to_save\":[\"lm_head\"]}",
         "modules_to_save"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"alpha_pattern\":{\"q\":1}}", "alpha_pattern"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"modules_to_save\":\"lm_head\"}",
         "modules_to_save: is not supported"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"alora_invocation_tokens\":[1,2]}",
         "alora_invocation_tokens: is not supported"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"kasa_config\":{\"beta\":1}}",
         "kasa_config: is not supported"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"init_lora_weights\":\"pissa_niter_4\"}",
         "init_lora_weights: 'pissa_niter_4' changes the base model, which is not supported"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"init_lora_weights\":\"OLoRA\"}",
         "init_lora_weights: 'OLoRA' changes the base model"},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"init_lora_weights\":\"loftq\"}",
         "init_lora_weights: 'loftq' changes the base model"},
    };
    struct temporary_folder *folder = *state;
    struct model *model = open_model("llama/");
    struct error err = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_folder(folder, "llama-r8", cases[i].settings);
        assert_refused(folder->path, model, cases[i].said);
    }
    static const char *const allowed[] = {
        "{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"rank_pattern\":{}}",
        "{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"init_lora_weights\":\"gaussian\"}",
        "{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"init_lora_weights\":true,"
        "\"modules_to_save\":null,\"alpha_pattern\":{},\"use_bdlora\":false}",
    };
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        write_folder(folder, "llama-r8", allowed[i]);
        if (open_adapter(folder->path, model, &err) != 0)
            fail_msg("%s", err.message);
    }
    model_close(model);
}

/* Layers of another part of a model, as an image encoder's, are not the language model's. */
static void test_layers_of_other_parts(void **state) {
    struct temporary_folder *folder = *state;
    struct model *model = open_model("llama/");
    char path[512];
    const char *settings = "{\"peft_type\":\"LORA\",\"lora_alpha\":8}";
    write_folder(folder, "llama-r8", settings);
    snprintf(path, sizeof(path), "%s", temporary_file(folder, "adapter_model.safetensors"));
    struct bytes bytes = read_file(path);
    while (memmem(bytes.data, bytes.length, "model.layers.", 13) != NULL)
        replace(bytes, "model.layers.", "tower.layers.");
    temporary_write(folder, "adapter_model.safetensors", bytes.data, bytes.length);
    assert_refused(folder->path, model, "is not supported (supported:");
    free(bytes.data);
    model_close(model);

    model = open_model("llama.gguf");
    snprintf(path, sizeof(path), "%s/adapters/llama-r8.gguf", golden);
    bytes = read_file(path);
    replace(bytes, "blk.0.attn_output.weight.lora_a", "a.bb.blk.0.attn_q.weight.lora_a");
    temporary_write(folder, "a.gguf", bytes.data, bytes.length);
    assert_refused(temporary_file(folder, "a.gguf"), model, "is not supported (supported:");
    free(bytes.data);
    model_close(model);
}

static void test_ranks_beyond_the_slots(void **state) {
    struct model *model = open_model("gemma2/");
    char path[512];
    snprintf(path, sizeof(path), "%s/adapters/gemma2-r256", golden);
    assert_refused(path, model, "its rank is 256 (allowed: 1 to 64, by max-lora-rank)");
    model_close(model);
}

/* The number at which the tensors of a file begin with all bits set, and with one too large. */
static void test_numbers(void **state) {
    struct temporary_folder *folder = *state;
    struct model *model = open_model("llama.gguf");
    char path[512];
    snprintf(path, sizeof(path), "%s/adapters/llama-r8.gguf", golden);
    struct bytes bytes = read_file(path);
    const float large = 1e6F;
    memset(bytes.data + bytes.length - 4, 0xff, 4);
    temporary_write(folder, "a.gguf", bytes.data, bytes.length);
    assert_refused(temporary_file(folder, "a.gguf"), model, "a number in it is not finite");
    memcpy(bytes.data + bytes.length - 4, &large, sizeof(large));
    temporary_write(folder, "a.gguf", bytes.data, bytes.length);
    assert_refused(temporary_file(folder, "a.gguf"), model, "exceeds 65504");
    const float largest = 3e38F; /* finite, but not times alpha / rank = 2 */
    static const enum dtype wide[] = {DTYPE_BF16, DTYPE_F32};
    memcpy(bytes.data + bytes.length - 4, &largest, sizeof(largest));
    temporary_write(folder, "a.gguf", bytes.data, bytes.length);
    for (int i = 0; i < 2; i++) {
        struct lora_shape as = shape;
        struct error err = {0};
        as.dtype = wide[i];
        assert_int_equal(open_adapter_as(temporary_file(folder, "a.gguf"), model, &as, &err), -1);
        assert_non_null(strstr(err.message, "is too large once it is scaled"));
    }
    free(bytes.data);
    model_close(model);
}

/* Every row of every matrix once, in pieces that hold what they may, whatever their size. */
static void check_rows(const struct model_config *config, size_t max_bytes) {
    struct lora_rows rows = {0}, before = {0};
    size_t total = 0, expected = 0;
    bool is_first = true;
    while (lora_rows_next(config, &shape, max_bytes, &rows)) {
        size_t bytes = lora_rows_bytes(config, &shape, &rows);
        assert_true(rows.num_rows == 1 || bytes <= max_bytes);
        bool continues = !is_first && rows.layer == before.layer && rows.role == before.role &&
                         rows.matrix == before.matrix;
        assert_int_equal(rows.first_row, continues ? before.first_row + before.num_rows : 0);
        total += bytes;
        before = rows;
        is_first = false;
    }
    for (int32_t layer = 0; layer < config->num_layers; layer++)
        for (int role = 0; role < NUM_PROJECTION_ROLES; role++) {
            int32_t parts = lora_num_parts(config, layer, (enum projection_role)role);
            int32_t inputs = role == PROJECTION_ATTENTION_OUT ? config->num_heads * config->head_dim
                             : role == PROJECTION_DOWN        ? config->intermediate_size
                                                              : config->hidden_size;
            expected += (size_t)(parts * shape.max_rank) * (size_t)inputs * 2;
            for (int32_t p = 0; p < parts; p++)
                expected += (size_t)lora_part_rows(config, layer, (enum projection_role)role, p) *
                            (size_t)shape.max_rank * 2;
        }
    assert_int_equal(total, expected);
}

static void test_rows(void **state) {
    static const char *const names[] = {"llama.gguf",   "qwen2.gguf",      "qwen2-moe.gguf",
                                        "mixtral.gguf", "glm4.5-air.gguf", "deepseek-v2.gguf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct model *model = open_model(names[i]);
        check_rows(&model->config, 1);
        check_rows(&model->config, 1000);
        check_rows(&model->config, 1 << 20);
        model_close(model);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_adapters),
        cmocka_unit_test_setup_teardown(test_changed_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cut_files, make_folder, remove_folder),
        cmocka_unit_test(test_another_base),
        cmocka_unit_test_setup_teardown(test_settings, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_layers_of_other_parts, make_folder, remove_folder),
        cmocka_unit_test(test_ranks_beyond_the_slots),
        cmocka_unit_test_setup_teardown(test_numbers, make_folder, remove_folder),
        cmocka_unit_test(test_rows),
    };
    golden = argc == 2 ? argv[1] : ".";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
