/* Damaged and cut files, processes that are killed, and stores that several processes use: whatever
 * is read is right or a miss. The first argument is how many
 * processes are killed; five times as many bits are flipped. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "tests/unit/engine/kv/kv_store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NUM_SLOTS 8
#define MAX_FILE_BYTES (NUM_SLOTS * STORE_SLOT_BYTES)

static int num_kills = 12; /* half of them with encryption */

/* The same in each run. */
static uint32_t random_below(uint32_t end) {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)((state >> 32) * end >> 32);
}

struct file_copy {
    const char *name;
    size_t bytes;
    unsigned char data[MAX_FILE_BYTES];
};

struct damage_fixture {
    struct store_fixture store;
    struct store_block blocks[NUM_SLOTS];
    struct file_copy copies[2];
};

static void read_copy(struct damage_fixture *fixture, struct file_copy *copy, const char *name) {
    FILE *stream = fopen(store_path(&fixture->store, name), "rb");
    assert_non_null(stream);
    copy->name = name;
    copy->bytes = fread(copy->data, 1, sizeof(copy->data), stream);
    fclose(stream);
    assert_true(copy->bytes > 4096);
}

static void write_copy(struct damage_fixture *fixture, const struct file_copy *copy, size_t bytes) {
    int fd = open(store_path(&fixture->store, copy->name), O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, copy->data, bytes), (ssize_t)bytes);
    close(fd);
}

/* A full store, closed. */
static int make_damage_fixture(void **state, bool is_encrypted) {
    static struct damage_fixture fixture;
    static char key_file[600];
    store_set_up(&fixture.store, NUM_SLOTS);
    if (is_encrypted) {
        snprintf(
            key_file, sizeof(key_file), "%s",
            temporary_write(&fixture.store.folder, "key", "0123456789abcdef0123456789abcdef", 32));
        chmod(key_file, 0600);
        fixture.store.config.key_file = key_file;
    }
    *state = &fixture;
    if (store_open(&fixture.store) != 0)
        return -1;
    store_make_chain(fixture.store.store, 1, 0, fixture.blocks, NUM_SLOTS);
    for (int i = 0; i < NUM_SLOTS; i++)
        if (!store_put(fixture.store.store, &fixture.blocks[i]))
            return -1;
    store_close(&fixture.store);
    read_copy(&fixture, &fixture.copies[0], "records");
    read_copy(&fixture, &fixture.copies[1], "slots");
    return 0;
}

static int set_up(void **state) {
    return make_damage_fixture(state, false);
}

static int set_up_encrypted(void **state) {
    return make_damage_fixture(state, true);
}

static int tear_down(void **state) {
    struct damage_fixture *fixture = *state;
    store_tear_down(&fixture->store);
    return 0;
}

/* Opens the store and reads all; returns how many blocks are there. */
static int count_right(struct damage_fixture *fixture, struct kv_store_counts *counts) {
    int num_right = 0;
    assert_int_equal(store_open(&fixture->store), 0);
    for (int i = 0; i < NUM_SLOTS; i++) {
        enum store_result result = store_get(fixture->store.store, &fixture->blocks[i]);
        assert_int_not_equal(result, STORE_WRONG);
        num_right += result == STORE_RIGHT;
        assert_int_equal(kv_store_has(fixture->store.store, &fixture->blocks[i].content),
                         result == STORE_RIGHT);
    }
    kv_store_get_counts(fixture->store.store, counts);
    store_close(&fixture->store);
    return num_right;
}

static void test_flipped_bits(void **state) {
    struct damage_fixture *fixture = *state;
    struct kv_store_counts counts;
    int num_lost = 0, num_anew = 0, num_flips = 5 * num_kills;
    for (int flip = 0; flip < num_flips; flip++) {
        struct file_copy *copy = &fixture->copies[flip % 2];
        /* Where a page of the header is not used, a flip changes nothing. */
        uint32_t begin = flip % 2 == 0 && flip % 16 != 0 ? 4096 : 0;
        uint32_t at = begin + random_below((uint32_t)copy->bytes - begin);
        unsigned char bit = (unsigned char)(1u << random_below(8));
        if (flip % 16 == 0)
            at %= 160; /* the header */
        write_copy(fixture, &fixture->copies[0], fixture->copies[0].bytes);
        write_copy(fixture, &fixture->copies[1], fixture->copies[1].bytes);
        copy->data[at] ^= bit;
        write_copy(fixture, copy, copy->bytes);
        copy->data[at] ^= bit;
        int num_right = count_right(fixture, &counts);
        if (num_right == 0 && flip % 16 == 0) {
            num_anew++;
            continue;
        }
        assert_true(num_right >= NUM_SLOTS - 1);
        assert_int_equal(counts.num_damaged, NUM_SLOTS - num_right);
        num_lost += num_right < NUM_SLOTS;
    }
    assert_true(num_lost > num_flips / 2);
    assert_true(num_anew > 0);
}

static void test_cut_files(void **state) {
    struct damage_fixture *fixture = *state;
    struct kv_store_counts counts;
    int num_found = 0, num_cuts = num_kills;
    for (int cut = 0; cut < num_cuts; cut++) {
        const struct file_copy *copy = &fixture->copies[cut % 2];
        write_copy(fixture, &fixture->copies[0], fixture->copies[0].bytes);
        write_copy(fixture, &fixture->copies[1], fixture->copies[1].bytes);
        write_copy(fixture, copy, random_below((uint32_t)copy->bytes));
        num_found += count_right(fixture, &counts);
    }
    assert_true(num_found > num_cuts && num_found < num_cuts * NUM_SLOTS);
}

/* A record or a block in another's place. */
static void test_swapped_slots(void **state) {
    struct damage_fixture *fixture = *state;
    struct kv_store_counts counts;
    for (int file = 0; file < 2; file++) {
        struct file_copy *copy = &fixture->copies[file];
        size_t bytes = file == 0 ? STORE_RECORD_BYTES : STORE_SLOT_BYTES,
               begin = file == 0 ? 4096 : 0;
        unsigned char first[STORE_SLOT_BYTES];
        memcpy(first, copy->data + begin, bytes);
        memcpy(copy->data + begin, copy->data + begin + bytes, bytes);
        memcpy(copy->data + begin + bytes, first, bytes);
        write_copy(fixture, copy, copy->bytes);
        assert_int_equal(count_right(fixture, &counts), NUM_SLOTS - 2);
        memcpy(copy->data + begin + bytes, copy->data + begin, bytes);
        memcpy(copy->data + begin, first, bytes);
        write_copy(fixture, copy, copy->bytes);
        assert_int_equal(count_right(fixture, &counts), NUM_SLOTS);
    }
}

static void test_damage_while_open(void **state) {
    struct damage_fixture *fixture = *state;
    struct kv_store_counts counts;
    assert_int_equal(store_open(&fixture->store), 0);
    write_copy(fixture, &fixture->copies[0], 4096); /* all records */
    for (int i = 0; i < NUM_SLOTS; i++)
        assert_int_equal(store_get(fixture->store.store, &fixture->blocks[i]), STORE_MISS);
    kv_store_get_counts(fixture->store.store, &counts);
    assert_int_equal(counts.num_damaged, NUM_SLOTS);
    assert_int_equal(counts.num_blocks, 0);
    for (int i = 0; i < NUM_SLOTS; i++) {
        assert_true(store_put(fixture->store.store, &fixture->blocks[i]));
        assert_int_equal(store_get(fixture->store.store, &fixture->blocks[i]), STORE_RIGHT);
    }
}

static void test_a_damaged_secret(void **state) {
    struct damage_fixture *fixture = *state;
    struct kv_store_counts counts;
    assert_int_equal(truncate(store_path(&fixture->store, "secret"), 100), 0);
    assert_int_equal(count_right(fixture, &counts), 0); /* begins anew */
    assert_int_equal(counts.num_damaged, 0);
}

/* --- Processes --- */

#define NUM_HISTORIES 12

/* Writes blocks of all histories, in any order, until it is killed. */
static void write_forever(struct store_fixture *fixture, uint32_t seed) {
    struct store_block blocks[3];
    CHECK(store_open(fixture) == 0 && kv_store_is_owner(fixture->store));
    for (uint32_t i = seed;; i++) {
        store_make_chain(fixture->store, (int32_t)(i * 7 % NUM_HISTORIES), 0, blocks, 3);
        if (!kv_store_has(fixture->store, &blocks[i % 3].content))
            store_put(fixture->store, &blocks[i % 3]);
    }
}

/* Like fork. The child ends with its parent, which a failed assertion may end. */
static pid_t start_child(void) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* Returns how many blocks there are, all of which are right. */
static int check_histories(struct kv_store *store) {
    struct store_block blocks[3];
    int num_right = 0;
    for (int32_t history = 0; history < NUM_HISTORIES; history++) {
        store_make_chain(store, history, 0, blocks, 3);
        for (int i = 0; i < 3; i++) {
            enum store_result result = store_get(store, &blocks[i]);
            assert_int_not_equal(result, STORE_WRONG);
            num_right += result == STORE_RIGHT;
        }
    }
    return num_right;
}

static void test_killed_writers(void **state) {
    struct damage_fixture *fixture = *state;
    struct kv_store_counts counts;
    int num_found = 0;
    for (int i = 0; i < num_kills / 2; i++) {
        pid_t child = start_child();
        if (child == 0)
            write_forever(&fixture->store, random_below(1000));
        usleep(1000 + random_below(20000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(store_open(&fixture->store), 0);
        num_found += check_histories(fixture->store.store);
        kv_store_get_counts(fixture->store.store, &counts);
        assert_true(counts.num_damaged <= 1); /* a record that was half written */
        store_close(&fixture->store);
    }
    assert_true(num_found > num_kills / 2);
}

/* Waits until a store has a block, for some seconds. */
static bool wait_for(struct kv_store *store, const struct store_block *block) {
    int64_t end_ns = clock_now_ns() + 30 * CLOCK_NS_PER_S;
    while (store_get(store, block) != STORE_RIGHT) {
        struct kv_store_done none;
        assert_false(kv_store_next_done(store, &none)); /* which takes what was noticed */
        if (clock_now_ns() > end_ns)
            return false;
        usleep(1000);
    }
    return true;
}

/* Owns the store and writes a block for each byte that it reads. */
static void write_on_demand(struct store_fixture *fixture, int orders, int answers) {
    struct store_block chain[NUM_SLOTS];
    char order;
    CHECK(store_open(fixture) == 0 && kv_store_is_owner(fixture->store));
    store_make_chain(fixture->store, 2, 0, chain, NUM_SLOTS);
    for (int i = 0; write(answers, "", 1) == 1 && read(orders, &order, 1) == 1; i++)
        CHECK(store_put(fixture->store, &chain[i]));
    _exit(0);
}

static void test_a_reader_follows_and_takes_over(void **state) {
    struct damage_fixture *fixture = *state;
    struct store_fixture *mine = &fixture->store;
    struct store_block chain[NUM_SLOTS];
    int orders[2], answers[2];
    char answer;
    assert_true(pipe(orders) == 0 && pipe(answers) == 0);
    pid_t child = start_child();
    if (child == 0)
        write_on_demand(mine, orders[0], answers[1]);
    assert_int_equal(read(answers[0], &answer, 1), 1);
    assert_int_equal(store_open(mine), 0);
    assert_false(kv_store_is_owner(mine->store));
    assert_int_equal(store_get(mine->store, &fixture->blocks[0]), STORE_RIGHT);
    store_make_chain(mine->store, 2, 0, chain, NUM_SLOTS);
    assert_int_equal(store_get(mine->store, &chain[0]), STORE_MISS);
    assert_int_equal(write(orders[1], "x", 1), 1);
    assert_true(wait_for(mine->store, &chain[0]));
    assert_false(store_put(mine->store, &chain[1]));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    int64_t end_ns = clock_now_ns() + 30 * CLOCK_NS_PER_S;
    while (!kv_store_is_owner(mine->store) && clock_now_ns() < end_ns) {
        assert_int_equal(store_get(mine->store, &chain[0]), STORE_RIGHT);
        usleep(1000);
    }
    assert_true(kv_store_is_owner(mine->store));
    assert_true(store_put(mine->store, &chain[1]));
    assert_int_equal(store_get(mine->store, &chain[0]), STORE_RIGHT);
    assert_int_equal(store_get(mine->store, &chain[1]), STORE_RIGHT);
    for (int i = 0; i < 2; i++) {
        close(orders[i]);
        close(answers[i]);
    }
}

static void test_a_reader_of_a_busy_owner(void **state) {
    struct damage_fixture *fixture = *state;
    int num_found = 0;
    fixture->store.config.read_only = true;
    pid_t child = start_child();
    fixture->store.config.read_only = child != 0;
    if (child == 0)
        write_forever(&fixture->store, 5);
    for (int i = 0; i < 200; i++) { /* each open reads the records as they are then */
        assert_int_equal(store_open(&fixture->store), 0);
        num_found += check_histories(fixture->store.store);
        store_close(&fixture->store);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(num_found > 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flipped_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flipped_bits, set_up_encrypted, tear_down),
        cmocka_unit_test_setup_teardown(test_cut_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_swapped_slots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_swapped_slots, set_up_encrypted, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_while_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_damaged_secret, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_writers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_writers, set_up_encrypted, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reader_follows_and_takes_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reader_of_a_busy_owner, set_up, tear_down),
    };
    if (argc > 1)
        num_kills = atoi(argv[1]);
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
