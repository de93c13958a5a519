/* Only the simple case is looked for: from one set, every plain character leads to one and the same
 * next set. So it is in strings, with a length bound or without, and in free text. */
#include "engine/grammar/plain_characters.h"

static bool is_plain_ascii(uint8_t byte) {
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Characters of two to four bytes: those with a first byte of first..last have a second one of
 * second..second_last and so many more (Unicode 15.0, table 3-7). */
struct lead_range {
    uint8_t first, last, second, second_last;
    int num_more;
};

static const struct lead_range lead_ranges[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1},
    {0xed, 0xed, 0x80, 0x9f, 1}, {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
    {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2},
};

#define NUM_LEAD_RANGES ((int)(sizeof(lead_ranges) / sizeof(lead_ranges[0])))

/* --- Of the vocabulary --- */

/* Returns the characters of the longest token behind the node, which is within one: a byte of
 * first..last and num_more continuation bytes end it. VOCABULARY_NO_TAIL: some token has others than
 * plain ones, or a part of one. */
static int tail_behind(const struct vocabulary_node *nodes, int32_t id, uint8_t first, uint8_t last,
                       int num_more) {
    int most = 0;
    if (nodes[id].num_tokens > 0)
        return VOCABULARY_NO_TAIL;
    for (int32_t child = id + 1; child < nodes[id].end; child = nodes[child].end) {
        if (nodes[child].byte < first || nodes[child].byte > last)
            return VOCABULARY_NO_TAIL;
        int tail = num_more > 0 ? tail_behind(nodes, child, 0x80, 0xbf, num_more - 1)
                                : nodes[child].plain_tail;
        most = tail > most ? tail : most;
    }
    return most;
}

/* The same from the node on, whose byte begins a character. */
static int tail_from(const struct vocabulary_node *nodes, int32_t id) {
    uint8_t byte = nodes[id].byte;
    int behind = VOCABULARY_NO_TAIL;
    if (is_plain_ascii(byte))
        behind = nodes[id].plain_tail;
    for (int i = 0; i < NUM_LEAD_RANGES; i++)
        if (byte >= lead_ranges[i].first && byte <= lead_ranges[i].last)
            behind = tail_behind(nodes, id, lead_ranges[i].second, lead_ranges[i].second_last,
                                 lead_ranges[i].num_more);
    return behind < VOCABULARY_MAX_TAIL ? behind + 1 : VOCABULARY_NO_TAIL;
}

void plain_characters_mark(struct grammar_vocabulary *vocabulary) {
    struct vocabulary_node *nodes = vocabulary->nodes;
    for (int32_t id = vocabulary->num_nodes - 1; id >= 0; id--) {
        int most = 0;
        for (int32_t child = id + 1; child < nodes[id].end; child = nodes[child].end) {
            int tail = tail_from(nodes, child);
            most = tail > most ? tail : most;
        }
        nodes[id].plain_tail = (uint8_t)most;
    }
}

/* --- Of the grammar --- */

/* A search for the set that all plain characters lead to. */
struct search {
    struct grammar_machine *machine;
    int32_t target; /* PARSE_SET_UNKNOWN: no character was followed yet */
    uint32_t num_sweeps;
};

/* Returns where the byte leads; PARSE_SET_EMPTY also when the sets were renamed meanwhile. */
static int32_t step(const struct search *search, int32_t set, uint8_t byte) {
    int32_t to = grammar_machine_step(search->machine, set, byte);
    return to < 0 || search->machine->num_sweeps == search->num_sweeps ? to : PARSE_SET_EMPTY;
}

/* Returns 1 when each byte of first..last, with num_more continuation bytes behind it, leads to the
 * target; 0 otherwise, -1 when memory is short. */
static int all_lead_to_target(struct search *search, int32_t set, uint8_t first, uint8_t last,
                              int num_more) {
    const uint8_t *classes = search->machine->grammar->classes;
    int32_t known = PARSE_SET_EMPTY;
    for (int byte = first; byte <= last; byte++) {
        if (byte > first && classes[byte] == classes[byte - 1])
            continue;
        int32_t to = step(search, set, (uint8_t)byte);
        if (to <= PARSE_SET_EMPTY)
            return to;
        if (num_more == 0 && to != search->target)
            return 0;
        int status = num_more > 0 && to != known
                         ? all_lead_to_target(search, to, 0x80, 0xbf, num_more - 1)
                         : 1;
        if (status <= 0)
            return status;
        known = to;
    }
    return 1;
}

static int all_characters_lead_to_target(struct search *search, int32_t set) {
    static const uint8_t ascii[][2] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7f}};
    for (int i = 0; i < 3; i++) {
        int status = all_lead_to_target(search, set, ascii[i][0], ascii[i][1], 0);
        if (status <= 0)
            return status;
    }
    for (int i = 0; i < NUM_LEAD_RANGES; i++) {
        const struct lead_range *range = &lead_ranges[i];
        int32_t known = PARSE_SET_EMPTY;
        for (int lead = range->first; lead <= range->last; lead++) {
            int32_t to = step(search, set, (uint8_t)lead);
            if (to <= PARSE_SET_EMPTY)
                return to;
            if (to == known)
                continue;
            int status =
                all_lead_to_target(search, to, range->second, range->second_last, range->num_more);
            if (status <= 0)
                return status;
            known = to;
        }
    }
    return 1;
}

/* Returns the set that all plain characters lead to, kept with the set; PARSE_SET_EMPTY: there is
 * none, or it is not known; -1 when memory is short. */
static int32_t find_target(struct grammar_machine *machine, int32_t set) {
    int32_t known = machine->store.sets[set]->plain;
    if (known != PARSE_SET_UNKNOWN)
        return known;
    struct search search = {machine, PARSE_SET_UNKNOWN, machine->num_sweeps};
    search.target = step(&search, set, ' ');
    int status = search.target > PARSE_SET_EMPTY ? all_characters_lead_to_target(&search, set) : 0;
    if (search.target < 0 || status < 0)
        return -1;
    int32_t target = status > 0 ? search.target : PARSE_SET_EMPTY;
    if (machine->num_sweeps != search.num_sweeps)
        return PARSE_SET_EMPTY;
    machine->store.sets[set]->plain = target;
    return target;
}

int plain_characters_follow(struct grammar_machine *machine, int32_t set, int count) {
    for (int i = 0; i < count; i++) {
        int32_t target = find_target(machine, set);
        if (target <= PARSE_SET_EMPTY)
            return target;
        if (target == set)
            return 1;
        set = target;
    }
    return 1;
}
