#include "server/output/python_number.h"

#include "config/json/json_unescape.h"
#include "server/output/json_number.h"

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/* Appends digits up to what is none; -1 where an underscore stands at an end of them or beside
 * another. Returns how many. */
static int take_digits(struct text *word, struct byte_buffer *out) {
    int count = 0;
    bool may_have_underscore = false;
    for (; word->length > 0; word->data++, word->length--) {
        char byte = word->data[0];
        if (byte == '_' && may_have_underscore && word->length > 1 && is_digit(word->data[1])) {
            may_have_underscore = false;
            continue;
        }
        if (!is_digit(byte))
            break;
        byte_buffer_append(out, &byte, 1);
        may_have_underscore = true;
        count++;
    }
    return word->length > 0 && word->data[0] == '_' ? -1 : count;
}

static bool take(struct text *word, char lower, char upper) {
    bool is_there = word->length > 0 && (word->data[0] == lower || word->data[0] == upper);
    if (is_there) {
        word->data++;
        word->length--;
    }
    return is_there;
}

static int base_of(char letter) {
    switch (letter) {
    case 'x':
    case 'X':
        return 16;
    case 'o':
    case 'O':
        return 8;
    case 'b':
    case 'B':
        return 2;
    default:
        return 0;
    }
}

/* The digits behind 0x, 0o or 0b. */
static bool append_based(struct text digits, int base, struct byte_buffer *out) {
    uint64_t value = 0;
    bool ends_with_digit = false;
    for (size_t i = 0; i < digits.length; i++) {
        bool is_underscore = digits.data[i] == '_' && (ends_with_digit || i == 0);
        int digit = json_unescape_digit((unsigned char)digits.data[i]);
        ends_with_digit = !is_underscore;
        if (is_underscore)
            continue;
        if (digit < 0 || digit >= base || value > (UINT64_MAX - (uint64_t)digit) / (uint64_t)base)
            return false;
        value = value * (uint64_t)base + (uint64_t)digit;
    }
    if (ends_with_digit)
        byte_buffer_printf(out, "%llu", (unsigned long long)value);
    return ends_with_digit;
}

/* JSON has no zeros in front, and Python none in front of an integer that is not 0. */
static bool append_integer(const struct byte_buffer *digits, bool is_float,
                           struct byte_buffer *out) {
    size_t zeros = 0;
    while (zeros < digits->length && digits->data[zeros] == '0')
        zeros++;
    bool is_zero = zeros == digits->length;
    if (zeros > 0 && !is_zero && !is_float)
        return false;
    if (is_zero)
        byte_buffer_append(out, "0", 1);
    else
        byte_buffer_append(out, digits->data + zeros, digits->length - zeros);
    return true;
}

static bool append_decimal(struct text word, struct byte_buffer *digits, struct byte_buffer *out) {
    int num_before = take_digits(&word, digits), num_behind = 0, num_exponent = 0;
    bool has_point = take(&word, '.', '.');
    bool is_float = has_point || (word.length > 0 && (word.data[0] == 'e' || word.data[0] == 'E'));
    if (num_before < 0 || !append_integer(digits, is_float, out))
        return false;
    if (has_point) {
        byte_buffer_append(out, ".", 1);
        num_behind = take_digits(&word, out);
        if (num_behind == 0)
            byte_buffer_append(out, "0", 1);
    }
    if (take(&word, 'e', 'E')) {
        bool is_negative = word.length > 0 && word.data[0] == '-';
        byte_buffer_append(out, is_negative ? "e-" : "e", is_negative ? 2 : 1);
        take(&word, '+', '-');
        num_exponent = take_digits(&word, out);
        if (num_exponent <= 0)
            return false;
    }
    return word.length == 0 && num_behind >= 0 && num_before + num_behind > 0;
}

bool python_number_append(struct text word, struct byte_buffer *out) {
    struct byte_buffer number = {0}, digits = {0};
    if (word.length > 0 && word.data[0] == '-')
        byte_buffer_append(&number, "-", 1);
    take(&word, '+', '-');
    int base = word.length > 1 && word.data[0] == '0' ? base_of(word.data[1]) : 0;
    bool is_number =
        base > 0 ? append_based((struct text){word.data + 2, word.length - 2}, base, &number)
                 : append_decimal(word, &digits, &number);
    struct json_number written = {0};
    char text[JSON_MAX_NUMBER_CHARS + 1];
    for (size_t i = 0; i < number.length && is_number; i++)
        json_number_push(&written, number.data[i]);
    if (is_number)
        byte_buffer_append(out, text, json_number_end(&written, text));
    out->failed = out->failed || number.failed || digits.failed;
    byte_buffer_finish(&number);
    byte_buffer_finish(&digits);
    return is_number;
}
