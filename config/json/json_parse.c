#include "config/json/json_parse.h"

#include "config/base/byte_buffer.h"
#include "config/json/json_read.h"
#include "config/json/json_unescape.h"

#include <stdlib.h>
#include <string.h>

static cJSON *fail_memory(struct api_error *err) {
    api_error_set_memory(err);
    return NULL;
}

static int check_fields(const cJSON *json, struct api_error *err) {
    int num_fields = cJSON_IsObject(json) ? cJSON_GetArraySize(json) : 0;
    if (num_fields <= JSON_PARSE_MAX_FIELDS)
        return 0;
    return bad_request(err, "too_many_fields", NULL,
                       "The body has %d fields: at most %d are allowed", num_fields,
                       JSON_PARSE_MAX_FIELDS);
}

/* --- Duplicate keys --- */

struct member {
    cJSON *item;
    int place;
};

static int compare_members(const void *a, const void *b) {
    const struct member *first = a, *second = b;
    int names = strcmp(first->item->string, second->item->string);
    return names != 0 ? names : first->place - second->place;
}

/* Puts the last of the members with one name in the place of the first. */
static void merge_sorted(cJSON *object, const struct member *members, int count) {
    for (int begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1;
             end < count && strcmp(members[begin].item->string, members[end].item->string) == 0;
             end++) {
            cJSON_DetachItemViaPointer(object, members[end].item);
            if (end > begin + 1)
                cJSON_Delete(members[end - 1].item);
        }
        if (end > begin + 1)
            cJSON_ReplaceItemViaPointer(object, members[begin].item, members[end - 1].item);
    }
}

static int merge_members(cJSON *object) {
    int count = cJSON_GetArraySize(object), place = 0;
    struct member *members = calloc((size_t)count + 1, sizeof(*members));
    cJSON *item;
    if (members == NULL)
        return -1;
    cJSON_ArrayForEach(item, object) {
        members[place] = (struct member){item, place};
        place++;
    }
    qsort(members, (size_t)count, sizeof(*members), compare_members);
    merge_sorted(object, members, count);
    free(members);
    return 0;
}

/* Recurses at most as deep as a body may be nested. */
static int merge_doubled(cJSON *tree) {
    cJSON *item;
    if (cJSON_IsObject(tree) && merge_members(tree) != 0)
        return -1;
    cJSON_ArrayForEach(item, tree) {
        if (merge_doubled(item) != 0)
            return -1;
    }
    return 0;
}

static cJSON *parse(const char *data, size_t length, bool takes_doubled_keys,
                    struct api_error *err) {
    const struct json_limits limits = {JSON_MAX_DEPTH, JSON_PARSE_MAX_NODES,
                                       .takes_any_escape = true,
                                       .takes_doubled_keys = takes_doubled_keys};
    struct error why;
    cJSON *json = json_read(data, length, &limits, &why);
    if (json == NULL && why.code == ERROR_MEMORY)
        return fail_memory(err);
    if (json == NULL)
        bad_request(err, "invalid_json", NULL, "The body is not valid JSON: %s", why.message);
    if (json == NULL)
        return NULL;
    bool is_whole = !takes_doubled_keys || merge_doubled(json) == 0;
    if (is_whole && check_fields(json, err) == 0)
        return json;
    cJSON_Delete(json);
    return is_whole ? NULL : fail_memory(err);
}

cJSON *json_parse(const char *data, size_t length, struct api_error *err) {
    return parse(data, length, false, err);
}

cJSON *json_parse_written(const char *data, size_t length, struct api_error *err) {
    return parse(data, length, true, err);
}

/* --- What was cut off --- */

/* A text that is copied up to where it was cut: what has to be closed there, and where its last
 * word begins. */
struct cut {
    struct byte_buffer text;
    char closers[JSON_MAX_DEPTH]; /* of the open containers, the outermost first */
    int depth;
    bool is_in_string;
    size_t word; /* after the last structural character outside strings */
};

static bool is_hex(const char *data, size_t length) {
    for (size_t i = 0; i < 4; i++)
        if (i >= length || json_unescape_digit((unsigned char)data[i]) < 0)
            return false;
    return true;
}

/* Copies the escape at data[0]. A backslash that does not begin one is itself escaped. Returns its
 * length. Half an escape at the end is left out. */
static size_t copy_escape(struct cut *cut, const char *data, size_t length) {
    if (length == 1)
        return 1;
    bool is_code = data[1] == 'u' && is_hex(data + 2, length - 2);
    if (is_code || json_unescape_letter((unsigned char)data[1]) >= 0) {
        byte_buffer_append(&cut->text, data, is_code ? 6 : 2);
        return is_code ? 6 : 2;
    }
    if (data[1] == 'u' && length < 6)
        return length;
    byte_buffer_append(&cut->text, "\\\\", 2);
    return 1;
}

static size_t copy_in_string(struct cut *cut, const char *data, size_t length) {
    if (data[0] == '\\')
        return copy_escape(cut, data, length);
    if ((unsigned char)data[0] < 0x20) {
        byte_buffer_printf(&cut->text, "\\u%04x", (unsigned)data[0]);
        return 1;
    }
    byte_buffer_append(&cut->text, data, 1);
    cut->is_in_string = data[0] != '"';
    return 1;
}

/* Returns false if a container ends that has not begun, or containers are nested too deep. */
static bool copy_structure(struct cut *cut, char c) {
    if (c == '{' || c == '[') {
        if (cut->depth == JSON_MAX_DEPTH)
            return false;
        cut->closers[cut->depth++] = c == '{' ? '}' : ']';
    }
    if ((c == '}' || c == ']') && (cut->depth == 0 || cut->closers[--cut->depth] != c))
        return false;
    byte_buffer_append(&cut->text, &c, 1);
    if (strchr("{}[]:,\"", c) != NULL)
        cut->word = cut->text.length;
    cut->is_in_string = c == '"';
    return true;
}

static bool copy_text(struct cut *cut, const char *data, size_t length) {
    for (size_t at = 0; at < length;) {
        if (cut->is_in_string)
            at += copy_in_string(cut, data + at, length - at);
        else if (data[at] == '\0' || !copy_structure(cut, data[at++]))
            return false;
    }
    return true;
}

/* Tries to parse what is left of the text with this end; NULL and *err on failure. */
static cJSON *parse_ended(struct cut *cut, size_t length, const char *end, struct api_error *err) {
    struct byte_buffer text = {0};
    byte_buffer_append(&text, cut->text.data, length);
    byte_buffer_append_text(&text, end);
    for (int i = cut->depth; i > 0; i--)
        byte_buffer_append(&text, &cut->closers[i - 1], 1);
    cJSON *json = NULL;
    if (text.failed)
        fail_memory(err);
    else
        json = parse(text.data, text.length, true, err);
    byte_buffer_finish(&text);
    return json;
}

static cJSON *parse_cut(struct cut *cut, struct api_error *err) {
    static const char *const ends[] = {"", "null", ":null"};
    cJSON *json = NULL;
    err->status = 400;
    if (cut->is_in_string)
        byte_buffer_append(&cut->text, "\"", 1);
    size_t word = cut->is_in_string ? cut->text.length : cut->word;
    for (int i = 0; i < 6 && json == NULL && err->status == 400; i++)
        json = parse_ended(cut, i < 3 ? cut->text.length : word, ends[i % 3], err);
    while (word > 0 && cut->text.data[word - 1] == ',')
        word--;
    return json != NULL || err->status != 400 ? json : parse_ended(cut, word, "", err);
}

cJSON *json_parse_cut(const char *data, size_t length, struct api_error *err) {
    struct cut cut = {0};
    cJSON *json = NULL;
    if (!copy_text(&cut, data, length))
        json = json_parse(data, length, err);
    else if (cut.text.failed)
        fail_memory(err);
    else
        json = parse_cut(&cut, err);
    byte_buffer_finish(&cut.text);
    return json;
}
