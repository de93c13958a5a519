#include "server/keys/key_models.h"

#include <string.h>

static bool allows(const struct api_key *key, const char *name) {
    for (int i = 0; i < key->entry.num_models; i++)
        if (strcmp(key->entry.models[i], name) == 0)
            return true;
    return key->entry.num_models == 0;
}

const struct api_context *key_models_context(const struct api_key *key,
                                             const struct api_context *context,
                                             struct key_models *models) {
    if (key == NULL)
        return context;
    models->context = *context;
    models->context.tenant = key->tenant;
    if (key->entry.num_models == 0)
        return &models->context;
    models->context.model_names = models->names;
    models->context.num_model_names = 0;
    models->names[0] = NULL;
    models->context.takes_any_model = false;
    for (int i = 0; i < context->num_model_names && i < OPTIONS_MAX_LIST; i++)
        if (allows(key, context->model_names[i]))
            models->names[models->context.num_model_names++] = context->model_names[i];
    return &models->context;
}

bool key_models_any(const struct api_key *key, const struct api_context *context) {
    for (int i = 0; key != NULL && i < context->num_model_names; i++)
        if (allows(key, context->model_names[i]))
            return true;
    return key == NULL;
}
