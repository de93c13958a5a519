/* What is put in comes out in order; what finds no room is counted; nobody who puts waits. */
#include "server/process/outbox.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOREVER_MS 60000

/* A receiver that waits at a gate. */
struct receiver {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open;
    int num_begun, num_empty;
    int32_t num_items, num_refused;
    char text[4096];
};

static int32_t receive(void *context, const struct byte_buffer *items, int32_t num_items) {
    struct receiver *r = context;
    pthread_mutex_lock(&r->lock);
    r->num_begun++;
    pthread_cond_broadcast(&r->changed);
    while (!r->is_open)
        pthread_cond_wait(&r->changed, &r->lock);
    r->num_empty += num_items == 0;
    r->num_items += num_items;
    strncat(r->text, items->length > 0 ? items->data : "", items->length);
    pthread_mutex_unlock(&r->lock);
    return num_items < r->num_refused ? num_items : r->num_refused;
}

static void init(struct receiver *r, bool is_open) {
    *r = (struct receiver){.is_open = is_open};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
}

static struct outbox *create(struct receiver *r, size_t max_bytes, int32_t max_items) {
    const struct outbox_config config = {.name = "test",
                                         .max_bytes = max_bytes,
                                         .max_items = max_items,
                                         .deliver = receive,
                                         .context = r};
    struct outbox *outbox;
    struct error err;
    assert_int_equal(outbox_create(&config, &outbox, &err), 0);
    return outbox;
}

static void await_begun(struct receiver *r, int count) {
    pthread_mutex_lock(&r->lock);
    while (r->num_begun < count)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

static void open_gate(struct receiver *r) {
    pthread_mutex_lock(&r->lock);
    r->is_open = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void put(struct outbox *outbox, const char *text) {
    outbox_put(outbox, text, strlen(text));
}

static void test_order_and_end(void **state) {
    struct receiver r;
    char expected[512] = "";
    init(&r, true);
    struct outbox *outbox = create(&r, 1000, 1000);
    for (int i = 0; i < 100; i++) {
        char item[8];
        snprintf(item, sizeof(item), "%d,", i);
        strcat(expected, item);
        put(outbox, item);
    }
    assert_true(outbox_destroy(outbox, FOREVER_MS));
    assert_string_equal(r.text, expected);
    assert_int_equal(r.num_items, 100);
}

static void test_bounds(void **state) {
    struct receiver r;
    init(&r, false);
    struct outbox *outbox = create(&r, 10, 4);
    put(outbox, "first"); /* taken out, and held at the gate */
    await_begun(&r, 1);
    put(outbox, "12345678");
    put(outbox, "xyz"); /* 11 bytes */
    put(outbox, "9");
    put(outbox, "0");
    assert_int_equal(outbox_num_lost(outbox), 1);
    put(outbox, ""); /* the fourth item */
    put(outbox, "");
    assert_int_equal(outbox_num_lost(outbox), 2);
    open_gate(&r);
    assert_true(outbox_destroy(outbox, FOREVER_MS));
    assert_string_equal(r.text, "first1234567890");
}

static void test_refused_items_count(void **state) {
    struct receiver r;
    init(&r, false);
    r.num_refused = 1;
    struct outbox *outbox = create(&r, 100, 100);
    put(outbox, "a");
    await_begun(&r, 1);
    put(outbox, "b");
    open_gate(&r);
    await_begun(&r, 2);
    outbox_wake(outbox);
    await_begun(&r, 3); /* the second batch is done and counted */
    assert_int_equal(outbox_num_lost(outbox), 2);
    outbox_count_lost(outbox);
    assert_int_equal(outbox_num_lost(outbox), 3);
    assert_true(outbox_destroy(outbox, FOREVER_MS));
}

static void test_wake_without_items(void **state) {
    struct receiver r;
    init(&r, true);
    struct outbox *outbox = create(&r, 100, 100);
    outbox_wake(outbox);
    await_begun(&r, 1);
    assert_false(outbox_is_stopping(outbox));
    assert_true(outbox_destroy(outbox, FOREVER_MS));
    assert_true(r.num_empty >= 1);
}

/* A receiver that never returns does not keep the end from coming. */
static void test_end_without_the_receiver(void **state) {
    static struct receiver r; /* its thread outlives the test */
    init(&r, false);
    struct outbox *outbox = create(&r, 100, 100);
    put(outbox, "a");
    await_begun(&r, 1);
    assert_false(outbox_destroy(outbox, 10));
    assert_true(outbox_is_stopping(outbox));
    open_gate(&r);
    assert_true(outbox_destroy(outbox, FOREVER_MS));
    assert_true(outbox_destroy(NULL, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_end),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_refused_items_count),
        cmocka_unit_test(test_wake_without_items),
        cmocka_unit_test(test_end_without_the_receiver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
