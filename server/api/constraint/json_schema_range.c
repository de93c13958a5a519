/* Ranges of numbers, digit by digit. Numbers are written with up to 16 digits before the point.
 *
 * A range of whole numbers is cut by their number of digits, and each piece by its first digit:
 * 123..456 is 1(23..99) | [23](00..99) | 4(00..56). A range of reals whose bounds have k digits
 * behind the point is that of the numbers times 10^k, with the point put in; what continues behind
 * those k digits lies between one number and the next. */
#include "server/api/constraint/json_schema_private.h"
#include "server/json/json_integer.h"

#include <math.h>

#define MAX_DIGITS 16
#define MAX_DECIMALS 6
#define LARGEST INT64_C(9999999999999999) /* of MAX_DIGITS digits */

/* Numbers a..b, both of `width` digits with leading zeros, the last num_decimals of them behind a
 * point, then the tail. */
struct digit_range {
    char first[MAX_DIGITS], last[MAX_DIGITS];
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

static int64_t power_of_ten(int exponent) {
    int64_t power = 1;
    for (; exponent > 0; exponent--)
        power *= 10;
    return power;
}

static void write_digits(int64_t value, int width, char *out) {
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
static grammar_node natural_range(struct schema_context *c, int64_t a, int64_t b, int num_decimals,
                                  grammar_node tail) {
    grammar_node items[MAX_DIGITS + MAX_DECIMALS + 1];
    int count = 0;
    for (int width = num_decimals + 1; width <= MAX_DIGITS; width++) {
        int64_t first = width == num_decimals + 1 ? 0 : power_of_ten(width - 1);
        int64_t last = power_of_ten(width) - 1;
        bool is_whole = first >= a && last <= b && num_decimals == 0 && width > 1;
        if (is_whole && b >= LARGEST) { /* and so are all that are longer */
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
                      "no number of at most 16 digits lies between its minimum and "
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

static int64_t clamp(double value) {
    return value > (double)LARGEST ? LARGEST : value < -(double)LARGEST ? -LARGEST : (int64_t)value;
}

/* Returns whether the bound's digits say more than its double. */
static bool is_exact(const cJSON *bound, int64_t *out) {
    return json_integer_digits(bound) != NULL && json_integer_read(bound, out) && *out <= LARGEST &&
           *out >= -LARGEST;
}

int schema_integer_range(struct schema_context *c, const struct schema_bounds *b,
                         grammar_node *out) {
    double low = ceil(b->low), high = floor(b->high);
    if (b->has_low && b->low_excluded && low == b->low)
        low += 1;
    if (b->has_high && b->high_excluded && high == b->high)
        high -= 1;
    if ((b->has_low && low > (double)LARGEST) || (b->has_high && high < -(double)LARGEST) ||
        (b->has_low && b->has_high && low > high))
        return no_number(c, b, out);
    int64_t first = b->has_low ? clamp(low) : -LARGEST, last = b->has_high ? clamp(high) : LARGEST;
    int64_t exact;
    if (is_exact(b->low_item, &exact))
        first = exact + b->low_excluded;
    if (is_exact(b->high_item, &exact))
        last = exact - b->high_excluded;
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

/* Digits behind the point of a bound; -1: more than are supported. */
static int count_decimals(double value) {
    for (int decimals = 0; decimals <= MAX_DECIMALS; decimals++) {
        double scaled = value * (double)power_of_ten(decimals);
        if (fabs(scaled - nearbyint(scaled)) <= 1e-9 * fabs(scaled))
            return decimals;
    }
    return -1;
}

static int count_digits(int64_t value) {
    int count = 1;
    for (; value >= 10; value /= 10)
        count++;
    return count;
}

/* Bounds of reals, 0 <= low <= high in units of 10^-k. */
struct real_bounds {
    int64_t low, high;
    bool low_excluded, high_excluded, is_high_given;
};

/* Texts with fewer than k digits behind the point: for each number of them, a range of its own. */
static int add_shorter(struct schema_context *c, int64_t first, int64_t last, int k,
                       grammar_node *items) {
    int count = 0;
    for (int decimals = 0; decimals < k; decimals++) {
        int64_t unit = power_of_ten(k - decimals);
        int64_t low = (first + unit - 1) / unit, high = last / unit;
        if (low <= high)
            items[count++] = natural_range(c, low, high, decimals, nothing(c));
    }
    return count;
}

/* Texts with up to k digits behind the point, and those with more, which begin with the digits of
 * low to high - 1. A number near an excluded bound has at most 15 digits, so that no double makes
 * it the bound (IEEE 754: 15 decimal digits are kept). */
static grammar_node real_range(struct schema_context *c, const struct real_bounds *b, int k) {
    grammar_node items[MAX_DECIMALS + 3];
    grammar_node digit = digits(c, '0', '9'), point = schema_text(c, k == 0 ? "." : "");
    int max = MAX_DIGITS - k, kept = 15 - count_digits(b->high);
    int64_t first = b->low + b->low_excluded, last = b->high - b->high_excluded;
    int count = add_shorter(c, first, last, k, items);
    if (b->is_high_given && b->high_excluded)
        max = kept > 1 ? kept : 1;
    if (first <= last)
        items[count++] = natural_range(c, first, last, k, nothing(c));
    if (first <= b->high - 1) {
        grammar_node more[] = {point, grammar_repeat(c->builder, digit, 1, max)};
        items[count++] = natural_range(c, first, b->high - 1, k, schema_sequence(c, more, 2));
    }
    if (b->low_excluded && b->low <= b->high - 1) { /* not zero behind it */
        int room = 14 - count_digits(b->low), zeros = room < max / 2 ? room : max / 2;
        grammar_node more[] = {
            point, grammar_repeat(c->builder, schema_text(c, "0"), 0, zeros > 0 ? zeros : 0),
            digits(c, '1', '9'), grammar_repeat(c->builder, digit, 0, max > 1 ? max / 2 - 1 : 0)};
        items[count++] = natural_range(c, b->low, b->low, k, schema_sequence(c, more, 4));
    }
    return count > 0 ? grammar_alternatives(c->builder, items, count) : schema_nothing(c);
}

/* The range of the schema's bounds, in units of 10^-k. */
static int bounded_real(struct schema_context *c, const struct schema_bounds *b, int k,
                        grammar_node *out) {
    double scale = (double)power_of_ten(k);
    int64_t limit = LARGEST / 10; /* room for b - 1, and whole digits */
    bool is_low = b->has_low && b->low * scale >= -(double)limit;
    bool is_high = b->has_high && b->high * scale <= (double)limit;
    int64_t low = is_low ? (int64_t)nearbyint(b->low * scale) : -limit;
    int64_t high = is_high ? (int64_t)nearbyint(b->high * scale) : limit;
    if (low > high || (low == high && (b->low_excluded || b->high_excluded)))
        return no_number(c, b, out);
    grammar_node items[2];
    int count = 0;
    if (high > 0 || (high == 0 && !b->high_excluded)) {
        bool from_zero = low < 0;
        const struct real_bounds above = {from_zero ? 0 : low, high, !from_zero && b->low_excluded,
                                          b->high_excluded, is_high};
        items[count++] = real_range(c, &above, k);
    }
    if (low < 0) {
        bool to_zero = high >= 0;
        const struct real_bounds below = {to_zero ? 0 : -high, -low, to_zero || b->high_excluded,
                                          b->low_excluded, is_low};
        items[count++] = negative(c, real_range(c, &below, k));
    }
    *out = grammar_alternatives(c->builder, items, count);
    return 0;
}

/* Bounds beyond the digits that numbers have bound nothing. */
int schema_real_range(struct schema_context *c, const struct schema_bounds *b, bool plain,
                      grammar_node *out) {
    if (!b->has_low && !b->has_high && !plain) {
        *out = schema_any_number(c);
        return 0;
    }
    double largest = (double)(LARGEST / 10);
    bool is_low = b->has_low && fabs(b->low) <= largest;
    bool is_high = b->has_high && fabs(b->high) <= largest;
    int low_decimals = is_low ? count_decimals(b->low) : 0;
    int high_decimals = is_high ? count_decimals(b->high) : 0;
    int k = low_decimals > high_decimals ? low_decimals : high_decimals;
    if (low_decimals < 0 || high_decimals < 0)
        return schema_decline(c, b->path, "%s is not supported with this value",
                              low_decimals < 0 ? "minimum" : "maximum");
    double limit = largest / (double)power_of_ten(k);
    if ((is_low && fabs(b->low) > limit) || (is_high && fabs(b->high) > limit))
        return schema_decline(c, b->path, "minimum and maximum have more than %d digits together",
                              MAX_DIGITS);
    if ((b->has_low && b->low > largest) || (b->has_high && b->high < -largest))
        return no_number(c, b, out);
    return bounded_real(c, b, k, out);
}
