/* Reads the sections that are lists of steps: "normalizer", "pre_tokenizer" and "decoder". A
 * Sequence, which may hold others, is its members in order. */
#include "models/tokenizer/tokenizer_json.h"

#include <string.h>

static int copy_field(struct tokenizer_json *json, const cJSON *object, const char *where,
                      const char *key, struct text *out) {
    const char *text;
    if (json_field_text(json, object, where, key, &text) != 0)
        return -1;
    return tokenizer_json_copy(json, text, out) ? 0 : tokenizer_json_no_memory(json);
}

/* {"String": "..."} or {"Regex": "..."} */
static int read_pattern(struct tokenizer_json *json, const cJSON *object, const char *where,
                        struct text *out, bool *out_is_regex) {
    const cJSON *pattern = json_field(object, "pattern");
    bool is_regex = json_field(pattern, "Regex") != NULL;
    if (!cJSON_IsObject(pattern) || is_regex == (json_field(pattern, "String") != NULL))
        return tokenizer_json_refuse(
            json, "%s.pattern is neither {\"String\": ...} nor {\"Regex\": ...}", where);
    *out_is_regex = is_regex;
    if (copy_field(json, pattern, where, is_regex ? "Regex" : "String", out) != 0)
        return -1;
    return out->length > 0 ? 0 : tokenizer_json_refuse(json, "%s.pattern is empty", where);
}

static int no_room(struct tokenizer_json *json, const char *where) {
    return tokenizer_json_refuse(json, "%s has more than the %d steps supported", where,
                                 TOKENIZER_MAX_STEPS);
}

/* --- normalizer --- */

enum { SEQUENCE, STRIP, PREPEND, REPLACE, LOWERCASE, NFC, NFKC, NUM_NORMALIZERS };
static const char *const normalizers[NUM_NORMALIZERS] = {"Sequence",  "Strip", "Prepend", "Replace",
                                                         "Lowercase", "NFC",   "NFKC"};

static int read_normalizer_step(struct tokenizer_json *json, const cJSON *object, int type,
                                struct normalizer_step *step) {
    const char *where = "normalizer";
    bool is_regex;
    switch (type) {
    case NFC:
        step->kind = NORMALIZER_NFC;
        return 0;
    case NFKC:
        step->kind = NORMALIZER_NFKC;
        return 0;
    case LOWERCASE:
        step->kind = NORMALIZER_LOWERCASE;
        return 0;
    case PREPEND:
        step->kind = NORMALIZER_PREPEND;
        return copy_field(json, object, where, "prepend", &step->content);
    case STRIP:
        step->kind = NORMALIZER_STRIP;
        return json_field_bool(json, object, where, "strip_left", true, &step->left) != 0 ||
                       json_field_bool(json, object, where, "strip_right", true, &step->right) != 0
                   ? -1
                   : 0;
    default:
        step->kind = NORMALIZER_REPLACE;
        if (read_pattern(json, object, where, &step->pattern, &is_regex) != 0 ||
            copy_field(json, object, where, "content", &step->content) != 0)
            return -1;
        return is_regex ? tokenizer_json_refuse(
                              json, "normalizer.pattern is a regex, only strings are supported")
                        : 0;
    }
}

int tokenizer_json_normalizer(struct tokenizer_json *json, const cJSON *section) {
    struct tokenizer_spec *spec = json->spec;
    const cJSON *list, *item;
    int type;
    if (section == NULL)
        return 0;
    if (json_field_choice(json, section, "normalizer", "type", normalizers, NUM_NORMALIZERS,
                          &type) != 0)
        return -1;
    if (type != SEQUENCE)
        return spec->num_normalizers == TOKENIZER_MAX_STEPS
                   ? no_room(json, "normalizer")
                   : read_normalizer_step(json, section, type,
                                          &spec->normalizers[spec->num_normalizers++]);
    if (json_field_array(json, section, "normalizer", "normalizers", &list) != 0)
        return -1;
    cJSON_ArrayForEach(item, list) {
        if (tokenizer_json_normalizer(json, item) != 0)
            return -1;
    }
    return 0;
}

/* --- pre_tokenizer --- */

static const char *const behaviours[] = {
    [SPLIT_ISOLATED] = "Isolated",
    [SPLIT_REMOVED] = "Removed",
    [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    [SPLIT_CONTIGUOUS] = "Contiguous",
};
#define NUM_BEHAVIOURS 5

static int read_behaviour(struct tokenizer_json *json, const cJSON *object, const char *where,
                          enum split_behaviour *out) {
    int choice;
    if (json_field_choice(json, object, where, "behavior", behaviours, NUM_BEHAVIOURS, &choice) !=
        0)
        return -1;
    *out = (enum split_behaviour)choice;
    return 0;
}

static int read_split(struct tokenizer_json *json, const cJSON *object,
                      struct pretokenizer_step *step) {
    const char *where = "pre_tokenizer";
    step->kind = PRETOKENIZER_SPLIT;
    if (read_pattern(json, object, where, &step->pattern, &step->pattern_is_regex) != 0 ||
        read_behaviour(json, object, where, &step->behaviour) != 0)
        return -1;
    return json_field_bool(json, object, where, "invert", false, &step->invert);
}

static int read_punctuation(struct tokenizer_json *json, const cJSON *object,
                            struct pretokenizer_step *step) {
    step->kind = PRETOKENIZER_PUNCTUATION;
    step->behaviour = SPLIT_ISOLATED;
    if (json_field(object, "behavior") == NULL)
        return 0;
    return read_behaviour(json, object, "pre_tokenizer", &step->behaviour);
}

static int read_byte_level(struct tokenizer_json *json, const cJSON *object,
                           struct pretokenizer_step *step) {
    const char *where = "pre_tokenizer";
    step->kind = PRETOKENIZER_BYTE_LEVEL;
    json->spec->alphabet = ALPHABET_BYTES;
    if (json_field_bool(json, object, where, "add_prefix_space", true, &step->add_prefix_space) !=
        0)
        return -1;
    return json_field_bool(json, object, where, "use_regex", true, &step->use_regex);
}

/* Files written before 2024 say add_prefix_space where newer ones say prepend_scheme. */
static int read_metaspace(struct tokenizer_json *json, const cJSON *object,
                          struct pretokenizer_step *step) {
    static const char *const schemes[] = {
        [PREPEND_NEVER] = "never", [PREPEND_FIRST] = "first", [PREPEND_ALWAYS] = "always"};
    const char *where = "pre_tokenizer";
    int scheme = PREPEND_ALWAYS;
    bool prefix;
    step->kind = PRETOKENIZER_METASPACE;
    if (copy_field(json, object, where, "replacement", &step->replacement) != 0 ||
        json_field_bool(json, object, where, "split", true, &step->split) != 0 ||
        json_field_bool(json, object, where, "add_prefix_space", true, &prefix) != 0)
        return -1;
    if (json_field(object, "prepend_scheme") != NULL &&
        json_field_choice(json, object, where, "prepend_scheme", schemes, 3, &scheme) != 0)
        return -1;
    if (strcmp(step->replacement.data, TOKENIZER_SPACE) != 0)
        return tokenizer_json_refuse(json, "%s.replacement is \"%.16s\", supported is U+2581",
                                     where, step->replacement.data);
    if (!prefix && scheme != PREPEND_NEVER)
        return tokenizer_json_refuse(
            json, "%s: add_prefix_space is false and prepend_scheme not \"never\"", where);
    step->prepend = (enum prepend_scheme)scheme;
    return 0;
}

enum { STEPS, SPLIT, DIGITS, PUNCTUATION, BYTE_LEVEL, METASPACE, NUM_PRETOKENIZERS };
static const char *const pretokenizers[NUM_PRETOKENIZERS] = {
    "Sequence", "Split", "Digits", "Punctuation", "ByteLevel", "Metaspace"};

static int read_pretokenizer_step(struct tokenizer_json *json, const cJSON *object, int type) {
    struct tokenizer_spec *spec = json->spec;
    if (spec->num_pretokenizers == TOKENIZER_MAX_STEPS)
        return no_room(json, "pre_tokenizer");
    struct pretokenizer_step *step = &spec->pretokenizers[spec->num_pretokenizers++];
    switch (type) {
    case SPLIT:
        return read_split(json, object, step);
    case DIGITS:
        step->kind = PRETOKENIZER_DIGITS;
        return json_field_bool(json, object, "pre_tokenizer", "individual_digits", false,
                               &step->individual);
    case PUNCTUATION:
        return read_punctuation(json, object, step);
    case BYTE_LEVEL:
        return read_byte_level(json, object, step);
    default:
        return read_metaspace(json, object, step);
    }
}

static int read_pretokenizers(struct tokenizer_json *json, const cJSON *section) {
    const cJSON *list, *item;
    int type;
    if (json_field_choice(json, section, "pre_tokenizer", "type", pretokenizers, NUM_PRETOKENIZERS,
                          &type) != 0)
        return -1;
    if (type != STEPS)
        return read_pretokenizer_step(json, section, type);
    if (json_field_array(json, section, "pre_tokenizer", "pretokenizers", &list) != 0)
        return -1;
    cJSON_ArrayForEach(item, list) {
        if (read_pretokenizers(json, item) != 0)
            return -1;
    }
    return 0;
}

int tokenizer_json_pretokenizer(struct tokenizer_json *json, const cJSON *section) {
    struct tokenizer_spec *spec = json->spec;
    spec->alphabet = ALPHABET_CHARACTERS;
    if (section != NULL && read_pretokenizers(json, section) != 0)
        return -1;
    for (int i = 0; i + 1 < spec->num_pretokenizers; i++) {
        if (spec->pretokenizers[i].kind == PRETOKENIZER_BYTE_LEVEL)
            return tokenizer_json_refuse(json, "pre_tokenizer: ByteLevel is not the last step");
    }
    return 0;
}

/* --- decoder --- */

/* The tokenizer decodes by the alphabet (bytes, or characters with U+2581 for a space and byte
 * tokens); here is checked that the section means just that. A file without one gets that too. */
enum {
    DECODER_SEQUENCE,
    DECODER_BYTE_LEVEL,
    DECODER_REPLACE,
    DECODER_BYTE_FALLBACK,
    DECODER_FUSE,
    DECODER_STRIP,
    DECODER_METASPACE,
    NUM_DECODERS
};
static const char *const decoders[NUM_DECODERS] = {
    "Sequence", "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"};

/* The decoders of a sequence that have been read. */
struct decoder_state {
    bool fused;
    bool byte_level;
    bool byte_fallback;
};

static int read_decoder_replace(struct tokenizer_json *json, const cJSON *object) {
    const cJSON *from = json_field(json_field(object, "pattern"), "String");
    const cJSON *to = json_field(object, "content");
    if (!cJSON_IsString(from) || !cJSON_IsString(to) ||
        strcmp(from->valuestring, TOKENIZER_SPACE) != 0 || strcmp(to->valuestring, " ") != 0)
        return tokenizer_json_refuse(json, "decoder: Replace is not of U+2581 by \" \"");
    json->spec->space_replacement = true;
    return 0;
}

static int read_decoder_strip(struct tokenizer_json *json, const cJSON *object, bool fused) {
    const char *content;
    int32_t start, stop;
    if (json_field_text(json, object, "decoder", "content", &content) != 0 ||
        json_field_index(json, object, "decoder", "start", 16, &start) != 0 ||
        json_field_index(json, object, "decoder", "stop", 16, &stop) != 0)
        return -1;
    if (strcmp(content, " ") != 0 || stop != 0 || !fused)
        return tokenizer_json_refuse(
            json, "decoder: Strip is not of spaces at the start of the fused text");
    json->spec->strip_leading_spaces += start;
    return 0;
}

static int read_decoder_metaspace(struct tokenizer_json *json, const cJSON *object) {
    const cJSON *scheme = json_field(object, "prepend_scheme");
    const cJSON *prefix = json_field(object, "add_prefix_space");
    const char *replacement;
    if (json_field_text(json, object, "decoder", "replacement", &replacement) != 0)
        return -1;
    if (strcmp(replacement, TOKENIZER_SPACE) != 0)
        return tokenizer_json_refuse(json, "decoder.replacement is \"%.16s\", supported is U+2581",
                                     replacement);
    json->spec->space_replacement = true;
    if (!cJSON_IsFalse(prefix) &&
        !(cJSON_IsString(scheme) && strcmp(scheme->valuestring, "never") == 0))
        json->spec->strip_leading_spaces++;
    return 0;
}

static int read_decoder(struct tokenizer_json *json, const cJSON *section,
                        struct decoder_state *state) {
    const cJSON *list, *item;
    int type;
    if (json_field_choice(json, section, "decoder", "type", decoders, NUM_DECODERS, &type) != 0)
        return -1;
    switch (type) {
    case DECODER_SEQUENCE:
        if (json_field_array(json, section, "decoder", "decoders", &list) != 0)
            return -1;
        cJSON_ArrayForEach(item, list) {
            if (read_decoder(json, item, state) != 0)
                return -1;
        }
        return 0;
    case DECODER_REPLACE:
        return read_decoder_replace(json, section);
    case DECODER_STRIP:
        return read_decoder_strip(json, section, state->fused);
    case DECODER_METASPACE:
        return read_decoder_metaspace(json, section);
    case DECODER_BYTE_LEVEL:
        state->byte_level = true;
        return 0;
    case DECODER_BYTE_FALLBACK:
        state->byte_fallback = true;
        return 0;
    default:
        state->fused = true;
        return 0;
    }
}

int tokenizer_json_decoder(struct tokenizer_json *json, const cJSON *section) {
    struct tokenizer_spec *spec = json->spec;
    struct decoder_state state = {0};
    bool bytes = spec->alphabet == ALPHABET_BYTES;
    if (section == NULL) {
        spec->space_replacement = !bytes;
        return 0;
    }
    if (read_decoder(json, section, &state) != 0)
        return -1;
    if (state.byte_level != bytes)
        return tokenizer_json_refuse(json, "decoder and pre_tokenizer do not agree on ByteLevel");
    if (bytes && (spec->space_replacement || spec->strip_leading_spaces > 0))
        return tokenizer_json_refuse(json, "decoder: ByteLevel stands with Replace or Strip");
    if (!bytes && spec->byte_fallback && !state.byte_fallback)
        return tokenizer_json_refuse(json,
                                     "decoder has no ByteFallback, the model has byte_fallback");
    return 0;
}
