#include "models/config/model_parts.h"

#include "config/base/utf8.h"
#include "config/base/log.h"

#include <stdlib.h>
#include <string.h>

int model_parts_set_chat_template(char **chat_template, struct text source, const char *where,
                                  struct error *err) {
    if (source.length > MODEL_MAX_TEMPLATE_BYTES)
        return error_set(err, ERROR_MODEL, "%s: a template of %zu bytes (allowed: at most %zu)",
                         where, source.length, MODEL_MAX_TEMPLATE_BYTES);
    size_t valid = utf8_valid_prefix(source.data, source.length);
    if (valid != source.length || memchr(source.data, '\0', source.length) != NULL)
        return error_set(err, ERROR_MODEL, "%s: the template is not UTF-8", where);
    char *copy = malloc(source.length + 1);
    if (copy == NULL)
        return error_set(err, ERROR_MEMORY, "%s: no memory for the template", where);
    if (source.length > 0)
        memcpy(copy, source.data, source.length);
    copy[source.length] = '\0';
    free(*chat_template);
    *chat_template = copy;
    return 0;
}

void model_parts_warn_unusable_default(int status, const struct error *err) {
    if (status != 0)
        log_warning("%s; this sampling default is ignored", err->message);
}
