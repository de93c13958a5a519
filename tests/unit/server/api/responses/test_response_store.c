#include "server/api/responses/response_store.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAP ((size_t)RESPONSE_STORE_MIN_BYTES)

static struct text text_of(const char *literal) {
    return (struct text){literal, strlen(literal)};
}

static bool put(struct response_store *store, int32_t tenant, const char *id, const char *object) {
    const struct stored_response response = {
        .id = id,
        .tenant = tenant,
        .object = text_of(object),
        .items = text_of("{\"id\":\"a\"}\n{\"id\":\"b\"}\n"),
        .input_bytes = 11,
        .is_background = object[0] == 'b',
    };
    return response_store_put(store, &response);
}

static bool put_large(struct response_store *store, const char *id, size_t num_bytes) {
    char *object = calloc(1, num_bytes + 1);
    memset(object, 'x', num_bytes);
    bool is_kept = put(store, 0, id, object);
    free(object);
    return is_kept;
}

static bool has(struct response_store *store, int32_t tenant, const char *id) {
    struct response_reader reader = {0};
    bool is_there = response_store_open(store, tenant, text_of(id), false, &reader, NULL);
    response_reader_close(&reader);
    return is_there;
}

/* Reads by pieces of three bytes. */
static void check_bytes(struct response_reader *reader, const char *bytes) {
    char piece[3];
    size_t length = strlen(bytes), at = 0;
    assert_int_equal(reader->length, length);
    while (at < length) {
        ssize_t count = response_reader_read(reader, at, piece, sizeof(piece));
        assert_int_equal(count, length - at < 3 ? length - at : 3);
        assert_memory_equal(piece, bytes + at, (size_t)count);
        at += (size_t)count;
    }
    assert_int_equal(response_reader_read(reader, at, piece, sizeof(piece)), 0);
}

static void check_object(struct response_store *store, int32_t tenant, const char *id,
                         const char *object, bool is_background) {
    struct response_reader reader;
    bool found_background = !is_background;
    assert_true(response_store_open(store, tenant, text_of(id), false, &reader, &found_background));
    check_bytes(&reader, object);
    assert_int_equal(found_background, is_background);
    response_reader_close(&reader);
}

static void test_what_is_put_in_comes_out(void **state) {
    struct response_store *store = response_store_create(CAP);
    struct byte_buffer items = {0};
    size_t input_bytes = 0;
    assert_true(put(store, 3, "resp_1", "object"));
    assert_true(put(store, 3, "resp_2", "background"));
    check_object(store, 3, "resp_1", "object", false);
    check_object(store, 3, "resp_2", "background", true);
    assert_true(response_store_read_items(store, 3, text_of("resp_1"), &items, &input_bytes));
    assert_int_equal(items.length, 22);
    assert_int_equal(input_bytes, 11);
    assert_memory_equal(items.data, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", 22);
    byte_buffer_finish(&items);
    assert_false(has(store, 3, "resp_"));
    assert_false(has(store, 3, "resp_11"));
    assert_false(has(store, 3, ""));
    response_store_destroy(store);
}

static ssize_t seek_second(struct text events, void *context) {
    const char *second = memmem(events.data + 1, events.length - 1, "event", 5);
    return second != NULL ? second - events.data : -1;
}

static void test_events_are_kept_beside_the_items(void **state) {
    struct response_store *store = response_store_create(CAP);
    struct byte_buffer out = {0};
    struct response_reader reader;
    size_t input_bytes = 0;
    const struct stored_response response = {.id = "resp_1",
                                             .tenant = 3,
                                             .object = text_of("object"),
                                             .items = text_of("{\"id\":\"a\"}\n"),
                                             .events = text_of("event: a\n\nevent: b\n\n")};
    assert_true(response_store_put(store, &response));
    assert_true(put(store, 3, "resp_2", "object"));
    assert_true(response_store_open(store, 3, text_of("resp_1"), true, &reader, NULL));
    check_bytes(&reader, "event: a\n\nevent: b\n\n");
    assert_int_equal(response_reader_seek(&reader, seek_second, NULL), 10);
    check_bytes(&reader, "event: b\n\n");
    assert_int_equal(response_reader_seek(&reader, seek_second, NULL), -1);
    check_bytes(&reader, "event: b\n\n");
    response_reader_close(&reader);
    response_reader_close(&reader);
    assert_true(response_store_read_items(store, 3, text_of("resp_1"), &out, &input_bytes));
    assert_int_equal(out.length, 11);
    byte_buffer_finish(&out);
    assert_true(response_store_open(store, 3, text_of("resp_2"), true, &reader, NULL));
    check_bytes(&reader, "");
    response_reader_close(&reader);
    assert_false(response_store_open(store, 2, text_of("resp_1"), true, &reader, NULL));
    response_store_destroy(store);
}

/* Deleted or replaced, it stays, and counts, until the last of its readers has gone. */
static void test_readers_keep_what_is_deleted(void **state) {
    struct response_store *store = response_store_create(CAP);
    size_t empty = response_store_stats(store).bytes;
    struct response_reader readers[3];
    assert_true(put(store, 0, "resp_1", "object"));
    size_t one = response_store_stats(store).bytes - empty;
    for (int i = 0; i < 3; i++)
        assert_true(response_store_open(store, 0, text_of("resp_1"), false, &readers[i], NULL));
    assert_true(put(store, 0, "resp_1", "OBJECT"));
    assert_true(response_store_delete(store, 0, text_of("resp_1")));
    assert_false(has(store, 0, "resp_1"));
    assert_int_equal(response_store_stats(store).num_entries, 0);
    static const int order[] = {1, 2, 0}; /* the middle one of the list first */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(response_store_stats(store).bytes, empty + one);
        check_bytes(&readers[order[i]], "object");
        response_reader_close(&readers[order[i]]);
    }
    assert_int_equal(response_store_stats(store).bytes, empty);
    response_store_destroy(store);
}

/* Readers hold nobody up: what they read goes when it is the one used longest ago, deleted or
 * not; each piece that is read is a use. */
static void test_what_is_read_makes_room(void **state) {
    struct response_store *store = response_store_create(CAP);
    struct response_reader old, deleted, new;
    char piece[4];
    assert_true(put_large(store, "resp_1", 25000));
    assert_true(put_large(store, "resp_2", 25000));
    assert_true(response_store_open(store, 0, text_of("resp_1"), false, &old, NULL));
    assert_true(response_store_open(store, 0, text_of("resp_2"), false, &deleted, NULL));
    assert_true(response_store_delete(store, 0, text_of("resp_2")));
    assert_int_equal(response_reader_read(&old, 0, piece, 4), 4);
    assert_true(put_large(store, "resp_3", 25000));
    assert_int_equal(response_reader_read(&deleted, 0, piece, 4), -1);
    assert_int_equal(response_reader_read(&old, 0, piece, 4), 4);
    assert_true(response_store_open(store, 0, text_of("resp_3"), false, &new, NULL));
    assert_true(put_large(store, "resp_4", 25000));
    assert_int_equal(response_reader_read(&old, 0, piece, 4), -1);
    assert_int_equal(response_reader_seek(&old, seek_second, NULL), -1);
    assert_int_equal(response_reader_read(&new, 24998, piece, 4), 2);
    assert_int_equal(response_store_stats(store).num_evicted, 1);
    response_reader_close(&old);
    response_reader_close(&deleted);
    response_reader_close(&new);
    assert_true(response_store_stats(store).bytes <= CAP);
    response_store_destroy(store);
}

/* Puts the turn behind another one (-1: none): a line of 500 bytes of input and one of output. */
static bool put_turn(struct response_store *store, int turn, int previous) {
    char id[32], previous_id[32], items[1001];
    struct byte_buffer before = {0};
    snprintf(id, sizeof(id), "resp_%d", turn);
    snprintf(previous_id, sizeof(previous_id), "resp_%d", previous);
    memset(items, 'a' + turn % 26, 1000);
    items[499] = items[999] = '\n';
    const struct stored_response response = {
        .id = id,
        .object = {"{}", 2},
        .previous = response_store_hold_items(store, 0, text_of(previous_id), &before),
        .items = {items, 1000},
        .input_bytes = 500,
    };
    bool is_kept = response_store_put(store, &response);
    response_store_release_items(store, response.previous);
    byte_buffer_finish(&before);
    return is_kept;
}

/* Expects the items of turns first to last, in their order. */
static void check_turns(struct response_store *store, int turn, int first) {
    char id[32];
    struct byte_buffer out = {0};
    size_t input_bytes = 0, num_turns = (size_t)(turn - first) + 1;
    snprintf(id, sizeof(id), "resp_%d", turn);
    assert_true(response_store_read_items(store, 0, text_of(id), &out, &input_bytes));
    assert_int_equal(out.length, 1000 * num_turns);
    assert_int_equal(input_bytes, 1000 * num_turns - 500);
    for (size_t i = 0; i < num_turns; i++)
        assert_int_equal(out.data[1000 * i], 'a' + (first + (int)i) % 26);
    byte_buffer_finish(&out);
}

static void test_a_chain_costs_the_sum_of_its_turns(void **state) {
    struct response_store *store = response_store_create(4 * CAP);
    size_t empty = response_store_stats(store).bytes;
    assert_true(put_turn(store, 0, -1));
    size_t one = response_store_stats(store).bytes - empty;
    for (int i = 1; i < 50; i++)
        assert_true(put_turn(store, i, i - 1));
    size_t all = response_store_stats(store).bytes - empty;
    assert_true(all <= 50 * one + 50); /* the ids of two digits */
    check_turns(store, 49, 0);
    for (int i = 10; i < 40; i++) {
        char id[32];
        snprintf(id, sizeof(id), "resp_%d", i);
        assert_true(response_store_delete(store, 0, text_of(id)));
    }
    check_turns(store, 49, 0);
    check_turns(store, 9, 0);
    assert_true(response_store_stats(store).bytes < empty + all);
    assert_true(response_store_stats(store).bytes > empty + 50 * 1000);
    for (int i = 0; i < 50; i++) {
        char id[32];
        snprintf(id, sizeof(id), "resp_%d", i);
        assert_int_equal(response_store_delete(store, 0, text_of(id)), i < 10 || i >= 40);
    }
    assert_int_equal(response_store_stats(store).bytes, empty);
    response_store_destroy(store);
}

/* Two that continue the same one, which goes. */
static void test_branches_share_their_beginning(void **state) {
    struct response_store *store = response_store_create(CAP);
    size_t empty = response_store_stats(store).bytes;
    assert_true(put_turn(store, 0, -1));
    assert_true(put_turn(store, 1, 0));
    size_t bytes = response_store_stats(store).bytes;
    assert_true(put_turn(store, 2, 0));
    assert_int_equal(response_store_stats(store).bytes - bytes, (bytes - empty) / 2);
    assert_true(response_store_delete(store, 0, text_of("resp_0")));
    assert_true(put_turn(store, 1, -1)); /* in the place of what shared */
    check_turns(store, 1, 1);
    struct byte_buffer out = {0};
    size_t input_bytes = 0;
    assert_true(response_store_read_items(store, 0, text_of("resp_2"), &out, &input_bytes));
    assert_int_equal(out.length, 2000);
    assert_int_equal(out.data[0], 'a');
    assert_int_equal(out.data[1000], 'c');
    byte_buffer_finish(&out);
    response_store_destroy(store);
}

/* The first turns go for the later ones, which have all the same what they need; and what is held
 * counts, so that nothing has room when it is all. */
static void test_a_chain_longer_than_the_cap(void **state) {
    struct response_store *store = response_store_create(CAP);
    int num_kept = 0;
    while (put_turn(store, num_kept, num_kept - 1)) {
        assert_true(response_store_stats(store).bytes <= CAP);
        check_turns(store, num_kept, 0);
        assert_true(++num_kept < 1000);
    }
    assert_true(num_kept > 55);
    assert_true(response_store_stats(store).num_evicted > 0);
    struct response_store_stats stats = response_store_stats(store);
    assert_int_equal(stats.num_refused, 1);
    assert_true(stats.num_entries > 0); /* nothing went for what has no room */
    assert_true(put_turn(store, 0, -1));
    check_turns(store, 0, 0);
    assert_true(response_store_stats(store).bytes < CAP);
    response_store_destroy(store);
}

static void test_tenants_do_not_see_each_other(void **state) {
    struct response_store *store = response_store_create(CAP);
    assert_true(put(store, 1, "resp_1", "one"));
    for (int32_t other = -1; other < 200; other++) /* some are in the same bucket */
        assert_int_equal(has(store, other, "resp_1"), other == 1);
    assert_false(response_store_delete(store, 2, text_of("resp_1")));
    assert_true(put(store, 2, "resp_1", "two"));
    check_object(store, 1, "resp_1", "one", false);
    check_object(store, 2, "resp_1", "two", false);
    assert_true(response_store_delete(store, 2, text_of("resp_1")));
    assert_false(has(store, 2, "resp_1"));
    check_object(store, 1, "resp_1", "one", false);
    response_store_destroy(store);
}

static void test_a_new_one_takes_the_place_of_its_id(void **state) {
    struct response_store *store = response_store_create(CAP);
    assert_true(put(store, 0, "resp_1", "object"));
    size_t bytes = response_store_stats(store).bytes;
    assert_true(put(store, 0, "resp_1", "OBJECT"));
    check_object(store, 0, "resp_1", "OBJECT", false);
    struct response_store_stats stats = response_store_stats(store);
    assert_int_equal(stats.bytes, bytes);
    assert_int_equal(stats.num_entries, 1);
    assert_int_equal(stats.num_evicted, 0);
    response_store_destroy(store);
}

static void test_what_is_deleted_gives_its_bytes_back(void **state) {
    struct response_store *store = response_store_create(CAP);
    size_t bytes = response_store_stats(store).bytes;
    assert_true(bytes > 0);
    assert_true(put(store, 0, "resp_1", "object"));
    assert_true(response_store_stats(store).bytes > bytes + strlen("resp_1object") + 22);
    assert_true(response_store_delete(store, 0, text_of("resp_1")));
    assert_false(response_store_delete(store, 0, text_of("resp_1")));
    assert_int_equal(response_store_stats(store).bytes, bytes);
    assert_int_equal(response_store_stats(store).num_entries, 0);
    response_store_destroy(store);
}

/* Of three of which two have room, the one that was read stays. */
static void test_the_one_used_longest_ago_goes(void **state) {
    struct response_store *store = response_store_create(CAP);
    assert_true(put_large(store, "resp_1", 25000));
    assert_true(put_large(store, "resp_2", 25000));
    assert_true(has(store, 0, "resp_1"));
    assert_true(put_large(store, "resp_3", 25000));
    assert_true(has(store, 0, "resp_1"));
    assert_false(has(store, 0, "resp_2"));
    assert_true(has(store, 0, "resp_3"));
    assert_int_equal(response_store_stats(store).num_evicted, 1);
    response_store_destroy(store);
}

static void test_the_cap_is_never_passed(void **state) {
    struct response_store *store = response_store_create(CAP);
    for (int i = 0; i < 2000; i++) {
        char id[32];
        snprintf(id, sizeof(id), "resp_%d", i);
        assert_true(put_large(store, id, (size_t)(i * 7919) % 20000));
        assert_true(response_store_stats(store).bytes <= CAP);
        assert_true(has(store, 0, id));
    }
    struct response_store_stats stats = response_store_stats(store);
    assert_int_equal(stats.num_entries + stats.num_evicted, 2000);
    assert_true(stats.num_evicted > 1900);
    response_store_destroy(store);
}

/* What fits by a byte is kept, one byte more is not, and nothing goes for it. */
static void test_too_large_is_refused(void **state) {
    struct response_store *store = response_store_create(CAP);
    size_t most = CAP;
    while (most > 0 && !put_large(store, "resp_large", most))
        most--;
    assert_true(most > CAP / 2);
    size_t refused = CAP - most;
    struct response_store_stats stats = response_store_stats(store);
    assert_int_equal(stats.num_refused, refused);
    assert_int_equal(stats.bytes, CAP);
    assert_false(put_large(store, "resp_larger", most));
    assert_true(has(store, 0, "resp_large"));
    assert_int_equal(response_store_stats(store).num_evicted, 0);
    response_store_refuse(store);
    assert_int_equal(response_store_stats(store).num_refused, refused + 2);
    response_store_destroy(store);
}

static void test_no_store_has_nothing(void **state) {
    assert_int_equal(response_store_stats(NULL).bytes, 0);
    response_store_destroy(NULL);
}

#define ROUNDS 4000

static void *use_store(void *context) {
    struct response_store *store = context;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    for (int i = 0; i < ROUNDS; i++) {
        char id[32];
        snprintf(id, sizeof(id), "resp_%d", rand_r(&seed) % 50);
        struct byte_buffer out = {0};
        size_t input_bytes = 0;
        struct response_reader reader = {0};
        char piece[8];
        int what = rand_r(&seed) % 5;
        if (what == 0)
            put(store, 0, id, "object");
        else if (what == 1)
            put_large(store, id, (size_t)rand_r(&seed) % 9000);
        else if (what == 2)
            response_store_delete(store, 0, text_of(id));
        else if (what == 3 && response_store_open(store, 0, text_of(id), false, &reader, NULL))
            response_reader_read(&reader, (size_t)rand_r(&seed) % 9000, piece, sizeof(piece));
        else
            response_store_read_items(store, 0, text_of(id), &out, &input_bytes);
        if (out.length != 0 && out.length != 22)
            abort();
        byte_buffer_finish(&out);
        response_reader_close(&reader);
        if (response_store_stats(store).bytes > CAP)
            abort();
    }
    return NULL;
}

static void test_two_threads(void **state) {
    struct response_store *store = response_store_create(CAP);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, use_store, store), 0);
    use_store(store);
    pthread_join(other, NULL);
    assert_true(response_store_stats(store).num_entries <= 50);
    response_store_destroy(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_put_in_comes_out),
        cmocka_unit_test(test_events_are_kept_beside_the_items),
        cmocka_unit_test(test_readers_keep_what_is_deleted),
        cmocka_unit_test(test_what_is_read_makes_room),
        cmocka_unit_test(test_a_chain_costs_the_sum_of_its_turns),
        cmocka_unit_test(test_branches_share_their_beginning),
        cmocka_unit_test(test_a_chain_longer_than_the_cap),
        cmocka_unit_test(test_tenants_do_not_see_each_other),
        cmocka_unit_test(test_a_new_one_takes_the_place_of_its_id),
        cmocka_unit_test(test_what_is_deleted_gives_its_bytes_back),
        cmocka_unit_test(test_the_one_used_longest_ago_goes),
        cmocka_unit_test(test_the_cap_is_never_passed),
        cmocka_unit_test(test_too_large_is_refused),
        cmocka_unit_test(test_no_store_has_nothing),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
