#include "engine/grammar/machine/grammar_job.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar_vocabulary.h"
#include "engine/grammar/machine/grammar_machine.h"

#include <stdlib.h>
#include <string.h>

bool grammar_has_job(const struct grammar *grammar) {
    return grammar->machine != NULL && grammar->machine->is_lent;
}

bool grammar_is_busy(const struct grammar *grammar) {
    return grammar_has_job(grammar) ||
           (grammar->machine != NULL && grammar->machine->num_wanted > 0);
}

struct grammar_job *grammar_job_begin(struct grammar *grammar) {
    CHECK(grammar_is_busy(grammar) && !grammar_has_job(grammar));
    grammar->machine->is_lent = true;
    grammar->job = (struct grammar_job){.grammar = grammar_ref(grammar)};
    return &grammar->job;
}

/* Gives the state what it wanted, found or not. */
static void deliver(struct grammar_state *state) {
    struct grammar_machine *machine = state->grammar->machine;
    const struct parse_set *set = machine->store.sets[state->set];
    size_t bytes = (((size_t)state->vocabulary->vocab_size + 31) / 32) * sizeof(*state->mask);
    state->mask = set->mask != NULL ? malloc(bytes + 1) : NULL;
    state->has_failed = state->mask == NULL;
    if (state->mask != NULL)
        memcpy(state->mask, set->mask, bytes);
    state->may_end = set->has_ends;
    state->wants_mask = false;
    machine->num_wanted--;
}

/* Returns whose mask is next; NULL: nobody wants one. A walk that was begun is ended first. */
static struct grammar_state *find_wanting(struct grammar_machine *machine) {
    if (machine->walk.state != NULL && atomic_load(&machine->walk.state->is_dead))
        mask_walk_drop(machine);
    if (machine->walk.state != NULL)
        return machine->walk.state;
    struct grammar_state *state = machine->users;
    while (state != NULL && (!state->wants_mask || atomic_load(&state->is_dead)))
        state = state->next;
    return state;
}

/* Returns 0 when the state's set has its mask, 1 when the cost was too high, -1 when memory is
 * short. */
static int find_mask(struct grammar_state *state, int64_t *budget) {
    struct grammar_machine *machine = state->grammar->machine;
    if (machine->store.sets[state->set]->mask != NULL)
        return 0;
    if (machine->walk.state == NULL && mask_walk_begin(state) != 0)
        return -1;
    return mask_walk_run(machine, budget);
}

bool grammar_job_run(struct grammar_job *job, int64_t cost) {
    struct grammar_state *state;
    while ((state = find_wanting(job->grammar->machine)) != NULL) {
        if (find_mask(state, &cost) > 0)
            return false;
        deliver(state);
    }
    return true;
}

void grammar_job_end(struct grammar_job *job) {
    struct grammar *grammar = job->grammar;
    struct grammar_machine *machine = grammar->machine;
    machine->is_lent = false;
    struct grammar_state *state = machine->users, *next;
    for (; state != NULL; state = next) {
        next = state->next;
        if (atomic_load(&state->is_dead))
            grammar_state_destroy(state);
    }
    grammar_machine_report(grammar);
    grammar_unref(grammar);
}
