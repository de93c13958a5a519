#include "engine/grammar/build/grammar_rewrite.h"
#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/machine/grammar_program.h"

#include <stdlib.h>

static void destroy(struct grammar *grammar) {
    grammar_machine_destroy(grammar->machine);
    free(grammar->ops);
    free(grammar->needs);
    free(grammar);
}

struct grammar *grammar_create(int32_t num_ops) {
    struct grammar *grammar = calloc(1, sizeof(*grammar));
    if (grammar == NULL)
        return NULL;
    atomic_init(&grammar->num_refs, 1);
    grammar->cache_bytes = GRAMMAR_CACHE_BYTES;
    grammar->num_ops = num_ops;
    grammar->ops = num_ops > 0 ? calloc((size_t)num_ops, sizeof(*grammar->ops)) : NULL;
    if (num_ops == 0 || grammar->ops != NULL)
        return grammar;
    destroy(grammar);
    return NULL;
}

size_t grammar_bytes(const struct grammar *grammar) {
    size_t op_bytes = sizeof(*grammar->ops) + sizeof(*grammar->needs);
    return sizeof(*grammar) + (size_t)grammar->num_ops * op_bytes +
           atomic_load_explicit(&grammar->machine_bytes, memory_order_relaxed);
}

int grammar_build(struct grammar_builder *builder, grammar_node root, struct grammar **out,
                  struct error *err) {
    if (builder->failure != ERROR_NONE)
        return error_set(err, builder->failure, "%s", builder->reason);
    if (root < 0 || root >= builder->num_nodes)
        return error_set(err, ERROR_SYNTAX, "an item of the grammar does not exist");
    if (grammar_rewrite(builder, &root) != 0)
        return error_set(err, builder->failure, "%s", builder->reason);
    struct grammar *grammar = grammar_create(0);
    if (grammar == NULL)
        return error_set(err, ERROR_MEMORY, "memory is short");
    if (grammar_program_compile(builder, root, grammar, err) != 0 ||
        grammar_program_check(grammar, err) != 0) {
        destroy(grammar);
        return -1;
    }
    *out = grammar;
    return 0;
}

struct grammar *grammar_ref(struct grammar *grammar) {
    atomic_fetch_add_explicit(&grammar->num_refs, 1, memory_order_relaxed);
    return grammar;
}

void grammar_unref(struct grammar *grammar) {
    if (grammar != NULL &&
        atomic_fetch_sub_explicit(&grammar->num_refs, 1, memory_order_acq_rel) == 1)
        destroy(grammar);
}

/* --- As bytes --- */

/* A grammar as bytes: its entry, then of each op its kind, first and last byte, and four numbers of
 * four bytes, the lowest first. The third number is 1 where an op opens an object. */

#define OP_BYTES 19
#define ENTRY_BYTES 4

static unsigned char *put_number(unsigned char *to, int32_t number) {
    for (int i = 0; i < 4; i++)
        *to++ = (unsigned char)((uint32_t)number >> 8 * i);
    return to;
}

static int32_t get_number(const unsigned char *from) {
    uint32_t number = 0;
    for (int i = 0; i < 4; i++)
        number |= (uint32_t)from[i] << 8 * i;
    return (int32_t)number;
}

void grammar_write(const struct grammar *grammar, struct byte_buffer *out) {
    unsigned char bytes[OP_BYTES];
    put_number(bytes, grammar->entry);
    byte_buffer_append(out, bytes, ENTRY_BYTES);
    for (int32_t i = 0; i < grammar->num_ops; i++) {
        const struct grammar_op *op = &grammar->ops[i];
        unsigned char *to = bytes;
        *to++ = op->kind;
        *to++ = op->first;
        *to++ = op->last;
        to = put_number(to, op->target);
        to = put_number(to, op->next);
        to = put_number(to, op->opens_object ? 1 : op->min);
        put_number(to, op->max);
        byte_buffer_append(out, bytes, sizeof(bytes));
    }
}

static bool is_op(const struct grammar *grammar, int32_t index) {
    return index >= 0 && index < grammar->num_ops;
}

/* As grammar_program_compile makes them; how they are linked is grammar_program_check's. */
static bool is_sound(const struct grammar *grammar, const struct grammar_op *op,
                     int32_t vocab_size) {
    switch (op->kind) {
    case OP_RETURN:
        return op == grammar->ops;
    case OP_BYTE:
        return op->first <= op->last && is_op(grammar, op->next) &&
               (!op->opens_object || (op->first == '{' && op->last == '{'));
    case OP_TOKEN:
        return op->target >= 0 && op->target < vocab_size && is_op(grammar, op->next);
    case OP_JUMP:
        return is_op(grammar, op->target);
    case OP_SPLIT:
    case OP_CALL:
        return is_op(grammar, op->target) && is_op(grammar, op->next);
    case OP_REPEAT:
        return is_op(grammar, op->target) && is_op(grammar, op->next) && op->min >= 0 &&
               op->min <= GRAMMAR_MAX_REPEAT && op->max != 0 && op->max >= -1 &&
               op->max <= GRAMMAR_MAX_REPEAT && (op->max < 0 || op->max >= op->min);
    default:
        return false;
    }
}

static int read_ops(const unsigned char *from, int32_t vocab_size, struct grammar *grammar,
                    struct error *err) {
    bool sound = is_op(grammar, grammar->entry);
    for (int32_t i = 0; i < grammar->num_ops; i++, from += OP_BYTES)
        grammar->ops[i] = (struct grammar_op){
            .kind = from[0],
            .first = from[1],
            .last = from[2],
            .opens_object = from[0] == OP_BYTE && get_number(from + 11) == 1,
            .target = get_number(from + 3),
            .next = get_number(from + 7),
            .min = get_number(from + 11),
            .max = get_number(from + 15),
        };
    for (int32_t i = 0; i < grammar->num_ops && sound; i++)
        sound = is_sound(grammar, &grammar->ops[i], vocab_size);
    if (!sound || grammar->ops[0].kind != OP_RETURN)
        return error_set(err, ERROR_SYNTAX, "the grammar is not one that was written");
    return grammar_program_check(grammar, err);
}

int grammar_read(struct text bytes, int32_t vocab_size, struct grammar **out, struct error *err) {
    const unsigned char *from = (const unsigned char *)bytes.data;
    size_t num_ops = bytes.length / OP_BYTES;
    if (num_ops < 1 || num_ops > GRAMMAR_MAX_OPS ||
        bytes.length != ENTRY_BYTES + num_ops * OP_BYTES)
        return error_set(err, ERROR_SYNTAX, "not a valid grammar (%zu bytes)", bytes.length);
    struct grammar *grammar = grammar_create((int32_t)num_ops);
    if (grammar == NULL)
        return error_set(err, ERROR_MEMORY, "memory is short");
    grammar->entry = get_number(from);
    if (read_ops(from + ENTRY_BYTES, vocab_size, grammar, err) != 0) {
        grammar_unref(grammar);
        return -1;
    }
    *out = grammar;
    return 0;
}
