/* Private to models/: parts of a struct model that are checked in the same way for all file
 * formats. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_PARTS_H
#define QUIRE_MODELS_CONFIG_MODEL_PARTS_H

#include "config/base/text.h"
#include "config/base/error.h"

#include <stddef.h>

#define MODEL_MAX_TEMPLATE_BYTES ((size_t)1 << 20)

/* Checks the template's size and that it is UTF-8 without NUL, then replaces *chat_template by a
 * copy of it. `where` begins messages: "FILE: KEY". */
int model_parts_set_chat_template(char **chat_template, struct text source, const char *where,
                                  struct error *err);

/* Logs the error of reading a sampling default if its status is not 0. Such a default stays unset,
 * because requests can do without it. */
void model_parts_warn_unusable_default(int status, const struct error *err);

#endif
