#include "engine/sequence/forced_tokens.h"

#include "engine/grammar/machine/grammar.h"
#include "engine/request/sampling_params.h"

#include <string.h>

/* With Mirostat each token leaves a surprise for the next one, beams compare logprobs; lists of allowed tokens,
 * runs that are banned and budgets of reasoning have a say of their own in what may follow. */
bool forced_tokens_apply(const struct sampling_params *params) {
    return params->grammar != NULL && params->beam_width == 0 && params->settings.mirostat == 0 &&
           params->num_allowed_tokens == 0 && params->num_bad_runs == 0 &&
           params->thinking.num_end_tokens == 0;
}

void forced_tokens_note(struct forced_tokens *forced, struct grammar_state *grammar,
                        int32_t token) {
    bool is_first = forced->count > 0 && forced->tokens[0] == token;
    forced->count = is_first ? forced->count - 1 : 0;
    memmove(forced->tokens, forced->tokens + 1, (size_t)forced->count * sizeof(*forced->tokens));
    if (forced->count == 0)
        forced->count = grammar_state_forced(grammar, forced->tokens, MAX_FORCED_TOKENS);
}
