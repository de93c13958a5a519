/* Numbers. A range alone is written digit by digit (json_schema_range.c); multiples, and values
 * that are not meant, are taken into it or out of it as automata over the decimal texts. */
#include "engine/grammar/read/json_schema_private.h"

#include "engine/grammar/read/grammar_regex.h"
#include "config/json/json_field.h"
#include "config/json/json_integer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIVISOR 4096
#define MAX_DECIMALS 6
#define MAX_OTHERS 64

/* What a case says of a number. */
struct number {
    struct schema_bounds bounds;
    bool is_integer, is_fraction;                 /* an integer; none */
    const struct schema_fact *others[MAX_OTHERS]; /* multipleOf, and values that it is not */
    int num_others;
};

/* --- Facts --- */

static void raise_low(struct schema_bounds *b, const cJSON *item, bool excluded) {
    double value = item->valuedouble;
    if (b->has_low && (value < b->low || (value == b->low && b->low_excluded)))
        return;
    b->has_low = true;
    b->low = value;
    b->low_item = item;
    b->low_excluded = excluded;
}

static void lower_high(struct schema_bounds *b, const cJSON *item, bool excluded) {
    double value = item->valuedouble;
    if (b->has_high && (value > b->high || (value == b->high && b->high_excluded)))
        return;
    b->has_high = true;
    b->high = value;
    b->high_item = item;
    b->high_excluded = excluded;
}

/* The opposite of a bound is one to the other side. As in draft 4, exclusiveMinimum may be a flag
 * next to minimum. */
static int read_bound(struct schema_context *c, const struct schema_fact *fact,
                      struct schema_bounds *bounds) {
    const cJSON *item = fact->item;
    bool is_low = strstr(item->string, "inimum") != NULL;
    bool is_excluded = strncmp(item->string, "exclusive", 9) == 0 ||
                       cJSON_IsTrue(json_member(fact->of.schema,
                                                is_low ? "exclusiveMinimum" : "exclusiveMaximum"));
    if (!cJSON_IsNumber(item))
        return schema_refuse(c, fact->of.path, "%s must be a number", item->string);
    bounds->path = fact->of.path;
    if (is_low != fact->of.negated)
        raise_low(bounds, item, is_excluded != fact->of.negated);
    else
        lower_high(bounds, item, is_excluded != fact->of.negated);
    return 0;
}

static int read_number(struct schema_context *c, const struct schema_case *one,
                       struct number *out) {
    *out = (struct number){.bounds = {.path = c->path}};
    for (int i = 0; i < one->count; i++) {
        const struct schema_fact *fact = one->facts[i];
        const char *key = fact->item->string;
        if (out->bounds.path == NULL || !out->bounds.has_low)
            out->bounds.path = fact->of.path;
        if (strcmp(key, "type") == 0) {
            *(fact->of.negated ? &out->is_fraction : &out->is_integer) = true;
        } else if (strstr(key, "imum") != NULL) {
            if (read_bound(c, fact, &out->bounds) != 0)
                return -1;
        } else if (out->num_others == MAX_OTHERS) {
            return schema_decline(c, fact->of.path, "too many schemas must match one number");
        } else {
            out->others[out->num_others++] = fact;
        }
    }
    return 0;
}

/* --- Multiples --- */

/* A divisor as `units` of 10^-decimals. */
struct divisor {
    int32_t units;
    int decimals;
};

static int read_divisor(struct schema_context *c, const struct schema_fact *fact,
                        struct divisor *out) {
    double value = fact->item->valuedouble, scale = 1;
    if (!cJSON_IsNumber(fact->item) || !(value > 0))
        return schema_refuse(c, fact->of.path, "multipleOf must be a number above 0");
    for (int decimals = 0; decimals <= MAX_DECIMALS; decimals++, scale *= 10) {
        double units = nearbyint(value * scale);
        if (units < 1 || fabs(value * scale - units) > 1e-9 * units)
            continue;
        if (units > MAX_DIVISOR)
            break;
        *out = (struct divisor){(int32_t)units, decimals};
        return 0;
    }
    return schema_decline(c, fact->of.path,
                          "multipleOf is supported up to %d units of its last digit", MAX_DIVISOR);
}

/* Decimals modulo the divisor. State: the remainder, in units, of what was read, and how many
 * decimals that was (0 in front of the point, then 1 + decimals): place * units + remainder. */
struct remainders {
    struct divisor divisor;
    struct text_automaton *automaton;
};

static bool is_multiple(const struct divisor *d, int decimals, int32_t remainder) {
    int64_t value = remainder;
    for (; decimals < d->decimals; decimals++)
        value = value * 10 % d->units;
    return value == 0;
}

/* States: 0: the start; 1: after "-"; then one for each place and remainder; place 1 is right after
 * the point. */
static int32_t state_of(const struct divisor *d, int place, int32_t remainder) {
    return 2 + place * d->units + remainder;
}

static int add_digits(const struct remainders *r, int place, int32_t remainder) {
    for (int digit = 0; digit < 10; digit++) {
        int32_t next = (int32_t)(((int64_t)remainder * 10 + digit) % r->divisor.units);
        uint32_t character = (uint32_t)('0' + digit);
        struct automaton_edge edge = {character, character, state_of(&r->divisor, place, next)};
        if (text_automaton_add_edge(r->automaton, edge) != 0)
            return -1;
    }
    return 0;
}

static int add_remainder(const struct remainders *r, int place, int32_t remainder) {
    const struct divisor *d = &r->divisor;
    int decimals = place > 0 ? place - 1 : 0;
    bool accepts = place != 1 && is_multiple(d, decimals, remainder);
    struct automaton_edge point = {'.', '.', state_of(d, 1, remainder)};
    if (text_automaton_add_state(r->automaton, accepts) < 0)
        return -1;
    if (place == 0 && d->decimals > 0 && text_automaton_add_edge(r->automaton, point) != 0)
        return -1;
    if (place == 0)
        return add_digits(r, 0, remainder);
    return decimals < d->decimals ? add_digits(r, place + 1, remainder) : 0;
}

static int add_remainders(const struct remainders *r) {
    const struct automaton_edge minus = {'-', '-', 1};
    int num_places = r->divisor.decimals > 0 ? r->divisor.decimals + 2 : 1;
    if (text_automaton_add_state(r->automaton, false) < 0 ||
        text_automaton_add_edge(r->automaton, minus) != 0 || add_digits(r, 0, 0) != 0 ||
        text_automaton_add_state(r->automaton, false) < 0 || add_digits(r, 0, 0) != 0)
        return -1;
    for (int place = 0; place < num_places; place++)
        for (int32_t remainder = 0; remainder < r->divisor.units; remainder++)
            if (add_remainder(r, place, remainder) != 0)
                return -1;
    return 0;
}

static int multiples(struct schema_context *c, const struct schema_fact *fact,
                     const struct text_automaton **out) {
    struct remainders r = {.automaton = NULL};
    if (read_divisor(c, fact, &r.divisor) != 0)
        return -1;
    r.automaton = text_automaton_create();
    if (r.automaton == NULL)
        return api_error_set_memory(c->err);
    if (add_remainders(&r) != 0) {
        bool has_failed = r.automaton->has_failed;
        text_automaton_destroy(r.automaton);
        return has_failed ? api_error_set_memory(c->err)
                          : schema_decline(c, fact->of.path, "multipleOf has too many digits");
    }
    *out = r.automaton;
    if (schema_keep_automaton(c, NULL, r.automaton) != 0)
        return -1;
    *c->work -= 64 * (int64_t)r.automaton->num_edges;
    return text_automaton_trim(r.automaton) == 0 && text_automaton_minimise(r.automaton) == 0
               ? 0
               : api_error_set_memory(c->err);
}

/* --- Automata of numbers --- */

static int automaton_of_node(struct schema_context *c, const struct number *n,
                             struct grammar_builder *builder, grammar_node node,
                             const struct text_automaton **out) {
    struct text_automaton *automaton;
    struct error error = {0};
    if (text_automaton_of_nodes(builder, node, c->work, &automaton, &error) != 0)
        return schema_decline_error(c, n->bounds.path, "a number's range", &error);
    *out = automaton;
    return schema_keep_automaton(c, NULL, automaton);
}

static int range_node(struct schema_context *c, const struct number *n, bool plain,
                      grammar_node *out) {
    return n->is_integer ? schema_integer_range(c, &n->bounds, out)
                         : schema_real_range(c, &n->bounds, plain, out);
}

/* What the range alone admits, in nodes of a separate builder. */
static int range_automaton(struct schema_context *c, const struct number *n,
                           const struct text_automaton **out) {
    struct grammar_builder *builder = c->builder, *own = grammar_builder_create();
    struct json_pieces pieces = c->pieces;
    grammar_node node;
    if (own == NULL)
        return api_error_set_memory(c->err);
    c->builder = own;
    c->pieces = (struct json_pieces)JSON_PIECES_NONE;
    int result = range_node(c, n, true, &node);
    if (result == 0 && node == c->pieces.nothing) /* which is a rule */
        node = grammar_alternatives(own, NULL, 0);
    c->builder = builder;
    c->pieces = pieces;
    if (result == 0)
        result = automaton_of_node(c, n, own, node, out);
    grammar_builder_destroy(own);
    return result;
}

static int regex_automaton(struct schema_context *c, const struct number *n, const char *pattern,
                           const struct text_automaton **out) {
    struct grammar_builder *own = grammar_builder_create();
    struct error error = {0};
    grammar_node node;
    if (own == NULL)
        return api_error_set_memory(c->err);
    int result = grammar_regex(own, pattern, REGEX_TEXT, &node, &error);
    result = result == 0 ? automaton_of_node(c, n, own, node, out)
                         : schema_decline_error(c, n->bounds.path, "a number", &error);
    grammar_builder_destroy(own);
    return result;
}

/* All plain decimals of one value: 1.5, 1.50 ... *out NULL: there are none. */
static int value_automaton(struct schema_context *c, const struct number *n, const cJSON *value,
                           const struct text_automaton **out) {
    char text[JSON_NUMBER_BYTES], pattern[160];
    const char *digits = json_integer_digits(value);
    double number = value->valuedouble;
    *out = NULL;
    if (digits != NULL && strlen(digits) < sizeof(text))
        snprintf(text, sizeof(text), "%s", digits);
    else if (fabs(number) >= 1e20)
        return 0;
    else if (number == floor(number))
        snprintf(text, sizeof(text), "%.0f", number);
    else
        snprintf(text, sizeof(text), "%.15g", number);
    if (strtod(text, NULL) != number) /* which takes more digits than are written here */
        return 0;
    if (strchr(text, 'e') != NULL)
        return schema_decline(c, n->bounds.path, "enum has a number that cannot be excluded");
    char *point = strchr(text, '.');
    const char *sign = number == 0 ? "-?" : "";
    if (point != NULL) {
        *point = '\0';
        snprintf(pattern, sizeof(pattern), "%s\\.%s0*", text, point + 1);
    } else {
        snprintf(pattern, sizeof(pattern), "%s%s(?:\\.0+)?", sign, number == 0 ? "0" : text);
    }
    return regex_automaton(c, n, pattern, out);
}

static int combine(struct schema_context *c, const struct number *n, const char *key,
                   const struct text_automaton **into, const struct text_automaton *other,
                   enum automaton_operation operation) {
    struct text_automaton *result;
    struct error error = {0};
    if (text_automaton_combine(*into, other, operation, c->work, &result, &error) != 0)
        return schema_decline_error(c, n->bounds.path, key, &error);
    *into = result;
    return schema_keep_automaton(c, NULL, result);
}

/* Takes the values of an enum or const out. */
static int take_out(struct schema_context *c, const struct number *n, const cJSON *item,
                    const struct text_automaton **into) {
    const cJSON *value = cJSON_IsArray(item) ? item->child : item;
    for (; value != NULL; value = cJSON_IsArray(item) ? value->next : NULL) {
        const struct text_automaton *own;
        if (!cJSON_IsNumber(value))
            continue;
        if (value_automaton(c, n, value, &own) != 0 ||
            (own != NULL && combine(c, n, "enum", into, own, AUTOMATON_MINUS) != 0))
            return -1;
    }
    return 0;
}

/* Where values are excluded, or must be multiples of a fraction, numbers have at most 15 digits:
 * then no two of them are one double (IEEE 754). */
static bool needs_doubles(const struct number *n) {
    bool needs = n->is_fraction;
    for (int i = 0; i < n->num_others; i++) {
        const struct schema_fact *fact = n->others[i];
        double divisor = fact->item->valuedouble;
        needs = needs || fact->of.negated || strcmp(fact->item->string, "multipleOf") != 0 ||
                divisor != floor(divisor);
    }
    return needs && !n->is_integer;
}

static int number_automaton(struct schema_context *c, const struct number *n,
                            const struct text_automaton **out) {
    const struct text_automaton *own;
    if (range_automaton(c, n, out) != 0)
        return -1;
    for (int i = 0; i < n->num_others; i++) {
        const struct schema_fact *fact = n->others[i];
        bool is_multiple = strcmp(fact->item->string, "multipleOf") == 0;
        if (is_multiple ? multiples(c, fact, &own) != 0 : take_out(c, n, fact->item, out) != 0)
            return -1;
        if (is_multiple && combine(c, n, "multipleOf", out, own,
                                   fact->of.negated ? AUTOMATON_MINUS : AUTOMATON_AND) != 0)
            return -1;
    }
    if (needs_doubles(n) &&
        (regex_automaton(c, n, "-?(?:\\d{1,15}|\\d{1,9}\\.\\d{1,6})", &own) != 0 ||
         combine(c, n, "enum", out, own, AUTOMATON_AND) != 0))
        return -1;
    if (!n->is_fraction)
        return 0;
    return regex_automaton(c, n, "-?\\d+(?:\\.0+)?", &own) != 0 ||
                   combine(c, n, "type", out, own, AUTOMATON_MINUS) != 0
               ? -1
               : 0;
}

/* --- Nodes --- */

static bool is_range(const struct number *n) {
    return n->num_others == 0 && !n->is_fraction;
}

int schema_number(struct schema_context *c, const struct schema_case *one, grammar_node *out) {
    struct number n;
    const struct text_automaton *automaton;
    struct error error = {0};
    if (read_number(c, one, &n) != 0)
        return -1;
    if (is_range(&n))
        return range_node(c, &n, false, out);
    if (number_automaton(c, &n, &automaton) != 0)
        return -1;
    if (automaton->num_states == 0) {
        *out = schema_nothing(c);
        return 0;
    }
    if (text_automaton_write(automaton, c->builder, AUTOMATON_TEXT, out, &error) != 0)
        return schema_decline_error(c, n.bounds.path, "multipleOf", &error);
    return 0;
}

static bool bounds_cross(const struct number *n) {
    const struct schema_bounds *b = &n->bounds;
    double low = b->low, high = b->high;
    if (n->is_integer) {
        low = b->low_excluded && floor(low) == low ? low + 1 : ceil(low);
        high = b->high_excluded && floor(high) == high ? high - 1 : floor(high);
    }
    bool excludes = !n->is_integer && (b->low_excluded || b->high_excluded);
    return b->has_low && b->has_high && (low > high || (low == high && excludes));
}

int schema_number_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    struct number n;
    const struct text_automaton *automaton;
    if (read_number(c, one, &n) != 0)
        return -1;
    *out = bounds_cross(&n) || (n.is_integer && n.is_fraction) ||
           (n.bounds.has_low && n.bounds.low > 1e20) ||
           (n.bounds.has_high && n.bounds.high < -1e20);
    if (!*out && !is_range(&n)) {
        if (number_automaton(c, &n, &automaton) != 0)
            return -1;
        *out = automaton->num_states == 0;
    }
    if (*out)
        schema_note_empty(
            c, n.bounds.path,
            "no number of at most 20 digits lies between its minimum and maximum, and "
            "matches all else");
    return 0;
}
