/* Private to json_schema*.c: a schema being turned into a grammar. Functions that return int give
 * -1 with *context->err filled; a grammar_node is GRAMMAR_FAILED once the builder has failed, which
 * grammar_build reports. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_PRIVATE_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_PRIVATE_H

#include "server/api/constraint/json_schema.h"

#include <stddef.h>

#define SCHEMA_MAX_REFS 512
#define SCHEMA_MAX_PATH 384
#define SCHEMA_MAX_STEPS 2000000 /* over names, for those that are looked up: some 50 ms */

/* Holds what a $ref names: it becomes a rule, compiled after everything that refers to it. */
struct schema_ref {
    const cJSON *target;
    grammar_node rule;
    char path[SCHEMA_MAX_PATH];
};

/* Pieces of JSON that are made once, each when it is first needed; -1 before that. */
struct json_pieces {
    grammar_node colon, comma, character, string, number, value, any_object, any_array;
};

#define JSON_PIECES_NONE                                                                           \
    { -1, -1, -1, -1, -1, -1, -1, -1 }

struct schema_context {
    struct grammar_builder *builder;
    const cJSON *root;
    bool strict;
    struct api_error *err;
    int depth, num_schemas, num_copied;
    size_t num_steps;
    char path[SCHEMA_MAX_PATH]; /* of the schema at hand */
    struct json_pieces pieces;
    struct schema_ref *refs;
    int num_refs;
    size_t refs_capacity;
    cJSON *merged; /* an array that owns the schemas that were made by merging */
};

/* --- json_schema.c --- */

/* 400 invalid_json_schema: "PATH: ...", which no JSON schema may have. */
int schema_refuse(struct schema_context *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* 400 unsupported_json_schema: a JSON schema may, but no output can be held to it here. */
int schema_decline(struct schema_context *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The schema that stands in the one at hand under a label: "items", "properties.name". */
int schema_child(struct schema_context *c, const cJSON *schema, const char *label,
                 grammar_node *out);
/* Counts names that a search passed; 400 when there were too many. */
int schema_add_steps(struct schema_context *c, size_t steps);
/* A whole number of 0..max; the default where it is absent. */
int schema_count(struct schema_context *c, const cJSON *schema, const char *key, int missing,
                 int max, int *out);
/* A number; *out_has says whether it is there. */
int schema_number(struct schema_context *c, const cJSON *schema, const char *key, bool *out_has,
                  double *out);
/* With strict: 400, "KEY is not supported WHY". */
int schema_unsupported(struct schema_context *c, const char *key, const char *why);

/* --- json_schema_combine.c --- */

/* The schema that a $ref string names, or NULL and a 400. */
const cJSON *schema_resolve(struct schema_context *c, const char *reference);
/* One schema that says what all items of allOf and the schema itself say. */
int schema_merge_all(struct schema_context *c, const cJSON *schema, const cJSON *all_of,
                     const cJSON **out);
/* The schema without its `key`, and with what `branch` says. */
int schema_merge_branch(struct schema_context *c, const cJSON *schema, const char *key,
                        const cJSON *branch, const cJSON **out);

/* --- json_schema_values.c: JSON itself --- */

grammar_node schema_sequence(struct schema_context *c, const grammar_node *items, int count);
grammar_node schema_text(struct schema_context *c, const char *text);
grammar_node schema_colon(struct schema_context *c);
grammar_node schema_comma(struct schema_context *c);
grammar_node schema_any_value(struct schema_context *c);
grammar_node schema_any_object(struct schema_context *c);
grammar_node schema_any_array(struct schema_context *c);
grammar_node schema_any_string(struct schema_context *c);
grammar_node schema_any_number(struct schema_context *c);
grammar_node schema_character(struct schema_context *c);
/* A member's name, quoted. -1: memory was short. */
int schema_quoted(struct schema_context *c, const char *text, grammar_node *out);
/* Exactly this value. */
int schema_literal(struct schema_context *c, const cJSON *value, grammar_node *out);

/* --- json_schema_string.c, json_schema_number.c, json_schema_list.c --- */

int schema_string(struct schema_context *c, const cJSON *schema, grammar_node *out);
int schema_integer(struct schema_context *c, const cJSON *schema, grammar_node *out);
int schema_real(struct schema_context *c, const cJSON *schema, grammar_node *out);
int schema_array(struct schema_context *c, const cJSON *schema, grammar_node *out);
int schema_object(struct schema_context *c, const cJSON *schema, grammar_node *out);

#endif
