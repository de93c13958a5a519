/* Adds up what the KV memory was used for, averaged over time. Slots are tokens' places; the four
 * uses are those of figure 2 of the PagedAttention paper. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_MEMORY_ACCOUNT_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_MEMORY_ACCOUNT_H

#include <stdint.h>

/* At one moment. */
struct memory_use {
    int32_t num_requests;   /* running */
    int64_t token_slots;    /* hold a token; a shared one counts once */
    int64_t reserved_slots; /* will hold a token of a running request */
    int64_t internal_slots; /* given beyond that */
    int64_t given_slots;    /* to requests: the three above */
    int64_t unshared_slots; /* would be given if no two sequences shared any */
};

struct memory_account {
    int32_t num_slots; /* of the pool */
    /* Sums over time. */
    double seconds, requests, token, reserved, internal, given, unshared;
    uint64_t num_steps, num_finished, num_preempted;
};

/* Counts a use that lasts the given time. */
void memory_account_add(struct memory_account *account, const struct memory_use *use,
                        double seconds);

double memory_account_requests(const struct memory_account *account); /* mean number running */
/* Shares of the pool: the four add up to 1. */
double memory_account_token(const struct memory_account *account);
double memory_account_reserved(const struct memory_account *account);
double memory_account_internal(const struct memory_account *account);
double memory_account_others(const struct memory_account *account);
/* Returns the share of what was given that holds tokens; 0 of nothing. */
double memory_account_useful(const struct memory_account *account);
/* Returns the share that sharing saves of what would be given without. */
double memory_account_saved(const struct memory_account *account);

#endif
