/* Private to models/: what becomes of hidden states besides logits, in the files of a Hugging Face
 * folder.
 *
 *   config.json             id2label, num_labels, problem_type: of a classifier (Transformers)
 *   modules.json            the steps of sentence-transformers after the model, each with the
 * folder of its own config.json: Pooling, Normalize; or LogitScore, which makes a score of the
 * logits of one or two words */
#ifndef QUIRE_MODELS_CONFIG_FOLDER_HEAD_H
#define QUIRE_MODELS_CONFIG_FOLDER_HEAD_H

#include "models/config/config_field.h"
#include "models/config/model.h"

/* Reads labels and activation of a classifier's config.json into model->classifier. */
int folder_head_read_labels(struct model *model, const struct config_object *config);

/* Reads modules.json, if the folder has it: pooling, has_raw_embeddings, and a classifier of words,
 * for which config and tensors are there already. Refuses steps that are not known, because without
 * them embeddings would be others. */
int folder_head_read_modules(struct model *model, struct error *err);

#endif
