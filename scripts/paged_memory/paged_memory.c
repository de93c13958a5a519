/* Serves one trace by one policy; prints one JSON object. See usage. */
#include "scripts/paged_memory/beam_rows.h"
#include "scripts/paged_memory/orca.h"
#include "scripts/paged_memory/paged.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: paged_memory [--trace=sharegpt|alpaca] [--rate=REQUESTS_PER_S] [--minutes=M]\n"
    "                    [--seed=S] [--policy=max|pow2|oracle|paged]\n"
    "                    of the policy paged:\n"
    "                    [--block-size=B] [--prefix-caching=0|1] [--choices=N | --beams=WIDTH]\n";

struct options {
    const struct length_law *law;
    double rate, minutes;
    int32_t seed;
    int policy; /* enum orca_policy, or POLICY_PAGED */
    struct paged_setup paged;
};

#define POLICY_PAGED (ORCA_ORACLE + 1)

/* Returns the index of value in a list that ends with NULL, or -1. */
static int find(const char *const *list, const char *value) {
    for (int i = 0; list[i] != NULL; i++)
        if (strcmp(list[i], value) == 0)
            return i;
    return -1;
}

/* Returns what follows that prefix, or NULL. */
static const char *value_of(const char *argument, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(argument, prefix, length) == 0 ? argument + length : NULL;
}

static bool parse_number(const char *value, double low, double high, double *out) {
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= low && number <= high))
        return false;
    *out = number;
    return true;
}

static bool parse_count(const char *value, int32_t low, int32_t high, int32_t *out) {
    double number;
    if (!parse_number(value, low, high, &number) || number != (int32_t)number)
        return false;
    *out = (int32_t)number;
    return true;
}

/* "--name=value" */
static bool parse_option(const char *argument, struct options *out) {
    static const char *const traces[] = {"sharegpt", "alpaca", NULL};
    static const char *const policies[] = {"max", "pow2", "oracle", "paged", NULL};
    const char *value;
    if ((value = value_of(argument, "--trace=")) != NULL) {
        out->law = strcmp(value, "alpaca") == 0 ? length_law_alpaca() : length_law_sharegpt();
        return find(traces, value) >= 0;
    }
    if ((value = value_of(argument, "--rate=")) != NULL)
        return parse_number(value, 0.001, 1000, &out->rate);
    if ((value = value_of(argument, "--minutes=")) != NULL)
        return parse_number(value, 0.001, 1000, &out->minutes);
    if ((value = value_of(argument, "--seed=")) != NULL)
        return parse_count(value, 0, INT32_MAX, &out->seed);
    if ((value = value_of(argument, "--policy=")) != NULL)
        return (out->policy = find(policies, value)) >= 0;
    if ((value = value_of(argument, "--block-size=")) != NULL)
        return parse_count(value, 1, TRACE_MAX_LENGTH, &out->paged.block_size);
    if ((value = value_of(argument, "--choices=")) != NULL)
        return parse_count(value, 1, PAGED_MAX_CHOICES, &out->paged.num_choices);
    if ((value = value_of(argument, "--beams=")) != NULL)
        return parse_count(value, 1, BEAM_ROW_LOGPROBS, &out->paged.beam_width);
    if ((value = value_of(argument, "--prefix-caching=")) != NULL) {
        out->paged.prefix_caching = strcmp(value, "1") == 0;
        return out->paged.prefix_caching || strcmp(value, "0") == 0;
    }
    return false;
}

static void print_account(const struct memory_account *account) {
    printf("{\"minutes\": %.3f, \"steps\": %llu, \"finished\": %llu, \"preempted\": %llu, "
           "\"requests\": %.3f, \"token\": %.5f, \"reserved\": %.5f, \"internal\": %.5f, "
           "\"others\": %.5f, \"useful\": %.5f, \"saved\": %.5f}\n",
           account->seconds / 60, (unsigned long long)account->num_steps,
           (unsigned long long)account->num_finished, (unsigned long long)account->num_preempted,
           memory_account_requests(account), memory_account_token(account),
           memory_account_reserved(account), memory_account_internal(account),
           memory_account_others(account), memory_account_useful(account),
           memory_account_saved(account));
}

int main(int argc, char **argv) {
    struct options options = {.law = length_law_sharegpt(),
                              .rate = 2,
                              .minutes = 60,
                              .seed = 1,
                              .policy = POLICY_PAGED,
                              .paged = {.block_size = 16, .num_choices = 1}};
    for (int i = 1; i < argc; i++) {
        if (!parse_option(argv[i], &options)) {
            fprintf(stderr, "paged_memory: %s\n%s", argv[i], usage);
            return 2;
        }
    }
    struct trace trace;
    if (trace_init(&trace, options.law, options.rate, options.minutes * 60,
                   (uint64_t)options.seed) != 0) {
        fprintf(stderr, "paged_memory: no memory for the trace\n");
        return 1;
    }
    struct memory_account account;
    if (options.policy == POLICY_PAGED)
        paged_run(&options.paged, &trace, &account);
    else
        orca_run((enum orca_policy)options.policy, &trace, &account);
    print_account(&account);
    trace_finish(&trace);
    return 0;
}
