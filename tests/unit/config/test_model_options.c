/* Several models: --model given several times, and `models:` of the file with its mistakes. */
#include "config/model_options.h"

#include "config/options_table.h"
#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define WORDS(...) ((char *const[]){__VA_ARGS__, NULL})
#define NO_WORDS ((char *const[]){NULL})

static struct temporary_folder folder;

/* Completes the list too, with the path in place of a name that is missing. */
static int load(char *const *arguments, char *const *variables, struct model_list *out,
                struct error *err) {
    int argc = 0;
    while (arguments[argc] != NULL)
        argc++;
    if (model_options_load(argc, arguments, variables, out, err) != 0)
        return -1;
    for (size_t i = 0; i < out->count; i++) {
        struct model_options *model = &out->models[i];
        if (model->name[0] == '\0')
            snprintf(model->name, sizeof(model->name), "%s", model->options.model);
    }
    if (model_options_complete(out, err) == 0)
        return 0;
    model_options_finish(out);
    return -1;
}

static char *file_of(const char *yaml) {
    return strdup(temporary_write(&folder, "quire.yaml", yaml, strlen(yaml)));
}

/* Loads from the file, with one more flag. */
static int load_yaml(const char *yaml, const char *flag, struct model_list *out,
                     struct error *err) {
    char *path = file_of(yaml), *word = strdup(flag);
    int status = load(WORDS("--config", path, word), NO_WORDS, out, err);
    free(path);
    free(word);
    return status;
}

static void assert_yaml(const char *yaml, struct model_list *out) {
    struct error err = {0};
    if (load_yaml(yaml, "--port=1", out, &err) != 0)
        fail_msg("%s", err.message);
}

static void assert_pieces(const struct error *err, char *const *pieces) {
    assert_int_equal(err->code, ERROR_CONFIG);
    assert_int_equal(strcspn(err->message, "\n\r\t\x1b"), strlen(err->message));
    for (; *pieces != NULL; pieces++)
        if (strstr(err->message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err->message, *pieces);
}

static void assert_yaml_refused(const char *yaml, char *const *pieces) {
    struct model_list list;
    struct error err = {0};
    if (load_yaml(yaml, "--port=1", &list, &err) == 0)
        fail_msg("taken: %s", yaml);
    assert_pieces(&err, pieces);
}

static void assert_names(const struct model_options *model, char *const *names) {
    const struct option_list *list = &model->options.served_model_names;
    for (int i = 0; names[i] != NULL || i < list->count; i++) {
        assert_true(names[i] != NULL && i < list->count);
        assert_string_equal(list->items[i], names[i]);
    }
}

/* --- --model --- */

static void test_one_model_is_as_ever(void **state) {
    struct model_list list;
    struct options options;
    char *const words[] = {"m.gguf", "--port", "81", "--api-key", "k", "--max-model-len", "9"};
    assert_int_equal(options_load(7, words, NO_WORDS, &options, NULL), 0);
    assert_int_equal(model_options_load(7, words, NO_WORDS, &list, NULL), 0);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.models[0].name, "");
    snprintf(list.models[0].name, sizeof(list.models[0].name), "m");
    assert_int_equal(model_options_complete(&list, NULL), 0);
    assert_true(list.models[0].is_preloaded);
    assert_false(list.models[0].is_pinned);
    struct option_value one, other;
    for (size_t i = 0; options_get(&options, i, &one); i++) {
        assert_true(options_get(&list.models[0].options, i, &other));
        assert_int_equal(one.kind, other.kind);
        assert_int_equal(one.integer, other.integer);
        assert_true(one.decimal == other.decimal && one.flag == other.flag);
        if (one.text != NULL)
            assert_string_equal(one.text, other.text);
        if (one.list != NULL)
            assert_int_equal(one.list->count, other.list->count);
    }
    assert_string_equal(list.models[0].options.api_keys.items[0], "k");
    model_options_finish(&list);
    model_options_finish(&list); /* accepts a zeroed struct */
    options_finish(&options);
}

static void test_models_of_the_command_line(void **state) {
    struct model_list list;
    struct error err = {0};
    assert_int_equal(load(WORDS("a", "--model", "b", "-m", "c", "--model=a", "-a", "x", "-a", "y",
                                "-c", "64", "--lora-modules", "l=p"),
                          WORDS("QUIRE_MODEL=d"), &list, &err),
                     0);
    assert_int_equal(list.count, 3); /* the same again is not another, the environment's is not */
    assert_string_equal(list.all.model, "a");
    assert_names(&list.models[0], WORDS("x", "y"));
    assert_string_equal(list.models[0].name, "x");
    assert_int_equal(list.models[0].options.lora_modules.count, 1);
    for (int i = 0; i < 3; i++) {
        char wanted[] = {(char)('a' + i), '\0'};
        assert_string_equal(list.models[i].options.model, wanted);
        assert_int_equal(list.models[i].options.max_model_len, 64);
        assert_int_equal(list.models[i].is_preloaded, i == 0);
    }
    assert_names(&list.models[1], WORDS("b"));
    assert_int_equal(list.models[1].options.lora_modules.count, 0);
    model_options_finish(&list);
    struct options options; /* readers of one take the last */
    assert_int_equal(
        options_load(4, WORDS("--model", "a", "--model", "b"), NO_WORDS, &options, &err), 0);
    assert_string_equal(options.model, "b");
    options_finish(&options);
}

static void test_any_name_is_the_first_models(void **state) {
    struct model_list list;
    assert_int_equal(load(WORDS("--model", "a", "--model", "b", "-a", "*"), NO_WORDS, &list, NULL),
                     0);
    assert_string_equal(list.models[0].name, "a");
    assert_names(&list.models[0], WORDS("a", "*"));
    assert_names(&list.models[1], WORDS("b"));
    model_options_finish(&list);
}

static void test_65_models(void **state) {
    char *words[2 * 66 + 1] = {NULL}, names[65][16];
    struct model_list list;
    struct error err = {0};
    for (int i = 0; i < 65; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        words[2 * i] = "--model";
        words[2 * i + 1] = names[i];
    }
    assert_int_equal(load(words, NO_WORDS, &list, &err), -1);
    assert_pieces(&err, WORDS("model \"m64\"", "at most 64 models"));
    words[2 * 64] = NULL;
    assert_int_equal(load(words, NO_WORDS, &list, &err), 0);
    assert_int_equal(list.count, 64);
    assert_int_equal(model_options_add(&list, "x", "x", &err), -1);
    assert_pieces(&err, WORDS("at most 64"));
    model_options_finish(&list);
    char yaml[4096] = "models:\n";
    for (int i = 0; i < 65; i++)
        sprintf(yaml + strlen(yaml), "  m%d: {model: m%d}\n", i, i);
    assert_yaml_refused(yaml, WORDS("quire.yaml line 66", "at most 64 models"));
    *strstr(yaml, "  m64") = '\0';
    assert_yaml(yaml, &list);
    assert_int_equal(list.count, 64);
    model_options_finish(&list);
    assert_int_equal(load_yaml(yaml, "--model=one-more", &list, &err), -1);
    assert_pieces(&err, WORDS("at most 64"));
}

/* --- models: --- */

static void test_settings(void **state) {
    static const char yaml[] =
        "max-model-len: 8K\nthreads: 4\nserved-model-name: [top]\n"
        "lora-modules: [a=b]\nport: 82\n"
        "models:\n"
        "  small:\n"
        "    model: small.gguf\n"
        "    aliases: [s, tiny]\n"
        "    max_model_len: 4K\n"
        "    pin: yes\n"
        "    preload: false\n"
        "    speculative-config: {method: ngram}\n"
        "  org/big:q4@x_1.0:\n"
        "    {model: big.gguf, preload: true, threads: 2, lora-modules: [c=d]}\n"
        "  third: {model: third.gguf, aliases: t}\n"
        "kv-cache-memory-bytes: 1M\n";
    struct model_list list;
    assert_yaml(yaml, &list);
    assert_int_equal(list.count, 3);
    const struct model_options *small = &list.models[0], *big = &list.models[1],
                               *third = &list.models[2];
    assert_string_equal(list.all.model, "small.gguf");
    assert_int_equal(list.all.max_model_len, 8192);
    assert_string_equal(small->name, "small");
    assert_names(small, WORDS("small", "s", "tiny"));
    assert_int_equal(small->options.max_model_len, 4096);
    assert_int_equal(small->options.threads, 4);
    assert_int_equal(small->options.port, 1); /* the flag's */
    assert_int_equal(small->options.lora_modules.count, 1);
    assert_string_equal(small->options.speculative_config, "{\"method\":\"ngram\"}");
    assert_true(small->is_pinned && !small->is_preloaded);
    assert_names(big, WORDS("org/big:q4@x_1.0"));
    assert_int_equal(big->options.max_model_len, 8192);
    assert_int_equal(big->options.threads, 2);
    assert_string_equal(big->options.lora_modules.items[0], "c=d");
    assert_true(!big->is_pinned && big->is_preloaded);
    assert_null(big->options.speculative_config);
    assert_names(third, WORDS("third", "t"));
    assert_int_equal(third->options.kv_cache_memory_bytes, 1 << 20); /* also what comes later */
    assert_false(third->is_preloaded);
    model_options_finish(&list);
}

/* A model's own setting wins over a flag and over the environment. */
static void test_settings_win(void **state) {
    struct model_list list;
    char *path = file_of("threads: 1\nmodels: {b: {model: b.gguf, threads: 2}, c: {model: c}}\n");
    assert_int_equal(load(WORDS("--config", path, "a.gguf", "--threads", "4", "-a", "a"),
                          WORDS("QUIRE_THREADS=3", "QUIRE_MAX_NUM_SEQS=5"), &list, NULL),
                     0);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.models[0].options.model, "a.gguf"); /* --model comes first */
    assert_int_equal(list.models[0].options.threads, 4);
    assert_int_equal(list.models[1].options.threads, 2);
    assert_int_equal(list.models[1].options.max_num_seqs, 5);
    assert_int_equal(list.models[2].options.threads, 4);
    model_options_finish(&list);
    free(path);
}

static void test_lists_of_paths(void **state) {
    static const char *const files[] = {"model: [a, b]\n", "models: [a, b]\n",
                                        "models:\n- a\n- b\n"};
    struct model_list list;
    for (size_t i = 0; i < 3; i++) {
        assert_yaml(files[i], &list);
        assert_int_equal(list.count, 2);
        assert_string_equal(list.models[1].options.model, "b");
        model_options_finish(&list);
        assert_int_equal(load_yaml(files[i], "--model=c", &list, NULL), 0);
        assert_int_equal(list.count, 1); /* as any option, the flag replaces the file's */
        model_options_finish(&list);
    }
    assert_yaml("models: {b: {model: b}}\nmodel: a\n", &list);
    assert_string_equal(list.models[0].options.model, "a");
    assert_string_equal(list.models[1].options.model, "b");
    model_options_finish(&list);
    assert_yaml_refused("model: a\nmodels: [b]\n", WORDS("line 2", "model is given twice"));
    assert_yaml_refused("models: {b: {model: [a, b]}}\n", WORDS("of model b", "one value"));
}

static void test_empty(void **state) {
    struct model_list list;
    assert_yaml_refused("models: {}\n", WORDS("no model is given"));
    assert_yaml_refused("models: []\n", WORDS("no model is given"));
    assert_yaml_refused("models:\n", WORDS("line 1", "models takes a map", "list of paths"));
    assert_yaml_refused("models: {a: {}}\n", WORDS("model a", "has no model: PATH"));
    assert_yaml_refused("models:\n  a:\n", WORDS("line 2: model a: takes a map of settings"));
    assert_yaml("models: {}\nmodel: m\n", &list);
    assert_int_equal(list.count, 1);
    model_options_finish(&list);
    /* Readers of one model need not know the others. */
    struct options options;
    char *path = file_of("models: {a: {model: x}}\n");
    assert_int_equal(options_load(3, WORDS("--config", path, "m"), NO_WORDS, &options, NULL), 0);
    assert_string_equal(options.model, "m");
    options_finish(&options);
    free(path);
}

static void test_wrong_settings(void **state) {
    assert_yaml_refused(
        "models:\n  a:\n    model: x\n    port: 1\n",
        WORDS("quire.yaml line 4: model a: option port is of the server", "docs/models.md"));
    assert_yaml_refused("models:\n  a: {modle: x}\n",
                        WORDS("line 2: model a: unknown option \"modle\"", "did you mean model?"));
    assert_yaml_refused("models: {a: {frobnicate: x}}\n", WORDS("model a", "docs/models.md lists"));
    assert_yaml_refused("models: {a: {config: x}}\n", WORDS("model a", "option config"));
    assert_yaml_refused("models: {a: {api-key: secret}}\n", WORDS("api-key is of the server"));
    assert_yaml_refused("models: {a: {models: {b: {}}}}\n", WORDS("unknown option \"models\""));
    assert_yaml_refused("pin: true\n", WORDS("unknown option \"pin\""));
    assert_yaml_refused("models: {a: {model: x, threads: x}}\n",
                        WORDS("option threads \"x\" of model a", "quire.yaml line 1", "0 to 1024"));
    assert_yaml_refused("models: {a: {model: x, pin: maybe}}\n",
                        WORDS("option pin \"maybe\" of model a", "true or false"));
    assert_yaml_refused("models: {a: {model: x, pin: [true]}}\n", WORDS("pin of model a"));
    assert_yaml_refused("models: {a: {model: x, preload: {a: b}}}\n", WORDS("preload of model a"));
    assert_yaml_refused("models: {a: {model: {x: y}}}\n", WORDS("model of model a"));
    assert_yaml_refused("models: {a: {model: ''}}\n", WORDS("model \"\" of model a"));
    assert_yaml_refused("models: {a: {model: \"x\\ny\"}}\n", WORDS("control characters"));
    assert_yaml_refused("models: {a: {model: \"x\\0y\"}}\n", WORDS("NUL"));
}

static void test_twice(void **state) {
    assert_yaml_refused("models:\n  a: {model: x}\n  a: {model: y}\n",
                        WORDS("line 3: model a is given twice, first in line 2"));
    assert_yaml_refused("models: {a: {model: x,\n model: y}}\n",
                        WORDS("line 2: model a: option model is given twice"));
    assert_yaml_refused("models: {a: {pin: true, pin: true}}\n",
                        WORDS("option pin is given twice"));
    assert_yaml_refused("models: {a: {aliases: [x], served-model-name: y}}\n",
                        WORDS("served-model-name is given twice"));
    assert_yaml_refused("models: {a: {model: x}}\nmodels: {b: {model: y}}\n",
                        WORDS("line 2: option models is given twice"));
}

static void test_names_in_common(void **state) {
    struct model_list list;
    struct error err = {0};
    assert_yaml_refused("models: {a: {model: x}, b: {model: y, aliases: [c, a]}}\n",
                        WORDS("the name a is that of model a (x) and of model b (y)"));
    assert_yaml_refused("models: {a: {model: x, aliases: c}, b: {model: y, aliases: [d, c]}}\n",
                        WORDS("the name c", "model a (x)", "model b (y)"));
    assert_yaml_refused("models: {a: {model: x, aliases: '*'}, b: {model: y, aliases: ['*']}}\n",
                        WORDS("the name *"));
    assert_int_equal(load_yaml("models: {a: {model: x}}\n", "--model=a", &list, &err), -1);
    assert_pieces(&err, WORDS("the name a", "(a)", "(x)"));
    assert_yaml("models: {a: {model: x, aliases: [a, b]}, c: {model: x}}\n", &list);
    assert_names(&list.models[0], WORDS("a", "b"));
    model_options_finish(&list);
}

static void test_outputs_in_common(void **state) {
    struct model_list list;
    assert_yaml_refused("record: r\nmodels: {a: {model: x}, b: {model: y}}\n",
                        WORDS("option record \"r\" is that of model a and of model b"));
    assert_yaml_refused("models: {a: {model: x, kv-events: 'tcp://*:1'},\n"
                        "         b: {model: y, kv-events: 'tcp://*:1'}}\n",
                        WORDS("option kv-events", "model a", "model b"));
    assert_yaml("record: r\nmodels: {a: {model: x}, b: {model: y, record: s}}\n", &list);
    assert_string_equal(list.models[1].options.record, "s");
    model_options_finish(&list);
}

static void test_bad_names(void **state) {
    char yaml[512], name[130];
    memset(name, 'a', sizeof(name));
    name[129] = '\0';
    snprintf(yaml, sizeof(yaml), "models: {%s: {model: x}}\n", name);
    assert_yaml_refused(yaml, WORDS("line 1", "aaa...", "1 to 128 letters"));
    assert_yaml_refused("models: {'': {model: x}}\n", WORDS("model \"\"", "1 to 128"));
    assert_yaml_refused("models: {\"a\\nb\": {model: x}}\n", WORDS("model \"a?b\""));
    assert_yaml_refused("models: {\"a\\x1b[2J\": {model: x}}\n", WORDS("model \"a?[2J\""));
    assert_yaml_refused("models: {\"a\\0b\": {model: x}}\n", WORDS("model \"a?b\""));
    assert_yaml_refused("models: {a b: {model: x}}\n", WORDS("model \"a b\""));
    assert_yaml_refused("models: {\"*\": {model: x}}\n", WORDS("model \"*\""));
    assert_yaml_refused("models: {\"\\xe9\": {model: x}}\n", WORDS("letters"));
    assert_yaml_refused("models: {[a]: {model: x}}\n", WORDS("expected a model's name"));
    assert_yaml_refused("models: {{a: b}: {model: x}}\n", WORDS("expected a model's name"));
}

/* Neither anchors nor depth make the reader work. */
static void test_hostile_structure(void **state) {
    assert_yaml_refused("models: &a {x: *a}\n", WORDS("model x", "takes a map of settings"));
    assert_yaml_refused("models: {a: &a {model: x}, b: *a}\n", WORDS("model b"));
    assert_yaml_refused("models: {a: {model: x, <<: {b: c}}}\n", WORDS("unknown option \"<<\""));
    assert_yaml_refused("models: {a: {model: x, aliases: &b [*b]}}\n", WORDS("plain values"));
    assert_yaml_refused("models: {a: {model: x, aliases: [[y]]}}\n", WORDS("plain values"));
    assert_yaml_refused("models: *a\n", WORDS("models takes a map"));
    assert_yaml_refused("models: [[a]]\n", WORDS("plain values"));
    static char yaml[200001];
    strcpy(yaml, "models: ");
    for (size_t length = strlen(yaml); length + 4 < 200000; length += 4)
        memcpy(yaml + length, "{a: ", 4);
    assert_yaml_refused(yaml, WORDS("model a"));
    memset(yaml + 8, '[', 199990);
    assert_yaml_refused(yaml, WORDS("plain values"));
    char many[1024] = "models: {a: {model: x, aliases: [";
    for (int i = 0; i < 64; i++)
        sprintf(many + strlen(many), "n%d,", i);
    strcat(many, "]}}\n");
    assert_yaml_refused(many, WORDS("model a", "at most 63 aliases"));
}

/* Every option is one of a model or one of the server, and the page lists the former. */
static void test_page_lists_the_settings(void **state) {
    char path[4096], name[OPTION_NAME_CAPACITY + 4];
    static char text[1 << 16];
    size_t count;
    const struct option_spec *table = options_table(&count);
    snprintf(path, sizeof(path), "%s/docs/models.md", getenv("QUIRE_TEST_SOURCE_ROOT"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    char *section = strstr(text, "\n## Several models\n");
    assert_non_null(section);
    char *end = strstr(section + 1, "\n## ");
    *(end != NULL ? end : section) = '\0';
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "`%s`", table[i].name);
        bool is_listed = strstr(section, name) != NULL;
        if (is_listed != ((table[i].flags & OPTION_PER_MODEL) != 0))
            fail_msg("%s", name);
    }
}

static int make_folder(void **state) {
    temporary_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(&folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_model_is_as_ever),
        cmocka_unit_test(test_models_of_the_command_line),
        cmocka_unit_test(test_any_name_is_the_first_models),
        cmocka_unit_test(test_65_models),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_settings_win),
        cmocka_unit_test(test_lists_of_paths),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_wrong_settings),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_names_in_common),
        cmocka_unit_test(test_outputs_in_common),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_hostile_structure),
        cmocka_unit_test(test_page_lists_the_settings),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
