/* What became of every request, and the figures made of it. Times are of virtual time. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_RESULTS_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A request that has ended, done or lost. */
struct outcome {
    int64_t sent_ns; /* first */
    float ttft_s;    /* from then to the first token of the answer that was whole */
    float tpot_s;    /* from there to the last token, for each of them; 0 of a single one */
    int32_t num_prompt_tokens, num_cached_tokens, num_output_tokens;
    int32_t replica;
    int32_t num_sent; /* 1, or more where a replica was lost */
    bool is_lost;     /* nobody repeated it */
};

struct results {
    struct outcome *outcomes; /* [count] in the order in which they ended */
    size_t count, capacity;
};

/* What a request must meet to count as goodput. */
struct result_limits {
    double ttft_s, tpot_s;
};

/* Of the requests that were first sent in [from_ns, to_ns). */
struct summary {
    int64_t from_ns, to_ns;
    size_t num_requests, num_done, num_lost, num_resent, num_good;
    int64_t prompt_tokens, cached_tokens, output_tokens; /* of those done */
    double ttft_p50_s, ttft_p99_s, tpot_p50_s,
        tpot_p99_s;      /* of those done; nearest rank, 0: none */
    double most_of_mean; /* requests of the replica that had the most, over the mean */
};

/* Zeroed, it is empty. Returns -1 when memory is short. */
int results_add(struct results *results, const struct outcome *outcome);
void results_finish(struct results *results);

/* Returns -1 when memory is short. */
int results_summarise(const struct results *results, const struct result_limits *limits,
                      int32_t num_replicas, int64_t from_ns, int64_t to_ns, struct summary *out);
/* Prints the members of a JSON object, without its braces. */
void summary_print(const struct summary *summary, FILE *file);

#endif
