/* Finds the masks of a grammar that take long on a thread of their own. A job is a grammar lent to
 * that thread: it finds what the grammar's states want, one mask after the other, and can be
 * interrupted and go on, so that several jobs share a thread. What is found does not depend on
 * that.
 *
 * grammar_state_try_mask makes a grammar busy; from then on none of its sequences takes part in a
 * step. Once they have left those in flight, a job begins, during which nothing is done with the
 * grammar or its states but to destroy them, until the job has ended: then the masks are there. */
#ifndef QUIRE_ENGINE_GRAMMAR_JOB_H
#define QUIRE_ENGINE_GRAMMAR_JOB_H

#include "engine/grammar/machine/grammar.h"

/* Is part of its grammar. */
struct grammar_job {
    struct grammar *grammar;
    /* Of whoever begins it. */
    uint64_t id;
    int32_t share;
    int64_t begin_ns;
    struct grammar_job *next; /* of whoever has it */
};

/* Engine thread. Returns whether a state of the grammar wants a mask, or a job is finding it. */
bool grammar_is_busy(const struct grammar *grammar);
/* Engine thread. Returns whether a job is finding masks. */
bool grammar_has_job(const struct grammar *grammar);
/* Engine thread. Takes a reference. The grammar is busy and has no job. */
struct grammar_job *grammar_job_begin(struct grammar *grammar);
/* One thread at a time. Goes on for that cost (see grammar_state_try_mask); returns true when all
 * masks are found or memory was short for them, and from then on. */
bool grammar_job_run(struct grammar_job *job, int64_t cost);
/* Engine thread; whether or not all is found. The grammar may be freed. */
void grammar_job_end(struct grammar_job *job);

#endif
