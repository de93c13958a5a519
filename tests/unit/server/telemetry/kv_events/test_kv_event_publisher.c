/* Real sockets of ZeroMQ, with subscribers that read and that do not. */
#include "server/telemetry/kv_events/kv_event_publisher.h"

#include "server/net/listen_socket.h"
#include "server/telemetry/kv_events/kv_event_format.h"
#include "server/telemetry/kv_events/kv_event_socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCK_SIZE 64
#define PATIENCE_MS 20000

/* libzmq is not built with ThreadSanitizer, which would take its memory, handed from thread to
 * thread by atomics that it does not see, for races: thousands of reports, of minutes. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
    return "called_from_lib:libzmq.so.5";
}

static struct zmq_library zmq;
static char folder[] = "/tmp/quire-kv-events-XXXXXX";

struct fixture {
    struct kv_event_config config;
    struct kv_event_publisher *publisher;
    const struct kv_event_sink *sink;
    void *context, *subscriber;
};

static void set_int(void *socket, int option, int value) {
    assert_int_equal(zmq.setsockopt_(socket, option, &value, sizeof(value)), 0);
}

static void set_endpoint(struct kv_event_endpoint *endpoint, const char *name) {
    snprintf(endpoint->path, sizeof(endpoint->path), "%s/%s", folder, name);
    snprintf(endpoint->text, sizeof(endpoint->text), "ipc://%s", endpoint->path);
}

static struct kv_event_config default_config(void) {
    struct kv_event_config config = {.is_enabled = true,
                                     .binds = true,
                                     .topic = "topic",
                                     .buffer_steps = 100000,
                                     .hwm = 100000,
                                     .max_queue_size = 100000};
    set_endpoint(&config.endpoint, "events");
    set_endpoint(&config.replay, "replay");
    return config;
}

static void *connect_socket(struct fixture *f, int type, const char *endpoint, int receive_hwm) {
    void *socket = zmq.socket_(f->context, type);
    assert_non_null(socket);
    set_int(socket, ZMQ_RCVTIMEO, PATIENCE_MS);
    set_int(socket, ZMQ_LINGER, 0);
    set_int(socket, ZMQ_RCVHWM, receive_hwm);
    if (type == ZMQ_SUB)
        assert_int_equal(zmq.setsockopt_(socket, ZMQ_SUBSCRIBE, "top", 3), 0);
    assert_int_equal(zmq.connect_(socket, endpoint), 0);
    return socket;
}

/* One batch with that many stored blocks. */
static void publish(const struct fixture *f, int num_blocks) {
    int32_t tokens[BLOCK_SIZE];
    for (int i = 0; i < BLOCK_SIZE; i++)
        tokens[i] = 100000 + i;
    const struct stored_block block = {.tokens = tokens, .is_first = true};
    for (int i = 0; i < num_blocks; i++)
        f->sink->stored(f->sink->context, &block);
    f->sink->end_step(f->sink->context);
}

static struct kv_event_stats stats_of(const struct fixture *f) {
    struct kv_event_stats stats;
    kv_event_publisher_get_stats(f->publisher, &stats);
    return stats;
}

/* Receives [topic, number, batch]; returns the number. */
static uint64_t receive(void *socket) {
    char topic[8], batch[16];
    unsigned char number[KV_EVENT_NUMBER_BYTES];
    assert_int_equal(zmq.recv_(socket, topic, sizeof(topic), 0), 5);
    assert_memory_equal(topic, "topic", 5);
    assert_int_equal(zmq.recv_(socket, number, sizeof(number), 0), sizeof(number));
    assert_true(zmq.recv_(socket, batch, sizeof(batch), 0) > 0);
    assert_int_equal((unsigned char)batch[0], 0x93); /* an array of 3 */
    return kv_event_number_read(number);
}

/* Publishes until the subscriber, whose connection takes a while, gets something. Returns the
 * number that it got first. */
static uint64_t join(struct fixture *f) {
    set_int(f->subscriber, ZMQ_RCVTIMEO, 10);
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        char topic[8];
        publish(f, 1);
        if (zmq.recv_(f->subscriber, topic, sizeof(topic), 0) < 0)
            continue;
        unsigned char number[KV_EVENT_NUMBER_BYTES];
        char batch[16];
        set_int(f->subscriber, ZMQ_RCVTIMEO, PATIENCE_MS);
        assert_int_equal(zmq.recv_(f->subscriber, number, sizeof(number), 0), sizeof(number));
        assert_true(zmq.recv_(f->subscriber, batch, sizeof(batch), 0) > 0);
        return kv_event_number_read(number);
    }
    fail_msg("nothing came");
    return 0;
}

/* Returns the number that follows what was received. */
static uint64_t join_and_catch_up(struct fixture *f) {
    uint64_t number = join(f), end = stats_of(f).batches;
    while (number + 1 < end)
        assert_int_equal(receive(f->subscriber), ++number);
    return number + 1;
}

static void start(struct fixture *f, const struct kv_event_config *config, int receive_hwm) {
    struct error err;
    *f = (struct fixture){.config = *config};
    if (kv_event_publisher_open(config, BLOCK_SIZE, &f->publisher, &err) != 0)
        fail_msg("%s", err.message);
    f->sink = kv_event_publisher_sink(f->publisher);
    f->context = zmq.ctx_new_();
    f->subscriber = connect_socket(f, ZMQ_SUB, config->endpoint.text, receive_hwm);
}

static void finish(struct fixture *f) {
    kv_event_publisher_close(f->publisher);
    zmq.close_(f->subscriber);
    zmq.ctx_term_(f->context);
}

static void batches_come_in_order(void **state) {
    struct fixture f;
    const struct kv_event_config config = default_config();
    start(&f, &config, 0);
    uint64_t next = join_and_catch_up(&f);
    f.sink->end_step(f.sink->context); /* nothing happened: no batch */
    for (int i = 0; i < 200; i++)
        publish(&f, 1 + i % 3);
    for (int i = 0; i < 200; i++)
        assert_int_equal(receive(f.subscriber), next++);
    assert_int_equal(stats_of(&f).batches, next);
    assert_int_equal(stats_of(&f).lost_batches, 0);
    finish(&f);
    assert_int_not_equal(access(config.endpoint.path, F_OK), 0);
}

/* Asks for all from `first` on; returns how many came, in order. */
static uint64_t replay(struct fixture *f, uint64_t first) {
    unsigned char number[KV_EVENT_NUMBER_BYTES];
    char batch[16], empty[1];
    uint64_t count = 0, last = 0;
    void *socket = connect_socket(f, ZMQ_DEALER, f->config.replay.text, 0);
    kv_event_number_write(first, number);
    assert_int_equal(zmq.send_(socket, "", 0, ZMQ_SNDMORE), 0);
    assert_int_equal(zmq.send_(socket, number, sizeof(number), 0), sizeof(number));
    while (true) {
        assert_int_equal(zmq.recv_(socket, empty, sizeof(empty), 0), 0);
        assert_int_equal(zmq.recv_(socket, number, sizeof(number), 0), sizeof(number));
        int length = zmq.recv_(socket, batch, sizeof(batch), 0);
        uint64_t sequence = kv_event_number_read(number);
        if (sequence == UINT64_MAX) {
            assert_int_equal(length, 0);
            break;
        }
        assert_true(length > 0 && sequence >= first && (count == 0 || sequence > last));
        last = sequence;
        count++;
    }
    zmq.close_(socket);
    return count;
}

/* What it does not take is lost for it alone, and the replay has it. */
static void a_subscriber_that_does_not_read_holds_nobody_up(void **state) {
    struct fixture f;
    struct kv_event_config config = default_config();
    config.hwm = 1;
    start(&f, &config, 1);
    uint64_t next = join_and_catch_up(&f), begin = next, num_read = 0;
    for (int i = 0; i < 500; i++)
        publish(&f, 100); /* some 30 KB */
    uint64_t end = stats_of(&f).batches;
    assert_int_equal(end, begin + 500);
    assert_int_equal(stats_of(&f).lost_batches, 0);
    while (replay(&f, end - 1) == 0) /* until all went out */
        continue;
    set_int(f.subscriber, ZMQ_RCVTIMEO, 200);
    char frame[16];
    while (zmq.recv_(f.subscriber, frame, sizeof(frame), 0) >= 0) {
        unsigned char number[KV_EVENT_NUMBER_BYTES];
        assert_int_equal(zmq.recv_(f.subscriber, number, sizeof(number), 0), sizeof(number));
        assert_true(zmq.recv_(f.subscriber, frame, sizeof(frame), 0) > 0);
        assert_true(kv_event_number_read(number) >= next);
        next = kv_event_number_read(number) + 1;
        num_read++;
    }
    assert_in_range(num_read, 1, 499);
    assert_int_equal(replay(&f, begin), 500);
    finish(&f);
}

/* Its number is missing, in the replay too. */
static void a_batch_that_is_too_large_is_lost_and_counted(void **state) {
    struct fixture f;
    const struct kv_event_config config = default_config();
    start(&f, &config, 0);
    uint64_t next = join_and_catch_up(&f);
    publish(&f, 70000); /* more than may wait */
    publish(&f, 1);
    assert_int_equal(receive(f.subscriber), next + 1);
    assert_int_equal(stats_of(&f).batches, next + 2);
    assert_int_equal(stats_of(&f).lost_batches, 1);
    assert_int_equal(replay(&f, next), 1);
    finish(&f);
}

static void every_batch_comes_or_is_counted(void **state) {
    struct fixture f;
    struct kv_event_config config = default_config();
    config.max_queue_size = 1;
    start(&f, &config, 0);
    join(&f);
    for (int i = 0; i < 5000; i++)
        publish(&f, 1);
    struct kv_event_stats stats = stats_of(&f);
    while (replay(&f, stats.batches - 1) == 0) { /* the last one may be lost as well */
        publish(&f, 1);
        stats = stats_of(&f);
    }
    assert_int_equal(replay(&f, 0) + stats_of(&f).lost_batches, stats_of(&f).batches);
    finish(&f);
}

static void what_is_not_enabled_is_nothing(void **state) {
    const struct kv_event_config config = {0};
    struct kv_event_publisher *publisher;
    struct kv_event_stats stats = {1, 1};
    struct error err;
    assert_int_equal(kv_event_publisher_open(&config, BLOCK_SIZE, &publisher, &err), 0);
    assert_null(publisher);
    assert_null(kv_event_publisher_sink(NULL));
    kv_event_publisher_get_stats(NULL, &stats);
    assert_int_equal(stats.batches + stats.lost_batches, 0);
    kv_event_publisher_close(NULL);
}

static void an_endpoint_that_cannot_be_used_is_named(void **state) {
    struct kv_event_config config = default_config();
    struct kv_event_publisher *publisher;
    struct listen_socket taken;
    struct error err;
    assert_int_equal(listen_socket_open_unix("test", config.replay.path, 0600, &taken, &err), 0);
    assert_int_equal(kv_event_publisher_open(&config, BLOCK_SIZE, &publisher, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "kv-events: replay_endpoint ipc://"));
    assert_non_null(strstr(err.message, "in use"));
    assert_null(publisher);
    assert_int_not_equal(access(config.endpoint.path, F_OK), 0);
    listen_socket_close(&taken);
}

static int set_up(void **state) {
    struct error err;
    return mkdtemp(folder) != NULL ? zmq_library_open(&zmq, &err) : -1;
}

static int tear_down(void **state) {
    return rmdir(folder); /* the sockets are gone */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_order),
        cmocka_unit_test(a_subscriber_that_does_not_read_holds_nobody_up),
        cmocka_unit_test(a_batch_that_is_too_large_is_lost_and_counted),
        cmocka_unit_test(every_batch_comes_or_is_counted),
        cmocka_unit_test(what_is_not_enabled_is_nothing),
        cmocka_unit_test(an_endpoint_that_cannot_be_used_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
