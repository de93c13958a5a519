/* What a file of keys may hold, and that no message ever shows a key. */
#include "server/keys/key_file.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct temporary_folder folder;

static int make_folder(void **state) {
    temporary_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(&folder);
    return 0;
}

static const char *write_keys(const char *text, size_t length) {
    const char *path = temporary_write(&folder, "keys", text, length);
    assert_int_equal(chmod(path, 0600), 0);
    return path;
}

static void assert_refused(const char *text, size_t length, const char *said) {
    struct key_file file = {0};
    struct error err = {0};
    assert_int_equal(key_file_read(write_keys(text, length), &file, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    if (strstr(err.message, said) == NULL || strstr(err.message, "sk-") != NULL)
        fail_msg("\"%s\" lacks \"%s\"", err.message, said);
    assert_null(file.keys);
}

static void assert_key(const struct key_entry *entry, const char *key) {
    struct auth_hash hash;
    struct error err;
    assert_int_equal(auth_hash_key(key, &hash, &err), 0);
    assert_memory_equal(&entry->hash, &hash, sizeof(hash));
}

static void test_lines(void **state) {
    static const char text[] = "# first\nsk-1\n\n  sk-2#not-a-comment\t\r\n   # blank\nsk-3";
    struct key_file file;
    struct error err;
    assert_int_equal(key_file_read(write_keys(text, strlen(text)), &file, &err), 0);
    assert_int_equal(file.num_keys, 3);
    assert_key(&file.keys[0], "sk-1");
    assert_key(&file.keys[1], "sk-2#not-a-comment");
    assert_key(&file.keys[2], "sk-3");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(file.keys[i].name, "");
        assert_int_equal(file.keys[i].weight, 1);
        assert_int_equal(file.keys[i].requests_per_minute, 0);
    }
    assert_false(file.is_exposed);
    key_file_finish(&file);
    assert_null(file.keys);
}

static void test_bounds(void **state) {
    static char text[KEY_FILE_MAX_BYTES + 1];
    struct key_file file;
    struct error err;
    size_t length = 0;
    for (int i = 0; i < KEY_FILE_MAX_KEYS; i++)
        length += (size_t)sprintf(text + length, "sk-%d\n", i);
    assert_int_equal(key_file_read(write_keys(text, length), &file, &err), 0);
    assert_int_equal(file.num_keys, KEY_FILE_MAX_KEYS);
    assert_key(&file.keys[KEY_FILE_MAX_KEYS - 1], "sk-1023");
    key_file_finish(&file);
    length += (size_t)sprintf(text + length, "sk-one-more\n");
    assert_refused(text, length, "line 1025: there are more than 1024 keys");

    memset(text, 'k', 256);
    assert_refused(text, 256, "line 1: a key has at most 255 bytes");
    assert_int_equal(key_file_read(write_keys(text, 255), &file, &err), 0);
    key_file_finish(&file);

    memset(text, '\n', sizeof(text));
    assert_refused(text, sizeof(text), "is larger than 1 MiB");
    text[0] = 'k';
    assert_int_equal(key_file_read(write_keys(text, KEY_FILE_MAX_BYTES), &file, &err), 0);
    assert_int_equal(file.num_keys, 1);
    key_file_finish(&file);
}

static void test_refusals(void **state) {
    assert_refused("", 0, "holds no key");
    assert_refused("# none\n\n", 8, "holds no key");
    assert_refused("sk-1\nsk-2 sk-3\n", 15, "line 2: a key holds only visible ASCII");
    assert_refused("sk-1\0sk-2\n", 10, "line 1: a key holds only visible ASCII");
    assert_refused("\xef\xbb\xbfsk-1\n", 8, "line 1: a key holds only visible ASCII");
    assert_refused("sk-\x7f\n", 5, "line 1: a key holds only visible ASCII");
}

static void test_other_files(void **state) {
    struct key_file file = {0};
    struct error err;
    assert_int_equal(key_file_read(folder.path, &file, &err), -1);
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(key_file_read(temporary_file(&folder, "absent"), &file, &err), -1);
    assert_non_null(strstr(err.message, "No such file"));
    const char *fifo = temporary_file(&folder, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(key_file_read(fifo, &file, &err), -1);
    assert_non_null(strstr(err.message, "not a regular file"));
}

static void test_exposed_files_are_told(void **state) {
    static const struct {
        mode_t mode;
        bool is_exposed;
    } cases[] = {{0400, false}, {0640, false}, {0660, true}, {0644, true}, {0602, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct key_file file;
        struct error err;
        const char *path = write_keys("sk-1\n", 5);
        assert_int_equal(chmod(path, cases[i].mode), 0);
        assert_int_equal(key_file_read(path, &file, &err), 0);
        assert_int_equal(file.is_exposed, cases[i].is_exposed);
        key_file_finish(&file);
        assert_int_equal(chmod(path, 0600), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_exposed_files_are_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
