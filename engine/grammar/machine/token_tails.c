#include "engine/grammar/machine/token_tails.h"

#include "engine/grammar/machine/character_kinds.h"

struct tail {
    int length; /* characters of the longest one; VOCABULARY_NO_TAIL: some are no whole characters
                 */
    uint64_t kinds;
};

static struct tail tail_of(const struct vocabulary_tree *v, int32_t id) {
    return (struct tail){v->nodes[id].tail_length, v->tail_kinds[id]};
}

static void add_tail(struct tail *sum, struct tail tail) {
    sum->length = tail.length > sum->length ? tail.length : sum->length;
    sum->kinds |= tail.kinds;
}

/* Returns the tail behind the node, which is within a character: a byte of first..last and num_more
 * continuation bytes end it. */
static struct tail tail_within(const struct vocabulary_tree *v, int32_t id, uint8_t first,
                               uint8_t last, int num_more) {
    static const struct tail none = {VOCABULARY_NO_TAIL, 0};
    struct tail sum = {0, 0};
    if (v->nodes[id].num_tokens > 0)
        return none;
    for (int32_t child = id + 1; child < v->nodes[id].end; child = v->nodes[child].end) {
        if (v->nodes[child].byte < first || v->nodes[child].byte > last)
            return none;
        add_tail(&sum, num_more > 0 ? tail_within(v, child, 0x80, 0xbf, num_more - 1)
                                    : tail_of(v, child));
    }
    return sum;
}

/* The same from the node on, whose byte begins a character. */
static struct tail tail_from(const struct vocabulary_tree *v, int32_t id) {
    uint8_t byte = v->nodes[id].byte;
    const struct lead_range *range = character_lead_range(byte);
    struct tail tail = {VOCABULARY_NO_TAIL, 0};
    if (byte < 0x80)
        tail = tail_of(v, id);
    else if (range == NULL)
        return tail;
    else
        tail = tail_within(v, id, range->second, range->second_last, range->num_more);
    tail.length = tail.length < VOCABULARY_MAX_TAIL ? tail.length + 1 : VOCABULARY_NO_TAIL;
    tail.kinds |= KIND_BIT(range != NULL ? range->kind : character_kind(byte));
    return tail;
}

void token_tails_mark(struct vocabulary_tree *tree) {
    struct vocabulary_node *nodes = tree->nodes;
    for (int32_t id = tree->num_nodes - 1; id >= 0; id--) {
        struct tail sum = {0, 0};
        for (int32_t child = id + 1; child < nodes[id].end; child = nodes[child].end)
            add_tail(&sum, tail_from(tree, child));
        nodes[id].tail_length = (uint8_t)sum.length;
        tree->tail_kinds[id] = sum.kinds;
    }
}

int token_tails_plain_length(struct text piece) {
    const uint64_t plain = character_plain_kinds();
    const uint8_t *bytes = (const uint8_t *)piece.data;
    size_t at = 0, length;
    int count = 0;
    for (; at < piece.length; at += length, count++) {
        length = character_length(bytes + at, piece.length - at);
        if (length == 0 || (length == 1 && (plain & KIND_BIT(character_kind(bytes[at]))) == 0))
            return 0;
    }
    return count <= VOCABULARY_MAX_TAIL ? count : 0;
}
