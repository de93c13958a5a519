#include "engine/request/thinking_budget.h"

struct thinking_state thinking_state_begin(const struct thinking_budget *budget) {
    return (struct thinking_state){.phase =
                                       budget->begins_inside ? THINKING_INSIDE : THINKING_BEFORE};
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void add_character(struct thinking_state *state, const struct thinking_budget *budget,
                          char c) {
    const char *marker = state->phase == THINKING_BEFORE ? budget->begin : budget->end;
    if (c == marker[state->num_matched]) {
        state->num_matched++;
    } else if (state->phase == THINKING_INSIDE) {
        state->num_matched = c == marker[0];
    } else if (state->num_matched > 0 || !is_space(c)) {
        state->phase = THINKING_OVER;
        return;
    }
    if (marker[state->num_matched] != '\0')
        return;
    state->phase = state->phase == THINKING_BEFORE ? THINKING_INSIDE : THINKING_OVER;
    state->num_matched = 0;
}

void thinking_state_add(struct thinking_state *state, const struct thinking_budget *budget,
                        struct text text) {
    bool is_forced = thinking_state_forced(state, budget) >= 0;
    bool is_inside = state->phase == THINKING_INSIDE;
    if (budget->num_end_tokens == 0)
        return;
    for (size_t i = 0; i < text.length && state->phase != THINKING_OVER; i++)
        add_character(state, budget, text.data[i]);
    state->num_forced += is_forced;
    state->num_tokens += is_inside;
}

/* A grammar may require another token than the forced one; then they start again. */
int32_t thinking_state_forced(const struct thinking_state *state,
                              const struct thinking_budget *budget) {
    if (budget->num_end_tokens == 0 || state->phase != THINKING_INSIDE ||
        state->num_tokens < budget->max_tokens)
        return -1;
    return budget->end_tokens[state->num_forced % budget->num_end_tokens];
}

bool thinking_state_may_force(const struct thinking_state *state,
                              const struct thinking_budget *budget) {
    int32_t num_tokens = state->num_tokens + (state->phase == THINKING_INSIDE);
    return budget->num_end_tokens > 0 && state->phase != THINKING_OVER &&
           num_tokens >= budget->max_tokens;
}
