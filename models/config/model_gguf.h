/* Private to models/: a model out of one GGUF file (or one split into several), where everything is
 * metadata:
 *
 *   ARCHITECTURE.*                    switches and sizes (config_gguf.h)
 *   general.sampling.*                optional: recommended sampling, which converters copy from
 *                                     generation_config.json
 *   tokenizer.chat_template           optional; tokenizer.chat_template.tool_use is that for
 *                                     conversations with tools
 *
 * The ids that end a text are the tokenizer's to read, from the same file. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_GGUF_H
#define QUIRE_MODELS_CONFIG_MODEL_GGUF_H

#include "models/config/model.h"

/* Fills file, config, generation and the chat templates. `model` comes with nothing set in
 * generation; on failure model_close releases what was filled. */
int model_gguf_read(struct model *model, const char *path, struct error *err);

#endif
