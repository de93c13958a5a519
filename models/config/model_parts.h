/* Private to models/: the two ways to fill a struct model, and what they share. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_PARTS_H
#define QUIRE_MODELS_CONFIG_MODEL_PARTS_H

#include "config/base/text.h"
#include "models/model.h"

#define MODEL_MAX_TEMPLATE_BYTES ((size_t)1 << 20)

/* The ranges of generation defaults are those of requests. */
#define GENERATION_MAX_TEMPERATURE 2.0
#define GENERATION_MIN_TOP_P 1e-6 /* 0 would leave no token */
#define GENERATION_MIN_REPETITION 0.01
#define GENERATION_MAX_REPETITION 10.0

/* Whatever path holds, but file, config, generation, eos_tokens, the chat templates and folder.
 * `model` comes with generation set to "says nothing"; on failure model_close releases what was
 * filled. */
int model_gguf_read(struct model *model, const char *path, struct error *err);
int model_folder_read(struct model *model, const char *path, struct error *err);

/* Puts a copy of the template in *chat_template, and frees what was there, after checking its size
 * and that it is UTF-8 without NUL. `where` begins messages: "FILE: KEY". */
int model_set_chat_template(char **chat_template, struct text source, const char *where,
                            struct error *err);

/* After the read of a sampling default: one that cannot be used is logged and stays unset, because
 * a request can do without. `err` is what the read left. */
void model_check_default(int status, const struct error *err);

#endif
