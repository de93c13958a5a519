/* The models that are found in a folder and in the hub's cache, and those that are given besides.
 */
#include "server/program/model_list.h"

#include "config/base/log.h"
#include "tests/unit/temporary_files.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define WORDS(...) ((char *const[]){__VA_ARGS__, NULL})
#define COMMIT "0123456789012345678901234567890123456789"

static struct temporary_folder folder;

static int load(char *const *arguments, struct model_list *out, struct error *err) {
    char *const no_variables[] = {NULL};
    int argc = 0;
    while (arguments[argc] != NULL)
        argc++;
    return model_list_load(argc, arguments, no_variables, out, err);
}

static void assert_refused(char *const *arguments, char *const *pieces) {
    struct model_list list;
    struct error err = {0};
    assert_int_equal(load(arguments, &list, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(strcspn(err.message, "\n\r\t\x1b"), strlen(err.message));
    for (; *pieces != NULL; pieces++)
        if (strstr(err.message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.message, *pieces);
}

/* Expects these names in this order; the caller finishes the list. */
static void assert_models(char *const *arguments, char *const *names, struct model_list *list) {
    struct error err = {0};
    if (load(arguments, list, &err) != 0)
        fail_msg("%s", err.message);
    for (size_t i = 0; names[i] != NULL || i < list->count; i++) {
        assert_true(names[i] != NULL && i < list->count);
        assert_string_equal(list->models[i].name, names[i]);
        assert_non_null(list->models[i].options.model);
        assert_int_equal(list->models[i].is_preloaded, i == 0);
    }
}

static void touch(const char *name) {
    temporary_write(&folder, name, "x", 1);
}

static char *path_of(const char *name) {
    return strdup(temporary_file(&folder, name));
}

/* --- Given models --- */

static void test_names_of_given_models(void **state) {
    struct model_list list;
    assert_models(WORDS("/m/one.gguf"), WORDS("one"), &list);
    assert_int_equal(list.models[0].options.served_model_names.count, 0); /* as options_load */
    model_options_finish(&list);
    assert_models(WORDS("/m/one.gguf", "--model", "/m/two-00001-of-00002.gguf", "--model",
                        "org/three:Q4_K_M", "--model", "./four/"),
                  WORDS("one", "two", "org/three", "four"), &list);
    for (int i = 0; i < 4; i++)
        assert_string_equal(list.models[i].options.served_model_names.items[0],
                            list.models[i].name);
    assert_string_equal(list.all.model, "/m/one.gguf");
    model_options_finish(&list);
    assert_refused(WORDS("/a/m.gguf", "--model", "/b/m.gguf"),
                   WORDS("the name m ", "/a/m.gguf", "/b/m.gguf", "models:"));
    assert_refused(WORDS("--port", "1"), WORDS("no model is given"));
}

/* --- A folder --- */

static void make_models(void) {
    touch("d/b.gguf");
    touch("d/a-00001-of-00002.gguf");
    touch("d/a-00002-of-00002.gguf");
    touch("d/mmproj-b.gguf");
    touch("d/.hidden.gguf");
    touch("d/notes.txt");
    touch("d/folder/config.json");
    touch("d/other/readme");
    touch("d/bad\nname.gguf");
    touch("d/bad\xff.gguf");
    touch("elsewhere/c.gguf");
    char *target = path_of("elsewhere/c.gguf"), *link = path_of("d/linked.gguf");
    assert_true(symlink(target, link) == 0 || errno == EEXIST);
    free(target), free(link);
    link = path_of("d/dangling.gguf");
    assert_true(symlink("/nonexistent", link) == 0 || errno == EEXIST);
    free(link);
    link = path_of("d/pipe.gguf");
    assert_true(mkfifo(link, 0600) == 0 || errno == EEXIST);
    free(link);
}

static void test_folder(void **state) {
    struct model_list list;
    make_models();
    char *d = path_of("d"), *a = path_of("d/a-00001-of-00002.gguf"), *b = path_of("d/b.gguf");
    assert_models(WORDS("--models-dir", d), WORDS("a", "b", "folder", "linked"), &list);
    assert_string_equal(list.models[0].options.model, a);
    assert_string_equal(list.models[1].options.served_model_names.items[0], "b");
    model_options_finish(&list);
    /* Given ones come first, and in place of found ones of their names and aliases. */
    assert_models(WORDS("z", "--models-dir", d, "-a", "linked", "-a", "b", "-c", "32"),
                  WORDS("linked", "a", "folder"), &list);
    assert_int_equal(list.models[2].options.max_model_len, 32);
    assert_int_equal(list.models[1].options.served_model_names.count, 1);
    model_options_finish(&list);
    static const char yaml[] = "models: {b: {threads: 2, aliases: x}, folder: {model: /m.gguf}}\n";
    char *file = strdup(temporary_write(&folder, "quire.yaml", yaml, strlen(yaml)));
    assert_models(WORDS("--models-dir", d, "--config", file), WORDS("b", "folder", "a", "linked"),
                  &list);
    assert_string_equal(list.models[0].options.model, b); /* has settings, and is found */
    assert_int_equal(list.models[0].options.threads, 2);
    assert_string_equal(list.models[1].options.model, "/m.gguf");
    model_options_finish(&list);
    assert_refused(WORDS("z", "--config", file), WORDS("model b", "has no model: PATH"));
    free(file);
    touch("d/folder.gguf");
    assert_refused(WORDS("--models-dir", d),
                   WORDS("the name folder", "d/folder.gguf", "d/folder)"));
    free(d), free(a), free(b);
}

static void test_bad_folders(void **state) {
    char *none = path_of("none"), *file = path_of("file"), *empty = path_of("empty");
    touch("file");
    touch("empty/notes.txt");
    assert_refused(WORDS("--models-dir", none),
                   WORDS("option models-dir", none, "No such file or directory"));
    assert_refused(WORDS("m", "--models-dir", file), WORDS("option models-dir", "Not a directory"));
    assert_refused(WORDS("--models-dir", empty), WORDS("no model", empty));
    free(none), free(file), free(empty);
}

/* Many entries are no harm; many models are one. */
static void test_10000_entries(void **state) {
    struct model_list list;
    char name[32], *many = path_of("many");
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof(name), "many/%d.txt", i);
        touch(name);
    }
    touch("many/m.gguf");
    assert_models(WORDS("--models-dir", many), WORDS("m"), &list);
    model_options_finish(&list);
    for (int i = 0; i < 63; i++) {
        snprintf(name, sizeof(name), "many/%d.gguf", i);
        touch(name);
    }
    struct error err = {0};
    assert_int_equal(load(WORDS("--models-dir", many), &list, &err), 0);
    assert_int_equal(list.count, 64);
    model_options_finish(&list);
    assert_refused(WORDS("other", "--models-dir", many), WORDS("at most 64"));
    for (int i = 63; i < 66; i++) {
        snprintf(name, sizeof(name), "many/%d.gguf", i);
        touch(name);
    }
    assert_refused(WORDS("--models-dir", many), WORDS("models-dir", "more than 64 models"));
    free(many);
}

/* --- The hub's cache --- */

static void test_hub(void **state) {
    static const char index[] = "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", "
                                "\"b\": \"model-00002-of-00002.safetensors\"}}";
    struct model_list list;
    char *cache = path_of("hub"), *d = path_of("elsewhere");
    touch("elsewhere/c.gguf");
    setenv("HF_HUB_CACHE", cache, 1);
    assert_refused(WORDS("--models-hub"), WORDS("no model", "hub's cache"));
    temporary_write(&folder, "hub/models--org--q/refs/main", COMMIT, 40);
    touch("hub/models--org--q/snapshots/" COMMIT "/q-Q8_0.gguf");
    touch("hub/models--org--q/snapshots/" COMMIT "/q-Q4_K_M.gguf");
    temporary_write(&folder, "hub/models--org--f/refs/main", COMMIT, 40);
    touch("hub/models--org--f/snapshots/" COMMIT "/config.json");
    touch("hub/models--org--f/snapshots/" COMMIT "/tokenizer.json");
    touch("hub/models--org--f/snapshots/" COMMIT "/model.safetensors");
    /* One of its shards is missing, and one of the parts of a file. */
    temporary_write(&folder, "hub/models--org--half/refs/main", COMMIT, 40);
    touch("hub/models--org--half/snapshots/" COMMIT "/config.json");
    touch("hub/models--org--half/snapshots/" COMMIT "/tokenizer.json");
    touch("hub/models--org--half/snapshots/" COMMIT "/model-00001-of-00002.safetensors");
    temporary_write(&folder,
                    "hub/models--org--half/snapshots/" COMMIT "/model.safetensors.index.json",
                    index, strlen(index));
    temporary_write(&folder, "hub/models--org--parts/refs/main", COMMIT, 40);
    touch("hub/models--org--parts/snapshots/" COMMIT "/p-00001-of-00002.gguf");
    assert_models(WORDS("--models-hub"), WORDS("org/f", "org/q:q-Q4_K_M.gguf", "org/q:q-Q8_0.gguf"),
                  &list);
    assert_non_null(strstr(list.models[0].options.model, "/hub/models--org--f/snapshots/" COMMIT));
    assert_non_null(strstr(list.models[2].options.model, "/q-Q8_0.gguf"));
    model_options_finish(&list);
    assert_models(WORDS("org/f", "--models-hub", "--models-dir", d),
                  WORDS("org/f", "c", "org/q:q-Q4_K_M.gguf", "org/q:q-Q8_0.gguf"), &list);
    assert_string_equal(list.models[0].options.model, "org/f");
    model_options_finish(&list);
    unsetenv("HF_HUB_CACHE");
    free(cache), free(d);
}

/* The same again: nothing is kept from one reading to the next. */
static void test_reading_again(void **state) {
    struct model_list list;
    for (int i = 0; i < 3; i++) {
        char yaml[64];
        snprintf(yaml, sizeof(yaml), "models: {m%d: {model: x}}\n", i);
        char *file = strdup(temporary_write(&folder, "quire.yaml", yaml, strlen(yaml))), name[8];
        snprintf(name, sizeof(name), "m%d", i);
        assert_models(WORDS("--config", file), WORDS(name), &list);
        model_options_finish(&list);
        free(file);
    }
}

static int make_folder(void **state) {
    log_set_level(LOG_ERROR);
    temporary_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(&folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_given_models),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_bad_folders),
        cmocka_unit_test(test_10000_entries),
        cmocka_unit_test(test_hub),
        cmocka_unit_test(test_reading_again),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
