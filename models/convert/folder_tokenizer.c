/* The tokenizer of a folder as a GGUF file has it: "gpt2" for byte-level BPE with one of the known
 * pre-tokenizers, "llama" for SentencePiece's BPE over characters, whose scores follow from the
 * order of the merges. Ids, types and names are those of llama.cpp's converter. */
#include "models/convert/conversion_private.h"

#include "models/tokenizer/pretokenizer_presets.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name
#define PAD_BYTES 24

static struct text text_of(const char *string) {
    return (struct text){string, strlen(string)};
}

static int no_memory(const struct conversion *c, struct error *err) {
    return error_set(err, ERROR_MEMORY, "%s: no memory for its tokenizer", c->path);
}

/* --- Tokens --- */

/* Lower than all others. */
static float unmerged_score(const struct tokenizer_spec *spec) {
    return -(float)spec->num_merges - 1.0F;
}

static bool starts_with(struct text text, const char *start) {
    return text.length >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

/* Some folders do not call special what must not be written by a user. */
static bool looks_special(struct text text) {
    return text_is(text, "<pad>") || text_is(text, "<mask>") || text_is(text, "<2mass>") ||
           text_is(text, "[@BOS@]") || (starts_with(text, "<|") && text_ends_with(text, "|>")) ||
           (starts_with(text, "<\xef\xbd\x9c") && text_ends_with(text, "\xef\xbd\x9c>")) ||
           (starts_with(text, "<unused") && text_ends_with(text, ">"));
}

/* User-defined tokens are matched in a text before U+2581 takes the place of its spaces. */
static void write_spaces(struct text *text, char *copy) {
    size_t length = 0, space = strlen(TOKENIZER_SPACE);
    for (size_t i = 0; i < text->length;) {
        bool is_space =
            i + space <= text->length && memcmp(text->data + i, TOKENIZER_SPACE, space) == 0;
        copy[length++] = is_space ? ' ' : text->data[i];
        i += is_space ? space : 1;
    }
    *text = (struct text){copy, length};
}

/* Changes spec's tokens and types to what the file has. The folder finds a user-defined token with
 * U+2581 in a text with spaces only if merges make it: scores, if there are any, tell. */
static int convert_tokens(const struct conversion *c, struct tokenizer_spec *spec,
                          const float *scores, struct error *err) {
    for (int32_t i = 0; i < spec->num_tokens; i++) {
        struct text *token = &spec->tokens[i];
        bool is_user_defined = spec->types[i] == TOKEN_USER_DEFINED;
        bool has_spaces = is_user_defined && scores != NULL && scores[i] > unmerged_score(spec);
        if (is_user_defined && looks_special(*token))
            spec->types[i] = TOKEN_CONTROL;
        if (!has_spaces && token->length > 0)
            continue;
        char *copy = tokenizer_spec_alloc(spec, token->length + PAD_BYTES);
        if (copy == NULL)
            return no_memory(c, err);
        if (has_spaces)
            write_spaces(token, copy);
        else
            *token = (struct text){copy, (size_t)snprintf(copy, PAD_BYTES, "[PAD%d]", i)};
    }
    return 0;
}

static int put_types(struct conversion *c, const struct tokenizer_spec *spec, struct error *err) {
    int32_t *types = calloc((size_t)spec->num_tokens, sizeof(*types));
    if (types == NULL)
        return no_memory(c, err);
    for (int32_t i = 0; i < spec->num_tokens; i++)
        types[i] = spec->types[i];
    gguf_writer_i32s(&c->header, KEY("token_type"), types, (size_t)spec->num_tokens);
    free(types);
    return 0;
}

/* --- Byte-level BPE --- */

/* A space within a token is written as the alphabet of bytes has it, since one parts the two. */
static void append_part(struct byte_buffer *out, struct text part) {
    for (size_t i = 0; i < part.length; i++)
        byte_buffer_append(out, part.data[i] == ' ' ? "\xc4\xa0" : part.data + i,
                           part.data[i] == ' ' ? 2 : 1);
}

static int put_merges(struct conversion *c, const struct tokenizer_spec *spec, struct error *err) {
    struct byte_buffer all = {0};
    struct text *merges = calloc(spec->num_merges + 1, sizeof(*merges));
    size_t *ends = calloc(spec->num_merges + 1, sizeof(*ends));
    bool fits = merges != NULL && ends != NULL;
    for (size_t i = 0; i < spec->num_merges && fits; i++) {
        append_part(&all, spec->merges[i].left);
        byte_buffer_append(&all, " ", 1);
        append_part(&all, spec->merges[i].right);
        ends[i] = all.length;
    }
    fits = fits && !all.failed;
    for (size_t i = 0; i < spec->num_merges && fits; i++) {
        size_t begin = i > 0 ? ends[i - 1] : 0;
        merges[i] = (struct text){all.data + begin, ends[i] - begin};
    }
    if (fits)
        gguf_writer_strings(&c->header, KEY("merges"), merges, spec->num_merges);
    byte_buffer_finish(&all);
    free(merges);
    free(ends);
    return fits ? 0 : no_memory(c, err);
}

static int put_bytes_kind(struct conversion *c, struct tokenizer_spec *spec, struct error *err) {
    const struct pretokenizer_preset *preset = pretokenizer_preset_like(spec);
    if (preset == NULL)
        return error_set(err, ERROR_MODEL,
                         "%s: tokenizer.json: GGUF files have no name for its pre-tokenizer",
                         c->path);
    if (convert_tokens(c, spec, NULL, err) != 0)
        return -1;
    gguf_writer_string(&c->header, KEY("model"), text_of("gpt2"));
    gguf_writer_string(&c->header, KEY("pre"), text_of(preset->names[0]));
    gguf_writer_strings(&c->header, KEY("tokens"), spec->tokens, (size_t)spec->num_tokens);
    return put_types(c, spec, err) != 0 ? -1 : put_merges(c, spec, err);
}

/* --- BPE over characters --- */

/* The earlier a token is merged, the higher its score. */
static int score_tokens(const struct conversion *c, const struct tokenizer_spec *spec,
                        const struct vocabulary *vocabulary, float *scores, struct error *err) {
    struct byte_buffer joined = {0};
    for (int32_t i = 0; i < spec->num_tokens; i++)
        scores[i] = unmerged_score(spec);
    for (size_t i = spec->num_merges; i-- > 0 && !joined.failed;) {
        byte_buffer_clear(&joined);
        byte_buffer_append(&joined, spec->merges[i].left.data, spec->merges[i].left.length);
        byte_buffer_append(&joined, spec->merges[i].right.data, spec->merges[i].right.length);
        int32_t token = vocabulary_find_any(vocabulary, joined.data, joined.length);
        if (token >= 0)
            scores[token] = -(float)i;
    }
    bool failed = joined.failed;
    byte_buffer_finish(&joined);
    return failed ? no_memory(c, err) : 0;
}

/* NULL on failure. The caller frees it. */
static float *make_scores(const struct conversion *c, const struct tokenizer_spec *spec,
                          struct error *err) {
    struct vocabulary vocabulary = {0};
    float *scores = calloc((size_t)spec->num_tokens, sizeof(*scores));
    int status = scores != NULL ? vocabulary_init(spec, &vocabulary, err) : no_memory(c, err);
    if (status == 0)
        status = score_tokens(c, spec, &vocabulary, scores, err);
    vocabulary_finish(&vocabulary);
    if (status == 0)
        return scores;
    free(scores);
    return NULL;
}

static bool puts_space_in_front(const struct tokenizer_spec *spec) {
    for (int i = 0; i < spec->num_normalizers; i++)
        if (spec->normalizers[i].kind == NORMALIZER_PREPEND)
            return true;
    for (int i = 0; i < spec->num_pretokenizers; i++)
        if (spec->pretokenizers[i].kind == PRETOKENIZER_METASPACE &&
            spec->pretokenizers[i].prepend != PREPEND_NEVER)
            return true;
    return false;
}

static int put_characters_kind(struct conversion *c, struct tokenizer_spec *spec,
                               struct error *err) {
    float *scores = make_scores(c, spec, err);
    int status = scores != NULL ? convert_tokens(c, spec, scores, err) : -1;
    if (status == 0) {
        gguf_writer_string(&c->header, KEY("model"), text_of("llama"));
        gguf_writer_string(&c->header, KEY("pre"), text_of("default"));
        gguf_writer_strings(&c->header, KEY("tokens"), spec->tokens, (size_t)spec->num_tokens);
        gguf_writer_f32s(&c->header, KEY("scores"), scores, (size_t)spec->num_tokens);
        status = put_types(c, spec, err);
    }
    free(scores);
    return status;
}

/* --- Special tokens --- */

static int32_t find_named(const struct tokenizer_spec *spec, const char *name) {
    for (size_t i = 0; i < spec->num_named; i++)
        if (strcmp(spec->named[i].name, name) == 0)
            return spec->named[i].id;
    return -1;
}

static void put_id(struct conversion *c, const char *key, int32_t id) {
    if (id >= 0)
        gguf_writer_u32(&c->header, key, (uint32_t)id);
}

static bool has_id(const int32_t *ids, int count, int32_t id) {
    for (int i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Two more tokens may end a text, in addition to eos and to those that every reader knows. */
static void put_ends(struct conversion *c, const struct tokenizer_spec *spec, int32_t eos) {
    static const char *const keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
    int used = 0;
    for (int i = 0; i < c->model->num_eos_tokens && used < 2; i++) {
        int32_t id = c->model->eos_tokens[i];
        bool is_known =
            spec->types[id] == TOKEN_CONTROL && tokenizer_spec_ends_text(spec->tokens[id]);
        if (id != eos && !is_known)
            put_id(c, keys[used++], id);
    }
}

static void put_special(struct conversion *c, const struct tokenizer_spec *spec) {
    int32_t eos = find_named(spec, "eos_token");
    if (eos < 0 && c->model->num_eos_tokens > 0)
        eos = c->model->eos_tokens[0];
    put_id(c, KEY("bos_token_id"), spec->bos);
    put_id(c, KEY("eos_token_id"), eos);
    put_ends(c, spec, eos);
    put_id(c, KEY("unknown_token_id"), find_named(spec, "unk_token"));
    put_id(c, KEY("padding_token_id"), find_named(spec, "pad_token"));
    gguf_writer_bool(&c->header, KEY("add_bos_token"),
                     spec->bos >= 0 && has_id(spec->prefix, spec->num_prefix, spec->bos));
    if (has_id(spec->suffix, spec->num_suffix, eos))
        gguf_writer_bool(&c->header, KEY("add_eos_token"), true);
    gguf_writer_bool(&c->header, KEY("add_space_prefix"), puts_space_in_front(spec));
}

static void put_templates(struct conversion *c) {
    const struct text tool_use = text_of("tool_use");
    if (c->model->chat_template != NULL)
        gguf_writer_string(&c->header, "tokenizer.chat_template", text_of(c->model->chat_template));
    if (c->model->tool_chat_template == NULL)
        return;
    gguf_writer_string(&c->header, "tokenizer.chat_template.tool_use",
                       text_of(c->model->tool_chat_template));
    gguf_writer_strings(&c->header, "tokenizer.chat_templates", &tool_use, 1);
}

int folder_tokenizer_metadata(struct conversion *c, struct error *err) {
    struct tokenizer_spec spec;
    if (tokenizer_spec_read_json(c->path, &spec, err) != 0)
        return -1;
    int status = tokenizer_spec_fit(&spec, c->model->config.vocab_size, err);
    if (status == 0)
        status =
            (spec.alphabet == ALPHABET_BYTES ? put_bytes_kind : put_characters_kind)(c, &spec, err);
    if (status == 0) {
        put_special(c, &spec);
        put_templates(c);
    }
    tokenizer_spec_finish(&spec);
    return status;
}

/* --- The check --- */

#define MAX_TOKENS 1024

/* What tokenizers treat differently: blanks, digits, contractions, cases, scripts, marks, symbols.
 */
static const char sample[] =
    "Hello world!  It's   I'm WE'LL don't\tcan\n\n\nNew line\r\n  indented 1 12 123 1234 "
    "12345.678\n"
    "naïve café Ünïcode ΑΒΓ привет мир 你好，世界 こんにちは 안녕하세요 नमस्ते مرحبا\n"
    "e\xcc\x81 \xc2\xa0 \xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd x=y+z; "
    "if(a[i]!=b){c->d();} // "
    "--- === ... ?!? \"quoted\" 'single' http://example.com/a_b?c=d&e=%20 CamelCaseWords "
    "snake_case_9 ";

static int64_t encode_sample(const struct tokenizer *tokenizer, int32_t *out) {
    return tokenizer_encode(tokenizer, sample, strlen(sample),
                            TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, out, MAX_TOKENS);
}

static int compare(const struct conversion *c, const struct tokenizer *folder,
                   const struct tokenizer *written, struct error *err) {
    int32_t ids[2][MAX_TOKENS];
    int64_t counts[2] = {encode_sample(folder, ids[0]), encode_sample(written, ids[1])};
    size_t compared = counts[0] < MAX_TOKENS ? (size_t)counts[0] : MAX_TOKENS;
    if (counts[0] >= 0 && counts[0] == counts[1] &&
        memcmp(ids[0], ids[1], compared * sizeof(int32_t)) == 0)
        return 0;
    return error_set(err, ERROR_MODEL,
                     "%s: cannot become a GGUF file: its tokenizer would make other tokens there",
                     c->path);
}

int folder_tokenizer_check(const struct conversion *c, const struct model *written,
                           struct error *err) {
    struct tokenizer *folder, *file;
    if (tokenizer_open(c->model, &folder, err) != 0)
        return -1;
    int status = tokenizer_open(written, &file, err);
    if (status == 0) {
        status = compare(c, folder, file, err);
        tokenizer_close(file);
    }
    tokenizer_close(folder);
    return status;
}
