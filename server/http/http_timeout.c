#include "server/http/http_timeout.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "server/api/call/api_call_type.h"
#include "server/http/http_admission.h"

#include <string.h>

#define DIGITS "0123456789"
#define MAX_WHOLE_DIGITS 5

static int refuse(const char *text, struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "out_of_range", "X-Request-Timeout",
                         "X-Request-Timeout is \"%.24s\": seconds from 0.001 to %d are allowed",
                         text, MAX_TIMEOUT_MS / 1000);
}

int http_timeout_read(const char *text, int64_t *out_ms, struct api_error *err) {
    *out_ms = 0;
    if (text == NULL)
        return 0;
    size_t num_whole = strspn(text, DIGITS);
    const char *places = text[num_whole] == '.' ? text + num_whole + 1 : text + num_whole;
    size_t num_places = strspn(places, DIGITS);
    bool is_number = num_whole >= 1 && num_whole <= MAX_WHOLE_DIGITS &&
                     (text[num_whole] != '.' || num_places >= 1) && places[num_places] == '\0';
    int64_t ms = 0;
    for (size_t i = 0; is_number && i < num_whole; i++)
        ms = 10 * ms + (text[i] - '0');
    for (size_t i = 0; is_number && i < 3; i++)
        ms = 10 * ms + (i < num_places ? places[i] - '0' : 0);
    if (ms < 1 || ms > MAX_TIMEOUT_MS)
        return refuse(text, err);
    *out_ms = ms;
    return 0;
}

/* Returns when the exchange's call is to end; 0: no limit. */
static int64_t deadline_ns(const struct connection *connection) {
    const struct exchange *exchange = &connection->exchange;
    int64_t ms = api_call_timeout_ms(exchange->call), header_ms = exchange->timeout_ms;
    if (ms == 0 || (header_ms > 0 && header_ms < ms))
        ms = header_ms;
    return ms > 0 ? exchange->start_ns + ms * CLOCK_NS_PER_MS : 0;
}

void http_timeout_prepare(const struct connection *connection, int index) {
    struct request *request = api_call_request(connection->exchange.call, index);
    int64_t queue_ms = index == 0 ? connection->server->config.queue_timeout_ms : 0;
    request->deadline_ns = deadline_ns(connection);
    request->queue_deadline_ns = queue_ms > 0 ? clock_now_ns() + queue_ms * CLOCK_NS_PER_MS : 0;
}

/* Returns how many requests of its share the call waits for. What other shares have does not count:
 * it may be served before that. */
static int64_t num_ahead(const struct connection *connection) {
    const struct request *request = api_call_request(connection->exchange.call, 0);
    return request->priority < 0 ? 0 /* it may be before them */
                                 : http_admission_num_waiting(connection);
}

/* Returns for how long the call waits at least. */
static int64_t least_wait_ms(const struct connection *connection) {
    int64_t count = num_ahead(connection);
    return count > 0 ? engine_monitor_time_ms(&connection->server->monitor, count) : 0;
}

/* Returns for how long the call is expected to wait: its owner's requests at the rate at which they
 * have ended while others waited; 0 where that is not known. The first one that waits has the next
 * turn. */
static int64_t expected_wait_ms(const struct connection *connection) {
    int64_t count = num_ahead(connection);
    if (count == 0 || connection->server->config.trusts_priority)
        return 0;
    int64_t wait_ms =
        queue_pace_wait_ms(&connection->exchange.owner->pace, count + 1, clock_now_ms());
    return max_int64(wait_ms, 0);
}

/* Half of the time that it may wait: what is expected may be off by that, and whoever is let in is
 * not to be told later that it was in vain. */
static int check_queue(struct connection *connection) {
    int64_t most_ms = connection->server->config.queue_timeout_ms / 2;
    int64_t wait_ms = most_ms > 0 ? expected_wait_ms(connection) : 0;
    if (wait_ms <= most_ms)
        return 0;
    connection->server->stats.rejected++;
    return api_error_set(&connection->exchange.error, 503, "server_error", "queue_timeout", NULL,
                         "the request is expected to wait for %lld s to run, more than half of the "
                         "%lld s that it may wait; try again later",
                         (long long)wait_ms / 1000,
                         (long long)connection->server->config.queue_timeout_ms / 1000);
}

int http_timeout_check(struct connection *connection) {
    int64_t end_ns = deadline_ns(connection), wait_ms = least_wait_ms(connection);
    int64_t left_ms = max_int64(end_ns - clock_now_ns(), 0) / CLOCK_NS_PER_MS;
    if (end_ns == 0 || wait_ms <= left_ms)
        return check_queue(connection);
    connection->server->stats.rejected++;
    return api_error_set(&connection->exchange.error, 503, "server_error", "queue_timeout", NULL,
                         "the request may take %lld ms more, and is expected to wait for %lld ms "
                         "to run; allow more time, or try again later",
                         (long long)left_ms, (long long)wait_ms);
}
