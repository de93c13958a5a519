/* The state of `quire serve`, from its start to its end, private to command_serve*.c. Each step of
 * the start fills in its part; command_serve.c releases everything.
 */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_SERVE_PRIVATE_H
#define QUIRE_SERVER_PROGRAM_COMMAND_SERVE_PRIVATE_H

#include "config/options.h"
#include "server/http/http_server.h"
#include "server/net/listen_socket.h"
#include "server/process/signals.h"
#include "server/program/model_list.h"
#include "server/program/model_loader.h"
#include "server/program/reload.h"
#include "server/program/served_model.h"

struct serve {
    int argc;
    char *const *argv;
    int64_t started_ns;
    struct stop_guard guard;
    struct model_list list;      /* whose models are moved to the loader if there are several */
    struct options *options;     /* the server's: of `list` */
    struct transport *transport; /* to the other ranks; NULL: they are threads, or there are none */
    struct served_model only;    /* the only model */
    bool has_executor;           /* at the end: it had one */
    bool has_several;            /* models, or is prepared for it: they are the loader's */
    struct model_loader loader;
    struct listen_socket socket;
    struct listen_socket admin;
    struct api_keys *keys;
    struct reload reload;
    struct trace_exporter *traces;
    struct tls_credentials *credentials; /* NULL: plain HTTP */
    struct response_store *responses;    /* NULL: none are kept */
    struct http_origin_rules origins;
    struct http_server *http;
};

/* Logs what a user needs to know, once everything runs: a start that fails has only its error. */
void command_serve_log_start(struct serve *serve);

/* Steps of the start of `quire serve`. Each returns -1 with err. */
/* Among several processes that compute one model, only rank 0 returns: the others compute what it
 * requests, and end the program. */
int command_serve_open_ranks(struct serve *serve, struct error *err);

/* Steps of the start of `quire serve`: everything between clients and the engine. Each returns -1
 * with err. */
/* --root-path too. */
int command_serve_http_read_origins(struct serve *serve, struct error *err);
int command_serve_http_open_keys(struct serve *serve, struct error *err);
/* Opens the access log and the trace exporter. */
int command_serve_http_open_logs(struct serve *serve, struct error *err);
int command_serve_http_open_tls(struct serve *serve, struct error *err);
int command_serve_http_open_responses(struct serve *serve, struct error *err);
/* Sets the number of connections that the limit of open files allows. */
int command_serve_http_fit_files(struct serve *serve, struct error *err);
/* Takes the socket passed by the service manager, if any, otherwise binds one. */
int command_serve_http_open_socket(struct serve *serve, struct error *err);
/* From then on clients can wait in the socket's backlog. */
int command_serve_http_listen(struct serve *serve, struct error *err);
/* Only the server's user may write to it, because that controls the server. */
int command_serve_http_open_admin_socket(struct serve *serve, struct error *err);
/* Completes the contents of /server_info and the memory table; the server then only has to be
 * run. */
int command_serve_http_start(struct serve *serve, struct error *err);

#endif
