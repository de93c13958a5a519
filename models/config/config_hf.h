/* Private to models/: the config.json of a Hugging Face folder. */
#ifndef QUIRE_MODELS_CONFIG_CONFIG_HF_H
#define QUIRE_MODELS_CONFIG_CONFIG_HF_H

#include "models/config/architecture.h"
#include "models/config/config_field.h"
#include "models/config/model_config.h"

/* Reads and range-checks every field for the folder's architecture; a setting that would change
 * results and is not supported is refused by name. Omitted fields get the default of the
 * architecture's class in Transformers. `path` begins messages.
 *
 * What only the tensors show is left to the caller: tensor_prefix is empty, and tied_embeddings is
 * what the file says. */
int config_hf_read(const cJSON *root, const char *path, struct model_config *out,
                   struct error *err);

/* --- Private to config_hf*.c --- */

/* Reads rotary_dim, ropes and max_position; sizes, heads and layers are set. */
int config_hf_read_ropes(const struct config_object *o, const struct architecture *architecture,
                         struct model_config *out);
/* Reads the sizes of latent attention and rotary_dim; num_heads is set. */
int config_hf_read_latent(const struct config_object *o, struct model_config *out);
/* Reads the mixture of experts, which layers are sparse, and how many layers follow the last;
 * sizes are set. */
int config_hf_read_experts(const struct config_object *o, const struct architecture *architecture,
                           struct model_config *out);
/* Reads how a checkpoint's weights were quantised; none if the key is absent. Refuses by the name
 * that its maker gave it what is not supported. Layers that the config excludes have plain tensors
 * in the file, and are recognised by these; scales of activations are ignored, since activations
 * are floats. */
int config_hf_read_quantization(const struct config_object *o, struct quantization_config *out);

#endif
