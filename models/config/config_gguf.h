/* Private to config_gguf*.c. */
#ifndef QUIRE_MODELS_CONFIG_GGUF_H
#define QUIRE_MODELS_CONFIG_GGUF_H

#include "models/config/architecture.h"
#include "models/config/metadata_field.h"
#include "models/model.h"

/* rotary_dim, ropes and max_position; the sizes, heads and layers are set. */
int config_gguf_read_ropes(const struct metadata_source *s, const struct architecture *architecture,
                           struct model_config *out);

#endif
