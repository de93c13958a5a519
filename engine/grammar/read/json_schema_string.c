/* Strings. A length alone is a repetition, one pattern alone the nodes of its regular expression;
 * all else is computed with automata: a string that matches every pattern and none of the negated
 * ones, and has the length. */
#include "engine/grammar/read/json_schema_private.h"

#include "engine/grammar/read/grammar_regex.h"

#include <stdlib.h>
#include <string.h>

/* --- Formats, as patterns: the texts that every reader takes for one --- */

/* The 29th of February in years that 4 divides, except those that 100 divides but 400 does not;
 * years from 0001 on. */
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define YEAR "(?:\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                                  \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define FRACTION "(?:\\.\\d{1,9})?"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d" FRACTION
#define ZONE "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
/* RFC 3339: the second 60 is the one after 23:59:59 UTC, at the end of June or December. Offsets
 * are whole and half hours. Times before midnight are west of Greenwich, times after it east. */
#define LEAP_BEFORE "(?:23:59:60" FRACTION "(?:[Zz]|[+-]00:00)" EACH_HOUR(BEFORE) ")"
#define LEAP_AFTER "(?:00:29:60" FRACTION "\\+00:30" EACH_HOUR(AFTER) ")"
/* Of an offset the hour, the hour before, and the one that is left of 23. */
#define BEFORE(hour, previous, left)                                                               \
    "|" left ":59:60" FRACTION "-" hour ":00|" left ":29:60" FRACTION "-" hour ":30"
#define AFTER(hour, previous, left)                                                                \
    "|" previous ":59:60" FRACTION "\\+" hour ":00|" hour ":29:60" FRACTION "\\+" hour ":30"
#define EACH_HOUR(of)                                                                              \
    of("01", "00", "22") of("02", "01", "21") of("03", "02", "20") of("04", "03", "19")            \
        of("05", "04", "18") of("06", "05", "17") of("07", "06", "16") of("08", "07", "15")        \
            of("09", "08", "14") of("10", "09", "13") of("11", "10", "12") of("12", "11", "11")    \
                of("13", "12", "10") of("14", "13", "09") of("15", "14", "08")                     \
                    of("16", "15", "07") of("17", "16", "06") of("18", "17", "05")                 \
                        of("19", "18", "04") of("20", "19", "03") of("21", "20", "02")             \
                            of("22", "21", "01") of("23", "22", "00")
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:" H16 "(?::" H16 "){0,1})?::(?:" H16 ":){3}" LS32 "|(?:" H16 "(?::" H16                   \
    "){0,2})?::(?:" H16 ":){2}" LS32 "|(?:" H16 "(?::" H16 "){0,3})?::" H16 ":" LS32 "|(?:" H16    \
    "(?::" H16 "){0,4})?::" LS32 "|(?:" H16 "(?::" H16 "){0,5})?::" H16 "|(?:" H16 "(?::" H16      \
    "){0,6})?::)"
#define LABEL_OF(inner) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," inner "}[A-Za-z0-9])?"
#define LABEL LABEL_OF("61")
#define SHORT LABEL_OF("13")
/* RFC 1123: labels of up to 63 characters, 253 in all. A pattern cannot count both; these are short
 * labels with up to two long ones among them, or few long ones, or many of one character. */
#define HOSTNAME                                                                                   \
    "(?:(?:" SHORT "\\.){0,14}" SHORT "|(?:" SHORT "\\.){0,3}(?:" LABEL "\\.)?(?:" SHORT           \
    "\\.)?(?:" LABEL "\\.)?(?:" SHORT "\\.){0,2}" SHORT "|(?:" LABEL "\\.){0,2}" LABEL             \
    "|(?:" LABEL "\\.){3}" LABEL_OF("59") "|(?:[A-Za-z0-9]\\.){15,64}(?:" SHORT "\\.)?" SHORT ")"
/* RFC 5321: of the part before @ at most 64 characters, dots one at a time or all quoted; 254 in
 * all. A domain has a dot, as everywhere but at home. */
#define DOMAIN                                                                                     \
    "(?:(?:" SHORT "\\.){1,10}" SHORT "|(?:" SHORT "\\.){0,2}" LABEL "\\.(?:" SHORT                \
    "\\.){0,3}" SHORT "|" LABEL "\\." LABEL "(?:\\." SHORT ")?)"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LOCAL_PART                                                                                 \
    "(?:" ATEXT "(?:\\.?" ATEXT "){0,31}|" ATEXT "{33,64}|" ATEXT "{1,31}\\." ATEXT "{1,32}|\"(?:" \
    "[ !#-\\[\\]-~]|\\\\[ -~]){0,31}\")"
#define HEX "[0-9A-Fa-f]"
/* RFC 3986, without the names that no reader knows. */
#define ESCAPED "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define FIRST "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" ESCAPED ")" /* of a path without a scheme */
#define QUERY "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|" ESCAPED ")*"
#define AUTHORITY                                                                                  \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" ESCAPED ")*@)?"                                           \
    "(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" ESCAPED ")*)(?::\\d{0,5})?"
#define TAIL "(?:\\?" QUERY ")?(?:#" QUERY ")?"
#define PATH "(?:/" PCHAR "*)*"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define DURATION_TIME "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DURATION_DATE "(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date-time", "^(?:" DATE "[Tt]" TIME ZONE "|" YEAR "-(?:06-30|12-31)[Tt]" LEAP_BEFORE "|" YEAR
                  "-(?:07-01|01-01)[Tt]" LEAP_AFTER ")$"},
    {"date", "^" DATE "$"},
    {"time", "^(?:" TIME ZONE "|" LEAP_BEFORE "|" LEAP_AFTER ")$"},
    {"duration", "^P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|\\d+W)$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"email", "^" LOCAL_PART "@(?:" DOMAIN "|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])$"},
    {"hostname", "^" HOSTNAME "$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY PATH "|/?(?:" PCHAR "+" PATH ")?)" TAIL "$"},
    {"uri-reference",
     "^(?:[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY PATH "|/?(?:" PCHAR "+" PATH
     ")?)|//" AUTHORITY PATH "|/(?:" PCHAR "+" PATH ")?|(?:" FIRST "+" PATH ")?)" TAIL "$"},
    {"json-pointer", "^" POINTER "$"},
};

/* JSON Schema's formats that have no pattern. */
static const char *const unsupported[] = {"idn-email",     "idn-hostname",         "iri",
                                          "iri-reference", "uri-reference",        "uri-template",
                                          "regex",         "relative-json-pointer"};

/* OpenAPI's formats, which are hints to programs. */
static const char *const annotations[] = {"int32", "int64",  "float",   "double",
                                          "byte",  "binary", "password"};

const char *schema_format_pattern(const char *name) {
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}

static bool is_in(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool schema_format_is_annotation(const char *name, bool strict) {
    if (strict)
        return is_in(annotations, sizeof(annotations) / sizeof(annotations[0]), name);
    return schema_format_pattern(name) == NULL &&
           !is_in(unsupported, sizeof(unsupported) / sizeof(unsupported[0]), name);
}

/* --- Automata of keywords --- */

struct cached_automaton {
    struct cached_automaton *next;
    const cJSON *item; /* NULL: none that is looked up */
    struct text_automaton *automaton;
};

int schema_keep_automaton(struct schema_context *c, const cJSON *item,
                          struct text_automaton *automaton) {
    struct cached_automaton *entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        text_automaton_destroy(automaton);
        return api_error_set_memory(c->err);
    }
    *entry = (struct cached_automaton){c->automata, item, automaton};
    c->automata = entry;
    return 0;
}

void schema_forget_automata(struct schema_context *c) {
    while (c->automata != NULL) {
        struct cached_automaton *next = c->automata->next;
        text_automaton_destroy(c->automata->automaton);
        free(c->automata);
        c->automata = next;
    }
}

/* What text_automaton_of_nodes makes of the nodes that `write` adds to a builder of their own. */
static int automaton_of(struct schema_context *c, const char *path, const char *key,
                        const cJSON *item,
                        int (*write)(struct grammar_builder *builder, const void *context,
                                     grammar_node *out, struct error *err),
                        const void *context, const struct text_automaton **out) {
    struct grammar_builder *builder = grammar_builder_create();
    struct text_automaton *automaton;
    struct error error = {0};
    grammar_node node;
    if (builder == NULL)
        return api_error_set_memory(c->err);
    int result = write(builder, context, &node, &error);
    if (result == 0)
        result = text_automaton_of_nodes(builder, node, c->work, &automaton, &error);
    grammar_builder_destroy(builder);
    if (result != 0)
        return schema_decline_error(c, path, key, &error);
    *out = automaton;
    return schema_keep_automaton(c, item, automaton);
}

static int write_pattern(struct grammar_builder *builder, const void *context, grammar_node *out,
                         struct error *err) {
    return grammar_regex(builder, context, REGEX_SEARCH, out, err);
}

/* The pattern of a keyword: of patternProperties its member's name. */
static int find_pattern(struct schema_context *c, const char *path, const char *key,
                        const cJSON *item, const char **out) {
    if (strcmp(key, "patternProperties") == 0)
        *out = item->string;
    else if (!cJSON_IsString(item))
        return schema_refuse(c, path, "pattern and format must be strings");
    else if (strcmp(key, "format") == 0)
        *out = schema_format_pattern(item->valuestring);
    else
        *out = item->valuestring;
    if (*out == NULL)
        return schema_decline(c, path, "format is not supported with the value %.40s",
                              item->valuestring);
    return 0;
}

int schema_pattern_automaton(struct schema_context *c, const char *path, const char *key,
                             const cJSON *item, const struct text_automaton **out) {
    const char *pattern;
    size_t steps = 1;
    for (const struct cached_automaton *entry = c->automata; entry != NULL; entry = entry->next) {
        steps++;
        if (entry->item == item) {
            *out = entry->automaton;
            return schema_add_steps(c, steps);
        }
    }
    if (schema_add_steps(c, steps) != 0 || find_pattern(c, path, key, item, &pattern) != 0)
        return -1;
    return automaton_of(c, path, key, item, write_pattern, pattern, out);
}

int schema_pattern_is_unknown(struct schema_context *c, const char *pattern, bool *out) {
    struct grammar_builder *builder = grammar_builder_create();
    struct error error = {0};
    grammar_node node;
    if (builder == NULL)
        return api_error_set_memory(c->err);
    *out = grammar_regex(builder, pattern, REGEX_JSON_STRING, &node, &error) != 0;
    grammar_builder_destroy(builder);
    if (*out && error.code == ERROR_MEMORY)
        return api_error_set_memory(c->err);
    return schema_add_steps(c, strlen(pattern));
}

struct length {
    int min, max; /* max < 0: no end */
};

static int write_length(struct grammar_builder *builder, const void *context, grammar_node *out,
                        struct error *err) {
    const struct length *length = context;
    *out = grammar_repeat(builder, grammar_characters(builder, NULL, 0, true), length->min,
                          length->max);
    return 0;
}

/* The strings of an enum, or the one of a const. */
static int write_values(struct grammar_builder *builder, const void *context, grammar_node *out,
                        struct error *err) {
    const cJSON *item = context, *value = cJSON_IsArray(item) ? item->child : item;
    int count = 0;
    grammar_node *nodes = malloc(((size_t)cJSON_GetArraySize(item) + 1) * sizeof(*nodes));
    if (nodes == NULL)
        return error_set(err, ERROR_MEMORY, "memory is short");
    for (; value != NULL; value = cJSON_IsArray(item) ? value->next : NULL)
        if (cJSON_IsString(value))
            nodes[count++] =
                grammar_literal(builder, value->valuestring, strlen(value->valuestring));
    *out = grammar_alternatives(builder, nodes, count);
    free(nodes);
    return 0;
}

/* --- Facts --- */

/* What a case says of a string. */
struct string {
    struct length length;
    const struct schema_fact *patterns[64]; /* patterns and formats, and values that it is not */
    int num_patterns;
    const char *path;
};

static bool has_length(const struct string *s) {
    return s->length.min > 0 || s->length.max >= 0;
}

/* minLength and maxLength; the opposite of one is the other. */
static int read_length(struct schema_context *c, const struct schema_fact *fact,
                       struct length *length) {
    int bound, max = GRAMMAR_MAX_REPEAT - 1;
    bool is_min = strcmp(fact->item->string, "minLength") == 0;
    if (schema_count(c, fact, max, &bound) != 0)
        return -1;
    if (fact->of.negated) {
        bound += is_min ? -1 : 1;
        is_min = !is_min;
    }
    if (is_min && bound > length->min)
        length->min = bound;
    if (!is_min && bound < 0) /* shorter than nothing */
        *length = (struct length){1, 0};
    else if (!is_min && (length->max < 0 || bound < length->max))
        length->max = bound;
    return 0;
}

static int read_string(struct schema_context *c, const struct schema_case *one,
                       struct string *out) {
    *out = (struct string){.length = {0, -1}};
    for (int i = 0; i < one->count; i++) {
        const struct schema_fact *fact = one->facts[i];
        const char *key = fact->item->string;
        out->path = fact->of.path;
        if (strcmp(key, "minLength") == 0 || strcmp(key, "maxLength") == 0) {
            if (read_length(c, fact, &out->length) != 0)
                return -1;
        } else if (out->num_patterns == 64) {
            return schema_decline(c, fact->of.path, "too many patterns must match one string");
        } else {
            out->patterns[out->num_patterns++] = fact;
        }
    }
    return 0;
}

static int fact_automaton(struct schema_context *c, const struct schema_fact *fact,
                          const struct text_automaton **out) {
    const char *key = fact->item->string;
    if (strcmp(key, "pattern") == 0 || strcmp(key, "format") == 0)
        return schema_pattern_automaton(c, fact->of.path, key, fact->item, out);
    return automaton_of(c, fact->of.path, key, NULL, write_values, fact->item, out);
}

static int combine(struct schema_context *c, const char *path, const char *key,
                   const struct text_automaton **into, const struct text_automaton *other,
                   enum automaton_operation operation) {
    struct text_automaton *result;
    struct error error = {0};
    if (text_automaton_combine(*into, other, operation, c->work, &result, &error) != 0)
        return schema_decline_error(c, path, key, &error);
    *into = result;
    return schema_keep_automaton(c, NULL, result);
}

static int string_automaton(struct schema_context *c, const struct string *s,
                            const struct text_automaton **out) {
    struct length length = s->length;
    if (length.max >= 0 && length.max < length.min) {
        length = (struct length){1, 1}; /* and nothing is left of it */
        if (automaton_of(c, s->path, "maxLength", NULL, write_length, &length, out) != 0)
            return -1;
        return combine(c, s->path, "maxLength", out, *out, AUTOMATON_MINUS);
    }
    if (automaton_of(c, s->path, length.max >= 0 ? "maxLength" : "minLength", NULL, write_length,
                     &length, out) != 0)
        return -1;
    for (int i = 0; i < s->num_patterns; i++) {
        const struct schema_fact *fact = s->patterns[i];
        const struct text_automaton *own;
        if (fact_automaton(c, fact, &own) != 0 ||
            combine(c, fact->of.path, fact->item->string, out, own,
                    fact->of.negated ? AUTOMATON_MINUS : AUTOMATON_AND) != 0)
            return -1;
    }
    return 0;
}

/* --- Nodes --- */

static int node_of_regex(struct schema_context *c, const struct schema_fact *fact,
                         grammar_node *out) {
    struct error error = {0};
    const char *pattern, *key = fact->item->string;
    grammar_node quote = schema_text(c, "\""), content;
    if (find_pattern(c, fact->of.path, key, fact->item, &pattern) != 0)
        return -1;
    if (grammar_regex(c->builder, pattern, REGEX_JSON_STRING, &content, &error) != 0) {
        if (error.code == ERROR_MEMORY)
            return api_error_set_memory(c->err);
        return schema_decline(c, fact->of.path, "%s is not a pattern that is supported: %s", key,
                              error.message);
    }
    *out = schema_sequence(c, (grammar_node[]){quote, content, quote}, 3);
    return 0;
}

static int node_of_automaton(struct schema_context *c, const struct string *s, grammar_node *out) {
    const struct text_automaton *automaton;
    struct error error = {0};
    grammar_node content;
    if (string_automaton(c, s, &automaton) != 0)
        return -1;
    if (automaton->num_states == 0) {
        *out = schema_nothing(c);
        return 0;
    }
    if (text_automaton_write(automaton, c->builder, AUTOMATON_JSON_STRING, &content, &error) != 0)
        return schema_decline_error(c, s->path, "pattern", &error);
    *out = schema_sequence(c, (grammar_node[]){schema_text(c, "\""), content}, 2);
    return 0;
}

static bool is_plain_pattern(const struct string *s) {
    const struct schema_fact *fact = s->patterns[0];
    return s->num_patterns == 1 && !has_length(s) && !fact->of.negated &&
           (strcmp(fact->item->string, "pattern") == 0 ||
            strcmp(fact->item->string, "format") == 0);
}

int schema_string(struct schema_context *c, const struct schema_case *one, grammar_node *out) {
    struct string s;
    if (read_string(c, one, &s) != 0)
        return -1;
    if (is_plain_pattern(&s))
        return node_of_regex(c, s.patterns[0], out);
    if (s.num_patterns > 0)
        return node_of_automaton(c, &s, out);
    if (s.length.max >= 0 && s.length.max < s.length.min) {
        *out = schema_nothing(c);
        return 0;
    }
    grammar_node quote = schema_text(c, "\"");
    grammar_node content =
        grammar_repeat(c->builder, schema_character(c), s.length.min, s.length.max);
    *out = schema_sequence(c, (grammar_node[]){quote, content, quote}, 3);
    return 0;
}

/* One pattern alone is taken to match something: its nodes tell. */
int schema_string_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    struct string s;
    const struct text_automaton *automaton;
    if (read_string(c, one, &s) != 0)
        return -1;
    *out = s.length.max >= 0 && s.length.max < s.length.min;
    if (!*out && s.num_patterns > 0 && !is_plain_pattern(&s)) {
        if (string_automaton(c, &s, &automaton) != 0)
            return -1;
        *out = automaton->num_states == 0;
    }
    if (*out && has_length(&s))
        schema_note_empty(c, s.path, "no string matches: see maxLength and minLength");
    return 0;
}

/* --- All strings of a goal --- */

static int strings_of_case(struct schema_context *c, const struct schema_case *one,
                           const struct text_automaton **out) {
    struct string s;
    struct schema_case others = {schema_allocate(c, ((size_t)one->count + 1) * sizeof(void *)), 0};
    if (others.facts == NULL)
        return -1;
    const struct schema_fact *values[8];
    int num_values = 0;
    for (int i = 0; i < one->count; i++) {
        const char *key = one->facts[i]->item->string;
        bool has_values =
            (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0) && !one->facts[i]->of.negated;
        if (has_values && num_values < 8)
            values[num_values++] = one->facts[i];
        else
            others.facts[others.count++] = one->facts[i];
    }
    if (read_string(c, &others, &s) != 0)
        return -1;
    s.path = one->count > 0 ? one->facts[0]->of.path : c->path;
    if (string_automaton(c, &s, out) != 0)
        return -1;
    for (int i = 0; i < num_values; i++) {
        const struct text_automaton *own;
        if (fact_automaton(c, values[i], &own) != 0 ||
            combine(c, s.path, values[i]->item->string, out, own, AUTOMATON_AND) != 0)
            return -1;
    }
    return 0;
}

int schema_goal_strings(struct schema_context *c, const struct schema_goal *goal,
                        const struct text_automaton **out) {
    struct schema_cases cases;
    const char *path = goal->count > 0 ? goal->literals[0].path : c->path;
    const struct string none = {.length = {1, 0}, .path = path};
    if (schema_expand_goal(c, goal, STRING, &cases) != 0 || string_automaton(c, &none, out) != 0)
        return -1;
    for (int i = 0; i < cases.count; i++) {
        const struct text_automaton *own;
        if (strings_of_case(c, &cases.items[i], &own) != 0 ||
            combine(c, path, "propertyNames", out, own, AUTOMATON_OR) != 0)
            return -1;
    }
    return 0;
}
