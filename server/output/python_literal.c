#include "server/output/python_literal.h"

#include "config/json/json_unescape.h"
#include "config/base/utf8.h"
#include "server/output/json_stream.h"
#include "server/output/text_marker.h"

/* --- Numbers --- */

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/* Appends digits up to the first non-digit and returns their number; -1 if an underscore is at an
 * end of them or next to another. */
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

/* The digits after 0x, 0o or 0b. */
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

#define MAX_CODE 0x10FFFF

void python_literal_begin(struct python_literal *literal) {
    byte_buffer_clear(&literal->out);
    literal->state = PYTHON_LITERAL_VALUE;
    literal->depth = 0;
    literal->is_key = false;
    literal->num_quotes = 0;
}

void python_literal_finish(struct python_literal *literal) {
    byte_buffer_finish(&literal->out);
}

static enum python_literal_step go(struct python_literal *literal,
                                   enum python_literal_state state) {
    literal->state = state;
    return PYTHON_LITERAL_MORE;
}

static void put(struct python_literal *literal, const char *text) {
    byte_buffer_append(&literal->out, text, strlen(text));
}

static void put_text(struct python_literal *literal, char byte) {
    char text[JSON_STREAM_MAX_BYTES];
    byte_buffer_append(&literal->out, text, json_stream_escape(byte, text));
}

/* Half a surrogate pair stays an escape, whose other half may follow. */
static void put_character(struct python_literal *literal, uint32_t code) {
    char text[UTF8_MAX_BYTES];
    if (utf16_is_high(code) || utf16_is_low(code))
        byte_buffer_printf(&literal->out, "\\u%04x", (unsigned)code);
    else if (code < 0x80)
        put_text(literal, (char)code);
    else
        byte_buffer_append(&literal->out, text, utf8_encode(code, text));
}

static bool is_word_byte(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
           (byte >= 'A' && byte <= 'Z') || byte == '_' || byte == '.';
}

static enum python_literal_step end_value(struct python_literal *literal) {
    if (literal->is_key) {
        literal->is_key = false;
        return go(literal, PYTHON_LITERAL_COLON);
    }
    return literal->depth == 0 ? PYTHON_LITERAL_DONE : go(literal, PYTHON_LITERAL_AFTER_VALUE);
}

static enum python_literal_step open_container(struct python_literal *literal, char byte) {
    bool is_dict = byte == '{';
    if (literal->depth == PYTHON_LITERAL_MAX_DEPTH)
        return PYTHON_LITERAL_BAD;
    literal->is_dict[literal->depth] = is_dict;
    literal->has_item[literal->depth++] = false;
    byte_buffer_append(&literal->out, &byte, 1);
    return go(literal, is_dict ? PYTHON_LITERAL_KEY : PYTHON_LITERAL_ITEM);
}

static enum python_literal_step close_container(struct python_literal *literal, char byte) {
    literal->depth--;
    byte_buffer_append(&literal->out, &byte, 1);
    return end_value(literal);
}

static enum python_literal_step begin_string(struct python_literal *literal, char quote,
                                             bool is_raw) {
    literal->quote = quote;
    literal->is_raw = is_raw;
    literal->is_triple = false;
    return go(literal, PYTHON_LITERAL_QUOTE);
}

static enum python_literal_step open_string(struct python_literal *literal, char quote,
                                            bool is_raw) {
    put(literal, "\"");
    return begin_string(literal, quote, is_raw);
}

static enum python_literal_step open_value(struct python_literal *literal, char byte) {
    if (byte == '\'' || byte == '"')
        return open_string(literal, byte, false);
    if ((byte == '[' || byte == '{') && !literal->is_key)
        return open_container(literal, byte);
    if (!is_word_byte(byte) && byte != '-' && byte != '+')
        return PYTHON_LITERAL_BAD;
    literal->word[0] = byte;
    literal->word_length = 1;
    return go(literal, PYTHON_LITERAL_WORD);
}

/* A comma may follow the last one. */
static enum python_literal_step open_item(struct python_literal *literal, char byte) {
    int level = literal->depth - 1;
    if (byte == (literal->is_dict[level] ? '}' : ']'))
        return close_container(literal, byte);
    if (literal->has_item[level] && byte != ',')
        put(literal, ", ");
    literal->has_item[level] = true;
    literal->is_key = literal->is_dict[level];
    return open_value(literal, byte);
}

static enum python_literal_step after_value(struct python_literal *literal, char byte) {
    bool is_dict = literal->is_dict[literal->depth - 1];
    if (byte == ',')
        return go(literal, is_dict ? PYTHON_LITERAL_KEY : PYTHON_LITERAL_ITEM);
    return byte == (is_dict ? '}' : ']') ? close_container(literal, byte) : PYTHON_LITERAL_BAD;
}

static enum python_literal_step push_structure(struct python_literal *literal, char byte) {
    if (text_is_space(byte))
        return PYTHON_LITERAL_MORE;
    switch (literal->state) {
    case PYTHON_LITERAL_VALUE:
        return open_value(literal, byte);
    case PYTHON_LITERAL_ITEM:
    case PYTHON_LITERAL_KEY:
        return open_item(literal, byte);
    case PYTHON_LITERAL_COLON:
        if (byte != ':')
            return PYTHON_LITERAL_BAD;
        put(literal, ": ");
        return go(literal, PYTHON_LITERAL_VALUE);
    default:
        return after_value(literal, byte);
    }
}

/* Ends a value in front of the byte. */
static enum python_literal_step end_before(struct python_literal *literal, char byte) {
    if (end_value(literal) == PYTHON_LITERAL_DONE)
        return PYTHON_LITERAL_DONE_BEFORE;
    return push_structure(literal, byte);
}

static struct text word_of(const struct python_literal *literal) {
    return (struct text){literal->word, literal->word_length};
}

static const char *json_of_word(struct text word) {
    if (text_is(word, "True") || text_is(word, "true"))
        return "true";
    if (text_is(word, "False") || text_is(word, "false"))
        return "false";
    return text_is(word, "None") || text_is(word, "null") ? "null" : NULL;
}

static bool end_word(struct python_literal *literal) {
    const char *quote = literal->is_key ? "\"" : "";
    const char *json = json_of_word(word_of(literal));
    size_t before = literal->out.length;
    put(literal, quote);
    if (json != NULL)
        put(literal, json);
    else if (!python_number_append(word_of(literal), &literal->out)) {
        literal->out.length = before;
        return false;
    }
    put(literal, quote);
    return true;
}

/* In front of a string. */
static bool is_prefix(struct text word, bool *out_is_raw) {
    *out_is_raw = text_is(word, "r") || text_is(word, "R");
    return *out_is_raw || text_is(word, "u") || text_is(word, "U");
}

static enum python_literal_step push_word(struct python_literal *literal, char byte) {
    char before = literal->word[literal->word_length - 1];
    bool is_sign = (byte == '-' || byte == '+') && (before == 'e' || before == 'E');
    bool is_raw;
    if ((byte == '\'' || byte == '"') && is_prefix(word_of(literal), &is_raw))
        return open_string(literal, byte, is_raw);
    if (is_word_byte(byte) || is_sign) {
        if (literal->word_length == sizeof(literal->word))
            return PYTHON_LITERAL_BAD;
        literal->word[literal->word_length++] = byte;
        return PYTHON_LITERAL_MORE;
    }
    if (!text_is_space(byte) && (byte == '\0' || strchr(",)]}:", byte) == NULL))
        return PYTHON_LITERAL_BAD;
    return end_word(literal) ? end_before(literal, byte) : PYTHON_LITERAL_BAD;
}

/* Quotes in a string of three that do not end it are its text. */
static void put_quotes(struct python_literal *literal) {
    for (; literal->num_quotes > 0; literal->num_quotes--)
        put_text(literal, literal->quote);
}

static enum python_literal_step push_string(struct python_literal *literal, char byte) {
    literal->state = PYTHON_LITERAL_STRING;
    if (byte == literal->quote) {
        if (literal->is_triple && ++literal->num_quotes < 3)
            return PYTHON_LITERAL_MORE;
        literal->num_quotes = 0;
        return go(literal, PYTHON_LITERAL_AFTER_STRING);
    }
    put_quotes(literal);
    if (byte == '\\')
        return go(literal, PYTHON_LITERAL_ESCAPE);
    put_text(literal, byte);
    return PYTHON_LITERAL_MORE;
}

static enum python_literal_step begin_digits(struct python_literal *literal, int count,
                                             bool is_octal) {
    literal->code = 0;
    literal->num_digits = count;
    literal->is_octal = is_octal;
    return go(literal, PYTHON_LITERAL_DIGITS);
}

/* Returns the character for a letter after a backslash; -1: not such a letter. */
static int letter(char byte) {
    static const char letters[] = "'av", values[] = "'\a\v";
    const char *found = byte != '\0' ? strchr(letters, byte) : NULL;
    return found != NULL ? values[found - letters] : json_unescape_letter((unsigned char)byte);
}

static enum python_literal_step push_digit(struct python_literal *literal, char byte);

/* A backslash in front of anything else is a backslash. */
static enum python_literal_step push_escape(struct python_literal *literal, char byte) {
    int value = literal->is_raw ? -1 : letter(byte);
    literal->state = PYTHON_LITERAL_STRING;
    if (value >= 0) {
        put_character(literal, (uint32_t)value);
        return PYTHON_LITERAL_MORE;
    }
    if (!literal->is_raw) {
        if (byte == '\n')
            return PYTHON_LITERAL_MORE;
        if (byte == 'x' || byte == 'u' || byte == 'U')
            return begin_digits(literal, byte == 'x' ? 2 : byte == 'u' ? 4 : 8, false);
        if (byte >= '0' && byte <= '7') {
            begin_digits(literal, 3, true);
            return push_digit(literal, byte);
        }
    }
    put_text(literal, '\\');
    put_text(literal, byte);
    return PYTHON_LITERAL_MORE;
}

static enum python_literal_step push_digit(struct python_literal *literal, char byte) {
    int digit = json_unescape_digit((unsigned char)byte);
    bool fits = digit >= 0 && (!literal->is_octal || digit < 8);
    if (!fits && !literal->is_octal)
        return PYTHON_LITERAL_BAD;
    if (fits) {
        literal->code = literal->code * (literal->is_octal ? 8u : 16u) + (uint32_t)digit;
        if (literal->code > MAX_CODE)
            return PYTHON_LITERAL_BAD;
        if (--literal->num_digits > 0)
            return PYTHON_LITERAL_MORE;
    }
    put_character(literal, literal->code);
    literal->state = PYTHON_LITERAL_STRING;
    return fits ? PYTHON_LITERAL_MORE : push_string(literal, byte);
}

/* Strings that stand side by side are one. */
static enum python_literal_step after_string(struct python_literal *literal, char byte) {
    literal->state = PYTHON_LITERAL_AFTER_STRING;
    if (text_is_space(byte))
        return PYTHON_LITERAL_MORE;
    if (byte == '\'' || byte == '"')
        return begin_string(literal, byte, false);
    put(literal, "\"");
    return end_before(literal, byte);
}

enum python_literal_step python_literal_push(struct python_literal *literal, char byte) {
    switch (literal->state) {
    case PYTHON_LITERAL_WORD:
        return push_word(literal, byte);
    case PYTHON_LITERAL_QUOTE:
        return byte == literal->quote ? go(literal, PYTHON_LITERAL_QUOTES)
                                      : push_string(literal, byte);
    case PYTHON_LITERAL_QUOTES:
        literal->is_triple = byte == literal->quote;
        return literal->is_triple ? go(literal, PYTHON_LITERAL_STRING)
                                  : after_string(literal, byte);
    case PYTHON_LITERAL_STRING:
        return push_string(literal, byte);
    case PYTHON_LITERAL_ESCAPE:
        return push_escape(literal, byte);
    case PYTHON_LITERAL_DIGITS:
        return push_digit(literal, byte);
    case PYTHON_LITERAL_AFTER_STRING:
        return after_string(literal, byte);
    default:
        return push_structure(literal, byte);
    }
}
