#include "server/telemetry/kv_events/kv_event_replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void keep(struct replay_buffer *buffer, uint64_t sequence, size_t length) {
    char data[64];
    memset(data, 'a' + (int)(sequence % 26), sizeof(data));
    replay_buffer_keep(buffer, sequence, data, length);
}

static void assert_found(const struct replay_buffer *buffer, uint64_t sought, uint64_t found,
                         size_t length) {
    const struct replay_entry *entry = replay_buffer_find(buffer, sought);
    assert_non_null(entry);
    assert_int_equal(entry->sequence, found);
    assert_int_equal(entry->length, length);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(entry->data[i], 'a' + (int)(found % 26));
}

static void the_last_entries_are_kept(void **state) {
    struct replay_buffer buffer;
    assert_int_equal(replay_buffer_init(&buffer, 3, 1000), 0);
    assert_null(replay_buffer_find(&buffer, 0));
    assert_int_equal(replay_buffer_last(&buffer), 0);
    for (uint64_t i = 0; i < 10; i++)
        keep(&buffer, i, 10 + i);
    assert_int_equal(replay_buffer_last(&buffer), 9);
    assert_found(&buffer, 0, 7, 17);
    assert_found(&buffer, 8, 8, 18);
    assert_null(replay_buffer_find(&buffer, 10));
    replay_buffer_finish(&buffer);
    replay_buffer_finish(&buffer);
}

static void gaps_are_passed_over(void **state) {
    struct replay_buffer buffer;
    assert_int_equal(replay_buffer_init(&buffer, 8, 1000), 0);
    keep(&buffer, 2, 1);
    keep(&buffer, 5, 2);
    keep(&buffer, 9, 3);
    assert_found(&buffer, 0, 2, 1);
    assert_found(&buffer, 3, 5, 2);
    assert_found(&buffer, 6, 9, 3);
    replay_buffer_finish(&buffer);
}

static void bytes_are_bounded(void **state) {
    struct replay_buffer buffer;
    assert_int_equal(replay_buffer_init(&buffer, 100, 50), 0);
    for (uint64_t i = 0; i < 6; i++)
        keep(&buffer, i, 20);
    assert_int_equal(buffer.num_entries, 2);
    assert_int_equal(buffer.num_bytes, 40);
    assert_found(&buffer, 0, 4, 20);
    keep(&buffer, 6, 51); /* larger than all that may be kept: left out */
    assert_int_equal(replay_buffer_last(&buffer), 5);
    keep(&buffer, 7, 50); /* drives all others out */
    assert_found(&buffer, 0, 7, 50);
    assert_int_equal(buffer.num_entries, 1);
    replay_buffer_finish(&buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_entries_are_kept),
        cmocka_unit_test(gaps_are_passed_over),
        cmocka_unit_test(bytes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
