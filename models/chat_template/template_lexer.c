/* Written after the rules of Jinja 3.1 (jinja2/lexer.py): which white space a tag removes.
 *
 *   text {%- ...   all white space before goes        ... -%} text   and all behind
 *   text {%+ ...   none                               ... +%}        none
 *   text {% ...    what is before it in its line,     ... %}         a newline right behind
 *                  if that is white space only
 *
 * {# #} goes like {% %}; of {{ }} only the sign - does anything. */
#include "models/chat_template/template_cursor.h"

#include "models/chat_template/template_characters.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int template_lexer_fail(struct template_lexer *lexer, int line, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return error_set(lexer->err, ERROR_SYNTAX, "line %d: %s", line, text);
}

int template_lexer_fail_memory(struct template_lexer *lexer) {
    if (template_arena_is_full(lexer->arena))
        return error_set(lexer->err, ERROR_SYNTAX, "the template needs more than %zu bytes",
                         template_arena_max_bytes(lexer->arena));
    return error_set(lexer->err, ERROR_MEMORY, "no memory for a chat template");
}

/* A newline at the end of all is dropped, once. */
int template_lexer_init(struct template_lexer *lexer, struct template_arena *arena,
                        struct text source, struct error *err) {
    *lexer = (struct template_lexer){.arena = arena, .err = err, .line = 1, .line_starts = true};
    char *data = template_arena_alloc_text(arena, source.length);
    size_t length = 0;
    if (data == NULL)
        return template_lexer_fail_memory(lexer);
    for (size_t i = 0; i < source.length; i++) {
        if (source.data[i] == '\r' && i + 1 < source.length && source.data[i + 1] == '\n')
            continue;
        data[length++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    if (length > 0 && data[length - 1] == '\n')
        length--;
    lexer->source = (struct text){data, length};
    return 0;
}

/* --- Text between tags --- */

static char byte_at(const struct template_lexer *lexer, size_t at) {
    return at < lexer->source.length ? lexer->source.data[at] : '\0';
}

static bool starts_with(const struct template_lexer *lexer, size_t at, const char *text) {
    size_t length = strlen(text);
    return at <= lexer->source.length && lexer->source.length - at >= length &&
           memcmp(lexer->source.data + at, text, length) == 0;
}

static size_t skip_space(const struct template_lexer *lexer, size_t at) {
    while (at < lexer->source.length) {
        size_t next = at;
        if (!template_characters_is_space(template_characters_next(lexer->source, &next)))
            break;
        at = next;
    }
    return at;
}

static void move_to(struct template_lexer *lexer, size_t at) {
    for (size_t i = lexer->at; i < at; i++)
        lexer->line += lexer->source.data[i] == '\n';
    if (at > lexer->at)
        lexer->line_starts = lexer->source.data[at - 1] == '\n';
    lexer->at = at;
}

/* Returns where text[begin..end) ends when a tag with this sign follows. */
static size_t stripped_end(const struct template_lexer *lexer, size_t begin, size_t end, char sign,
                           bool is_output) {
    struct text text = {lexer->source.data + begin, end - begin};
    size_t stripped = text.length;
    if (sign == '+' || (sign != '-' && is_output))
        return end;
    while (stripped > 0) {
        size_t before = template_characters_before(text, stripped), next = before;
        if ((sign != '-' && text.data[before] == '\n') ||
            !template_characters_is_space(template_characters_next(text, &next)))
            break;
        stripped = before;
    }
    if (sign == '-')
        return begin + stripped;
    bool whole_line = stripped > 0 ? text.data[stripped - 1] == '\n' : lexer->line_starts;
    return whole_line ? begin + stripped : end;
}

static size_t find_tag(const struct template_lexer *lexer, size_t at) {
    while (at < lexer->source.length) {
        const char *brace = memchr(lexer->source.data + at, '{', lexer->source.length - at);
        if (brace == NULL)
            return lexer->source.length;
        at = (size_t)(brace - lexer->source.data);
        char second = byte_at(lexer, at + 1);
        if (second == '{' || second == '%' || second == '#')
            return at;
        at++;
    }
    return lexer->source.length;
}

/* Returns the place after "%}" or the like at `at`, which may have a sign before it; 0: there is
 * none. */
static size_t match_end(const struct template_lexer *lexer, size_t at, const char *end) {
    bool is_output = end[0] == '}';
    char sign = byte_at(lexer, at);
    size_t behind = at + 1 + strlen(end);
    if (sign == '-' && starts_with(lexer, at + 1, end))
        return skip_space(lexer, behind);
    if (sign == '+' && !is_output && starts_with(lexer, at + 1, end))
        return behind;
    if (!starts_with(lexer, at, end))
        return 0;
    return behind - 1 + (!is_output && byte_at(lexer, behind - 1) == '\n');
}

static size_t tag_sign(const struct template_lexer *lexer, size_t at, char *out_sign) {
    char sign = byte_at(lexer, at + 2);
    *out_sign = sign == '-' || sign == '+' ? sign : '\0';
    return at + 2 + (*out_sign != '\0');
}

static struct template_token data_token(const struct template_lexer *lexer, size_t begin,
                                        size_t end) {
    return (struct template_token){
        .kind = TOKEN_DATA, .line = lexer->line, .text = {lexer->source.data + begin, end - begin}};
}

static int skip_comment(struct template_lexer *lexer, size_t begin) {
    for (size_t at = begin; at < lexer->source.length; at++) {
        size_t behind = match_end(lexer, at, "#}");
        if (behind == 0)
            continue;
        move_to(lexer, behind);
        lexer->state = LEXER_TEXT;
        return 0;
    }
    return template_lexer_fail(lexer, lexer->line, "missing end of comment");
}

/* Text up to the next tag, which it leaves for begin_tag. */
static void read_text(struct template_lexer *lexer, struct template_token *out) {
    size_t tag = find_tag(lexer, lexer->at), end = tag;
    char sign;
    if (tag < lexer->source.length) {
        tag_sign(lexer, tag, &sign);
        end = stripped_end(lexer, lexer->at, tag, sign, byte_at(lexer, tag + 1) == '{');
    }
    *out = data_token(lexer, lexer->at, end);
    move_to(lexer, tag);
    lexer->state = LEXER_TAG;
}

/* 1: nothing for the parser yet. */
static int begin_tag(struct template_lexer *lexer, struct template_token *out) {
    char sign, second = byte_at(lexer, lexer->at + 1);
    size_t behind = tag_sign(lexer, lexer->at, &sign);
    *out = (struct template_token){.kind = TOKEN_END, .line = lexer->line};
    if (lexer->at >= lexer->source.length)
        return 0;
    if (second == '#')
        return skip_comment(lexer, behind) != 0 ? -1 : 1;
    out->kind = second == '{' ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN;
    lexer->state = second == '{' ? LEXER_OUTPUT : LEXER_BLOCK;
    move_to(lexer, behind);
    return 0;
}

/* --- Inside tags --- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static int hex_digit(char c) {
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Digits of at most `most` places from *at on, which moves; -1: none. */
static int64_t read_digits(struct text text, size_t *at, int base, int most) {
    int64_t number = 0;
    int places = 0;
    for (; places < most && *at < text.length; places++, ++*at) {
        int digit = hex_digit(text.data[*at]);
        if (digit < 0 || digit >= base)
            break;
        number = number * base + digit;
    }
    return places == 0 ? -1 : number;
}

/* Reads the character of \x, \u or \U, whose digits begin at *at; -1: invalid. */
static int32_t read_hex_escape(struct text text, size_t *at, char letter) {
    int places = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    size_t begin = *at;
    int64_t character = read_digits(text, at, 16, places);
    if (*at - begin != (size_t)places || character > 0x10ffff ||
        (character >= 0xd800 && character < 0xe000))
        return -1;
    return (int32_t)character;
}

/* Reads the escape after a backslash. Returns the bytes written to out, or -1. */
static int read_escape(struct text text, size_t *at, char out[TEMPLATE_MAX_CHARACTER_BYTES]) {
    static const char letters[] = "\\'\"abfnrtv", meant[] = "\\'\"\a\b\f\n\r\t\v";
    char letter = text.data[(*at)++];
    const char *found = letter == '\0' ? NULL : strchr(letters, letter);
    if (letter == '\n')
        return 0;
    if (found != NULL) {
        out[0] = meant[found - letters];
        return 1;
    }
    if (letter == 'N')
        return -1;
    if (letter >= '0' && letter <= '7') {
        --*at;
        return (int)template_characters_encode((int32_t)read_digits(text, at, 8, 3), out);
    }
    if (letter == 'x' || letter == 'u' || letter == 'U') {
        int32_t character = read_hex_escape(text, at, letter);
        return character < 0 ? -1 : (int)template_characters_encode(character, out);
    }
    out[0] = '\\';
    out[1] = letter;
    return 2;
}

static int unescape(struct template_lexer *lexer, struct text text, struct text *out) {
    char *data = template_arena_alloc_text(lexer->arena, text.length);
    size_t length = 0;
    if (data == NULL)
        return template_lexer_fail_memory(lexer);
    for (size_t at = 0; at < text.length;) {
        if (text.data[at] != '\\') {
            data[length++] = text.data[at++];
            continue;
        }
        char character[TEMPLATE_MAX_CHARACTER_BYTES];
        at++;
        int bytes = read_escape(text, &at, character);
        if (bytes < 0)
            return template_lexer_fail(lexer, lexer->line, "a string's escape is not understood");
        memcpy(data + length, character, (size_t)bytes);
        length += (size_t)bytes;
    }
    *out = (struct text){data, length};
    return 0;
}

static int read_string(struct template_lexer *lexer, struct template_token *out) {
    char quote = byte_at(lexer, lexer->at);
    size_t begin = lexer->at + 1, end = begin;
    bool escapes = false;
    while (end < lexer->source.length && lexer->source.data[end] != quote) {
        escapes |= lexer->source.data[end] == '\\';
        end += lexer->source.data[end] == '\\' ? 2 : 1;
    }
    if (end >= lexer->source.length)
        return template_lexer_fail(lexer, lexer->line, "a string has no end");
    out->kind = TOKEN_STRING;
    out->text = (struct text){lexer->source.data + begin, end - begin};
    if (escapes && unescape(lexer, out->text, &out->text) != 0)
        return -1;
    move_to(lexer, end + 1);
    return 0;
}

/* Returns the place after digits with single underscores between them. */
static size_t skip_digits(const struct template_lexer *lexer, size_t at) {
    while (is_digit(byte_at(lexer, at)) ||
           (byte_at(lexer, at) == '_' && is_digit(byte_at(lexer, at + 1))))
        at++;
    return at;
}

/* Returns the place after the float at `at`; 0: it is not a float. */
static size_t match_float(const struct template_lexer *lexer, size_t at) {
    size_t end = skip_digits(lexer, at), whole = end;
    if (byte_at(lexer, end) == '.' && is_digit(byte_at(lexer, end + 1)))
        end = skip_digits(lexer, end + 1);
    if ((byte_at(lexer, end) | 0x20) == 'e') {
        char sign = byte_at(lexer, end + 1);
        size_t digits = end + 1 + (sign == '+' || sign == '-');
        if (is_digit(byte_at(lexer, digits)))
            end = skip_digits(lexer, digits);
    }
    return end == whole || (at > 0 && byte_at(lexer, at - 1) == '.') ? 0 : end;
}

static int read_number(struct template_lexer *lexer, struct template_token *out) {
    char digits[80];
    size_t length = 0, end = match_float(lexer, lexer->at);
    out->kind = end != 0 ? TOKEN_FLOAT : TOKEN_INTEGER;
    if (end == 0)
        end = skip_digits(lexer, lexer->at);
    for (size_t i = lexer->at; i < end; i++) {
        if (lexer->source.data[i] == '_')
            continue;
        if (length + 1 == sizeof(digits))
            return template_lexer_fail(lexer, lexer->line, "a number has too many digits");
        digits[length++] = lexer->source.data[i];
    }
    digits[length] = '\0';
    errno = 0;
    if (out->kind == TOKEN_FLOAT)
        out->real = strtod(digits, NULL);
    else
        out->integer = strtoll(digits, NULL, 10);
    if (out->kind == TOKEN_INTEGER && errno == ERANGE)
        return template_lexer_fail(lexer, lexer->line, "the number %s is too large", digits);
    move_to(lexer, end);
    return 0;
}

static int track_bracket(struct template_lexer *lexer, char c) {
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c);
    if (open != NULL) {
        if (lexer->num_brackets == TEMPLATE_MAX_BRACKETS)
            return template_lexer_fail(lexer, lexer->line, "more than %d open brackets",
                                       TEMPLATE_MAX_BRACKETS);
        lexer->brackets[lexer->num_brackets++] = closing[open - opening];
    } else if (strchr(closing, c) != NULL) {
        if (lexer->num_brackets == 0)
            return template_lexer_fail(lexer, lexer->line, "unexpected '%c'", c);
        char expected = lexer->brackets[--lexer->num_brackets];
        if (expected != c)
            return template_lexer_fail(lexer, lexer->line, "unexpected '%c', expected '%c'", c,
                                       expected);
    }
    return 0;
}

static int read_operator(struct template_lexer *lexer, struct template_token *out) {
    static const struct {
        char text[3];
        int op;
    } pairs[] = {{"==", OPERATOR_EQUAL},
                 {"!=", OPERATOR_NOT_EQUAL},
                 {"<=", OPERATOR_LESS_EQUAL},
                 {">=", OPERATOR_GREATER_EQUAL},
                 {"//", OPERATOR_FLOOR_DIVIDE}};
    char c = byte_at(lexer, lexer->at);
    out->kind = TOKEN_OPERATOR;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (starts_with(lexer, lexer->at, pairs[i].text)) {
            out->op = pairs[i].op;
            move_to(lexer, lexer->at + 2);
            return 0;
        }
    if (c == '\0' || strchr("+-/*%~[](){}<>=.:|,;", c) == NULL)
        return template_lexer_fail(lexer, lexer->line, "unexpected character %s%c%s",
                                   c > 0x20 ? "'" : "(byte ", c > 0x20 ? c : '?',
                                   c > 0x20 ? "'" : ")");
    out->op = c;
    move_to(lexer, lexer->at + 1);
    return track_bracket(lexer, c);
}

static int read_in_tag(struct template_lexer *lexer, struct template_token *out) {
    bool is_output = lexer->state == LEXER_OUTPUT;
    size_t begin = lexer->at;
    /* Before the end is searched: "- }}" is an operator and an end, and so is jinja2's order. */
    size_t behind = lexer->num_brackets == 0 ? match_end(lexer, begin, is_output ? "}}" : "%}") : 0;
    *out = (struct template_token){.line = lexer->line};
    if (behind != 0) {
        out->kind = is_output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END;
        lexer->state = LEXER_TEXT;
        move_to(lexer, behind);
        return 0;
    }
    size_t spaced = skip_space(lexer, begin);
    if (spaced > begin) {
        move_to(lexer, spaced);
        return 1;
    }
    char c = byte_at(lexer, begin);
    if (begin == lexer->source.length)
        return 0;
    if (is_digit(c))
        return read_number(lexer, out);
    if (c == '"' || c == '\'')
        return read_string(lexer, out);
    if (!is_word(c))
        return read_operator(lexer, out);
    size_t end = begin;
    while (is_word(byte_at(lexer, end)))
        end++;
    out->kind = TOKEN_NAME;
    out->text = (struct text){lexer->source.data + begin, end - begin};
    move_to(lexer, end);
    return 0;
}

int template_lexer_next(struct template_lexer *lexer, struct template_token *out) {
    int status;
    do {
        status = 0;
        if (lexer->state == LEXER_TEXT)
            read_text(lexer, out);
        else if (lexer->state == LEXER_TAG)
            status = begin_tag(lexer, out);
        else
            status = read_in_tag(lexer, out);
    } while (status == 1);
    return status;
}
