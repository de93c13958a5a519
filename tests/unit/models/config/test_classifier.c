/* Classifiers of folders: what their files may say, and the scores. */
#include "models/config/model.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- A folder ----------------------------------------------------------------------------------
 */

#define SIZES                                                                                      \
    "\"model_type\":\"llama\",\"vocab_size\":4,\"hidden_size\":16,\"intermediate_size\":8,"        \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"tie_word_embeddings\":true"
#define CLASSIFIER "{\"architectures\":[\"LlamaForSequenceClassification\"]," SIZES
#define WORDS "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES "}"

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

static void write_text(void **state, const char *name, const char *text) {
    temporary_write(*state, name, text, strlen(text));
}

static void write_config(void **state, const char *more) {
    char text[1024];
    snprintf(text, sizeof(text), CLASSIFIER "%s}", more);
    write_text(state, "config.json", text);
}

struct entry {
    const char *name, *shape;
    int count; /* of floats: 0.5, 1, 1.5, ... */
};

/* Float tensors one after the other, of which the last number of the last one may be another. */
static void write_tensors(void **state, const struct entry *entries, int num, const float *last) {
    char header[1024] = "{";
    size_t used = 1, total = 0;
    float values[512];
    for (int i = 0; i < num; i++) {
        size_t begin = total * sizeof(float);
        for (int k = 0; k < entries[i].count; k++)
            values[total++] = 0.5F * (float)(k + 1);
        used += (size_t)snprintf(header + used, sizeof(header) - used,
                                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],"
                                 "\"data_offsets\":[%zu,%zu]}",
                                 i > 0 ? "," : "", entries[i].name, entries[i].shape, begin,
                                 total * sizeof(float));
    }
    header[used++] = '}';
    if (last != NULL)
        values[total - 1] = *last;
    uint8_t image[8 + sizeof(header) + sizeof(values)];
    memcpy(image, &(uint64_t){used}, 8);
    memcpy(image + 8, header, used);
    memcpy(image + 8 + used, values, total * sizeof(float));
    temporary_write(*state, "model.safetensors", image, 8 + used + total * sizeof(float));
}

static const struct entry embedding = {"model.embed_tokens.weight", "4,16", 64};

static void write_score(void **state, const char *shape, int count) {
    const struct entry entries[] = {embedding, {"score.weight", shape, count}};
    write_tensors(state, entries, 2, NULL);
}

static struct model *open_model(void **state) {
    const struct temporary_folder *folder = *state;
    struct model *model = NULL;
    struct error err = {0};
    if (model_open(folder->path, &model, &err) != 0)
        fail_msg("%s", err.message);
    return model;
}

static void assert_refused(void **state, const char *reason) {
    const struct temporary_folder *folder = *state;
    struct model *model = NULL;
    struct error err = {0};
    if (model_open(folder->path, &model, &err) == 0)
        fail_msg("opened; expected '%s'", reason);
    assert_int_equal(err.code, ERROR_MODEL);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void assert_label(const struct classifier *classifier, int32_t index, const char *label) {
    char text[CLASSIFIER_MAX_LABEL_BYTES + 1];
    classifier_label(classifier, index, text);
    assert_string_equal(text, label);
}

/* --- The matrix --------------------------------------------------------------------------------
 */

static void test_matrix_and_bias(void **state) {
    const struct entry entries[] = {
        embedding, {"score.weight", "2,16", 32}, {"score.bias", "2", 2}};
    float hidden[16] = {0}, scores[2];
    write_config(state, ",\"id2label\":{\"1\":\"good\",\"0\":\"bad\"}");
    write_tensors(state, entries, 3, NULL);
    struct model *model = open_model(state);
    const struct classifier *classifier = &model->classifier;
    assert_false(model->generates);
    assert_true(model->config.has_score && model->config.tied_embeddings);
    assert_int_equal(classifier->num_labels, 2);
    assert_label(classifier, 0, "bad");
    assert_label(classifier, 1, "good");
    hidden[0] = 2.0F;
    hidden[15] = -1.0F;
    classifier_scores(classifier, hidden, false, scores);
    assert_true(scores[0] == 0.5F * 2 - 8.0F + 0.5F);
    assert_true(scores[1] == 8.5F * 2 - 16.0F + 1.0F);
    classifier_scores(classifier, hidden, true, scores);
    assert_float_equal(scores[1], 1.0 / (1.0 + exp(-8.5)), 1e-6);
    assert_float_equal(scores[0] + scores[1], 1.0, 1e-6);
    model_close(model);
}

static void test_one_label(void **state) {
    static const struct {
        const char *more;
        double expected; /* of the number 1 */
    } cases[] = {
        {"", 0.7310585786},
        {",\"num_labels\":1", 0.7310585786},
        {",\"problem_type\":\"regression\"", 1.0},
        {",\"problem_type\":\"multi_label_classification\"", 0.7310585786},
        {",\"sentence_transformers\":{\"activation_fn\":\"torch.nn.modules.linear.Identity\"}",
         1.0},
        {",\"sbert_ce_default_activation_function\":\"torch.nn.modules.activation.Sigmoid\"",
         0.7310585786},
    };
    const float hidden[16] = {2.0F};
    float score;
    write_score(state, "1,16", 16);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_config(state, cases[i].more);
        struct model *model = open_model(state);
        assert_label(&model->classifier, 0, "LABEL_0");
        classifier_scores(&model->classifier, hidden, true, &score);
        assert_float_equal(score, cases[i].expected, 1e-6);
        model_close(model);
    }
}

static void test_refused_settings(void **state) {
    static const struct {
        const char *more, *reason;
    } cases[] = {
        {",\"id2label\":{}", "id2label: is not an object of 1 to 4096 labels"},
        {",\"id2label\":[\"a\"]", "id2label: is not an object"},
        {",\"id2label\":{\"0\":\"a\",\"2\":\"b\"}", "id2label: has an index that is not one of 0"},
        {",\"id2label\":{\"00\":\"a\"}", "id2label: has an index"},
        {",\"id2label\":{\"0\":1}", "id2label: 0: is not a string of 1 to 255 bytes"},
        {",\"id2label\":{\"0\":\"\"}", "id2label: 0: is not a string"},
        {",\"id2label\":{\"0\":\"a\"}", "'score.weight': has 2 rows for 1 labels"},
        {",\"num_labels\":0", "num_labels: 0 (allowed: 1 to 4096)"},
        {",\"num_labels\":3", "has 2 rows for 3 labels"},
        {",\"num_labels\":1,\"id2label\":{\"0\":\"a\",\"1\":\"b\"}",
         "num_labels: 1, and id2label has 2"},
        {",\"problem_type\":\"ranking\"", "problem_type: 'ranking' is not supported"},
        {",\"sentence_transformers\":{\"activation_fn\":\"torch.nn.Tanh\"}",
         "activation_fn: 'torch.nn.Tanh' is not supported"},
        {",\"is_causal\":false", "is_causal: attention to later tokens is not supported"},
    };
    write_score(state, "2,16", 32);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_config(state, cases[i].more);
        assert_refused(state, cases[i].reason);
    }
}

static void test_refused_tensors(void **state) {
    static const float numbers[] = {NAN, INFINITY};
    const struct entry wrong_bias[] = {
        embedding, {"score.weight", "2,16", 32}, {"score.bias", "3", 3}};
    write_config(state, "");
    write_tensors(state, &embedding, 1, NULL);
    assert_refused(state, "'score.weight': is missing");
    write_score(state, "2,8", 16);
    assert_refused(state, "'score.weight': must be a matrix of 1 to 4096 rows, of 16 numbers each");
    write_score(state, "1,2,16", 32);
    assert_refused(state, "'score.weight': must be a matrix");
    write_tensors(state, wrong_bias, 3, NULL);
    assert_refused(state, "'score.bias': must have one number for each row");
    for (int i = 0; i < 2; i++) {
        write_tensors(state, wrong_bias, 2, &numbers[i]);
        assert_refused(state, "'score.weight': has a number that is not finite");
    }
}

/* --- Words of a language model -----------------------------------------------------------------
 */

static void test_words(void **state) {
    const float hidden[16] = {1.0F};
    struct error err = {0};
    float score;
    write_text(state, "config.json", WORDS);
    write_tensors(state, &embedding, 1, NULL);
    struct model *model = open_model(state);
    assert_true(model->generates);
    assert_int_equal(model->classifier.num_labels, 0);
    /* The first numbers of the rows are 0.5, 8.5, 16.5 and 24.5. */
    assert_int_equal(classifier_from_tokens(model, (const int32_t[]){1, 0}, 2, "yes", &err), 0);
    assert_label(&model->classifier, 0, "yes");
    classifier_scores(&model->classifier, hidden, false, &score);
    assert_true(score == 0.5F - 8.5F);
    classifier_scores(&model->classifier, hidden, true, &score);
    assert_float_equal(score, 1.0 / (1.0 + exp(8.0)), 1e-6);
    assert_int_equal(classifier_from_tokens(model, (const int32_t[]){3}, 1, NULL, &err), 0);
    assert_label(&model->classifier, 0, "LABEL_0");
    classifier_scores(&model->classifier, hidden, false, &score);
    assert_true(score == 24.5F);
    assert_int_equal(classifier_from_tokens(model, (const int32_t[]){4}, 1, NULL, &err), -1);
    assert_non_null(strstr(err.message, "has no row for that token"));
    assert_int_equal(model->classifier.num_labels, 1);
    model_close(model);
}

/* Logits are scaled, then capped, before they are compared. */
static void test_scaled_words(void **state) {
    const float hidden[1] = {4.0F};
    float rows[] = {2.0F, 1.0F}, bias[] = {2.0F, 0.0F}, score;
    const struct classifier classifier = {.num_labels = 1,
                                          .hidden_size = 1,
                                          .is_contrast = true,
                                          .rows = rows,
                                          .bias = bias,
                                          .scale = 0.5F,
                                          .soft_cap = 3.0F};
    (void)state;
    classifier_scores(&classifier, hidden, false, &score);
    assert_float_equal(score, 3.0 * tanh(5.0 / 3.0) - 3.0 * tanh(2.0 / 3.0), 1e-6);
}

static void test_no_words(void **state) {
    struct error err = {0};
    write_config(state, "");
    write_score(state, "1,16", 16);
    struct model *model = open_model(state);
    assert_int_equal(classifier_from_tokens(model, (const int32_t[]){1}, 1, NULL, &err), -1);
    assert_non_null(strstr(err.message, "has no head for words"));
    model_close(model);
}

/* --- Models of other kinds ---------------------------------------------------------------------
 */

/* What sentence-transformers saves: names without a prefix, and no head. */
static void test_bare_models(void **state) {
    static const struct {
        const char *class_name, *tied;
        bool generates;
    } cases[] = {
        {"LlamaModel", "false", false},
        {"LlamaModel", "true", false},
        {"LlamaForCausalLM", "true", true},
        {"LlamaForCausalLM", "false", false},
    };
    const struct entry bare = {"embed_tokens.weight", "4,16", 64};
    char config[512];
    write_tensors(state, &bare, 1, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(config, sizeof(config),
                 "{\"architectures\":[\"%s\"],\"model_type\":\"llama\",\"vocab_size\":4,"
                 "\"hidden_size\":16,\"intermediate_size\":8,\"num_hidden_layers\":1,"
                 "\"num_attention_heads\":2,\"tie_word_embeddings\":%s}",
                 cases[i].class_name, cases[i].tied);
        write_text(state, "config.json", config);
        struct model *model = open_model(state);
        assert_string_equal(model->config.tensor_prefix, "");
        assert_int_equal(model->generates, cases[i].generates);
        assert_true(model->config.tied_embeddings);
        model_close(model);
    }
}

static void test_encoders(void **state) {
    static const char *const names[] = {"BertModel",
                                        "XLMRobertaForSequenceClassification",
                                        "ModernBertForSequenceClassification",
                                        "DebertaV2Model",
                                        "ElectraModel",
                                        "MPNetModel"};
    char config[256], reason[256];
    write_tensors(state, &embedding, 1, NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(config, sizeof(config), "{\"architectures\":[\"%s\"]}", names[i]);
        snprintf(reason, sizeof(reason),
                 "'%s' is not supported (an encoder, whose tokens see later ones)", names[i]);
        write_text(state, "config.json", config);
        assert_refused(state, reason);
    }
    write_text(state, "config.json", "{\"architectures\":[\"MambaForSequenceClassification\"]}");
    assert_refused(state, "'MambaForSequenceClassification' is not supported (known model types");
}

/* --- Steps of sentence-transformers ------------------------------------------------------------
 */

#define STEP(kind, path)                                                                           \
    "{\"type\":\"sentence_transformers.models." kind "\",\"path\":\"" path "\"}"

static void write_words(void **state, const char *modules) {
    write_text(state, "config.json", WORDS);
    write_tensors(state, &embedding, 1, NULL);
    write_text(state, "modules.json", modules);
}

static void test_pooling(void **state) {
    static const struct {
        const char *config;
        enum model_pooling pooling;
    } cases[] = {
        {"{\"pooling_mode_lasttoken\":true,\"pooling_mode_mean_tokens\":false}",
         MODEL_POOLING_LAST},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}",
         MODEL_POOLING_MEAN},
        {"{\"pooling_mode\":\"lasttoken\"}", MODEL_POOLING_LAST},
        {"{\"pooling_mode\":\"lasttoken\",\"include_prompt\":false}", MODEL_POOLING_LAST},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text(state, "1_Pooling/config.json", cases[i].config);
        write_words(state, "[" STEP("Transformer", "") "," STEP("Pooling", "1_Pooling") "]");
        struct model *model = open_model(state);
        assert_int_equal(model->pooling, cases[i].pooling);
        assert_true(model->has_raw_embeddings);
        model_close(model);
        write_words(state, "[" STEP("Transformer", "") "," STEP("Pooling", "1_Pooling") "," STEP(
                               "Normalize", "2_Normalize") "]");
        model = open_model(state);
        assert_false(model->has_raw_embeddings);
        model_close(model);
    }
}

static void test_refused_pooling(void **state) {
    static const struct {
        const char *config, *reason;
    } cases[] = {
        {"{\"pooling_mode_cls_token\":true}", "pooling_mode_cls_token: only the last token"},
        {"{\"pooling_mode_max_tokens\":true}", "pooling_mode_max_tokens: only the last token"},
        {"{\"pooling_mode_lasttoken\":true,\"pooling_mode_mean_tokens\":true}",
         "pooling_mode_mean_tokens: only the last token or the mean alone"},
        {"{\"pooling_mode\":\"max\"}", "pooling_mode: only the last token"},
        {"{\"pooling_mode\":[\"mean\"]}", "pooling_mode: names no way that is supported"},
        {"{\"pooling_mode_lasttoken\":1}", "pooling_mode_lasttoken: "},
        {"{}", "pooling_mode: names no way that is supported: lasttoken, mean"},
        {"{\"pooling_mode\":\"mean\",\"include_prompt\":false}", "include_prompt: a mean without"},
        {"[]", "config.json: "},
    };
    write_words(state, "[" STEP("Pooling", "1_Pooling") "]");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text(state, "1_Pooling/config.json", cases[i].config);
        assert_refused(state, cases[i].reason);
    }
}

static void test_refused_steps(void **state) {
    static const struct {
        const char *modules, *reason;
    } cases[] = {
        {"{}", "modules.json: modules: "},
        {"[1]", "modules.json: type: '' is not supported"},
        {"[" STEP("Dense", "2_Dense") "]", "modules.json: type: 'Dense' is not supported"},
        {"[" STEP("Pooling", "../other") "]", "a path is not inside the folder"},
        {"[" STEP("Pooling", "/etc") "]", "a path is not inside the folder"},
        {"[" STEP("Pooling", "missing") "]", "missing/config.json"},
        {"[", "modules.json: is not valid JSON"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_words(state, cases[i].modules);
        const struct temporary_folder *folder = *state;
        struct model *model = NULL;
        struct error err = {0};
        assert_int_equal(model_open(folder->path, &model, &err), -1);
        if (strstr(err.message, cases[i].reason) == NULL)
            fail_msg("expected '%s' in '%s'", cases[i].reason, err.message);
    }
}

static void test_words_that_a_step_names(void **state) {
    write_words(state, "[" STEP("Transformer", "") "," STEP("LogitScore", "1_LogitScore") "]");
    write_text(state, "1_LogitScore/config.json", "{\"true_token_id\":2,\"false_token_id\":1}");
    struct model *model = open_model(state);
    assert_true(model->classifier.is_contrast && model->chat_is_of_pairs);
    assert_true(model->classifier.rows[0] == 16.5F && model->classifier.rows[16] == 8.5F);
    assert_false(model->has_raw_embeddings);
    model_close(model);
    write_text(state, "1_LogitScore/config.json", "{\"true_token_id\":2,\"false_token_id\":null}");
    model = open_model(state);
    assert_false(model->classifier.is_contrast);
    assert_int_equal(model->classifier.num_labels, 1);
    model_close(model);
    write_text(state, "1_LogitScore/config.json", "{\"false_token_id\":1}");
    assert_refused(state, "true_token_id: is missing");
    write_text(state, "1_LogitScore/config.json", "{\"true_token_id\":4}");
    assert_refused(state, "true_token_id: 4 (allowed: 0 to 3)");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_matrix_and_bias),
        TEST(test_one_label),
        TEST(test_refused_settings),
        TEST(test_refused_tensors),
        TEST(test_words),
        TEST(test_scaled_words),
        TEST(test_no_words),
        TEST(test_bare_models),
        TEST(test_encoders),
        TEST(test_pooling),
        TEST(test_refused_pooling),
        TEST(test_refused_steps),
        TEST(test_words_that_a_step_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
