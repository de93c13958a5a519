/* Ranges of numbers, digit by digit. Numbers are written with up to 20 digits before the point (all
 * integers of 64 bits have no more) and SCHEMA_MAX_DECIMALS after it.
 *
 * A range of whole numbers is cut by their number of digits, and each piece by its first digit:
 * 123..456 is 1(23..99) | [23](00..99) | 4(00..56). A range of reals whose bounds have k digits
 * after the point is that of the numbers times 10^k, with the point inserted; what continues after
 * those k digits lies between one number and the next. */
#include "engine/grammar/read/json_schema_private.h"
#include "config/json/json_integer.h"

#include <math.h>

#define MAX_DIGITS 20   /* before the point */
#define MAX_DECIMALS 6  /* of a bound */
#define EXACT_DIGITS 15 /* that a double keeps */

typedef __int128 wide;

/* Numbers a..b, both of `width` digits with leading zeros, the last num_decimals of them after a
 * point, then the tail. */
struct digit_range {
    char first[MAX_DIGITS + MAX_DECIMALS + 1], last[MAX_DIGITS + MAX_DECIMALS + 1];
    int width, num_decimals;
    grammar_node tail;
};

static grammar_node digits(struct schema_context *c, char first, char last) {
    struct character_range range = {(uint32_t)first, (uint32_t)last};
    return grammar_characters(c->builder, &range, 1, false);
}

/* All digits from `at` on are free. */
static grammar_node free_digits(struct schema_context *c, const struct digit_range *range, int at) {
    int point = range->width - range->num_decimals, before = at < point ? point - at : 0;
    int behind = range->width - at - before;
    grammar_node digit = digits(c, '0', '9');
    grammar_node items[4];
    int count = 0;
    if (before > 0)
        items[count++] = grammar_repeat(c->builder, digit, before, before);
    if (before > 0 && range->num_decimals > 0)
        items[count++] = schema_text(c, ".");
    if (behind > 0)
        items[count++] = grammar_repeat(c->builder, digit, behind, behind);
    items[count++] = range->tail;
    return schema_sequence(c, items, count);
}

static bool all_are(const char *text, int at, int width, char digit) {
    for (; at < width; at++)
        if (text[at] != digit)
            return false;
    return true;
}

/* One digit, with the point in front of it where it belongs, then the rest. */
static grammar_node digit_then(struct schema_context *c, const struct digit_range *range, int at,
                               char first, char last, grammar_node rest) {
    bool has_point = range->num_decimals > 0 && at == range->width - range->num_decimals;
    grammar_node items[] = {schema_text(c, has_point ? "." : ""), digits(c, first, last), rest};
    return schema_sequence(c, items, 3);
}

/* Returns what may follow when the first `at` digits are those of first, of last, or of both. */
static grammar_node digits_from(struct schema_context *c, const struct digit_range *range, int at,
                                bool bounded_below, bool bounded_above) {
    if (at == range->width)
        return range->tail;
    bool free_below = !bounded_below || all_are(range->first, at, range->width, '0');
    bool free_above = !bounded_above || all_are(range->last, at, range->width, '9');
    bool at_point = range->num_decimals > 0 && at == range->width - range->num_decimals;
    if (free_below && free_above && !at_point)
        return free_digits(c, range, at);
    char first = bounded_below ? range->first[at] : '0',
         last = bounded_above ? range->last[at] : '9';
    if (first == last)
        return digit_then(c, range, at, first, last,
                          digits_from(c, range, at + 1, bounded_below, bounded_above));
    grammar_node items[3];
    int count = 0;
    if (bounded_below)
        items[count++] =
            digit_then(c, range, at, first, first, digits_from(c, range, at + 1, true, false));
    char inner_first = (char)(first + bounded_below), inner_last = (char)(last - bounded_above);
    if (inner_first <= inner_last)
        items[count++] = digit_then(c, range, at, inner_first, inner_last,
                                    digits_from(c, range, at + 1, false, false));
    if (bounded_above)
        items[count++] =
            digit_then(c, range, at, last, last, digits_from(c, range, at + 1, false, true));
    return grammar_alternatives(c->builder, items, count);
}

static wide power_of_ten(int exponent) {
    wide power = 1;
    for (; exponent > 0; exponent--)
        power *= 10;
    return power;
}

/* The largest number of MAX_DIGITS digits before the point, in units of 10^-k. */
static wide largest(int k) {
    return power_of_ten(MAX_DIGITS + k) - 1;
}

static void write_digits(wide value, int width, char *out) {
    for (int i = width - 1; i >= 0; i--, value /= 10)
        out[i] = (char)('0' + value % 10);
}

/* All numbers of at least `width` digits. */
static grammar_node longer_naturals(struct schema_context *c, int width, grammar_node tail) {
    grammar_node more = grammar_repeat(c->builder, digits(c, '0', '9'), width - 1, MAX_DIGITS - 1);
    return schema_sequence(c, (grammar_node[]){digits(c, '1', '9'), more, tail}, 3);
}

/* 0 <= a <= b: the numbers' digits without leading zeros (but one before the point), then the tail.
 */
static grammar_node natural_range(struct schema_context *c, wide a, wide b, int num_decimals,
                                  grammar_node tail) {
    grammar_node items[MAX_DIGITS];
    int count = 0;
    for (int width = num_decimals + 1; width <= MAX_DIGITS + num_decimals; width++) {
        wide first = width == num_decimals + 1 ? 0 : power_of_ten(width - 1);
        wide last = power_of_ten(width) - 1;
        bool is_whole = first >= a && last <= b && num_decimals == 0 && width > 1;
        if (is_whole && b >= largest(0)) { /* and so are all that are longer */
            items[count++] = longer_naturals(c, width, tail);
            break;
        }
        last = b < last ? b : last;
        first = a > first ? a : first;
        if (first > last)
            continue;
        struct digit_range range = {.width = width, .num_decimals = num_decimals, .tail = tail};
        write_digits(first, width, range.first);
        write_digits(last, width, range.last);
        items[count++] = digits_from(c, &range, 0, true, true);
    }
    return grammar_alternatives(c->builder, items, count);
}

static int no_number(struct schema_context *c, const struct schema_bounds *b, grammar_node *out) {
    schema_note_empty(c, b->path,
                      "no number of at most 20 digits lies between its minimum and "
                      "maximum");
    *out = schema_nothing(c);
    return 0;
}

static grammar_node nothing(struct schema_context *c) {
    return schema_sequence(c, NULL, 0);
}

static grammar_node negative(struct schema_context *c, grammar_node number) {
    return schema_sequence(c, (grammar_node[]){schema_text(c, "-"), number}, 2);
}

/* A whole bound: its digits may say more than its double. */
static wide whole_bound(double value, const cJSON *item) {
    const char *digits = json_integer_digits(item);
    if (fabs(value) > (double)largest(0))
        return value > 0 ? largest(0) : -largest(0);
    if (digits == NULL || value != item->valuedouble)
        return (wide)value;
    bool is_negative = digits[0] == '-';
    wide whole = 0;
    for (digits += is_negative; *digits != '\0'; digits++)
        whole = whole * 10 + (*digits - '0');
    return is_negative ? -whole : whole;
}

int schema_integer_range(struct schema_context *c, const struct schema_bounds *b,
                         grammar_node *out) {
    double low = ceil(b->low), high = floor(b->high), most = (double)largest(0);
    if ((b->has_low && low > most) || (b->has_high && high < -most))
        return no_number(c, b, out);
    wide first = b->has_low ? whole_bound(low, b->low_item) : -largest(0);
    wide last = b->has_high ? whole_bound(high, b->high_item) : largest(0);
    first += b->has_low && b->low_excluded && low == b->low;
    last -= b->has_high && b->high_excluded && high == b->high;
    if (first > last)
        return no_number(c, b, out);
    grammar_node items[2];
    int count = 0;
    if (last >= 0)
        items[count++] = natural_range(c, first > 0 ? first : 0, last, 0, nothing(c));
    if (first < 0)
        items[count++] = negative(c, natural_range(c, last < 0 ? -last : 1, -first, 0, nothing(c)));
    *out = grammar_alternatives(c->builder, items, count);
    return 0;
}

/* Returns the number of digits after the point of a bound; -1: more than are supported. */
static int count_decimals(double value) {
    for (int decimals = 0; decimals <= MAX_DECIMALS; decimals++) {
        double scaled = value * (double)power_of_ten(decimals);
        if (value == floor(value) || fabs(scaled - nearbyint(scaled)) <= 1e-9 * fabs(scaled))
            return decimals;
    }
    return -1;
}

static int count_digits(wide value) {
    int count = 1;
    for (; value >= 10; value /= 10)
        count++;
    return count;
}

/* Bounds of reals, 0 <= low <= high in units of 10^-k. */
struct real_bounds {
    wide low, high;
    bool low_excluded, high_excluded;
};

/* Texts with fewer than k digits after the point: a separate range for each number of digits. */
static int add_shorter(struct schema_context *c, wide first, wide last, int k,
                       grammar_node *items) {
    int count = 0;
    for (int decimals = 0; decimals < k; decimals++) {
        wide unit = power_of_ten(k - decimals);
        wide low = (first + unit - 1) / unit, high = last / unit;
        if (low <= high)
            items[count++] = natural_range(c, low, high, decimals, nothing(c));
    }
    return count;
}

/* The digits after those of `near` that differ from all `digit`, which is what the bound has, even
 * as a double: there are at most as many of that digit as a double can distinguish. */
static grammar_node not_all(struct schema_context *c, wide near, char digit, int max) {
    int room = EXACT_DIGITS - 1 - count_digits(near), count = room < max ? room : max;
    grammar_node equal = schema_text(c, (char[]){digit, '\0'});
    grammar_node other = digit == '0' ? digits(c, '1', '9') : digits(c, '0', '8');
    grammar_node rest = grammar_repeat(c->builder, digits(c, '0', '9'), 0, EXACT_DIGITS + 1);
    grammar_node items[] = {grammar_repeat(c->builder, equal, 0, count - 1), other, rest};
    grammar_node choices[] = {schema_sequence(c, items, 3),
                              grammar_repeat(c->builder, equal, 1, count)};
    return digit == '0' ? choices[0] : grammar_alternatives(c->builder, choices, 2);
}

/* Texts with more than k digits after the point: they begin with the digits of low to high - 1.
 * Near a bound of more than EXACT_DIGITS digits, and at an excluded one, a double might be the
 * bound, or lie beyond it. */
static int add_longer(struct schema_context *c, const struct real_bounds *b, int k,
                      grammar_node *items) {
    int count = 0, max = SCHEMA_MAX_DECIMALS - k;
    int low_digits = count_digits(b->low), high_digits = count_digits(b->high);
    grammar_node digit = digits(c, '0', '9'), point = schema_text(c, k == 0 ? "." : "");
    wide first = b->low + b->low_excluded, last = b->high - 1 - b->high_excluded;
    if (low_digits > EXACT_DIGITS)
        first += power_of_ten(low_digits - EXACT_DIGITS);
    if (high_digits > EXACT_DIGITS)
        last -= power_of_ten(high_digits - EXACT_DIGITS);
    grammar_node any[] = {point, grammar_repeat(c->builder, digit, 1, max)};
    if (first <= last)
        items[count++] = natural_range(c, first, last, k, schema_sequence(c, any, 2));
    bool is_low = b->low_excluded && low_digits < EXACT_DIGITS - 1;
    bool is_high = b->high_excluded && high_digits < EXACT_DIGITS - 1;
    grammar_node low[] = {point, is_low ? not_all(c, b->low, '0', max) : point};
    grammar_node high[] = {point, is_high ? not_all(c, b->high, '9', max) : point};
    if (is_low && b->low < b->high)
        items[count++] = natural_range(c, b->low, b->low, k, schema_sequence(c, low, 2));
    if (is_high && b->low < b->high)
        items[count++] = natural_range(c, b->high - 1, b->high - 1, k, schema_sequence(c, high, 2));
    return count;
}

static grammar_node real_range(struct schema_context *c, const struct real_bounds *b, int k) {
    grammar_node items[MAX_DECIMALS + 5];
    if (b->low_excluded && b->high_excluded && b->high - b->low == 1) { /* keep the two apart */
        const struct real_bounds finer = {b->low * 10, b->high * 10, true, true};
        return real_range(c, &finer, k + 1);
    }
    wide first = b->low + b->low_excluded, last = b->high - b->high_excluded;
    int count = add_shorter(c, first, last, k, items);
    if (first <= last)
        items[count++] = natural_range(c, first, last, k, nothing(c));
    count += add_longer(c, b, k, items + count);
    return count > 0 ? grammar_alternatives(c->builder, items, count) : schema_nothing(c);
}

/* A bound in units of 10^-k. */
static wide scaled_bound(double value, const cJSON *item, int k) {
    if (value == floor(value))
        return whole_bound(value, item) * power_of_ten(k);
    return (wide)nearbyint(value * (double)power_of_ten(k));
}

/* The range of the schema's bounds, in units of 10^-k. */
static int bounded_real(struct schema_context *c, const struct schema_bounds *b, int k,
                        grammar_node *out) {
    wide low = b->has_low ? scaled_bound(b->low, b->low_item, k) : -largest(k);
    wide high = b->has_high ? scaled_bound(b->high, b->high_item, k) : largest(k);
    bool low_excluded = b->has_low && b->low_excluded,
         high_excluded = b->has_high && b->high_excluded;
    if (low > high || (low == high && (low_excluded || high_excluded)))
        return no_number(c, b, out);
    grammar_node items[2];
    int count = 0;
    if (high > 0 || (high == 0 && !high_excluded)) {
        bool from_zero = low < 0;
        const struct real_bounds above = {from_zero ? 0 : low, high, !from_zero && low_excluded,
                                          high_excluded};
        items[count++] = real_range(c, &above, k);
    }
    if (low < 0) {
        bool to_zero = high >= 0;
        const struct real_bounds below = {to_zero ? 0 : -high, -low, to_zero || high_excluded,
                                          low_excluded};
        items[count++] = negative(c, real_range(c, &below, k));
    }
    *out = grammar_alternatives(c->builder, items, count);
    return 0;
}

/* Returns whether a double keeps the bound's digits up to the k-th after the point. */
static bool is_kept(double value, int k) {
    return value == floor(value) ||
           fabs(value) * (double)power_of_ten(k) < (double)power_of_ten(EXACT_DIGITS);
}

/* Bounds beyond the digits that numbers have bound nothing. */
int schema_real_range(struct schema_context *c, const struct schema_bounds *b, bool plain,
                      grammar_node *out) {
    if (!b->has_low && !b->has_high && !plain) {
        *out = schema_any_number(c);
        return 0;
    }
    struct schema_bounds within = *b;
    double most = (double)largest(0);
    within.has_low = b->has_low && fabs(b->low) <= most;
    within.has_high = b->has_high && fabs(b->high) <= most;
    int low_decimals = within.has_low ? count_decimals(b->low) : 0;
    int high_decimals = within.has_high ? count_decimals(b->high) : 0;
    int k = low_decimals > high_decimals ? low_decimals : high_decimals;
    if (low_decimals < 0 || high_decimals < 0)
        return schema_decline(c, b->path, "%s is not supported with this value",
                              low_decimals < 0 ? "minimum" : "maximum");
    if ((within.has_low && !is_kept(b->low, k)) || (within.has_high && !is_kept(b->high, k)))
        return schema_decline(c, b->path, "minimum and maximum have more than %d digits together",
                              EXACT_DIGITS);
    if ((b->has_low && b->low > most) || (b->has_high && b->high < -most))
        return no_number(c, b, out);
    return bounded_real(c, &within, k, out);
}
