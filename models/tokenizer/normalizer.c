#include "models/tokenizer/normalizer.h"

#include "config/base/utf8.h"
#include "models/tokenizer/characters.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/unicode_form.h"

#include <utf8proc.h>

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
    n.inert = has_form ? unicode_form_table() : NULL;
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

/* Writes each character's lower case, as Unicode's SpecialCasing.txt has it where no language is
 * given. */
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
        return unicode_form_append(n->inert, UNICODE_FORM_C, text, out);
    case NORMALIZER_NFKC:
        return unicode_form_append(n->inert, UNICODE_FORM_KC, text, out);
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
