/* Stands in for model_folder.c where libcjson is missing. */
#include "models/config/model_folder.h"

int model_folder_read(struct model *model, const char *path, struct error *err) {
    return error_set(
        err, ERROR_MODEL,
        "%s: is a folder, and this build cannot read config.json, because libcjson was "
        "missing; name a GGUF file",
        path);
}
