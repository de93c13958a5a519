/* The names this server answers to. */
#ifndef QUIRE_SERVER_MODEL_NAME_H
#define QUIRE_SERVER_MODEL_NAME_H

#include "server/api_error.h"
#include "server/completion_call.h"

/* 0 when name is served; else -1 and *err: 404, code model_not_found, param model. */
int model_name_check(const struct api_context *context, const char *name, struct api_error *err);

#endif
