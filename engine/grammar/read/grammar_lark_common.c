/* The terminals of Lark's library "common" (lark/grammars/common.lark). Where that looks behind
 * (the strings) or is lazy (the comments), the expressions here say what is meant. */
#include "engine/grammar/read/notation_reader.h"

#define INT "[0-9]+"
#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT "(?:[eE][+-]?[0-9]+)"
#define FLOAT "(?:" INT EXPONENT "|" DECIMAL EXPONENT "?)"
#define NUMBER "(?:" FLOAT "|" INT ")"

const char *grammar_lark_common(struct text name) {
    static const struct {
        const char *name, *pattern;
    } terminals[] = {
        {"DIGIT", "[0-9]"},
        {"HEXDIGIT", "[a-fA-F0-9]"},
        {"INT", INT},
        {"SIGNED_INT", "[+-]?" INT},
        {"DECIMAL", DECIMAL},
        {"FLOAT", FLOAT},
        {"SIGNED_FLOAT", "[+-]?" FLOAT},
        {"NUMBER", NUMBER},
        {"SIGNED_NUMBER", "[+-]?" NUMBER},
        {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
        {"LCASE_LETTER", "[a-z]"},
        {"UCASE_LETTER", "[A-Z]"},
        {"LETTER", "[a-zA-Z]"},
        {"WORD", "[a-zA-Z]+"},
        {"CNAME", "[a-zA-Z_][a-zA-Z_0-9]*"},
        {"WS_INLINE", "[ \\t]+"},
        {"WS", "[ \\t\\f\\r\\n]+"},
        {"CR", "\\r"},
        {"LF", "\\n"},
        {"NEWLINE", "(?:\\r?\\n)+"},
        {"SH_COMMENT", "#[^\\n]*"},
        {"CPP_COMMENT", "//[^\\n]*"},
        {"C_COMMENT", "/\\*[^*]*\\*+(?:[^/*][^*]*\\*+)*/"},
        {"SQL_COMMENT", "--[^\\n]*"},
    };
    for (size_t i = 0; i < sizeof(terminals) / sizeof(terminals[0]); i++)
        if (text_is(name, terminals[i].name))
            return terminals[i].pattern;
    return NULL;
}
