#include "config/json/json_integer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXACT_DIGITS 15 /* a double keeps every such number, whatever its exponent */

struct literal {
    const char *data;
    size_t length;
};

static size_t count_digits(const char *text, size_t length) {
    size_t count = 0;
    while (count < length && text[count] >= '0' && text[count] <= '9')
        count++;
    return count;
}

/* Counts the digits from the first to the last that is not 0, without the exponent. */
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

static bool is_float_literal(const char *text) {
    return text[strcspn(text, ".eE")] != '\0';
}

bool json_integer_needs_text(const char *text, double value) {
    return (is_float_literal(text) && value == floor(value)) ||
           is_rounded((struct literal){text, strlen(text)});
}

const char *json_integer_literal(const cJSON *item) {
    const char *text = cJSON_IsNumber(item) ? item->valuestring : NULL;
    return text != NULL && is_rounded((struct literal){text, strlen(text)}) ? text : NULL;
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
