/* Private to models/: hyper-parameters out of a file's metadata. */
#ifndef QUIRE_MODELS_MODEL_CONFIG_H
#define QUIRE_MODELS_MODEL_CONFIG_H

#include "models/model.h"

/* Reads and range-checks every field for the file's architecture. ERROR_MODEL names the key, its
 * value and what is allowed; a key that would change results and is not supported is refused. */
int model_config_read(const struct tensor_file *file, struct model_config *out, struct error *err);

#endif
