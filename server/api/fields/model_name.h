/* The names this server answers to. */
#ifndef QUIRE_SERVER_API_FIELDS_MODEL_NAME_H
#define QUIRE_SERVER_API_FIELDS_MODEL_NAME_H

#include "server/api/api_error.h"
#include "server/api/api_context.h"

/* 0 when name is served; else -1 and *err: 404, code model_not_found, param model. */
int model_name_check(const struct api_context *context, const char *name, struct api_error *err);

/* The name of a model that was given none: its file's without ".gguf" and the "-00001-of-00003" of
 * a split one, or its folder's; "model" where there is none, as for "/". out is NUL-terminated. */
void model_name_of_path(const char *path, char *out, size_t capacity);

#endif
