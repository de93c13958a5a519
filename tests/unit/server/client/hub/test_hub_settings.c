/* The environment, by the rules of Python's huggingface_hub. */
#include "server/client/hub/hub_settings.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct temporary_folder folder;
static struct hub_settings settings;

static int clear(void **state) {
    static const char *const names[] = {
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_TOKEN_PATH",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "HUGGINGFACE_HUB_CACHE",
        "XDG_CACHE_HOME",
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_ETAG_TIMEOUT",
        "HF_HUB_DOWNLOAD_TIMEOUT",
        "SSL_CERT_FILE",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    temporary_folder_make(&folder);
    setenv("HOME", temporary_file(&folder, "home"), 1);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(&folder);
    return 0;
}

static void read_settings(void) {
    struct error err = {0};
    assert_int_equal(hub_settings_read(&settings, &err), 0);
}

static void refuse(const char *name, const char *value) {
    struct error err = {0};
    setenv(name, value, 1);
    assert_int_equal(hub_settings_read(&settings, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, name));
    unsetenv(name);
}

static void test_defaults(void **state) {
    read_settings();
    assert_string_equal(settings.endpoint, "https://huggingface.co");
    assert_string_equal(settings.token, "");
    assert_string_equal(settings.cache, temporary_file(&folder, "home/.cache/huggingface/hub"));
    assert_false(settings.is_offline);
    assert_int_equal(settings.connect_s, 10);
    assert_int_equal(settings.stall_s, 10);
}

static void check_cache(const char *path) {
    read_settings();
    assert_string_equal(settings.cache, path);
}

static void test_where_the_cache_is(void **state) {
    setenv("XDG_CACHE_HOME", "/x", 1);
    check_cache("/x/huggingface/hub");
    setenv("HF_HOME", "~/h", 1);
    check_cache(temporary_file(&folder, "home/h/hub"));
    setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
    check_cache("/old");
    setenv("HF_HUB_CACHE", "/a/${QUIRE_HUB_TEST}/$QUIRE_HUB_TEST$", 1);
    setenv("QUIRE_HUB_TEST", "b", 1);
    check_cache("/a/b/b$");
    setenv("HF_HUB_CACHE", "/a/$QUIRE_HUB_UNSET/${QUIRE_HUB_UNSET}/${open", 1);
    check_cache("/a/$QUIRE_HUB_UNSET/${QUIRE_HUB_UNSET}/${open");
    setenv("HF_HUB_CACHE", "", 1);
    check_cache("/old");
}

static void test_tokens(void **state) {
    temporary_write(&folder, "token", " from-file\r\n", 12);
    setenv("HF_HOME", folder.path, 1);
    read_settings();
    assert_string_equal(settings.token, "from-file");
    setenv("HUGGING_FACE_HUB_TOKEN", "older", 1);
    read_settings();
    assert_string_equal(settings.token, "older");
    setenv("HF_TOKEN", " newer ", 1);
    read_settings();
    assert_string_equal(settings.token, "newer");
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
    read_settings();
    assert_string_equal(settings.token, "");
}

static void test_offline(void **state) {
    static const char *const yes[] = {"1", "on", "Yes", "TRUE"};
    static const char *const no[] = {"0", "false", "off", "2", ""};
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        setenv("HF_HUB_OFFLINE", yes[i], 1);
        read_settings();
        assert_true(settings.is_offline);
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        setenv("HF_HUB_OFFLINE", no[i], 1);
        read_settings();
        assert_false(settings.is_offline);
    }
    setenv("TRANSFORMERS_OFFLINE", "1", 1);
    read_settings();
    assert_true(settings.is_offline); /* the other one is empty */
}

static void test_the_rest(void **state) {
    setenv("HF_ENDPOINT", "http://hub:8080/mirror//", 1);
    setenv("HF_HUB_DOWNLOAD_TIMEOUT", "30", 1);
    setenv("HF_HUB_ETAG_TIMEOUT", "0", 1);
    read_settings();
    assert_string_equal(settings.endpoint, "http://hub:8080/mirror");
    assert_int_equal(settings.stall_s, 30);
    assert_int_equal(settings.connect_s, 10);
}

static void test_what_makes_no_sense(void **state) {
    char text[5000];
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    refuse("HF_ENDPOINT", "hub");
    refuse("HF_ENDPOINT", "ftp://hub");
    refuse("HF_ENDPOINT", "https://user:word@hub");
    refuse("HF_ENDPOINT", "https://hub?x");
    refuse("HF_ENDPOINT", "https://h ub");
    refuse("HF_TOKEN", "a b");
    refuse("HF_TOKEN", "a\r\nHost: b");
    refuse("HF_TOKEN", text);
    refuse("HF_HUB_CACHE", text);
    refuse("HF_HUB_ETAG_TIMEOUT", "soon");
    refuse("HF_HUB_DOWNLOAD_TIMEOUT", "-1");
    refuse("SSL_CERT_FILE", "/nothing");
}

#define CLEARED(test) cmocka_unit_test_setup_teardown(test, clear, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLEARED(test_defaults), CLEARED(test_where_the_cache_is), CLEARED(test_tokens),
        CLEARED(test_offline),  CLEARED(test_the_rest),           CLEARED(test_what_makes_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
