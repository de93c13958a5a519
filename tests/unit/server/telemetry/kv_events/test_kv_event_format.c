/* What is written is read back with msgpack-c's own decoder, and compared as it prints it. */
#include "server/telemetry/kv_events/kv_event_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <msgpack.h>

#define BLOCK_SIZE 2
#define ROOT ((struct block_key){.low = 0xabc, .high = 0x123})

static const struct kv_event cleared = {.kind = KV_EVENT_CLEARED};

static struct kv_event stored(uint64_t key, uint64_t previous) {
    return (struct kv_event){.kind = KV_EVENT_STORED, .key = {key, 7}, .previous = {previous, 7}};
}

static struct kv_event first_stored(uint64_t key, bool is_private) {
    struct kv_event event = stored(key, 0);
    event.is_first = true;
    event.is_private = is_private;
    event.previous = ROOT;
    return event;
}

static struct kv_event removed(uint64_t key) {
    return (struct kv_event){.kind = KV_EVENT_REMOVED, .key = {key, 7}};
}

/* The tokens of the i-th event are 100 i and 100 i + 1. */
static void assert_written(const struct kv_event *events, int count, const char *expected) {
    struct byte_buffer buffer = {0}, out = {0};
    struct kv_event_batch batch;
    static char text[4096];
    msgpack_zone zone;
    msgpack_object object;
    size_t end = 0;
    kv_event_batch_begin(&buffer);
    for (int i = 0; i < count; i++) {
        const int32_t tokens[BLOCK_SIZE] = {100 * i, 100 * i + 1};
        kv_event_batch_add(&buffer, &events[i], events[i].kind == KV_EVENT_STORED ? tokens : NULL,
                           BLOCK_SIZE);
    }
    kv_event_batch_end(&buffer, 5, 1.5);
    const char *at = buffer.data;
    struct kv_event_iterator iterator = kv_event_batch_read(&at, BLOCK_SIZE, &batch);
    assert_true(at == buffer.data + buffer.length && batch.sequence == 5);
    kv_event_format(&batch, iterator, &out);
    assert_true(msgpack_zone_init(&zone, 2048));
    assert_int_equal(msgpack_unpack(out.data, out.length, &end, &zone, &object),
                     MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(end, out.length);
    msgpack_object_print_buffer(text, sizeof(text), object);
    assert_string_equal(text, expected);
    msgpack_zone_destroy(&zone);
    byte_buffer_finish(&buffer);
    byte_buffer_finish(&out);
}

#define STORED_BY(hashes, parent, tokens, id, name, more)                                          \
    "{\"type\"=>\"BlockStored\", \"block_hashes\"=>[" hashes "], \"parent_block_hash\"=>" parent   \
    ", \"token_ids\"=>[" tokens "], \"block_size\"=>2, \"lora_id\"=>" id                           \
    ", \"medium\"=>\"GPU\", \"lora_name\"=>" name more "}"
#define STORED(hashes, parent, tokens, more) STORED_BY(hashes, parent, tokens, "nil", "nil", more)
#define REMOVED(hashes)                                                                            \
    "{\"type\"=>\"BlockRemoved\", \"block_hashes\"=>[" hashes "], \"medium\"=>\"GPU\"}"
#define CLEARED "{\"type\"=>\"AllBlocksCleared\"}"

static void a_run_of_stored_blocks_is_one_event(void **state) {
    const struct kv_event events[] = {first_stored(UINT64_MAX, false), stored(12, UINT64_MAX),
                                      stored(13, 12)};
    assert_written(events, 3,
                   "[1.500000, [" STORED("18446744073709551615, 12, 13", "nil",
                                         "0, 1, 100, 101, 200, 201", "") "], 0]");
}

static void what_does_not_follow_begins_another_event(void **state) {
    const struct kv_event events[] = {stored(12, 11), stored(14, 11), first_stored(15, false),
                                      first_stored(16, false)};
    assert_written(events, 4,
                   "[1.500000, [" STORED("12", "11", "0, 1", "") ", " STORED(
                       "14", "11", "100, 101",
                       "") ", " STORED("15", "nil", "200, 201",
                                       "") ", " STORED("16", "nil", "300, 301", "") "], 0]");
}

/* The halves of the key that are not published count as well. */
static void a_predecessor_is_compared_whole(void **state) {
    struct kv_event events[] = {stored(12, 11), stored(13, 12)};
    events[1].previous.high = 8;
    assert_written(events, 2,
                   "[1.500000, [" STORED("12", "11", "0, 1", "") ", " STORED("13", "12", "100, 101",
                                                                             "") "], 0]");
}

static void a_private_history_has_an_extra_key(void **state) {
    const struct kv_event events[] = {first_stored(12, true), stored(13, 12), removed(1),
                                      stored(14, 13)};
    assert_written(events, 4,
                   "[1.500000, [" STORED(
                       "12, 13", "nil", "0, 1, 100, 101",
                       ", "
                       "\"extra_keys\"=>[[\"00000000000001230000000000000abc\"], "
                       "nil]") ", " REMOVED("1") ", " STORED("14", "13", "300, 301", "") "], 0]");
}

static void what_the_host_has_is_named_by_hashes(void **state) {
    const struct kv_event events[] = {{.kind = KV_EVENT_KEPT, .key = {12, 7}},
                                      {.kind = KV_EVENT_KEPT, .key = {30, 7}},
                                      {.kind = KV_EVENT_DROPPED, .key = {12, 7}},
                                      {.kind = KV_EVENT_DROPPED, .key = {30, 7}},
                                      removed(12),
                                      {.kind = KV_EVENT_KEPT, .key = {5, 7}}};
#define KEPT(hashes)                                                                               \
    "{\"type\"=>\"BlockStored\", \"block_hashes\"=>[" hashes                                       \
    "], \"parent_block_hash\"=>nil, \"token_ids\"=>[], \"block_size\"=>2, \"lora_id\"=>nil, "      \
    "\"medium\"=>\"CPU\", \"lora_name\"=>nil}"
    assert_written(
        events, 6,
        "[1.500000, [" KEPT("12, 30") ", {\"type\"=>\"BlockRemoved\", "
                                      "\"block_hashes\"=>[12, 30], \"medium\"=>\"CPU\"}, " REMOVED(
                                          "12") ", " KEPT("5") "], 0]");
}

/* Names of any length, next to tokens that are read in place. */
static void a_block_of_an_adapter_names_it(void **state) {
    struct kv_event events[] = {stored(12, 11), stored(13, 12), stored(14, 13), stored(15, 14),
                                removed(12)};
    events[0].adapter = events[1].adapter = (struct block_adapter){3, "sql"};
    events[2].adapter = (struct block_adapter){4, "a"};
    assert_written(
        events, 5,
        "[1.500000, [" STORED_BY("12, 13", "11", "0, 1, 100, 101", "3", "\"sql\"",
                                 "") ", " STORED_BY("14", "13", "200, 201", "4", "\"a\"",
                                                    "") ", " STORED("15", "14", "300, 301",
                                                                    "") ", " REMOVED("12"
                                                                                     "") "], 0]");
}

static void removed_blocks_are_one_event_and_order_stays(void **state) {
    const struct kv_event events[] = {removed(3), removed(2), cleared, cleared, removed(9)};
    assert_written(events, 5,
                   "[1.500000, [" REMOVED("3, 2") ", " CLEARED ", " CLEARED
                                                  ", " REMOVED("9") "], 0]");
}

/* As msgpack-c's decoder sees them, of every length that MessagePack has. */
static void numbers_of_all_lengths(void **state) {
    static const uint64_t keys[] = {0,     127,   128,        255,        256,
                                    65535, 65536, UINT32_MAX, 1ull << 32, UINT64_MAX};
    struct kv_event events[10];
    for (int i = 0; i < 10; i++)
        events[i] = removed(keys[i]);
    assert_written(events, 10,
                   "[1.500000, [" REMOVED("0, 127, 128, 255, 256, 65535, 65536, 4294967295, "
                                          "4294967296, 18446744073709551615") "], 0]");
}

static void a_batch_knows_whether_it_is_empty(void **state) {
    struct byte_buffer buffer = {.max_length = 200};
    const int32_t tokens[BLOCK_SIZE] = {1, 2};
    const struct kv_event event = stored(1, 2);
    kv_event_batch_begin(&buffer);
    assert_true(kv_event_batch_is_empty(&buffer));
    for (int i = 0; i < 20; i++)
        kv_event_batch_add(&buffer, &event, tokens, BLOCK_SIZE);
    assert_true(buffer.failed && !kv_event_batch_is_empty(&buffer));
    kv_event_batch_begin(&buffer);
    assert_true(!buffer.failed && kv_event_batch_is_empty(&buffer));
    byte_buffer_finish(&buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_of_stored_blocks_is_one_event),
        cmocka_unit_test(what_does_not_follow_begins_another_event),
        cmocka_unit_test(a_predecessor_is_compared_whole),
        cmocka_unit_test(a_private_history_has_an_extra_key),
        cmocka_unit_test(what_the_host_has_is_named_by_hashes),
        cmocka_unit_test(a_block_of_an_adapter_names_it),
        cmocka_unit_test(removed_blocks_are_one_event_and_order_stays),
        cmocka_unit_test(numbers_of_all_lengths),
        cmocka_unit_test(a_batch_knows_whether_it_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
