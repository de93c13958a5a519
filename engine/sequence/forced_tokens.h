/* Jump-forward decoding: where a grammar lets only one text follow, its tokens are appended without being sampled, and
 * one step computes them all.
 *
 * Which tokens those are follows from the tokens before alone. Where they cannot be appended at once, as a step in flight
 * samples the first or logprobs are requested, each is sampled with a mask that has no other. A value, in the sequence; engine thread only. */
#ifndef QUIRE_ENGINE_FORCED_TOKENS_H
#define QUIRE_ENGINE_FORCED_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_FORCED_TOKENS 32

struct grammar_state;
struct sampling_params;

/* The next tokens, in order; zeroed: none. */
struct forced_tokens {
    int32_t count;
    int32_t tokens[MAX_FORCED_TOKENS];
};

/* Returns whether the request's grammar forces tokens. */
bool forced_tokens_apply(const struct sampling_params *params);
/* The grammar has taken the token: the first of them, if there are any. Then finds those that follow the last of
 * them, or another token. */
void forced_tokens_note(struct forced_tokens *forced, struct grammar_state *grammar, int32_t token);

#endif
