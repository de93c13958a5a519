/* Who asks what, and when: conversations of several turns that arrive as a Poisson process. Every
 * turn's prompt is all that was said before and a new message, so that prompts of one conversation
 * begin alike; conversations with the same system prompt begin alike, too.
 *
 * Everything follows from the seed and the conversation's number, whoever serves it: two routers
 * are given the same trace but for the moments at which later turns come, which depend on when the
 * answers before them ended. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_TRACE_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define TRACE_LEAST_TOKENS 4   /* of a message */
#define TRACE_MOST_TOKENS 1024 /* likewise */

struct trace_settings {
    uint64_t seed;
    double conversations_per_s;
    double mean_turns;          /* >= 1; their number is geometric */
    double mean_think_s;        /* from an answer to the next turn; exponential */
    int32_t num_system_prompts; /* 0: none; the k-th is as frequent as 1/k (Zipf) */
    int32_t mean_system_tokens; /* one has between half and one and a half times as many */
    int32_t max_model_len;      /* a conversation ends before it is longer */
};

struct trace {
    struct trace_settings settings;
    double *system_share; /* [num_system_prompts] cumulative probability */
    uint64_t random;
    int64_t now_ns; /* arrival of the last conversation */
    uint64_t num_conversations;
};

struct conversation {
    uint64_t id; /* 1, 2, ... */
    uint64_t random;
    int64_t arrival_ns;
    int32_t system_prompt;     /* -1: none */
    int32_t num_system_tokens; /* 0 without */
    int32_t turns_left;
    int32_t num_tokens; /* at the end of the answer of the last turn that was drawn */
};

struct turn {
    int32_t num_prompt_tokens; /* all of it */
    int32_t num_output_tokens;
    int64_t think_ns; /* from the end of the answer before; 0 for the first */
};

/* Returns -1 when memory is short. Nothing arrives before start_ns. */
int trace_init(struct trace *trace, const struct trace_settings *settings, int64_t start_ns);
void trace_finish(struct trace *trace); /* accepts a zeroed one */

/* Draws the conversation that arrives next. */
void trace_next_conversation(struct trace *trace, struct conversation *out);
/* Draws the conversation's next turn. Returns false when it is over. The lengths of message and
 * answer are log-normal, cut off at TRACE_MOST_TOKENS: those of scripts/bench/workloads.py, whose
 * means are ShareGPT's (202 and 179). */
bool trace_next_turn(const struct trace *trace, struct conversation *conversation,
                     struct turn *out);
/* Returns the token at that position of the conversation, in a prompt or an answer, <
 * SYNTHETIC_VOCAB_SIZE. */
int32_t conversation_token(const struct conversation *conversation, int32_t position);
/* Writes its first count tokens. */
void conversation_write(const struct conversation *conversation, int32_t count, int32_t *out);

#endif
