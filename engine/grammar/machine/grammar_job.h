/* Finds masks that take long on another thread. A job is a grammar lent to that thread: it finds
 * the masks that the grammar's states want, one after the other. It can be interrupted and
 * continued, so that several jobs share a thread; the result does not depend on that.
 *
 * grammar_state_try_mask makes a grammar busy; from then on none of its sequences takes part in a
 * step. Once none is in flight, a job begins. Until it has ended, the only thing allowed with the
 * grammar or its states is to destroy them; afterwards the masks are known. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_JOB_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_JOB_H

#include "engine/grammar/machine/grammar.h"

/* Embedded in its grammar. */
struct grammar_job {
    struct grammar *grammar;
    /* Set by whoever begins the job. */
    uint64_t id;
    int32_t share;
    int64_t begin_ns;
    struct grammar_job *next; /* for whoever holds the job */
};

/* Engine thread. Returns whether a state of the grammar wants a mask, or a job is finding it. */
bool grammar_is_busy(const struct grammar *grammar);
/* Engine thread. Returns whether a job is finding masks. */
bool grammar_has_job(const struct grammar *grammar);
/* Engine thread. Takes a reference. The grammar is busy and has no job. */
struct grammar_job *grammar_job_begin(struct grammar *grammar);
/* One thread at a time. Continues for that cost (see grammar_state_try_mask). Returns true once all
 * masks are found or memory was short for them. */
bool grammar_job_run(struct grammar_job *job, int64_t cost);
/* Engine thread; also before all masks are found. May free the grammar. */
void grammar_job_end(struct grammar_job *job);

#endif
