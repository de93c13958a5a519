/* How the tokens of one request are sampled and when it ends. Filled and validated once by the
 * front end, then const. The arrays are owned by the request (request_create copies them).
 */
#ifndef QUIRE_ENGINE_REQUEST_SAMPLING_PARAMS_H
#define QUIRE_ENGINE_REQUEST_SAMPLING_PARAMS_H

#include "engine/request/thinking_budget.h"
#include "kernels/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;

/* Bounds that the front end enforces; all but the last two determine sizes of arrays. */
#define MAX_STOP_STRINGS 16
#define MAX_STOP_TOKENS 64
#define MAX_LOGIT_BIASES 1024
#define MAX_BAD_RUNS 128 /* a bad word may need two: with and without a space before it */
#define MAX_BAD_RUN_TOKENS 32
#define MAX_STOP_STRING_BYTES 256
#define MAX_LOGPROB_TOKENS 1024
#define MAX_DRY_BREAKERS 32
#define MAX_DRY_BREAKER_BYTES 64
/* Maximum continuations of one beam that a step considers: as many as the sample op reports. */
#define BEAM_MAX_CANDIDATES SAMPLE_MAX_LOGPROBS

struct stop_string {
    const char *data; /* not empty, valid UTF-8, not NUL-terminated */
    size_t length;
};

struct token_run {
    const int32_t *tokens; /* 1..MAX_BAD_RUN_TOKENS, of the vocabulary */
    int32_t count;
};

/* What a request gets instead of tokens: the hidden states of its prompt after the output norm,
 * pooled into one vector. */
enum pooling {
    POOLING_NONE = 0, /* tokens */
    POOLING_MEAN,     /* the mean of all tokens' states */
    POOLING_LAST,     /* the last token's state */
};

/* Says when a beam search stops. */
enum early_stopping {
    EARLY_STOPPING_FALSE, /* stops when the best running beam, if it ended now, would be no better
                             than the worst finished one */
    EARLY_STOPPING_TRUE,  /* stops as soon as `width` are finished */
    EARLY_STOPPING_NEVER, /* like FALSE, but assumes the length at which the best possible score is
                             reached */
};

struct sampling_params {
    enum pooling pooling; /* not NONE: num_choices is 1, max_tokens 0, num_prompt_logprobs -1 */
    int32_t num_choices;  /* n, at least 1; the front end bounds it (--max-n) */
    /* Number of beams of a beam search; 0: sampling. It is at least num_choices; the best
     * num_choices beams become the choices, in order. In a beam search the temperature is 0, there
     * is no penalty, bias, mask, bad run, grammar or stop string, num_prompt_logprobs is -1, and
     * beam_width plus the number of end tokens (the model's unless ignore_eos, and stop_tokens) is
     * at most BEAM_MAX_CANDIDATES. */
    int32_t beam_width;
    double length_penalty; /* of beam search */
    enum early_stopping early_stopping;
    int32_t max_tokens; /* 0: score the prompt only */
    int32_t min_tokens; /* end tokens and stop strings do not count before this many */
    struct sampling_settings settings;
    uint64_t seed;        /* always set: the front end chooses one when the caller gave none */
    int32_t num_logprobs; /* per generated token: -1 none, otherwise the number of likeliest tokens;
                             at most the engine's max_logprobs */
    int32_t num_prompt_logprobs;   /* the same, per prompt token */
    int32_t num_logprob_tokens;    /* with num_logprobs >= 0: these instead of the likeliest */
    const int32_t *logprob_tokens; /* distinct */
    bool ignore_eos;
    bool include_stop_string; /* keep the matched stop string in the text */
    bool skip_special_tokens; /* leave special tokens out of the text; default true */
    int32_t num_stop_strings;
    const struct stop_string *stop_strings;
    int32_t num_stop_tokens;
    const int32_t *stop_tokens;
    int32_t num_biases;
    const struct token_bias *biases; /* distinct tokens */
    int32_t num_allowed_tokens;      /* 0: all may be sampled; otherwise only these */
    const int32_t *allowed_tokens;   /* of the vocabulary, any number; repeated ones are harmless */
    int32_t num_bad_runs;
    const struct token_run
        *bad_runs; /* never generated; a run begins within the output, not in the prompt */
    int32_t num_dry_breakers;
    const struct stop_string *dry_breakers; /* batch/dry_penalty.h */
    struct thinking_budget thinking;        /* not in a beam search */
    struct grammar *grammar; /* what the output must match; NULL: anything. request_create takes its
                                own reference */
};

#endif
