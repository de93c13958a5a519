/* Steps of `quire serve`'s start: what stands between clients and the engine. Each returns -1 with
 * err. */
#ifndef QUIRE_SERVER_COMMAND_SERVE_HTTP_H
#define QUIRE_SERVER_COMMAND_SERVE_HTTP_H

#include "server/program/command_serve_state.h"

/* --root-path too. */
int command_serve_http_read_origins(struct serve *serve, struct error *err);
int command_serve_http_open_keys(struct serve *serve, struct error *err);
/* The access log, and the collector of traces. */
int command_serve_http_open_logs(struct serve *serve, struct error *err);
int command_serve_http_open_tls(struct serve *serve, struct error *err);
int command_serve_http_open_responses(struct serve *serve, struct error *err);
/* Takes the socket that the service manager has passed, if it has; else opens one: clients can wait
 * in its backlog from then on. */
int command_serve_http_open_socket(struct serve *serve, struct error *err);
/* Whoever may write to it commands the server: its user alone. */
int command_serve_http_open_admin_socket(struct serve *serve, struct error *err);
/* What the endpoints know; once the executor's sizes are known. */
void command_serve_http_set_context(struct serve *serve);
/* Completes what /server_info says and the table of memory; serves once it runs. */
int command_serve_http_start(struct serve *serve, struct error *err);

#endif
