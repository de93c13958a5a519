#include "server/http/http_memory.h"

#include "config/base/check.h"
#include "config/json/json_parse.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/responses/response_store.h"
#include "server/http/http_connection.h"
#include "server/http/http_control.h"
#include "server/http/http_state.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"
#include "server/telemetry/record_file.h"
#include "server/tls/tls_front.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define IPV6_PREFIX_BYTES 8
#define MIN_BUDGET_BYTES ((size_t)256 << 20) /* bodies that arrive and answers that wait */
#define JSON_TREE_BYTES (JSON_PARSE_MAX_NODES * (size_t)80) /* a cJSON node and its malloc */

struct http_owner_id http_owner_of_address(const struct sockaddr *address) {
    struct http_owner_id id;
    memset(&id, 0, sizeof(id));
    id.tenant = -1;
    id.family = address != NULL ? address->sa_family : AF_UNIX;
    if (id.family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)address;
        memcpy(id.bytes, &ipv4->sin_addr, sizeof(ipv4->sin_addr));
    } else if (id.family == AF_INET6) {
        const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)address;
        bool is_mapped = IN6_IS_ADDR_V4MAPPED(&ipv6->sin6_addr);
        memcpy(id.bytes, &ipv6->sin6_addr, is_mapped ? sizeof(id.bytes) : IPV6_PREFIX_BYTES);
    }
    return id;
}

struct http_owner_id http_owner_of_tenant(int32_t tenant) {
    struct http_owner_id id;
    memset(&id, 0, sizeof(id));
    id.tenant = tenant;
    return id;
}

/* FNV-1a: whoever picks addresses to collide only makes a list longer, by as many as it has
 * addresses. */
static struct http_owner **bucket_of(struct http_memory *memory, const struct http_owner_id *id) {
    const uint8_t *bytes = (const uint8_t *)id;
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < sizeof(*id); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3U;
    return &memory->buckets[(hash >> 32) % HTTP_OWNER_BUCKETS];
}

struct http_owner *http_owner_use(struct http_memory *memory, const struct http_owner_id *id) {
    struct http_owner **bucket = bucket_of(memory, id);
    struct http_owner *owner = *bucket;
    while (owner != NULL && memcmp(&owner->id, id, sizeof(*id)) != 0)
        owner = owner->next;
    if (owner == NULL) {
        owner = calloc(1, sizeof(*owner));
        if (owner == NULL)
            return NULL;
        owner->id = *id;
        owner->next = *bucket;
        *bucket = owner;
    }
    owner->num_users++;
    return owner;
}

struct http_owner *http_owner_share(struct http_owner *owner) {
    owner->num_users++;
    return owner;
}

void http_owner_leave(struct http_memory *memory, struct http_owner *owner) {
    if (owner == NULL || --owner->num_users > 0)
        return;
    CHECK(owner->bytes == 0 && owner->num_connections == 0 && owner->num_api_calls == 0);
    struct http_owner **place = bucket_of(memory, &owner->id);
    while (*place != owner)
        place = &(*place)->next;
    *place = owner->next;
    free(owner);
}

bool http_memory_take(struct http_memory *memory, struct http_owner *owner, size_t bytes) {
    size_t left =
        memory->used_bytes < memory->budget_bytes ? memory->budget_bytes - memory->used_bytes : 0;
    if (bytes > left || owner->bytes + bytes > left - bytes)
        return false;
    owner->bytes += bytes;
    memory->used_bytes += bytes;
    return true;
}

void http_memory_give(struct http_memory *memory, struct http_owner *owner, size_t bytes) {
    if (bytes == 0)
        return;
    CHECK(owner->bytes >= bytes && memory->used_bytes >= bytes);
    owner->bytes -= bytes;
    memory->used_bytes -= bytes;
}

bool http_owner_has_room(int64_t own, int64_t used, int64_t limit) {
    return own < limit - used;
}

bool http_owner_is_local(const struct http_owner_id *id) {
    static const uint8_t nothing[16], mapped_loopback[13] = {[10] = 0xff, 0xff, 127};
    if (id->family == AF_INET)
        return id->bytes[0] == 127;
    if (id->family == AF_INET6) /* ::1 is the only address of its first 64 bits */
        return memcmp(id->bytes, nothing, sizeof(nothing)) == 0 ||
               memcmp(id->bytes, mapped_loopback, sizeof(mapped_loopback)) == 0;
    return id->family == AF_UNIX;
}

double http_memory_pressure(const struct http_memory *memory) {
    double pressure = (double)memory->used_bytes / (double)memory->budget_bytes;
    return pressure < 1 ? pressure : 1;
}

size_t http_memory_budget_bytes(size_t max_body_bytes) {
    size_t least = 4 * max_body_bytes;
    return least > MIN_BUDGET_BYTES ? least : MIN_BUDGET_BYTES;
}

size_t http_memory_planned_bytes(const struct options *options) {
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
           http_memory_budget_bytes((size_t)options->max_body_bytes) + admin + logs +
           PREP_NUM_QUEUES * per_worker + (size_t)2 * MAX_ANSWER_BYTES;
}
