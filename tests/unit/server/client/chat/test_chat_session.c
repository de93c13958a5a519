/* The body that a conversation becomes, its settings, and its file. */
#include "server/client/chat/chat_session.h"

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

static void check_body(const struct chat_session *session, const char *expected) {
    struct byte_buffer body = {0};
    chat_session_write_body(session, "m", &body);
    assert_int_equal(body.length, strlen(expected));
    assert_memory_equal(body.data, expected, body.length);
    byte_buffer_finish(&body);
}

#define END ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}"

static void test_bodies(void **state) {
    struct chat_session session = {0};
    struct error err;
    check_body(&session, "{\"model\":\"m\",\"messages\":[]" END);
    chat_session_add(&session, false, "a \"b\"\nc and more", 7);
    chat_session_add(&session, true, "d", 1);
    chat_session_set_system(&session, "be kind");
    assert_int_equal(chat_session_set(&session, "temperature", "0.2", &err), 0);
    assert_int_equal(chat_session_set(&session, "max_tokens", "16", &err), 0);
    check_body(
        &session,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be kind\"},"
        "{\"role\":\"user\",\"content\":\"a \\\"b\\\"\\nc\"},"
        "{\"role\":\"assistant\",\"content\":\"d\"}],\"temperature\":0.2,\"max_tokens\":16" END);
    chat_session_drop(&session);
    chat_session_set_system(&session, "");
    assert_int_equal(chat_session_set(&session, "temperature", "default", &err), 0);
    check_body(&session, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a "
                         "\\\"b\\\"\\nc\"}],\"max_tokens\":16" END);
    for (int i = 0; i < 100; i++)
        chat_session_add(&session, i % 2 == 0, "x", 1);
    chat_session_clear(&session);
    chat_session_drop(&session);
    check_body(&session, "{\"model\":\"m\",\"messages\":[],\"max_tokens\":16" END);
    chat_session_finish(&session);
}

static void check_refused(const char *name, const char *value, const char *said) {
    struct chat_session session = {0};
    struct error err;
    assert_int_equal(chat_session_set(&session, name, value, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, said));
    check_body(&session, "{\"model\":\"m\",\"messages\":[]" END);
}

static void test_settings_are_bounded(void **state) {
    check_refused("nothing", "1", "the settings are temperature, top_p");
    check_refused("temperature", "2.1", "a number of 0 to 2 or default, not 2.1");
    check_refused("temperature", "-0.1", "0 to 2");
    check_refused("temperature", "", "0 to 2");
    check_refused("temperature", "1x", "0 to 2");
    check_refused("temperature", "nan", "0 to 2");
    check_refused("mirostat", "3", "a whole number of 0 to 2");
    check_refused("mirostat", "1.5", "a whole number");
    check_refused("dry_base", "0.9", "a number of 1 to 10");
    check_refused("nothing", "1", "typical_p, xtc_probability, xtc_threshold, dynatemp_range");
    check_refused("nothing", "1", "dry_penalty_last_n, max_tokens, seed");
    check_refused("max_tokens", "0", "a whole number of 1 to 1000000000");
    check_refused("max_tokens", "1.5", "a whole number");
    check_refused("seed", "9007199254740992", "0 to 9007199254740991");
}

static void test_file(void **state) {
    struct chat_session session = {0};
    struct error err;
    struct stat status;
    char folder[] = "/tmp/quire-session-XXXXXX", path[64], text[256] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    chat_session_add(&session, false, "hi", 2);
    assert_int_equal(chat_session_save(&session, "m", path, &err), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    FILE *file = fopen(path, "r");
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    assert_string_equal(
        text, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n");
    assert_int_equal(chat_session_save(&session, "m", path, &err),
                     -1); /* one that is there stays */
    assert_non_null(strstr(err.message, "File exists"));
    chat_session_finish(&session);
    unlink(path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_settings_are_bounded),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
