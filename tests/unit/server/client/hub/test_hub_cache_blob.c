/* A content in the cache: its lock, what an earlier run left, its hash, and the links to it. */
#include "server/client/hub/hub_cache.h"

#include "tests/unit/temporary_files.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
/* printf hello | sha256sum; printf hello | git hash-object --stdin */
#define HELLO_SHA256 "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
#define HELLO_GIT "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"

static struct temporary_folder folder;
static struct hub_cache cache;

static int make_cache(void **state) {
    struct error err = {0};
    temporary_folder_make(&folder);
    assert_int_equal(hub_cache_init(&cache, temporary_file(&folder, "hub"), "org/name", &err), 0);
    assert_int_equal(hub_cache_prepare(&cache, &err), 0);
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
    return remove(path);
}

static int remove_cache(void **state) {
    return nftw(folder.path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void blob_path(const char *etag, const char *ending, char out[static PATH_MAX]) {
    snprintf(out, PATH_MAX, "%.3000s/blobs/%s%s", cache.folder, etag, ending);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void open_blob(struct hub_blob *blob, const char *hash, int64_t bytes) {
    struct error err = {0};
    hub_blob_init(blob, &cache, hash[0] != '\0' ? hash : "any-etag", hash, bytes);
    assert_int_equal(hub_blob_lock(blob, &err), 1);
    assert_int_equal(hub_blob_open(blob, &err), 0);
    while (hub_blob_hash_kept(blob, &err) == 0)
        ;
}

static void test_content_gets_its_name(void **state) {
    static const char *const hashes[] = {HELLO_SHA256, HELLO_GIT, ""};
    for (size_t i = 0; i < 3; i++) {
        struct hub_blob blob;
        struct error err = {0};
        open_blob(&blob, hashes[i], 5);
        assert_false(hub_blob_is_there(&blob));
        assert_int_equal(hub_blob_append(&blob, "hel", 3, &err), 0);
        assert_int_equal(hub_blob_append(&blob, "lo", 2, &err), 0);
        assert_int_equal(hub_blob_append(&blob, "!", 1, &err), 1);
        assert_int_equal(hub_blob_complete(&blob, &err), HUB_BLOB_IS_DONE);
        assert_true(hub_blob_is_there(&blob));
        assert_int_equal(hub_blob_partial_bytes(&blob), 0);
        hub_blob_finish(&blob);
    }
}

static void test_another_content_is_removed(void **state) {
    struct hub_blob blob;
    struct error err = {0};
    open_blob(&blob, HELLO_SHA256, 5);
    assert_int_equal(hub_blob_append(&blob, "jello", 5, &err), 0);
    assert_int_equal(hub_blob_complete(&blob, &err), HUB_BLOB_IS_BAD);
    assert_false(hub_blob_is_there(&blob));
    assert_int_equal(hub_blob_partial_bytes(&blob), 0);
    hub_blob_finish(&blob);
}

static void test_what_an_earlier_run_left(void **state) {
    struct hub_blob blob;
    struct error err = {0};
    char path[PATH_MAX];
    blob_path(HELLO_GIT, ".incomplete", path);
    write_file(path, "hel");
    open_blob(&blob, HELLO_GIT, 5);
    assert_int_equal(blob.have, 3);
    assert_int_equal(hub_blob_append(&blob, "lo", 2, &err), 0);
    assert_int_equal(hub_blob_complete(&blob, &err), HUB_BLOB_IS_DONE);
    hub_blob_finish(&blob);
}

static void test_too_much_was_left(void **state) {
    struct hub_blob blob;
    char path[PATH_MAX];
    blob_path(HELLO_GIT, ".incomplete", path);
    write_file(path, "hello!");
    open_blob(&blob, HELLO_GIT, 5);
    assert_int_equal(blob.have, 0);
    hub_blob_finish(&blob);
}

static void test_a_new_beginning(void **state) {
    struct hub_blob blob;
    struct error err = {0};
    open_blob(&blob, HELLO_SHA256, 5);
    assert_int_equal(hub_blob_append(&blob, "junk", 4, &err), 0);
    assert_int_equal(hub_blob_restart(&blob, &err), 0);
    assert_int_equal(hub_blob_append(&blob, "hello", 5, &err), 0);
    assert_int_equal(hub_blob_complete(&blob, &err), HUB_BLOB_IS_DONE);
    hub_blob_finish(&blob);
}

static void test_one_at_a_time(void **state) {
    struct hub_blob first, second;
    struct error err = {0};
    open_blob(&first, HELLO_SHA256, 5);
    hub_blob_init(&second, &cache, HELLO_SHA256, HELLO_SHA256, 5);
    assert_int_equal(hub_blob_lock(&second, &err), 0);
    hub_blob_finish(&first);
    assert_int_equal(hub_blob_lock(&second, &err), 1);
    hub_blob_finish(&second);
}

static void test_a_blob_of_another_size_is_not_there(void **state) {
    struct hub_blob blob;
    char path[PATH_MAX];
    blob_path(HELLO_SHA256, "", path);
    write_file(path, "hell");
    hub_blob_init(&blob, &cache, HELLO_SHA256, HELLO_SHA256, 5);
    assert_false(hub_blob_is_there(&blob));
}

static void test_etags(void **state) {
    static const char *const bad[] = {"", ".", "..", "a/b", "a b", "a\n", ".hidden"};
    char text[HUB_ETAG_BYTES + 1];
    assert_true(hub_blob_is_etag(HELLO_SHA256));
    assert_true(hub_blob_is_etag("a-b_c.1"));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(hub_blob_is_etag(bad[i]));
    memset(text, 'a', sizeof(text));
    text[HUB_ETAG_BYTES] = '\0';
    assert_false(hub_blob_is_etag(text));
}

static void test_links_and_lists(void **state) {
    struct hub_listing listing;
    struct error err = {0};
    char path[PATH_MAX];
    blob_path("etag", "", path);
    write_file(path, "hello");
    assert_int_equal(hub_cache_link(&cache, COMMIT, "b", "etag", &err), 0);
    assert_int_equal(hub_cache_link(&cache, COMMIT, "b", "etag", &err), 0);
    assert_int_equal(hub_cache_link(&cache, COMMIT, "a/a/a", "etag", &err), 0);
    assert_int_equal(hub_cache_link(&cache, COMMIT, "dangling", "nothing", &err), 0);
    assert_int_equal(hub_cache_list(&cache, COMMIT, &listing, &err), 0);
    assert_int_equal(listing.num_files, 2);
    assert_string_equal(listing.files[0].name, "a/a/a");
    assert_int_equal(listing.files[1].bytes, 5);
    hub_listing_finish(&listing);
}

static void test_revisions(void **state) {
    char commit[HUB_COMMIT_BYTES], path[PATH_MAX];
    assert_false(hub_cache_commit(&cache, "main", commit));
    hub_cache_set_commit(&cache, "refs/pr/1", COMMIT);
    assert_true(hub_cache_commit(&cache, "refs/pr/1", commit));
    assert_string_equal(commit, COMMIT);
    assert_true(hub_cache_commit(&cache, COMMIT, commit));
    snprintf(path, sizeof(path), "%.3000s/refs/refs/pr/1", cache.folder);
    write_file(path, "../../../../etc");
    assert_false(hub_cache_commit(&cache, "refs/pr/1", commit));
    write_file(path, "");
    assert_false(hub_cache_commit(&cache, "refs/pr/1", commit));
}

static void test_absent_files(void **state) {
    assert_false(hub_cache_is_absent(&cache, COMMIT, "a/b.json"));
    hub_cache_set_absent(&cache, COMMIT, "a/b.json");
    assert_true(hub_cache_is_absent(&cache, COMMIT, "a/b.json"));
}

static void test_a_cache_below_a_file(void **state) {
    struct hub_cache other;
    struct error err = {0};
    char root[PATH_MAX];
    temporary_write(&folder, "file", "x", 1);
    snprintf(root, sizeof(root), "%s/hub", temporary_file(&folder, "file"));
    assert_int_equal(hub_cache_init(&other, root, "org/name", &err), 0);
    assert_int_equal(hub_cache_prepare(&other, &err), -1);
    assert_int_equal(err.code, ERROR_IO);
    memset(root, 'x', sizeof(root) - 1);
    root[sizeof(root) - 1] = '\0';
    assert_int_equal(hub_cache_init(&other, root, "org/name", &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
}

#define IN_CACHE(test) cmocka_unit_test_setup_teardown(test, make_cache, remove_cache)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_CACHE(test_content_gets_its_name),
        IN_CACHE(test_another_content_is_removed),
        IN_CACHE(test_what_an_earlier_run_left),
        IN_CACHE(test_too_much_was_left),
        IN_CACHE(test_a_new_beginning),
        IN_CACHE(test_one_at_a_time),
        IN_CACHE(test_a_blob_of_another_size_is_not_there),
        cmocka_unit_test(test_etags),
        IN_CACHE(test_links_and_lists),
        IN_CACHE(test_revisions),
        IN_CACHE(test_absent_files),
        IN_CACHE(test_a_cache_below_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
