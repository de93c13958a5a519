/* Exchanges that wait: hands what prep workers made of their bodies to the engine, and collects the
 * output. */
#ifndef QUIRE_SERVER_HTTP_HTTP_DISPATCH_H
#define QUIRE_SERVER_HTTP_HTTP_DISPATCH_H

#include "server/http/http_state.h"

/* Takes a job back that a worker has finished. */
void http_dispatch_prepared(struct prep_job *job);

/* Reads the requests that have events; true: there are more than are read in one turn. */
bool http_dispatch_take_ready(struct http_server *server);
/* Output was taken: continues to read a call whose output was full. */
void http_dispatch_output_drained(struct connection *connection);

#endif
