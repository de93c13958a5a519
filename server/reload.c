#include "server/reload.h"

#include "config/log.h"
#include "server/keys/key_file.h"
#include "server/service.h"

int reload_keys(const struct reload *reload, struct error *err) {
    struct key_file file;
    if (!reload->api_key_file)
        return 0;
    if (key_file_read(reload->api_key_file, &file, err) != 0)
        return -1;
    int num_keys = file.num_keys, status = api_keys_replace(reload->keys, &file, err);
    if (status == 0)
        log_info("%d API keys from %s", num_keys, reload->api_key_file);
    if (status == 0 && file.is_exposed)
        log_warning("api-key-file %s: others may read or change it; chmod 640 or 600",
                    reload->api_key_file);
    key_file_finish(&file);
    return status;
}

static int reload_tls(const struct reload *reload, struct error *err) {
    struct tls_credentials *credentials;
    if (!reload->tls.certfile)
        return 0;
    if (tls_credentials_load(&reload->tls, &credentials, err) != 0)
        return -1;
    http_server_set_credentials(reload->http, credentials);
    tls_credentials_unref(credentials);
    return 0;
}

void reload_run(void *context) {
    const struct reload *reload = context;
    struct error err = {0};
    service_reloading();
    if (log_file_reopen(&reload->log, &err) < 0)
        log_error("%s", err.message);
    access_log_reopen(reload->access_log);
    log_info("reloading: SIGHUP");
    if (reload_keys(reload, &err) != 0)
        log_error("%s; the keys stay as they were", err.message);
    if (reload_tls(reload, &err) != 0)
        log_error("%s; the certificates stay as they were", err.message);
    service_ready();
}
