/* The hub's settings from the environment, by the names and rules of the Python package
 * huggingface_hub (constants.py, utils/_auth.py of 2.4.0), so that both share one cache and one
 * login:
 *
 *    HF_ENDPOINT                              URL of the hub; default https://huggingface.co
 *    HF_TOKEN, HUGGING_FACE_HUB_TOKEN         the token; else the file that HF_TOKEN_PATH names,
 *                                             default $HF_HOME/token
 *    HF_HUB_DISABLE_IMPLICIT_TOKEN do not use it HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE the cache;
 *    default $HF_HOME/hub HF_HOME default ${XDG_CACHE_HOME:-~/.cache}/huggingface HF_HUB_OFFLINE,
 *    TRANSFORMERS_OFFLINE use only the cache HF_HUB_ETAG_TIMEOUT seconds to connect; default 10
 *    HF_HUB_DOWNLOAD_TIMEOUT seconds without a byte; default 10 SSL_CERT_FILE PEM file of
 *    certificate authorities; default: the
 *                                             system's
 *
 * A ~ at the beginning of a path and $NAME or ${NAME} in it are expanded, as there. Proxies are
 * those of libcurl: http_proxy, https_proxy, no_proxy. */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_SETTINGS_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_SETTINGS_H

#include "config/base/error.h"

#include <limits.h>
#include <stdbool.h>

#define HUB_ENDPOINT_BYTES 512
#define HUB_TOKEN_BYTES 1024

struct hub_settings {
    char endpoint[HUB_ENDPOINT_BYTES]; /* without a slash at its end */
    char token[HUB_TOKEN_BYTES];       /* printable ASCII; "": none. Never part of a message */
    char cache[PATH_MAX];              /* may not exist yet */
    bool is_offline;
    char ca_file[PATH_MAX]; /* "": the system's */
    long connect_s, stall_s;
};

/* ERROR_CONFIG names the invalid variable; ERROR_IO a token file that cannot be read. */
int hub_settings_read(struct hub_settings *out, struct error *err);

#endif
