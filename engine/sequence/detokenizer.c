/* Stop strings: text is released up to the longest suffix that is a proper prefix of some stop
 * string. So the beginning of a match is still held when the match completes, so each match is
 * found at the byte where it ends by looking back from there. Stop strings are valid UTF-8, so what
 * is held back always begins at a character. */
#include "engine/sequence/detokenizer.h"

#include "config/base/checked.h"
#include "config/base/utf8.h"

#include <stdlib.h>
#include <string.h>

void detokenizer_init(struct detokenizer *detokenizer, const struct sampling_params *params) {
    memset(detokenizer, 0, sizeof(*detokenizer));
    detokenizer->params = params;
}

void detokenizer_finish(struct detokenizer *detokenizer) {
    free(detokenizer->text);
    memset(detokenizer, 0, sizeof(*detokenizer));
}

/* A byte becomes at most one U+FFFD, and one more ends what came before. */
static bool reserve(struct detokenizer *d, size_t length) {
    size_t needed;
    if (!checked_add(length, 2, &needed) || !checked_mul(needed, 3, &needed) ||
        !checked_add(d->text_bytes, needed, &needed))
        return false;
    if (needed <= d->text_capacity)
        return true;
    char *text = realloc(d->text, needed);
    if (text == NULL)
        return false;
    d->text = text;
    d->text_capacity = needed;
    return true;
}

static void append(struct detokenizer *d, const void *bytes, size_t length) {
    memcpy(d->text + d->text_bytes, bytes, length);
    d->text_bytes += length;
}

static void end_partial(struct detokenizer *d) {
    if (d->num_partial > 0)
        append(d, UTF8_REPLACEMENT, 3);
    d->num_partial = 0;
}

/* Returns whether the byte can continue the character that is not whole yet. */
static bool continues_partial(const struct detokenizer *d, unsigned char byte) {
    return d->num_partial == 1 ? utf8_second_fits(d->partial[0], byte) : utf8_continues((char)byte);
}

static void decode_byte(struct detokenizer *d, unsigned char byte) {
    if (d->num_partial > 0 && !continues_partial(d, byte))
        end_partial(d);
    size_t length = utf8_lead_bytes(d->num_partial > 0 ? d->partial[0] : byte);
    if (length == 0) {
        append(d, UTF8_REPLACEMENT, 3);
        return;
    }
    d->partial[d->num_partial++] = byte;
    if ((size_t)d->num_partial == length) {
        append(d, d->partial, length);
        d->num_partial = 0;
    }
}

/* Returns the longest stop string that ends at text[end), or -1. */
static int32_t stop_ending_at(const struct detokenizer *d, size_t end) {
    int32_t found = -1;
    size_t found_length = 0;
    for (int32_t i = 0; i < d->params->num_stop_strings; i++) {
        const struct stop_string *stop = &d->params->stop_strings[i];
        if (stop->length > found_length && stop->length <= end &&
            memcmp(d->text + end - stop->length, stop->data, stop->length) == 0) {
            found = i;
            found_length = stop->length;
        }
    }
    return found;
}

/* Bytes at the end of the text that may begin a stop string. */
static size_t held_bytes(const struct detokenizer *d) {
    size_t held = 0;
    for (int32_t i = 0; i < d->params->num_stop_strings; i++) {
        const struct stop_string *stop = &d->params->stop_strings[i];
        size_t longest = stop->length - 1 < d->text_bytes ? stop->length - 1 : d->text_bytes;
        for (size_t n = longest; n > held; n--) {
            if (memcmp(d->text + d->text_bytes - n, stop->data, n) == 0) {
                held = n;
                break;
            }
        }
    }
    return held;
}

static bool find_stop(struct detokenizer *d, size_t from, struct detokenized *out) {
    for (size_t end = from + 1; end <= d->text_bytes; end++) {
        int32_t found = stop_ending_at(d, end);
        if (found < 0)
            continue;
        size_t length = d->params->include_stop_string ? 0 : d->params->stop_strings[found].length;
        *out = (struct detokenized){d->text, end - length, found};
        return true;
    }
    return false;
}

int detokenizer_push(struct detokenizer *d, const char *bytes, size_t length, unsigned flags,
                     struct detokenized *out) {
    if (!reserve(d, length))
        return -1;
    d->text_bytes -= d->num_given;
    memmove(d->text, d->text + d->num_given, d->text_bytes);
    d->num_given = 0;

    size_t before = d->text_bytes;
    for (size_t i = 0; i < length; i++)
        decode_byte(d, (unsigned char)bytes[i]);
    if (flags & DETOKENIZER_FINAL)
        end_partial(d);
    if ((flags & DETOKENIZER_MATCH_STOPS) && find_stop(d, before, out))
        return 0;
    d->num_given = d->text_bytes - (flags & DETOKENIZER_FINAL ? 0 : held_bytes(d));
    *out = (struct detokenized){d->text, d->num_given, -1};
    return 0;
}
