/* Private to engine/grammar/: what a machine remembers. A reading of the text so far is an op that
 * waits for the next byte and the stack of frames below it; all readings of one text are a set.
 * Frames and sets are stored once each, so that equal ones have equal ids and stacks share their
 * tails; a set also remembers where each class of bytes leads from it, and its mask of tokens. */
#ifndef QUIRE_ENGINE_GRAMMAR_READING_STORE_H
#define QUIRE_ENGINE_GRAMMAR_READING_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define READING_NO_FRAME (-1) /* the bottom of the stack */
#define READING_UNKNOWN (-1)  /* where a class leads: not computed yet */
#define READING_NONE 0        /* the set without readings: no text goes on like this */

struct reading_frame {
    int32_t op;     /* where to return to */
    int32_t count;  /* OP_REPEAT: items begun; else 0 */
    int32_t parent; /* the frame below */
    int32_t depth;  /* frames from here to the bottom */
};

struct reading {
    int32_t op, frame;
};

struct reading_set {
    struct reading *readings; /* [num_readings] what comes first in the grammar comes first */
    int32_t num_readings;
    bool is_complete; /* the text so far matches the grammar */
    uint32_t *mask;   /* NULL as long as it is not known */
    int32_t next[];   /* [num_classes] ids of sets */
};

struct reading_store {
    int num_classes;
    size_t bytes; /* all that is allocated */
    struct reading_frame *frames;
    int32_t *frame_slots;
    int32_t num_frames, num_frame_slots;
    struct reading_set **sets;
    int32_t *set_slots;
    int32_t num_sets, num_set_slots;
};

/* Holds READING_NONE. -1 when memory is short. */
int reading_store_init(struct reading_store *store, int num_classes);
void reading_store_finish(struct reading_store *store); /* accepts a zeroed one */

/* The ids of a frame and of a set, stored if they are new; -1 when memory is short. */
int32_t reading_store_frame(struct reading_store *store, int32_t op, int32_t count, int32_t parent);
int32_t reading_store_set(struct reading_store *store, const struct reading *readings,
                          int32_t num_readings, bool is_complete);
/* The id that a set of another store has in this one. */
int32_t reading_store_copy_set(struct reading_store *store, const struct reading_store *from,
                               int32_t set);

static inline int32_t reading_store_depth(const struct reading_store *store, int32_t frame) {
    return frame == READING_NO_FRAME ? 0 : store->frames[frame].depth;
}

#endif
