/* Private to engine/grammar/: the memory of a machine. A parse state of the text so far is an op
 * that waits for the next byte, with the stack of frames below it. All parse states of one text
 * form a set. Frames and sets are stored once each, so that equal ones have equal ids and stacks
 * share their tails; a set also remembers where each class of bytes leads from it, and its mask of
 * tokens. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_PARSE_STORE_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_PARSE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARSE_NO_FRAME (-1)    /* the bottom of the stack */
#define PARSE_SET_UNKNOWN (-1) /* where a class leads: not computed yet */
#define PARSE_SET_TARGETS 12
#define PARSE_SET_EMPTY 0 /* the set without parse states: no text continues like this */

struct parse_frame {
    int32_t op;     /* where to return to */
    int32_t count;  /* OP_REPEAT: items begun; else 0 */
    int32_t parent; /* the frame below */
    int32_t depth;  /* frames from here to the bottom */
};

struct parse_state {
    int32_t op, frame;
};

/* What is known about the kinds of characters (character_kinds.h) that may follow a set; see
 * open_runs.h. */
struct parse_run {
    bool is_known;
    bool ends; /* the run ends: the set after it branches in another way; otherwise it is as long as
                  any token */
    int32_t length;       /* any `length` characters of `kinds` may follow */
    int32_t behind;       /* `ends`: the set they lead to */
    uint64_t kinds, dead; /* no character of `dead` may follow anywhere in the run */
};

struct parse_set {
    struct parse_state *states; /* [num_states] in the order of the grammar */
    int32_t num_states;
    bool is_complete; /* the text so far matches the grammar */
    uint32_t *mask;   /* NULL until it is known */
    bool has_ends;    /* the mask contains the end tokens */
    /* Written by open_runs.c. */
    struct parse_run run;
    bool has_open_kinds;   /* the search for open kinds is done */
    uint8_t closed_length; /* 0: none is known */
    uint64_t open_kinds;   /* any number of any characters of these kinds may follow */
    uint64_t closed_kinds; /* some text of closed_length characters of these kinds may not follow */
    int32_t targets[PARSE_SET_TARGETS]; /* sets that kinds of characters lead to */
    int32_t next[];                     /* [num_classes] ids of sets */
};

struct parse_store {
    int num_classes;
    size_t bytes; /* total allocated */
    struct parse_frame *frames;
    int32_t *frame_slots;
    int32_t num_frames, num_frame_slots;
    struct parse_set **sets;
    int32_t *set_slots;
    int32_t num_sets, num_set_slots;
};

/* Creates a store that holds PARSE_SET_EMPTY. Returns -1 when memory is short. */
int parse_store_init(struct parse_store *store, int num_classes);
void parse_store_finish(struct parse_store *store); /* accepts a zeroed one */

/* Return the ids of a frame and of a set, stored if they are new; -1 when memory is short. */
int32_t parse_store_frame(struct parse_store *store, int32_t op, int32_t count, int32_t parent);
int32_t parse_store_set(struct parse_store *store, const struct parse_state *states,
                        int32_t num_states, bool is_complete);
/* Returns the id that a set of another store has in this one, stored if it is new; -1 when memory
 * is short. */
int32_t parse_store_copy_set(struct parse_store *store, const struct parse_store *from,
                             int32_t set);

static inline int32_t parse_store_depth(const struct parse_store *store, int32_t frame) {
    return frame == PARSE_NO_FRAME ? 0 : store->frames[frame].depth;
}

#endif
