#include "config/json/json_integer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXACT_DIGITS 15 /* of which a double keeps every number, whatever its exponent */

struct literal {
    const char *data;
    size_t length;
};

/* Behind the string that begins at text[at]. */
static size_t skip_string(const char *text, size_t at) {
    for (at++; text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at + 1;
}

static size_t count_digits(const char *text, size_t length) {
    size_t count = 0;
    while (count < length && text[count] >= '0' && text[count] <= '9')
        count++;
    return count;
}

/* The next number from *inout_at on; false: there is none. */
static bool next_number(const char *text, size_t length, size_t *inout_at, struct literal *out) {
    size_t at = *inout_at;
    while (at < length && text[at] != '-' && (text[at] < '0' || text[at] > '9'))
        at = text[at] == '"' ? skip_string(text, at) : at + 1;
    out->data = text + at;
    while (at < length && text[at] != '\0' && strchr("+-.0123456789Ee", text[at]) != NULL)
        at++;
    out->length = (size_t)(text + at - out->data);
    *inout_at = at;
    return out->length > 0;
}

/* Digits from the first to the last that is not 0, exponent apart. */
static size_t count_significant(struct literal number) {
    size_t count = 0, last = 0;
    for (size_t i = 0; i < number.length && strchr("eE", number.data[i]) == NULL; i++) {
        bool is_digit = number.data[i] >= '0' && number.data[i] <= '9';
        count += is_digit && (count > 0 || number.data[i] != '0');
        if (is_digit && number.data[i] != '0')
            last = count;
    }
    return last;
}

static bool is_rounded(struct literal number) {
    size_t sign = number.data[0] == '-', num_digits = number.length - sign;
    const char *digits = number.data + sign;
    if (count_digits(digits, num_digits) < num_digits) {
        size_t significant = count_significant(number);
        return significant > MAX_EXACT_DIGITS || (significant > 0 && strtod(digits, NULL) == 0);
    }
    return num_digits > MAX_EXACT_DIGITS + 1 ||
           (num_digits > MAX_EXACT_DIGITS && strtod(digits, NULL) > (double)JSON_MAX_INT);
}

/* 1.0 and 1e5, which are no integers to all that tell the two apart. */
static bool is_whole_float(struct literal number) {
    size_t sign = number.data[0] == '-';
    if (count_digits(number.data + sign, number.length - sign) == number.length - sign)
        return false;
    double value = strtod(number.data, NULL);
    return value == floor(value);
}

static bool is_to_be_kept(struct literal number) {
    return is_rounded(number) || is_whole_float(number);
}

static char *copy(struct literal number) {
    char *text = cJSON_malloc(number.length + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, number.data, number.length);
    text[number.length] = '\0';
    return text;
}

struct walk {
    const char *text;
    size_t length, at;
};

/* The numbers of the tree stand in the order of the text. */
static int keep(struct walk *walk, cJSON *item) {
    struct literal number;
    if (cJSON_IsNumber(item) && next_number(walk->text, walk->length, &walk->at, &number) &&
        is_to_be_kept(number)) {
        item->valuestring = copy(number);
        return item->valuestring != NULL ? 0 : -1;
    }
    cJSON *child;
    cJSON_ArrayForEach(child, item) {
        if (keep(walk, child) != 0)
            return -1;
    }
    return 0;
}

int json_integer_keep(cJSON *tree, const char *text, size_t length) {
    struct literal number;
    size_t at = 0;
    while (next_number(text, length, &at, &number)) {
        if (is_to_be_kept(number))
            return keep(&(struct walk){.text = text, .length = length}, tree);
    }
    return 0;
}

const char *json_integer_literal(const cJSON *item) {
    const char *text = cJSON_IsNumber(item) ? item->valuestring : NULL;
    return text != NULL && is_rounded((struct literal){text, strlen(text)}) ? text : NULL;
}

static bool is_float_literal(const char *text) {
    return text[strcspn(text, ".eE")] != '\0';
}

bool json_integer_is_written(const cJSON *item) {
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble))
        return false;
    if (item->valuestring == NULL)
        return fabs(item->valuedouble) <= (double)JSON_MAX_INT;
    return !is_float_literal(item->valuestring);
}

const char *json_integer_digits(const cJSON *item) {
    const char *literal = json_integer_literal(item);
    return literal != NULL && !is_float_literal(literal) ? literal : NULL;
}

void json_integer_print(const cJSON *item, char *out, size_t capacity) {
    const char *literal = json_integer_literal(item);
    double value = item->valuedouble;
    if (literal != NULL) {
        snprintf(out, capacity, "%s", literal);
        return;
    }
    if (value == floor(value) && fabs(value) <= (double)JSON_MAX_INT) {
        snprintf(out, capacity, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, capacity, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            return;
    }
}

bool json_integer_read(const cJSON *item, int64_t *out) {
    const char *digits = json_integer_digits(item);
    if (!cJSON_IsNumber(item))
        return false;
    if (digits == NULL) {
        double value = item->valuedouble;
        if (value != floor(value) || value < -0x1p63 || value >= 0x1p63)
            return false;
        *out = (int64_t)value;
        return true;
    }
    errno = 0;
    *out = strtoll(digits, NULL, 10);
    return errno == 0;
}
