/* In a build without the headers of ZeroMQ or msgpack-c. */
#include "server/telemetry/kv_events/kv_event_publisher.h"

int kv_event_publisher_open(const struct kv_event_config *config, int32_t block_size,
                            struct kv_event_publisher **out, struct error *err) {
    *out = NULL;
    if (!config->is_enabled)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "kv-events: this program was built without ZeroMQ (libzmq3-dev) or msgpack-c "
                     "(libmsgpack-dev)");
}

const struct kv_event_sink *kv_event_publisher_sink(const struct kv_event_publisher *publisher) {
    return NULL;
}

void kv_event_publisher_get_stats(struct kv_event_publisher *publisher,
                                  struct kv_event_stats *out) {
    *out = (struct kv_event_stats){0};
}

void kv_event_publisher_close(struct kv_event_publisher *publisher) {
}
