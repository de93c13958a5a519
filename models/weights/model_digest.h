/* Private to models/: what of a model is no tensor, for its digest. */
#ifndef QUIRE_MODELS_WEIGHTS_MODEL_DIGEST_H
#define QUIRE_MODELS_WEIGHTS_MODEL_DIGEST_H

#include "models/files/content_hash.h"
#include "models/model.h"

/* Adds every setting as the file has it, read or not: hyper-parameters, tokenizer, template. Of a
 * folder, the files they come from, through `piece` [piece_bytes]. ERROR_IO, ERROR_MODEL. */
int model_digest_add_settings(struct content_hash *hash, const struct model *model, void *piece,
                              size_t piece_bytes, struct error *err);
/* Adds name, type and shape. */
void model_digest_add_tensor(struct content_hash *hash, const struct tensor_info *tensor);

#endif
