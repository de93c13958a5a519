/* Formats of strings as patterns: the texts that every reader takes for one. */
#include "server/api/constraint/json_schema_private.h"

#include <string.h>

/* The 29th of February in years that 4 divides, except those that 100 divides but 400 does not;
 * years from 0001 on. */
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define YEAR "(?:\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                                  \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?"
#define ZONE "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
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
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
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
    {"date-time", "^" DATE "[Tt]" TIME ZONE "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME ZONE "$"},
    {"duration", "^P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|\\d+W)$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"email", "^" ATOM "(?:\\." ATOM ")*@" LABEL "(?:\\." LABEL ")+$"},
    {"hostname", "^" LABEL "(?:\\." LABEL ")*$"},
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
