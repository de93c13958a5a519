/* Files of packed weights: what was written is mapped, and nothing else ever is. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "models/weights/packed_file.h"

#include "tests/unit/temporary_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#define NAME "a" PACKED_FILE_SUFFIX
#define THREADS 3

static const uint8_t key[CONTENT_HASH_BYTES] = "the key", other_key[CONTENT_HASH_BYTES] = "another";
static const atomic_bool never;

/* 9 MiB, so that the body has several chunks; one is empty, and one crosses two borders. */
static const size_t sizes[] = {3, 64, 0, 1000, (9 << 20) - 5000, 4000};
enum { NUM_SPANS = sizeof(sizes) / sizeof(sizes[0]) };

struct content {
    struct packed_bytes spans[NUM_SPANS];
};

static void make_content(struct content *content) {
    uint32_t x = 1;
    for (int i = 0; i < NUM_SPANS; i++) {
        uint8_t *data = malloc(sizes[i] + 1);
        assert_non_null(data);
        for (size_t k = 0; k < sizes[i]; k++) {
            x = x * 1664525 + 1013904223;
            data[k] = (uint8_t)(x >> 24);
        }
        content->spans[i] = (struct packed_bytes){data, sizes[i]};
    }
}

static void free_content(struct content *content) {
    for (int i = 0; i < NUM_SPANS; i++)
        free(content->spans[i].data);
}

static void write_file(const char *path, const struct content *content, size_t num_spans) {
    struct error err = {0};
    bool is_written;
    if (packed_file_write(path, key, content->spans, num_spans, &never, &is_written, &err) != 0)
        fail_msg("%s", err.message);
    assert_true(is_written);
}

static enum packed_file_state state_of(const char *path) {
    struct packed_file file = {0};
    struct error err = {0};
    enum packed_file_state state = packed_file_map(path, key, THREADS, &file, &err);
    assert_int_equal(err.code, state == PACKED_FILE_UNUSABLE ? ERROR_MODEL : ERROR_NONE);
    assert_true((state == PACKED_FILE_VALID) == (file.data != NULL));
    packed_file_unmap(&file);
    return state;
}

static int num_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void test_what_was_written_is_mapped(void **state) {
    struct temporary_folder folder;
    struct content content;
    struct packed_file file;
    struct stat stat_of;
    temporary_folder_make(&folder);
    make_content(&content);
    const char *path = temporary_file(&folder, NAME);
    assert_int_equal(state_of(path), PACKED_FILE_MISSING);
    for (int round = 0; round < 2; round++)
        write_file(path, &content, NUM_SPANS);
    assert_int_equal(num_entries(folder.path), 1);
    assert_int_equal(stat(path, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 07777, 0600);
    assert_int_equal(stat_of.st_size, packed_file_bytes(content.spans, NUM_SPANS));
    assert_int_equal(packed_file_map(path, key, THREADS, &file, NULL), PACKED_FILE_VALID);
    assert_int_equal(file.num_spans, NUM_SPANS);
    unlink(path); /* a mapping outlives its name */
    for (size_t i = 0; i < NUM_SPANS; i++) {
        struct packed_bytes span = packed_file_span(&file, i);
        assert_int_equal(span.bytes, sizes[i]);
        assert_int_equal((uintptr_t)span.data % PACKED_ALIGNMENT, 0);
        assert_memory_equal(span.data, content.spans[i].data, sizes[i]);
    }
    packed_file_unmap(&file);
    packed_file_unmap(&file);
    free_content(&content);
    temporary_folder_remove(&folder);
}

static void flip(const char *path, off_t at) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1 << (at % 8);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Each bit of each field of the head and the tables, and every 50000th byte of a large body. */
static void test_a_flipped_bit_is_noticed(void **state) {
    struct temporary_folder folder;
    struct content content;
    temporary_folder_make(&folder);
    make_content(&content);
    const char *path = temporary_file(&folder, NAME);
    write_file(path, &content, NUM_SPANS);
    const off_t tables = 56 + 16 * NUM_SPANS + 8 * 3, body = 4096;
    off_t size = (off_t)packed_file_bytes(content.spans, NUM_SPANS);
    for (off_t at = 0; at < size; at += at + 1 < tables ? 1 : at < body ? body - at : 50000) {
        flip(path, at);
        if (state_of(path) != PACKED_FILE_UNUSABLE)
            fail_msg("a bit of byte %d was flipped", (int)at);
        flip(path, at);
    }
    flip(path, size - 1);
    assert_int_equal(state_of(path), PACKED_FILE_UNUSABLE);
    flip(path, size - 1);
    assert_int_equal(state_of(path), PACKED_FILE_VALID);
    free_content(&content);
    temporary_folder_remove(&folder);
}

static void test_another_size_is_noticed(void **state) {
    struct temporary_folder folder;
    struct content content;
    temporary_folder_make(&folder);
    make_content(&content);
    const char *path = temporary_file(&folder, NAME);
    off_t size = (off_t)packed_file_bytes(content.spans, NUM_SPANS);
    const off_t others[] = {0,       1,       63,          64,       100,      4096,       4097,
                            1 << 20, 4 << 20, size - 4096, size - 1, size + 1, size + 4096};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        write_file(path, &content, NUM_SPANS);
        assert_int_equal(truncate(path, others[i]), 0);
        assert_int_equal(state_of(path), PACKED_FILE_UNUSABLE);
    }
    free_content(&content);
    temporary_folder_remove(&folder);
}

static void test_files_of_others_are_refused(void **state) {
    struct temporary_folder folder;
    struct content content;
    struct packed_file file;
    struct error err;
    char path[512];
    temporary_folder_make(&folder);
    make_content(&content);
    snprintf(path, sizeof(path), "%s", temporary_file(&folder, NAME));
    write_file(path, &content, 4);
    assert_int_equal(packed_file_map(path, other_key, 1, &file, &err), PACKED_FILE_UNUSABLE);
    assert_int_equal(chmod(path, 0620), 0);
    assert_int_equal(state_of(path), PACKED_FILE_UNUSABLE);
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(state_of(path), PACKED_FILE_VALID);
    const char *link_path = temporary_file(&folder, "link");
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(state_of(link_path), PACKED_FILE_UNUSABLE);
    assert_int_equal(state_of(folder.path), PACKED_FILE_UNUSABLE);
    const char *fifo = temporary_file(&folder, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(state_of(fifo), PACKED_FILE_UNUSABLE);
    free_content(&content);
    temporary_folder_remove(&folder);
}

static void test_a_failed_write_leaves_nothing(void **state) {
    struct temporary_folder folder;
    struct content content;
    struct rlimit unlimited, limit;
    struct error err = {0};
    bool is_written = true;
    const atomic_bool stop = true;
    temporary_folder_make(&folder);
    make_content(&content);
    const char *path = temporary_file(&folder, "missing/" NAME);
    assert_int_equal(
        packed_file_write(path, key, content.spans, NUM_SPANS, &never, &is_written, &err), -1);
    assert_int_equal(err.code, ERROR_IO);
    assert_false(is_written);

    path = temporary_file(&folder, NAME);
    assert_int_equal(
        packed_file_write(path, key, content.spans, NUM_SPANS, &stop, &is_written, &err), 0);
    assert_false(is_written);

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    limit = (struct rlimit){1 << 20, unlimited.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int status = packed_file_write(path, key, content.spans, NUM_SPANS, &never, &is_written, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    assert_int_equal(status, -1);
    assert_false(is_written);
    assert_int_equal(num_entries(folder.path), 0);
    free_content(&content);
    temporary_folder_remove(&folder);
}

/* What a crash has left is written anew; what another process writes is left to it. */
static void test_one_process_writes(void **state) {
    struct temporary_folder folder;
    struct content content;
    struct error err = {0};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool is_written = true;
    char path[512];
    temporary_folder_make(&folder);
    make_content(&content);
    temporary_write(&folder, NAME ".tmp", "half of it", 10);
    int fd = open(folder.file, O_RDWR);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    snprintf(path, sizeof(path), "%s", temporary_file(&folder, NAME));
    assert_int_equal(
        packed_file_write(path, key, content.spans, NUM_SPANS, &never, &is_written, &err), 0);
    assert_false(is_written);
    assert_int_equal(futimens(fd, (struct timespec[2]){{1000, 0}, {1000, 0}}), 0);
    packed_file_prune(folder.path, "", 0, 0);
    assert_int_equal(num_entries(folder.path), 1);
    close(fd);
    write_file(path, &content, NUM_SPANS);
    assert_int_equal(state_of(path), PACKED_FILE_VALID);
    assert_int_equal(num_entries(folder.path), 1);
    free_content(&content);
    temporary_folder_remove(&folder);
}

static bool is_there(struct temporary_folder *folder, const char *name) {
    return access(temporary_file(folder, name), F_OK) == 0;
}

static void test_the_least_recently_used_are_deleted(void **state) {
    static const char *const names[] = {"a.packed", "b.packed", "c.packed", "d.packed"};
    static const char data[1000];
    struct temporary_folder folder;
    temporary_folder_make(&folder);
    for (int i = 0; i < 4; i++) {
        const char *path = temporary_write(&folder, names[i], data, sizeof(data));
        const struct timespec times[2] = {{1000 + i, 0}, {1000 + i, 5}};
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    temporary_write(&folder, "notes.txt", data, sizeof(data));
    const char *left = temporary_write(&folder, "e.packed.tmp", data, sizeof(data));
    packed_file_prune(folder.path, "a.packed", 1000, 4000);
    assert_int_equal(num_entries(folder.path), 6); /* it may be one that was just begun */
    assert_int_equal(utimensat(AT_FDCWD, left, (struct timespec[2]){{1000, 0}, {1000, 0}}, 0), 0);
    packed_file_prune(folder.path, "a.packed", 1000, 4000);
    assert_int_equal(num_entries(folder.path), 5); /* what a crash has left is gone */
    packed_file_prune(folder.path, "a.packed", 1000, 3999);
    assert_false(is_there(&folder, "b.packed"));
    packed_file_prune(folder.path, "a.packed", 1000, 1000);
    assert_true(is_there(&folder, "a.packed") && is_there(&folder, "notes.txt"));
    assert_int_equal(num_entries(folder.path), 2);
    packed_file_prune("/nowhere", "", 0, 0);
    temporary_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_mapped),
        cmocka_unit_test(test_a_flipped_bit_is_noticed),
        cmocka_unit_test(test_another_size_is_noticed),
        cmocka_unit_test(test_files_of_others_are_refused),
        cmocka_unit_test(test_a_failed_write_leaves_nothing),
        cmocka_unit_test(test_one_process_writes),
        cmocka_unit_test(test_the_least_recently_used_are_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
