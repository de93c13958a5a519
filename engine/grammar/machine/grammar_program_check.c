/* Checks what must hold of a program before anything runs it.
 *
 * Two values of an op are least fixed points over the ops it leads to, computed from the ends
 * backwards with a work list: how many frames it takes at least to come to OP_RETURN (a text must
 * be able to end), and whether OP_RETURN can be reached without reading anything. With the latter
 * known, a cycle of ops that read nothing is found by depth-first search: left recursion, or the
 * repetition of what may be empty. */
#include "engine/grammar/machine/grammar_program.h"

#include "config/base/numbers.h"

#include <stdlib.h>

#define NEVER (GRAMMAR_MAX_DEPTH + 1)

struct checker {
    const struct grammar_op *ops;
    int32_t num_ops;
    int32_t *first_user; /* [num_ops + 1] into users */
    int32_t *users;      /* ops that lead to the op */
    int32_t *pending;    /* [num_ops] a ring */
    bool *is_pending;    /* [num_ops] */
    uint8_t *progress;   /* [num_ops] zeroed; of the search for cycles */
    int16_t *nullable;   /* [num_ops] 0: OP_RETURN can be reached without reading; else NEVER */
};

static bool has_target(const struct grammar_op *op) {
    return op->kind == OP_SPLIT || op->kind == OP_JUMP || op->kind == OP_CALL ||
           op->kind == OP_REPEAT;
}

static bool has_next(const struct grammar_op *op) {
    return op->kind != OP_RETURN && op->kind != OP_JUMP;
}

/* Counting sort: each op's count, then its end, which filling turns into its start. */
static void index_users(struct checker *c) {
    for (int32_t i = 0; i < c->num_ops; i++) {
        if (has_target(&c->ops[i]))
            c->first_user[c->ops[i].target]++;
        if (has_next(&c->ops[i]))
            c->first_user[c->ops[i].next]++;
    }
    for (int32_t i = 0; i < c->num_ops; i++)
        c->first_user[i + 1] += c->first_user[i];
    for (int32_t i = c->num_ops - 1; i >= 0; i--) {
        if (has_target(&c->ops[i]))
            c->users[--c->first_user[c->ops[i].target]] = i;
        if (has_next(&c->ops[i]))
            c->users[--c->first_user[c->ops[i].next]] = i;
    }
}

/* The value of an op from those of the ops it leads to: `call` is the cost of a frame, `read` what
 * reading a byte leaves of the value after it. */
static int16_t evaluate(const struct grammar_op *op, const int16_t *values, int call,
                        bool reads_block) {
    int target;
    switch ((enum op_kind)op->kind) {
    case OP_RETURN:
        return 0;
    case OP_BYTE:
    case OP_TOKEN:
        return reads_block ? NEVER : values[op->next];
    case OP_SPLIT:
        return min_int32(values[op->next], values[op->target]);
    case OP_JUMP:
        return values[op->target];
    case OP_CALL:
    case OP_REPEAT:
        break;
    }
    target = values[op->target] + call < NEVER ? values[op->target] + call : NEVER;
    if (op->kind == OP_REPEAT && op->min == 0)
        target = 0;
    return (int16_t)max_int32(target, values[op->next]);
}

static void solve(struct checker *c, int16_t *values, int call, bool reads_block) {
    int32_t head = 0, count = 1;
    for (int32_t i = 0; i < c->num_ops; i++)
        values[i] = NEVER;
    c->pending[0] = 0;
    c->is_pending[0] = true;
    while (count > 0) {
        int32_t op = c->pending[head];
        head = head + 1 == c->num_ops ? 0 : head + 1;
        count--;
        c->is_pending[op] = false;
        int16_t value = evaluate(&c->ops[op], values, call, reads_block);
        if (value >= values[op])
            continue;
        values[op] = value;
        for (int32_t i = c->first_user[op]; i < c->first_user[op + 1]; i++) {
            int32_t user = c->users[i];
            if (c->is_pending[user])
                continue;
            c->is_pending[user] = true;
            c->pending[(head + count++) % c->num_ops] = user;
        }
    }
}

/* The ops an op leads to without reading anything. */
static int silent_steps(const struct checker *c, const struct grammar_op *op, int32_t out[2]) {
    int count = 0;
    if (has_target(op))
        out[count++] = op->target;
    bool passes = op->kind == OP_SPLIT || (op->kind == OP_REPEAT && op->min == 0) ||
                  (has_target(op) && has_next(op) && c->nullable[op->target] == 0);
    if (passes)
        out[count++] = op->next;
    return count;
}

/* Returns whether ops that read nothing lead in a circle. c->pending is the stack. */
static bool has_silent_cycle(struct checker *c) {
    enum { UNSEEN, SECOND, OPEN, DONE }; /* SECOND: its second step is still to be taken */
    uint8_t *progress = c->progress;
    for (int32_t start = 0; start < c->num_ops; start++) {
        int32_t depth = 0;
        if (progress[start] == UNSEEN)
            c->pending[depth++] = start;
        while (depth > 0) {
            int32_t op = c->pending[depth - 1], steps[2];
            int count = silent_steps(c, &c->ops[op], steps);
            int step = progress[op] == UNSEEN ? 0 : progress[op] == SECOND ? 1 : 2;
            progress[op] = step == 0 ? SECOND : OPEN;
            if (step >= count) {
                progress[op] = DONE;
                depth--;
            } else if (progress[steps[step]] == UNSEEN) {
                c->pending[depth++] = steps[step];
            } else if (progress[steps[step]] != DONE) {
                return true;
            }
        }
    }
    return false;
}

/* A repetition whose item may be empty counts nothing. */
static bool repeats_nothing(const struct checker *c) {
    for (int32_t i = 0; i < c->num_ops; i++)
        if (c->ops[i].kind == OP_REPEAT && c->nullable[c->ops[i].target] == 0)
            return true;
    return false;
}

static void classify_bytes(struct grammar *grammar) {
    bool begins[257] = {false};
    for (int32_t i = 0; i < grammar->num_ops; i++)
        if (grammar->ops[i].kind == OP_BYTE)
            begins[grammar->ops[i].first] = begins[grammar->ops[i].last + 1] = true;
    int class = 0;
    for (int byte = 0; byte < 256; byte++) {
        class += byte > 0 && begins[byte];
        grammar->classes[byte] = (uint8_t) class;
        grammar->class_bytes[class] = (uint8_t)byte;
    }
    grammar->num_classes = class + 1;
}

static int check(struct checker *c, struct grammar *grammar, struct error *err) {
    index_users(c);
    solve(c, c->nullable, 0, true);
    if (has_silent_cycle(c))
        return error_set(
            err, ERROR_SYNTAX,
            "the grammar is left-recursive, or repeats an item that may be empty without a limit");
    if (repeats_nothing(c))
        return error_set(err, ERROR_SYNTAX, "the grammar repeats an item that may be empty");
    solve(c, grammar->needs, 1, false);
    if (grammar->needs[grammar->entry] >= NEVER)
        return error_set(err, ERROR_SYNTAX,
                         "no text matches the grammar, or only one nested deeper than %d",
                         GRAMMAR_MAX_DEPTH);
    classify_bytes(grammar);
    return 0;
}

int grammar_program_check(struct grammar *grammar, struct error *err) {
    size_t num_ops = (size_t)grammar->num_ops;
    int32_t *memory = calloc(4 * num_ops + 1, sizeof(*memory));
    bool *is_pending = calloc(num_ops, sizeof(*is_pending));
    uint8_t *progress = calloc(num_ops, sizeof(*progress));
    int16_t *nullable = malloc(num_ops * sizeof(*nullable));
    grammar->needs = malloc(num_ops * sizeof(*grammar->needs));
    int result = -1;
    if (memory == NULL || is_pending == NULL || progress == NULL || nullable == NULL ||
        grammar->needs == NULL) {
        error_set(err, ERROR_MEMORY, "memory is short");
    } else {
        struct checker c = {.ops = grammar->ops,
                            .num_ops = grammar->num_ops,
                            .first_user = memory,
                            .users = memory + num_ops + 1,
                            .pending = memory + 3 * num_ops + 1,
                            .is_pending = is_pending,
                            .progress = progress,
                            .nullable = nullable};
        result = check(&c, grammar, err);
    }
    free(memory);
    free(is_pending);
    free(progress);
    free(nullable);
    return result;
}
