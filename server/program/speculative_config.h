/* What --speculative-config says, in vLLM's shape: {"method": "ngram", "num_speculative_tokens": N,
 * "prompt_lookup_max": M, "prompt_lookup_min": m}. */
#ifndef QUIRE_SERVER_SPECULATIVE_CONFIG_H
#define QUIRE_SERVER_SPECULATIVE_CONFIG_H

#include "config/base/error.h"

#include <stdint.h>

struct speculative_config {
    int32_t num_speculative_tokens; /* of a sequence and step at most; 0: nothing is drafted */
    int32_t prompt_lookup_max;      /* tokens of an n-gram, see engine/draft/ngram_drafter.h */
    int32_t prompt_lookup_min;
};

/* Reads the option's text; NULL: nothing is drafted. method and num_speculative_tokens have to be
 * given; of the lookups one stands for both, and without them both are 5, as in vLLM. Keys that are
 * not known are refused. -1 with ERROR_CONFIG: one line with the option, the field, its value and
 * what is allowed. */
int speculative_config_read(const char *text, struct speculative_config *out, struct error *err);

#endif
