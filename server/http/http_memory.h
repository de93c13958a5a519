/* Counts the memory that requests make the front end hold: bodies as they arrive, answers until
 * they are sent. There is one budget of a fixed size, and every owner's share of it shrinks as it
 * fills: nobody may hold more than what is left for everybody else (the dynamic threshold of shared
 * packet buffers: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, with alpha =
 * 1). One greedy owner gets half of the budget, n of them 1/(n+1) each, and the next one always
 * finds the same.
 *
 * An owner is an API key or, if there are no keys, a client's address. I/O thread only. */
#ifndef QUIRE_SERVER_HTTP_HTTP_MEMORY_H
#define QUIRE_SERVER_HTTP_HTTP_MEMORY_H

#include "server/http/engine_monitor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define HTTP_OWNER_BUCKETS 1024
#define HTTP_HEADER_MEMORY_BYTES                                                                   \
    (32 * 1024) /* per connection; longer headers: 431, longer URL: 414 */

struct options;

/* Compared as bytes: zero all of it first. */
struct http_owner_id {
    uint8_t bytes[16]; /* IPv6: the first 64 bits, which one subscriber is usually assigned */
    int32_t tenant;    /* of a key; -1: an address */
    uint32_t family;   /* AF_INET, AF_INET6, AF_UNIX: all clients of the socket are one; 0: a key */
};

struct http_owner {
    struct http_owner_id id;
    struct http_owner *next; /* in its bucket */
    int64_t num_users;
    int64_t num_connections;
    int64_t num_exchanges; /* that use a connection now */
    int64_t num_api_calls; /* in flight, and transforms */
    size_t bytes;          /* held now, of the budget */
    struct queue_pace pace;
};

struct http_memory {
    size_t budget_bytes, used_bytes;
    struct http_owner *buckets[HTTP_OWNER_BUCKETS];
};

struct http_owner_id http_owner_of_address(const struct sockaddr *address);
struct http_owner_id http_owner_of_tenant(int32_t tenant);

/* Returns the owner with this id and adds a user; NULL: memory is short. */
struct http_owner *http_owner_use(struct http_memory *memory, const struct http_owner_id *id);
/* Adds a user. */
struct http_owner *http_owner_share(struct http_owner *owner);
/* Removes a user; the last one frees the owner, which must hold no memory and no connection then.
 * Accepts NULL. */
void http_owner_leave(struct http_memory *memory, struct http_owner *owner);

/* Lets the owner hold that many more bytes; returns false if it may not. */
bool http_memory_take(struct http_memory *memory, struct http_owner *owner, size_t bytes);
void http_memory_give(struct http_memory *memory, struct http_owner *owner, size_t bytes);

/* Returns whether an owner that has `own` of `used` places, of `limit` in all, may take one more:
 * the same rule for things that are counted one by one. */
bool http_owner_has_room(int64_t own, int64_t used, int64_t limit);
/* Returns whether it is a client on this machine, which may be a proxy: its address does not
 * identify a client. */
bool http_owner_is_local(const struct http_owner_id *id);

/* Returns how full the budget is: 0 to 1. */
double http_memory_pressure(const struct http_memory *memory);

/* Returns the bytes that the front end may hold at most: header memory, output buffers, bodies, and
 * the workers' results, for the memory table printed at start. */
size_t http_memory_planned_bytes(const struct options *options);

/* Returns the budget: room for several bodies of the largest size, since one owner
 * may hold half of it. */
size_t http_memory_budget_bytes(size_t max_body_bytes);

#endif
