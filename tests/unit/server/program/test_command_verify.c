/* Where the SHA-256 of a file is searched, and in which order. */
#include "server/program/command_verify.h"

#include "tests/unit/temporary_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#define HEX(pair) pair pair pair pair pair pair pair pair
#define DIGEST(pair) HEX(pair) HEX(pair) HEX(pair) HEX(pair)

static struct temporary_folder folder;

static int make_folder(void **state) {
    temporary_folder_make(&folder);
    temporary_write(&folder, "m.gguf", "weights", 7);
    return 0;
}

static int remove_folder(void **state) {
    temporary_folder_remove(&folder);
    return 0;
}

static void write_text(const char *name, const char *text) {
    temporary_write(&folder, name, text, strlen(text));
}

/* The digest's first byte, 0 where none is known, -1 on an error. */
static int find(const char *name, const char *source) {
    struct checksum checksum;
    struct error err = {0};
    char path[600];
    snprintf(path, sizeof(path), "%s", temporary_file(&folder, name));
    int found = command_verify_checksum_find(path, &checksum, &err);
    if (found < 0)
        assert_non_null(strstr(err.message, source));
    if (found <= 0)
        return found;
    for (int i = 1; i < CHECKSUM_BYTES; i++)
        assert_int_equal(checksum.digest[i], checksum.digest[0]);
    assert_non_null(strstr(checksum.source, source));
    return checksum.digest[0];
}

static void test_nobody_tells(void **state) {
    assert_int_equal(find("m.gguf", ""), 0);
    write_text("SHA256SUMS", DIGEST("11") "  other.gguf\n" DIGEST("22") "  m.gguf.bak\n");
    assert_int_equal(find("m.gguf", ""), 0);
}

static void test_list_beside_the_file(void **state) {
    write_text("SHA256SUMS", "# a remark\n" DIGEST("11") "  other\n" DIGEST("2a") "  m.gguf\n");
    assert_int_equal(find("m.gguf", "SHA256SUMS"), 0x2a);
    write_text("SHA256SUMS", DIGEST("3B") " *./m.gguf\r\n");
    assert_int_equal(find("m.gguf", "SHA256SUMS"), 0x3b);
    /* No digest, one that is too long, and none of ours. */
    write_text("SHA256SUMS", "11  m.gguf\n" DIGEST("44") "4  m.gguf\n" DIGEST("4x") "  m.gguf");
    assert_int_equal(find("m.gguf", ""), 0);
}

static void test_own_list_comes_first(void **state) {
    write_text("SHA256SUMS", DIGEST("11") "  m.gguf\n");
    write_text("m.gguf.sha256", DIGEST("55") "\n");
    assert_int_equal(find("m.gguf", "m.gguf.sha256"), 0x55);
    write_text("m.gguf.sha256", DIGEST("66") "  built/as-another-name.gguf\n");
    assert_int_equal(find("m.gguf", "m.gguf.sha256"), 0x66);
    write_text("m.gguf.sha256", "d41d8cd98f00b204e9800998ecf8427e  m.gguf\n");
    assert_int_equal(find("m.gguf", "m.gguf.sha256: does not begin with a SHA-256"), -1);
}

static void test_names_of_stores(void **state) {
    temporary_write(&folder, DIGEST("7c"), "weights", 7);
    temporary_write(&folder, "sha256-" DIGEST("8d"), "weights", 7);
    temporary_write(&folder, DIGEST("9e") "0", "weights", 7);
    char link[600];
    snprintf(link, sizeof(link), "%s", temporary_file(&folder, "model.safetensors"));
    assert_int_equal(symlink(DIGEST("7c"), link), 0);
    assert_int_equal(find("model.safetensors", "the name of the file"), 0x7c);
    assert_int_equal(find("sha256-" DIGEST("8d"), "the name of the file"), 0x8d);
    assert_int_equal(find(DIGEST("9e") "0", ""), 0);
}

static void test_record_of_a_download(void **state) {
    static const char *const parents[] = {".cache", ".cache/huggingface",
                                          ".cache/huggingface/download"};
    static const char record[] = ".cache/huggingface/download/m.gguf.metadata";
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkdir(temporary_file(&folder, parents[i]), 0700), 0);
    write_text(record, "0123456789abcdef0123456789abcdef01234567\n" DIGEST("ab") "\n17.5\n");
    int found = find("m.gguf", "m.gguf.metadata");
    write_text(record, "0123456789abcdef0123456789abcdef01234567\n"
                       "89abcdef0123456789abcdef0123456789abcdef\n17.5\n");
    int of_git = find("m.gguf", "");
    unlink(temporary_file(&folder, record));
    for (int i = 2; i >= 0; i--)
        rmdir(temporary_file(&folder, parents[i]));
    assert_int_equal(found, 0xab);
    assert_int_equal(of_git, 0);
}

static void test_print(void **state) {
    unsigned char digest[CHECKSUM_BYTES] = {0x00, 0x9f, 0xa0};
    char text[CHECKSUM_HEX_BYTES];
    command_verify_checksum_print(digest, text);
    assert_int_equal(strlen(text), 64);
    assert_int_equal(strncmp(text, "009fa000", 8), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_tells, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_list_beside_the_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_own_list_comes_first, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_names_of_stores, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_record_of_a_download, make_folder, remove_folder),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
