/* A grammar under construction: nodes, which a front end makes on any one thread. A builder fails
 * once, and then is of no use. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILDER_H
#define QUIRE_ENGINE_GRAMMAR_BUILDER_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds of what may be built; beyond them the builder fails with ERROR_SYNTAX. */
#define GRAMMAR_MAX_NODES 65536
#define GRAMMAR_MAX_CONTENT (1 << 20) /* bytes of literals; items of nodes; ranges */
#define GRAMMAR_MAX_REPEAT 65536
/* Work of a front end on one builder, in steps of a construction: some 50 ms. */
#define GRAMMAR_MAX_WORK INT64_C(10000000)

struct grammar_builder;

/* A node of the grammar under construction; a node may be used in several places. */
typedef int32_t grammar_node;
#define GRAMMAR_FAILED (-1) /* memory was short or a bound was met: every later node is too */

struct grammar_builder *grammar_builder_create(void);          /* NULL when memory is short */
void grammar_builder_destroy(struct grammar_builder *builder); /* accepts NULL */
/* What front ends may still work on this builder, GRAMMAR_MAX_WORK at first: all schemas, patterns
 * and tools that are built in it share that. They take what they do from it, and refuse to go on
 * once it is negative. */
int64_t *grammar_builder_work(struct grammar_builder *builder);
/* From now on front ends may leave out what they cannot express, and append its name to `names`,
 * which must live as long as the builder; NULL, as at first: they fail. */
void grammar_builder_ignore(struct grammar_builder *builder, struct byte_buffer *names);
struct byte_buffer *grammar_builder_ignored(const struct grammar_builder *builder);

grammar_node grammar_literal(struct grammar_builder *builder, const char *bytes, size_t length);
/* The '{' of a JSON object, of which the grammar says no names, or not which of them are left. What
 * follows is JSON up to its '}'. */
grammar_node grammar_open_object(struct grammar_builder *builder);
/* Exactly this token, a control token for instance. */
grammar_node grammar_token(struct grammar_builder *builder, int32_t token);
/* One Unicode character of the ranges, or with `negated` one outside of them. */
struct character_range {
    uint32_t first, last;
};
grammar_node grammar_characters(struct grammar_builder *builder,
                                const struct character_range *ranges, int num_ranges, bool negated);
grammar_node grammar_sequence(struct grammar_builder *builder, const grammar_node *items,
                              int count);
grammar_node grammar_alternatives(struct grammar_builder *builder, const grammar_node *items,
                                  int count);
/* max < 0: no end. */
grammar_node grammar_repeat(struct grammar_builder *builder, grammar_node item, int min, int max);
/* A rule that may be used before it is defined, which makes recursion possible. */
grammar_node grammar_rule(struct grammar_builder *builder);
void grammar_define(struct grammar_builder *builder, grammar_node rule, grammar_node body);

/* Remembers the first failure; returns GRAMMAR_FAILED. reason: static. */
grammar_node grammar_builder_fail(struct grammar_builder *builder, enum error_code code,
                                  const char *reason);

#endif
