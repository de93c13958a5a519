#include "engine/grammar/build/free_text.h"
#include "engine/grammar/read/json_schema.h"
#include "server/api/constraint/output_form.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 16 /* of nested formats */
#define MAX_ITEMS 256
#define PATH_BYTES 96

struct reader {
    struct grammar_builder *builder;
    const char *whitespace; /* of JSON */
    struct api_error *err;
    int depth;
    bool in_tag;
};

static int refuse(const struct reader *r, const char *path, const char *what) {
    return bad_request(r->err, "unsupported_value", path, "%s is not supported: %s", path, what);
}

static grammar_node literal(const struct reader *r, const char *text) {
    return grammar_literal(r->builder, text, strlen(text));
}

/* --- Members --- */

/* Reads the text of a member, which must be given. */
static int read_text(const struct reader *r, const cJSON *object, const char *name,
                     const char *path, const char **out) {
    char at[PATH_BYTES];
    const cJSON *item = json_given_member(object, name);
    snprintf(at, sizeof(at), "%.70s.%s", path, name);
    if (!cJSON_IsString(item))
        return json_refuse(item, at, "a string", r->err);
    *out = item->valuestring;
    return 0;
}

static int read_flag(const struct reader *r, const cJSON *object, const char *name,
                     const char *path, bool *out) {
    char at[PATH_BYTES];
    const cJSON *item = json_given_member(object, name);
    snprintf(at, sizeof(at), "%.70s.%s", path, name);
    if (item != NULL && !cJSON_IsBool(item))
        return json_refuse(item, at, "true or false", r->err);
    *out = cJSON_IsTrue(item);
    return 0;
}

/* Reads an array, which must not be empty. */
static int read_array(const struct reader *r, const cJSON *object, const char *name,
                      const char *path, const cJSON **out) {
    char at[PATH_BYTES];
    const cJSON *item = json_given_member(object, name);
    snprintf(at, sizeof(at), "%.70s.%s", path, name);
    if (!cJSON_IsArray(item) || item->child == NULL)
        return json_refuse(item, at, "an array that is not empty", r->err);
    if (cJSON_GetArraySize(item) > MAX_ITEMS)
        return refuse(r, at, "it has more than 256 items");
    *out = item;
    return 0;
}

/* Refuses members that would change what the format means. */
static int check_members(const struct reader *r, const cJSON *object, const char *path,
                         const char *const *names, size_t count) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        bool is_known = cJSON_IsNull(item);
        for (size_t i = 0; i < count; i++)
            is_known |= strcmp(item->string, names[i]) == 0;
        char at[PATH_BYTES];
        snprintf(at, sizeof(at), "%.60s.%.32s", path, item->string);
        if (!is_known)
            return refuse(r, at, "leave it out");
    }
    return 0;
}

#define CHECK_MEMBERS(r, object, path, ...)                                                        \
    check_members(r, object, path, (const char *const[]){"type", __VA_ARGS__},                     \
                  sizeof((const char *const[]){"type", __VA_ARGS__}) / sizeof(const char *))

/* --- Tags --- */

/* A tag: its begin, its content and its end. */
struct tag {
    const char *begin, *end;
    grammar_node content;
    bool is_any_text;
};

static int read_format(struct reader *r, const cJSON *format, const char *path, grammar_node *out);

static int read_tag(struct reader *r, const cJSON *object, const char *path, struct tag *out) {
    char at[PATH_BYTES];
    const cJSON *content = json_given_member(object, "content");
    if (!cJSON_IsObject(object))
        return json_refuse(object, path, "an object", r->err);
    if (CHECK_MEMBERS(r, object, path, "begin", "content", "end") != 0 ||
        read_text(r, object, "begin", path, &out->begin) != 0 ||
        read_text(r, object, "end", path, &out->end) != 0)
        return -1;
    const cJSON *type = json_given_member(content, "type");
    out->is_any_text =
        cJSON_IsString(type) && strcmp(type->valuestring, "any_text") == 0 && out->end[0] != '\0';
    snprintf(at, sizeof(at), "%.80s.content", path);
    bool was_in_tag = r->in_tag;
    r->in_tag = true;
    int result = read_format(r, content, at, &out->content);
    r->in_tag = was_in_tag;
    return result;
}

static int read_structure(struct reader *r, const cJSON *object, const char *path,
                          struct tag *out) {
    char at[PATH_BYTES];
    if (!cJSON_IsObject(object))
        return json_refuse(object, path, "an object", r->err);
    if (read_text(r, object, "begin", path, &out->begin) != 0 ||
        read_text(r, object, "end", path, &out->end) != 0)
        return -1;
    out->is_any_text = false;
    const cJSON *schema = json_given_member(object, "schema");
    static const cJSON any = {.type = cJSON_True};
    snprintf(at, sizeof(at), "%.80s.schema", path);
    return json_schema_node(r->builder, schema != NULL ? schema : &any, at, false, r->whitespace,
                            &out->content, r->err);
}

/* Returns the tag without the first `skipped` bytes of its begin. */
static grammar_node tag_node(const struct reader *r, const struct tag *tag, size_t skipped) {
    struct free_text_trigger end = {{tag->end, strlen(tag->end)}, literal(r, "")};
    bool has_end = tag->is_any_text;
    grammar_node items[] = {literal(r, tag->begin + skipped),
                            has_end ? grammar_free_text(r->builder, &end, 1, false) : tag->content,
                            literal(r, has_end ? "" : tag->end)};
    return grammar_sequence(r->builder, items, 3);
}

typedef int (*tag_reader)(struct reader *r, const cJSON *object, const char *path, struct tag *out);

static int read_tags(struct reader *r, const cJSON *array, const char *path, tag_reader read,
                     struct tag tags[MAX_ITEMS], int *out_count) {
    const cJSON *item;
    char at[PATH_BYTES];
    *out_count = 0;
    cJSON_ArrayForEach(item, array) {
        snprintf(at, sizeof(at), "%.70s[%d]", path, *out_count);
        if (read(r, item, at, &tags[(*out_count)++]) != 0)
            return -1;
    }
    return 0;
}

/* --- Tags in any text --- */

struct triggered {
    const struct tag *tags;
    int num_tags;
    const cJSON *triggers;
    bool at_least_one, stop_after_first;
};

/* Makes what follows the trigger in any of the tags that begin with it. Returns -1 and fills *err
 * if none does. */
static int behind_trigger(const struct reader *r, const struct triggered *t, const cJSON *trigger,
                          const char *path, grammar_node after, grammar_node *out) {
    grammar_node choices[MAX_ITEMS];
    int count = 0;
    if (!cJSON_IsString(trigger) || trigger->valuestring[0] == '\0')
        return json_refuse(trigger, path, "an array of strings that are not empty", r->err);
    size_t length = strlen(trigger->valuestring);
    for (int i = 0; i < t->num_tags; i++)
        if (strncmp(t->tags[i].begin, trigger->valuestring, length) == 0)
            choices[count++] = tag_node(r, &t->tags[i], length);
    if (count == 0)
        return bad_request(r->err, "unsupported_value", path,
                           "%s has a trigger with which no tag begins: \"%.64s\"", path,
                           trigger->valuestring);
    grammar_node items[] = {grammar_alternatives(r->builder, choices, count), after};
    *out = grammar_sequence(r->builder, items, 2);
    return 0;
}

static int check_tags_have_triggers(const struct reader *r, const struct triggered *t,
                                    const char *path) {
    for (int i = 0; i < t->num_tags; i++) {
        bool is_found = false;
        const cJSON *trigger;
        cJSON_ArrayForEach(trigger, t->triggers) is_found |=
            strncmp(t->tags[i].begin, trigger->valuestring, strlen(trigger->valuestring)) == 0;
        if (!is_found)
            return bad_request(r->err, "unsupported_value", path,
                               "%s has no trigger that begins \"%.64s\"", path, t->tags[i].begin);
    }
    return 0;
}

static int free_text(const struct reader *r, const struct triggered *t, const char *path,
                     grammar_node after, bool may_end, grammar_node *out) {
    struct free_text_trigger triggers[MAX_ITEMS];
    const cJSON *trigger;
    int count = 0;
    cJSON_ArrayForEach(trigger, t->triggers) {
        struct free_text_trigger *entry = &triggers[count++];
        if (behind_trigger(r, t, trigger, path, after, &entry->behind) != 0)
            return -1;
        entry->text = (struct text){trigger->valuestring, strlen(trigger->valuestring)};
    }
    *out = grammar_free_text(r->builder, triggers, count, may_end);
    return check_tags_have_triggers(r, t, path);
}

static int triggered_node(const struct reader *r, const struct triggered *t, const char *path,
                          grammar_node *out) {
    grammar_node again = grammar_rule(r->builder), nothing = literal(r, "");
    grammar_node after = t->stop_after_first ? nothing : again, body;
    if (free_text(r, t, path, after, !t->at_least_one, out) != 0)
        return -1;
    if (t->stop_after_first)
        return 0;
    if (!t->at_least_one) { /* the first is like all others */
        grammar_define(r->builder, again, *out);
        *out = again;
        return 0;
    }
    if (free_text(r, t, path, again, true, &body) != 0)
        return -1;
    grammar_define(r->builder, again, body);
    return 0;
}

/* --- Formats --- */

static int read_const_string(struct reader *r, const cJSON *format, const char *path,
                             grammar_node *out) {
    const char *value = "";
    if (CHECK_MEMBERS(r, format, path, "value") != 0 ||
        read_text(r, format, "value", path, &value) != 0)
        return -1;
    *out = literal(r, value);
    return 0;
}

static int read_member_form(const struct reader *r, const cJSON *format, const char *path,
                            const char *name, output_form_reader read, grammar_node *out) {
    char at[PATH_BYTES];
    const cJSON *value = json_given_member(format, name);
    snprintf(at, sizeof(at), "%.70s.%s", path, name);
    if (CHECK_MEMBERS(r, format, path, name) != 0)
        return -1;
    if (value == NULL)
        return json_refuse(value, at, "given", r->err);
    return read(value, at, r->builder, r->whitespace, out, r->err);
}

static int read_json_schema(struct reader *r, const cJSON *format, const char *path,
                            grammar_node *out) {
    return read_member_form(r, format, path, "json_schema", output_form_json, out);
}

static int read_regex(struct reader *r, const cJSON *format, const char *path, grammar_node *out) {
    return read_member_form(r, format, path, "pattern", output_form_regex, out);
}

static int read_grammar(struct reader *r, const cJSON *format, const char *path,
                        grammar_node *out) {
    return read_member_form(r, format, path, "grammar", output_form_grammar, out);
}

static int read_any_text(struct reader *r, const cJSON *format, const char *path,
                         grammar_node *out) {
    grammar_node any = grammar_characters(r->builder, NULL, 0, true);
    *out = grammar_repeat(r->builder, any, 0, -1);
    return CHECK_MEMBERS(r, format, path, "type");
}

static int read_elements(struct reader *r, const cJSON *format, const char *path,
                         grammar_node elements[MAX_ITEMS], int *out_count) {
    const cJSON *array, *item;
    char at[PATH_BYTES];
    *out_count = 0;
    if (CHECK_MEMBERS(r, format, path, "elements") != 0 ||
        read_array(r, format, "elements", path, &array) != 0)
        return -1;
    cJSON_ArrayForEach(item, array) {
        snprintf(at, sizeof(at), "%.60s.elements[%d]", path, *out_count);
        if (read_format(r, item, at, &elements[(*out_count)++]) != 0)
            return -1;
    }
    return 0;
}

static int read_sequence(struct reader *r, const cJSON *format, const char *path,
                         grammar_node *out) {
    grammar_node elements[MAX_ITEMS];
    int count;
    if (read_elements(r, format, path, elements, &count) != 0)
        return -1;
    *out = grammar_sequence(r->builder, elements, count);
    return 0;
}

static int read_or(struct reader *r, const cJSON *format, const char *path, grammar_node *out) {
    grammar_node elements[MAX_ITEMS];
    int count;
    if (read_elements(r, format, path, elements, &count) != 0)
        return -1;
    *out = grammar_alternatives(r->builder, elements, count);
    return 0;
}

static int read_one_tag(struct reader *r, const cJSON *format, const char *path,
                        grammar_node *out) {
    struct tag tag;
    if (read_tag(r, format, path, &tag) != 0)
        return -1;
    *out = tag_node(r, &tag, 0);
    return 0;
}

static int read_triggered_tags(struct reader *r, const cJSON *format, const char *path,
                               grammar_node *out) {
    struct tag tags[MAX_ITEMS];
    struct triggered t = {.tags = tags};
    const cJSON *array;
    char at[PATH_BYTES];
    if (r->in_tag)
        return refuse(r, path, "triggered_tags in a tag");
    if (CHECK_MEMBERS(r, format, path, "triggers", "tags", "at_least_one", "stop_after_first") !=
            0 ||
        read_array(r, format, "triggers", path, &t.triggers) != 0 ||
        read_array(r, format, "tags", path, &array) != 0 ||
        read_flag(r, format, "at_least_one", path, &t.at_least_one) != 0 ||
        read_flag(r, format, "stop_after_first", path, &t.stop_after_first) != 0)
        return -1;
    snprintf(at, sizeof(at), "%.70s.tags", path);
    if (read_tags(r, array, at, read_tag, tags, &t.num_tags) != 0)
        return -1;
    snprintf(at, sizeof(at), "%.70s.triggers", path);
    return triggered_node(r, &t, at, out);
}

static int read_separated_tags(struct reader *r, const cJSON *format, const char *path,
                               grammar_node *out) {
    struct tag tags[MAX_ITEMS];
    grammar_node choices[MAX_ITEMS];
    const cJSON *array;
    const char *separator = "";
    bool at_least_one, stop_after_first;
    int count;
    char at[PATH_BYTES];
    if (CHECK_MEMBERS(r, format, path, "tags", "separator", "at_least_one", "stop_after_first") !=
            0 ||
        read_array(r, format, "tags", path, &array) != 0 ||
        read_text(r, format, "separator", path, &separator) != 0 ||
        read_flag(r, format, "at_least_one", path, &at_least_one) != 0 ||
        read_flag(r, format, "stop_after_first", path, &stop_after_first) != 0)
        return -1;
    snprintf(at, sizeof(at), "%.70s.tags", path);
    if (read_tags(r, array, at, read_tag, tags, &count) != 0)
        return -1;
    for (int i = 0; i < count; i++)
        choices[i] = tag_node(r, &tags[i], 0);
    grammar_node one = grammar_alternatives(r->builder, choices, count);
    grammar_node next[] = {literal(r, separator), one};
    grammar_node items[] = {one, grammar_repeat(r->builder, grammar_sequence(r->builder, next, 2),
                                                0, stop_after_first ? 0 : -1)};
    *out = grammar_repeat(r->builder, grammar_sequence(r->builder, items, 2), at_least_one, 1);
    return 0;
}

static int read_format(struct reader *r, const cJSON *format, const char *path, grammar_node *out) {
    static const struct {
        const char *type;
        int (*read)(struct reader *r, const cJSON *format, const char *path, grammar_node *out);
    } formats[] = {
        {"const_string", read_const_string},
        {"json_schema", read_json_schema},
        {"regex", read_regex},
        {"grammar", read_grammar},
        {"any_text", read_any_text},
        {"sequence", read_sequence},
        {"or", read_or},
        {"tag", read_one_tag},
        {"triggered_tags", read_triggered_tags},
        {"tags_with_separator", read_separated_tags},
    };
    char at[PATH_BYTES];
    const char *type = "";
    if (!cJSON_IsObject(format))
        return json_refuse(format, path, "an object", r->err);
    if (read_text(r, format, "type", path, &type) != 0)
        return -1;
    if (r->depth == MAX_DEPTH)
        return refuse(r, path, "formats are nested deeper than 16");
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(type, formats[i].type) != 0)
            continue;
        r->depth++;
        int result = formats[i].read(r, format, path, out);
        r->depth--;
        return result;
    }
    snprintf(at, sizeof(at), "%.80s.type", path);
    return refuse(r, at, "formats of this type are unknown");
}

static int read_structures(struct reader *r, const cJSON *value, const char *path,
                           grammar_node *out) {
    struct tag tags[MAX_ITEMS];
    struct triggered t = {.tags = tags};
    const cJSON *array;
    char at[PATH_BYTES];
    if (CHECK_MEMBERS(r, value, path, "structures", "triggers") != 0 ||
        read_array(r, value, "structures", path, &array) != 0 ||
        read_array(r, value, "triggers", path, &t.triggers) != 0)
        return -1;
    snprintf(at, sizeof(at), "%.70s.structures", path);
    if (read_tags(r, array, at, read_structure, tags, &t.num_tags) != 0)
        return -1;
    snprintf(at, sizeof(at), "%.70s.triggers", path);
    return triggered_node(r, &t, at, out);
}

static int read_value(struct reader *r, const cJSON *value, const char *path, grammar_node *out) {
    char at[PATH_BYTES];
    const char *type = "";
    if (!cJSON_IsObject(value))
        return json_refuse(value, path, "an object, or the text of one", r->err);
    if (read_text(r, value, "type", path, &type) != 0)
        return -1;
    snprintf(at, sizeof(at), "%.80s.type", path);
    if (strcmp(type, "structural_tag") != 0)
        return json_refuse(json_given_member(value, "type"), at, "\"structural_tag\"", r->err);
    const cJSON *format = json_given_member(value, "format");
    if (format == NULL)
        return read_structures(r, value, path, out);
    snprintf(at, sizeof(at), "%.80s.format", path);
    return CHECK_MEMBERS(r, value, path, "format") != 0 ? -1 : read_format(r, format, at, out);
}

int output_form_structural_tag(const cJSON *value, const char *path,
                               struct grammar_builder *builder, const char *whitespace,
                               grammar_node *out, struct api_error *err) {
    struct reader r = {.builder = builder, .whitespace = whitespace, .err = err};
    if (!cJSON_IsString(value))
        return read_value(&r, value, path, out);
    cJSON *parsed = json_parse(value->valuestring, strlen(value->valuestring), err);
    if (parsed == NULL) {
        snprintf(err->param, sizeof(err->param), "%s", err->status == 400 ? path : "");
        return -1;
    }
    int result = read_value(&r, parsed, path, out);
    cJSON_Delete(parsed);
    return result;
}
