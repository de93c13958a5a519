/* Ends connections that take too long, and some of those that stand still when connections or
 * memory are short. */
#ifndef QUIRE_SERVER_HTTP_HTTP_DEADLINES_H
#define QUIRE_SERVER_HTTP_HTTP_DEADLINES_H

#include "server/http/http_state.h"

/* Returns how short of memory or connections the server is: 0 to 1. */
double http_deadlines_pressure(const struct http_server *server);
/* Gives the connection up if its client takes too long for something. */
void http_deadlines_check(struct connection *connection, double pressure, int64_t now_ms);

/* Counts further bytes for the exchange, if necessary after ending stalled transfers of this owner
 * or of owners that hold more. False: there are no such transfers. */
bool http_deadlines_take_memory(struct connection *connection, size_t bytes);
/* Gives up the connection that has been idle longest, of the newcomer's address or, if the server's
 * limit was reached, of the address that has most; never one whose next request has already
 * arrived. */
void http_deadlines_make_room(struct http_server *server, const struct connection *newcomer,
                              bool is_of_all);

#endif
