/* A folder that several stores use at once, as on several machines: what one has written the others
 * find, and whatever happens to the files, what is read is right or a miss. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "tests/unit/engine/kv/kv_store_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define FILE_BYTES (4096 + STORE_SLOT_BYTES)
#define NUM_BLOCKS 16 /* that fit */
#define NUM_HISTORIES 12

static int set_up(void **state) {
    static struct store_fixture fixture;
    store_set_up(&fixture, 1);
    fixture.config.max_bytes = NUM_BLOCKS * FILE_BYTES;
    fixture.config.is_shared = true;
    *state = &fixture;
    return store_open(&fixture);
}

static int tear_down(void **state) {
    store_tear_down(*state);
    return 0;
}

static void reopen(struct store_fixture *fixture) {
    store_close(fixture);
    assert_int_equal(store_open(fixture), 0);
}

static struct kv_store_counts counts_of(struct kv_store *store) {
    struct kv_store_counts counts;
    kv_store_get_counts(store, &counts);
    return counts;
}

static struct kv_store *open_other(const struct kv_store_config *config) {
    struct kv_store *store = NULL;
    struct error err;
    assert_int_equal(kv_store_open(config, &store, &err), 0);
    return store;
}

/* Waits until a store has a block, or has it no more. */
static bool wait_until(struct kv_store *store, const struct store_block *block, bool is_there) {
    int64_t end_ns = clock_now_ns() + 60 * CLOCK_NS_PER_S;
    while (kv_store_has(store, &block->content) != is_there && clock_now_ns() < end_ns) {
        struct kv_store_done none;
        assert_false(kv_store_next_done(store, &none));
        usleep(1000);
    }
    return kv_store_has(store, &block->content) == is_there;
}

/* Calls the function for each file of a block or of one being written; returns how many. */
static int for_files(struct store_fixture *fixture, void (*call)(const char *path)) {
    int count = 0;
    for (int i = 0; i < 256; i++) {
        char name[8], path[700];
        snprintf(name, sizeof(name), "%02x", (unsigned)i);
        DIR *folder = opendir(store_path(fixture, name));
        struct dirent *entry;
        while (folder != NULL && (entry = readdir(folder)) != NULL) {
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s/%s", fixture->directory, name, entry->d_name);
            if (call != NULL)
                call(path);
            count++;
        }
        if (folder != NULL)
            closedir(folder);
    }
    return count;
}

static void set_age(const char *path, int64_t seconds) {
    const struct timespec times[2] = {{.tv_sec = time(NULL) - seconds},
                                      {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void make_old(const char *path) {
    set_age(path, 86400);
}

static void truncate_file(const char *path) {
    assert_int_equal(truncate(path, 5000), 0);
}

static void flip_bit(const char *path) {
    static int number;
    unsigned char byte;
    int fd = open(path, O_RDWR), at = number++ % 2 == 0 ? 70 : 4096 + 600;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void remove_file(const char *path) {
    assert_int_equal(unlink(path), 0);
}

static void put_chain(struct kv_store *store, int32_t history, struct store_block *blocks,
                      int32_t count) {
    store_make_chain(store, history, 0, blocks, count);
    for (int i = 0; i < count; i++)
        assert_true(store_put(store, &blocks[i]));
}

/* --- Finding --- */

static void test_another_finds_what_one_writes(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block mine[3], theirs[3];
    struct kv_store *other = open_other(&fixture->config);
    assert_true(kv_store_is_owner(fixture->store) && kv_store_is_owner(other));
    assert_memory_equal(kv_store_secret(fixture->store), kv_store_secret(other),
                        sizeof(struct block_key_secret));
    put_chain(fixture->store, 1, mine, 3);
    put_chain(other, 2, theirs, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(wait_until(other, &mine[i], true));
        assert_true(wait_until(fixture->store, &theirs[i], true));
        assert_int_equal(store_get(other, &mine[i]), STORE_RIGHT);
        assert_int_equal(store_get(fixture->store, &theirs[i]), STORE_RIGHT);
    }
    kv_store_close(other);
    reopen(fixture);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_get(fixture->store, &theirs[i]), STORE_RIGHT);
}

/* Both write the same before they know of each other. */
static void test_the_same_block_twice(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3];
    struct kv_store *other = open_other(&fixture->config);
    put_chain(fixture->store, 1, blocks, 3);
    put_chain(other, 1, blocks, 3);
    assert_int_equal(for_files(fixture, NULL), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_get(other, &blocks[i]), STORE_RIGHT);
    kv_store_close(other);
}

static void test_tokens_are_compared(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    put_chain(fixture->store, 1, &block, 1);
    reopen(fixture); /* the index has no tokens now */
    struct store_block other = block;
    other.tokens[0]++;
    other.content.tokens = other.tokens;
    assert_int_equal(store_get(fixture->store, &other), STORE_MISS);
    struct block_content previous = block.content;
    previous.previous.low++;
    assert_false(kv_store_has(fixture->store, &previous));
}

static void test_a_reader_only_reads(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[2];
    struct kv_store_config config = fixture->config;
    put_chain(fixture->store, 1, blocks, 2);
    config.read_only = true;
    for_files(fixture, make_old);
    config.max_bytes = FILE_BYTES; /* it removes nothing */
    struct kv_store *reader = open_other(&config);
    assert_false(kv_store_is_owner(reader));
    assert_int_equal(store_get(reader, &blocks[0]), STORE_RIGHT);
    store_make_chain(reader, 2, 0, blocks, 1);
    assert_false(store_put(reader, &blocks[0]));
    kv_store_close(reader);
    assert_int_equal(for_files(fixture, NULL), 2);
}

/* It is told of them before it has listed the folder; of some that are not there, too. */
static void test_what_another_says_it_has_written(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[4], never;
    struct kv_store *other = open_other(&fixture->config);
    put_chain(fixture->store, 1, blocks, 3);
    store_make_chain(other, 2, 0, &never, 1);
    for (int i = 0; i < 3; i++) {
        kv_store_expect(other, &blocks[i].content);
        kv_store_expect(other, &blocks[i].content);
        assert_true(kv_store_has(other, &blocks[i].content));
        assert_int_equal(store_get(other, &blocks[i]), STORE_RIGHT);
    }
    kv_store_expect(other, &never.content);
    assert_true(kv_store_has(other, &never.content));
    assert_int_equal(store_get(other, &never), STORE_MISS);
    assert_false(kv_store_has(other, &never.content));
    assert_int_equal(counts_of(other).num_damaged, 0);
    kv_store_close(other);
}

/* So that it is not listed again because it has just changed. */
static void make_folder_old(const char *path) {
    char folder[4096];
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
    make_old(folder);
}

/* What is announced and not there takes a place in a full view, for a while. */
static void test_what_nobody_has_written_pushes_nothing_out_for_good(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3], never[3];
    struct kv_store_config config = fixture->config;
    put_chain(fixture->store, 1, blocks, 3);
    for_files(fixture, make_folder_old);
    config.read_only = true;
    config.max_bytes = 3 * FILE_BYTES;
    struct kv_store *reader = open_other(&config);
    store_make_chain(reader, 2, 0, never, 3);
    for (int i = 0; i < 3; i++)
        kv_store_expect(reader, &never[i].content);
    assert_false(kv_store_has(reader, &blocks[2].content));
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_get(reader, &never[i]), STORE_MISS);
    for (int i = 0; i < 3; i++)
        assert_true(wait_until(reader, &blocks[i], true));
    kv_store_close(reader);
}

/* --- Identities --- */

static void test_stores_with_the_same_blocks_have_one_name(void **state) {
    struct store_fixture *fixture = *state;
    struct kv_store_config config = fixture->config;
    char name[KV_STORE_NAME_BYTES], others[2][KV_STORE_NAME_BYTES];
    kv_store_name(fixture->store, name);
    for (int i = 0; i < 2; i++) {
        struct kv_store *other = open_other(&config);
        kv_store_name(other, others[i]);
        kv_store_close(other);
        config.identity[31]++;
    }
    assert_string_equal(others[0], name);
    assert_string_not_equal(others[1], name);
    assert_int_equal(strlen(name), KV_STORE_NAME_BYTES - 2);
}

static void test_identities_share_a_folder(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    for (int i = 0; i < 2; i++) {
        struct kv_store_config config = fixture->config;
        config.identity[i * 7]++;
        struct kv_store *other = open_other(&config);
        put_chain(fixture->store, i, &block, 1);
        assert_int_equal(store_get(other, &block), STORE_MISS);
        put_chain(other, i, &block, 1);
        assert_int_equal(for_files(fixture, NULL), 2 * i + 2);
        kv_store_close(other);
        reopen(fixture);
        assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
    }
}

/* Of another identity, old ones leave first; new ones stay. */
static void test_what_is_old_leaves_of_all_identities(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block old[NUM_BLOCKS - 2], new[NUM_BLOCKS / 2];
    struct kv_store_config config = fixture->config;
    put_chain(fixture->store, 1, old, NUM_BLOCKS - 2);
    store_close(fixture);
    for_files(fixture, make_old);
    config.identity[0]++;
    config.block_bytes += 4096; /* its files are larger */
    fixture->config = config;
    assert_int_equal(store_open(fixture), 0);
    assert_int_equal(for_files(fixture, NULL), NUM_BLOCKS - 2);
    unsigned char data[STORE_BLOCK_BYTES + 4096] = {0};
    const struct kv_store_part part = {data, sizeof(data)};
    store_make_chain(fixture->store, 2, 0, new, NUM_BLOCKS / 2);
    int64_t end_ns = clock_now_ns() + 60 * CLOCK_NS_PER_S;
    for (int i = 0; i < NUM_BLOCKS / 2 && clock_now_ns() < end_ns;) {
        struct kv_store_done none;
        if (kv_store_write(fixture->store, &new[i].content, 0, &part, 1, 0)) {
            assert_true(store_wait(fixture->store).is_ok);
            i++;
        } else {
            assert_false(kv_store_next_done(fixture->store, &none));
            usleep(1000);
        }
    }
    reopen(fixture);
    int num_there = 0;
    for (int i = 0; i < NUM_BLOCKS / 2; i++)
        num_there += kv_store_has(fixture->store, &new[i].content);
    assert_true(num_there >= NUM_BLOCKS / 2 - 1); /* a listing leaves some bytes free */
    assert_true(for_files(fixture, NULL) <= NUM_BLOCKS);
}

/* --- What leaves --- */

static void test_the_least_recently_used_leaves(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[NUM_BLOCKS + 4];
    for (int i = 0; i < NUM_BLOCKS - 2; i++)
        put_chain(fixture->store, i, &blocks[i], 1);
    store_close(fixture);
    for_files(fixture, make_old);
    assert_int_equal(store_open(fixture), 0);
    for (int i = 0; i < 4; i++) /* notes the use in the file */
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_RIGHT);
    reopen(fixture);
    for (int i = NUM_BLOCKS - 2; i < NUM_BLOCKS + 4; i++)
        put_chain(fixture->store, i, &blocks[i], 1);
    assert_true(counts_of(fixture->store).num_evicted >= 4);
    assert_true(for_files(fixture, NULL) <= NUM_BLOCKS);
    for (int i = 0; i < 4; i++)
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_RIGHT);
    for (int i = NUM_BLOCKS - 2; i < NUM_BLOCKS + 4; i++)
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_RIGHT);
}

static void test_chains_leave_from_their_ends(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block chain[NUM_BLOCKS - 2], other[8];
    put_chain(fixture->store, 1, chain, NUM_BLOCKS - 2);
    reopen(fixture); /* from the names alone */
    put_chain(fixture->store, 2, other, 8);
    int num_there = 0;
    for (int i = 0; i < NUM_BLOCKS - 2; i++) {
        bool is_there = kv_store_has(fixture->store, &chain[i].content);
        assert_true(!is_there || num_there == i);
        num_there += is_there;
    }
    assert_true(num_there >= 6 && num_there < NUM_BLOCKS - 2);
    assert_true(kv_store_has(fixture->store, &other[7].content));
}

/* Two fill the folder at once; the next listing brings it back to its size. */
static void test_a_full_folder(void **state) {
    struct store_fixture *fixture = *state;
    struct kv_store *other = open_other(&fixture->config);
    struct store_block block;
    for (int i = 0; i < 3 * NUM_BLOCKS; i++)
        put_chain(i % 2 == 0 ? fixture->store : other, i, &block, 1);
    kv_store_close(other);
    reopen(fixture);
    assert_true(for_files(fixture, NULL) <= NUM_BLOCKS);
    assert_true(for_files(fixture, NULL) >= NUM_BLOCKS / 2);
    assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
}

static void test_forgetting_all(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3];
    struct kv_store *other = open_other(&fixture->config);
    put_chain(fixture->store, 1, blocks, 3);
    assert_true(wait_until(other, &blocks[2], true));
    kv_store_forget_all(fixture->store);
    assert_false(kv_store_has(fixture->store, &blocks[0].content));
    for (int i = 0; i < 3; i++)
        assert_true(wait_until(other, &blocks[i], false));
    assert_true(store_put(fixture->store, &blocks[1]));
    assert_int_equal(store_get(fixture->store, &blocks[1]), STORE_RIGHT);
    kv_store_close(other);
    reopen(fixture);
    assert_int_equal(counts_of(fixture->store).num_blocks, 1);
}

/* --- Files --- */

static void test_files_that_are_removed(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3];
    put_chain(fixture->store, 1, blocks, 3);
    assert_int_equal(for_files(fixture, remove_file), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_MISS);
    assert_int_equal(counts_of(fixture->store).num_damaged, 0);
    assert_true(store_put(fixture->store, &blocks[0]));
    assert_int_equal(store_get(fixture->store, &blocks[0]), STORE_RIGHT);
}

static void test_damaged_files(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[4];
    void (*const damages[])(const char *) = {flip_bit, truncate_file};
    for (int open = 0; open < 2; open++)
        for (int i = 0; i < 2; i++) {
            put_chain(fixture->store, 10 * open + i, blocks, 4);
            uint64_t before = open ? counts_of(fixture->store).num_damaged : 0;
            if (!open)
                store_close(fixture);
            assert_int_equal(for_files(fixture, damages[i]), 4);
            if (!open)
                assert_int_equal(store_open(fixture), 0);
            for (int block = 0; block < 4; block++)
                assert_int_equal(store_get(fixture->store, &blocks[block]), STORE_MISS);
            assert_int_equal(counts_of(fixture->store).num_damaged - before, 4);
            assert_int_equal(for_files(fixture, NULL), 0); /* whoever notices removes it */
            assert_true(store_put(fixture->store, &blocks[0]));
            assert_int_equal(store_get(fixture->store, &blocks[0]), STORE_RIGHT);
            for_files(fixture, remove_file);
        }
}

/* A block under another's name. */
static void test_renamed_files(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[2];
    static char paths[2][700];
    put_chain(fixture->store, 1, blocks, 1);
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%02x", (unsigned)i);
        DIR *folder = opendir(store_path(fixture, name));
        struct dirent *entry;
        while (folder != NULL && (entry = readdir(folder)) != NULL)
            if (entry->d_name[0] != '.')
                snprintf(paths[0], sizeof(paths[0]), "%s/%s/%s", fixture->directory, name,
                         entry->d_name);
        if (folder != NULL)
            closedir(folder);
    }
    store_make_chain(fixture->store, 2, 0, &blocks[1], 1);
    snprintf(paths[1], sizeof(paths[1]), "%s", paths[0]);
    char *key = strrchr(paths[1], '/') + 1, digits[33];
    snprintf(digits, sizeof(digits), "%016llx%016llx",
             (unsigned long long)blocks[1].content.key.high,
             (unsigned long long)blocks[1].content.key.low);
    memcpy(key, digits, 32);
    memcpy(key - 3, digits, 2);
    key[-1] = '\0';
    assert_true(mkdir(paths[1], 0700) == 0 || access(paths[1], F_OK) == 0);
    key[-1] = '/';
    assert_int_equal(rename(paths[0], paths[1]), 0);
    reopen(fixture);
    assert_true(kv_store_has(fixture->store, &blocks[1].content));
    assert_int_equal(store_get(fixture->store, &blocks[1]), STORE_MISS);
    assert_int_equal(counts_of(fixture->store).num_damaged, 1);
}

static void test_what_is_not_a_block_is_left_alone(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    static const char *const names[] = {"00/notes", "00/0-0-0-0", "00/new", "readme"};
    put_chain(fixture->store, 1, &block, 1);
    (void)!mkdir(store_path(fixture, "00"), 0700);
    for (int i = 0; i < 4; i++) {
        int fd = open(store_path(fixture, names[i]), O_CREAT | O_WRONLY, 0600);
        assert_true(fd >= 0);
        close(fd);
        set_age(store_path(fixture, names[i]), 1000000);
    }
    kv_store_forget_all(fixture->store);
    reopen(fixture);
    assert_int_equal(counts_of(fixture->store).num_blocks, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(access(store_path(fixture, names[i]), F_OK), 0);
}

static void test_leftovers_go_by_age(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    static const char *const names[] = {"07/new-0000000000000001", "07/new-0000000000000002"};
    put_chain(fixture->store, 1, &block, 1);
    (void)!mkdir(store_path(fixture, "07"), 0700);
    for (int i = 0; i < 2; i++) {
        int fd = open(store_path(fixture, names[i]), O_CREAT | O_WRONLY, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    set_age(store_path(fixture, names[0]), 2 * 3600);
    reopen(fixture);
    assert_int_equal(access(store_path(fixture, names[0]), F_OK), -1);
    assert_int_equal(access(store_path(fixture, names[1]), F_OK), 0);
    assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
}

static void test_writes_that_fail(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    struct rlimit limit, small;
    signal(SIGXFSZ, SIG_IGN);
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool is_written = store_put(fixture->store, &block);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_false(is_written);
    assert_int_equal(counts_of(fixture->store).num_failed_writes, 1);
    assert_int_equal(for_files(fixture, NULL), 0); /* nothing is left over */
    assert_true(store_put(fixture->store, &block));
    assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
}

static void test_encryption(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    static char path[600];
    store_tear_down(fixture);
    set_up(state);
    store_close(fixture);
    remove_file(store_path(fixture, "secret"));
    snprintf(path, sizeof(path), "%s",
             temporary_write(&fixture->folder, "key", "0123456789abcdef0123456789abcdef", 32));
    assert_int_equal(chmod(path, 0600), 0);
    fixture->config.key_file = path;
    assert_int_equal(store_open(fixture), 0);
    put_chain(fixture->store, 1, &block, 1);
    struct kv_store *other = open_other(&fixture->config);
    assert_int_equal(store_get(other, &block), STORE_RIGHT);
    kv_store_close(other);
    for_files(fixture, flip_bit);
    assert_int_equal(store_get(fixture->store, &block), STORE_MISS);
    fixture->config.key_file = NULL;
    store_close(fixture);
    assert_int_equal(store_open(fixture), -1);
}

/* Others use the secret: it is not made anew. */
static void test_a_damaged_secret(void **state) {
    struct store_fixture *fixture = *state;
    store_close(fixture);
    assert_int_equal(truncate(store_path(fixture, "secret"), 100), 0);
    assert_int_equal(store_open(fixture), -1);
    assert_non_null(strstr(fixture->err.message, "/secret is damaged"));
}

/* --- Processes --- */

/* Like fork. The child ends with its parent, which a failed assertion may end. */
static pid_t start_child(void) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

static void test_processes_that_start_together(void **state) {
    struct store_fixture *fixture = *state;
    enum { NUM = 6 };
    struct block_key_secret secrets[NUM];
    pid_t children[NUM];
    int pipes[2];
    store_close(fixture);
    for (int round = 0; round < 10; round++) {
        assert_int_equal(unlink(store_path(fixture, "secret")), 0);
        assert_int_equal(pipe(pipes), 0);
        for (int i = 0; i < NUM; i++) {
            children[i] = start_child();
            if (children[i] == 0) {
                CHECK(store_open(fixture) == 0);
                CHECK(write(pipes[1], kv_store_secret(fixture->store), sizeof(secrets[0])) ==
                      sizeof(secrets[0]));
                _exit(0);
            }
        }
        for (int i = 0; i < NUM; i++) {
            assert_int_equal(read(pipes[0], &secrets[i], sizeof(secrets[i])), sizeof(secrets[i]));
            assert_memory_equal(&secrets[i], &secrets[0], sizeof(secrets[0]));
        }
        for (int i = 0; i < NUM; i++)
            assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
        close(pipes[0]);
        close(pipes[1]);
    }
}

/* Reads or writes blocks of all histories; returns how many were there, and right. */
static int use_histories(struct kv_store *store, uint32_t seed, int count) {
    struct store_block blocks[3];
    int num_right = 0;
    for (uint32_t i = seed; i < seed + (uint32_t)count; i++) {
        store_make_chain(store, (int32_t)(i * 7 % NUM_HISTORIES), 0, blocks, 3);
        enum store_result result = store_get(store, &blocks[i % 3]);
        CHECK(result != STORE_WRONG);
        num_right += result == STORE_RIGHT;
        if (result == STORE_MISS)
            store_put(store, &blocks[i % 3]);
    }
    return num_right;
}

/* Two write and read without an end, in a folder that is too small, and are killed. */
static void test_killed_writers(void **state) {
    struct store_fixture *fixture = *state;
    pid_t children[2];
    int num_found = 0;
    store_close(fixture);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 2; i++) {
            children[i] = start_child();
            if (children[i] == 0) {
                CHECK(store_open(fixture) == 0);
                for (uint32_t seed = (uint32_t)(round * 5 + i * 3);; seed += 50)
                    use_histories(fixture->store, seed, 50);
            }
        }
        assert_int_equal(store_open(fixture), 0);
        num_found += use_histories(fixture->store, (uint32_t)round, 200);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(waitpid(children[i], NULL, WNOHANG),
                             0); /* it has found nothing wrong */
            assert_int_equal(kill(children[i], SIGKILL), 0);
            assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
        }
        num_found += use_histories(fixture->store, (uint32_t)round, 100);
        assert_int_equal(counts_of(fixture->store).num_damaged, 0);
        store_close(fixture);
    }
    assert_true(num_found > 100);
    for_files(fixture, make_old); /* also what they were writing */
    assert_int_equal(store_open(fixture), 0);
    assert_true(for_files(fixture, NULL) <= NUM_BLOCKS);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static void put_others(struct kv_store *store, int32_t first) {
    for (int32_t i = 0; i < 2 * NUM_BLOCKS; i++) {
        struct store_block other;
        store_make_chain(store, first + i, 0, &other, 1);
        store_put(store, &other);
    }
}

/* Whoever lists the folder or writes to it, later ones too. */
static void test_what_was_saved_does_not_leave(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3];
    struct block_key keys[3];
    store_make_chain(fixture->store, 1, 0, blocks, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(store_put(fixture->store, &blocks[i]));
        keys[i] = blocks[i].content.key;
    }
    const struct kv_saved saved = {.keys = keys, .num_keys = 3, .num_groups = 1};
    assert_int_equal(kv_store_save(fixture->store, "talk", &saved, &fixture->err), 0);
    put_others(fixture->store, 100);
    for_files(fixture, make_old);
    reopen(fixture);
    put_others(fixture->store, 200);
    struct kv_store *other = open_other(&fixture->config);
    put_others(other, 300);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_get(other, &blocks[i]), STORE_RIGHT);
    assert_int_equal(kv_store_erase_saved(other, "talk", &fixture->err), 0);
    put_others(other, 400);
    int num_found = 0;
    for (int i = 0; i < 3; i++)
        num_found += store_get(other, &blocks[i]) == STORE_RIGHT;
    assert_true(num_found < 3);
    kv_store_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_what_was_saved_does_not_leave),
        WITH_STORE(test_another_finds_what_one_writes),
        WITH_STORE(test_what_another_says_it_has_written),
        WITH_STORE(test_what_nobody_has_written_pushes_nothing_out_for_good),
        WITH_STORE(test_stores_with_the_same_blocks_have_one_name),
        WITH_STORE(test_the_same_block_twice),
        WITH_STORE(test_tokens_are_compared),
        WITH_STORE(test_a_reader_only_reads),
        WITH_STORE(test_identities_share_a_folder),
        WITH_STORE(test_what_is_old_leaves_of_all_identities),
        WITH_STORE(test_the_least_recently_used_leaves),
        WITH_STORE(test_chains_leave_from_their_ends),
        WITH_STORE(test_a_full_folder),
        WITH_STORE(test_forgetting_all),
        WITH_STORE(test_files_that_are_removed),
        WITH_STORE(test_damaged_files),
        WITH_STORE(test_renamed_files),
        WITH_STORE(test_what_is_not_a_block_is_left_alone),
        WITH_STORE(test_leftovers_go_by_age),
        WITH_STORE(test_writes_that_fail),
        WITH_STORE(test_encryption),
        WITH_STORE(test_a_damaged_secret),
        WITH_STORE(test_processes_that_start_together),
        WITH_STORE(test_killed_writers),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
