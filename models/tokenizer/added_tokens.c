/* Searches without an automaton: the sorted array is narrowed by one more byte of the text at a
 * time, which is a handful of steps at the few places where a token could start. */
#include "models/tokenizer/added_tokens.h"

#include "config/base/utf8.h"
#include "models/tokenizer/characters.h"
#include "models/tokenizer/normalizer.h"
#include "models/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    const struct added_entry *x = a, *y = b;
    int order = text_compare(x->text, y->text);
    return order != 0 ? order : x->token.id < y->token.id ? -1 : 1;
}

/* Keeps the last of equal texts, which has the highest id; then fills first[]. */
static void index_entries(struct added_tokens *added) {
    size_t kept = 0;
    for (size_t i = 0; i < added->count; i++) {
        if (kept > 0 && text_compare(added->entries[kept - 1].text, added->entries[i].text) == 0)
            kept--;
        added->entries[kept++] = added->entries[i];
    }
    added->count = kept;
    size_t next = 0;
    for (int byte = 0; byte < 256; byte++) {
        added->first[byte] = next;
        while (next < kept && (unsigned char)added->entries[next].text.data[0] == byte)
            next++;
    }
    added->first[256] = kept;
}

static int check_token(const struct added_token *token, const struct vocabulary *vocabulary,
                       struct error *err) {
    if (token->id < 0 || token->id >= vocabulary->size)
        return error_set(err, ERROR_MODEL, "an added token's id is %d, allowed 0 to %d", token->id,
                         vocabulary->size - 1);
    size_t length = vocabulary_raw(vocabulary, token->id).length;
    if (length > ADDED_TOKEN_MAX_BYTES)
        return error_set(err, ERROR_MODEL,
                         "token %d, an added token, has %zu bytes, allowed are %d", token->id,
                         length, ADDED_TOKEN_MAX_BYTES);
    return 0;
}

static bool is_marker(struct text text) {
    static const char wide_bar[] = "\xef\xbd\x9c";
    bool is_wide = text.length >= 4 && memcmp(text.data + 1, wide_bar, 3) == 0;
    return text.length >= 4 && text.data[0] == '<' && (is_wide || text.data[1] == '|') &&
           text_ends_with(text, is_wide ? "\xef\xbd\x9c>" : "|>");
}

static int collect(const struct tokenizer_spec *spec, const struct vocabulary *vocabulary,
                   bool normalized, struct added_tokens *added, struct error *err) {
    for (size_t i = 0; i < spec->num_added; i++) {
        if (check_token(&spec->added[i], vocabulary, err) != 0)
            return -1;
        struct text text = vocabulary_raw(vocabulary, spec->added[i].id);
        if (spec->added[i].normalized == normalized && text.length > 0)
            added->entries[added->count++] =
                (struct added_entry){text, spec->added[i], is_marker(text)};
    }
    return 0;
}

/* Replaces every text by what the normaliser makes of it; some may vanish. */
static int normalize(const struct normalizer *normalizer, struct added_tokens *added) {
    struct normalizer_scratch scratch = {0};
    struct byte_buffer texts = {0};
    int status = 0;
    size_t kept = 0, bytes = 0;
    for (size_t i = 0; i < added->count; i++)
        bytes += added->entries[i].text.length;
    scratch.budget_bytes = normalizer_budget(bytes);
    for (size_t i = 0; status == 0 && i < added->count; i++) {
        struct text text = added->entries[i].text;
        bool valid = utf8_valid_prefix(text.data, text.length) == text.length;
        status = valid ? normalizer_run(normalizer, &scratch, text, false, &text) : 0;
        if (status == 0)
            byte_buffer_append(&texts, text.data, text.length);
        added->entries[i].text.length = text.length;
    }
    status = texts.failed ? -1 : status;
    for (size_t i = 0, used = 0; status == 0 && i < added->count; i++) {
        size_t length = added->entries[i].text.length;
        if (length == 0)
            continue;
        added->entries[kept] = added->entries[i];
        added->entries[kept++].text = (struct text){texts.data + used, length};
        used += length;
    }
    added->count = kept;
    added->texts = texts.data;
    normalizer_scratch_finish(&scratch);
    return status;
}

int added_tokens_init(const struct tokenizer_spec *spec, const struct vocabulary *vocabulary,
                      bool normalized, const struct normalizer *normalizer,
                      struct added_tokens *out, struct error *err) {
    struct added_tokens added = {0};
    added.entries = malloc((spec->num_added + 1) * sizeof(*added.entries));
    int status = added.entries == NULL ? error_set(err, ERROR_MEMORY, "no memory for added tokens")
                                       : collect(spec, vocabulary, normalized, &added, err);
    if (status == 0 && normalized) {
        status = normalize(normalizer, &added);
        if (status == TOKENIZER_TOO_COSTLY)
            error_set(err, ERROR_MODEL, "the normalizer makes too much of the added tokens");
        else if (status != 0)
            error_set(err, ERROR_MEMORY, "no memory for added tokens");
    }
    if (status != 0) {
        added_tokens_finish(&added);
        return -1;
    }
    if (added.count > 0)
        qsort(added.entries, added.count, sizeof(*added.entries), compare);
    index_entries(&added);
    *out = added;
    return 0;
}

void added_tokens_finish(struct added_tokens *added) {
    free(added->entries);
    free(added->texts);
    *added = (struct added_tokens){0};
}

/* Returns the first of entries[low..high), which agree in `depth` bytes and are longer, whose next
 * byte is at least `byte`. */
static size_t lower_bound(const struct added_tokens *added, size_t low, size_t high, size_t depth,
                          int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)added->entries[middle].text.data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct added_entry *match_at(const struct added_tokens *added, const char *text,
                                          size_t length) {
    const struct added_entry *best = NULL;
    size_t low = added->first[(unsigned char)text[0]];
    size_t high = added->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        /* A token that ends here sorts before longer ones. */
        if (added->entries[low].text.length == depth)
            best = &added->entries[low++];
        if (depth == length)
            break;
        int byte = (unsigned char)text[depth];
        size_t end = high;
        low = lower_bound(added, low, end, depth, byte);
        high = lower_bound(added, low, end, depth, byte + 1);
    }
    return best;
}

static bool is_single_word(const char *text, size_t length, size_t start, size_t end) {
    size_t bytes;
    return !character_is_word(character_last(text, start, &bytes)) &&
           !character_is_word(character_first(text + end, length - end, &bytes));
}

static bool is_for_clients(const struct added_entry *entry, const struct client_spans *clients) {
    return !entry->token.special && (!entry->is_marker || clients->markers_match);
}

/* Returns the entry at text[at], which, unless it is allowed for clients, ends before the next byte
 * of a client; NULL if there is none, and the search continues at *out_next. */
static const struct added_entry *match_allowed(const struct added_tokens *added, const char *text,
                                               size_t length, size_t at,
                                               const struct client_spans *clients,
                                               size_t *out_next) {
    const struct added_entry *entry = match_at(added, text + at, length - at);
    *out_next = at + 1;
    if (entry == NULL || is_for_clients(entry, clients))
        return entry;
    size_t end = at + entry->text.length;
    struct text_span client = client_spans_from(clients, at);
    if (end <= client.begin)
        return entry;
    if (at < client.begin)
        return match_at(added, text + at, client.begin - at);
    *out_next = end < client.end ? end : client.end;
    return NULL;
}

struct added_match added_tokens_find(const struct added_tokens *added, const char *text,
                                     size_t length, size_t from, size_t used,
                                     const struct client_spans *client) {
    for (size_t i = from; added->count > 0 && i < length;) {
        unsigned char byte = (unsigned char)text[i];
        size_t next = i + 1;
        const struct added_entry *entry =
            added->first[byte] == added->first[byte + 1]
                ? NULL
                : match_allowed(added, text, length, i, client, &next);
        if (entry == NULL) {
            i = next;
            continue;
        }
        const struct added_token *token = &entry->token;
        size_t end = i + entry->text.length;
        if (token->single_word && !is_single_word(text, length, i, end)) {
            i = end;
            continue;
        }
        struct added_match match = {.start = i, .end = end, .next = end, .token = token->id};
        size_t before =
            token->lstrip && i > used ? characters_trailing_space(text + used, i - used) : 0;
        match.start = i - before;
        match.end += token->rstrip ? characters_leading_space(text + end, length - end) : 0;
        return match;
    }
    return (struct added_match){length, length, length, -1};
}
