/* Private to models/: reads a model from a Hugging Face folder:
 *
 *   config.json switches and sizes (config_hf.h), ids that end a text model*.safetensors the
 *   tensors (safetensors.h) generation_config.json optional: recommended sampling, and more such
 *   ids chat_template.jinja optional; a second one for conversations with tools in
 *                             additional_chat_templates/tool_use.jinja
 *                             else chat_template in tokenizer_config.json, or in
 *                             chat_template.json
 *
 * The tokenizer is opened separately, from the same folder. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_FOLDER_H
#define QUIRE_MODELS_CONFIG_MODEL_FOLDER_H

#include "models/config/model.h"

/* Fills file, config, generation, eos_tokens, the chat templates and folder. All of `model`'s
 * generation settings are absent before the call. On failure model_close releases what was
 * filled. */
int model_folder_read(struct model *model, const char *path, struct error *err);

#endif
