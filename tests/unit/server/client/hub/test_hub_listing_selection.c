/* Which files of a repository are chosen. */
#include "server/client/hub/hub_listing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill(struct hub_listing *listing, const char *const *names) {
    *listing = (struct hub_listing){0};
    for (; *names != NULL; names++)
        assert_int_equal(hub_listing_add(listing, *names, 1, "", NULL), 0);
}

#define NAMES(...)                                                                                 \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

/* Joins the names of what is chosen, or gives the reason. */
static const char *choose(const char *const *names, const char *choice) {
    static char text[4096];
    struct hub_listing listing;
    struct hub_selection selection;
    struct error err = {0};
    fill(&listing, names);
    text[0] = '\0';
    if (hub_selection_make(&listing, choice, &selection, &err) != 0) {
        assert_int_equal(err.code, ERROR_CONFIG);
        snprintf(text, sizeof(text), "%s", err.message);
    } else {
        for (size_t i = 0; i < selection.num_files; i++)
            sprintf(text + strlen(text), "%s%s", i > 0 ? " " : "", selection.files[i]->name);
    }
    hub_listing_finish(&listing);
    return text;
}

static void test_a_folder(void **state) {
    assert_string_equal(
        choose(NAMES("README.md", "model.safetensors", "tokenizer.json", "tokenizer.model",
                     "config.json", "pytorch_model.bin", "model.safetensors.index.json",
                     "chat_template.jinja", "original/consolidated.safetensors", "a.gguf"),
               ""),
        "config.json tokenizer.json chat_template.jinja model.safetensors");
    assert_string_equal(
        choose(NAMES("model.safetensors.index.json", "tokenizer.json", "config.json"), ""),
        "config.json tokenizer.json model.safetensors.index.json");
    assert_string_equal(
        choose(NAMES("model.safetensors", "tokenizer.json", "config.json", "modules.json",
                     "1_Pooling/config.json", "2_Normalize/config.json"),
               ""),
        "config.json tokenizer.json modules.json 1_Pooling/config.json model.safetensors");
    assert_non_null(
        strstr(choose(NAMES("model.safetensors", "config.json"), ""), "tokenizer.json"));
    assert_non_null(
        strstr(choose(NAMES("model.safetensors", "tokenizer.json"), ""), "config.json"));
}

static void test_quantisations(void **state) {
    const char *const *names =
        NAMES("m-Q4_K.gguf", "m-Q4_K_M.gguf", "m.IQ4_NL.gguf", "m_q8_0.gguf", "UD-Q2_K_XL/m.gguf");
    assert_string_equal(choose(names, "Q4_K"), "m-Q4_K.gguf");
    assert_string_equal(choose(names, "q4_k_m"), "m-Q4_K_M.gguf");
    assert_string_equal(choose(names, "Q8_0"), "m_q8_0.gguf");
    assert_string_equal(choose(names, "iq4_nl"), "m.IQ4_NL.gguf");
    assert_string_equal(choose(names, "Q2_K_XL"), "UD-Q2_K_XL/m.gguf");
    assert_non_null(strstr(choose(names, "Q4_NL"), "no GGUF file 'Q4_NL'; there is: m-Q4_K.gguf"));
    assert_non_null(strstr(choose(names, "Q4"), "no GGUF file"));
    assert_non_null(strstr(choose(names, "gguf"), "no GGUF file"));
    assert_non_null(strstr(choose(NAMES("a.Q4_0.gguf", "b.Q4_0.gguf"), "Q4_0"),
                           "name one of a.Q4_0.gguf, b.Q4_0.gguf"));
}

static void test_names_come_before_quantisations(void **state) {
    assert_string_equal(choose(NAMES("Q4_0.gguf", "x-Q4_0.gguf.gguf"), "Q4_0.gguf"), "Q4_0.gguf");
    assert_string_equal(choose(NAMES("mmproj-a.gguf", "b.gguf"), "mmproj-a.gguf"), "mmproj-a.gguf");
    assert_non_null(strstr(choose(NAMES("config.json", "b.gguf"), "config.json"), "no GGUF file"));
}

static void test_the_order_where_nothing_is_chosen(void **state) {
    assert_string_equal(choose(NAMES("a.Q8_0.gguf", "a.Q4_K_M.gguf", "a.F16.gguf"), ""),
                        "a.Q4_K_M.gguf");
    assert_string_equal(choose(NAMES("a.F16.gguf", "a.Q8_0.gguf"), ""), "a.Q8_0.gguf");
    assert_string_equal(choose(NAMES("a.IQ1_S.gguf"), ""), "a.IQ1_S.gguf");
    assert_string_equal(choose(NAMES("mmproj-Q8_0.gguf", "a.imatrix.gguf", "a.x.gguf"), ""),
                        "a.x.gguf");
    /* two of the first kind: the next one decides */
    assert_string_equal(choose(NAMES("a.Q4_K_M.gguf", "b.Q4_K_M.gguf", "b.Q8_0.gguf"), ""),
                        "b.Q8_0.gguf");
    assert_non_null(strstr(choose(NAMES("a.Q5_0.gguf", "a.Q5_1.gguf"), ""),
                           "add :FILE or :QUANTISATION; there is: a.Q5_0.gguf, a.Q5_1.gguf"));
}

static void test_split_files(void **state) {
    const char *const *names = NAMES("b-Q4_0-00002-of-00002.gguf", "b-Q4_0-00001-of-00002.gguf",
                                     "b-Q8_0-00001-of-00003.gguf", "b-Q8_0-00003-of-00003.gguf");
    assert_string_equal(choose(names, "Q4_0"),
                        "b-Q4_0-00001-of-00002.gguf b-Q4_0-00002-of-00002.gguf");
    assert_non_null(strstr(choose(names, "Q8_0"), "has no 'b-Q8_0-00002-of-00003.gguf'"));
    assert_non_null(strstr(choose(names, "b-Q4_0-00002-of-00002.gguf"), "part 2 of 2"));
    assert_non_null(strstr(choose(NAMES("m-00001-of-99999.gguf"), ""), "99999 parts"));
    assert_non_null(strstr(choose(NAMES("m-00001-of-00000.gguf"), ""), "0 parts"));
}

static void test_repositories_without_weights(void **state) {
    assert_non_null(strstr(choose(NAMES("pytorch_model.bin", "config.json"), ""), "pickle"));
    assert_non_null(strstr(choose(NAMES("README.md"), ""), "nor a GGUF file"));
    assert_non_null(strstr(choose(NAMES("README.md"), "Q4_0"), "no GGUF file"));
}

static void test_a_long_list_is_cut(void **state) {
    char names[40][16];
    const char *list[41] = {NULL};
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof(names[i]), "m%02d.gguf", i);
        list[i] = names[i];
    }
    assert_non_null(strstr(choose(list, ""), "m11.gguf and 28 more"));
}

static int add_shards(const char *index, char *out, struct error *err) {
    struct hub_listing listing;
    struct hub_selection selection;
    fill(&listing, NAMES("config.json", "tokenizer.json", "model.safetensors.index.json",
                         "1.safetensors", "2.safetensors"));
    assert_int_equal(hub_selection_make(&listing, "", &selection, err), 0);
    int status = hub_selection_add_shards(&selection, &listing, index, strlen(index), err);
    out[0] = '\0';
    for (size_t i = 3; i < selection.num_files; i++)
        sprintf(out + strlen(out), "%s ", selection.files[i]->name);
    hub_listing_finish(&listing);
    return status;
}

static void test_shards(void **state) {
    char names[256];
    struct error err = {0};
    assert_int_equal(add_shards("{\"weight_map\": {\"a\": \"2.safetensors\", \"b\": "
                                "\"1.safetensors\", \"c\": \"2.safetensors\"}}",
                                names, &err),
                     0);
    assert_string_equal(names, "2.safetensors 1.safetensors ");
    static const char *const bad[] = {
        "",
        "{}",
        "{\"weight_map\": {}}",
        "{\"weight_map\": [1]}",
        "{\"weight_map\": {\"a\": 1}}",
        "{\"weight_map\": {\"a\": \"3.safetensors\"}}",
        "{\"weight_map\": {\"a\": \"../1.safetensors\"}}",
        "{\"weight_map\": {\"a\": \"config.json\"}}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(add_shards(bad[i], names, &err), -1);
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_non_null(strstr(err.message, "model.safetensors.index.json"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder),
        cmocka_unit_test(test_quantisations),
        cmocka_unit_test(test_names_come_before_quantisations),
        cmocka_unit_test(test_the_order_where_nothing_is_chosen),
        cmocka_unit_test(test_split_files),
        cmocka_unit_test(test_repositories_without_weights),
        cmocka_unit_test(test_a_long_list_is_cut),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
