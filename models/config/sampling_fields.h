/* The members of struct sampling_settings as named in requests, generation_config.json and GGUF
 * files: one line each, from which all tables of them are generated. */
#ifndef QUIRE_MODELS_CONFIG_SAMPLING_FIELDS_H
#define QUIRE_MODELS_CONFIG_SAMPLING_FIELDS_H

#include "kernels/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The likeliest of a million tokens has a larger probability: smaller values keep only that token
 * too, and would be lost in float sums. Also the lower bound of other shares of a mass. */
#define SAMPLING_MIN_TOP_P 1e-6

/* X(name, type, min, least, max, gguf_key)
 *   name      of the member, and of the field in requests and generation_config.json
 *   type      FLOAT, INT32
 *   min, max  the bounds of a request; min is not allowed itself where least is above it
 *   least     the least value that is of use: the lower bound of what a model file recommends
 *   gguf_key  of the same in a GGUF file; NULL: model files recommend none */
#define FOR_SAMPLING_FIELDS(X)                                                                     \
    X(temperature, FLOAT, 0, 0, 2, "general.sampling.temp")                                        \
    X(top_p, FLOAT, 0, SAMPLING_MIN_TOP_P, 1, "general.sampling.top_p")                            \
    X(top_k, INT32, -1, -1, INT32_MAX, "general.sampling.top_k")                                   \
    X(min_p, FLOAT, 0, 0, 1, "general.sampling.min_p")                                             \
    X(presence_penalty, FLOAT, -2, -2, 2, NULL)                                                    \
    X(frequency_penalty, FLOAT, -2, -2, 2, NULL)                                                   \
    X(repetition_penalty, FLOAT, 0.01, 0.01, 10, "general.sampling.penalty_repeat")                \
    X(typical_p, FLOAT, 0, SAMPLING_MIN_TOP_P, 1, NULL)                                            \
    X(xtc_probability, FLOAT, 0, 0, 1, "general.sampling.xtc_probability")                         \
    X(xtc_threshold, FLOAT, 0, SAMPLING_MIN_TOP_P, 1, "general.sampling.xtc_threshold")            \
    X(dynatemp_range, FLOAT, 0, 0, 5, NULL)                                                        \
    X(dynatemp_exponent, FLOAT, 0, 0, 10, NULL)                                                    \
    X(top_n_sigma, FLOAT, -1, -1, 100, NULL)                                                       \
    X(mirostat, INT32, 0, 0, 2, "general.sampling.mirostat")                                       \
    X(mirostat_tau, FLOAT, 0, 0, 100, "general.sampling.mirostat_tau")                             \
    X(mirostat_eta, FLOAT, 0, 0, 10, "general.sampling.mirostat_eta")                              \
    X(dry_multiplier, FLOAT, 0, 0, 100, NULL)                                                      \
    X(dry_base, FLOAT, 1, 1, 10, NULL)                                                             \
    X(dry_allowed_length, INT32, 1, 1, 1024, NULL)                                                 \
    X(dry_penalty_last_n, INT32, -1, -1, DRY_MAX_WINDOW, NULL)

enum sampling_field_type { SAMPLING_FIELD_FLOAT, SAMPLING_FIELD_INT32 };

struct sampling_field {
    const char *name;
    const char *gguf_key;
    enum sampling_field_type type;
    size_t offset; /* in struct sampling_settings */
    double least, max;
};

/* Returns all fields, in the order above; static storage. */
const struct sampling_field *sampling_fields(int *out_count);

/* Returns the address of the member, which has the field's type. */
static inline void *sampling_field_at(const struct sampling_field *field,
                                      struct sampling_settings *settings) {
    return (char *)settings + field->offset;
}
double sampling_field_value(const struct sampling_field *field,
                            const struct sampling_settings *settings);

/* Settings from a model file may be absent: a float is then NAN, an integer -1. */
void sampling_fields_clear(struct sampling_settings *settings);
bool sampling_field_is_absent(const struct sampling_field *field,
                              const struct sampling_settings *settings);
/* Returns whether a model file recommends anything. */
bool sampling_fields_recommend(const struct sampling_settings *settings);
/* Returns the defaults of a model's requests: what its file recommends and otherwise neutral ones;
 * if it recommends nothing, those of llama.cpp's server. Neutral ones alone sample so many unlikely
 * tokens that small models write nonsense. */
struct sampling_settings sampling_fields_defaults(const struct sampling_settings *recommended);
/* Copies the settings that are not absent. */
void sampling_fields_merge(const struct sampling_settings *from, struct sampling_settings *to);

#endif
