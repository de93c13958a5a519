/* A reader of one request's stream that compares every event with the oracle: each choice's events
 * must be a prefix of what the oracle says, and all of it when the choice ended by itself; prompt
 * scores come first, once, in order; nothing follows an end. */
#ifndef QUIRE_TESTS_SIM_STREAM_CHECKER_H
#define QUIRE_TESTS_SIM_STREAM_CHECKER_H

#include "tests/sim/oracle.h"

struct choice_progress {
    struct oracle_choice oracle;
    int32_t num_tokens;
    size_t text_bytes;
    uint64_t tokens_hash, text_hash; /* of what was read, to be compared with another run's */
    enum finish_reason finish;
};

struct stream_checker {
    struct request *request;         /* one reference */
    struct choice_progress *choices; /* [num_choices of the request] */
    struct token_buffer buffer;
    int32_t num_scored;
    int32_t num_finished;
    uint64_t score_history;
    bool saw_text;
    bool caching;              /* set by the owner: prompt tokens may be found in the cache */
    int32_t num_cached_tokens; /* as of the last event */
    char violation[256];       /* empty: none */
};

/* Takes over the caller's reference. */
void stream_checker_init(struct stream_checker *checker, struct request *request,
                         int32_t max_model_len, const struct grammar_vocabulary *vocabulary);
void stream_checker_finish(struct stream_checker *checker);

/* Reads what is there. False once something was wrong. */
bool stream_checker_read(struct stream_checker *checker);
bool stream_checker_is_done(const struct stream_checker *checker);
/* Returns whether a choice that ended so may have less than the oracle says. */
bool stream_checker_is_cut(enum finish_reason finish);

#endif
