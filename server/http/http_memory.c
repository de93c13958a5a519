#include "server/http/http_memory.h"

#include "config/base/check.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define IPV6_PREFIX_BYTES 8

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

static bool fits(const struct http_memory *memory, const struct http_owner *owner, size_t bytes) {
    size_t left =
        memory->used_bytes < memory->budget_bytes ? memory->budget_bytes - memory->used_bytes : 0;
    return bytes <= left && owner->bytes + bytes <= left - bytes;
}

bool http_memory_take(struct http_memory *memory, struct http_owner *owner, size_t bytes) {
    if (!fits(memory, owner, bytes))
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
