#include "server/http/http_admission.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "server/api/call/api_call_type.h"
#include "server/http/http_routes.h"
#include "server/keys/api_keys.h"

#include <string.h>
#include <strings.h>
#include <time.h>

/* --- Connections, keys and calls in flight --- */

bool http_admission_has_too_many_connections(const struct connection *connection) {
    const struct http_server *server = connection->server;
    int64_t own = connection->address->num_connections - 1; /* without this one */
    int64_t all = server->stats.connections - server->num_closed - 1;
    int64_t fixed = server->config.max_connections_per_ip;
    if (fixed > 0)
        return own >= fixed;
    return !http_owner_is_local(&connection->address->id) &&
           !http_owner_has_room(own, all, server->config.max_connections);
}

static int refuse_connection(struct connection *connection) {
    struct http_server *server = connection->server;
    struct api_error *error = &connection->exchange.error;
    if (connection->is_surplus)
        return api_error_set(error, 503, "server_error", "too_many_connections", NULL,
                             "%lld connections are open, the maximum; try again",
                             (long long)server->config.max_connections);
    return api_error_set(
        error, 429, "requests", "too_many_connections", NULL,
        "%lld connections are open from this address, more than it may have; close "
        "some, or use one for several requests",
        (long long)connection->address->num_connections);
}

int http_admission_check_connections(struct connection *connection) {
    const struct http_route *route = connection->exchange.route;
    connection->is_surplus &= http_has_too_many_connections(connection->server);
    if (!connection->is_surplus && !http_admission_has_too_many_connections(connection))
        return 0;
    connection->exchange.must_close = true;
    if (route != NULL && route->answer != NULL)
        return 0;
    connection->server->stats.rejected++;
    return refuse_connection(connection);
}

/* The key itself is never shown. */
static const char *describe_refused_key(const char *authorization, const char *x_api_key) {
    static const char scheme[] = "bearer ";
    const char *key = authorization != NULL ? authorization : x_api_key;
    if (key == NULL || key[0] == '\0' || strcasecmp(key, "bearer") == 0)
        return "no API key was sent, and this server needs one: 'Authorization: Bearer KEY' or "
               "'X-Api-Key: KEY'";
    if (authorization != NULL && strncasecmp(authorization, scheme, strlen(scheme)) != 0)
        return "the Authorization header must be 'Bearer KEY'";
    return "incorrect API key: it is not one of this server's keys";
}

int http_admission_find_key(struct connection *connection, const char *authorization,
                            const char *x_api_key) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    if (!api_keys_are_needed(server->keys))
        return 0;
    struct api_key *key = api_keys_find(server->keys, authorization, x_api_key);
    if (key == NULL)
        return api_error_set(&exchange->error, 401, "authentication_error", "invalid_api_key", NULL,
                             "%s", describe_refused_key(authorization, x_api_key));
    exchange->key = key;
    api_key_use(key);
    if (time(NULL) >= key->entry.expires)
        return api_error_set(&exchange->error, 401, "authentication_error", "expired_api_key", NULL,
                             "this API key has expired");
    return 0;
}

int http_admission_check_admin(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    const struct api_keys *keys = connection->server->keys;
    if (exchange->key != NULL ? api_keys_is_admin(keys, exchange->key)
                              : http_owner_is_local(&connection->address->id))
        return 0;
    return api_error_set(&exchange->error, 403, "permission_error", "admin_required", NULL,
                         exchange->key != NULL
                             ? "this API key is not an administrator's: it needs admin: true"
                             : "without API keys only clients on this machine may do that");
}

/* Returns whether there may be others whom it takes from. */
static bool is_alone(const struct connection *connection) {
    const struct exchange *exchange = &connection->exchange;
    return exchange->key != NULL ? api_keys_count(connection->server->keys) == 1
                                 : http_owner_is_local(&exchange->owner->id);
}

static int check_api_calls(struct connection *connection) {
    const struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    int64_t most = server->config.max_api_calls, own = exchange->owner->num_api_calls;
    if (server->num_api_calls >= most)
        return api_error_set(&exchange->error, 429, "rate_limit_error", "queue_full", NULL,
                             "%lld requests are in flight, the maximum; try again",
                             (long long)server->num_api_calls);
    if (!is_alone(connection) && !http_owner_has_room(own, server->num_api_calls, most))
        return api_error_set(&exchange->error, 429, "rate_limit_error", "queue_full", NULL,
                             "%lld requests of %s are in flight, as many as are left for others; "
                             "try again",
                             (long long)own,
                             exchange->key != NULL ? "this API key" : "this address");
    return 0;
}

/* A key may be used from many addresses. */
static int check_exchanges(struct connection *connection) {
    const struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    int64_t own = exchange->owner->num_exchanges - 1; /* without this one */
    int64_t all = server->stats.connections - server->num_closed - 1;
    if (exchange->key == NULL || is_alone(connection) ||
        http_owner_has_room(own, all, server->config.max_connections))
        return 0;
    connection->exchange.must_close = true;
    return api_error_set(&exchange->error, 429, "requests", "too_many_connections", NULL,
                         "%lld connections are used by this API key, as many as are left for "
                         "others; try again",
                         (long long)own);
}

static int check_key_limits(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    if (exchange->key == NULL ||
        key_limits_check(exchange->key, clock_now_ms(), &exchange->error, &exchange->retry_ms) == 0)
        return 0;
    exchange->key->stats.rate_limited++;
    return -1;
}

int http_admission_refuse_asleep(struct api_error *err) {
    return api_error_set(err, 503, "server_error", "sleeping", NULL,
                         "the server is asleep until somebody wakes it up");
}

int http_admission_check(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    if (server->refuses_work || server->has_failed) {
        server->stats.rejected++;
        return api_error_set(&exchange->error, 503, "server_error", "shutting_down", NULL,
                             "the server is shutting down");
    }
    if (server->is_draining) {
        server->stats.rejected++;
        return api_error_set(&exchange->error, 503, "server_error", "draining", NULL,
                             "the server is being drained");
    }
    const struct http_models *models = &server->models;
    if (exchange->route->parse != NULL && !http_models_are_managed(models) &&
        engine_is_put_to_sleep(models->items[0]->parts.engine)) {
        server->stats.rejected++;
        return http_admission_refuse_asleep(&exchange->error);
    }
    if (!http_models_any(models, exchange->key))
        return api_error_set(&exchange->error, 404, "invalid_request_error", "model_not_found",
                             "model", "this API key may use none of the models here");
    if (check_exchanges(connection) == 0 && check_key_limits(connection) == 0 &&
        check_api_calls(connection) == 0)
        return 0;
    server->stats.rejected++;
    return -1;
}

int32_t http_admission_owner(const struct connection *connection) {
    const struct api_key *key = connection->exchange.key;
    const struct http_owner_id *address = &connection->address->id;
    if (key != NULL)
        return api_key_place(key);
    return address->family == AF_UNIX
               ? 0
               : auth_share(api_keys_auth(connection->server->keys), address, sizeof(*address));
}

/* Returns whose turn it is when the exchange's requests are computed. */
static int32_t share_of(const struct connection *connection) {
    return connection->server->config.trusts_priority ? 0 : http_admission_owner(connection);
}

int64_t http_admission_num_waiting(const struct connection *connection) {
    const struct http_model *model = http_model_of(connection);
    struct engine *engine = model->parts.engine;
    if (engine == NULL)
        return 0;
    int64_t num_free = engine_limits(engine)->max_num_seqs - model->monitor.num_running;
    int64_t num_queued = engine_num_queued(engine, share_of(connection));
    return max_int64(num_queued - max_int64(num_free, 0), 0);
}

static void observe_queue(struct connection *connection, int64_t num_ended) {
    queue_pace_update(&connection->exchange.owner->pace, num_ended,
                      http_admission_num_waiting(connection), clock_now_ms());
}

/* Each share has its own rate. */
int64_t http_admission_wait_ms(const struct connection *connection) {
    const struct http_server *server = connection->server;
    const struct http_owner *owner = connection->exchange.owner;
    const struct http_model *model = http_model_of(connection);
    struct engine *engine = model->parts.engine;
    int64_t wait_ms = -1;
    if (owner != NULL && engine != NULL && !server->config.trusts_priority)
        wait_ms = queue_pace_wait_ms(&owner->pace, engine_num_queued(engine, share_of(connection)),
                                     clock_now_ms());
    if (wait_ms < 0)
        wait_ms = engine_monitor_wait_ms(&model->monitor);
    wait_ms += http_models_wait_ms(&server->models, model);
    return wait_ms < ENGINE_MIN_WAIT_MS   ? ENGINE_MIN_WAIT_MS
           : wait_ms > ENGINE_MAX_WAIT_MS ? ENGINE_MAX_WAIT_MS
                                          : wait_ms;
}

void http_admission_begin(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    exchange->is_pending = true;
    server->num_pending++;
    server->num_api_calls++;
    exchange->owner->num_api_calls++;
    if (exchange->key != NULL)
        key_limits_begin(exchange->key, clock_now_ms());
}

void http_admission_end(struct connection *connection) {
    struct http_server *server = connection->server;
    struct exchange *exchange = &connection->exchange;
    exchange->is_pending = false;
    server->num_pending--;
    server->num_api_calls--;
    exchange->owner->num_api_calls--;
    if (exchange->num_requests > 0) /* what failed, or ended in the queue, was not served */
        observe_queue(connection, exchange->error.code == NULL ? exchange->num_requests : 0);
    if (exchange->key == NULL)
        return;
    key_limits_give_back(exchange->key, exchange->num_reserved, clock_now_ms());
    exchange->num_reserved = 0;
    key_limits_end(exchange->key);
}

/* Whether the request asks for as many tokens as there is room for: max_tokens was left out, or
 * might as well have been. */
static bool is_open(const struct connection *connection, const struct request *request) {
    int32_t most = engine_limits(connection->exchange.model->parts.engine)->max_model_len;
    return request->params.max_tokens > 0 &&
           request->params.max_tokens >= most - request->num_prompt_tokens;
}

static int64_t least_tokens(const struct request *request) {
    return request->params.min_tokens > 1 ? request->params.min_tokens : 1;
}

/* Returns the tokens of all outputs; of those that are open the least. *num_open: of these. */
static int64_t count_outputs(const struct connection *connection, int64_t *num_open) {
    struct api_call *call = connection->exchange.call;
    int64_t num_tokens = 0;
    *num_open = 0;
    for (int i = 0; i < api_call_num_requests(call); i++) {
        const struct request *request = api_call_request(call, i);
        bool open = is_open(connection, request);
        num_tokens += request->params.num_choices *
                      (open ? least_tokens(request) : (int64_t)request->params.max_tokens);
        *num_open += open ? request->params.num_choices : 0;
    }
    return num_tokens;
}

/* Cuts the open ones to `each` tokens in addition to their minimum. Returns how many more these are
 * in all.
 */
static int64_t limit_outputs(const struct connection *connection, int64_t each) {
    struct api_call *call = connection->exchange.call;
    int64_t more = 0;
    for (int i = 0; i < api_call_num_requests(call); i++) {
        struct request *request = api_call_request(call, i);
        if (!is_open(connection, request))
            continue;
        int64_t least = least_tokens(request), most = request->params.max_tokens;
        if (each < most - least)
            request->params.max_tokens = (int32_t)(least + each);
        more += request->params.num_choices * (request->params.max_tokens - least);
    }
    return more;
}

int http_admission_check_prompts(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    int64_t num_open, now_ms = clock_now_ms();
    if (exchange->key == NULL)
        return 0;
    int64_t outputs = count_outputs(connection, &num_open);
    int64_t all = api_call_num_prompt_tokens(exchange->call) + outputs;
    if (key_limits_check_tokens(exchange->key, all, now_ms, &exchange->error,
                                &exchange->retry_ms) != 0) {
        exchange->key->stats.rate_limited++;
        connection->server->stats.rejected++;
        return -1;
    }
    int64_t share = key_limits_share(exchange->key, all, now_ms);
    exchange->num_planned =
        outputs + (num_open > 0 ? limit_outputs(connection, share / num_open) : 0);
    return 0;
}

void http_admission_take_prompts(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    exchange->num_requests = api_call_num_requests(exchange->call);
    observe_queue(connection, 0);
    if (exchange->key == NULL)
        return;
    exchange->num_reserved = exchange->num_planned;
    key_limits_take_prompt(exchange->key, api_call_num_prompt_tokens(exchange->call),
                           exchange->num_reserved, clock_now_ms());
}

void http_admission_take_output(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    int64_t num_generated = api_call_num_generated(exchange->call);
    if (exchange->key != NULL && num_generated > exchange->num_generated)
        key_limits_take_output(exchange->key, num_generated - exchange->num_generated,
                               &exchange->num_reserved, clock_now_ms());
    exchange->num_generated = num_generated;
}

/* Of a conversation that was saved with an API key. Without that key nobody will find it: then it
 * is as good as anybody's. */
static int32_t owning_tenant(const struct api_keys *keys, const struct request *request) {
    const struct api_key *key = NULL;
    while (keys != NULL && (key = api_keys_next(keys, key != NULL ? key->tenant : -1)) != NULL)
        if (memcmp(key->entry.hash.bytes, request->owner, sizeof(request->owner)) == 0)
            return key->tenant;
    return 0;
}

void http_admission_prepare(const struct connection *connection, struct request *request) {
    const struct api_key *key = connection->exchange.key;
    bool has_weight = key != NULL && !connection->server->config.trusts_priority;
    if (request->has_owner) {
        request->tenant = owning_tenant(connection->server->keys, request);
    } else if (key != NULL) {
        request->tenant = key->tenant;
        request_set_owner(request, key->entry.hash.bytes);
    }
    if (key != NULL)
        request->priority = key_limits_priority(key, request->priority);
    request_set_share(request, share_of(connection), has_weight ? (int32_t)key->entry.weight : 1);
}

/* --- Deadlines --- */

#define DIGITS "0123456789"
#define MAX_WHOLE_DIGITS 5

int http_admission_read_timeout(const char *text, int64_t *out_ms, struct api_error *err) {
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
        return bad_request(err, "out_of_range", "X-Request-Timeout",
                           "X-Request-Timeout is \"%.24s\": seconds from 0.001 to %d are allowed",
                           text, MAX_TIMEOUT_MS / 1000);
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

void http_admission_set_deadlines(const struct connection *connection, int index) {
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

int http_admission_check_wait(struct connection *connection) {
    int64_t end_ns = deadline_ns(connection), count = num_ahead(connection);
    int64_t wait_ms = /* at least */
        count > 0 ? engine_monitor_time_ms(&connection->exchange.model->monitor, count) : 0;
    int64_t left_ms = max_int64(end_ns - clock_now_ns(), 0) / CLOCK_NS_PER_MS;
    if (end_ns == 0 || wait_ms <= left_ms)
        return check_queue(connection);
    connection->server->stats.rejected++;
    return api_error_set(&connection->exchange.error, 503, "server_error", "queue_timeout", NULL,
                         "the request may take %lld ms more, and is expected to wait for %lld ms "
                         "to run; allow more time, or try again later",
                         (long long)left_ms, (long long)wait_ms);
}
