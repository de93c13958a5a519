/* Keeps the histories of a beam search: a tree of generated tokens, in which beams with a common
 * beginning share nodes. A node lives as long as a beam ends in it or another node follows it, so
 * only the nodes of running and finished beams are kept, not those of dropped ones. */
#ifndef QUIRE_ENGINE_SEQUENCE_BEAM_TRELLIS_H
#define QUIRE_ENGINE_SEQUENCE_BEAM_TRELLIS_H

#include "engine/request/token_stream.h"

#include <stdint.h>

#define BEAM_TRELLIS_ROOT (-1) /* before the first token: no node */

struct beam_node {
    int32_t parent;     /* or BEAM_TRELLIS_ROOT; of a free node: the next free one, or -1 */
    int32_t references; /* nodes that follow, and beams */
    int32_t token;
    float logprob; /* as in struct token_record */
    int32_t rank;
    int32_t num_top;
};

struct beam_trellis {
    int32_t max_top; /* maximum per node */
    int32_t capacity, num_used, first_free;
    struct beam_node *nodes; /* [capacity] */
    struct top_logprob *top; /* [capacity][max_top]; NULL when max_top is 0 */
};

void beam_trellis_init(struct beam_trellis *trellis, int32_t max_top);
void beam_trellis_finish(struct beam_trellis *trellis); /* accepts a zeroed one */

/* Makes room for that many more nodes. Returns -1 when memory is short. */
int beam_trellis_reserve(struct beam_trellis *trellis, int32_t num_nodes);
/* Takes a reserved node, with one reference for the caller, and refers to parent. The caller fills
 * its token, logprob, rank and num_top, and beam_trellis_top. */
int32_t beam_trellis_add(struct beam_trellis *trellis, int32_t parent);
struct top_logprob *beam_trellis_top(const struct beam_trellis *trellis, int32_t node);
/* Drops a reference; the root has none to drop. */
void beam_trellis_unref(struct beam_trellis *trellis, int32_t node);

/* Counts the entries of the history that ends in this node. */
void beam_trellis_count(const struct beam_trellis *trellis, int32_t node, int32_t *out_num_tokens,
                        size_t *out_num_top);
/* Writes them, first token first: records [num_tokens], top [num_top]. */
void beam_trellis_read(const struct beam_trellis *trellis, int32_t node,
                       struct token_record *records, struct top_logprob *top);

#endif
