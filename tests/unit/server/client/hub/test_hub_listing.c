/* A hub's list of files, whole and broken. */
#include "server/client/hub/hub_listing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static int parse(const char *json, struct hub_listing *out, struct error *err) {
    return hub_listing_parse(json, strlen(json), out, err);
}

static void test_what_it_says(void **state) {
    struct hub_listing listing;
    struct error err = {0};
    assert_int_equal(parse("{\"sha\": \"" COMMIT "\", \"gated\": false, \"siblings\": ["
                           "{\"rfilename\": \"a.json\", \"size\": 7, \"blobId\": \"" COMMIT "\"},"
                           "{\"rfilename\": \"sub/b.gguf\", \"size\": 9, \"blobId\": \"" COMMIT
                           "\", \"lfs\": {\"sha256\": \"" SHA256
                           "\", \"size\": 9, \"pointerSize\": 134}},"
                           "{\"rfilename\": \"c\"}]}",
                           &listing, &err),
                     0);
    assert_string_equal(listing.commit, COMMIT);
    assert_int_equal(listing.num_files, 3);
    assert_int_equal(hub_listing_find(&listing, "a.json")->bytes, 7);
    assert_string_equal(hub_listing_find(&listing, "a.json")->hash, COMMIT);
    assert_string_equal(hub_listing_find(&listing, "sub/b.gguf")->hash, SHA256);
    assert_int_equal(hub_listing_find(&listing, "c")->bytes, -1);
    assert_string_equal(hub_listing_find(&listing, "c")->hash, "");
    assert_null(hub_listing_find(&listing, "d"));
    hub_listing_finish(&listing);
}

#define WITH(siblings) "{\"sha\": \"" COMMIT "\", \"siblings\": " siblings "}"

static void test_what_makes_no_sense(void **state) {
    static const struct {
        const char *json, *word;
    } cases[] = {
        {"", "JSON"},
        {"[]", "JSON"},
        {"{}", "sha"},
        {"{\"sha\": \"main\", \"siblings\": []}", "sha"},
        {"{\"sha\": 7, \"siblings\": []}", "sha"},
        {"{\"sha\": \"" COMMIT "\"}", "siblings"},
        {WITH("{}"), "siblings"},
        {WITH("[{}]"), "rfilename"},
        {WITH("[7]"), "rfilename"},
        {WITH("[{\"rfilename\": \"../a\"}]"), "../a"},
        {WITH("[{\"rfilename\": \"/a\"}]"), "/a"},
        {WITH("[{\"rfilename\": \"\"}]"), "not the name"},
        {WITH("[{\"rfilename\": \"a\", \"size\": -1}]"), "size"},
        {WITH("[{\"rfilename\": \"a\", \"size\": 1e30}]"), "size"},
        {WITH("[{\"rfilename\": \"a\", \"size\": \"7\"}]"), "size"},
        {WITH("[{\"rfilename\": \"a\", \"blobId\": \"xyz\"}]"), "blobId"},
        {WITH("[{\"rfilename\": \"a\", \"lfs\": {\"sha256\": \"" COMMIT "\"}}]"), "lfs.sha256"},
        {WITH("[{\"rfilename\": \"a\", \"lfs\": {\"size\": 0.5}}]"), "size"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hub_listing listing;
        struct error err = {0};
        assert_int_equal(parse(cases[i].json, &listing, &err), -1);
        assert_int_equal(err.code, ERROR_SYNTAX);
        assert_non_null(strstr(err.message, cases[i].word));
        assert_null(listing.files);
    }
}

static void test_files_are_bounded(void **state) {
    struct hub_listing listing = {0};
    struct error err = {0};
    for (int i = 0; i < HUB_LISTING_MAX_FILES; i++)
        assert_int_equal(hub_listing_add(&listing, "a", 1, "", &err), 0);
    assert_int_equal(hub_listing_add(&listing, "a", 1, "", &err), -1);
    assert_int_equal(err.code, ERROR_SYNTAX);
    hub_listing_finish(&listing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_says),
        cmocka_unit_test(test_what_makes_no_sense),
        cmocka_unit_test(test_files_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
