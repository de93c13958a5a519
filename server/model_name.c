#include "server/model_name.h"

#include <string.h>

int model_name_check(const struct api_context *context, const char *name, struct api_error *err) {
    for (int i = 0; i < context->num_model_names; i++) {
        if (strcmp(context->model_names[i], name) == 0)
            return 0;
    }
    return api_error_set(err, 404, "invalid_request_error", "model_not_found", "model",
                         "The model \"%.64s\" does not exist; this server has \"%.64s\"", name,
                         context->model_names[0]);
}
