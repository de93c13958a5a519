/* Decides how many tokens to draft for a sequence, from how often its drafts were right and from
 * what one more token costs the step. If the text does not repeat, or the device has no time to
 * spare, the number is 0, and speculation costs one lookup.
 *
 * A step of T tokens takes a + b T: `a` reads the weights, `b` computes a token. Of T tokens that
 * yield one each, b T / (a + b T) is the share s of the time that grows with their number: near 0
 * while reading the weights takes it all, near 1 in full batches. Where each is followed by k
 * drafts, the step takes 1 + s k times as long. Draft i is accepted if it and all before it are
 * right, with probability r^i, so that the step yields 1 + r + ... + r^k times as many tokens.
 * Draft k raises
 *
 *     (1 + r + ... + r^k) / (1 + s k)
 *
 * while it adds more than the average so far, r^k / s > (1 + ... + r^(k-1)) / (1 + s (k-1)); the
 * first one if r > s. From the first that does not, none does. Leviathan et al. 2023
 * (arXiv:2211.17192, theorem 3.8) have the same quotient, with a draft model's time for s.
 *
 * Uses no clock and allocates nothing. Engine thread only. */
#ifndef QUIRE_ENGINE_DRAFT_DRAFT_POLICY_H
#define QUIRE_ENGINE_DRAFT_DRAFT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* The exponentially weighted share of right drafts of one sequence, which embeds it. Low at first,
 * it rises within a few tokens, because a proposal that was not computed counts too: it is compared
 * with the token that was sampled. */
struct draft_acceptance {
    float rate; /* 0 to 1 */
};

void draft_acceptance_init(struct draft_acceptance *acceptance);
/* Counts a proposed token: accepted means that the token sampled in its place is the same. Only the
 * tokens of a proposal up to and including the first wrong one are counted: those after it were
 * proposed for another text. */
void draft_acceptance_add(struct draft_acceptance *acceptance, bool accepted);

/* The cost model of one engine: a and b by exponentially weighted least squares over its steps, so
 * that it follows changes (longer histories, a clock that slows down) within some dozens of steps.
 * The running moments are those of West 1979 (doi.org/10.1145/359146.359153). */
struct draft_cost {
    int32_t num_steps;   /* counted up to the window's length */
    double mean_tokens;  /* of a step */
    double mean_ns;      /* of a step */
    double variance;     /* of the tokens */
    double covariance;   /* of tokens and ns */
    double ns_per_token; /* b; estimated when the steps last differed enough */
    bool knows_ns_per_token;
};

/* Counts a step; one without tokens or without duration is ignored. While all steps have the same
 * number of tokens, the estimate of b is forgotten little by little, until a draft is tried again.
 * A zeroed struct draft_cost knows nothing yet. */
void draft_cost_add(struct draft_cost *cost, int32_t num_tokens, int64_t ns);
/* Returns b T / (a + b T), from 0 to 1, for a step of T = num_tokens > 0 without its drafts; a
 * small share while nothing is known, so that drafting is tried. */
float draft_cost_share(const struct draft_cost *cost, int32_t num_tokens);

/* Returns how many drafts make the best use of a step, at most max; 0: none pays. share: what
 * draft_cost_share returns. */
int32_t draft_policy_num_tokens(const struct draft_acceptance *acceptance, float share,
                                int32_t max);
/* Returns the quotient above for num_tokens drafts: how many times faster they make the step. */
float draft_policy_gain(const struct draft_acceptance *acceptance, float share, int32_t num_tokens);

#endif
