/* Built without libcjson, which reads a folder's JSON: folders are refused. */
#include "models/convert/conversion_private.h"

int folder_source_open(struct conversion *c, struct error *err) {
    return error_set(err, ERROR_MODEL, "%s: is a folder, and this build reads GGUF files only",
                     c->path);
}

int folder_source_metadata(struct conversion *c, struct error *err) {
    return folder_source_open(c, err);
}

int folder_source_check(const struct conversion *c, const char *path, struct error *err) {
    return error_set(err, ERROR_MODEL, "%s: cannot be compared with %s in this build", c->path,
                     path);
}
