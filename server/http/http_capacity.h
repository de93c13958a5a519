/* How much the front end may hold: memory, connections, and the files that these need. */
#ifndef QUIRE_SERVER_HTTP_HTTP_CAPACITY_H
#define QUIRE_SERVER_HTTP_HTTP_CAPACITY_H

#include "server/http/http_server.h"

#define HTTP_HEADER_MEMORY_BYTES                                                                   \
    (32 * 1024)                   /* per connection; longer headers: 431, longer URL: 414 */
#define HTTP_SPARE_CONNECTIONS 64 /* above max_connections, so that they can be answered with 503 */

/* Returns the bytes that the front end may hold at most: header memory, output buffers, bodies, and
 * what the workers make of them, for the memory table printed at start. */
size_t http_capacity_bytes(const struct options *options);

/* Returns the budget of http_memory.h: room for several bodies of the largest size, since one owner
 * may hold half of it. */
size_t http_capacity_budget_bytes(size_t max_body_bytes);

/* Raises the limit of open files to what the connections need, or lowers their number and warns.
 * ERROR_CONFIG when not even a few are possible. */
int http_capacity_fit_files(struct http_server_config *config, struct error *err);

#endif
