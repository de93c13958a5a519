/* Names of models as people write them, and names of files as a hub does. */
#include "server/client/hub/hub_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *text, const char *repository, const char *revision,
                  const char *choice) {
    struct hub_reference reference;
    struct error err = {0};
    assert_int_equal(hub_reference_parse(text, &reference, &err), 0);
    assert_string_equal(reference.repository, repository);
    assert_string_equal(reference.revision, revision);
    assert_string_equal(reference.choice, choice);
}

static void test_references(void **state) {
    check("org/name", "org/name", "main", "");
    check("Org-1/na.me_2", "Org-1/na.me_2", "main", "");
    check("org/name@v1.0", "org/name", "v1.0", "");
    check("org/name@refs/pr/3", "org/name", "refs/pr/3", "");
    check("org/name:Q4_K_M", "org/name", "main", "Q4_K_M");
    check("org/name@v1:sub/a file@2.gguf", "org/name", "v1", "sub/a file@2.gguf");
}

static void test_addresses(void **state) {
    check("hf.co/org/name", "org/name", "main", "");
    check("hf.co/org/name:Q4_K_M", "org/name", "main", "Q4_K_M");
    check("huggingface.co/org/name@v1", "org/name", "v1", "");
    check("https://huggingface.co/org/name", "org/name", "main", "");
    check("https://HuggingFace.co/org/name/", "org/name", "main", "");
    check("https://hf.co/org/name:Q8_0", "org/name", "main", "Q8_0");
    check("https://huggingface.co/org/name/tree/v2", "org/name", "v2", "");
    check("https://huggingface.co/org/name/tree/main/sub", "org/name", "main", "");
    check("https://huggingface.co/org/name/resolve/main/a.gguf?download=true", "org/name", "main",
          "a.gguf");
    check("https://huggingface.co/org/name/blob/v1/sub/a-00001-of-00002.gguf", "org/name", "v1",
          "sub/a-00001-of-00002.gguf");
    setenv("HF_ENDPOINT", "http://127.0.0.1:9/hub/", 1);
    check("http://127.0.0.1:9/hub/org/name/resolve/main/a.gguf", "org/name", "main", "a.gguf");
    check("https://huggingface.co/org/name", "org/name", "main", "");
    unsetenv("HF_ENDPOINT");
}

static void test_addresses_of_others(void **state) {
    static const char *const bad[] = {"https://example.com/org/name/resolve/main/a.gguf",
                                      "http://huggingface.co.example.com/org/name", "https://",
                                      "https://huggingface.co.example.com/org/name"};
    struct hub_reference reference;
    struct error err = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(hub_reference_parse(bad[i], &reference, &err), -1);
        assert_non_null(strstr(err.message, "HF_ENDPOINT"));
    }
    static const char *const broken[] = {"https://huggingface.co/", "https://huggingface.co/name",
                                         "https://huggingface.co/org/name/discussions",
                                         "https://huggingface.co/org/name/resolve/main/../a",
                                         "https://huggingface.co/org/name/resolve/a b/x.gguf"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        if (hub_reference_parse(broken[i], &reference, &err) == 0)
            fail_msg("%s", broken[i]);
}

static void test_what_is_none(void **state) {
    static const char *const bad[] = {
        "",           "name",         "/name",       "org/",        "a/b/c",      "org/na me",
        "-org/name",  "org/name-",    "org/.name",   "org/a--b",    "org/a..b",   "org/name.git",
        "org/name@",  "org/name@a b", "org/name@..", "org/name@/a", "org/n@a//b", "org/name:",
        "org/name:.", "org/n:../x",   "org/n:/x",    "org/n:a\nb",  "org/n@\xc3", "org/name@a/",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct hub_reference reference;
        struct error err = {0};
        assert_int_equal(hub_reference_parse(bad[i], &reference, &err), -1);
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_non_null(strstr(err.message, "ORG/NAME[@REVISION][:FILE or quantisation]"));
    }
}

static void test_lengths(void **state) {
    struct hub_reference reference;
    char text[2 * HUB_FILE_NAME_BYTES];
    size_t fits = HUB_REPOSITORY_BYTES - 1;
    memset(text, 'a', sizeof(text));
    text[3] = '/';
    text[fits] = '\0';
    assert_int_equal(hub_reference_parse(text, &reference, NULL), 0);
    text[fits] = 'a';
    text[fits + 1] = '\0';
    assert_int_equal(hub_reference_parse(text, &reference, NULL), -1);
    memset(text, 'a', sizeof(text));
    memcpy(text, "org/name@", 9);
    text[9 + HUB_REVISION_BYTES] = '\0';
    assert_int_equal(hub_reference_parse(text, &reference, NULL), -1);
    memcpy(text, "org/name:", 9);
    memset(text + 9, 'a', sizeof(text) - 10);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(hub_reference_parse(text, &reference, NULL), -1);
}

static void test_paths(void **state) {
    static const char *const paths[] = {"/a/b", "./a/b", "../a", "~/a/b", "a/b/", "a/b.gguf", "."};
    static const char *const others[] = {
        "hf.co/a/b.gguf", "https://hf.co/a/b/blob/m/c.gguf", "a/b", "a/b:c.gguf", "a", "a/b@v1"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_true(hub_reference_is_path(paths[i]));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(hub_reference_is_path(others[i]));
}

static void test_names_of_files(void **state) {
    char part[300];
    assert_true(hub_reference_is_file_name("a/b c/.d/\xc3\xa4...gguf"));
    static const char *const bad[] = {"",       "/a",  "a/",    "a//b", "..",
                                      "a/../b", "./a", "a\x7f", "a\tb"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(hub_reference_is_file_name(bad[i]));
    memset(part, 'a', sizeof(part));
    part[255] = '\0';
    assert_true(hub_reference_is_file_name(part));
    part[255] = 'a';
    part[256] = '\0';
    assert_false(hub_reference_is_file_name(part));
}

static void test_commits(void **state) {
    assert_true(hub_reference_is_commit("0123456789abcdef0123456789abcdef01234567"));
    assert_false(hub_reference_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
    assert_false(hub_reference_is_commit("0123456789abcdef0123456789abcdef0123456"));
    assert_false(hub_reference_is_commit("main"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_addresses_of_others),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_names_of_files),
        cmocka_unit_test(test_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
