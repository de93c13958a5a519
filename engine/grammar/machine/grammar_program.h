/* Private to engine/grammar/: a frozen grammar, as a program for a machine that reads bytes and has
 * a stack of return addresses (a pushdown automaton). If the program can continue in several ways,
 * the machine follows all of them at once (grammar_machine.h). */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_PROGRAM_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_PROGRAM_H

#include "engine/grammar/machine/grammar_job.h"
#include "engine/grammar/build/grammar_nodes.h"

#include <stdatomic.h>

#define GRAMMAR_MAX_OPS 262144
#define GRAMMAR_CACHE_BYTES (8u << 20)

enum op_kind {
    OP_RETURN, /* to the frame on top; without one, the text is complete */
    OP_BYTE,   /* one byte of first..last, then next */
    OP_TOKEN,  /* the token `target`, then next */
    OP_SPLIT,  /* next, or target */
    OP_JUMP,   /* to target; a call without a return (tail call) */
    OP_CALL,   /* to target, which returns to next */
    OP_REPEAT, /* target min to max times (it returns here), then next; max < 0: no end */
};

struct grammar_op {
    uint8_t kind; /* enum op_kind */
    uint8_t first, last;
    bool opens_object;    /* OP_BYTE: made by grammar_open_object */
    int32_t target, next; /* indices of ops */
    int32_t min, max;
};

/* Op 0 is the OP_RETURN that all rules share. */
struct grammar {
    _Atomic int num_refs;
    struct grammar_op *ops; /* [num_ops] */
    int32_t num_ops, entry;
    int16_t *needs; /* [num_ops] minimum number of frames needed to get from the op to OP_RETURN;
                       GRAMMAR_MAX_DEPTH + 1: more than allowed, or no text leads there */
    uint8_t classes[256];     /* bytes that no op distinguishes have one class */
    int num_classes;          /* 1..256 */
    uint8_t class_bytes[256]; /* [num_classes] one byte of each class */
    size_t cache_bytes; /* the machine forgets its transitions when they take more than this */
    atomic_size_t machine_bytes;     /* machine's size when a state or job last began or ended */
    atomic_bool has_given_up;        /* a mask lacks tokens; finding all costs too much */
    struct grammar_machine *machine; /* engine thread; NULL before the first state */
    struct grammar_job job;          /* used while the machine is lent */
};

/* Creates a grammar without ops, with room for num_ops (0: none yet). Returns NULL when memory is
 * short. Released by grammar_unref. */
struct grammar *grammar_create(int32_t num_ops);
/* Returns the approximate bytes of the grammar and its machine's memory. Any thread. */
size_t grammar_bytes(const struct grammar *grammar);
/* Fills ops, num_ops and entry from the nodes below root. */
int grammar_program_compile(const struct grammar_builder *builder, grammar_node root,
                            struct grammar *out, struct error *err);
/* Fills needs and the classes. Fails with ERROR_SYNTAX when the program is left-recursive, repeats
 * an item that may be empty, or matches no text. */
int grammar_program_check(struct grammar *grammar, struct error *err);

#endif
