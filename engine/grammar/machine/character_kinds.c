#include "engine/grammar/machine/character_kinds.h"

const struct lead_range character_lead_ranges[] = {
    {3, 0xc2, 0xc2, 0x80, 0xbf, 0},  {4, 0xc3, 0xdf, 0x80, 0xbf, 0},
    {5, 0xe0, 0xe0, 0xa0, 0xbf, 1},  {6, 0xe1, 0xe1, 0x80, 0xbf, 1},
    {7, 0xe2, 0xe2, 0x80, 0xbf, 1},  {8, 0xe3, 0xe3, 0x80, 0xbf, 1},
    {9, 0xe4, 0xec, 0x80, 0xbf, 1},  {9, 0xed, 0xed, 0x80, 0x9f, 1},
    {10, 0xee, 0xef, 0x80, 0xbf, 1}, {11, 0xf0, 0xf0, 0x90, 0xbf, 2},
    {11, 0xf1, 0xf3, 0x80, 0xbf, 2}, {11, 0xf4, 0xf4, 0x80, 0x8f, 2},
};

const int character_num_lead_ranges =
    (int)(sizeof(character_lead_ranges) / sizeof(character_lead_ranges[0]));

const struct lead_range *character_lead_range(uint8_t byte) {
    for (int i = 0; i < character_num_lead_ranges; i++)
        if (byte >= character_lead_ranges[i].first && byte <= character_lead_ranges[i].last)
            return &character_lead_ranges[i];
    return NULL;
}

int character_kind(uint8_t byte) {
    if (byte >= 'a' && byte <= 'z')
        return KIND_LOWER;
    if (byte >= 'A' && byte <= 'Z')
        return KIND_UPPER;
    if (byte >= '0' && byte <= '9')
        return KIND_DIGIT;
    if (byte < 0x20)
        return byte == '\t'   ? KIND_TAB
               : byte == '\n' ? KIND_NEWLINE
               : byte == '\r' ? KIND_RETURN
                              : KIND_CONTROLS;
    int letters = (byte > '9' ? 10 : 0) + (byte > 'Z' ? 26 : 0) + (byte > 'z' ? 26 : 0);
    return KIND_FIRST_SINGLE + byte - 0x20 - letters;
}

uint8_t character_of_single(int kind) {
    static const uint8_t firsts[][2] = {{' ', '/'}, {':', '@'}, {'[', '`'}, {'{', 0x7f}};
    int offset = kind - KIND_FIRST_SINGLE;
    if (kind >= KIND_TAB)
        return (uint8_t) "\t\n\r"[kind - KIND_TAB];
    for (int i = 0; i < 4; i++) {
        int count = firsts[i][1] - firsts[i][0] + 1;
        if (offset < count)
            return (uint8_t)(firsts[i][0] + offset);
        offset -= count;
    }
    return 0;
}

size_t character_length(const uint8_t *bytes, size_t length) {
    const struct lead_range *range = character_lead_range(bytes[0]);
    if (bytes[0] < 0x80)
        return 1;
    if (range == NULL || length < (size_t)range->num_more + 2 || bytes[1] < range->second ||
        bytes[1] > range->second_last)
        return 0;
    for (int i = 0; i < range->num_more; i++)
        if ((bytes[2 + i] & 0xc0) != 0x80)
            return 0;
    return (size_t)range->num_more + 2;
}

uint64_t character_plain_kinds(void) {
    uint64_t quotes = KIND_BIT(character_kind('"')) | KIND_BIT(character_kind('\\'));
    return (KIND_BIT(KIND_END_SINGLES) - 1) & ~quotes;
}

/* --- Tails of tokens --- */

struct tail {
    int length; /* characters of the longest one; VOCABULARY_NO_TAIL: some are not whole characters
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

/* Returns the tail after the node, which is within a character: a byte of first..last and num_more
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
