#include "server/http/http_capacity.h"

#include "config/base/log.h"
#include "server/api/chat/chat_prompt.h"
#include "server/api/responses/response_store.h"
#include "server/http/http_admin.h"
#include "server/http/http_state.h"
#include "server/http/http_log.h"
#include "config/json/json_parse.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"
#include "server/telemetry/record_file.h"
#include "server/tls/tls_front.h"

#include <string.h>
#include <sys/resource.h>

#define JSON_TREE_BYTES (JSON_PARSE_MAX_NODES * (size_t)80) /* a cJSON node and its malloc */
#define MIN_BUDGET_BYTES ((size_t)256 << 20) /* bodies that arrive and answers that wait */
#define SPARE_FILES 64                       /* files, eventfds, and a reserve for accept */
#define MIN_CONNECTIONS 4

size_t http_capacity_budget_bytes(size_t max_body_bytes) {
    size_t least = 4 * max_body_bytes;
    return least > MIN_BUDGET_BYTES ? least : MIN_BUDGET_BYTES;
}

size_t http_capacity_bytes(const struct options *options) {
    size_t per_connection =
        HTTP_HEADER_MEMORY_BYTES + OUTPUT_LIMIT_BYTES + sizeof(struct connection);
    size_t per_worker = CHAT_PROMPT_ARENA_BYTES + JSON_TREE_BYTES;
    bool has_access_log = strcmp(options->access_log, "none") != 0;
    if (options->response_store_bytes > 0) /* what is continued, as text, as JSON and again */
        per_worker += JSON_TREE_BYTES + (size_t)3 * RESPONSE_STORE_MAX_ITEM_BYTES;
    if (options->ssl_certfile)
        per_connection += TLS_CONNECTION_BYTES;
    if (options->log_prompts)
        per_connection += HTTP_LOG_BODY_BYTES;
    size_t logs =
        (has_access_log ? ACCESS_LOG_MAX_BYTES : 0) +
        (options->otlp_traces_endpoint ? TRACE_EXPORTER_MAX_BYTES : 0) +
        (options->record ? RECORD_FILE_MAX_BYTES : 0) +
        (options->kv_events || options->kv_events_config ? KV_EVENT_PUBLISHER_MAX_BYTES : 0);
    size_t admin = options->admin_socket ? HTTP_ADMIN_BYTES : 0;
    return (size_t)options->max_connections * per_connection +
           http_capacity_budget_bytes((size_t)options->max_body_bytes) + admin + logs +
           PREP_NUM_QUEUES * per_worker + (size_t)2 * MAX_ANSWER_BYTES;
}

int http_capacity_fit_files(struct http_server_config *config, struct error *err) {
    struct rlimit limit;
    int64_t files = config->credentials ? 1 + TLS_CONNECTION_FILES : 1; /* of a connection */
    rlim_t needed =
        (rlim_t)((config->max_connections + HTTP_SPARE_CONNECTIONS) * files + SPARE_FILES);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return 0;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return 0;
    int64_t possible = ((int64_t)limit.rlim_cur - SPARE_FILES) / files - HTTP_SPARE_CONNECTIONS;
    if (possible < MIN_CONNECTIONS)
        return error_set(err, ERROR_CONFIG,
                         "the system's limit of %lld open files is too low: %lld are needed at "
                         "least (ulimit -n, or LimitNOFILE= of a unit)",
                         (long long)limit.rlim_max,
                         (MIN_CONNECTIONS + HTTP_SPARE_CONNECTIONS) * (long long)files +
                             SPARE_FILES);
    log_warning("max-connections: %lld need more open files than this system's limit of %lld; "
                "using %lld",
                (long long)config->max_connections, (long long)limit.rlim_max, (long long)possible);
    config->max_connections = possible;
    return 0;
}
