#include "server/program/reload.h"

#include "config/base/log.h"
#include "server/keys/key_file.h"
#include "server/process/service.h"

#include <stdio.h>

#define LEFT_NAMES_BYTES 1024

/* Names, of the keys that have no place, those that fit a line. */
static void tell_left(const char *path, const struct key_file *file, int num_left) {
    char names[LEFT_NAMES_BYTES] = "";
    size_t length = 0;
    int num_named = 0;
    for (int i = 0; i < file->num_keys && length + KEY_NAME_BYTES + 16 < sizeof(names); i++) {
        const struct key_entry *entry = &file->keys[i];
        if (entry->weight == 0)
            continue;
        const char *name = entry->name[0] != '\0' ? entry->name : "its key ";
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s",
                                   num_named++ > 0 ? ", " : "", name);
        if (entry->name[0] == '\0')
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%d", i + 1);
    }
    log_error("api-key-file %.200s: %d keys are not added, as requests of keys that are gone hold "
              "their places; reload when these have ended: %s%s",
              path, num_left, names, num_named < num_left ? ", ..." : "");
}

int reload_keys(const struct reload *reload, struct error *err) {
    struct key_file file;
    if (!reload->api_key_file)
        return 0;
    if (key_file_read(reload->api_key_file, &file, err) != 0)
        return -1;
    int num_left = api_keys_replace(reload->keys, &file, err);
    if (num_left >= 0)
        log_info("%d API keys from %s", file.num_keys - num_left, reload->api_key_file);
    if (num_left > 0)
        tell_left(reload->api_key_file, &file, num_left);
    if (num_left >= 0 && file.is_exposed)
        log_warning("api-key-file %s: others may read or change it; chmod 640 or 600",
                    reload->api_key_file);
    key_file_finish(&file);
    return num_left >= 0 ? 0 : -1;
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
    if (reload->reload_models != NULL && reload->reload_models(reload->models_context, &err) != 0)
        log_error("%s; the models stay as they were", err.message);
    service_ready();
}
