#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "models/weights/weights_digest.h"

#include "tests/unit/models/gguf_writer.h"
#include "tests/unit/temporary_files.h"

#include <string.h>

struct digest {
    uint8_t bytes[CONTENT_HASH_BYTES];
};

static struct digest digest_of(const struct model *model) {
    struct digest digest;
    struct error err = {0};
    char chunk[7];
    struct content_hash *hash = content_hash_create();
    assert_non_null(hash);
    if (weights_digest_add_settings(hash, model, chunk, sizeof(chunk), &err) != 0)
        fail_msg("%s", err.message);
    content_hash_digest(hash, digest.bytes);
    content_hash_destroy(hash);
    return digest;
}

static void assert_differ(struct digest a, struct digest b) {
    assert_memory_not_equal(a.bytes, b.bytes, sizeof(a.bytes));
}

static void assert_same(struct digest a, struct digest b) {
    assert_memory_equal(a.bytes, b.bytes, sizeof(a.bytes));
}

/* What the metadata of a file may hold. */
struct settings {
    uint32_t number;
    float fraction;
    const char *text, *first, *last;
    uint32_t id;
};

static struct digest digest_of_file(const struct settings *settings, const char *folder) {
    struct gguf_writer w = {0};
    struct model model = {.folder = (char *)folder};
    struct error err = {0};
    gguf_put_header(&w, 3, 0, 5);
    gguf_put_key_u32(&w, "number", settings->number);
    gguf_put_key_f32(&w, "fraction", settings->fraction);
    gguf_put_key_string(&w, "text", settings->text);
    gguf_put_key_array(&w, "tokens", 8, 2);
    gguf_put_string(&w, settings->first);
    gguf_put_string(&w, settings->last);
    gguf_put_key_array(&w, "ids", 4, 2);
    gguf_put_u32(&w, 5);
    gguf_put_u32(&w, settings->id);
    gguf_pad(&w, 32);
    if (tensor_file_open_memory(w.data, w.bytes, "m.gguf", &model.file, &err) != 0)
        fail_msg("%s", err.message);
    struct digest digest = digest_of(&model);
    tensor_file_close(model.file);
    gguf_finish(&w);
    return digest;
}

static void test_every_value_of_a_file(void **state) {
    static const struct settings usual = {7, 0.5f, "template", "ab", "c", 9};
    struct digest first = digest_of_file(&usual, NULL);
    assert_same(first, digest_of_file(&usual, NULL));
    const struct settings others[] = {
        {8, 0.5f, "template", "ab", "c", 9},  {7, 0.25f, "template", "ab", "c", 9},
        {7, 0.5f, "templates", "ab", "c", 9}, {7, 0.5f, "template", "a", "bc", 9},
        {7, 0.5f, "template", "ab", "d", 9},  {7, 0.5f, "template", "ab", "c", 10},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_differ(first, digest_of_file(&others[i], NULL));
}

static void test_every_file_of_a_folder(void **state) {
    static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja"};
    static const struct settings settings = {7, 0.5f, "template", "ab", "c", 9};
    struct temporary_folder folder;
    temporary_folder_make(&folder);
    temporary_write(&folder, "config.json", "{\"a\": 1, \"b\": 2}", 16);
    struct digest last = digest_of_file(&settings, folder.path);
    assert_same(last, digest_of_file(&settings, folder.path));
    temporary_write(&folder, "README.md", "nothing", 7);
    assert_same(last, digest_of_file(&settings, folder.path));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        temporary_write(&folder, names[i], "{\"a\": 1, \"b\": 3}", 16);
        struct digest next = digest_of_file(&settings, folder.path);
        assert_differ(last, next);
        last = next;
    }
    temporary_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_of_a_file),
        cmocka_unit_test(test_every_file_of_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
