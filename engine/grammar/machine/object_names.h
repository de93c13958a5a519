/* Private to engine/grammar/: the names in the JSON objects that a text is within, so that no
 * object gets one twice. An automaton that sequences share cannot remember names: each state of a
 * sequence has its own (grammar_state). It follows JSON from the '{' of an object with open names
 * (grammar_open_object) to its '}', and all objects between them. Whoever has the state. */
#ifndef QUIRE_ENGINE_GRAMMAR_OBJECT_NAMES_H
#define QUIRE_ENGINE_GRAMMAR_OBJECT_NAMES_H

#include "engine/grammar/machine/grammar_vocabulary.h"

/* Names of the open objects of a text, all together; later ones are not remembered. */
#define OBJECT_NAMES_MAX 4096
/* Objects and arrays within each other; where there are more, the outermost ones are forgotten. */
#define OBJECT_NAMES_MAX_DEPTH 1024

struct json_frame {
    int32_t parent;
    int32_t first_name; /* of those noted since it began */
    int32_t last_name;  /* of its own; -1: none */
    bool is_object;
};

/* Equal names have equal hashes, however they are escaped. */
struct json_name {
    uint64_t hash;
    int32_t previous; /* of the same object; -1: none */
};

/* Where the text is. */
struct json_place {
    bool is_within; /* an object that is followed */
    bool in_string, is_name, expects_name;
    bool is_escaped;    /* behind a backslash */
    uint8_t num_digits; /* that \u still lacks */
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
/* Makes room for what so many bytes add. -1: memory is short. */
int object_names_reserve(struct object_names *names, size_t num_bytes);
/* The '{' of an object, which is followed from here on. There is room. */
void object_names_open(struct object_names *names);
/* A byte of JSON within an object that is followed. There is room. */
void object_names_step(struct object_names *names, uint8_t byte);
/* Within an object: writes the mask that was found without tokens that would repeat a name, and
 * where names are few, without those after which only a repeated one can come; unless no token is
 * left then. The found mask is of the machine or the state. -1: memory is short. */
int object_names_forbid(struct grammar_state *state, const uint32_t *found, uint32_t *mask);

#endif
