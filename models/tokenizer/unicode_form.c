/* Only stretches that hold a character that is not inert, with the inert one before them, go
 * through utf8proc; they are a few characters long in most texts.
 *
 * utf8proc decomposes a character and composes a sequence; its own ordering of marks takes
 * quadratic time on a long run of them, so they are ordered here, by counting. */
#include "models/tokenizer/unicode_form.h"

#include "config/base/array.h"
#include "config/base/utf8.h"

#include <utf8proc.h>

/* The longest compatibility decomposition has 18 characters. */
#define MAX_DECOMPOSED 32

/* Characters of Unicode 12 to 16 that have a compatibility decomposition: the tables behind Hugging
 * Face's tokenizers are of Unicode 11 and leave them as they are. */
static bool is_after_unicode_11(int32_t c) {
    static const int32_t ranges[][2] = {
        {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x107ba},
        {0x1ccd6, 0x1ccf9}, {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    }
    return false;
}

static utf8proc_option_t decompose_options(enum unicode_form form) {
    return form == UNICODE_FORM_KC ? UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
                                   : UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
}

static utf8proc_ssize_t decompose(int32_t c, enum unicode_form form, int32_t *out, size_t room) {
    int unused = 0;
    if (form == UNICODE_FORM_KC && is_after_unicode_11(c))
        form = UNICODE_FORM_C;
    return utf8proc_decompose_char(c, out, (utf8proc_ssize_t)room, decompose_options(form),
                                   &unused);
}

static int combining_class(int32_t c) {
    return utf8proc_get_property(c)->combining_class;
}

/* Returns whether c becomes itself: a starter that decomposes to nothing else, or to what composes
 * to it again. Characters that others end with are marked as not inert on the way. */
static bool is_itself(int32_t c, enum unicode_form form, uint8_t *table) {
    int32_t parts[MAX_DECOMPOSED];
    utf8proc_ssize_t n = decompose(c, form, parts, MAX_DECOMPOSED);
    if (n < 1 || n > MAX_DECOMPOSED || combining_class(c) != 0)
        return false;
    for (utf8proc_ssize_t i = 1; i < n; i++) {
        if (parts[i] < UNICODE_FORM_TABLE)
            table[parts[i]] |= (uint8_t)(form << 4);
    }
    n = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return n == 1 && parts[0] == c;
}

uint8_t *unicode_form_table(void) {
    uint8_t *table = calloc(UNICODE_FORM_TABLE, 1);
    if (table == NULL)
        return NULL;
    for (int32_t c = 0; c < UNICODE_FORM_TABLE; c++) {
        bool is_surrogate = c >= 0xd800 && c < 0xe000;
        for (int form = UNICODE_FORM_C; form <= UNICODE_FORM_KC && !is_surrogate; form++) {
            if (is_itself(c, (enum unicode_form)form, table))
                table[c] |= (uint8_t)form;
        }
    }
    for (int32_t c = 0; c < UNICODE_FORM_TABLE; c++)
        table[c] &= (uint8_t) ~(table[c] >> 4) & 3;
    return table;
}

/* Orders marks[0..n), none of class 0, by class; equal ones keep their order. */
static void order_marks(int32_t *marks, size_t n, int32_t *room) {
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++)
        starts[combining_class(marks[i]) + 1]++;
    for (int class = 0; class < 256; class ++)
        starts[class + 1] += starts[class];
    for (size_t i = 0; i < n; i++)
        room[starts[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, room, n * sizeof(*marks));
}

static bool is_ordered(const int32_t *marks, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (combining_class(marks[i - 1]) > combining_class(marks[i]))
            return false;
    }
    return true;
}

/* `room` is as long as the characters. */
static void order_all(int32_t *characters, size_t n, int32_t *room) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && combining_class(characters[end]) != 0)
            end++;
        if (!is_ordered(characters + i, end - i))
            order_marks(characters + i, end - i, room);
        i = end + 1;
    }
}

/* Decomposes the characters of a stretch; returns their number, or 0 when memory is short. */
static size_t decompose_all(struct text text, enum unicode_form form, int32_t **out) {
    size_t capacity = text.length + MAX_DECOMPOSED, n = 0;
    int32_t *characters = malloc(capacity * sizeof(*characters));
    for (size_t i = 0; characters != NULL && i < text.length;) {
        size_t bytes = utf8_char_bytes(text.data + i, text.length - i);
        if (!array_reserve(&characters, &capacity, n + MAX_DECOMPOSED, sizeof(*characters))) {
            free(characters);
            return 0;
        }
        utf8proc_ssize_t added =
            decompose(utf8_decode(text.data + i, bytes), form, characters + n, capacity - n);
        n += added > 0 ? (size_t)added : 0;
        i += bytes;
    }
    *out = characters;
    return n;
}

static int normalize_stretch(struct text text, enum unicode_form form, struct byte_buffer *out) {
    int32_t *characters = NULL;
    size_t n = decompose_all(text, form, &characters);
    int32_t *room = malloc((n + 1) * sizeof(*room));
    if (n == 0 || room == NULL) {
        free(room);
        free(characters);
        return -1;
    }
    order_all(characters, n, room);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(characters, (utf8proc_ssize_t)n,
                                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[UTF8_MAX_BYTES];
        byte_buffer_append(out, bytes, utf8_encode((uint32_t)characters[i], bytes));
    }
    free(room);
    free(characters);
    return out->failed ? -1 : 0;
}

/* Passes characters up to the first one whose inertness is not `inert`, and returns where that is.
 * *last is the start of the last one passed, or what it was. */
static size_t skip(const uint8_t *table, enum unicode_form form, struct text text, size_t position,
                   bool inert, size_t *last) {
    while (position < text.length) {
        size_t bytes = utf8_lead_bytes((unsigned char)text.data[position]);
        int32_t c = utf8_decode(text.data + position, bytes);
        bool is_inert = c >= UNICODE_FORM_TABLE || (table[c] & form) != 0;
        if (is_inert != inert)
            break;
        *last = position;
        position += bytes;
    }
    return position;
}

int unicode_form_append(const uint8_t *table, enum unicode_form form, struct text text,
                        struct byte_buffer *out) {
    size_t copied = 0;
    for (size_t position = 0; position < text.length;) {
        size_t last = position, unused = 0;
        size_t odd = skip(table, form, text, position, true, &last);
        if (odd == text.length)
            break;
        /* The inert character before takes part: marks may join it. */
        size_t end = skip(table, form, text, odd, false, &unused);
        byte_buffer_append(out, text.data + copied, last - copied);
        if (normalize_stretch((struct text){text.data + last, end - last}, form, out) != 0)
            return -1;
        copied = position = end;
    }
    byte_buffer_append(out, text.data + copied, text.length - copied);
    return out->failed ? -1 : 0;
}
