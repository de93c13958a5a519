/* The systems that the PagedAttention paper compares with (section 6.1, "Orca"): every request gets
 * one contiguous run of slots from a buddy allocator when it starts, for all the tokens it may
 * have. Served first come, first served, as many at once as have found a run.
 *
 * Accounting: what is requested is split into tokens, reservation (output still to come) and
 * internal fragmentation (never filled). What the rounding to a power of two adds is lost outside
 * the request, with what is free: "external & others". Counted so, it reproduces figure 2; runs of
 * exact size, or rounding counted as internal, do not. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_ORCA_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_ORCA_H

#include "scripts/paged_memory/memory_account.h"
#include "scripts/paged_memory/trace.h"

enum orca_policy {
    ORCA_MAX,    /* reserves the longest context */
    ORCA_POW2,   /* the output, over-reserved by at most 2: 25 as 32 */
    ORCA_ORACLE, /* knows the output's length */
};

/* Serves the trace until its duration is over. */
void orca_run(enum orca_policy policy, const struct trace *trace, struct memory_account *out);

#endif
