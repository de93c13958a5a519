/* Nodes to ops. A node is compiled backwards, towards what follows it (`next`), so that every op
 * knows its successor when it is written. Rules, and nodes that are used in several places, become
 * subroutines: they are written once, by a queue and not by recursion, and called; a call at the
 * very end is a jump, which keeps "list = item list" from piling up frames. Literals that are
 * alternatives of each other share their beginnings, so that an enumeration of a thousand strings
 * is one parse state, not a thousand. */
#include "engine/grammar/machine/grammar_program.h"
#include "config/base/array.h"
#include "config/base/numbers.h"
#include "engine/grammar/build/character_class.h"

#include <stdlib.h>
#include <string.h>

#define RETURN 0
#define MAX_INLINE_LITERAL 16
#define MAX_NESTING 1024 /* nodes within nodes, which compile by recursion */

struct compiler {
    const struct grammar_builder *builder;
    int32_t *num_uses; /* [num_nodes] places where it is used, below the root */
    int32_t *nesting;  /* [num_nodes] */
    int32_t *entries;  /* [num_nodes] first op of a subroutine; -1: none, or not yet written */
    bool *is_queued;   /* [num_nodes] */
    int32_t *queue;    /* [num_nodes] subroutines, written in this order */
    int32_t num_queued;
    struct grammar_op *ops;
    int32_t num_ops;
    size_t capacity;
    struct error *err;
};

static int32_t add_op(struct compiler *c, struct grammar_op op) {
    if (c->num_ops == GRAMMAR_MAX_OPS)
        return error_set(c->err, ERROR_SYNTAX, "the grammar is too large");
    if (!array_reserve(&c->ops, &c->capacity, (size_t)c->num_ops + 1, sizeof(op)))
        return error_set(c->err, ERROR_MEMORY, "memory is short");
    c->ops[c->num_ops] = op;
    return c->num_ops++;
}

static const grammar_node *items_of(const struct compiler *c, const struct node *node,
                                    int32_t *out_count) {
    if (node->kind == NODE_RULE) {
        *out_count = 1;
        return &node->first;
    }
    bool has_items =
        node->kind == NODE_SEQUENCE || node->kind == NODE_ALTERNATIVES || node->kind == NODE_REPEAT;
    *out_count = has_items ? node->count : 0;
    return *out_count > 0 ? c->builder->items + node->first : NULL;
}

/* Counts the uses of every node below the root; c->queue is the stack. */
static int count_uses(struct compiler *c, grammar_node root) {
    int32_t depth = 0;
    c->queue[depth++] = root;
    c->num_uses[root] = 1;
    while (depth > 0) {
        const struct node *node = &c->builder->nodes[c->queue[--depth]];
        if (node->kind == NODE_RULE && node->first < 0)
            return error_set(c->err, ERROR_SYNTAX, "a rule of the grammar is not defined");
        int32_t count;
        const grammar_node *items = items_of(c, node, &count);
        for (int32_t i = 0; i < count; i++)
            if (c->num_uses[items[i]]++ == 0)
                c->queue[depth++] = items[i];
    }
    return 0;
}

static bool is_subroutine(const struct compiler *c, grammar_node id) {
    const struct node *node = &c->builder->nodes[id];
    if (node->kind == NODE_RULE)
        return true;
    if (node->kind == NODE_TOKEN ||
        (node->kind == NODE_LITERAL && node->count <= MAX_INLINE_LITERAL))
        return false;
    return c->num_uses[id] > 1;
}

/* Items have smaller ids than their node, and rules are compiled on their own. */
static int check_nesting(struct compiler *c) {
    for (grammar_node id = 0; id < c->builder->num_nodes; id++) {
        const struct node *node = &c->builder->nodes[id];
        if (node->kind == NODE_RULE)
            continue;
        int32_t count, nesting = 0;
        const grammar_node *items = items_of(c, node, &count);
        for (int32_t i = 0; i < count; i++)
            if (!is_subroutine(c, items[i]) && c->nesting[items[i]] > nesting)
                nesting = c->nesting[items[i]];
        c->nesting[id] = nesting + 1;
        if (nesting + 1 > MAX_NESTING && c->num_uses[id] > 0)
            return error_set(c->err, ERROR_SYNTAX, "the grammar is nested too deep");
    }
    return 0;
}

/* --- Texts --- */

static int32_t add_bytes(struct compiler *c, const char *bytes, int32_t count, int32_t next) {
    for (int32_t i = count - 1; i >= 0 && next >= 0; i--) {
        uint8_t byte = (uint8_t)bytes[i];
        next = add_op(c, (struct grammar_op){OP_BYTE, byte, byte, .next = next});
    }
    return next;
}

/* Either of the two, the first first; -1 in `second` is nothing yet, -2 a failure. */
#define NOTHING (-1)
#define FAILED (-2)

static int32_t add_split(struct compiler *c, int32_t first, int32_t second) {
    if (first < 0 || second == FAILED)
        return FAILED;
    if (second == NOTHING)
        return first;
    int32_t op = add_op(c, (struct grammar_op){OP_SPLIT, .next = first, .target = second});
    return op < 0 ? FAILED : op;
}

/* Sequences that agree before byte `at`, grouped by the range they have there. */
static int32_t add_sequences(struct compiler *c, const struct utf8_sequence *sequences,
                             int32_t count, int at, int32_t next) {
    int32_t result = NOTHING;
    for (int32_t end = count, begin; end > 0 && result != FAILED; end = begin) {
        const struct utf8_sequence *last = &sequences[end - 1];
        for (begin = end - 1; begin > 0; begin--)
            if (sequences[begin - 1].first[at] != last->first[at] ||
                sequences[begin - 1].last[at] != last->last[at])
                break;
        int32_t rest = next;
        if (at + 1 < UTF8_MAX_BYTES && at + 1 < last->num_bytes)
            rest = add_sequences(c, sequences + begin, end - begin, at + 1, next);
        if (rest < 0)
            return FAILED;
        int32_t op =
            add_op(c, (struct grammar_op){OP_BYTE, last->first[at], last->last[at], .next = rest});
        result = add_split(c, op, result);
    }
    return result;
}

static int32_t compile_characters(struct compiler *c, const struct node *node, int32_t next) {
    struct utf8_sequence *sequences;
    int32_t count =
        utf8_ranges_split(c->builder->ranges + node->first, node->count, node->negated, &sequences);
    if (count < 0)
        return error_set(c->err, ERROR_MEMORY, "memory is short");
    if (count == 0) {
        free(sequences);
        return error_set(c->err, ERROR_SYNTAX, "a class of characters is empty");
    }
    int32_t entry = add_sequences(c, sequences, count, 0, next);
    free(sequences);
    return entry;
}

/* --- Alternatives --- */

static int compare_literals(const void *a, const void *b) {
    const struct text *x = a, *y = b;
    size_t common = min_size(x->length, y->length);
    int order = common > 0 ? memcmp(x->data, y->data, common) : 0;
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

/* Bytes from `at` on in which the sorted literals agree. */
static size_t common_bytes(const struct text *first, const struct text *last, size_t at) {
    size_t end = min_size(first->length, last->length), i = at;
    while (i < end && first->data[i] == last->data[i])
        i++;
    return i - at;
}

/* Sorted literals that agree before byte `at`. Recursion is as deep as literals are beginnings of
 * each other, which GRAMMAR_MAX_CONTENT bounds to 1448. */
static int32_t add_literals(struct compiler *c, const struct text *literals, int32_t count,
                            size_t at, int32_t next) {
    size_t common = common_bytes(&literals[0], &literals[count - 1], at), begin = at;
    at += common;
    int32_t result = NOTHING;
    for (int32_t last = count, first; last > 0 && result != FAILED; last = first) {
        first = last - 1;
        if (literals[first].length == at) { /* the shortest, and what equals it */
            result = add_split(c, next, result);
            break;
        }
        while (first > 0 && literals[first - 1].length > at &&
               literals[first - 1].data[at] == literals[last - 1].data[at])
            first--;
        /* One alone, and equal ones, go to their end at once. */
        int32_t entry = add_literals(c, literals + first, last - first, at, next);
        result = add_split(c, entry, result);
    }
    return result < 0 ? result : add_bytes(c, literals[0].data + begin, (int32_t)common, result);
}

static int32_t compile_node(struct compiler *c, grammar_node id, int32_t next);

/* A byte that opens an object is a separate op. */
static bool is_literal(const struct compiler *c, grammar_node id) {
    const struct node *node = &c->builder->nodes[id];
    return node->kind == NODE_LITERAL && !node->opens_object;
}

static int32_t compile_literals(struct compiler *c, const grammar_node *items, int32_t count,
                                int32_t next) {
    struct text *literals = malloc((size_t)count * sizeof(*literals));
    if (literals == NULL)
        return error_set(c->err, ERROR_MEMORY, "memory is short");
    int32_t num_literals = 0;
    for (int32_t i = 0; i < count; i++) {
        const struct node *node = &c->builder->nodes[items[i]];
        if (is_literal(c, items[i]))
            literals[num_literals++] =
                (struct text){c->builder->bytes + node->first, (size_t)node->count};
    }
    qsort(literals, (size_t)num_literals, sizeof(*literals), compare_literals);
    int32_t entry = num_literals > 0 ? add_literals(c, literals, num_literals, 0, next) : NOTHING;
    free(literals);
    return entry;
}

static int32_t compile_alternatives(struct compiler *c, const struct node *node, int32_t next) {
    const grammar_node *items = c->builder->items + node->first;
    int32_t num_others = 0;
    for (int32_t i = 0; i < node->count; i++)
        num_others += !is_literal(c, items[i]);
    if (num_others > GRAMMAR_MAX_PARSE_STATES)
        return error_set(c->err, ERROR_SYNTAX, "there are %d alternatives; at most %d are allowed",
                         num_others, GRAMMAR_MAX_PARSE_STATES);
    if (node->count == 0)
        return error_set(c->err, ERROR_SYNTAX, "a choice has no alternatives");
    int32_t result =
        num_others < node->count ? compile_literals(c, items, node->count, next) : NOTHING;
    if (num_others < node->count && result < 0)
        return FAILED;
    for (int32_t i = node->count - 1; i >= 0 && result != FAILED; i--)
        if (!is_literal(c, items[i]))
            result = add_split(c, compile_node(c, items[i], next), result);
    return result;
}

/* --- The rest --- */

/* Without a count where there need be none: x?, x* and x+ are loops. */
static int32_t compile_repeat(struct compiler *c, const struct node *node, int32_t next) {
    grammar_node item = c->builder->items[node->first];
    if (node->max == 0)
        return next;
    if (node->min == 0 && node->max == 1)
        return add_split(c, compile_node(c, item, next), next);
    if (node->min == 1 && node->max == 1)
        return compile_node(c, item, next);
    bool counts = node->max >= 0 || node->min > 1;
    int32_t loop = add_op(
        c, (struct grammar_op){counts ? OP_REPEAT : OP_SPLIT, .min = node->min, .max = node->max});
    if (loop < 0)
        return FAILED;
    int32_t entry = compile_node(c, item, counts ? RETURN : loop);
    if (entry < 0)
        return FAILED;
    struct grammar_op *op = &c->ops[loop];
    op->target = counts ? entry : next;
    op->next = counts ? next : entry;
    return counts || node->min == 0 ? loop : entry;
}

static int32_t compile_inline(struct compiler *c, const struct node *node, int32_t next) {
    switch (node->kind) {
    case NODE_LITERAL:
        if (node->opens_object)
            return add_op(c, (struct grammar_op){OP_BYTE, '{', '{', true, .next = next});
        return add_bytes(c, c->builder->bytes + node->first, node->count, next);
    case NODE_TOKEN:
        return add_op(c, (struct grammar_op){OP_TOKEN, .target = node->first, .next = next});
    case NODE_CHARACTERS:
        return compile_characters(c, node, next);
    case NODE_ALTERNATIVES:
        return compile_alternatives(c, node, next);
    case NODE_REPEAT:
        return compile_repeat(c, node, next);
    case NODE_RULE:
        return compile_node(c, node->first, next);
    case NODE_SEQUENCE:
        break;
    }
    for (int32_t i = node->count - 1; i >= 0 && next >= 0; i--)
        next = compile_node(c, c->builder->items[node->first + i], next);
    return next;
}

/* Returns the op to begin with, or a negative number. The target of a call is the node for now. */
static int32_t compile_node(struct compiler *c, grammar_node id, int32_t next) {
    if (!is_subroutine(c, id))
        return compile_inline(c, &c->builder->nodes[id], next);
    if (!c->is_queued[id]) {
        c->is_queued[id] = true;
        c->queue[c->num_queued++] = id;
    }
    if (c->ops[next].kind == OP_RETURN)
        return add_op(c, (struct grammar_op){OP_JUMP, .target = id});
    return add_op(c, (struct grammar_op){OP_CALL, .target = id, .next = next});
}

static int compile_all(struct compiler *c, grammar_node root, struct grammar *out) {
    if (add_op(c, (struct grammar_op){OP_RETURN}) != RETURN)
        return -1;
    int32_t entry = compile_node(c, root, RETURN);
    if (entry < 0)
        return -1;
    for (int32_t i = 0; i < c->num_queued; i++) {
        grammar_node id = c->queue[i];
        c->entries[id] = compile_inline(c, &c->builder->nodes[id], RETURN);
        if (c->entries[id] < 0)
            return -1;
    }
    for (int32_t i = 0; i < c->num_ops; i++)
        if (c->ops[i].kind == OP_JUMP || c->ops[i].kind == OP_CALL)
            c->ops[i].target = c->entries[c->ops[i].target];
    out->ops = c->ops;
    out->num_ops = c->num_ops;
    out->entry = entry;
    c->ops = NULL;
    return 0;
}

int grammar_program_compile(const struct grammar_builder *builder, grammar_node root,
                            struct grammar *out, struct error *err) {
    size_t num_nodes = (size_t)builder->num_nodes;
    int32_t *memory = calloc(num_nodes, 4 * sizeof(*memory));
    bool *is_queued = calloc(num_nodes, sizeof(*is_queued));
    struct compiler c = {.builder = builder, .is_queued = is_queued, .err = err};
    int result = -1;
    if (memory == NULL || is_queued == NULL) {
        error_set(err, ERROR_MEMORY, "memory is short");
    } else {
        c.num_uses = memory;
        c.nesting = memory + num_nodes;
        c.entries = memory + 2 * num_nodes;
        c.queue = memory + 3 * num_nodes;
        if (count_uses(&c, root) == 0 && check_nesting(&c) == 0)
            result = compile_all(&c, root, out);
    }
    free(memory);
    free(is_queued);
    free(c.ops);
    return result;
}
