/* The YAML form of a file of keys: every field, and a corpus of files that are refused with their
 * line and field. Each bad file holds "sk-secret" in what might be repeated: no message may. */
#include "server/keys/key_file.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define HASH_1 "sha256:1111111111111111111111111111111111111111111111111111111111111111"
#define HASH_2 "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEY_1 "keys:\n- name: a\n  hash: " HASH_1 "\n"

static struct temporary_folder folder;

static int make_folder(void **state) {
    temporary_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(&folder);
    return 0;
}

static int read_text(const char *text, size_t length, struct key_file *file, struct error *err) {
    return key_file_read(temporary_write(&folder, "keys.yaml", text, length), file, err);
}

static void assert_read(const char *text, struct key_file *file) {
    struct error err = {0};
    if (read_text(text, strlen(text), file, &err) != 0)
        fail_msg("%s: %s", text, err.message);
}

static void test_all_fields(void **state) {
    struct key_file file;
    assert_read("# keys of the teams\n\n"
                "keys:\n"
                "  - name: team-a.1_B\n"
                "    hash: " HASH_2 "\n"
                "    weight: 9\n"
                "    requests-per-minute: 600\n"
                "    tokens_per_minute: 1000000000000\n"
                "    max-concurrency: 32\n"
                "    min-priority: -10\n"
                "    max-priority: 10\n"
                "    models: [small, \"large one\"]\n"
                "    expires: 2027-01-31\n"
                "  - {name: b, hash: '" HASH_1 "', models: small, expires: 1970-01-01T00:01:05Z}\n",
                &file);
    assert_int_equal(file.num_keys, 2);
    const struct key_entry *a = &file.keys[0], *b = &file.keys[1];
    assert_string_equal(a->name, "team-a.1_B");
    assert_int_equal(a->hash.bytes[0], 0x00);
    assert_int_equal(a->hash.bytes[1], 0x11);
    assert_int_equal(a->hash.bytes[31], 0xff);
    assert_int_equal(a->weight, 9);
    assert_int_equal(a->requests_per_minute, 600);
    assert_int_equal(a->tokens_per_minute, 1000000000000);
    assert_int_equal(a->max_concurrency, 32);
    assert_int_equal(a->min_priority, -10);
    assert_int_equal(a->max_priority, 10);
    assert_int_equal(a->num_models, 2);
    assert_string_equal(a->models[0], "small");
    assert_string_equal(a->models[1], "large one");
    assert_int_equal(a->expires, 1801353600);
    assert_int_equal(b->weight, 1);
    assert_int_equal(b->requests_per_minute, 0);
    assert_int_equal(b->min_priority, INT32_MIN);
    assert_int_equal(b->max_priority, INT32_MAX);
    assert_int_equal(b->num_models, 1);
    assert_int_equal(b->expires, 65);
    key_file_finish(&file);
}

static void test_what_is_yaml(void **state) {
    struct key_file file;
    assert_read("---\nkeys: # all\n  - {name: a, hash: " HASH_1 "}\n", &file);
    assert_string_equal(file.keys[0].name, "a");
    assert_int_equal(file.keys[0].expires, KEY_NEVER);
    key_file_finish(&file);
    assert_read("keys: [{name: a, hash: " HASH_1 "}]", &file);
    assert_int_equal(file.num_keys, 1);
    key_file_finish(&file);
    assert_read("keys:a\n# keys:\n", &file); /* a plain key */
    assert_int_equal(file.num_keys, 1);
    assert_string_equal(file.keys[0].name, "");
    key_file_finish(&file);
}

#define AFTER(line) KEY_1 "  " line "\n"

static const struct {
    const char *text, *said;
} bad[] = {
    {"keys:\n", "line 1: keys must be a list of keys"},
    {"keys: sk-secret\n", "line 1: keys must be a list of keys"},
    {"keys: []\n", "holds no key"},
    {"---\n- sk-secret\n", "line 2: must be one map with the list `keys`"},
    {"---\nsk-secret: []\n", "line 2: must be one map with the list `keys`"},
    {KEY_1 "sk-secret: 1\n", "line 4: must be one map with the list `keys`"},
    {KEY_1 "---\nkeys: []\n", "line 4: must be a single document"},
    {"keys:\n- sk-secret\n", "line 2: a key must be a map of fields"},
    {"keys:\n- [sk-secret]\n", "line 2: a key must be a map of fields"},
    {"keys:\n- *sk-secret\n", "line 2: a key must be a map of fields"},
    {"keys:\n- name: a\n", "line 2: hash is missing"},
    {"keys:\n- hash: " HASH_1 "\n", "line 2: name is missing"},
    {"keys:\n- name: sk-secret key\n", "line 2: name must be 1 to 64 characters of A-Z"},
    {"keys:\n- name: ''\n", "line 2: name must be 1 to 64 characters"},
    {"keys:\n- name: a\"b\n", "line 2: name must be 1 to 64 characters"},
    {"keys:\n- name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
     "line 2: name must be 1 to 64 characters"},
    {"keys:\n- name: [sk-secret]\n", "line 2: name takes one plain value"},
    {"keys:\n- name: \"a\\0sk-secret\"\n", "line 2: name takes one plain value"},
    {"keys:\n- name: a\n  hash: sk-secret\n", "line 3: hash must be sha256: and 64 digits"},
    {"keys:\n- name: a\n  hash: sha256:11\n", "line 3: hash must be sha256: and 64 digits"},
    {"keys:\n- name: a\n  hash: " HASH_1 "1\n", "line 3: hash must be sha256: and 64 digits"},
    {"keys:\n- name: a\n  hash: "
     "sha256:G111111111111111111111111111111111111111111111111111111111111111\n",
     "line 3: hash must be sha256: and 64 digits"},
    {"keys:\n- name: a\n  hash: "
     "sha256:A111111111111111111111111111111111111111111111111111111111111111\n",
     "line 3: hash must be sha256: and 64 digits"},
    {AFTER("sk-secret: 1"), "line 4: unknown field; a key may have name, hash, weight"},
    {AFTER("[sk-secret]: 1"), "line 4: unknown field"},
    {AFTER("\"name\\0\": 1"), "line 4: unknown field"},
    {AFTER("name: b"), "line 4: name is given twice"},
    {AFTER("weight: 1\n  weight: 1"), "line 5: weight is given twice"},
    {AFTER("weight: 0"), "line 4: weight must be a whole number from 1 to 1000"},
    {AFTER("weight: 1001"), "line 4: weight must be a whole number from 1 to 1000"},
    {AFTER("weight: 1.5"), "line 4: weight must be a whole number from 1 to 1000"},
    {AFTER("weight: sk-secret"), "line 4: weight must be a whole number"},
    {AFTER("weight:"), "line 4: weight must be a whole number"},
    {AFTER("weight: 010"), "line 4: weight must be a whole number"},
    {AFTER("weight: +1"), "line 4: weight must be a whole number"},
    {AFTER("weight: ' 1'"), "line 4: weight must be a whole number"},
    {AFTER("weight: {a: 1}"), "line 4: weight takes one plain value"},
    {AFTER("requests-per-minute: 0"), "line 4: requests-per-minute must be a whole number from 1"},
    {AFTER("requests-per-minute: -5"), "line 4: requests-per-minute must be"},
    {AFTER("tokens-per-minute: 99999999999999999999"), "line 4: tokens-per-minute must be"},
    {AFTER("max-concurrency: 1000001"), "line 4: max-concurrency must be"},
    {AFTER("min-priority: -2147483649"), "line 4: min-priority must be"},
    {AFTER("max-priority: 2147483648"), "line 4: max-priority must be"},
    {AFTER("min-priority: 2\n  max-priority: 1"), "line 2: min-priority is larger than max"},
    {AFTER("models: []"), "line 4: models is an empty list"},
    {AFTER("models: ['']"), "line 4: models must be 1 to 64 names"},
    {AFTER("models: [[sk-secret]]"), "line 4: models takes a list of plain values"},
    {AFTER("models: {a: b}"), "line 4: models takes a list of plain values"},
    {AFTER("models: [a"), "line 5: "},
    {AFTER("expires: tomorrow"), "line 4: expires must be a date as 2026-01-31"},
    {AFTER("expires: 2026-02-30"), "line 4: expires must be a date"},
    {AFTER("expires: 2026-1-2"), "line 4: expires must be a date"},
    {AFTER("expires: 2026-01-02T00:00:00"), "line 4: expires must be a date"},
    {AFTER("expires: 2026-01-02T00:00:00Zx"), "line 4: expires must be a date"},
    {AFTER("expires: 2026-01-02T24:00:00Z"), "line 4: expires must be a date"},
    {AFTER("expires: 2026-01-02T1:00:00Z"), "line 4: expires must be a date"},
    {AFTER("expires: '2026-01-02 '"), "line 4: expires must be a date"},
    {AFTER("expires: 2026- 1- 2"), "line 4: expires must be a date"},
    {KEY_1 "- name: a\n  hash: " HASH_2 "\n", "line 4: name is that of another key"},
    {KEY_1 "- name: b\n  hash: " HASH_1 "\n", "line 4: hash is that of another key"},
    {KEY_1 "- sk-secret: [\n", "line 4: unknown field"},
    {KEY_1 " x\n", "line "},
    {KEY_1 "\x01", "line "},
    {"keys:\n  - name: \"sk-secret\n", "line "},
    {"keys:\n\t- name: sk-secret\n", "line "},
};

static void test_bad_files(void **state) {
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct key_file file = {0};
        struct error err = {0};
        if (read_text(bad[i].text, strlen(bad[i].text), &file, &err) == 0)
            fail_msg("was accepted:\n%s", bad[i].text);
        if (err.code != ERROR_CONFIG || strstr(err.message, bad[i].said) == NULL ||
            strstr(err.message, "secret") != NULL)
            fail_msg("\"%s\" lacks \"%s\" or says a secret, of:\n%s", err.message, bad[i].said,
                     bad[i].text);
        assert_null(file.keys);
    }
}

/* Every beginning of a good file, and each of its bytes replaced: refused or read, and never more.
 */
static void test_damaged_files(void **state) {
    static const char text[] = KEY_1 "  models: [x, y]\n  expires: 2027-01-31\n  weight: 3\n"
                                     "- {name: b, hash: " HASH_2 ", min-priority: -1}\n";
    static const char bytes[] = {'\0', '\n', ':', '-', '[',  '{', '&',
                                 '*',  '!',  '"', '#', '\t', 'a'};
    char copy[sizeof(text)];
    for (size_t length = 0; length < sizeof(text); length += 3) {
        struct key_file file = {0};
        struct error err;
        if (read_text(text, length, &file, &err) == 0)
            key_file_finish(&file);
    }
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        struct key_file file = {0};
        struct error err;
        memcpy(copy, text, sizeof(text));
        copy[i] = bytes[i % sizeof(bytes)];
        if (read_text(copy, sizeof(text) - 1, &file, &err) == 0)
            key_file_finish(&file);
    }
}

static void test_number_of_keys(void **state) {
    char *text = malloc(200 * (KEY_FILE_MAX_KEYS + 1)), *end = text;
    struct key_file file = {0};
    struct error err;
    end += sprintf(end, "keys:\n");
    for (int i = 0; i < KEY_FILE_MAX_KEYS; i++)
        end += sprintf(end, "- {name: k%d, hash: \"sha256:%064x\"}\n", i, i);
    assert_read(text, &file);
    assert_int_equal(file.num_keys, KEY_FILE_MAX_KEYS);
    key_file_finish(&file);
    sprintf(end, "- {name: k, hash: \"sha256:%064x\"}\n", KEY_FILE_MAX_KEYS);
    assert_int_equal(read_text(text, strlen(text), &file, &err), -1);
    assert_non_null(strstr(err.message, "line 1026: there are more than 1024 keys"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fields),     cmocka_unit_test(test_what_is_yaml),
        cmocka_unit_test(test_bad_files),      cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_number_of_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
