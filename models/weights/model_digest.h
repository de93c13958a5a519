/* Private to models/: a digest that is equal for models whose files are the same in everything that
 * could change an answer. A chat template from elsewhere does not count. The bytes of tensors are
 * added where they are read (weights_loader.c). */
#ifndef QUIRE_MODELS_WEIGHTS_MODEL_DIGEST_H
#define QUIRE_MODELS_WEIGHTS_MODEL_DIGEST_H

#include "models/files/content_hash.h"
#include "models/config/model.h"

/* Adds every setting as the file has it, read or not: hyper-parameters, tokenizer, template. Of a
 * folder these are whole files, read through `chunk` [chunk_bytes]. ERROR_IO, ERROR_MODEL. */
int model_digest_add_settings(struct content_hash *hash, const struct model *model, void *chunk,
                              size_t chunk_bytes, struct error *err);
/* Adds name, type and shape. */
void model_digest_add_tensor(struct content_hash *hash, const struct tensor_info *tensor);

#endif
