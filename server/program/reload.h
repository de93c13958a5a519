/* Does what SIGHUP requests: reopens the logs where they are files, and reads the file of API keys
 * and the certificates again. What fails is logged and leaves things as they were. */
#ifndef QUIRE_SERVER_RELOAD_H
#define QUIRE_SERVER_RELOAD_H

#include "config/base/log_file.h"
#include "server/telemetry/access_log.h"
#include "server/http/http_server.h"
#include "server/keys/api_keys.h"
#include "server/tls/tls_credentials.h"

/* Pointers stay the caller's. */
struct reload {
    struct log_file log;
    struct access_log *access_log; /* or NULL */
    const char *api_key_file;      /* or NULL */
    struct api_keys *keys;
    struct tls_files tls;     /* certfile NULL: no TLS */
    struct http_server *http; /* whose credentials they are */
};

/* Puts the keys of the file in place, and warns when others can read it. Does nothing without a
 * file. */
int reload_keys(const struct reload *reload, struct error *err);

/* Does all of it and notifies the service manager. context: a struct reload. */
void reload_run(void *context);

#endif
