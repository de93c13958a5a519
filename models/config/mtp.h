/* Multi-token prediction (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2): layers
 * after a model's last that predict further tokens. The first of them, as a model of its own that
 * drafts for the model it comes with, takes a token's embedding together with the hidden state h of
 * the token before it:
 *
 *   h' = layer(P [norm(embedding of token i + 1); norm(h of token i)])
 *   logits of token i + 2 = head(output norm(h'))
 *
 * and its keys and values are those of token i. h is the model's hidden state after its output
 * norm. For further tokens the same layer is applied again, to output norm(h') in the place of h
 * and the token that was just drafted. The report says neither; it is what SGLang does
 * (deepseek_nextn.py). vLLM's deepseek_mtp.py and glm4_moe_mtp.py agree except for two details: the
 * second norm, and the embedding of the first row, which they replace by zeros. The embedding and
 * the head are the model's, unless the files have others for the layer. */
#ifndef QUIRE_MODELS_CONFIG_MTP_H
#define QUIRE_MODELS_CONFIG_MTP_H

#include "models/config/model.h"

/* Makes an open model, which nobody else uses, the first such layer of itself (is_mtp).
 * ERROR_CONFIG when its files have none; ERROR_IO. */
int mtp_select(struct model *model, struct error *err);

#endif
