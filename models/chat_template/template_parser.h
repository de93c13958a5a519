/* Private to chat_template/: a parsed template, immutable, and the parser that makes it, after the
 * grammar of Jinja 3.1 (jinja2/parser.py). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_PARSER_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_PARSER_H

#include "config/base/error.h"
#include "models/chat_template/template_value_private.h"

struct template_builtins;

/* Comments name the fields in use. Lists are linked by `next`. */
enum template_node_kind {
    /* Expressions */
    NODE_CONSTANT,   /* value */
    NODE_NAME,       /* name */
    NODE_LIST,       /* items */
    NODE_TUPLE,      /* items */
    NODE_DICT,       /* items: key, value, key, value, ... */
    NODE_ARITHMETIC, /* left; items: each with the op before it: from left to right */
    NODE_COMPARE,    /* left; items: each with the op before it */
    NODE_CONCAT,     /* left; items: OPERAND each */
    NODE_AND,        /* items */
    NODE_OR,         /* items */
    NODE_NOT,        /* left */
    NODE_NEGATIVE,   /* left */
    NODE_POSITIVE,   /* left */
    NODE_CONDITION,  /* left if right else other, which may be NULL */
    NODE_ATTRIBUTE,  /* left, name */
    NODE_ITEM,       /* left[right] */
    NODE_SLICE,      /* left[right:other:step] */
    NODE_CALL,       /* left, items: arguments */
    NODE_FILTER,     /* left, value: the function, items: arguments */
    NODE_TEST,       /* left, value: the function, items: arguments */
    NODE_CAPTURED, /* the captured output that the filters of a filter block or block set work on */
    NODE_OPERAND,  /* op, left: of ARITHMETIC and COMPARE */
    NODE_ARGUMENT, /* left; name, or op '*' for *left */
    /* Statements */
    NODE_TEXT,         /* value */
    NODE_OUTPUT,       /* left */
    NODE_IF,           /* items: branches */
    NODE_BRANCH,       /* left: condition, NULL for else; body */
    NODE_FOR,          /* left in right if other; body, orelse */
    NODE_SET,          /* left: target, right */
    NODE_SET_BLOCK,    /* left: target, right: filters over CAPTURED; body */
    NODE_FILTER_BLOCK, /* right: filters over CAPTURED; body */
    NODE_MACRO,        /* name, items: parameters, body */
    NODE_CALL_BLOCK,   /* right: CALL, items: parameters, body; name: "caller" */
    NODE_PARAMETER,    /* name, left: default or NULL */
    NODE_SCOPE,        /* body: what is set there does not leave it */
    NODE_BREAK,
    NODE_CONTINUE,
    /* Targets, besides NAME and TUPLE of NAME */
    NODE_MEMBER, /* name.member: of a namespace */
};

/* Of a node and a token: one character, or a value of these. */
enum template_operator {
    OPERATOR_EQUAL = 256,
    OPERATOR_NOT_EQUAL,
    OPERATOR_LESS_EQUAL,
    OPERATOR_GREATER_EQUAL,
    OPERATOR_FLOOR_DIVIDE,
    OPERATOR_IN, /* words, as the parser finds them */
    OPERATOR_NOT_IN,
};

struct template_node {
    uint8_t kind; /* enum template_node_kind */
    int16_t op;   /* a character, or enum template_operator */
    int line;
    struct text name; /* of a variable: interned, so that equal names have equal data */
    struct text member;
    struct template_value value;
    struct template_node *left, *right, *other, *step;
    struct template_node *items, *body, *orelse;
    struct template_node *next;
};

/* The names that the interpreter itself binds, interned. */
struct template_names {
    struct text loop, caller;
};

/* Parses a whole template. The source may be freed afterwards; the nodes lie in the arena. A
 * filter, test, function or method that neither the builtins nor the template has is an error
 * anywhere in the template. */
int template_parser_run(struct template_arena *arena, struct text source,
                        const struct template_builtins *builtins, struct template_names *out_names,
                        struct template_node **out, struct error *err);

#endif
