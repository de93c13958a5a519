/* Handles SIGHUP: reopens the logs if they are files, and rereads the file of API keys, the
 * certificates, and the list of several models. A failure is logged and leaves everything
 * unchanged. */
#ifndef QUIRE_SERVER_PROGRAM_RELOAD_H
#define QUIRE_SERVER_PROGRAM_RELOAD_H

#include "config/base/log_file.h"
#include "server/telemetry/access_log.h"
#include "server/http/http_server.h"
#include "server/keys/api_keys.h"
#include "server/tls/tls_credentials.h"

/* The caller owns what the pointers refer to. */
struct reload {
    struct log_file log;
    struct access_log *access_log; /* or NULL */
    const char *api_key_file;      /* or NULL */
    struct api_keys *keys;
    struct tls_files tls;     /* certfile NULL: no TLS */
    struct http_server *http; /* the server with these credentials */
    /* Serves the models of the configuration as it is now; NULL: there is one model, which stays.
     */
    int (*reload_models)(void *context, struct error *err);
    void *models_context;
};

/* Installs the keys of the file, and warns when others can read it. Does nothing without a file. */
int reload_keys(const struct reload *reload, struct error *err);

/* Reloads everything and notifies the service manager. context: a struct reload. */
void reload_run(void *context);

#endif
