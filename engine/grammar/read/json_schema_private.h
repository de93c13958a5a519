/* Private to json_schema*.c: a schema being turned into a grammar.
 *
 * 1. A goal is a list of schemas, some negated, all of which a value must match: what stands at one
 *    place of the text. Goals are compiled once each (json_schema_goal.c).
 * 2. For each type of value, json_schema_expand.c writes a goal in disjunctive normal form: cases
 * of facts, which are keywords of that type, some negated. allOf, anyOf, oneOf, not, if and $ref
 *    are gone then (json_schema_combine.c).
 * 3. A case becomes nodes by its type (json_schema_string.c, _number.c, _array.c, _object.c), whose
 *    parts are goals again: the schemas that a case's facts have for one property, for instance.
 *
 * Functions that return int give -1 with *context->err filled; a grammar_node is GRAMMAR_FAILED
 * once the builder has failed, which grammar_build reports. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_PRIVATE_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_PRIVATE_H

#include "engine/grammar/build/text_automaton.h"
#include "engine/grammar/read/json_schema.h"

#include <stddef.h>

#define SCHEMA_MAX_PATH 384
/* Of grammar_builder_work. */
#define SCHEMA_STEP_WORK 5 /* to look at a name or a value */
#define SCHEMA_WORK 200    /* to begin with a schema or a value of an enum */
#define SCHEMA_BYTES_PER_WORK 4
#define SCHEMA_MAX_CASES 512
#define SCHEMA_MAX_GOALS 8192
#define SCHEMA_GOAL_SLOTS 1024
#define SCHEMA_MAX_DECIMALS 22        /* 17 digits that count, from 0.000001 on */
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
    FACT_PROPERTY,  /* there is a property `name`, which fails the schema `item` */
    FACT_ITEM       /* there is an item `index`, which fails the schema `item` */
};

struct schema_fact {
    enum fact_kind kind;
    struct schema_literal of; /* the schema that says so; negated: the opposite of the keyword */
    const cJSON *item;
    const char *name;
    int index;
};

/* All facts hold. */
struct schema_case {
    const struct schema_fact **facts;
    int count;
};

/* One of the cases does. */
struct schema_cases {
    struct schema_case *items;
    int count;
};

/* Pieces of JSON that are made once, each when it is first needed; -1 before that. */
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
    bool strict, ignores_ref_siblings;  /* as drafts 4 to 7 do */
    bool is_base_known, has_other_base; /* whether a schema within it has an $id */
    struct api_error *err;
    int num_schemas;
    size_t num_allocated;
    int64_t *work; /* the builder's */
    struct json_pieces pieces;
    struct schema_chunk *chunks;
    struct schema_entry **goals; /* [SCHEMA_GOAL_SLOTS] lists, by hash; NULL before the first */
    struct schema_entry *first_deferred, *last_deferred;
    int num_goals;
    int nesting; /* of goals being compiled */
    struct cached_automaton *automata;
    const cJSON *choice, *chosen; /* a value of this enum or const is being looked at */
    char empty_path[SCHEMA_MAX_PATH], empty_reason[128]; /* where a case was found to be empty */
};

/* --- json_schema.c --- */

/* 400 invalid_json_schema: "PATH: ...", which no JSON schema may have. */
int schema_refuse(struct schema_context *c, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 400 unsupported_json_schema: a JSON schema may, but no output can be held to it here. */
int schema_decline(struct schema_context *c, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an error of an automaton, about a keyword; 503 when memory was short. */
int schema_decline_error(struct schema_context *c, const char *path, const char *key,
                         const struct error *error);
int schema_decline_depth(struct schema_context *c, const char *path);
/* Returns whether a keyword that no output can be held to is left out, which names it. */
bool schema_ignores(struct schema_context *c, const char *path, const char *key);
/* Notes why nothing matches a case, for the message if nothing matches the schema. */
void schema_note_empty(struct schema_context *c, const char *path, const char *reason);
/* Memory that lives as long as the context; NULL and 503 when it is short, 400 when it is a lot. */
void *schema_allocate(struct schema_context *c, size_t bytes);
/* Counts names or values that a search passed; 400 when there were too many. */
int schema_add_steps(struct schema_context *c, size_t steps);
/* Counts a schema or a value; 400 when there are too many. */
int schema_count_one(struct schema_context *c, const char *path, const char *what);
/* The schema within another, at a label: "items", "properties.name". */
int schema_child(struct schema_context *c, const struct schema_literal *parent, const cJSON *schema,
                 const char *label, struct schema_literal *out);
/* A whole number from 0 on that the keyword says; above max a 400. */
int schema_count(struct schema_context *c, const struct schema_fact *fact, int max, int *out);

/* --- json_schema_expand.c --- */

/* The member is looked up with schema_add_steps; *out NULL: there is none. */
int schema_find(struct schema_context *c, const cJSON *object, const char *name, const cJSON **out);
int schema_expand_goal(struct schema_context *c, const struct schema_goal *goal,
                       enum json_type type, struct schema_cases *out);
enum json_type schema_type_of(const cJSON *value);
/* The types that `type` names, as bits of enum json_type; *out_integers: of numbers only integers.
 */
int schema_read_types(struct schema_context *c, const char *path, const cJSON *type, unsigned *out,
                      bool *out_integers);
/* Returns whether the schema says nothing but this keyword, annotations aside. */
bool schema_says_only(const struct schema_context *c, const cJSON *schema, const char *key);

/* A keyword of a schema as it is expanded for a type. */
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
/* What holds for all values: false where the schema is negated. */
int schema_expand_true(const struct schema_expansion *e);
/* One schema within the keyword's, possibly the opposite of it. */
int schema_expand_within(const struct schema_expansion *e, const cJSON *schema, const char *label,
                         bool negated, struct schema_cases *out);

/* --- Formulas in disjunctive normal form --- */

/* True or false of all values. */
int schema_set_cases(struct schema_context *c, bool value, struct schema_cases *out);
int schema_or_cases(struct schema_context *c, struct schema_cases *into,
                    const struct schema_cases *more);
/* Facts that both have are in it once: keywords by what they are of. */
int schema_join_cases(struct schema_context *c, const struct schema_case *a,
                      const struct schema_case *b, struct schema_case *out);
/* Leaves out the cases of which it is known that nothing matches them. */
int schema_and_cases(struct schema_context *c, enum json_type type, struct schema_cases *into,
                     const struct schema_cases *more);

/* --- json_schema_combine.c: schemas made of others --- */

/* The schema that a $ref (or $dynamicRef, $recursiveRef) names. */
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

/* --- json_schema_table.c: goals that were met, each once, and the types that they mean --- */

enum progress { UNTOUCHED, DEFERRED, COMPILING, COMPILED };
enum emptiness { UNKNOWN, SEARCHING, EMPTY, NOT_EMPTY };

struct schema_entry {
    struct schema_entry *next;          /* of the hash's list */
    struct schema_entry *next_deferred; /* of the queue */
    struct schema_goal goal;
    enum progress progress;
    enum emptiness emptiness;
    grammar_node node; /* COMPILED */
    grammar_node rule; /* that stands for it where it was needed earlier; -1: none */
};

/* Returns the entry of a goal, its references resolved; NULL and *c->err. */
struct schema_entry *schema_find_entry(struct schema_context *c, const struct schema_goal *goal);

#define SCHEMA_ALL_TYPES ((1u << NUM_TYPES) - 1)

/* Without `type`, the keywords imply the types; none at all means any. */
int schema_meant_types(struct schema_context *c, const struct schema_goal *goal, unsigned *out);

/* --- json_schema_goal.c --- */

int schema_goal_node(struct schema_context *c, const struct schema_goal *goal, grammar_node *out);
/* *out: nothing matches. When it is false, something may. */
int schema_goal_is_empty(struct schema_context *c, const struct schema_goal *goal, bool *out);
/* The same of the values that are written: of the types that the keywords imply. */
int schema_goal_has_no_text(struct schema_context *c, const struct schema_goal *goal, bool *out);
int schema_case_is_empty(struct schema_context *c, enum json_type type,
                         const struct schema_case *one, bool *out);
/* The values of a goal that has few. *out_count is -1 when there are more than `max`, or it is not
 * known. */
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
/* A bracket or brace that opens, and the white space behind it. */
grammar_node schema_open(struct schema_context *c, const char *bracket);
/* The brace of an object in which not all names are given: none comes twice. */
grammar_node schema_open_names(struct schema_context *c);
/* A value within another, and the white space behind it. */
grammar_node schema_inner(struct schema_context *c, grammar_node value);
grammar_node schema_any_value(struct schema_context *c);
grammar_node schema_any_object(struct schema_context *c);
grammar_node schema_any_array(struct schema_context *c);
grammar_node schema_any_string(struct schema_context *c);
grammar_node schema_any_number(struct schema_context *c);
grammar_node schema_character(struct schema_context *c);
/* What no text matches. */
grammar_node schema_nothing(struct schema_context *c);
/* A member's name, quoted. -1: memory was short. */
int schema_quoted(struct schema_context *c, const char *text, grammar_node *out);
/* Exactly this value. */
int schema_literal(struct schema_context *c, const cJSON *value, grammar_node *out);

/* --- json_schema_string.c --- */

/* The pattern of a format; NULL: none is known. */
const char *schema_format_pattern(const char *name);
/* Returns whether a format that has no pattern says nothing about the text: none of JSON Schema's.
 * With strict, one of OpenAPI's. */
bool schema_format_is_annotation(const char *name, bool strict);
/* The texts that a pattern or format admits, made once for each keyword's item. */
int schema_pattern_automaton(struct schema_context *c, const char *path, const char *key,
                             const cJSON *item, const struct text_automaton **out);
/* *out: it has what no grammar can say, a look-ahead for instance. */
int schema_pattern_is_unknown(struct schema_context *c, const char *pattern, bool *out);
/* The context destroys it. */
int schema_keep_automaton(struct schema_context *c, const cJSON *item,
                          struct text_automaton *automaton);
void schema_forget_automata(struct schema_context *c);
/* The strings that match the goal; not to be destroyed. */
int schema_goal_strings(struct schema_context *c, const struct schema_goal *goal,
                        const struct text_automaton **out);

/* --- json_schema_range.c: numbers between bounds --- */

struct schema_bounds {
    bool has_low, has_high, low_excluded, high_excluded;
    double low, high;
    const cJSON *low_item, *high_item; /* which may have more digits */
    const char *path;
};

/* *out is schema_nothing where no number lies between them. */
int schema_integer_range(struct schema_context *c, const struct schema_bounds *bounds,
                         grammar_node *out);
/* Without bounds, and without `plain`, also with exponents. */
int schema_real_range(struct schema_context *c, const struct schema_bounds *bounds, bool plain,
                      grammar_node *out);

/* --- json_schema_properties.c: what a case says of an object --- */

#define OBJECT_MAX_CLASSES 32

/* A property that has a name of its own, in the order of the schema. */
struct property {
    const char *name;
    struct schema_literal *literals; /* what its value must match */
    int num_literals, literals_capacity;
    bool required, is_absent; /* is_absent: there must be none */
};

/* Names of other properties whose values must match the same schemas. */
struct name_class {
    const struct text_automaton *automaton; /* NULL: all strings */
    struct schema_literal *literals;
    int num_literals, literals_capacity;
    uint32_t patterns; /* of patternProperties that the names match, as bits */
};

struct object {
    struct property *properties;
    int num_properties, properties_capacity;
    struct name_class classes[OBJECT_MAX_CLASSES];
    int num_classes;
    int num_others; /* names that the classes have, at most GRAMMAR_MAX_REPEAT */
    int min, max;   /* properties; max < 0: no end */
    bool is_empty;
    const char *path;
};

/* Reads a case. Without `classes` only what tells whether it is empty: no other properties, if it
 * may do without. Where the schema names properties, and says nothing of others, there are none. */
int schema_read_object(struct schema_context *c, const struct schema_case *one, bool classes,
                       struct object *out);

/* --- Cases. A node of the values; *out_empty of a function that has it: there are none --- */

int schema_string(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_string_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);
int schema_number(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_number_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);
int schema_array(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_array_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);
int schema_object(struct schema_context *c, const struct schema_case *one, grammar_node *out);
int schema_object_is_empty(struct schema_context *c, const struct schema_case *one, bool *out);

#endif
