/* Reads the tokenizer in a GGUF file's metadata (keys tokenizer.ggml.*, ggml-org/ggml
 * docs/gguf.md). Two kinds are known: "gpt2", BPE over bytes with merges and a pre-tokenizer named
 * by `pre`; "llama", SentencePiece's BPE over characters with scores.
 *
 * What the second kind leaves unsaid is as in the tokenizer.json that Transformers makes of such a
 * model: U+2581 for a space, one in front of each text between special tokens unless
 * add_space_prefix is false, bytes for unknown characters. */
#include "models/tokenizer/tokenizer_spec.h"

#include "config/base/log.h"
#include "config/base/utf8.h"
#include "models/tokenizer/pretokenizer_presets.h"
#include "models/tokenizer/vocabulary.h"

#include <math.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* Ends of turn or text in the vocabularies of known chat models; see tokenizer.h. */
static const char *const eos_names[] = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>",      "<|eom_id|>", "<|end_of_text|>",
    "<|end|>",    "<|eot|>",       "<|end_of_turn|>", "<EOT>",      "<end_of_turn>",
};

/* --- Values --- */

static int read_string(const struct tensor_file *file, const char *key, struct text *out,
                       struct error *err) {
    const struct metadata *value = tensor_file_find_metadata(file, key);
    if (value == NULL)
        return 0;
    if (value->type != METADATA_STRING)
        return error_set(err, ERROR_MODEL, "%s is not a string", key);
    *out = value->as_string;
    return 0;
}

/* Reads an integer 0..max; *out is left as it is when the key is missing. */
static int read_number(const struct tensor_file *file, const char *key, int32_t max, int32_t *out,
                       struct error *err) {
    const struct metadata *value = tensor_file_find_metadata(file, key);
    if (value == NULL)
        return 0;
    if (value->type == METADATA_INT && value->as_int < 0)
        return error_set(err, ERROR_MODEL, "%s is %lld, allowed 0 to %d", key,
                         (long long)value->as_int, max);
    if (value->type != METADATA_UINT && value->type != METADATA_INT)
        return error_set(err, ERROR_MODEL, "%s is not an integer", key);
    uint64_t number = value->type == METADATA_INT ? (uint64_t)value->as_int : value->as_uint;
    if (number > (uint64_t)max)
        return error_set(err, ERROR_MODEL, "%s is %llu, allowed 0 to %d", key,
                         (unsigned long long)number, max);
    *out = (int32_t)number;
    return 0;
}

/* Reads a token's id, which counts as missing where the vocabulary has no such token, as in
 * llama.cpp. */
static int read_id(const struct tensor_file *file, const char *key,
                   const struct tokenizer_spec *spec, int32_t *out, struct error *err) {
    const struct metadata *value = tensor_file_find_metadata(file, key);
    int64_t size = spec->num_tokens;
    bool is_token =
        value == NULL || (value->type == METADATA_INT
                              ? value->as_int >= 0 && value->as_int < size
                              : value->type != METADATA_UINT || value->as_uint < (uint64_t)size);
    if (is_token)
        return read_number(file, key, spec->num_tokens - 1, out, err);
    log_warning("%s is not an id of 0 to %d and counts as missing", key, spec->num_tokens - 1);
    return 0;
}

/* --- Vocabulary --- */

static int read_tokens(const struct tensor_file *file, struct tokenizer_spec *spec,
                       struct error *err) {
    const char *key = KEY("tokens");
    const struct metadata *tokens = tensor_file_find_metadata(file, key);
    if (tokens == NULL)
        return error_set(err, ERROR_MODEL, "%s is missing", key);
    if (tokens->type != METADATA_ARRAY || tokens->as_array.element_type != METADATA_STRING)
        return error_set(err, ERROR_MODEL, "%s is not an array of strings", key);
    if (tokens->as_array.count < 1 || tokens->as_array.count > VOCABULARY_MAX_TOKENS)
        return error_set(err, ERROR_MODEL, "%s has %llu elements, allowed 1 to %d", key,
                         (unsigned long long)tokens->as_array.count, VOCABULARY_MAX_TOKENS);
    spec->num_tokens = (int32_t)tokens->as_array.count;
    spec->tokens = tokenizer_spec_alloc(spec, (size_t)spec->num_tokens * sizeof(*spec->tokens));
    spec->types = tokenizer_spec_alloc(spec, (size_t)spec->num_tokens);
    if (spec->tokens == NULL || spec->types == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %d tokens",
                         spec->num_tokens);
    for (int32_t i = 0; i < spec->num_tokens; i++)
        spec->tokens[i] = metadata_array_string(tokens, (uint64_t)i);
    return 0;
}

/* Reads an array with a number for each token; NULL if the file has none. */
static int find_numbers(const struct tensor_file *file, const char *key, bool allow_float,
                        const struct tokenizer_spec *spec, const struct metadata **out,
                        struct error *err) {
    const struct metadata *array = tensor_file_find_metadata(file, key);
    *out = array;
    if (array == NULL)
        return 0;
    enum metadata_type type =
        array->type == METADATA_ARRAY ? array->as_array.element_type : METADATA_ARRAY;
    if (type != METADATA_INT && type != METADATA_UINT && (type != METADATA_FLOAT || !allow_float))
        return error_set(err, ERROR_MODEL, "%s is not an array of %s", key,
                         allow_float ? "numbers" : "integers");
    if (array->as_array.count != (uint64_t)spec->num_tokens)
        return error_set(err, ERROR_MODEL, "%s has %llu elements, tokenizer.ggml.tokens has %d",
                         key, (unsigned long long)array->as_array.count, spec->num_tokens);
    return 0;
}

/* A file without types has normal tokens only. */
static int read_types(const struct tensor_file *file, struct tokenizer_spec *spec,
                      struct error *err) {
    const struct metadata *types;
    if (find_numbers(file, KEY("token_type"), false, spec, &types, err) != 0)
        return -1;
    for (int32_t i = 0; i < spec->num_tokens; i++) {
        double type = types == NULL ? TOKEN_NORMAL : metadata_array_number(types, (uint64_t)i);
        if (type == 0) /* "undefined", which llama.cpp takes for normal */
            type = TOKEN_NORMAL;
        if (!(type >= TOKEN_NORMAL && type <= TOKEN_BYTE))
            return error_set(err, ERROR_MODEL, KEY("token_type") "[%d] is %.0f, allowed %d to %d",
                             i, type, TOKEN_NORMAL, TOKEN_BYTE);
        spec->types[i] = (uint8_t)type;
    }
    return 0;
}

static int read_scores(const struct tensor_file *file, struct tokenizer_spec *spec,
                       struct error *err) {
    const struct metadata *scores;
    if (find_numbers(file, KEY("scores"), true, spec, &scores, err) != 0)
        return -1;
    if (scores == NULL)
        return error_set(err, ERROR_MODEL, KEY("scores") " is missing");
    spec->scores = tokenizer_spec_alloc(spec, (size_t)spec->num_tokens * sizeof(*spec->scores));
    if (spec->scores == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %d scores", spec->num_tokens);
    for (int32_t i = 0; i < spec->num_tokens; i++) {
        spec->scores[i] = (float)metadata_array_number(scores, (uint64_t)i);
        if (!isfinite(spec->scores[i]))
            return error_set(err, ERROR_MODEL, KEY("scores") "[%d] is not a finite number", i);
    }
    return 0;
}

static int read_merge(struct text text, size_t i, struct merge_texts *out, struct error *err) {
    const char *space = text.length == 0 ? NULL : memchr(text.data, ' ', text.length);
    size_t left_length = space == NULL ? 0 : (size_t)(space - text.data);
    size_t right_length = space == NULL ? 0 : text.length - left_length - 1;
    if (left_length == 0 || right_length == 0 || memchr(space + 1, ' ', right_length) != NULL)
        return error_set(err, ERROR_MODEL,
                         KEY("merges") "[%zu] is not two tokens with a space between", i);
    *out = (struct merge_texts){{text.data, left_length}, {space + 1, right_length}};
    return 0;
}

static int read_merges(const struct tensor_file *file, struct tokenizer_spec *spec,
                       struct error *err) {
    const char *key = KEY("merges");
    const struct metadata *merges = tensor_file_find_metadata(file, key);
    if (merges == NULL)
        return error_set(err, ERROR_MODEL, "%s is missing", key);
    if (merges->type != METADATA_ARRAY ||
        (merges->as_array.element_type != METADATA_STRING && merges->as_array.count > 0))
        return error_set(err, ERROR_MODEL, "%s is not an array of strings", key);
    spec->num_merges = (size_t)merges->as_array.count;
    spec->merges = tokenizer_spec_alloc(spec, spec->num_merges * sizeof(*spec->merges));
    if (spec->merges == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu merges", spec->num_merges);
    for (size_t i = 0; i < spec->num_merges; i++) {
        if (read_merge(metadata_array_string(merges, i), i, &spec->merges[i], err) != 0)
            return -1;
    }
    return 0;
}

/* Phi-3's added tokens consume the blanks after them, which a GGUF file cannot express: the rule is
 * that of llama.cpp's llama-vocab.cpp. */
static bool takes_blanks(struct text token, bool special) {
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (text_is(token, others[i]))
            return false;
    return special || text_is(token, "</s>");
}

/* Control tokens match where special tokens are parsed, those that users added in every text. */
static int list_added(const struct tensor_file *file, struct tokenizer_spec *spec,
                      struct error *err) {
    spec->added = tokenizer_spec_alloc(spec, (size_t)spec->num_tokens * sizeof(*spec->added));
    if (spec->added == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for added tokens");
    struct text architecture = {"", 0};
    if (read_string(file, "general.architecture", &architecture, err) != 0)
        return -1;
    bool is_phi3 = text_is(architecture, "phi3");
    for (int32_t i = 0; i < spec->num_tokens; i++) {
        uint8_t type = spec->types[i];
        bool special = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
        if (special || type == TOKEN_USER_DEFINED)
            spec->added[spec->num_added++] =
                (struct added_token){.id = i,
                                     .special = special,
                                     .rstrip = is_phi3 && takes_blanks(spec->tokens[i], special)};
    }
    return 0;
}

/* --- Special tokens --- */

static int read_template(const struct tensor_file *file, bool adds_bos, struct tokenizer_spec *spec,
                         struct error *err) {
    int32_t add_bos = adds_bos, add_eos = 0, eos = -1;
    spec->bos = -1;
    if (read_id(file, KEY("bos_token_id"), spec, &spec->bos, err) != 0 ||
        read_id(file, KEY("eos_token_id"), spec, &eos, err) != 0 ||
        read_number(file, KEY("add_bos_token"), 1, &add_bos, err) != 0 ||
        read_number(file, KEY("add_eos_token"), 1, &add_eos, err) != 0)
        return -1;
    if (add_bos && spec->bos >= 0)
        spec->prefix[spec->num_prefix++] = spec->bos;
    if (add_eos && eos >= 0)
        spec->suffix[spec->num_suffix++] = eos;
    return 0;
}

static void add_eos(struct tokenizer_spec *spec, int32_t token) {
    for (int i = 0; i < spec->num_eos; i++) {
        if (spec->eos[i] == token)
            return;
    }
    if (token >= 0 && spec->num_eos < TOKENIZER_MAX_EOS)
        spec->eos[spec->num_eos++] = token;
}

bool tokenizer_spec_ends_text(struct text name) {
    for (size_t i = 0; i < sizeof(eos_names) / sizeof(eos_names[0]); i++)
        if (text_is(name, eos_names[i]))
            return true;
    return false;
}

static void add_eos_named(struct tokenizer_spec *spec) {
    for (size_t i = 0; i < spec->num_added; i++) {
        int32_t token = spec->added[i].id;
        if (spec->types[token] == TOKEN_CONTROL && tokenizer_spec_ends_text(spec->tokens[token]))
            add_eos(spec, token);
    }
}

static int read_eos(const struct tensor_file *file, struct tokenizer_spec *spec,
                    struct error *err) {
    static const char *const keys[] = {KEY("eos_token_id"), KEY("eot_token_id"),
                                       KEY("eom_token_id")};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        int32_t token = -1;
        if (read_id(file, keys[i], spec, &token, err) != 0)
            return -1;
        add_eos(spec, token);
    }
    add_eos_named(spec);
    return 0;
}

static int read_named(const struct tensor_file *file, struct tokenizer_spec *spec,
                      struct error *err) {
    static const struct {
        const char *key, *name;
    } named[] = {
        {KEY("unknown_token_id"), "unk_token"},   {KEY("padding_token_id"), "pad_token"},
        {KEY("seperator_token_id"), "sep_token"}, {KEY("cls_token_id"), "cls_token"},
        {KEY("mask_token_id"), "mask_token"},
    };
    spec->named =
        tokenizer_spec_alloc(spec, sizeof(named) / sizeof(named[0]) * sizeof(*spec->named));
    if (spec->named == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for special tokens");
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        int32_t token = -1;
        if (read_id(file, named[i].key, spec, &token, err) != 0)
            return -1;
        if (token >= 0)
            spec->named[spec->num_named++] = (struct named_token){named[i].name, token};
    }
    return 0;
}

static int read_fim_marks(const struct tensor_file *file, struct tokenizer_spec *spec,
                          struct error *err) {
    static const char *const keys[NUM_FIM_MARKS] = {[FIM_PAD] = KEY("fim_pad_token_id"),
                                                    [FIM_REPO] = KEY("fim_rep_token_id"),
                                                    [FIM_FILE] = KEY("fim_sep_token_id")};
    for (size_t mark = 0; mark < NUM_FIM_MARKS; mark++) {
        int32_t token = -1;
        if (read_id(file, keys[mark], spec, &token, err) != 0)
            return -1;
        spec->has_fim_marks[mark] = token >= 0;
        spec->fim_marks[mark] = token;
    }
    return 0;
}

/* The second name of each is that of older files. */
static int read_fim(const struct tensor_file *file, struct tokenizer_spec *spec,
                    struct error *err) {
    static const char *const keys[NUM_FIM_PARTS][2] = {
        [FIM_PREFIX] = {KEY("fim_pre_token_id"), KEY("prefix_token_id")},
        [FIM_SUFFIX] = {KEY("fim_suf_token_id"), KEY("suffix_token_id")},
        [FIM_MIDDLE] = {KEY("fim_mid_token_id"), KEY("middle_token_id")},
    };
    for (size_t part = 0; part < NUM_FIM_PARTS; part++) {
        int32_t token = -1;
        if (read_id(file, keys[part][1], spec, &token, err) != 0 ||
            read_id(file, keys[part][0], spec, &token, err) != 0)
            return -1;
        spec->names_fim[part] = token >= 0;
        spec->fim[part] = token;
    }
    return read_fim_marks(file, spec, err);
}

/* --- Kinds --- */

static int read_bytes_kind(const struct tensor_file *file, struct tokenizer_spec *spec,
                           struct error *err) {
    struct text pre = {"default", strlen("default")};
    const struct pretokenizer_preset *preset = NULL;
    if (read_string(file, KEY("pre"), &pre, err) != 0 ||
        pretokenizer_preset_find(pre, &preset, err) != 0)
        return -1;
    spec->alphabet = ALPHABET_BYTES;
    spec->unknown = -1;
    spec->pretokenizer_name = preset->names[0];
    spec->ignore_merges = preset->ignore_merges;
    spec->num_pretokenizers = preset->num_steps;
    memcpy(spec->pretokenizers, preset->steps, sizeof(preset->steps));
    if (preset->nfc)
        spec->normalizers[spec->num_normalizers++].kind = NORMALIZER_NFC;
    return read_merges(file, spec, err) != 0 ? -1
                                             : read_template(file, preset->adds_bos, spec, err);
}

static int read_unknown(const struct tensor_file *file, struct tokenizer_spec *spec,
                        struct error *err) {
    spec->unknown = -1;
    for (int32_t i = spec->num_tokens; i-- > 0;)
        spec->unknown = spec->types[i] == TOKEN_UNKNOWN ? i : spec->unknown;
    return read_id(file, KEY("unknown_token_id"), spec, &spec->unknown, err);
}

static int read_characters_kind(const struct tensor_file *file, struct tokenizer_spec *spec,
                                struct error *err) {
    const struct text blank = {" ", 1}, space = {TOKENIZER_SPACE, strlen(TOKENIZER_SPACE)};
    int32_t add_space_prefix = 1;
    if (read_number(file, KEY("add_space_prefix"), 1, &add_space_prefix, err) != 0)
        return -1;
    spec->alphabet = ALPHABET_CHARACTERS;
    spec->byte_fallback = true;
    spec->fuse_unknown = true;
    spec->space_replacement = true;
    spec->strip_leading_spaces = add_space_prefix;
    if (add_space_prefix)
        spec->normalizers[spec->num_normalizers++] =
            (struct normalizer_step){.kind = NORMALIZER_PREPEND, .content = space};
    spec->normalizers[spec->num_normalizers++] =
        (struct normalizer_step){.kind = NORMALIZER_REPLACE, .pattern = blank, .content = space};
    if (read_scores(file, spec, err) != 0 || read_unknown(file, spec, err) != 0)
        return -1;
    return read_template(file, true, spec, err);
}

static int read_kind(const struct tensor_file *file, struct tokenizer_spec *spec,
                     struct error *err) {
    struct text kind = {0};
    char shown[UTF8_PRINTABLE_BYTES];
    if (read_string(file, KEY("model"), &kind, err) != 0)
        return -1;
    if (kind.data == NULL)
        return error_set(err, ERROR_MODEL, KEY("model") " is missing");
    bool bytes = text_is(kind, "gpt2");
    bool characters = text_is(kind, "llama");
    utf8_printable(kind, shown);
    if (!bytes && !characters)
        return error_set(err, ERROR_MODEL, KEY("model") " is \"%s\", known are gpt2, llama", shown);
    if (read_tokens(file, spec, err) != 0 || read_types(file, spec, err) != 0 ||
        list_added(file, spec, err) != 0)
        return -1;
    return (bytes ? read_bytes_kind : read_characters_kind)(file, spec, err);
}

int tokenizer_spec_read_gguf(const struct tensor_file *file, struct tokenizer_spec *out,
                             struct error *err) {
    struct tokenizer_spec spec = {0};
    if (read_kind(file, &spec, err) != 0 || read_eos(file, &spec, err) != 0 ||
        read_named(file, &spec, err) != 0 || read_fim(file, &spec, err) != 0) {
        tokenizer_spec_finish(&spec);
        return -1;
    }
    *out = spec;
    return 0;
}
