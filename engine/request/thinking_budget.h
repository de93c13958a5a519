/* Bounds the reasoning tokens of a model before its answer: when the budget is used up between the
 * markers of its reasoning, only the tokens that spell the end marker may be sampled next. Markers
 * are found in the text, regardless of how it is split into tokens. Engine thread only, except for
 * the budget, which is a plain value. */
#ifndef QUIRE_ENGINE_REQUEST_THINKING_BUDGET_H
#define QUIRE_ENGINE_REQUEST_THINKING_BUDGET_H

#include "config/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define MAX_THINKING_END_TOKENS 16

struct thinking_budget {
    const char *begin, *end; /* static; their first character occurs in them only once */
    bool begins_inside;      /* the prompt ends within the reasoning */
    int32_t max_tokens;
    int32_t num_end_tokens; /* 0: no budget */
    int32_t end_tokens[MAX_THINKING_END_TOKENS];
};

enum thinking_phase {
    THINKING_BEFORE, /* white space only, and possibly part of the begin marker */
    THINKING_INSIDE,
    THINKING_OVER, /* reasoning is over, or the output began with something else */
};

/* The state of one sequence. */
struct thinking_state {
    enum thinking_phase phase;
    int32_t num_matched; /* matched characters of the marker that is searched for */
    int32_t num_tokens;  /* sampled inside */
    int32_t num_forced;
};

struct thinking_state thinking_state_begin(const struct thinking_budget *budget);
/* Takes the text of a generated token into account. */
void thinking_state_add(struct thinking_state *state, const struct thinking_budget *budget,
                        struct text text);
/* Returns the only token that may be sampled next; -1: any. */
int32_t thinking_state_forced(const struct thinking_state *state,
                              const struct thinking_budget *budget);
/* Returns whether there may be such a token after one more token, whose text is not known yet. */
bool thinking_state_may_force(const struct thinking_state *state,
                              const struct thinking_budget *budget);

#endif
