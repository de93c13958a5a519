/* Private to json_schema*.c: a schema being turned into a grammar.
 *
 * 1. A goal is a list of schemas, some negated, all of which the value at one place of the text
 * must match. Each goal is compiled once (json_schema_goal.c).
 * 2. For each type of value, json_schema_expand.c writes a goal in disjunctive normal form: cases
 * of facts, which are keywords of that type, some negated. allOf, anyOf, oneOf, not, if and $ref
 *    are gone then (json_schema_combine.c).
 * 3. A case becomes nodes by its type (json_schema_string.c, _number.c, _array.c, _object.c), whose
 *    parts are goals again: the schemas that a case's facts have for one property, for instance.
 *
 * Functions that return int return -1 with *context->err filled. A grammar_node is GRAMMAR_FAILED
 * once the builder has failed, which grammar_build reports. */
#ifndef QUIRE_ENGINE_GRAMMAR_READ_JSON_SCHEMA_PRIVATE_H
#define QUIRE_ENGINE_GRAMMAR_READ_JSON_SCHEMA_PRIVATE_H

#include "engine/grammar/build/text_automaton.h"
#include "engine/grammar/read/json_schema.h"

#include <stddef.h>

#define SCHEMA_MAX_PATH 384
/* Units of grammar_builder_work. */
#define SCHEMA_STEP_WORK 5 /* to look at a name or a value */
#define SCHEMA_WORK 200    /* to begin with a schema or a value of an enum */
#define SCHEMA_BYTES_PER_WORK 4
#define SCHEMA_MAX_CASES 512
#define SCHEMA_MAX_GOALS 8192
#define SCHEMA_GOAL_SLOTS 1024
#define SCHEMA_MAX_DECIMALS 22        /* 17 significant digits, from 0.000001 on */
#define SCHEMA_MAX_MEMORY (32u << 20) /* bytes of schema_allocate */

enum json_type { NULL_TYPE, BOOLEAN, NUMBER, STRING, ARRAY, OBJECT, NUM_TYPES };

struct schema_literal {
    const cJSON *schema;
    bool negated;
    int depth;        /* of the schema */
    const char *path; /* of the schema, for messages */
};

struct schema_goal {
    const struct schema_literal *literals;
    int count;
};

enum fact_kind {
    FACT_KEYWORD,   /* the keyword `item` of the schema, or its opposite */
    FACT_REQUIRED,  /* there is a property `name` */
    FACT_FORBIDDEN, /* there is none */
    FACT_PROPERTY,  /* a property `name` exists and fails the schema `item` */
    FACT_ITEM       /* an item `index` exists and fails the schema `item` */
};

struct schema_fact {
    enum fact_kind kind;
    struct schema_literal of; /* the schema it comes from; negated: the opposite of the keyword */
    const cJSON *item;
    const char *name;
    int index;
};

/* All facts hold. */
struct schema_case {
    const struct schema_fact **facts;
    int count;
};

/* One of the cases holds. */
struct schema_cases {
    struct schema_case *items;
    int count;
};

/* Pieces of JSON, each created when first needed; -1 before that. */
struct json_pieces {
    grammar_node colon, comma, gap, character, string, number, value, any_object, any_array,
        nothing;
};

#define JSON_PIECES_NONE                                                                           \
    { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 }

struct schema_chunk;     /* of memory */
struct schema_entry;     /* of the table of goals */
struct cached_automaton; /* of a keyword */

struct schema_context {
    struct grammar_builder *builder;
    const cJSON *root;
    const char *path;                   /* of the root */
    const char *whitespace;             /* json_schema_node's */
    bool strict, ignores_ref_siblings;  /* like drafts 4 to 7 */
    bool is_base_known, has_other_base; /* has_other_base: a schema within it has an $id */
    struct api_error *err;
    int num_schemas;
    size_t num_allocated;
    int64_t *work; /* the builder's */
    struct json_pieces pieces;
    struct schema_chunk *chunks;
    struct schema_entry **goals; /* [SCHEMA_GOAL_SLOTS] lists, by hash; NULL before the first */
    struct schema_entry *first_deferred, *last_deferred;
    int num_goals;
    int nesting; /* depth of goals being compiled */
    struct cached_automaton *automata;
    const cJSON *choice, *chosen; /* the enum or const whose value is being examined */
    char empty_path[SCHEMA_MAX_PATH], empty_reason[128]; /* where a case was found to be empty */
};

/* --- json_schema.c --- */

/* Fails with 400 invalid_json_schema, "PATH: ...": no JSON schema may have this. */
int schema_refuse(struct schema_context *c, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails with 400 unsupported_json_schema: valid in a JSON schema, but this server cannot enforce
 * it. */
int schema_decline(struct schema_context *c, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an automaton's error about a keyword; 503 when memory was short. */
int schema_decline_error(struct schema_context *c, const char *path, const char *key,
                         const struct error *error);
int schema_decline_depth(struct schema_context *c, const char *path);
/* Returns whether a keyword that cannot be enforced is left out; if so, reports its name. */
bool schema_ignores(struct schema_context *c, const char *path, const char *key);
/* Notes why nothing matches a case, for the message in case nothing matches the schema. */
void schema_note_empty(struct schema_context *c, const char *path, const char *reason);
/* Allocates memory that lives as long as the context. Returns NULL with 503 when memory is short,
 * with 400 above SCHEMA_MAX_MEMORY. */
void *schema_allocate(struct schema_context *c, size_t bytes);
/* Counts names or values that a search visited; fails with 400 when there were too many. */
int schema_add_steps(struct schema_context *c, size_t steps);
/* Counts a schema or a value; fails with 400 when there are too many. */
int schema_count_one(struct schema_context *c, const char *path, const char *what);
/* Makes the literal of the schema at a label within another: "items", "properties.name". */
int schema_child(struct schema_context *c, const struct schema_literal *parent, const cJSON *schema,
                 const char *label, struct schema_literal *out);
/* Reads the keyword's value, a whole number >= 0; above max, fails with 400. */
int schema_count(struct schema_context *c, const struct schema_fact *fact, int max, int *out);

/* --- json_schema_expand.c --- */

/* Looks up the member, counting with schema_add_steps; *out is NULL when there is none. */
int schema_find(struct schema_context *c, const cJSON *object, const char *name, const cJSON **out);
int schema_expand_goal(struct schema_context *c, const struct schema_goal *goal,
                       enum json_type type, struct schema_cases *out);
enum json_type schema_type_of(const cJSON *value);
/* Reads the types that `type` names, as bits of enum json_type. *out_integers: only integers among
 * numbers.
 */
int schema_read_types(struct schema_context *c, const char *path, const cJSON *type, unsigned *out,
                      bool *out_integers);
/* Returns whether the schema has no other keyword, annotations aside. */
bool schema_says_only(const struct schema_context *c, const cJSON *schema, const char *key);

/* A keyword of a schema while it is expanded for a type. */
struct schema_expansion {
    struct schema_context *c;
    const struct schema_literal *of;
    const cJSON *item;
    enum json_type type;
    int nesting;
    struct schema_cases *out;
};

int schema_expand(struct schema_context *c, const struct schema_literal *literal,
                  enum json_type type, int nesting, struct schema_cases *out);
int schema_expand_value(const struct schema_expansion *e, bool value);
/* Expands to what holds for all values, or for none if the schema is negated. */
int schema_expand_true(const struct schema_expansion *e);
/* Expands a schema within the keyword, or its opposite. */
int schema_expand_within(const struct schema_expansion *e, const cJSON *schema, const char *label,
                         bool negated, struct schema_cases *out);

/* --- Formulas in disjunctive normal form --- */

/* Sets the cases to "true" or "false" for all values. */
int schema_set_cases(struct schema_context *c, bool value, struct schema_cases *out);
int schema_or_cases(struct schema_context *c, struct schema_cases *into,
                    const struct schema_cases *more);
/* Facts that both contain appear once; keywords are compared by the schema they belong to. */
int schema_join_cases(struct schema_context *c, const struct schema_case *a,
                      const struct schema_case *b, struct schema_case *out);
/* Leaves out cases that are known to match nothing. */
int schema_and_cases(struct schema_context *c, enum json_type type, struct schema_cases *into,
                     const struct schema_cases *more);

/* --- json_schema_combine.c: schemas made of others --- */

/* Finds the schema that a $ref (or $dynamicRef, $recursiveRef) names. */
int schema_resolve(struct schema_context *c, const char *path, const cJSON *ref,
                   struct schema_literal *out);
/* *out: no value matches two of the branches. */
int schema_branches_are_disjoint(struct schema_context *c, const struct schema_literal *of,
                                 const cJSON *branches, bool *out);
int schema_expand_ref(const struct schema_expansion *e);
int schema_expand_not(const struct schema_expansion *e);
int schema_expand_all_of(const struct schema_expansion *e);
int schema_expand_any_of(const struct schema_expansion *e);
int schema_expand_one_of(const struct schema_expansion *e);
int schema_expand_if(const struct schema_expansion *e);

/* --- json_schema_table.c: the goals met so far, each once, and the types they imply --- */

enum progress { UNTOUCHED, DEFERRED, COMPILING, COMPILED };
enum emptiness { UNKNOWN, SEARCHING, EMPTY, NOT_EMPTY };

struct schema_entry {
    struct schema_entry *next;          /* of the hash's list */
    struct schema_entry *next_deferred; /* of the queue */
    struct schema_goal goal;
    enum progress progress;
    enum emptiness emptiness;
    grammar_node node; /* COMPILED */
    grammar_node rule; /* used in its place where it was needed earlier; -1: none */
};

/* Returns the entry of a goal, its references resolved; NULL and *c->err. */
struct schema_entry *schema_find_entry(struct schema_context *c, const struct schema_goal *goal);

#define SCHEMA_ALL_TYPES ((1u << NUM_TYPES) - 1)

/* Finds the types of a goal. Without `type`, the keywords imply the types; without keywords, any
 * type. */
int schema_meant_types(struct schema_context *c, const struct schema_goal *goal, unsigned *out);

/* --- json_schema_goal.c --- */

int schema_goal_node(struct schema_context *c, const struct schema_goal *goal, grammar_node *out);
/* *out: nothing matches the goal. When it is false, something may. */
int schema_goal_is_empty(struct schema_context *c, const struct schema_goal *goal, bool *out);
/* The same for the values that can be written, which are of the types that the keywords imply. */
int schema_goal_has_no_text(struct schema_context *c, const struct schema_goal *goal, bool *out);
int schema_case_is_empty(struct schema_context *c, enum json_type type,
                         const struct schema_case *one, bool *out);
/* Lists the values of a goal that has few. *out_count is -1 when there are more than `max` or the
 * number is unknown. */
int schema_goal_values(struct schema_context *c, const struct schema_goal *goal,
                       const cJSON **values, int max, int *out_count);
/* Compiles the goals that were deferred. */
int schema_define_goals(struct schema_context *c);

/* --- json_schema_match.c --- */

int schema_value_matches(struct schema_context *c, const struct schema_literal *literal,
                         const cJSON *value, bool *out);
int schema_fact_holds(struct schema_context *c, const struct schema_fact *fact, const cJSON *value,
                      bool *out);
/* Returns whether two values are equal as JSON schemas see it. Counts steps; call
 * schema_add_steps(c, 0) to know whether there were too many. */
bool schema_values_equal(struct schema_context *c, const cJSON *a, const cJSON *b);

/* --- json_schema_values.c: JSON itself --- */

grammar_node schema_sequence(struct schema_context *c, const grammar_node *items, int count);
grammar_node schema_text(struct schema_context *c, const char *text);
grammar_node schema_colon(struct schema_context *c);
grammar_node schema_comma(struct schema_context *c);
/* An opening bracket or brace and the white space after it. */
grammar_node schema_open(struct schema_context *c, const char *bracket);
/* The opening brace of an object whose names are not all given; no name comes twice. */
grammar_node schema_open_names(struct schema_context *c);
/* A value within another, and the white space after it. */
grammar_node schema_inner(struct schema_context *c, grammar_node value);
grammar_node schema_any_value(struct schema_context *c);
grammar_node schema_any_object(struct schema_context *c);
grammar_node schema_any_array(struct schema_context *c);
grammar_node schema_any_string(struct schema_context *c);
grammar_node schema_any_number(struct schema_context *c);
grammar_node schema_character(struct schema_context *c);
/* A node that matches nothing. */
grammar_node schema_nothing(struct schema_context *c);
/* A member's name, quoted. -1: memory was short. */
int schema_quoted(struct schema_context *c, const char *text, grammar_node *out);
/* Exactly this value. */
int schema_literal(struct schema_context *c, const cJSON *value, grammar_node *out);

/* --- json_schema_string.c --- */

/* Returns the pattern of a format; NULL: unknown. */
const char *schema_format_pattern(const char *name);
/* Returns whether a format without a pattern does not restrict the text, because it is not one of
 * JSON Schema's. With strict, it must be one of OpenAPI's. */
bool schema_format_is_annotation(const char *name, bool strict);
/* Makes the automaton of the texts that a pattern or format admits, once for each keyword's
 * item. */
int schema_pattern_automaton(struct schema_context *c, const char *path, const char *key,
                             const cJSON *item, const struct text_automaton **out);
/* *out: the pattern contains what no grammar can express, such as a look-ahead. */
int schema_pattern_is_unknown(struct schema_context *c, const char *pattern, bool *out);
/* Hands the automaton to the context, which destroys it. */
int schema_keep_automaton(struct schema_context *c, const cJSON *item,
                          struct text_automaton *automaton);
void schema_forget_automata(struct schema_context *c);
/* Finds the strings that match the goal; the caller must not destroy the automaton. */
int schema_goal_strings(struct schema_context *c, const struct schema_goal *goal,
                        const struct text_automaton **out);

/* --- json_schema_range.c: numbers between bounds --- */

struct schema_bounds {
    bool has_low, has_high, low_excluded, high_excluded;
    double low, high;
    const cJSON *low_item, *high_item; /* which may have more digits */
    const char *path;
};

/* *out is schema_nothing if no number lies between the bounds. */
int schema_integer_range(struct schema_context *c, const struct schema_bounds *bounds,
                         grammar_node *out);
/* Without bounds, and without `plain`, also with exponents. */
int schema_real_range(struct schema_context *c, const struct schema_bounds *bounds, bool plain,
                      grammar_node *out);

/* --- json_schema_properties.c: what a case says about an object --- */

#define OBJECT_MAX_CLASSES 32

/* A property with a fixed name, in the order of the schema. */
struct property {
    const char *name;
    struct schema_literal *literals; /* what its value must match */
    int num_literals, literals_capacity;
    bool required, is_absent; /* is_absent: it must not exist */
};

/* Names of other properties whose values must match the same schemas. */
struct name_class {
    const struct text_automaton *automaton; /* NULL: all strings */
    struct schema_literal *literals;
    int num_literals, literals_capacity;
    uint32_t patterns; /* bits of the patternProperties that the names match */
};

struct object {
    struct property *properties;
    int num_properties, properties_capacity;
    struct name_class classes[OBJECT_MAX_CLASSES];
    int num_classes;
    int num_others; /* number of names in the classes, at most GRAMMAR_MAX_REPEAT */
    int min, max;   /* properties; max < 0: no end */
    bool is_empty;
    const char *path;
};

/* Reads a case. Without `classes`, reads only what decides whether it is empty, and leaves out
 * other properties if it can do without them. If the schema names properties and does not mention
 * others, there are no others. */
int schema_read_object(struct schema_context *c, const struct schema_case *one, bool classes,
                       struct object *out);

/* --- Cases. Each makes a node of the values; *out_empty: there are none --- */

int schema_string(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_string_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);
int schema_number(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_number_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);
int schema_array(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_array_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);
int schema_object(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_object_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);

#endif
