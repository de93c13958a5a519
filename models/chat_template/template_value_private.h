/* Private to chat_template/: what values are made of.
 *
 * A struct template_value is passed and stored by value; larger contents lie in the arena, and
 * copies of the value share them. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_VALUE_PRIVATE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_VALUE_PRIVATE_H

#include "config/base/text.h"
#include "models/chat_template/template_value.h"

/* --- Memory (template_arena.c) --- */

/* Allocates bytes aligned for any type; NULL on failure. */
void *template_arena_alloc(struct template_arena *arena, size_t bytes);
/* The same for num items of item_bytes each. */
void *template_arena_alloc_items(struct template_arena *arena, size_t num, size_t item_bytes);
/* Allocates bytes for text, unaligned. */
char *template_arena_alloc_text(struct template_arena *arena, size_t bytes);
/* Extends the text that ends at `end` in place; false when something follows it in memory. */
bool template_arena_extend_text(struct template_arena *arena, const char *end, size_t bytes);
/* Resizes a text of `had` bytes. It may move, so nothing else may point into it, and from then on
 * it is resized only by this function. data is NULL if had is 0. Returns NULL when memory is
 * short. */
char *template_arena_resize_text(struct template_arena *arena, char *data, size_t had,
                                 size_t bytes);
/* Returns whether an allocation failed, because memory is short or the arena is full. */
bool template_arena_failed(const struct template_arena *arena);
size_t template_arena_max_bytes(const struct template_arena *arena);
/* Returns the seed of hashes, so that colliding keys cannot be prepared. */
uint64_t template_arena_seed(const struct template_arena *arena);

/* --- Values --- */

enum template_kind {
    TEMPLATE_MISSING, /* no value: an omitted argument */
    TEMPLATE_UNDEFINED,
    TEMPLATE_NONE,
    TEMPLATE_BOOL,
    TEMPLATE_INT,
    TEMPLATE_FLOAT,
    TEMPLATE_STRING,
    TEMPLATE_LIST,
    TEMPLATE_TUPLE,
    TEMPLATE_RANGE,
    TEMPLATE_VIEW,     /* keys, values or items of a map */
    TEMPLATE_ITERATOR, /* Python's generators: neither length nor index, walked once */
    TEMPLATE_MAP,
    TEMPLATE_NAMESPACE,
    TEMPLATE_LOOP,
    TEMPLATE_FUNCTION,
    TEMPLATE_METHOD, /* of a value: `name.strip` */
    TEMPLATE_MACRO,
};

/* Sequences may share the memory of their items: one may be a prefix of the other.
 */
struct template_sequence {
    struct template_value *items;
    size_t length, capacity;
    size_t *used; /* items of that memory in use by any sequence; NULL while there is no memory */
    size_t taken; /* consumed items of a TEMPLATE_ITERATOR */
};

struct template_value {
    uint8_t kind; /* enum template_kind */
    /* STRING: enum template_origin of all its bytes, if it has no marks. UNDEFINED: enum
     * template_kind of the value whose attribute is missing, TEMPLATE_MISSING for a variable. VIEW:
     * which one. */
    uint8_t origin;
    /* UNDEFINED: the attribute exists, but templates may not use it. */
    bool is_unsafe;
    /* STRING: it is Jinja's Markup, the result of the filters safe and escape: what is added to it
     * is escaped for HTML first. */
    bool is_markup;
    union {
        bool boolean;
        int64_t integer;
        struct {
            double real;
            const char *digits; /* FLOAT: of an integer beyond 64 bits; NULL: it is a float */
        };
        struct {
            const char *data;
            size_t length;
            const uint8_t *marks;           /* enum template_origin of each byte; NULL: all alike */
        } string;                           /* also the name of an UNDEFINED */
        struct template_sequence *sequence; /* LIST to ITERATOR */
        struct template_mapping *mapping;   /* MAP, NAMESPACE */
        struct template_loop *loop;
        const struct template_function *function;
        struct template_method *method;
        const struct template_macro *macro;
    };
};

/* The variable `loop` of a running loop. */
struct template_loop {
    struct template_sequence items;
    size_t index;                    /* of the current one */
    struct template_value last_seen; /* by loop.changed(): a list of its arguments */
};

static inline struct template_value template_value_none(void) {
    return (struct template_value){.kind = TEMPLATE_NONE};
}

static inline struct template_value template_value_bool(bool value) {
    return (struct template_value){.kind = TEMPLATE_BOOL, .boolean = value};
}

static inline struct template_value template_value_int(int64_t value) {
    return (struct template_value){.kind = TEMPLATE_INT, .integer = value};
}

static inline struct template_value template_value_float(double value) {
    return (struct template_value){.kind = TEMPLATE_FLOAT, .real = value};
}

/* Makes a string of bytes without copying them. */
static inline struct template_value template_value_text(struct text text,
                                                        enum template_origin origin) {
    return (struct template_value){.kind = TEMPLATE_STRING,
                                   .origin = (uint8_t)origin,
                                   .string = {text.data, text.length, NULL}};
}

static inline struct template_value template_value_server(const char *literal) {
    return template_value_text((struct text){literal, strlen(literal)}, TEMPLATE_ORIGIN_SERVER);
}

/* Returns bytes begin <= i < end of a string, without copying. */
static inline struct template_value template_value_part(struct template_value string, size_t begin,
                                                        size_t end) {
    string.string.data += begin;
    string.string.length = end - begin;
    if (string.string.marks != NULL)
        string.string.marks += begin;
    return string;
}

static inline bool template_value_is_string(const struct template_value *value) {
    return value->kind == TEMPLATE_STRING;
}

/* Returns whether it has a struct template_sequence. */
static inline bool template_value_is_sequence(const struct template_value *value) {
    return value->kind >= TEMPLATE_LIST && value->kind <= TEMPLATE_ITERATOR;
}

/* Makes an undefined value: of a variable, unless `origin` is set to the kind of the value that
 * lacks the attribute. */
static inline struct template_value template_value_undefined(struct text name) {
    struct template_value value = template_value_text(name, TEMPLATE_ORIGIN_SERVER);
    value.kind = TEMPLATE_UNDEFINED;
    value.origin = TEMPLATE_MISSING;
    return value;
}

/* Makes an empty one of that kind; returns false when memory is short, like all functions here. */
bool template_value_sequence(struct template_arena *arena, enum template_kind kind,
                             struct template_value *out);
/* Makes room for that many items. */
bool template_value_reserve(struct template_arena *arena, struct template_sequence *sequence,
                            size_t capacity);
bool template_value_append(struct template_arena *arena, struct template_sequence *sequence,
                           struct template_value item);
/* Makes a sequence of `num` items, copied. */
bool template_value_items(struct template_arena *arena, enum template_kind kind,
                          const struct template_value *items, size_t num,
                          struct template_value *out);

/* --- Maps ---
 * A map keeps the order of its keys, as Python's dict. A key is a string, a number, a truth value
 * or none; 1, 1.0 and true are the same key. */

struct template_entry {
    struct template_value key, item;
};

struct template_mapping {
    struct template_entry *entries; /* in the order in which the keys first came */
    size_t length, capacity;
    uint32_t *slots; /* index + 1 into entries, 0: free; NULL while there are few */
    size_t num_slots;
};

/* Makes an empty one of kind TEMPLATE_MAP or TEMPLATE_NAMESPACE; false without memory. */
bool template_value_map(struct template_arena *arena, enum template_kind kind,
                        struct template_value *out);
bool template_value_is_key(const struct template_value *value);
/* NULL: not there. */
struct template_value *template_value_map_find(const struct template_arena *arena,
                                               const struct template_mapping *map,
                                               const struct template_value *key);
struct template_value *template_value_map_find_text(const struct template_arena *arena,
                                                    const struct template_mapping *map,
                                                    struct text key);
/* Keeps the key that is there. False without memory. */
bool template_value_map_set(struct template_arena *arena, struct template_mapping *map,
                            const struct template_value *key, struct template_value item);
/* Sets all entries of `from` in `to`. */
bool template_value_map_update(struct template_arena *arena, struct template_mapping *to,
                               const struct template_mapping *from);

/* --- Growing strings that record the origin of each byte --- */

/* Initially zeroed except for the arena. What is added after the arena failed is lost;
 * template_builder_finish reports that. */
struct template_builder {
    struct template_arena *arena;
    char *data;
    uint8_t *marks; /* [capacity]; NULL while all bytes are of one origin */
    size_t length, capacity;
    enum template_origin origin; /* of all bytes if there are no marks */
    bool is_markup;              /* the resulting string is Markup */
};

void template_builder_add(struct template_builder *builder, struct text text,
                          enum template_origin origin);
void template_builder_add_server(struct template_builder *builder, const char *literal);
void template_builder_add_string(struct template_builder *builder,
                                 const struct template_value *string);
/* Adds bytes begin <= i < end of a string. */
void template_builder_add_part(struct template_builder *builder,
                               const struct template_value *string, size_t begin, size_t end);
void template_builder_add_repeated(struct template_builder *builder,
                                   const struct template_value *string, size_t times);
/* Reserves room, so that later additions of known size are not copied again. */
void template_builder_reserve(struct template_builder *builder, size_t bytes);
/* Returns the string so far. False: something was lost. */
bool template_builder_finish(struct template_builder *builder, struct template_value *out);

#endif
