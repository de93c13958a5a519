/* Encoding runs a text through the parts:
 *
 *     text -> added tokens and spans between -> in a span, runs of valid UTF-8 and single bytes
 *          -> a run, normalised -> added tokens of normalised text and spans between
 *          -> in a span, pieces -> in a piece, merges
 */
#include "models/tokenizer/tokenizer.h"

#include "config/base/check.h"
#include "config/base/utf8.h"
#include "models/config/model.h"
#include "models/tokenizer/added_tokens.h"
#include "models/tokenizer/normalizer.h"
#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/tokenizer_bpe.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EOS_TOKENS (TOKENIZER_MAX_EOS + MODEL_MAX_EOS_TOKENS)

struct tokenizer {
    struct vocabulary vocabulary;
    struct bpe bpe;
    struct normalizer normalizer;
    struct pretokenizer *pretokenizer;
    struct added_tokens added;            /* matched in the text as it came */
    struct added_tokens added_normalized; /* and in the normalised text */
    int num_prefix, num_suffix;
    int32_t prefix[TOKENIZER_MAX_TEMPLATE], suffix[TOKENIZER_MAX_TEMPLATE];
    int32_t bos; /* -1: none */
    bool has_fim;
    int32_t fim[NUM_FIM_PARTS], fim_marks[NUM_FIM_MARKS];
    int num_fim_ends;
    int32_t fim_ends[FIM_MAX_ENDS];
    int num_eos;
    int32_t eos[MAX_EOS_TOKENS];
    size_t num_named;
    struct named_token *named;
    int strip_leading_spaces;
    char description[160];
};

/* --- Opening --- */

static int check_id(const struct tokenizer *t, int32_t token, const char *what, struct error *err) {
    if (token >= 0 && token < t->vocabulary.size)
        return 0;
    return error_set(err, ERROR_MODEL, "the %s token is %d, allowed 0 to %d", what, token,
                     t->vocabulary.size - 1);
}

static int add_eos(struct tokenizer *t, int32_t token, struct error *err) {
    if (check_id(t, token, "end-of-sequence", err) != 0)
        return -1;
    if (tokenizer_is_eos(t, token))
        return 0;
    CHECK(t->num_eos < MAX_EOS_TOKENS);
    t->eos[t->num_eos++] = token;
    return 0;
}

/* A file's key that names no token counts as missing. */
static int32_t known_id(const struct tokenizer *t, bool is_given, int32_t token) {
    return is_given && token < t->vocabulary.size ? token : -1;
}

static void open_fim(struct tokenizer *t, const struct tokenizer_spec *spec) {
    int32_t ends[FIM_MAX_ENDS];
    for (int i = 0; i < NUM_FIM_PARTS; i++)
        t->fim[i] = known_id(t, spec->names_fim[i], spec->fim[i]);
    for (int i = 0; i < NUM_FIM_MARKS; i++)
        t->fim_marks[i] = known_id(t, spec->has_fim_marks[i], spec->fim_marks[i]);
    t->has_fim = fim_tokens_find(&t->vocabulary, t->fim);
    int count = fim_tokens_find_marks(&t->vocabulary, t->fim_marks, ends);
    for (int i = 0; i < count && t->has_fim; i++)
        if (!tokenizer_is_eos(t, ends[i]))
            t->fim_ends[t->num_fim_ends++] = ends[i];
}

static int open_named(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    t->named = calloc(spec->num_named + 1, sizeof(*t->named));
    if (t->named == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu special tokens", spec->num_named);
    for (size_t i = 0; i < spec->num_named; i++)
        if (known_id(t, true, spec->named[i].id) >= 0)
            t->named[t->num_named++] = spec->named[i];
    return 0;
}

static int open_ids(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    CHECK(spec->num_prefix <= TOKENIZER_MAX_TEMPLATE &&
          spec->num_suffix <= TOKENIZER_MAX_TEMPLATE && spec->num_eos <= TOKENIZER_MAX_EOS);
    int status = 0;
    for (int i = 0; status == 0 && i < spec->num_prefix; i++)
        status = check_id(t, t->prefix[i] = spec->prefix[i], "template's", err);
    for (int i = 0; status == 0 && i < spec->num_suffix; i++)
        status = check_id(t, t->suffix[i] = spec->suffix[i], "template's", err);
    for (int i = 0; status == 0 && i < spec->num_eos; i++)
        status = add_eos(t, spec->eos[i], err);
    if (status == 0 && spec->bos >= 0)
        status = check_id(t, spec->bos, "beginning-of-sequence", err);
    if (status == 0 && spec->unknown >= 0)
        status = check_id(t, spec->unknown, "unknown", err);
    if (status == 0)
        status = open_named(t, spec, err);
    open_fim(t, spec);
    t->num_prefix = spec->num_prefix;
    t->num_suffix = spec->num_suffix;
    t->bos = spec->bos;
    t->strip_leading_spaces = spec->strip_leading_spaces;
    return status;
}

static void describe(struct tokenizer *t, const struct tokenizer_spec *spec) {
    bool bytes = spec->alphabet == ALPHABET_BYTES;
    int missing = 0;
    for (int byte = 0; byte < 256; byte++)
        missing += t->vocabulary.byte_tokens[byte] < 0;
    int used = snprintf(t->description, sizeof(t->description), "%s, pre-tokenizer %.64s",
                        bytes ? "byte-level BPE" : "BPE over characters",
                        spec->pretokenizer_name != NULL ? spec->pretokenizer_name : "none");
    if (missing > 0 && (bytes || spec->byte_fallback))
        snprintf(t->description + used, sizeof(t->description) - (size_t)used,
                 ", %d of 256 bytes without a token", missing);
}

static int open_parts(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) {
    if (vocabulary_init(spec, &t->vocabulary, err) != 0 || open_ids(t, spec, err) != 0 ||
        bpe_init(spec, &t->vocabulary, &t->bpe, err) != 0 ||
        normalizer_init(spec, &t->normalizer, err) != 0 ||
        pretokenizer_create(spec, &t->pretokenizer, err) != 0 ||
        added_tokens_init(spec, &t->vocabulary, false, &t->normalizer, &t->added, err) != 0 ||
        added_tokens_init(spec, &t->vocabulary, true, &t->normalizer, &t->added_normalized, err) !=
            0)
        return -1;
    describe(t, spec);
    return 0;
}

int tokenizer_create(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err) {
    struct tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a tokenizer");
    if (open_parts(t, spec, err) != 0) {
        tokenizer_close(t);
        return -1;
    }
    *out = t;
    return 0;
}

/* Builds a tokenizer from a spec. */
static int open_spec(struct tokenizer_spec *spec, const struct model *model, struct tokenizer **out,
                     struct error *err) {
    struct tokenizer *t = NULL;
    if (tokenizer_spec_fit(spec, model->config.vocab_size, err) != 0 ||
        tokenizer_create(spec, &t, err) != 0)
        return -1;
    for (int i = 0; i < model->num_eos_tokens; i++) {
        if (add_eos(t, model->eos_tokens[i], err) != 0) {
            tokenizer_close(t);
            return -1;
        }
    }
    *out = t;
    return 0;
}

int tokenizer_open(const struct model *model, struct tokenizer **out, struct error *err) {
    struct tokenizer_spec spec = {0};
    struct error reason = {0};
    bool is_folder = model->folder != NULL;
    if (is_folder && tokenizer_spec_read_json(model->folder, &spec, err) != 0)
        return -1;
    int status = is_folder ? 0 : tokenizer_spec_read_gguf(model->file, &spec, &reason);
    if (status == 0)
        status = open_spec(&spec, model, out, &reason);
    tokenizer_spec_finish(&spec);
    if (status != 0)
        return error_set(err, reason.code, "%s: %s",
                         is_folder ? model->folder : tensor_file_path(model->file), reason.message);
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (tokenizer == NULL)
        return;
    added_tokens_finish(&tokenizer->added);
    added_tokens_finish(&tokenizer->added_normalized);
    bpe_finish(&tokenizer->bpe);
    normalizer_finish(&tokenizer->normalizer);
    vocabulary_finish(&tokenizer->vocabulary);
    pretokenizer_destroy(tokenizer->pretokenizer);
    free(tokenizer->named);
    free(tokenizer);
}

/* --- Encoding --- */

struct encoding {
    const struct tokenizer *tokenizer;
    const char *text; /* as it came */
    struct client_spans client;
    struct text_span *mapped; /* [client.count] those of a normalised run */
    struct pretokenizer_scratch *pretokenizer_scratch;
    struct normalizer_scratch normalizer_scratch, part_scratch;
    struct bpe_scratch bpe_scratch;
    struct token_sink sink;
};

static int encode_piece(void *context, const char *piece, size_t length) {
    struct encoding *e = context;
    return bpe_encode(&e->tokenizer->bpe, piece, length, &e->bpe_scratch, &e->sink);
}

/* Text between added tokens, and its place. */
typedef int (*encode_span)(struct encoding *e, const char *text, size_t length,
                           enum pretokenizer_place place);

static int encode_plain(struct encoding *e, const char *text, size_t length,
                        enum pretokenizer_place place) {
    return pretokenizer_run(e->tokenizer->pretokenizer, e->pretokenizer_scratch, text, length,
                            place, encode_piece, e);
}

/* Cuts the added tokens out of text and hands what is between to `encode`. */
static int encode_around(struct encoding *e, const struct added_tokens *added, struct text text,
                         const struct client_spans *client, enum pretokenizer_place place,
                         encode_span encode) {
    struct added_match match = {0};
    for (size_t used = 0; match.token >= 0; used = match.end) {
        match = added_tokens_find(added, text.data, text.length, match.next, used, client);
        int status = match.start > used ? encode(e, text.data + used, match.start - used,
                                                 used == 0 ? place : PRETOKENIZER_INSIDE)
                                        : 0;
        if (status != 0)
            return status;
        if (match.token >= 0)
            token_sink_push(&e->sink, match.token);
    }
    return 0;
}

static bool is_valid_utf8(struct text text) {
    return utf8_valid_prefix(text.data, text.length) == text.length;
}

static const struct text_span whole = {0, SIZE_MAX};

/* Returns where the part of text[at..end) ends that is all a client's, or all not: *out_client. */
static size_t part_end(const struct encoding *e, size_t at, size_t end, bool *out_client) {
    struct text_span span = client_spans_from(&e->client, at);
    *out_client = span.begin <= at;
    size_t part = *out_client ? span.end : span.begin;
    return part < end ? part : end;
}

/* Normalises the next part, which must be what stands at form.data[*used]. Returns 1 if it is. */
static int match_part(struct encoding *e, struct text part, bool continues, struct text form,
                      size_t *used) {
    if (!is_valid_utf8(part))
        return 0;
    int status =
        normalizer_run(&e->tokenizer->normalizer, &e->part_scratch, part, continues, &part);
    if (status != 0)
        return status;
    if (part.length > form.length - *used ||
        (part.length > 0 && memcmp(form.data + *used, part.data, part.length) != 0))
        return 0;
    *used += part.length;
    return 1;
}

/* Finds the client's parts of a run in its normalised form. The parts are normalised one by one: if
 * what they become is, in a row, the form of the whole, each is where it stands in it. If it is
 * not, as where a mark in one changes a letter in the other, all of the run counts as the
 * client's. */
static int find_client(struct encoding *e, struct text run, bool continues, struct text form,
                       struct client_spans *out) {
    size_t begin = (size_t)(run.data - e->text), end = begin + run.length, used = 0;
    struct client_spans found = {e->mapped, 0, e->client.markers_match};
    int status = 1;
    *out = (struct client_spans){&whole, 1, e->client.markers_match};
    for (size_t at = begin, next; status == 1 && at < end; at = next) {
        bool is_client;
        next = part_end(e, at, end, &is_client);
        if (at == begin && next == end) {
            out->count = is_client;
            return 0;
        }
        size_t from = used;
        status = match_part(e, (struct text){e->text + at, next - at}, continues || at > begin,
                            form, &used);
        if (is_client)
            e->mapped[found.count++] = (struct text_span){from, used};
    }
    if (status == 1 && used == form.length)
        *out = found;
    return status < 0 ? status : 0;
}

static int encode_run(struct encoding *e, struct text run, enum pretokenizer_place place) {
    const struct tokenizer *t = e->tokenizer;
    bool continues = place == PRETOKENIZER_CONTINUES;
    struct text form = {0};
    struct client_spans client = {0};
    int status = normalizer_run(&t->normalizer, &e->normalizer_scratch, run, continues, &form);
    if (status == 0 && t->added_normalized.count > 0)
        status = find_client(e, run, continues, form, &client);
    if (status != 0)
        return status;
    return encode_around(e, &t->added_normalized, form, &client, place, encode_plain);
}

/* Encodes text as it came. */
static int encode_raw(struct encoding *e, const char *text, size_t length,
                      enum pretokenizer_place place) {
    while (length > 0) {
        size_t valid = utf8_valid_prefix(text, length);
        int status = valid > 0 ? encode_run(e, (struct text){text, valid}, place) : 0;
        if (status != 0)
            return status;
        text += valid;
        length -= valid;
        place = PRETOKENIZER_CONTINUES;
        if (length > 0) {
            if (encode_piece(e, text, 1) != 0)
                return -1;
            text++;
            length--;
        }
    }
    return 0;
}

static void push_all(struct token_sink *sink, const int32_t *tokens, int count) {
    for (int i = 0; i < count; i++)
        token_sink_push(sink, tokens[i]);
}

static int64_t encode_with(struct encoding *e, size_t length, unsigned flags) {
    const struct tokenizer *t = e->tokenizer;
    bool add_special = (flags & TOKENIZER_ADD_SPECIAL) != 0;
    push_all(&e->sink, t->prefix, add_special ? t->num_prefix : 0);
    int status = encode_around(e, &t->added, (struct text){e->text, length}, &e->client,
                               PRETOKENIZER_BEGINS, encode_raw);
    push_all(&e->sink, t->suffix, add_special ? t->num_suffix : 0);
    return status == 0 ? (int64_t)e->sink.count : status;
}

int64_t tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, size_t length,
                               const struct text_span *client_spans, size_t num_client_spans,
                               unsigned flags, int32_t *out, size_t capacity) {
    size_t budget = normalizer_budget(length);
    struct encoding e = {
        .tokenizer = tokenizer,
        .text = text,
        .client = {client_spans, num_client_spans, false},
        .part_scratch = {.budget_bytes = budget},
        .normalizer_scratch = {.budget_bytes = budget},
        .sink = {.out = out, .capacity = capacity},
    };
    /* Without TOKENIZER_PARSE_SPECIAL, no control token is matched anywhere. */
    if ((flags & TOKENIZER_PARSE_SPECIAL) == 0)
        e.client = (struct client_spans){&whole, 1, true};
    e.mapped = e.client.count < SIZE_MAX / sizeof(*e.mapped)
                   ? malloc((e.client.count + 1) * sizeof(*e.mapped))
                   : NULL;
    e.pretokenizer_scratch = pretokenizer_scratch_create(tokenizer->pretokenizer, length);
    int64_t count = e.mapped != NULL && e.pretokenizer_scratch != NULL
                        ? encode_with(&e, length, flags)
                        : TOKENIZER_NO_MEMORY;
    free(e.mapped);
    pretokenizer_scratch_destroy(e.pretokenizer_scratch);
    normalizer_scratch_finish(&e.normalizer_scratch);
    normalizer_scratch_finish(&e.part_scratch);
    bpe_scratch_finish(&e.bpe_scratch);
    return count;
}

int64_t tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                         unsigned flags, int32_t *out, size_t capacity) {
    return tokenizer_encode_spans(tokenizer, text, length, NULL, 0, flags, out, capacity);
}

void tokenizer_num_added(const struct tokenizer *tokenizer, int *out_before, int *out_behind) {
    *out_before = tokenizer->num_prefix;
    *out_behind = tokenizer->num_suffix;
}

/* --- Tokens --- */

struct text tokenizer_piece(const struct tokenizer *tokenizer, int32_t token) {
    return vocabulary_piece(&tokenizer->vocabulary, token);
}

struct text tokenizer_raw_piece(const struct tokenizer *tokenizer, int32_t token) {
    return vocabulary_raw(&tokenizer->vocabulary, token);
}

size_t tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count,
                        bool skip_special, char *out, size_t capacity) {
    size_t used = 0;
    int strip = tokenizer->strip_leading_spaces;
    for (size_t i = 0; i < count; i++) {
        if (skip_special && tokenizer_is_special(tokenizer, tokens[i]))
            continue;
        struct text piece = tokenizer_piece(tokenizer, tokens[i]);
        for (; strip > 0 && piece.length > 0 && piece.data[0] == ' '; strip--) {
            piece.data++;
            piece.length--;
        }
        strip = piece.length > 0 ? 0 : strip;
        size_t room = used < capacity ? capacity - used : 0;
        if (piece.length > 0 && room > 0)
            memcpy(out + used, piece.data, piece.length < room ? piece.length : room);
        used += piece.length;
    }
    return used;
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer) {
    return tokenizer->vocabulary.size;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token) {
    CHECK(token >= 0 && token < tokenizer->vocabulary.size);
    uint8_t type = tokenizer->vocabulary.types[token];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

bool tokenizer_is_unused(const struct tokenizer *tokenizer, int32_t token) {
    CHECK(token >= 0 && token < tokenizer->vocabulary.size);
    return tokenizer->vocabulary.types[token] == TOKEN_UNUSED;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) {
    return tokenizer->bos;
}

bool tokenizer_is_eos(const struct tokenizer *tokenizer, int32_t token) {
    for (int i = 0; i < tokenizer->num_eos; i++) {
        if (tokenizer->eos[i] == token)
            return true;
    }
    return false;
}

const struct named_token *tokenizer_named_tokens(const struct tokenizer *tokenizer,
                                                 size_t *out_count) {
    *out_count = tokenizer->num_named;
    return tokenizer->named;
}

const int32_t *tokenizer_eos_tokens(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = tokenizer->num_eos;
    return tokenizer->eos;
}

const int32_t *tokenizer_fim(const struct tokenizer *tokenizer) {
    return tokenizer->has_fim ? tokenizer->fim : NULL;
}

const int32_t *tokenizer_fim_marks(const struct tokenizer *tokenizer) {
    return tokenizer->fim_marks;
}

const int32_t *tokenizer_fim_ends(const struct tokenizer *tokenizer, int *out_count) {
    *out_count = tokenizer->num_fim_ends;
    return tokenizer->fim_ends;
}

const char *tokenizer_description(const struct tokenizer *tokenizer) {
    return tokenizer->description;
}
