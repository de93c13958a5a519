/* Private to models/: the configuration in the metadata of a GGUF file. */
#ifndef QUIRE_MODELS_CONFIG_CONFIG_GGUF_H
#define QUIRE_MODELS_CONFIG_CONFIG_GGUF_H

#include "config/base/error.h"
#include "models/config/architecture.h"
#include "models/config/metadata_field.h"
#include "models/config/model_config.h"
#include "models/files/tensor_file.h"

/* Reads and range-checks every key of the file's architecture. ERROR_MODEL names the key, its value
 * and what is allowed; a key of the architecture that is neither read nor known to have no effect
 * is refused. */
int config_gguf_read(const struct tensor_file *file, struct model_config *out, struct error *err);

/* --- Private to config_gguf*.c --- */

/* Reads the sizes of latent attention and rotary_dim; num_heads and the norms' epsilon are set. */
int config_gguf_read_latent(const struct metadata_source *s, struct model_config *out);
/* Reads how yarn scales latent attention; ropes and attention_scale are set. */
int config_gguf_read_latent_scale(const struct metadata_source *s, struct model_config *out);

/* Reads the mixture of experts, and which layers are sparse; sizes are set. */
int config_gguf_read_experts(const struct metadata_source *s,
                             const struct architecture *architecture, struct model_config *out);

#endif
