/* Formats of strings as patterns: the texts that every reader takes for one. */
#include "engine/grammar/read/json_schema_private.h"

#include <string.h>

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
/* RFC 3339: the second 60 is that behind 23:59:59 UTC, at the end of June or December. Offsets are
 * whole and half hours. Before midnight is what lies behind Greenwich, after it what lies ahead. */
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
