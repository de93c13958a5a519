#include "server/telemetry/kv_events/kv_event_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kv_event_config read_texts(const char *endpoint, const char *text) {
    char *texts[] = {endpoint != NULL ? strdup(endpoint) : NULL,
                     text != NULL ? strdup(text) : NULL};
    const struct options options = {
        .kv_events = texts[0], .kv_events_config = texts[1], .enable_prefix_caching = true};
    struct kv_event_config config;
    struct error err = {0};
    if (kv_event_config_read(&options, &config, &err) != 0)
        fail_msg("%s", err.message);
    free(texts[0]);
    free(texts[1]);
    return config;
}

static void neither_publishes_nothing(void **state) {
    assert_false(read_texts(NULL, NULL).is_enabled);
    assert_false(read_texts(NULL, "{}").is_enabled);
    assert_false(
        read_texts(NULL, "{\"enable_kv_cache_events\": true, \"publisher\": \"null\"}").is_enabled);
}

static void an_endpoint_alone_is_listened_on(void **state) {
    struct kv_event_config config = read_texts("tcp://localhost:5557", NULL);
    assert_true(config.is_enabled && config.binds);
    assert_string_equal(config.endpoint.host, "localhost");
    assert_int_equal(config.endpoint.port, 5557);
    assert_string_equal(config.replay.text, "");
    assert_string_equal(config.topic, "");
    assert_int_equal(config.hwm, 1000);
    assert_string_equal(read_texts("tcp://*:1", NULL).endpoint.host, "0.0.0.0");
    assert_string_equal(read_texts("tcp://[::1]:1", NULL).endpoint.host, "::1");
    config = read_texts("ipc:///run/quire/events", NULL);
    assert_string_equal(config.endpoint.path, "/run/quire/events");
    assert_string_equal(config.endpoint.host, "");
}

#define ENABLED(more) "{\"enable_kv_cache_events\": true" more "}"

static void defaults_are_those_of_vllm(void **state) {
    const struct kv_event_config config = read_texts(NULL, ENABLED(""));
    assert_true(config.is_enabled && config.binds);
    assert_string_equal(config.endpoint.text, "tcp://*:5557");
    assert_string_equal(config.replay.text, "");
    assert_int_equal(config.buffer_steps, 10000);
    assert_int_equal(config.max_queue_size, 100000);
}

static void all_that_is_given_is_read(void **state) {
    const struct kv_event_config config =
        read_texts(NULL, ENABLED(", \"publisher\": \"zmq\", \"endpoint\": \"tcp://epp:7\", "
                                 "\"replay_endpoint\": \"tcp://*:8\", \"topic\": \"kv@1@m\", "
                                 "\"buffer_steps\": 5, \"hwm\": 6, \"max_queue_size\": 9"));
    assert_false(config.binds);
    assert_string_equal(config.endpoint.text, "tcp://epp:7");
    assert_string_equal(config.replay.host, "0.0.0.0");
    assert_string_equal(config.topic, "kv@1@m");
    assert_int_equal(config.buffer_steps, 5);
    assert_int_equal(config.hwm, 6);
    assert_int_equal(config.max_queue_size, 9);
}

/* As vLLM decides, unless it is said. */
static void whether_it_listens(void **state) {
    assert_true(read_texts(NULL, ENABLED(", \"endpoint\": \"tcp://*:7\"")).binds);
    assert_true(read_texts(NULL, ENABLED(", \"endpoint\": \"tcp://[::1]:7\"")).binds);
    assert_true(read_texts(NULL, ENABLED(", \"endpoint\": \"ipc://a\"")).binds);
    assert_false(read_texts(NULL, ENABLED(", \"endpoint\": \"tcp://127.0.0.1:7\"")).binds);
    assert_true(
        read_texts(NULL, ENABLED(", \"endpoint\": \"tcp://127.0.0.1:7\", \"bind\": true")).binds);
}

static void assert_refused(const char *endpoint, const char *text, bool is_caching,
                           const char *message) {
    char *texts[] = {endpoint != NULL ? strdup(endpoint) : NULL,
                     text != NULL ? strdup(text) : NULL};
    const struct options options = {
        .kv_events = texts[0], .kv_events_config = texts[1], .enable_prefix_caching = is_caching};
    struct kv_event_config config;
    struct error err = {0};
    assert_int_equal(kv_event_config_read(&options, &config, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_string_equal(err.message, message);
    free(texts[0]);
    free(texts[1]);
}

#define FORMS "tcp://HOST:PORT or ipc://PATH, not "

static void mistakes_name_field_value_and_what_is_allowed(void **state) {
    static const char *const endpoints[] = {
        "5557",       "tcp://",      "tcp://*",    "tcp://:5",
        "tcp://a:",   "tcp://a:b",   "tcp://a:-1", "tcp://a:65536",
        "tcp://a:1 ", "tcp://::1:5", "tcp://[]:5", "ipc://",
        "inproc://a", "http://a:5",  "TCP://a:5",  "tcp://a:1111111111111111111111"};
    char message[300];
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        snprintf(message, sizeof(message), "kv-events: must be " FORMS "%s", endpoints[i]);
        assert_refused(endpoints[i], NULL, true, message);
    }
    assert_refused(NULL, ENABLED(", \"endpoint\": \"x\""), true,
                   "kv-events-config: endpoint must be " FORMS "\"x\"");
    assert_refused(NULL, ENABLED(", \"replay_endpoint\": \"\""), true,
                   "kv-events-config: replay_endpoint must be " FORMS "\"\"");
    assert_refused(NULL, "{\"publisher\": \"kafka\"}", true,
                   "kv-events-config: publisher must be \"zmq\" or \"null\", not \"kafka\"");
    assert_refused(NULL, "{\"hwm\": 0}", true,
                   "kv-events-config: hwm must be an integer from 1 to 1000000, not 0");
    assert_refused(NULL, "{\"buffer_steps\": \"5\"}", true,
                   "kv-events-config: buffer_steps must be an integer from 1 to 1000000, not "
                   "\"5\"");
    assert_refused(NULL, "{\"max_queue_size\": 1000001}", true,
                   "kv-events-config: max_queue_size must be an integer from 1 to 1000000, not "
                   "1000001");
    assert_refused(NULL, "{\"enable_kv_cache_events\": 1}", true,
                   "kv-events-config: enable_kv_cache_events must be true or false, not 1");
    assert_refused(NULL, "{\"port\": 1}", true,
                   "kv-events-config: port must not be given; known are enable_kv_cache_events, "
                   "publisher, endpoint, replay_endpoint, topic, buffer_steps, hwm, max_queue_size "
                   "and bind");
}

static void both_are_refused(void **state) {
    assert_refused("tcp://*:5", "{}", true,
                   "kv-events: tcp://*:5; must not be given together with kv-events-config, whose "
                   "endpoint says the same");
}

static void without_prefix_caching_there_is_nothing_to_publish(void **state) {
    assert_refused("tcp://*:5", NULL, false,
                   "kv-events: needs enable-prefix-caching: without it there are no events");
    assert_refused(NULL, ENABLED(""), false,
                   "kv-events-config: needs enable-prefix-caching: without it there are no events");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neither_publishes_nothing),
        cmocka_unit_test(an_endpoint_alone_is_listened_on),
        cmocka_unit_test(defaults_are_those_of_vllm),
        cmocka_unit_test(all_that_is_given_is_read),
        cmocka_unit_test(whether_it_listens),
        cmocka_unit_test(mistakes_name_field_value_and_what_is_allowed),
        cmocka_unit_test(both_are_refused),
        cmocka_unit_test(without_prefix_caching_there_is_nothing_to_publish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
