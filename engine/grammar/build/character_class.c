#include "engine/grammar/build/character_class.h"

#include <stdlib.h>
#include <string.h>

#define LAST_CHARACTER 0x10ffff

bool character_class_add(struct character_class *set, uint32_t first, uint32_t last) {
    if (set->count == CHARACTER_CLASS_MAX_RANGES)
        return false;
    set->ranges[set->count++] = (struct character_range){first, last};
    return true;
}

static int compare_ranges(const void *a, const void *b) {
    const struct character_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

bool character_class_complement(struct character_class *set) {
    struct character_class out = {.count = 0};
    uint32_t outside = 0;
    qsort(set->ranges, (size_t)set->count, sizeof(set->ranges[0]), compare_ranges);
    for (int i = 0; i < set->count; i++) {
        struct character_range range = set->ranges[i];
        if (range.first > outside && !character_class_add(&out, outside, range.first - 1))
            return false;
        outside = range.last + 1 > outside ? range.last + 1 : outside;
    }
    if (outside <= LAST_CHARACTER && !character_class_add(&out, outside, LAST_CHARACTER))
        return false;
    *set = out;
    return true;
}

static bool add_all(struct character_class *set, const struct character_range *ranges, int count) {
    bool fits = true;
    for (int i = 0; i < count && fits; i++)
        fits = character_class_add(set, ranges[i].first, ranges[i].last);
    return fits;
}

bool character_class_add_named(struct character_class *set, char name) {
    static const struct character_range digits[] = {{'0', '9'}};
    static const struct character_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    /* WhiteSpace and LineTerminator of ECMA-262. */
    static const struct character_range spaces[] = {
        {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    struct character_class named = {.count = 0};
    bool is_opposite = (name & 0x20) == 0;
    switch (name | 0x20) {
    case 'd':
        add_all(&named, digits, 1);
        break;
    case 'w':
        add_all(&named, words, sizeof(words) / sizeof(words[0]));
        break;
    default:
        add_all(&named, spaces, sizeof(spaces) / sizeof(spaces[0]));
        break;
    }
    return (!is_opposite || character_class_complement(&named)) &&
           add_all(set, named.ranges, named.count);
}

static bool has_character(const struct character_class *set, uint32_t character) {
    for (int i = 0; i < set->count; i++)
        if (character >= set->ranges[i].first && character <= set->ranges[i].last)
            return true;
    return false;
}

/* Characters that JSON writes with a backslash, and what follows it. */
static const struct {
    uint32_t character;
    char written[3];
} json_escapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                    {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};

#define NUM_ESCAPES ((int)(sizeof(json_escapes) / sizeof(json_escapes[0])))

/* Control characters that have no short escape, as \u00 and two digits. GRAMMAR_FAILED: the class
 * has none of them. */
static grammar_node long_escapes(struct grammar_builder *builder,
                                 const struct character_class *set) {
    grammar_node items[2];
    int count = 0;
    for (uint32_t high = 0; high < 2; high++) {
        struct character_range digits[16];
        int num_digits = 0;
        for (uint32_t low = 0; low < 16; low++) {
            uint32_t digit = low < 10 ? '0' + low : 'a' + low - 10, character = 16 * high + low;
            bool is_short = character >= '\b' && character <= '\r' && character != '\v';
            if (has_character(set, character) && !is_short)
                digits[num_digits++] = (struct character_range){digit, digit};
        }
        grammar_node parts[] = {grammar_literal(builder, high == 0 ? "\\u000" : "\\u001", 5),
                                grammar_characters(builder, digits, num_digits, false)};
        if (num_digits > 0)
            items[count++] = grammar_sequence(builder, parts, 2);
    }
    return count > 0 ? grammar_alternatives(builder, items, count) : GRAMMAR_FAILED;
}

/* Takes out what a JSON string cannot hold as it is. */
static bool keep_plain(struct character_class *set) {
    return character_class_complement(set) && character_class_add(set, 0, 0x1f) &&
           character_class_add(set, '"', '"') && character_class_add(set, '\\', '\\') &&
           character_class_complement(set);
}

static const char *json_node(struct grammar_builder *builder, struct character_class *set,
                             grammar_node *out) {
    grammar_node items[NUM_ESCAPES + 2];
    int count = 0;
    items[count] = long_escapes(builder, set);
    count += items[count] >= 0;
    for (int i = 0; i < NUM_ESCAPES; i++)
        if (has_character(set, json_escapes[i].character))
            items[count++] = grammar_literal(builder, json_escapes[i].written, 2);
    if (!keep_plain(set))
        return CHARACTER_CLASS_FULL;
    if (set->count > 0)
        items[count++] = grammar_characters(builder, set->ranges, set->count, false);
    if (count == 0)
        return "a class that no character of a JSON string is in";
    *out = count == 1 ? items[0] : grammar_alternatives(builder, items, count);
    return NULL;
}

const char *character_class_node(struct grammar_builder *builder, struct character_class *set,
                                 bool in_json_string, grammar_node *out) {
    if (in_json_string)
        return json_node(builder, set, out);
    if (set->count == 0)
        return "a class without characters";
    *out = grammar_characters(builder, set->ranges, set->count, false);
    return NULL;
}

grammar_node character_class_json(struct grammar_builder *b) {
    static const struct character_range escaped[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    static const struct character_range short_escapes[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'},
                                                           {'b', 'b'}, {'f', 'f'}, {'n', 'n'},
                                                           {'r', 'r'}, {'t', 't'}};
    static const struct character_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    static const struct character_range not_d[] = {
        {'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const struct character_range d[] = {{'D', 'D'}, {'d', 'd'}};
    static const struct character_range high[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
    static const struct character_range low[] = {{'C', 'F'}, {'c', 'f'}};
    grammar_node digit = grammar_characters(b, hex, 3, false);
    grammar_node any_d = grammar_characters(b, d, 2, false);
    grammar_node below_surrogates[] = {
        any_d, grammar_characters(b, &(struct character_range){'0', '7'}, 1, false),
        grammar_repeat(b, digit, 2, 2)};
    grammar_node others[] = {grammar_characters(b, not_d, 5, false),
                             grammar_repeat(b, digit, 3, 3)};
    grammar_node pair[] = {any_d,
                           grammar_characters(b, high, 3, false),
                           grammar_repeat(b, digit, 2, 2),
                           grammar_literal(b, "\\u", 2),
                           any_d,
                           grammar_characters(b, low, 2, false),
                           grammar_repeat(b, digit, 2, 2)};
    grammar_node four[] = {grammar_sequence(b, others, 2), grammar_sequence(b, below_surrogates, 3),
                           grammar_sequence(b, pair, 7)};
    grammar_node unicode[] = {grammar_literal(b, "u", 1), grammar_alternatives(b, four, 3)};
    grammar_node behind[] = {grammar_characters(b, short_escapes, 8, false),
                             grammar_sequence(b, unicode, 2)};
    grammar_node escape[] = {grammar_literal(b, "\\", 1), grammar_alternatives(b, behind, 2)};
    grammar_node all[] = {grammar_characters(b, escaped, 3, true), grammar_sequence(b, escape, 2)};
    return grammar_alternatives(b, all, 2);
}

/* --- Byte ranges --- */

#define LAST_CHARACTER 0x10ffff
#define FIRST_SURROGATE 0xd800
#define LAST_SURROGATE 0xdfff

struct sequence_list {
    struct utf8_sequence *items; /* NULL while they are only counted */
    int32_t count;
};

/* The last character of 1, 2, 3 and 4 bytes. */
static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xffff, LAST_CHARACTER};

/* first..last, all of num_bytes bytes. */
static void add_pieces(struct sequence_list *list, uint32_t first, uint32_t last, int num_bytes) {
    for (int i = 1; i < num_bytes; i++) {
        uint32_t tail = (UINT32_C(1) << (6 * i)) - 1;
        if ((first & ~tail) == (last & ~tail))
            continue;
        if ((first & tail) != 0) {
            add_pieces(list, first, first | tail, num_bytes);
            add_pieces(list, (first | tail) + 1, last, num_bytes);
            return;
        }
        if ((last & tail) != tail) {
            add_pieces(list, first, (last & ~tail) - 1, num_bytes);
            add_pieces(list, last & ~tail, last, num_bytes);
            return;
        }
    }
    if (list->items != NULL) {
        struct utf8_sequence *sequence = &list->items[list->count];
        sequence->num_bytes = num_bytes;
        utf8_encode(first, (char *)sequence->first);
        utf8_encode(last, (char *)sequence->last);
    }
    list->count++;
}

/* first..last without the surrogates. */
static void add_range(struct sequence_list *list, uint32_t first, uint32_t last) {
    if (first < FIRST_SURROGATE && last >= FIRST_SURROGATE) {
        add_range(list, first, FIRST_SURROGATE - 1);
        first = FIRST_SURROGATE;
    }
    if (first >= FIRST_SURROGATE && first <= LAST_SURROGATE)
        first = LAST_SURROGATE + 1;
    for (int length = 1; length <= 4 && first <= last; length++) {
        uint32_t end = last < last_of_length[length - 1] ? last : last_of_length[length - 1];
        if (first > end)
            continue;
        add_pieces(list, first, end, length);
        first = end + 1;
    }
}

/* The sorted ranges' union, or what is outside of it. */
static void add_union(struct sequence_list *list, const struct character_range *sorted,
                      int32_t num_ranges, bool negated) {
    uint32_t outside = 0; /* the first character after what was seen */
    for (int32_t i = 0; i < num_ranges;) {
        uint32_t first = sorted[i].first, last = sorted[i].last;
        for (i++; i < num_ranges && sorted[i].first <= last + 1; i++)
            last = sorted[i].last > last ? sorted[i].last : last;
        if (!negated)
            add_range(list, first, last);
        else if (first > outside)
            add_range(list, outside, first - 1);
        outside = last + 1;
    }
    if (negated && outside <= LAST_CHARACTER)
        add_range(list, outside, LAST_CHARACTER);
}

int32_t utf8_ranges_split(const struct character_range *ranges, int32_t num_ranges, bool negated,
                          struct utf8_sequence **out) {
    struct character_range *sorted = malloc(((size_t)num_ranges + 1) * sizeof(*sorted));
    if (sorted == NULL)
        return -1;
    if (num_ranges > 0)
        memcpy(sorted, ranges, (size_t)num_ranges * sizeof(*sorted));
    qsort(sorted, (size_t)num_ranges, sizeof(*sorted), compare_ranges);
    struct sequence_list list = {0};
    add_union(&list, sorted, num_ranges, negated);
    list.items = malloc(((size_t)list.count + 1) * sizeof(*list.items));
    if (list.items == NULL) {
        free(sorted);
        return -1;
    }
    list.count = 0;
    add_union(&list, sorted, num_ranges, negated);
    free(sorted);
    *out = list.items;
    return list.count;
}
