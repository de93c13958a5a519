/* A disk that does not answer: jobs end without it, their parts are not touched after that, and a
 * store is closed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/log.h"
#include "tests/unit/engine/kv/kv_store_fixture.h"

#include <pthread.h>

#define UNTOUCHED 0x5a

/* What hangs: calls of that kind, once they are that large. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs[2]; /* writes, reads */
static int num_hanging;

ssize_t __real_pread64(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread64(int fd, void *data, size_t bytes, off_t at);
ssize_t __real_pwrite64(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t bytes, off_t at);

static void hang(bool is_read, size_t bytes) {
    pthread_mutex_lock(&lock);
    bool is_block = bytes >= STORE_SLOT_BYTES;
    num_hanging += is_block;
    pthread_cond_broadcast(&changed);
    while (hangs[is_read] && is_block)
        pthread_cond_wait(&changed, &lock);
    num_hanging -= is_block;
    pthread_mutex_unlock(&lock);
}

ssize_t __wrap_pread64(int fd, void *data, size_t bytes, off_t at) {
    hang(true, bytes);
    return __real_pread64(fd, data, bytes, at);
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t bytes, off_t at) {
    hang(false, bytes);
    return __real_pwrite64(fd, data, bytes, at);
}

static void set_hang(bool is_read, bool value) {
    pthread_mutex_lock(&lock);
    hangs[is_read] = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void await_hang(void) {
    pthread_mutex_lock(&lock);
    while (num_hanging == 0)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

struct hang_fixture {
    struct store_fixture store;
    struct store_block blocks[4];
    unsigned char data[STORE_BLOCK_BYTES];
};

static int make_fixture(void **state, bool is_shared) {
    static struct hang_fixture fixture;
    store_set_up(&fixture.store, 10);
    fixture.store.config.is_shared = is_shared;
    *state = &fixture;
    if (store_open(&fixture.store) != 0)
        return -1;
    store_make_chain(fixture.store.store, 1, 0, fixture.blocks, 4);
    return store_put(fixture.store.store, &fixture.blocks[0]) ? 0 : -1;
}

static int set_up(void **state) {
    return make_fixture(state, false);
}

static int set_up_shared(void **state) {
    return make_fixture(state, true);
}

static int tear_down(void **state) {
    struct hang_fixture *fixture = *state;
    set_hang(true, false);
    set_hang(false, false);
    store_tear_down(&fixture->store);
    return 0;
}

static bool begin_read(struct hang_fixture *fixture) {
    const struct kv_store_part part = {fixture->data, STORE_BLOCK_BYTES};
    memset(fixture->data, UNTOUCHED, STORE_BLOCK_BYTES);
    set_hang(true, true);
    if (!kv_store_read(fixture->store.store, &fixture->blocks[0].content, &part, 1, 1))
        return false;
    await_hang();
    return true;
}

static bool begin_write(struct hang_fixture *fixture) {
    const struct kv_store_part part = {fixture->data, STORE_BLOCK_BYTES};
    store_fill(&fixture->blocks[1], fixture->data);
    set_hang(false, true);
    if (!kv_store_write(fixture->store.store, &fixture->blocks[1].content,
                        fixture->blocks[1].tokens[0], &part, 1, 2))
        return false;
    await_hang();
    return true;
}

static void assert_untouched(const struct hang_fixture *fixture) {
    for (int i = 0; i < STORE_BLOCK_BYTES; i++)
        assert_int_equal(fixture->data[i], UNTOUCHED);
}

static void test_draining_a_read_that_hangs(void **state) {
    struct hang_fixture *fixture = *state;
    struct kv_store *store = fixture->store.store;
    struct kv_store_done done;
    assert_true(begin_read(fixture));
    assert_true(kv_store_reading_ns(store) > 0);
    assert_false(kv_store_next_done(store, &done));
    kv_store_drain(store);
    assert_true(kv_store_next_done(store, &done));
    assert_true(done.is_read && !done.is_ok && done.tag == 1);
    assert_true(kv_store_is_idle(store));
    set_hang(true, false); /* what it reads goes nowhere */
    assert_int_equal(store_get(store, &fixture->blocks[0]), STORE_RIGHT);
    assert_untouched(fixture);
    assert_false(kv_store_next_done(store, &done));
}

static void test_draining_a_write_that_hangs(void **state) {
    struct hang_fixture *fixture = *state;
    struct kv_store *store = fixture->store.store;
    struct kv_store_done done;
    assert_true(begin_write(fixture));
    kv_store_drain(store);
    assert_true(kv_store_next_done(store, &done));
    assert_true(!done.is_read && !done.is_ok && done.tag == 2);
    assert_false(kv_store_has(store, &fixture->blocks[1].content));
    memset(fixture->data, 0, STORE_BLOCK_BYTES); /* it writes what it had copied */
    set_hang(false, false);
    assert_true(store_put(store, &fixture->blocks[2]));
    for (int i = 0; i < 3; i += 2)
        assert_int_equal(store_get(store, &fixture->blocks[i]), STORE_RIGHT);
    assert_int_not_equal(store_get(store, &fixture->blocks[1]), STORE_WRONG);
    store_close(&fixture->store);
    assert_int_equal(store_open(&fixture->store), 0);
    assert_int_not_equal(store_get(fixture->store.store, &fixture->blocks[1]), STORE_WRONG);
}

static void test_a_read_that_hangs_is_given_up(void **state) {
    struct hang_fixture *fixture = *state;
    struct kv_store *store = fixture->store.store;
    assert_true(begin_read(fixture));
    struct kv_store_done done = store_wait(store);
    assert_true(done.is_read && !done.is_ok);
    assert_false(kv_store_has(store, &fixture->blocks[0].content));
    assert_true(store_put(store, &fixture->blocks[1])); /* the other thread goes on */
    set_hang(true, false);
    while (!kv_store_has(store, &fixture->blocks[0].content))
        kv_store_next_done(store, &done);
    assert_int_equal(store_get(store, &fixture->blocks[0]), STORE_RIGHT);
    assert_untouched(fixture);
}

static void test_a_write_that_hangs_is_given_up(void **state) {
    struct hang_fixture *fixture = *state;
    struct kv_store *store = fixture->store.store;
    const struct kv_store_part part = {fixture->data, STORE_BLOCK_BYTES};
    assert_true(begin_write(fixture));
    assert_true(kv_store_write(store, &fixture->blocks[2].content, 0, &part, 1, 3));
    bool is_reported[4] = {false};
    for (int i = 0; i < 2; i++) {
        struct kv_store_done done = store_wait(store);
        assert_true(!done.is_read && !done.is_ok);
        is_reported[done.tag] = true;
    }
    assert_true(is_reported[2] && is_reported[3]);
    assert_false(kv_store_write(store, &fixture->blocks[2].content, 0, &part, 1, 3));
    assert_int_equal(store_get(store, &fixture->blocks[0]), STORE_RIGHT);
    set_hang(false, false);
    struct kv_store_done none;
    while (!store_put(store, &fixture->blocks[3]))
        assert_false(kv_store_next_done(store, &none));
    assert_int_equal(store_get(store, &fixture->blocks[3]), STORE_RIGHT);
}

/* Last: the threads are left, hang until the process ends, and have memory that they use. */
static void test_closing_a_store_that_hangs(void **state) {
    struct hang_fixture *fixture = *state;
    assert_true(begin_read(fixture));
    set_hang(false, true);
    store_close(&fixture->store);
    assert_untouched(fixture);
    temporary_folder_remove(&fixture->store.folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_draining_a_read_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_draining_a_read_that_hangs, set_up_shared, tear_down),
        cmocka_unit_test_setup_teardown(test_draining_a_write_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_draining_a_write_that_hangs, set_up_shared, tear_down),
        cmocka_unit_test_setup_teardown(test_a_read_that_hangs_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_write_that_hangs_is_given_up, set_up_shared,
                                        tear_down),
        cmocka_unit_test_setup(test_closing_a_store_that_hangs, set_up),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
