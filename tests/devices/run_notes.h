/* One line for each step that is submitted or collected and for each event that is read. What
 * follows from numerics is left out: tokens, unless it is known which are generated, and the values
 * of logprobs and embeddings, of which it says how many are finite. */
#ifndef QUIRE_TESTS_DEVICES_RUN_NOTES_H
#define QUIRE_TESTS_DEVICES_RUN_NOTES_H

#include "engine/batch/step.h"
#include "tests/devices/event_log.h"

/* The `user` of each request in a step. */
struct noted_request {
    struct request *request;
    bool has_known_tokens;
};

/* What is computed, where its tokens are taken from, in which slots and blocks it is kept, and what
 * is moved before. */
void note_submitted(struct event_log *log, int64_t now, const struct step *step);
/* What each row is about, and its token. */
void note_collected(struct event_log *log, int64_t now, const struct step *step);
void note_event(struct event_log *log, int64_t now, const struct noted_request *noted,
                const struct token_event *event);

#endif
