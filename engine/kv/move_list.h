/* Lists the block copies of one kind that a step must make before it computes: pairs in which every
 * destination occurs once and can be removed again. Embedded in the block manager. */
#ifndef QUIRE_ENGINE_KV_MOVE_LIST_H
#define QUIRE_ENGINE_KV_MOVE_LIST_H

#include <stddef.h>
#include <stdint.h>

struct move_list {
    int32_t *from, *to; /* [blocks of the destinations' pool] */
    int32_t count;
    int32_t *place; /* [blocks of the destinations' pool] where in the list a block is the
                       destination, -1: nowhere */
};

/* Makes room for destinations 0 .. num_destinations - 1. Returns -1 when memory is short. */
int move_list_init(struct move_list *moves, int32_t num_destinations);
size_t move_list_bytes(int32_t num_destinations); /* what it allocates */
void move_list_finish(struct move_list *moves);   /* accepts a zeroed list */

/* Adds a move to a block that is not a destination yet. */
void move_list_add(struct move_list *moves, int32_t from, int32_t to);
/* Returns the block that moves to `to`, or -1. */
int32_t move_list_source(const struct move_list *moves, int32_t to);
/* Removes the move to `to`, which must exist. The order of the others may change. */
void move_list_remove(struct move_list *moves, int32_t to);
void move_list_clear(struct move_list *moves);

#endif
