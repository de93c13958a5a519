/* Private to models/weights: the bytes of a model on their way through processes of which only rank 0
 * reads them. Each rank gets a piece from the one before it and passes it to the next, so that no
 * link carries the model twice and the next piece is read while this one is on its way. However long
 * a piece takes, nobody counts as lost: loading takes what the disk takes. By the thread that loads. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_CHAIN_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_CHAIN_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct transport;

struct weights_chain {
    struct transport *transport; /* NULL: there is no chain */
    size_t bytes_left;           /* that rank 0 has still to read, as far as this rank knows */
    bool has_ended;              /* nothing comes any more: all is here, or an error passed */
};

/* num_bytes: of all pieces; only rank 0's is believed. */
struct weights_chain weights_chain_begin(struct transport *transport, size_t num_bytes);
bool weights_chain_reads(const struct weights_chain *chain); /* this is rank 0 */

/* On rank 0: passes on the piece that is in `chunk`. Else: waits for it there and passes it on; the
 * piece is to have these bytes: ERROR_MODEL when rank 0's has others, or there is none. An error of
 * rank 0's is this rank's; ERROR_DEVICE of the transport. */
int weights_chain_next(struct weights_chain *chain, void *chunk, size_t bytes, struct error *err);
/* This rank does not go on loading: tells the others if it is rank 0, else takes and passes on what
 * still comes, so that they can. chunk: [WEIGHTS_CHUNK_BYTES]. Any number of times. */
void weights_chain_abandon(struct weights_chain *chain, void *chunk, const struct error *why);

#endif
