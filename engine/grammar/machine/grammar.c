#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/build/grammar_rewrite.h"

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
