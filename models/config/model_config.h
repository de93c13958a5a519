/* Private to models/: hyper-parameters out of a file's settings.
 *
 * Two readers fill struct model_config, config_gguf.c and config_hf.c. What they share is here:
 * the limits of every size, the switches an architecture sets, and the checks of sizes against each
 * other. Nothing is taken on trust: a number outside its range is refused before it is used, and
 * zero never becomes a divisor. */
#ifndef QUIRE_MODELS_CONFIG_MODEL_CONFIG_H
#define QUIRE_MODELS_CONFIG_MODEL_CONFIG_H

#include "models/config/architecture.h"
#include "models/model.h"

enum {
    MODEL_MAX_VOCAB = 1 << 22,
    MODEL_MAX_HIDDEN = 1 << 17,
    MODEL_MAX_INTERMEDIATE = 1 << 20,
    MODEL_MAX_HEADS = 1024,
    MODEL_MAX_POSITION = 1 << 24,
};

/* The ranges of settings that are no whole numbers. */
#define MODEL_MIN_NORM_EPS 1e-12
#define MODEL_MAX_NORM_EPS 1.0
#define MODEL_MIN_THETA 1.0
#define MODEL_MAX_THETA 1e12
#define MODEL_MIN_ROPE_FACTOR 1.0
#define MODEL_MAX_ROPE_FACTOR 1e5
#define MODEL_MIN_MULTIPLIER 1e-6
#define MODEL_MAX_MULTIPLIER 1e6
#define MODEL_MIN_SOFT_CAP 1e-3
#define MODEL_MAX_SOFT_CAP 1e6

/* What a file calls the sizes that must fit together, for messages. */
struct model_config_names {
    const char *path, *hidden_size, *num_heads, *num_kv_heads, *head_dim;
};

/* From the metadata of a GGUF file. ERROR_MODEL names the key, its value and what is allowed; a key
 * of the architecture that is neither read nor known to change nothing is refused. */
int config_gguf_read(const struct tensor_file *file, struct model_config *out, struct error *err);

/* --- Shared by the readers -------------------------------------------------------------------- */

/* Every switch as the architecture has it, and everything else neutral. */
void model_config_init(struct model_config *config, const struct architecture *architecture);

/* head_dim 0 becomes hidden_size / num_heads. Refuses what does not divide, and heads the backends
 * have no attention for. */
int model_config_check_heads(struct model_config *config, const struct model_config_names *names,
                             struct error *err);

/* Whether a layer has the window under the architecture's rule. */
bool model_config_is_windowed(const struct architecture *architecture, int32_t layer);

/* Which rope turns each layer, once the layers have their windows: ropes[1] those with a window
 * under ARCHITECTURE_LOCAL_ROPE. `rotates` [num_layers] excepts layers; NULL: none. */
void model_config_set_layer_ropes(struct model_config *config,
                                  const struct architecture *architecture, const bool *rotates);

/* Tokens the model is good for, beyond what it states, because its rope is stretched. */
int32_t model_config_stretch(const struct rope_config *rope, int32_t max_position,
                             int32_t original_max_position);

#endif
