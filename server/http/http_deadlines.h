/* Ends connections that take too long, and those that give way when connections or memory are
 * short. */
#ifndef QUIRE_SERVER_HTTP_HTTP_DEADLINES_H
#define QUIRE_SERVER_HTTP_HTTP_DEADLINES_H

#include "server/http/http_state.h"

/* Returns how short of memory or connections the server is: 0 to 1. */
double http_deadlines_pressure(const struct http_server *server);
/* Gives the connection up if its client takes too long for something. */
void http_deadlines_check(struct connection *connection, double pressure, int64_t now_ms);

/* Counts bytes more for the exchange, if need be after ending transfers that stand still, of this
 * owner or of ones that hold more. False: there are none such. */
bool http_deadlines_take_memory(struct connection *connection, size_t bytes);
/* Gives up the connection that stood still longest, of the newcomer's address or, where all are
 * concerned, of the one that has most; never one whose next request has come already. */
void http_deadlines_make_room(struct http_server *server, const struct connection *newcomer,
                              bool is_of_all);

#endif
