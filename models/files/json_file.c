#include "models/files/json_file.h"

#include "config/json/json_read.h"
#include "models/files/input_file.h"

#include <stdbool.h>
#include <stdlib.h>

cJSON *json_memory_read(const char *data, size_t length, const char *name, struct error *err) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, JSON_FILE_MAX_NODES};
    struct error why;
    cJSON *json = json_read(data, length, &limits, &why);
    if (json == NULL && why.code == ERROR_MEMORY)
        error_set(err, ERROR_MEMORY, "%s: %s", name, why.message);
    else if (json == NULL)
        error_set(err, ERROR_MODEL, "%s: is not valid JSON: %s", name, why.message);
    return json;
}

cJSON *json_file_read(const char *path, size_t max_bytes, struct error *err) {
    size_t length;
    char *data = input_file_read_all(path, max_bytes, &length, err);
    if (data == NULL)
        return NULL;
    cJSON *json = json_memory_read(data, length, path, err);
    free(data);
    return json;
}
