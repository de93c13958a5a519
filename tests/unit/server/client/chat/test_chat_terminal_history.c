/* The file of what was typed: entries come back as they were, and it does not grow for ever. */
#include "server/client/chat/chat_terminal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
    int num_entries;
    char all[512], last[512];
};

static void take(void *context, const char *text) {
    struct seen *seen = context;
    seen->num_entries++;
    snprintf(seen->last, sizeof(seen->last), "%s", text);
    size_t used = strlen(seen->all);
    snprintf(seen->all + used, sizeof(seen->all) - used, "%.100s|", text);
}

static void test_entries(void **state) {
    static const char *const entries[] = {"one", "two\nlines", "\\n \\\\", "gr\xc3\xbc\xc3\x9f\\"};
    struct seen seen = {0};
    struct stat status;
    char folder[] = "/tmp/quire-history-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    chat_history_load(path, take, &seen);
    assert_int_equal(seen.num_entries, 0);
    for (int i = 0; i < 4; i++)
        chat_history_add(path, entries[i]);
    chat_history_load(path, take, &seen);
    assert_string_equal(seen.all, "one|two\nlines|\\n \\\\|gr\xc3\xbc\xc3\x9f\\|");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    unlink(path);
    assert_int_equal(symlink("/dev/zero", path), 0); /* no end */
    chat_history_load(path, take, &seen);
    chat_history_add(path, "nothing");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* no reader, no writer */
    chat_history_load(path, take, &seen);
    chat_history_add(path, "nothing");
    assert_int_equal(seen.num_entries, 4);
    unlink(path);
    rmdir(folder);
}

static void test_a_large_file_is_shortened(void **state) {
    struct seen seen = {0};
    struct stat status;
    char folder[] = "/tmp/quire-history-XXXXXX", path[64];
    char *entry = malloc(100001);
    assert_non_null(entry);
    memset(entry, 'x', 100000);
    entry[100000] = '\0';
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    for (int i = 0; i < 45; i++)
        chat_history_add(path, entry);
    chat_history_add(path, "last");
    chat_history_load(path, take, &seen);
    assert_int_equal(seen.num_entries, 21); /* of half of 4 MiB, the first not whole */
    assert_string_equal(seen.last, "last");
    assert_int_equal(stat(path, &status), 0);
    assert_true((size_t)status.st_size <= CHAT_HISTORY_MAX_BYTES / 2);
    unlink(path);
    rmdir(folder);
    free(entry);
}

static void test_path(void **state) {
    char folder[] = "/tmp/quire-history-XXXXXX", path[128], expected[128];
    assert_non_null(mkdtemp(folder));
    setenv("XDG_STATE_HOME", folder, 1);
    assert_true(chat_history_path(path, sizeof(path)));
    snprintf(expected, sizeof(expected), "%s/quire/chat_history", folder);
    assert_string_equal(path, expected);
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", folder, 1);
    assert_true(chat_history_path(path, sizeof(path)));
    snprintf(expected, sizeof(expected), "%s/.local/state/quire/chat_history", folder);
    assert_string_equal(path, expected);
    assert_false(chat_history_path(path, 20));
    unsetenv("HOME");
    assert_false(chat_history_path(path, sizeof(path)));
    static const char *const made[] = {"/quire", "/.local/state/quire", "/.local/state", "/.local",
                                       ""};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, made[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_a_large_file_is_shortened),
        cmocka_unit_test(test_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
