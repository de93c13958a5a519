#include "config/base/help_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_WIDTH 80
#define MIN_WIDTH 40
#define MAX_WIDTH 200
#define TERM_INDENT 2
#define MIN_MEANING_COLUMN 10
#define MAX_MEANING_COLUMN 26

static size_t clamp(long width) {
    return width < MIN_WIDTH ? MIN_WIDTH : width > MAX_WIDTH ? MAX_WIDTH : (size_t)width;
}

size_t help_text_width(FILE *file) {
    const char *columns = getenv("COLUMNS");
    struct winsize size;
    long width = columns != NULL ? strtol(columns, NULL, 10) : 0;
    if (width > 0)
        return clamp(width);
    bool is_known = isatty(fileno(file)) && ioctl(fileno(file), TIOCGWINSZ, &size) == 0;
    return is_known && size.ws_col > 0 ? clamp(size.ws_col) : DEFAULT_WIDTH;
}

static void append_spaces(size_t count, struct byte_buffer *out) {
    byte_buffer_printf(out, "%*s", (int)count, "");
}

/* Appends the words of text, the first at the column, the lines after the first at indent. */
static void wrap_words(const char *text, size_t length, size_t column, size_t indent, size_t width,
                       struct byte_buffer *out) {
    const char *end = text + length;
    bool is_first = true;
    while (text < end) {
        size_t spaces = strspn(text, " ");
        text += spaces;
        size_t word = 0;
        while (text + word < end && text[word] != ' ')
            word++;
        if (word == 0)
            break;
        if (!is_first && column + 1 + word > width) {
            byte_buffer_append_text(out, "\n");
            append_spaces(indent, out);
            column = indent;
        } else if (!is_first) {
            byte_buffer_append_text(out, " ");
            column++;
        }
        byte_buffer_append(out, text, word);
        column += word;
        text += word;
        is_first = false;
    }
    byte_buffer_append_text(out, "\n");
}

/* The column of the meanings of the terms from here to the next line that is none. */
static size_t meaning_column(const char *text) {
    size_t column = MIN_MEANING_COLUMN;
    for (;;) {
        size_t length = strcspn(text, "\n"), term = strcspn(text, "\t\n");
        if (term == length)
            return column;
        if (term + 2 > column && term + 2 <= MAX_MEANING_COLUMN)
            column = term + 2;
        text += length + (text[length] == '\n');
    }
}

static void wrap_term(const char *line, size_t length, size_t column, size_t width,
                      struct byte_buffer *out) {
    size_t term = strcspn(line, "\t");
    byte_buffer_append(out, line, term);
    if (term + TERM_INDENT > column) {
        byte_buffer_append_text(out, "\n");
        append_spaces(column, out);
    } else {
        append_spaces(column - term, out);
    }
    wrap_words(line + term + 1, length - term - 1, column, column, width, out);
}

static void wrap_paragraph(const char *line, size_t length, size_t width, struct byte_buffer *out) {
    static const char first[] = "usage: quire ", next[] = "       quire ";
    bool is_usage =
        strncmp(line, first, strlen(first)) == 0 || strncmp(line, next, strlen(next)) == 0;
    size_t indent = is_usage ? strlen("usage: ") : strspn(line, " ");
    size_t begin = indent < length ? indent : length;
    byte_buffer_append(out, line, begin);
    wrap_words(line + begin, length - begin, begin, is_usage ? strlen(first) : indent, width, out);
}

void help_text_wrap(const char *text, size_t width, struct byte_buffer *out) {
    size_t column = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        bool is_term = memchr(text, '\t', length) != NULL;
        if (is_term && column == 0)
            column = meaning_column(text);
        if (is_term)
            wrap_term(text, length, column, width, out);
        else
            wrap_paragraph(text, length, width, out);
        if (!is_term)
            column = 0;
        text += length + (text[length] == '\n');
    }
}

void help_text_print(const char *text, FILE *file) {
    struct byte_buffer out = {0};
    help_text_wrap(text, help_text_width(file), &out);
    if (out.failed)
        fputs(text, file);
    else
        fwrite(out.data, 1, out.length, file);
    byte_buffer_finish(&out);
}
