/* Random small grammars and random vocabularies against a matcher that knows nothing of stacks or
 * prefix trees: it computes, node by node, at which positions of the text each part can end. A text
 * is a beginning of a match when some part wants to read on at the text's end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_machine.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <string.h>

#define NUM_SEEDS 2000
#define MAX_PARTS 24
#define MAX_ITEMS 3
#define MAX_TEXT 24 /* positions are bits of 32 */
#define CONTROL 256 /* as a symbol of the text, behind the bytes */

enum part_kind { TEXT, CLASS, NAMED, SEQUENCE, EITHER, REPEAT, RULE };

/* Parts use earlier parts; a rule's body is a later one. */
struct part {
    enum part_kind kind;
    char text[4];
    int length;
    struct character_range range;
    int items[MAX_ITEMS];
    int num_items;
    int min, max;
    bool nullable, productive;
};

struct language {
    struct part parts[MAX_PARTS];
    int num_parts, root;
};

static uint64_t random_state;

static uint32_t draw(uint32_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

/* --- The oracle --- */

struct matcher {
    const struct language *language;
    int symbols[MAX_TEXT];
    int length;
    bool wants_more;
    /* Of rules, from one position: where they can end as far as it is known. A rule may begin with
     * itself, so that these are least fixed points. */
    uint32_t ends[MAX_PARTS][MAX_TEXT + 1];
    uint32_t wanted[MAX_PARTS]; /* positions from which a rule is used */
    bool changes;
};

static uint32_t match(struct matcher *m, int index, uint32_t from);

static uint32_t match_text(struct matcher *m, const struct part *part, uint32_t from) {
    uint32_t ends = 0;
    for (int at = 0; at <= m->length; at++) {
        if ((from >> at & 1) == 0)
            continue;
        int i = 0;
        while (i < part->length && at + i < m->length &&
               m->symbols[at + i] == (uint8_t)part->text[i])
            i++;
        if (i == part->length)
            ends |= UINT32_C(1) << (at + i);
        else if (at + i == m->length)
            m->wants_more = true;
    }
    return ends;
}

/* Characters here are ASCII, or of two bytes: those with this first byte are 64 in a row. */
static uint32_t match_character(struct matcher *m, const struct part *part, int at) {
    if (at == m->length) {
        m->wants_more = true;
        return 0;
    }
    int lead = m->symbols[at], last = at + 1 < m->length ? m->symbols[at + 1] : -1;
    if (lead < 0x80) {
        bool matches = (uint32_t)lead >= part->range.first && (uint32_t)lead <= part->range.last;
        return matches ? UINT32_C(1) << (at + 1) : 0;
    }
    uint32_t ends = 0;
    for (uint32_t c = (uint32_t)(lead & 0x1f) << 6, i = 0; i < 64 && lead < 0xe0; i++, c++) {
        if (lead < 0xc2 || c < part->range.first || c > part->range.last)
            continue;
        m->wants_more |= last < 0;
        ends |= last == (int)(0x80 | i) ? UINT32_C(1) << (at + 2) : 0;
    }
    return ends;
}

static uint32_t match_class(struct matcher *m, const struct part *part, uint32_t from) {
    uint32_t ends = 0;
    for (int at = 0; at <= m->length; at++)
        if ((from >> at & 1) != 0)
            ends |= match_character(m, part, at);
    return ends;
}

static uint32_t match_named(struct matcher *m, uint32_t from) {
    uint32_t ends = 0;
    for (int at = 0; at < m->length; at++)
        if ((from >> at & 1) != 0 && m->symbols[at] == CONTROL)
            ends |= UINT32_C(1) << (at + 1);
    m->wants_more |= (from >> m->length & 1) != 0;
    return ends;
}

static uint32_t match_repeat(struct matcher *m, const struct part *part, uint32_t from) {
    uint32_t ends = part->min == 0 ? from : 0;
    for (int i = 1; (part->max < 0 ? i <= MAX_TEXT + 2 : i <= part->max) && from != 0; i++) {
        from = match(m, part->items[0], from);
        if (i < part->min)
            continue;
        if (part->max < 0)
            from &= ~ends; /* from the others it went on before */
        ends |= from;
    }
    return ends;
}

static uint32_t match_rule(struct matcher *m, int index, uint32_t from) {
    uint32_t ends = 0;
    m->changes |= (from & ~m->wanted[index]) != 0;
    m->wanted[index] |= from;
    for (int at = 0; at <= m->length; at++)
        if ((from >> at & 1) != 0)
            ends |= m->ends[index][at];
    return ends;
}

static uint32_t match(struct matcher *m, int index, uint32_t from) {
    const struct part *part = &m->language->parts[index];
    if (from == 0 || !part->productive)
        return 0;
    uint32_t ends = 0;
    switch (part->kind) {
    case TEXT:
        return match_text(m, part, from);
    case CLASS:
        return match_class(m, part, from);
    case NAMED:
        return match_named(m, from);
    case SEQUENCE:
        for (int i = 0; i < part->num_items; i++)
            from = match(m, part->items[i], from);
        return from;
    case EITHER:
        for (int i = 0; i < part->num_items; i++)
            ends |= match(m, part->items[i], from);
        return ends;
    case REPEAT:
        return match_repeat(m, part, from);
    case RULE:
        break;
    }
    return match_rule(m, index, from);
}

static uint32_t match_all(struct matcher *m) {
    uint32_t ends;
    do {
        m->changes = false;
        ends = match(m, m->language->root, 1);
        for (int i = 0; i < m->language->num_parts; i++) {
            for (int at = 0; at <= m->length; at++) {
                if ((m->wanted[i] >> at & 1) == 0)
                    continue;
                uint32_t found = match(m, m->language->parts[i].items[0], UINT32_C(1) << at);
                m->changes |= (found & ~m->ends[i][at]) != 0;
                m->ends[i][at] |= found;
            }
        }
    } while (m->changes);
    return ends;
}

enum verdict { IMPOSSIBLE, PREFIX, COMPLETE };

/* *out_goes_on: something may follow. */
static enum verdict judge(const struct language *language, const int *symbols, int length,
                          bool *out_goes_on) {
    struct matcher m = {language, .length = length};
    if (length > 0)
        memcpy(m.symbols, symbols, (size_t)length * sizeof(*symbols));
    uint32_t ends = match_all(&m);
    *out_goes_on = m.wants_more;
    return (ends >> length & 1) != 0 ? COMPLETE : m.wants_more ? PREFIX : IMPOSSIBLE;
}

/* --- Random languages --- */

static const char *const words[] = {"a", "b", "ab", "ba", "aab", "\xc3\xa9", "", "{", "\"a"};

static void draw_leaf(struct part *part) {
    static const struct character_range ranges[] = {
        {'a', 'a'}, {'a', 'b'}, {'b', 0xe9}, {0xe0, 0x3ff}};
    switch (draw(5)) {
    case 0:
        part->kind = CLASS;
        part->range = ranges[draw(4)];
        break;
    case 1:
        part->kind = NAMED;
        break;
    default:
        part->kind = TEXT;
        strcpy(part->text, words[draw(sizeof(words) / sizeof(words[0]))]);
        part->length = (int)strlen(part->text);
    }
}

static int draw_length(int least) {
    return least + (int)draw((uint32_t)(MAX_ITEMS + 1 - least));
}

static void draw_part(struct language *language, int index) {
    struct part *part = &language->parts[index];
    if (index < 5) {
        draw_leaf(part);
        return;
    }
    part->kind = draw(2) == 0 ? SEQUENCE : EITHER;
    part->num_items = draw_length(part->kind == EITHER);
    if (draw(4) == 0) {
        part->kind = REPEAT;
        part->num_items = 1;
        part->min = (int)draw(4);
        part->max = draw(2) == 0 ? -1 : part->min + (int)draw(4);
    }
    for (int i = 0; i < part->num_items; i++)
        part->items[i] = (int)draw((uint32_t)index);
}

/* Parts 0..num_rules-1 are rules; their bodies are the last parts. */
static void draw_language(struct language *language) {
    memset(language, 0, sizeof(*language));
    int num_rules = (int)draw(4);
    language->num_parts = 10 + (int)draw(MAX_PARTS - 12);
    for (int i = 0; i < language->num_parts; i++)
        draw_part(language, i);
    for (int i = 0; i < num_rules; i++) {
        struct part *rule = &language->parts[i];
        *rule = (struct part){RULE, .num_items = 1, .items = {language->num_parts}};
        struct part *body = &language->parts[language->num_parts++];
        *body = (struct part){draw(3) == 0 ? EITHER : SEQUENCE, .num_items = 2};
        body->items[0] = (int)draw((uint32_t)(language->num_parts - 1));
        body->items[1] = 5 + (int)draw((uint32_t)(language->num_parts - 6 - i));
        if (draw(2) == 0) /* so that it has an end */
            *body = (struct part){EITHER, .num_items = 2,
                                  .items = {language->num_parts - 2, num_rules}};
    }
    language->root = language->num_parts - 1;
}

/* Least fixed points of both properties. */
static void find_properties(struct language *language) {
    for (int round = 0; round < MAX_PARTS + 1; round++) {
        for (int i = 0; i < language->num_parts; i++) {
            struct part *part = &language->parts[i];
            bool all_nullable = true, any_nullable = false, all = true, any = false;
            for (int k = 0; k < part->num_items; k++) {
                const struct part *item = &language->parts[part->items[k]];
                all_nullable &= item->nullable;
                any_nullable |= item->nullable;
                all &= item->productive;
                any |= item->productive;
            }
            bool empty_repeat = part->kind == REPEAT && part->min == 0;
            part->nullable = part->kind == TEXT     ? part->length == 0
                             : part->kind == EITHER ? any_nullable
                             : part->num_items > 0  ? all_nullable || empty_repeat
                                                    : part->kind == SEQUENCE;
            part->productive = part->kind == EITHER ? any : all || empty_repeat;
        }
    }
}

static struct grammar *build(const struct language *language, int32_t control) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node nodes[MAX_PARTS], items[MAX_ITEMS];
    for (int i = 0; i < language->num_parts; i++) {
        const struct part *part = &language->parts[i];
        for (int k = 0; k < part->num_items && part->kind != RULE; k++)
            items[k] = nodes[part->items[k]];
        nodes[i] = part->kind == TEXT       ? grammar_literal(b, part->text, (size_t)part->length)
                   : part->kind == CLASS    ? grammar_characters(b, &part->range, 1, false)
                   : part->kind == NAMED    ? grammar_token(b, control)
                   : part->kind == RULE     ? grammar_rule(b)
                   : part->kind == REPEAT   ? grammar_repeat(b, items[0], part->min, part->max)
                   : part->kind == SEQUENCE ? grammar_sequence(b, items, part->num_items)
                                            : grammar_alternatives(b, items, part->num_items);
    }
    for (int i = 0; i < language->num_parts; i++)
        if (language->parts[i].kind == RULE)
            grammar_define(b, nodes[i], nodes[language->parts[i].items[0]]);
    struct grammar *grammar = NULL;
    struct error err;
    if (grammar_build(b, nodes[language->root], &grammar, &err) != 0)
        grammar = NULL; /* has no text */
    grammar_builder_destroy(b);
    return grammar;
}

static void draw_vocabulary(struct tokenizer *tokenizer) {
    static const char *const bytes[] = {"a", "b", "{", "\"", "\xc3", "\xa9", "\xcf"};
    memset(tokenizer, 0, sizeof(*tokenizer));
    tokenizer->end = fixture_add(tokenizer, "ab", 2);
    tokenizer->control = fixture_add(tokenizer, "a", 1);
    for (int i = 0; i < 7; i++)
        fixture_add(tokenizer, bytes[i], 1);
    for (int i = 0; i < 40; i++) {
        char piece[8] = "";
        size_t length = 0;
        for (uint32_t parts = draw(4); parts > 0; parts--)
            piece[length++] = bytes[draw(7)][0];
        fixture_add(tokenizer, piece, length);
    }
}

/* --- Walks --- */

static int append(const struct tokenizer *tokenizer, int32_t token, int *symbols, int length) {
    if (token == tokenizer->control) {
        symbols[length] = CONTROL;
        return length + 1;
    }
    struct text piece = tokenizer->pieces[token];
    for (size_t i = 0; i < piece.length; i++)
        symbols[length++] = (uint8_t)piece.data[i];
    return length;
}

/* What the oracle says of every token; returns how many are allowed. */
static int expect_mask(const struct language *language, const struct tokenizer *tokenizer,
                       int *symbols, int length, uint32_t *out) {
    int count = 0;
    bool goes_on;
    bool is_complete = judge(language, symbols, length, &goes_on) == COMPLETE;
    for (int32_t token = 0; token < tokenizer->num_tokens; token++) {
        bool allowed = is_complete;
        if (token != tokenizer->end) {
            int end = append(tokenizer, token, symbols, length);
            allowed = end > length && judge(language, symbols, end, &(bool){false}) != IMPOSSIBLE;
        }
        out[token / 32] |= (uint32_t)allowed << (token % 32);
        count += allowed;
    }
    if (count == 0) /* the way out */
        out[tokenizer->end / 32] |= UINT32_C(1) << (tokenizer->end % 32);
    return count;
}

static int32_t draw_allowed(const uint32_t *mask, const struct tokenizer *tokenizer) {
    int32_t token;
    do
        token = (int32_t)draw((uint32_t)tokenizer->num_tokens);
    while ((mask[token / 32] >> (token % 32) & 1) == 0);
    return token;
}

/* Very ambiguous texts have more parse states than are followed: then the masks may lack tokens. */
static bool is_crowded(const struct grammar_state *state) {
    const struct grammar_machine *machine = state->grammar->machine;
    return machine->store.sets[state->set]->num_states > GRAMMAR_MAX_PARSE_STATES / 16;
}

static bool is_subset(const uint32_t *mask, const uint32_t *of) {
    for (int i = 0; i < FIXTURE_WORDS; i++)
        if ((mask[i] & ~of[i]) != 0)
            return false;
    return true;
}

/* Returns the number of masks compared. */
static int walk(struct language *language, const struct tokenizer *tokenizer,
                struct grammar_state *state, int seed) {
    int symbols[MAX_TEXT + 8], length = 0, num_masks = 0;
    while (length < MAX_TEXT - 8) {
        uint32_t mask[FIXTURE_WORDS] = {0}, expected[FIXTURE_WORDS] = {0};
        assert_int_equal(grammar_state_mask(state, mask), 0);
        int count = expect_mask(language, tokenizer, symbols, length, expected);
        if (is_crowded(state)) {
            assert_true(is_subset(mask, expected));
            break;
        }
        if (memcmp(mask, expected, sizeof(mask)) != 0)
            fail_msg("seed %d: the mask after %d symbols is wrong", seed, length);
        num_masks++;
        bool goes_on;
        enum verdict verdict = judge(language, symbols, length, &goes_on);
        assert_int_equal(grammar_state_is_final(state), verdict == COMPLETE && !goes_on);
        for (int32_t token = 0; token < tokenizer->num_tokens; token++) {
            struct grammar_state *clone = grammar_state_clone(state);
            bool allowed = (mask[token / 32] >> (token % 32) & 1) != 0;
            assert_int_equal(grammar_state_accept(clone, token), allowed ? 0 : -1);
            grammar_state_destroy(clone);
        }
        int32_t token = draw_allowed(mask, tokenizer);
        assert_int_equal(grammar_state_accept(state, token), 0);
        if (token == tokenizer->end) {
            assert_true(verdict == COMPLETE || count == 0);
            break;
        }
        length = append(tokenizer, token, symbols, length);
    }
    return num_masks;
}

/* One in three forgets what it knows at every step. */
static void test_against_oracle(void **unused) {
    int num_masks = 0, num_built = 0;
    for (int seed = 1; seed <= NUM_SEEDS; seed++) {
        random_state = (uint64_t)seed;
        struct language language;
        static struct tokenizer tokenizer;
        draw_language(&language);
        find_properties(&language);
        draw_vocabulary(&tokenizer);
        struct grammar *grammar = build(&language, tokenizer.control);
        if (grammar == NULL)
            continue;
        num_built++;
        if (seed % 3 == 0)
            grammar->cache_bytes = 0;
        struct grammar_vocabulary *vocabulary;
        assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &(struct error){0}), 0);
        struct grammar_state *bystander = grammar_state_create(grammar, vocabulary);
        uint32_t before[FIXTURE_WORDS] = {0}, after[FIXTURE_WORDS] = {0};
        assert_int_equal(grammar_state_mask(bystander, before), 0);
        for (int i = 0; i < 4; i++) {
            struct grammar_state *state = grammar_state_create(grammar, vocabulary);
            num_masks += walk(&language, &tokenizer, state, seed);
            grammar_state_destroy(state);
        }
        assert_int_equal(grammar_state_mask(bystander, after), 0);
        assert_memory_equal(before, after, sizeof(before));
        grammar_state_destroy(bystander);
        grammar_vocabulary_destroy(vocabulary);
        grammar_unref(grammar);
    }
    print_message("# %d grammars, %d masks\n", num_built, num_masks);
    assert_true(num_built > NUM_SEEDS / 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_oracle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
