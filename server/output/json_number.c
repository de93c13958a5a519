#include "server/output/json_number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXPONENT 999999 /* larger ones mean the same */
#define MAX_DIGITS 17       /* that tell doubles apart */

void json_number_push(struct json_number *number, char byte) {
    bool is_digit = byte >= '0' && byte <= '9';
    if (byte == 'e' || byte == 'E')
        number->has_exponent = true;
    else if (byte == '.')
        number->has_point = true;
    else if (number->has_exponent && !is_digit)
        number->is_negative = byte == '-';
    else if (number->has_exponent && number->exponent < MAX_EXPONENT / 10)
        number->exponent = number->exponent * 10 + (byte - '0');
    else if (!number->has_exponent && !number->has_point && number->length >= JSON_MAX_NUMBER_CHARS)
        number->num_dropped++;
    if (number->length < JSON_MAX_NUMBER_CHARS)
        number->text[number->length] = byte;
    number->length++;
}

static double nearest(const struct json_number *number) {
    char text[JSON_MAX_NUMBER_CHARS + 32];
    size_t length = strcspn(number->text, "eE");
    long exponent = number->is_negative ? -number->exponent : number->exponent;
    snprintf(text, sizeof(text), "%.*se%ld", (int)length, number->text,
             exponent + number->num_dropped);
    double value = strtod(text, NULL);
    return isfinite(value) ? value : copysign(DBL_MAX, value);
}

static size_t print(double value, char *out) {
    int length = 0;
    for (int digits = 1; digits <= MAX_DIGITS; digits++) {
        length = snprintf(out, JSON_MAX_NUMBER_CHARS + 1, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return (size_t)length;
}

size_t json_number_end(struct json_number *number, char out[static JSON_MAX_NUMBER_CHARS + 1]) {
    size_t length = number->length;
    if (length <= JSON_MAX_NUMBER_CHARS && isfinite(strtod(number->text, NULL)))
        memcpy(out, number->text, length);
    else
        length = print(nearest(number), out);
    *number = (struct json_number){0};
    return length;
}
