#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/log.h"
#include "tests/unit/engine/kv/kv_store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define NUM_SLOTS 6

static int set_up(void **state) {
    static struct store_fixture fixture;
    store_set_up(&fixture, NUM_SLOTS);
    *state = &fixture;
    return store_open(&fixture);
}

static int set_up_closed(void **state) {
    static struct store_fixture fixture;
    store_set_up(&fixture, NUM_SLOTS);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state) {
    store_tear_down(*state);
    return 0;
}

static void reopen(struct store_fixture *fixture) {
    store_close(fixture);
    assert_int_equal(store_open(fixture), 0);
}

static struct kv_store_counts counts_of(struct store_fixture *fixture) {
    struct kv_store_counts counts;
    kv_store_get_counts(fixture->store, &counts);
    return counts;
}

static void assert_fails(struct store_fixture *fixture, const char *part) {
    assert_int_equal(store_open(fixture), -1);
    assert_null(fixture->store);
    if (strstr(fixture->err.message, part) == NULL)
        fail_msg("\"%s\" does not have \"%s\"", fixture->err.message, part);
}

/* --- Finding --- */

static void test_what_was_written_is_read(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3];
    store_make_chain(fixture->store, 1, 0, blocks, 3);
    assert_true(kv_store_is_owner(fixture->store));
    for (int i = 0; i < 3; i++) {
        assert_false(kv_store_has(fixture->store, &blocks[i].content));
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_MISS);
        assert_true(store_put(fixture->store, &blocks[i]));
        assert_true(kv_store_has(fixture->store, &blocks[i].content));
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_RIGHT);
    struct kv_store_counts counts = counts_of(fixture);
    assert_int_equal(counts.num_blocks, 3);
    assert_int_equal(counts.max_blocks, NUM_SLOTS);
    assert_int_equal(counts.block_bytes, STORE_SLOT_BYTES);
    assert_int_equal(counts.num_written, 3);
    assert_int_equal(counts.num_read, 3);
    assert_int_equal(counts.bytes_written, 3 * STORE_BLOCK_BYTES);
    assert_int_equal(counts.bytes_read, 3 * STORE_BLOCK_BYTES);
    assert_int_equal(counts.num_damaged + counts.num_failed_writes + counts.num_evicted, 0);
    assert_true(counts.write_ns > 0 && counts.read_ns > 0 && counts.memory_bytes > 0);
}

static void test_a_key_alone_is_not_believed(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_true(store_put(fixture->store, &block));
    struct store_block tokens = block;
    tokens.tokens[3]++;
    tokens.content.tokens = tokens.tokens;
    struct block_content previous = block.content, group = block.content, high = block.content,
                         tenant = block.content;
    previous.previous.high++;
    group.group = 1;
    high.key.high++;
    tenant.tenant = 5;
    assert_false(kv_store_has(fixture->store, &tokens.content));
    assert_int_equal(store_get(fixture->store, &tokens), STORE_MISS);
    assert_false(kv_store_has(fixture->store, &previous));
    assert_false(kv_store_has(fixture->store, &group));
    assert_false(kv_store_has(fixture->store, &high));
    assert_true(kv_store_has(fixture->store, &tenant));
    assert_false(store_put(fixture->store, &tokens)); /* its key is known */
    assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
}

static void test_groups_of_a_key(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block first[2], second[2];
    store_make_chain(fixture->store, 1, 0, first, 2);
    store_make_chain(fixture->store, 1, 1, second, 2);
    for (int i = 0; i < 2; i++)
        assert_true(store_put(fixture->store, &first[i]) && store_put(fixture->store, &second[i]));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_get(fixture->store, &first[i]), STORE_RIGHT);
        assert_int_equal(store_get(fixture->store, &second[i]), STORE_RIGHT);
    }
}

/* --- Jobs --- */

static void test_a_block_that_is_being_written(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    unsigned char data[STORE_BLOCK_BYTES];
    const struct kv_store_part part = {data, sizeof(data)};
    struct kv_store_done done;
    store_make_chain(fixture->store, 1, 0, &block, 1);
    store_fill(&block, data);
    assert_true(kv_store_is_idle(fixture->store));
    assert_true(kv_store_write(fixture->store, &block.content, 0, &part, 1, 3));
    assert_false(kv_store_is_idle(fixture->store));
    assert_false(kv_store_has(fixture->store, &block.content)); /* before it is reported */
    assert_false(kv_store_write(fixture->store, &block.content, 0, &part, 1, 4));
    done = store_wait(fixture->store);
    assert_true(done.is_ok && !done.is_read && done.tag == 3 && done.ns > 0);
    assert_true(kv_store_is_idle(fixture->store));
    assert_false(kv_store_next_done(fixture->store, &done));
    assert_true(kv_store_has(fixture->store, &block.content));
}

static void count_wake(void *context) {
    atomic_fetch_add((atomic_int *)context, 1);
}

static void test_queues_are_bounded(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    static unsigned char data[STORE_BLOCK_BYTES];
    const struct kv_store_part part = {data, sizeof(data)};
    atomic_int num_wakes = 0;
    int accepted = 0;
    fixture->config.wake = count_wake;
    fixture->config.context = &num_wakes;
    assert_int_equal(store_open(fixture), 0);
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_true(store_put(fixture->store, &block));
    while (accepted <= KV_STORE_MAX_JOBS &&
           kv_store_read(fixture->store, &block.content, &part, 1, accepted))
        accepted++;
    assert_int_equal(accepted, KV_STORE_MAX_JOBS);
    for (int i = 0; i < accepted; i++) {
        struct kv_store_done done = store_wait(fixture->store);
        assert_true(done.is_read && done.is_ok);
        assert_int_equal(done.tag, i); /* in order */
    }
    assert_true(kv_store_is_idle(fixture->store));
    store_close(fixture);
    assert_int_equal(atomic_load(&num_wakes), 1 + KV_STORE_MAX_JOBS);
}

/* A stop does not wait for them; they stay in the store. */
static void test_draining_drops_reads(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    static unsigned char data[STORE_BLOCK_BYTES];
    const struct kv_store_part part = {data, sizeof(data)};
    struct kv_store_done done;
    int accepted = 0, num_dropped = 0;
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_true(store_put(fixture->store, &block));
    while (kv_store_read(fixture->store, &block.content, &part, 1, accepted))
        accepted++;
    kv_store_drain(fixture->store);
    for (int i = 0; i < accepted; i++) {
        assert_true(kv_store_next_done(fixture->store, &done));
        num_dropped += !done.is_ok;
    }
    assert_true(kv_store_is_idle(fixture->store));
    assert_true(num_dropped > 0);
    assert_int_equal(counts_of(fixture).num_damaged, 0);
    enum store_result result;
    while ((result = store_get(fixture->store, &block)) == STORE_MISS)
        assert_false(kv_store_next_done(fixture->store, &done)); /* the reader gives jobs back */
    assert_int_equal(result, STORE_RIGHT);
}

static void test_closing_finishes_writes(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[NUM_SLOTS];
    static unsigned char data[NUM_SLOTS][STORE_BLOCK_BYTES];
    store_make_chain(fixture->store, 1, 0, blocks, NUM_SLOTS);
    for (int i = 0; i < NUM_SLOTS; i++) {
        const struct kv_store_part part = {data[i], STORE_BLOCK_BYTES};
        store_fill(&blocks[i], data[i]);
        assert_true(
            kv_store_write(fixture->store, &blocks[i].content, blocks[i].tokens[0], &part, 1, i));
    }
    reopen(fixture);
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_int_equal(store_get(fixture->store, &blocks[i]), STORE_RIGHT);
}

/* --- What leaves --- */

static void test_the_least_recently_used_leaves(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[NUM_SLOTS + 3];
    for (int i = 0; i < NUM_SLOTS + 3; i++)
        store_make_chain(fixture->store, i, 0, &blocks[i], 1);
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_true(store_put(fixture->store, &blocks[i]));
    assert_true(kv_store_has(fixture->store, &blocks[0].content));
    assert_int_equal(store_get(fixture->store, &blocks[1]), STORE_RIGHT);
    reopen(fixture); /* the order is kept */
    for (int i = NUM_SLOTS; i < NUM_SLOTS + 3; i++)
        assert_true(store_put(fixture->store, &blocks[i]));
    assert_int_equal(counts_of(fixture).num_evicted, 3);
    assert_int_equal(counts_of(fixture).num_blocks, NUM_SLOTS);
    for (int i = 0; i < NUM_SLOTS + 3; i++)
        assert_int_equal(store_get(fixture->store, &blocks[i]),
                         i >= 2 && i < 5 ? STORE_MISS : STORE_RIGHT);
}

static void test_chains_leave_from_their_ends(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block chain[4], other[4];
    store_make_chain(fixture->store, 1, 0, chain, 4);
    store_make_chain(fixture->store, 2, 0, other, 4);
    for (int i = 0; i < 4; i++) /* from the end, as blocks leave the tier above */
        assert_true(store_put(fixture->store, &chain[3 - i]));
    for (int i = 0; i < 4; i++)
        assert_true(store_put(fixture->store, &other[i]));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kv_store_has(fixture->store, &chain[i].content), i < 2);
        assert_true(kv_store_has(fixture->store, &other[i].content));
    }
}

static void test_a_block_does_not_replace_what_it_continues(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block chain[NUM_SLOTS + 1];
    store_make_chain(fixture->store, 1, 0, chain, NUM_SLOTS + 1);
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_true(store_put(fixture->store, &chain[i]));
    assert_false(store_put(fixture->store, &chain[NUM_SLOTS]));
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_int_equal(store_get(fixture->store, &chain[i]), STORE_RIGHT);
}

static void test_what_is_being_read_does_not_leave(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[NUM_SLOTS + 1];
    static unsigned char data[STORE_BLOCK_BYTES];
    const struct kv_store_part part = {data, sizeof(data)};
    for (int i = 0; i <= NUM_SLOTS; i++)
        store_make_chain(fixture->store, i, 0, &blocks[i], 1);
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_true(store_put(fixture->store, &blocks[i]));
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_true(kv_store_read(fixture->store, &blocks[i].content, &part, 1, 0));
    assert_false(kv_store_write(fixture->store, &blocks[NUM_SLOTS].content, 0, &part, 1, 0));
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_true(store_wait(fixture->store).is_ok);
    assert_true(store_put(fixture->store, &blocks[NUM_SLOTS]));
}

static void test_forgetting_all(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[2];
    unsigned char data[STORE_BLOCK_BYTES];
    const struct kv_store_part part = {data, sizeof(data)};
    store_make_chain(fixture->store, 1, 0, blocks, 2);
    assert_true(store_put(fixture->store, &blocks[0]) && store_put(fixture->store, &blocks[1]));
    assert_true(kv_store_read(fixture->store, &blocks[0].content, &part, 1, 0));
    kv_store_forget_all(fixture->store);
    assert_false(kv_store_has(fixture->store, &blocks[0].content));
    assert_false(store_wait(fixture->store).is_ok);
    assert_int_equal(counts_of(fixture).num_blocks, 0);
    assert_int_equal(counts_of(fixture).num_damaged, 0);
    assert_true(store_put(fixture->store, &blocks[1]));
    reopen(fixture);
    assert_int_equal(store_get(fixture->store, &blocks[0]), STORE_MISS);
    assert_int_equal(store_get(fixture->store, &blocks[1]), STORE_RIGHT);
    kv_store_forget_all(fixture->store);
    reopen(fixture);
    assert_int_equal(counts_of(fixture).num_blocks, 0);
    assert_int_equal(counts_of(fixture).num_damaged, 0);
}

/* --- Restarts --- */

static void test_a_restart(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block chain[4];
    struct block_key_secret secret = *kv_store_secret(fixture->store);
    store_make_chain(fixture->store, 1, 0, chain, 4);
    for (int i = 0; i < 4; i++)
        assert_true(store_put(fixture->store, &chain[i]));
    reopen(fixture);
    assert_memory_equal(&secret, kv_store_secret(fixture->store), sizeof(secret));
    assert_int_equal(counts_of(fixture).num_blocks, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(store_get(fixture->store, &chain[i]), STORE_RIGHT);
}

static void test_a_store_for_one_start(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    struct block_key_secret secret = *kv_store_secret(fixture->store);
    for (int forgets = 1; forgets >= 0; forgets--) {
        store_make_chain(fixture->store, 1, 0, &block, 1);
        assert_true(store_put(fixture->store, &block));
        fixture->config.forgets = forgets;
        reopen(fixture);
        assert_memory_not_equal(&secret, kv_store_secret(fixture->store), sizeof(secret));
        assert_int_equal(store_get(fixture->store, &block), STORE_MISS);
        assert_int_equal(counts_of(fixture).num_blocks, 0);
        assert_int_equal(access(store_path(fixture, "secret"), F_OK), forgets ? -1 : 0);
    }
}

static void test_another_identity(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    store_make_chain(fixture->store, 1, 0, &block, 1);
    for (int i = 0; i < 2; i++) { /* and back again */
        assert_true(store_put(fixture->store, &block));
        fixture->config.identity[31] ^= 1;
        reopen(fixture);
        assert_int_equal(store_get(fixture->store, &block), STORE_MISS);
    }
}

static void test_another_size(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_true(store_put(fixture->store, &block));
    fixture->config.max_bytes += STORE_SLOT_COST;
    reopen(fixture);
    assert_int_equal(counts_of(fixture).max_blocks, NUM_SLOTS + 1);
    assert_int_equal(store_get(fixture->store, &block), STORE_MISS);
    assert_true(store_put(fixture->store, &block));
    fixture->config.block_bytes += 1;
    reopen(fixture);
    assert_false(kv_store_has(fixture->store, &block.content));
}

/* --- Folders --- */

static void test_modes(void **state) {
    struct store_fixture *fixture = *state;
    static const char *const names[] = {"secret", "records", "slots", "lock"};
    struct stat info;
    assert_int_equal(stat(fixture->directory, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(stat(store_path(fixture, names[i]), &info), 0);
        assert_int_equal(info.st_mode & 07777, 0600);
    }
    store_close(fixture);
    assert_int_equal(chmod(store_path(fixture, "secret"), 0640), 0);
    assert_fails(fixture, "/secret has mode 0640");
}

static void test_a_folder_of_others(void **state) {
    struct store_fixture *fixture = *state;
    store_close(fixture);
    assert_int_equal(chmod(fixture->directory, 0770), 0);
    assert_fails(fixture, "has mode 0770, others may change it");
    assert_int_equal(chmod(fixture->directory, 0755), 0);
    assert_int_equal(store_open(fixture), 0);
    store_close(fixture);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(fixture->directory, 1, 1), 0);
    assert_fails(fixture, "belongs to user 1");
}

static void test_what_is_not_a_file(void **state) {
    struct store_fixture *fixture = *state;
    store_close(fixture);
    for (int read_only = 0; read_only < 2; read_only++) {
        fixture->config.read_only = read_only;
        assert_int_equal(unlink(store_path(fixture, "records")), 0);
        assert_int_equal(mkfifo(store_path(fixture, "records"), 0600), 0);
        assert_fails(fixture, "/records is not a file");
    }
}

static void test_folders_that_cannot_be_used(void **state) {
    struct store_fixture *fixture = *state;
    temporary_write(&fixture->folder, "store", "x", 1);
    assert_fails(fixture, "store: Not a directory");
    assert_int_equal(unlink(fixture->directory), 0);
    fixture->config.directory = temporary_file(&fixture->folder, "no/store");
    assert_fails(fixture, "no/store: No such file or directory");
    fixture->config.directory = "";
    assert_fails(fixture, "the path has 0 bytes");
    fixture->config.directory = fixture->directory;
    fixture->config.max_bytes = 4096 + STORE_SLOT_COST - 1;
    assert_fails(fixture, "is too small");
    fixture->config.max_bytes = 4096 + STORE_SLOT_COST;
    assert_int_equal(store_open(fixture), 0);
    assert_int_equal(counts_of(fixture).max_blocks, 1);
    store_close(fixture);
    assert_int_equal(unlink(store_path(fixture, "records")), 0);
    assert_int_equal(symlink("secret", store_path(fixture, "records")), 0);
    assert_fails(fixture, "/records: Too many levels of symbolic links");
    assert_int_equal(chmod(fixture->directory, 0500), 0);
    assert_int_equal(unlink(store_path(fixture, "lock")), geteuid() == 0 ? 0 : -1);
    if (geteuid() != 0)
        assert_fails(fixture, "/records");
    assert_int_equal(chmod(fixture->directory, 0700), 0);
}

/* Files must not be larger; -1: no limit. */
static void limit_files(int64_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_a_disk_that_is_too_small(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    signal(SIGXFSZ, SIG_IGN);
    limit_files(4 * STORE_SLOT_BYTES + 100);
    int status = store_open(fixture);
    limit_files(-1);
    assert_int_equal(status, 0);
    assert_int_equal(counts_of(fixture).max_blocks, 4);
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_true(store_put(fixture->store, &block));
    reopen(fixture); /* does not begin anew, although there is room now */
    assert_int_equal(counts_of(fixture).max_blocks, 4);
    assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
    store_close(fixture);
    assert_int_equal(unlink(store_path(fixture, "records")), 0);
    limit_files(STORE_SLOT_BYTES - 1);
    status = store_open(fixture);
    limit_files(-1);
    assert_int_equal(status, -1);
    assert_non_null(strstr(fixture->err.message, "no room for a block"));
}

static void test_writes_that_fail(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[20];
    int refused_at = -1;
    signal(SIGXFSZ, SIG_IGN);
    store_make_chain(fixture->store, 1, 0, blocks, 20);
    assert_true(store_put(fixture->store, &blocks[0]));
    limit_files(100);
    for (int i = 1; i < 20 && refused_at < 0; i++) {
        struct kv_store_counts before = counts_of(fixture), after;
        assert_false(store_put(fixture->store, &blocks[i]));
        assert_false(kv_store_has(fixture->store, &blocks[i].content));
        after = counts_of(fixture);
        assert_int_equal(after.num_blocks, 1);
        if (after.num_failed_writes == before.num_failed_writes)
            refused_at = i;
    }
    limit_files(-1);
    assert_int_equal(refused_at, 9); /* after 8 in a row */
    assert_int_equal(store_get(fixture->store, &blocks[0]), STORE_RIGHT);
    reopen(fixture);
    assert_true(store_put(fixture->store, &blocks[1]));
}

/* --- Encryption --- */

static void use_key(struct store_fixture *fixture, const char *text, size_t bytes) {
    static char path[600];
    snprintf(path, sizeof(path), "%s", temporary_write(&fixture->folder, "key", text, bytes));
    assert_int_equal(chmod(path, 0600), 0);
    fixture->config.key_file = path;
}

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

/* Returns whether a file has the bytes. */
static bool file_has(const char *path, const void *bytes, size_t count) {
    static unsigned char data[1 << 17];
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t have = fread(data, 1, sizeof(data), stream);
    fclose(stream);
    assert_true(have > count && have < sizeof(data));
    return memmem(data, have, bytes, count) != NULL;
}

static void test_encryption(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block chain[3];
    unsigned char data[STORE_BLOCK_BYTES];
    for (int is_encrypted = 0; is_encrypted < 2; is_encrypted++) {
        if (is_encrypted)
            use_key(fixture, DIGITS "\n", 65);
        assert_int_equal(store_open(fixture), 0);
        store_make_chain(fixture->store, 1, 0, chain, 3);
        for (int i = 0; i < 3; i++)
            assert_true(store_put(fixture->store, &chain[i]));
        reopen(fixture);
        for (int i = 0; i < 3; i++)
            assert_int_equal(store_get(fixture->store, &chain[i]), STORE_RIGHT);
        store_fill(&chain[1], data);
        assert_int_equal(file_has(store_path(fixture, "slots"), data, 64), !is_encrypted);
        assert_int_equal(file_has(store_path(fixture, "records"), chain[1].tokens, 16),
                         !is_encrypted);
        assert_int_equal(
            file_has(store_path(fixture, "secret"), kv_store_secret(fixture->store), 32),
            !is_encrypted);
        store_close(fixture);
        temporary_folder_remove(&fixture->folder);
        assert_int_equal(mkdir(fixture->folder.path, 0700), 0);
    }
}

static void test_keys_that_do_not_fit(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    use_key(fixture, DIGITS, 64);
    assert_int_equal(store_open(fixture), 0);
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_true(store_put(fixture->store, &block));
    store_close(fixture);
    fixture->config.key_file = NULL;
    assert_fails(fixture, "is encrypted and needs its key file");
    use_key(fixture, "0123456789abcdef0123456789abcdef", 32);
    assert_fails(fixture, "the key file does not fit this store");
    use_key(fixture, DIGITS "\r\n", 66);
    assert_int_equal(store_open(fixture), 0);
    assert_int_equal(store_get(fixture->store, &block), STORE_RIGHT);
    store_close(fixture);
    assert_int_equal(unlink(store_path(fixture, "secret")), 0);
    fixture->config.key_file = NULL;
    assert_int_equal(store_open(fixture), 0); /* begins anew */
    assert_int_equal(store_get(fixture->store, &block), STORE_MISS);
    store_close(fixture);
    use_key(fixture, DIGITS, 64);
    assert_fails(fixture, "is not encrypted");
}

static void test_key_files(void **state) {
    struct store_fixture *fixture = *state;
    static const char *const wrong[] = {
        "", "short", DIGITS "0", DIGITS "\n\n\n", "0123456789abcdef0123456789abcdef\n", "x" DIGITS};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        use_key(fixture, wrong[i], strlen(wrong[i]));
        assert_fails(fixture, "must have 32 bytes or 64 hexadecimal digits");
    }
    char text[] = DIGITS;
    text[63] = 'g';
    use_key(fixture, text, 64);
    assert_fails(fixture, "must have 32 bytes or 64 hexadecimal digits");
    use_key(fixture, DIGITS, 64);
    assert_int_equal(chmod(fixture->config.key_file, 0644), 0);
    assert_fails(fixture, "has mode 0644");
    assert_int_equal(unlink(fixture->config.key_file), 0);
    assert_fails(fixture, "No such file");
    assert_int_equal(access(fixture->directory, F_OK), -1); /* nothing was made */
}

/* --- Saved conversations --- */

/* Saves the blocks by name, with a text. */
static int save(struct store_fixture *fixture, const char *name, const struct store_block *blocks,
                int count, const char *text) {
    struct block_key keys[NUM_SLOTS];
    for (int i = 0; i < count; i++)
        keys[i] = blocks[i].content.key;
    const struct kv_saved saved = {.keys = keys,
                                   .num_keys = count,
                                   .num_groups = 1,
                                   .data = (unsigned char *)text,
                                   .num_bytes = strlen(text)};
    return kv_store_save(fixture->store, name, &saved, &fixture->err);
}

static void assert_saved(struct store_fixture *fixture, const char *name, const char *text) {
    struct kv_saved saved;
    assert_int_equal(kv_store_read_saved(fixture->store, name, &saved, &fixture->err), 0);
    assert_int_equal(saved.num_bytes, strlen(text));
    assert_memory_equal(saved.data, text, strlen(text));
    kv_saved_finish(&saved);
}

static void assert_not_saved(struct store_fixture *fixture, const char *name, const char *part) {
    struct kv_saved saved;
    assert_int_equal(kv_store_read_saved(fixture->store, name, &saved, &fixture->err), -1);
    if (strstr(fixture->err.message, part) == NULL)
        fail_msg("\"%s\" does not have \"%s\"", fixture->err.message, part);
}

/* Fills the store with others, twice. */
static void put_others(struct store_fixture *fixture) {
    for (int i = 0; i < 2 * NUM_SLOTS; i++) {
        struct store_block other;
        store_make_chain(fixture->store, 100 + i, 0, &other, 1);
        assert_true(store_put(fixture->store, &other));
    }
}

static int count_found(struct store_fixture *fixture, const struct store_block *blocks, int count) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += kv_store_has(fixture->store, &blocks[i].content);
    return found;
}

static void test_what_was_saved_does_not_leave(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[2];
    store_make_chain(fixture->store, 1, 0, blocks, 2);
    assert_true(store_put(fixture->store, &blocks[0]));
    assert_int_equal(save(fixture, "talk.bin", blocks, 2, "hello"), 0);
    assert_true(store_put(fixture->store, &blocks[1])); /* it came later */
    put_others(fixture);
    assert_int_equal(count_found(fixture, blocks, 2), 2);
    reopen(fixture);
    put_others(fixture);
    assert_int_equal(count_found(fixture, blocks, 2), 2);
    assert_saved(fixture, "talk.bin", "hello");
    kv_store_forget_all(fixture->store);
    assert_int_equal(count_found(fixture, blocks, 2), 0);
    assert_true(store_put(fixture->store, &blocks[0]) && store_put(fixture->store, &blocks[1]));
    put_others(fixture);
    assert_int_equal(count_found(fixture, blocks, 2), 2);
    assert_int_equal(kv_store_erase_saved(fixture->store, "talk.bin", &fixture->err), 0);
    put_others(fixture);
    assert_int_equal(count_found(fixture, blocks, 2), 0);
    assert_not_saved(fixture, "talk.bin", "nothing was saved as \"talk.bin\"");
}

static void test_names_share_blocks(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[3];
    store_make_chain(fixture->store, 1, 0, blocks, 3);
    for (int i = 0; i < 3; i++)
        assert_true(store_put(fixture->store, &blocks[i]));
    assert_int_equal(save(fixture, "a", blocks, 1, "one"), 0);
    assert_int_equal(save(fixture, "b", blocks, 1, "two"), 0);
    assert_int_equal(save(fixture, "b", blocks + 1, 1, "three"), 0); /* instead */
    assert_saved(fixture, "a", "one");
    assert_saved(fixture, "b", "three");
    put_others(fixture);
    assert_int_equal(count_found(fixture, blocks, 3), 2);
    assert_int_equal(kv_store_erase_saved(fixture->store, "b", &fixture->err), 0);
    put_others(fixture);
    assert_int_equal(count_found(fixture, blocks, 3), 1);
    assert_int_equal(kv_store_erase_saved(fixture->store, "b", &fixture->err), -1);
}

static void test_half_of_the_store_can_be_saved(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block blocks[NUM_SLOTS], other;
    store_make_chain(fixture->store, 1, 0, blocks, NUM_SLOTS);
    assert_int_equal(save(fixture, "a", blocks, NUM_SLOTS / 2 + 1, ""), -1);
    assert_int_equal(fixture->err.code, ERROR_CONFIG);
    assert_non_null(strstr(fixture->err.message, "at most half of the store's, 3"));
    assert_not_saved(fixture, "a", "nothing was saved");
    assert_int_equal(save(fixture, "a", blocks, NUM_SLOTS / 2, ""), 0);
    store_make_chain(fixture->store, 2, 0, &other, 1);
    assert_true(store_put(fixture->store, &other));
    assert_int_equal(save(fixture, "b", &other, 1, ""), -1);
    assert_int_equal(save(fixture, "a", &other, 1, ""), 0);
}

static void test_only_its_owner_saves(void **state) {
    struct store_fixture *fixture = *state;
    struct kv_store_config config = fixture->config;
    struct kv_store *reader;
    struct kv_saved saved = {.num_groups = 1};
    assert_int_equal(save(fixture, "a", NULL, 0, "text"), 0);
    assert_int_equal(kv_store_open(&config, &reader, &fixture->err), 0);
    assert_int_equal(kv_store_read_saved(reader, "a", &saved, &fixture->err), 0);
    assert_int_equal(kv_store_save(reader, "b", &saved, &fixture->err), -1);
    assert_non_null(strstr(fixture->err.message, "another process owns it"));
    assert_int_equal(kv_store_erase_saved(reader, "a", &fixture->err), -1);
    kv_saved_finish(&saved);
    kv_store_close(reader);
}

static void rewrite(struct store_fixture *fixture, const char *name, const void *bytes,
                    size_t num_bytes) {
    char inside[64];
    snprintf(inside, sizeof(inside), "store/saved/%s", name);
    temporary_write(&fixture->folder, inside, bytes, num_bytes);
}

static void test_damaged_and_foreign_files_are_not_restored(void **state) {
    struct store_fixture *fixture = *state;
    struct store_block block;
    store_make_chain(fixture->store, 1, 0, &block, 1);
    assert_int_equal(save(fixture, "a", &block, 1, "a text"), 0);
    unsigned char bytes[1024];
    FILE *file = fopen(store_path(fixture, "saved/a"), "rb");
    assert_non_null(file);
    size_t num_bytes = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    assert_true(num_bytes > 60 && num_bytes < sizeof(bytes));
    for (size_t bit = 0; bit < 8 * num_bytes; bit += 3) {
        bool is_unused = bit / 8 < 16; /* of the seal: a nonce, which a checksum does not have */
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        rewrite(fixture, "a", bytes, num_bytes);
        if (!is_unused)
            assert_not_saved(fixture, "a", "damaged");
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    for (size_t length = 0; length < num_bytes; length += 7) {
        rewrite(fixture, "a", bytes, length);
        struct kv_saved saved;
        assert_int_equal(kv_store_read_saved(fixture->store, "a", &saved, &fixture->err), -1);
    }
    rewrite(fixture, "a", bytes, num_bytes);
    assert_saved(fixture, "a", "a text");
    rewrite(fixture, "b", bytes, num_bytes);
    assert_not_saved(fixture, "b", "damaged"); /* the name is part of it */
    store_close(fixture);
    fixture->config.identity[0]++;
    assert_int_equal(store_open(fixture), 0);
    assert_not_saved(fixture, "a", "of another model");
}

static void test_what_was_saved_is_encrypted(void **state) {
    struct store_fixture *fixture = *state;
    static const char text[] = "nobody is to read this";
    char found[2048] = {0};
    use_key(fixture, DIGITS, 64);
    assert_int_equal(store_open(fixture), 0);
    assert_int_equal(save(fixture, "a", NULL, 0, text), 0);
    assert_saved(fixture, "a", text);
    FILE *file = fopen(store_path(fixture, "saved/a"), "rb");
    assert_non_null(file);
    size_t num_bytes = fread(found, 1, sizeof(found) - 1, file);
    fclose(file);
    assert_null(memmem(found, num_bytes, "nobody", 6));
}

static void test_names(void **state) {
    static const char *const bad[] = {"",     ".",  "..", ".new", "a/b",
                                      "../a", "-a", "_a", "a b",  "\xc3\xa4"};
    char name[KV_SAVED_MAX_NAME_BYTES + 2];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(kv_saved_is_name(bad[i]));
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_false(kv_saved_is_name(name));
    assert_true(kv_saved_is_name(name + 1));
    assert_true(kv_saved_is_name("9_talk-1.bin"));
}

/* --- Several stores --- */

static void test_one_owner(void **state) {
    struct store_fixture *fixture = *state;
    struct kv_store_config config = fixture->config;
    struct kv_store *reader, *none = NULL;
    struct store_block blocks[2];
    struct error err;
    store_make_chain(fixture->store, 1, 0, blocks, 2);
    assert_true(store_put(fixture->store, &blocks[0]));
    for (int read_only = 0; read_only < 2; read_only++) {
        config.read_only = read_only;
        assert_int_equal(kv_store_open(&config, &reader, &err), 0);
        assert_false(kv_store_is_owner(reader));
        assert_int_equal(store_get(reader, &blocks[0]), STORE_RIGHT);
        assert_false(store_put(reader, &blocks[1]));
        kv_store_forget_all(reader); /* for itself only */
        assert_int_equal(store_get(reader, &blocks[0]), STORE_MISS);
        kv_store_close(reader);
    }
    config.identity[0]++;
    assert_int_equal(kv_store_open(&config, &none, &err), -1);
    assert_non_null(strstr(err.message, "another model or configuration"));
    config = fixture->config;
    config.forgets = true;
    assert_int_equal(kv_store_open(&config, &none, &err), -1);
    assert_non_null(strstr(err.message, "kept for one start only"));
    assert_int_equal(store_get(fixture->store, &blocks[0]), STORE_RIGHT);
}

/* It keeps the size that it finds, and the blocks. */
static void test_another_size_is_taken_over(void **state) {
    struct store_fixture *fixture = *state;
    struct kv_store_config config = fixture->config;
    struct kv_store *heir;
    struct store_block blocks[2];
    struct kv_store_done done;
    struct error err;
    store_make_chain(fixture->store, 1, 0, blocks, 2);
    assert_true(store_put(fixture->store, &blocks[0]));
    config.max_bytes += STORE_SLOT_COST;
    assert_int_equal(kv_store_open(&config, &heir, &err), 0);
    store_close(fixture);
    for (int i = 0; i < 1000 && !kv_store_is_owner(heir); i++) {
        usleep(20000);
        assert_false(kv_store_next_done(heir, &done));
    }
    assert_true(kv_store_is_owner(heir));
    assert_true(store_put(heir, &blocks[1]));
    for (int i = 0; i < 2; i++)
        assert_int_equal(store_get(heir, &blocks[i]), STORE_RIGHT);
    kv_store_close(heir);
}

static void test_a_reader_of_nothing(void **state) {
    struct store_fixture *fixture = *state;
    fixture->config.read_only = true;
    assert_fails(fixture, "store: missing");
    assert_int_equal(fixture->err.code, ERROR_UNAVAILABLE);
    assert_int_equal(mkdir(fixture->directory, 0700), 0);
    assert_fails(fixture, "/secret: missing");
    assert_int_equal(access(store_path(fixture, "lock"), F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_written_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_alone_is_not_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_groups_of_a_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_block_that_is_being_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queues_are_bounded, set_up_closed, tear_down),
        cmocka_unit_test_setup_teardown(test_draining_drops_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_closing_finishes_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_least_recently_used_leaves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_chains_leave_from_their_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_block_does_not_replace_what_it_continues, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_being_read_does_not_leave, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forgetting_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_restart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_store_for_one_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_identity, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_folder_of_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_that_cannot_be_used, set_up_closed, tear_down),
        cmocka_unit_test_setup_teardown(test_a_disk_that_is_too_small, set_up_closed, tear_down),
        cmocka_unit_test_setup_teardown(test_writes_that_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_encryption, set_up_closed, tear_down),
        cmocka_unit_test_setup_teardown(test_keys_that_do_not_fit, set_up_closed, tear_down),
        cmocka_unit_test_setup_teardown(test_key_files, set_up_closed, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_saved_does_not_leave, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_share_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_half_of_the_store_can_be_saved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_its_owner_saves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged_and_foreign_files_are_not_restored, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_saved_is_encrypted, set_up_closed, tear_down),
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_one_owner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_size_is_taken_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reader_of_nothing, set_up_closed, tear_down),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
