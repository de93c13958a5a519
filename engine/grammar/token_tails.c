/* Two cases are looked for. From one set, all characters of the kinds lead to one and the same next set,
 * and so on: strings with a bound of their length or without. Or a few sets lead to nothing but each
 * other by the kinds (the open kinds of a set): strings with a pattern, names but some. */
#include "engine/grammar/token_tails.h"

#define LOWER 0
#define UPPER 1
#define DIGIT 2
#define FIRST_BEYOND_ASCII 3
#define FIRST_SINGLE PARSE_SET_TARGETS /* the kinds of one character, in the order of their bytes */
#define CONTROLS 63                    /* all that have none of their own: three before it have */
#define MIXED (-2)                     /* not all characters of a kind lead to one set */

#define MAX_OPEN_SETS 16
#define MAX_WORK 8192 /* parse states followed to answer one question */

/* Characters of two to four bytes: those with a first byte of first..last have a second one of
 * second..second_last and so many more (Unicode 15.0, table 3-7). Their kinds part what patterns leave
 * out, which are spaces and ends of lines (U+00A0, U+1680, U+2000 to U+205F, U+3000, U+FEFF), from the
 * rest. */
struct lead_range {
    uint8_t kind, first, last, second, second_last;
    int num_more;
};

static const struct lead_range lead_ranges[] = {
    {3, 0xc2, 0xc2, 0x80, 0xbf, 0},  {4, 0xc3, 0xdf, 0x80, 0xbf, 0},
    {5, 0xe0, 0xe0, 0xa0, 0xbf, 1},  {6, 0xe1, 0xe1, 0x80, 0xbf, 1},
    {7, 0xe2, 0xe2, 0x80, 0xbf, 1},  {8, 0xe3, 0xe3, 0x80, 0xbf, 1},
    {9, 0xe4, 0xec, 0x80, 0xbf, 1},  {9, 0xed, 0xed, 0x80, 0x9f, 1},
    {10, 0xee, 0xef, 0x80, 0xbf, 1}, {11, 0xf0, 0xf0, 0x90, 0xbf, 2},
    {11, 0xf1, 0xf3, 0x80, 0xbf, 2}, {11, 0xf4, 0xf4, 0x80, 0x8f, 2},
};

#define NUM_LEAD_RANGES ((int)(sizeof(lead_ranges) / sizeof(lead_ranges[0])))

/* NULL: no character begins with the byte, or one of ASCII. */
static const struct lead_range *lead_range_of(uint8_t byte) {
    for (int i = 0; i < NUM_LEAD_RANGES; i++)
        if (byte >= lead_ranges[i].first && byte <= lead_ranges[i].last)
            return &lead_ranges[i];
    return NULL;
}

/* Of a character of ASCII. */
static int kind_of(uint8_t byte) {
    if (byte >= 'a' && byte <= 'z')
        return LOWER;
    if (byte >= 'A' && byte <= 'Z')
        return UPPER;
    if (byte >= '0' && byte <= '9')
        return DIGIT;
    if (byte < 0x20)
        return byte == '\t'   ? CONTROLS - 3
               : byte == '\n' ? CONTROLS - 2
               : byte == '\r' ? CONTROLS - 1
                              : CONTROLS;
    int letters = (byte > '9' ? 10 : 0) + (byte > 'Z' ? 26 : 0) + (byte > 'z' ? 26 : 0);
    return FIRST_SINGLE + byte - 0x20 - letters;
}

/* The only byte of a kind. */
static uint8_t byte_of_single(int kind) {
    static const uint8_t firsts[][2] = {{' ', '/'}, {':', '@'}, {'[', '`'}, {'{', 0x7f}};
    int offset = kind - FIRST_SINGLE;
    if (kind >= CONTROLS - 3)
        return (uint8_t) "\t\n\r"[kind - (CONTROLS - 3)];
    for (int i = 0; i < 4; i++) {
        int count = firsts[i][1] - firsts[i][0] + 1;
        if (offset < count)
            return (uint8_t)(firsts[i][0] + offset);
        offset -= count;
    }
    return 0;
}

/* --- Of the vocabulary --- */

struct tail {
    int length; /* characters of the longest one; VOCABULARY_NO_TAIL: some are no whole characters */
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
    const struct lead_range *range = lead_range_of(byte);
    struct tail tail = {VOCABULARY_NO_TAIL, 0};
    if (byte < 0x80)
        tail = tail_of(v, id);
    else if (range == NULL)
        return tail;
    else
        tail = tail_within(v, id, range->second, range->second_last, range->num_more);
    tail.length = tail.length < VOCABULARY_MAX_TAIL ? tail.length + 1 : VOCABULARY_NO_TAIL;
    tail.kinds |= UINT64_C(1) << (range != NULL ? range->kind : kind_of(byte));
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

/* Returns the bytes of the character of these, 0: they are none. */
static size_t character_length(const uint8_t *bytes, size_t length) {
    const struct lead_range *range = lead_range_of(bytes[0]);
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

#define QUOTES (UINT64_C(1) << kind_of('"') | UINT64_C(1) << kind_of('\\'))
#define PLAIN_KINDS (((UINT64_C(1) << (FIRST_SINGLE + 34)) - 1) & ~QUOTES)

bool token_tails_is_plain(struct text piece) {
    const uint8_t *bytes = (const uint8_t *)piece.data;
    size_t at = 0, length;
    int count = 0;
    for (; at < piece.length; at += length, count++) {
        length = character_length(bytes + at, piece.length - at);
        if (length == 0 || (length == 1 && (PLAIN_KINDS >> kind_of(bytes[at]) & 1) == 0))
            return false;
    }
    return count <= VOCABULARY_MAX_TAIL;
}

/* --- Of the grammar --- */

/* A question: sets keep their ids until it is given up. */
struct question {
    struct grammar_machine *machine;
    uint32_t num_sweeps;
    int64_t work; /* of the machine, at its end at the latest */
    bool is_given_up;
};

/* Returns where the byte leads; -1 when memory is short, and PARSE_SET_EMPTY once it is given up. */
static int32_t step(struct question *q, int32_t set, uint8_t byte) {
    struct grammar_machine *machine = q->machine;
    if (q->is_given_up)
        return PARSE_SET_EMPTY;
    int32_t to = machine->store.sets[set]->next[machine->grammar->classes[byte]];
    if (to != PARSE_SET_UNKNOWN)
        return to;
    if (machine->work < q->work)
        to = grammar_machine_step(machine, set, byte);
    q->is_given_up |= machine->work >= q->work || machine->num_sweeps != q->num_sweeps;
    return q->is_given_up && to != -1 ? PARSE_SET_EMPTY : to;
}

/* Returns the set that the bytes first..last lead to, each with num_more continuation bytes behind it;
 * MIXED: there are several. */
static int32_t target_of_bytes(struct question *q, int32_t set, uint8_t first, uint8_t last,
                               int num_more) {
    const uint8_t *classes = q->machine->grammar->classes;
    int32_t target = MIXED, last_to = MIXED;
    for (int byte = first; byte <= last; byte++) {
        if (byte > first && classes[byte] == classes[byte - 1])
            continue;
        int32_t to = step(q, set, (uint8_t)byte);
        if (to == -1 || q->is_given_up)
            return to;
        if (to == last_to)
            continue;
        last_to = to;
        if (num_more > 0 && to > PARSE_SET_EMPTY)
            to = target_of_bytes(q, to, 0x80, 0xbf, num_more - 1);
        if (to < 0 || (target != MIXED && to != target))
            return to == -1 ? -1 : MIXED;
        target = to;
    }
    return target;
}

static int32_t target_beyond_ascii(struct question *q, int32_t set, int kind) {
    const uint8_t *classes = q->machine->grammar->classes;
    int32_t target = MIXED;
    for (int i = 0; i < NUM_LEAD_RANGES; i++) {
        const struct lead_range *range = &lead_ranges[i];
        for (int lead = range->first; lead <= range->last && range->kind == kind; lead++) {
            if (lead > range->first && classes[lead] == classes[lead - 1])
                continue;
            int32_t to = step(q, set, (uint8_t)lead);
            if (to > PARSE_SET_EMPTY)
                to = target_of_bytes(q, to, range->second, range->second_last, range->num_more);
            if (to < 0 || q->is_given_up || (target != MIXED && to != target))
                return to == -1 || q->is_given_up ? to : MIXED;
            target = to;
        }
    }
    return target;
}

/* Returns the set that all characters of the kind lead to; MIXED; -1 when memory is short. */
static int32_t target_of_kind(struct question *q, int32_t set, int kind) {
    static const uint8_t firsts[] = {'a', 'A', '0'}, lasts[] = {'z', 'Z', '9'};
    if (kind == CONTROLS || q->is_given_up)
        return MIXED;
    if (kind >= FIRST_SINGLE)
        return step(q, set, byte_of_single(kind));
    int32_t target = q->machine->store.sets[set]->targets[kind];
    if (target != PARSE_SET_UNKNOWN)
        return target;
    target = kind >= FIRST_BEYOND_ASCII ? target_beyond_ascii(q, set, kind)
                                        : target_of_bytes(q, set, firsts[kind], lasts[kind], 0);
    if (target != -1 && !q->is_given_up)
        q->machine->store.sets[set]->targets[kind] = target;
    return target;
}

/* --- Open kinds --- */

struct open_sets {
    int32_t sets[MAX_OPEN_SETS];
    int count;
};

/* Returns false when there are too many. */
static bool add_set(struct open_sets *open, int32_t set) {
    for (int i = 0; i < open->count; i++)
        if (open->sets[i] == set)
            return true;
    if (open->count == MAX_OPEN_SETS)
        return false;
    open->sets[open->count++] = set;
    return true;
}

/* Adds where the ASCII bytes of the kinds lead from the set. Returns the kinds of those that lead
 * nowhere; all of them when there are too many sets. */
static uint64_t add_targets(struct question *q, struct open_sets *open, int32_t set,
                            uint64_t kinds) {
    const uint8_t *classes = q->machine->grammar->classes;
    uint64_t closed = 0;
    for (int byte = 0; byte < 0x80; byte++) {
        uint64_t kind = UINT64_C(1) << kind_of((uint8_t)byte);
        if ((kinds & kind) == 0 ||
            (byte > 0 && kind_of((uint8_t)(byte - 1)) == kind_of((uint8_t)byte) &&
             classes[byte] == classes[byte - 1]))
            continue;
        int32_t to = step(q, set, (uint8_t)byte);
        if (to <= PARSE_SET_EMPTY)
            closed |= kind;
        else if (!add_set(open, to))
            return kinds;
    }
    for (int kind = FIRST_BEYOND_ASCII; kind < FIRST_SINGLE; kind++) {
        int32_t to = (kinds >> kind & 1) != 0 ? target_of_kind(q, set, kind) : set;
        if (to <= PARSE_SET_EMPTY || !add_set(open, to))
            closed |= UINT64_C(1) << kind;
    }
    return closed;
}

/* Returns kinds of which any characters may follow the set, in any number. A kind that is closed in a set
 * that others lead to is left out, and the search begins again; at first that is done with those that end
 * a JSON string or are escaped in it, as they would close all others. */
static uint64_t find_open(struct question *q, int32_t set) {
    uint64_t kinds = UINT64_MAX & ~(UINT64_C(1) << CONTROLS);
    bool has_quotes = true;
    while (kinds != 0 && !q->is_given_up) {
        struct open_sets open = {{set}, 1};
        uint64_t closed = 0;
        for (int i = 0; i < open.count && closed == 0; i++) {
            closed = add_targets(q, &open, open.sets[i], kinds);
            if (closed != 0 && has_quotes && i > 0) {
                closed = QUOTES;
                has_quotes = false;
            }
        }
        if (closed == 0)
            return kinds;
        kinds &= ~closed;
    }
    return 0;
}

static uint64_t open_kinds(struct question *q, int32_t set) {
    if (!q->machine->store.sets[set]->has_open_kinds) {
        uint64_t kinds = find_open(q, set);
        if (q->machine->num_sweeps != q->num_sweeps)
            return 0;
        q->machine->store.sets[set]->open_kinds |= kinds;
        q->machine->store.sets[set]->has_open_kinds = true;
    }
    return q->machine->store.sets[set]->open_kinds;
}

/* Keeps with the set that so many of the kinds may not follow. */
static int refuse(const struct question *q, int32_t set, uint64_t kinds, int count) {
    if (q->is_given_up)
        return 0; /* a sweep may have renamed the set */
    struct parse_set *kept = q->machine->store.sets[set];
    kept->closed_kinds = kinds;
    kept->closed_length = (uint8_t)count;
    return 0;
}

/* Finds where all characters of the kinds lead; MIXED: to several sets. Returns 0, and the kind in
 * question in *out_closed, when one leads nowhere or it is not known; -1 when memory is short. */
static int32_t find_target(struct question *q, int32_t set, uint64_t kinds, uint64_t *out_closed) {
    int32_t target = PARSE_SET_UNKNOWN;
    for (uint64_t left = kinds; left != 0 && target != MIXED; left &= left - 1) {
        int32_t to = target_of_kind(q, set, __builtin_ctzll(left));
        *out_closed = left & -left;
        if (to == -1 || to == PARSE_SET_EMPTY || q->is_given_up)
            return to == -1 ? -1 : 0;
        target = target == PARSE_SET_UNKNOWN || target == to ? to : MIXED;
    }
    *out_closed = kinds;
    return target;
}

int token_tails_may_follow(struct grammar_machine *machine, int32_t first, uint64_t kinds,
                           int count) {
    struct question q = {machine, machine->num_sweeps, machine->work + MAX_WORK, false};
    int32_t set = first;
    for (int i = 0; i < count; i++) {
        struct parse_set *at = machine->store.sets[set];
        uint64_t closed;
        if ((kinds & ~at->open_kinds) == 0)
            return 1;
        if (at->closed_length > 0 && count - i >= at->closed_length &&
            (kinds & at->closed_kinds) == at->closed_kinds)
            return 0;
        int32_t target = find_target(&q, set, kinds, &closed);
        if (target == -1)
            return -1;
        if (target == MIXED && (kinds & ~open_kinds(&q, set)) == 0)
            return 1;
        if (target <= PARSE_SET_EMPTY)
            return refuse(&q, first, closed, i + 1);
        if (target == set)
            at->open_kinds |= kinds;
        set = target;
    }
    return 1;
}

int token_tails_plain_may_follow(struct grammar_machine *machine, int32_t set) {
    return token_tails_may_follow(machine, set, PLAIN_KINDS, VOCABULARY_MAX_TAIL);
}
