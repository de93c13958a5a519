/* A grammar under construction: nodes that a front end creates, on any one thread. A builder that
 * has failed stays failed. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILD_GRAMMAR_BUILDER_H
#define QUIRE_ENGINE_GRAMMAR_BUILD_GRAMMAR_BUILDER_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds; beyond them the builder fails with ERROR_SYNTAX. */
#define GRAMMAR_MAX_NODES 65536
#define GRAMMAR_MAX_CONTENT (1 << 20) /* bytes of literals; items of nodes; ranges */
#define GRAMMAR_MAX_REPEAT 65536
/* Maximum work of front ends on one builder, in construction steps: some 50 ms. */
#define GRAMMAR_MAX_WORK INT64_C(10000000)

struct grammar_builder;

/* A node of the grammar under construction; a node may be used in several places. */
typedef int32_t grammar_node;
#define GRAMMAR_FAILED (-1) /* short of memory or over a bound: so is every later node */

struct grammar_builder *grammar_builder_create(void);          /* NULL when memory is short */
void grammar_builder_destroy(struct grammar_builder *builder); /* accepts NULL */
/* Returns the work that front ends may still do on this builder, initially GRAMMAR_MAX_WORK. All
 * schemas, patterns and tools built in it share that budget. They subtract their work from it, and
 * stop with an error once it is negative. */
int64_t *grammar_builder_work(struct grammar_builder *builder);
/* From now on front ends leave out what they cannot express and append its name to `names`, which
 * must outlive the builder. NULL (the initial state): they fail instead. */
void grammar_builder_ignore(struct grammar_builder *builder, struct byte_buffer *names);
struct byte_buffer *grammar_builder_ignored(const struct grammar_builder *builder);

grammar_node grammar_literal(struct grammar_builder *builder, const char *bytes, size_t length);
/* The '{' of a JSON object whose names the grammar does not list, or does not track which are left.
 * JSON follows, up to its '}'. */
grammar_node grammar_open_object(struct grammar_builder *builder);
/* Exactly this token, a control token for instance. */
grammar_node grammar_token(struct grammar_builder *builder, int32_t token);
/* One Unicode character in the ranges, or with `negated` one outside of them. */
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
/* A rule, which may be used before it is defined; this makes recursion possible. */
grammar_node grammar_rule(struct grammar_builder *builder);
void grammar_define(struct grammar_builder *builder, grammar_node rule, grammar_node body);

/* Remembers the first failure; returns GRAMMAR_FAILED. reason: static. */
grammar_node grammar_builder_fail(struct grammar_builder *builder, enum error_code code,
                                  const char *reason);

#endif
