/* The "decoder" section. The tokenizer decodes by the alphabet (bytes, or characters with U+2581
 * for a space and byte tokens); here is checked that the section means just that. A file without
 * one gets that too. */
#include "models/tokenizer/tokenizer_json.h"

#include <string.h>

enum { SEQUENCE, BYTE_LEVEL, REPLACE, BYTE_FALLBACK, FUSE, STRIP, METASPACE, NUM_DECODERS };
static const char *const decoders[NUM_DECODERS] = {
    "Sequence", "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"};

/* The decoders of a sequence that have been read. */
struct decoder_state {
    bool fused;
    bool byte_level;
    bool byte_fallback;
};

static int read_replace(struct tokenizer_json *json, const cJSON *object) {
    const cJSON *from = json_field(json_field(object, "pattern"), "String");
    const cJSON *to = json_field(object, "content");
    if (!cJSON_IsString(from) || !cJSON_IsString(to) ||
        strcmp(from->valuestring, TOKENIZER_SPACE) != 0 || strcmp(to->valuestring, " ") != 0)
        return tokenizer_json_refuse(json, "decoder: Replace is not of U+2581 by \" \"");
    json->spec->space_replacement = true;
    return 0;
}

static int read_strip(struct tokenizer_json *json, const cJSON *object, bool fused) {
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

static int read_metaspace(struct tokenizer_json *json, const cJSON *object) {
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
    case SEQUENCE:
        if (json_field_array(json, section, "decoder", "decoders", &list) != 0)
            return -1;
        cJSON_ArrayForEach(item, list) {
            if (read_decoder(json, item, state) != 0)
                return -1;
        }
        return 0;
    case REPLACE:
        return read_replace(json, section);
    case STRIP:
        return read_strip(json, section, state->fused);
    case METASPACE:
        return read_metaspace(json, section);
    case BYTE_LEVEL:
        state->byte_level = true;
        return 0;
    case BYTE_FALLBACK:
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
