/* Private to models/config: the quantization_config of a folder's config.json, which says how a
 * checkpoint's weights were quantised. */
#ifndef QUIRE_MODELS_CONFIG_CONFIG_QUANTIZATION_H
#define QUIRE_MODELS_CONFIG_CONFIG_QUANTIZATION_H

#include "models/config/config_field.h"
#include "models/config/model_config.h"

/* Reads the method and its settings; none if the key is absent. Refuses by the name that its maker
 * gave it what is not supported. Layers that the config excludes have plain tensors in the file,
 * and are recognised by these; scales of activations are ignored, since activations are floats. */
int config_quantization_read(const struct config_object *o, struct quantization_config *out);

#endif
