/* Private to engine/grammar/: the names in the JSON objects that enclose the current position of a
 * text, so that no object gets a name twice. An automaton that sequences share cannot remember
 * names, so each grammar_state has its own object_names. It follows the JSON from the '{' of an
 * object with open names (grammar_open_object) to its '}', with all objects in between. Called by
 * whoever has the state. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_OBJECT_NAMES_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_OBJECT_NAMES_H

#include "engine/grammar/machine/grammar_vocabulary.h"

/* Maximum number of names of all open objects together; later ones are not remembered. */
#define OBJECT_NAMES_MAX 4096
/* Maximum nesting of objects and arrays; beyond it, the outermost ones are forgotten. */
#define OBJECT_NAMES_MAX_DEPTH 1024

struct json_frame {
    int32_t parent;
    int32_t first_name; /* first of the names noted since it began */
    int32_t last_name;  /* last of its own names; -1: none */
    bool is_object;
};

/* Equal names have equal hashes, however they are escaped. */
struct json_name {
    uint64_t hash;
    int32_t previous; /* previous name of the same object; -1: none */
};

/* The current place in the JSON text. */
struct json_place {
    bool is_within; /* an object that is followed */
    bool in_string, is_name, expects_name;
    bool is_escaped;    /* after a backslash */
    uint8_t num_digits; /* digits still to come after \u */
    uint16_t unit, high_surrogate;
    uint64_t hash;
    int32_t top, num_frames, num_names;
};

/* Zeroed: not within an object. */
struct object_names {
    struct json_place place;
    struct json_frame *frames;
    struct json_name *names;
    size_t frames_capacity, names_capacity;
};

void object_names_finish(struct object_names *names);
/* -1: memory is short. */
int object_names_copy(const struct object_names *from, struct object_names *out);
/* Makes room for what num_bytes more bytes can add. Returns -1 when memory is short. */
int object_names_reserve(struct object_names *names, size_t num_bytes);
/* Takes the '{' of an object, which is followed from here on. Room was reserved. */
void object_names_open(struct object_names *names);
/* Takes a byte of JSON within an object that is followed. Room was reserved. */
void object_names_step(struct object_names *names, uint8_t byte);
/* Within an object: writes the found mask without the tokens that would repeat a name and, if the
 * object has few possible names, without those after which only a repeated name can follow; the
 * mask is unchanged if no token would be left. The found mask belongs to the machine or the state.
 * Returns -1 when memory is short. */
int object_names_forbid(struct grammar_state *state, const uint32_t *found, uint32_t *mask);

#endif
