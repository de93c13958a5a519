/* Private to models/: parts of a struct model that are checked in the same way whatever files they
 * come from. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_PARTS_H
#define QUIRE_MODELS_CONFIG_MODEL_PARTS_H

#include "config/base/text.h"
#include "config/base/error.h"

#include <stddef.h>

#define MODEL_MAX_TEMPLATE_BYTES ((size_t)1 << 20)

/* Checks the template's size and that it is UTF-8 without NUL, then puts a copy of it in
 * *chat_template and frees what was there. `where` begins messages: "FILE: KEY". */
int model_parts_set_chat_template(char **chat_template, struct text source, const char *where,
                                  struct error *err);

/* Logs the error that the read of a sampling default left in `err`, where its status is not 0. Such
 * a default stays unset, because a request can do without. */
void model_parts_warn_unusable_default(int status, const struct error *err);

#endif
