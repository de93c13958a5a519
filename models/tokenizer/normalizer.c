#include "models/tokenizer/normalizer.h"

#include "config/base/array.h"
#include "config/base/utf8.h"
#include "models/tokenizer/characters.h"
#include "models/tokenizer/tokenizer.h"

#include <utf8proc.h>

/* --- Normal forms C and KC (Unicode Standard Annex 15), on utf8proc's tables ---
 * Only stretches that hold a character that is not inert, with the inert one before them, go
 * through utf8proc; they are a few characters long in most texts.
 *
 * utf8proc decomposes a character and composes a sequence; its own ordering of marks takes
 * quadratic time on a long run of them, so they are ordered here, by counting. */

/* Forms in which a character is inert, as bits: text may be cut before it and it stays itself. */
enum unicode_form { UNICODE_FORM_C = 1, UNICODE_FORM_KC = 2 };

/* Code points from here on are inert. */
#define UNICODE_FORM_TABLE 0x30000

/* The longest compatibility decomposition has 18 characters. */
#define MAX_DECOMPOSED 32

/* Characters of Unicode 12 to 16 that have a compatibility decomposition: the tables of Hugging
 * Face's tokenizers are of Unicode 11 and leave them unchanged. */
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

static utf8proc_ssize_t decompose(int32_t c, enum unicode_form form, int32_t *out, size_t room) {
    int unused = 0;
    if (form == UNICODE_FORM_KC && is_after_unicode_11(c))
        form = UNICODE_FORM_C;
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == UNICODE_FORM_KC)
        options |= UTF8PROC_COMPAT;
    return utf8proc_decompose_char(c, out, (utf8proc_ssize_t)room, options, &unused);
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

/* Makes the byte for each code point below UNICODE_FORM_TABLE. NULL when memory is short. */
static uint8_t *make_form_table(void) {
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

/* Appends `text`, valid UTF-8, in a normal form. Time is linear for any sequence of marks. Returns
 * -1 when memory is short. */
static int append_form(const uint8_t *table, enum unicode_form form, struct text text,
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

/* --- Steps --- */

/* NFKC makes 18 times the bytes of a character; a step that copies takes as many as there are. */
#define BUDGET_FACTOR 64
#define BUDGET_BYTES ((size_t)1 << 20)

size_t normalizer_budget(size_t text_bytes) {
    return text_bytes > (SIZE_MAX - BUDGET_BYTES) / BUDGET_FACTOR
               ? SIZE_MAX
               : text_bytes * BUDGET_FACTOR + BUDGET_BYTES;
}

static size_t texts_bytes(const struct tokenizer_spec *spec) {
    size_t bytes = 0;
    for (int i = 0; i < spec->num_normalizers; i++)
        bytes += spec->normalizers[i].pattern.length + spec->normalizers[i].content.length;
    return bytes;
}

int normalizer_init(const struct tokenizer_spec *spec, struct normalizer *out, struct error *err) {
    struct normalizer n = {.num_steps = spec->num_normalizers};
    bool has_form = false;
    if (n.num_steps < 0 || n.num_steps > TOKENIZER_MAX_STEPS)
        return error_set(err, ERROR_MODEL, "the tokenizer has %d normalizers, allowed are %d",
                         n.num_steps, TOKENIZER_MAX_STEPS);
    n.texts = malloc(texts_bytes(spec) + 1);
    char *next = n.texts;
    for (int i = 0; n.texts != NULL && i < n.num_steps; i++) {
        n.steps[i] = spec->normalizers[i];
        n.steps[i].pattern = text_copy(n.steps[i].pattern, &next);
        n.steps[i].content = text_copy(n.steps[i].content, &next);
        has_form |= n.steps[i].kind == NORMALIZER_NFC || n.steps[i].kind == NORMALIZER_NFKC;
    }
    n.inert = has_form ? make_form_table() : NULL;
    if (n.texts == NULL || (has_form && n.inert == NULL)) {
        normalizer_finish(&n);
        return error_set(err, ERROR_MEMORY, "no memory for a normalizer");
    }
    *out = n;
    return 0;
}

void normalizer_finish(struct normalizer *normalizer) {
    free(normalizer->texts);
    free(normalizer->inert);
    *normalizer = (struct normalizer){0};
}

void normalizer_scratch_finish(struct normalizer_scratch *scratch) {
    byte_buffer_finish(&scratch->buffers[0]);
    byte_buffer_finish(&scratch->buffers[1]);
}

static bool is_ascii(struct text text) {
    unsigned char all = 0;
    for (size_t i = 0; i < text.length; i++)
        all |= (unsigned char)text.data[i];
    return all < 0x80;
}

/* Writes each character's lower case, by Unicode's SpecialCasing.txt without a language. */
static void lowercase(struct text text, struct byte_buffer *out) {
    for (size_t i = 0; i < text.length && !out->failed;) {
        size_t bytes = utf8_char_bytes(text.data + i, text.length - i);
        int32_t c = utf8_decode(text.data + i, bytes);
        char lower[UTF8_MAX_BYTES];
        if (c < 0x80)
            c += c >= 'A' && c <= 'Z' ? 32 : 0;
        else if (c != 0x130)
            c = utf8proc_tolower(c);
        if (c == 0x130)
            byte_buffer_append(out, "i\u0307", 3);
        else
            byte_buffer_append(out, lower, utf8_encode((uint32_t)c, lower));
        i += bytes;
    }
}

/* Stops where it has made more than `limit` bytes. */
static void replace(struct text text, struct text pattern, struct text content, size_t limit,
                    struct byte_buffer *out) {
    const char *end = text.data + text.length;
    for (const char *from = text.data; from < end && out->length <= limit && !out->failed;) {
        const char *found = memmem(from, (size_t)(end - from), pattern.data, pattern.length);
        byte_buffer_append(out, from, (size_t)((found != NULL ? found : end) - from));
        if (found == NULL)
            break;
        byte_buffer_append(out, content.data, content.length);
        from = found + pattern.length;
    }
}

static struct text strip(const struct normalizer_step *step, struct text text) {
    size_t left = step->left ? characters_leading_space(text.data, text.length) : 0;
    text = (struct text){text.data + left, text.length - left};
    text.length -= step->right ? characters_trailing_space(text.data, text.length) : 0;
    return text;
}

/* Returns whether the step leaves the text alone, by a cheap look. */
static bool changes_nothing(const struct normalizer_step *step, struct text text, bool continues) {
    switch (step->kind) {
    case NORMALIZER_NFC:
    case NORMALIZER_NFKC:
        return is_ascii(text);
    case NORMALIZER_PREPEND:
        return continues;
    case NORMALIZER_REPLACE:
        return step->pattern.length == 0 ||
               memmem(text.data, text.length, step->pattern.data, step->pattern.length) == NULL;
    default:
        return false;
    }
}

static int run_step(const struct normalizer *n, const struct normalizer_step *step,
                    struct text text, size_t limit, struct byte_buffer *out) {
    switch (step->kind) {
    case NORMALIZER_NFC:
        return append_form(n->inert, UNICODE_FORM_C, text, out);
    case NORMALIZER_NFKC:
        return append_form(n->inert, UNICODE_FORM_KC, text, out);
    case NORMALIZER_LOWERCASE:
        lowercase(text, out);
        break;
    case NORMALIZER_PREPEND:
        byte_buffer_append(out, step->content.data, step->content.length);
        byte_buffer_append(out, text.data, text.length);
        break;
    default:
        replace(text, step->pattern, step->content, limit, out);
        break;
    }
    return out->failed ? -1 : 0;
}

int normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                   struct text text, bool continues, struct text *out) {
    int next = 0;
    for (int i = 0; i < normalizer->num_steps && text.length > 0; i++) {
        const struct normalizer_step *step = &normalizer->steps[i];
        if (step->kind == NORMALIZER_STRIP) {
            text = strip(step, text);
        } else if (!changes_nothing(step, text, continues)) {
            struct byte_buffer *buffer = &scratch->buffers[next];
            byte_buffer_clear(buffer);
            if (run_step(normalizer, step, text, scratch->budget_bytes, buffer) != 0)
                return -1;
            if (buffer->length > scratch->budget_bytes)
                return TOKENIZER_TOO_COSTLY;
            scratch->budget_bytes -= buffer->length;
            text = (struct text){buffer->data, buffer->length};
            next = 1 - next;
        }
    }
    *out = text;
    return 0;
}
