/* Objects as nodes. The named properties come in order, each of them a link of a chain in which
 * those that may be missing can be skipped; others follow (json_schema_properties.c reads both). */
#include "engine/grammar/read/json_schema_private.h"

#include <stdlib.h>
#include <string.h>

#define RULE_EVERY 64 /* links of a chain that are one rule, so that no chain nests deep */
#define MAX_STATES 16384
#define MAX_COUNTED 256 /* names of others that a grammar counts where nothing else asks for it */

static grammar_node as_rule(struct schema_context *c, grammar_node body) {
    grammar_node rule = grammar_rule(c->builder);
    grammar_define(c->builder, rule, body);
    return rule;
}

/* What the members of an object are made of. */
struct members {
    const struct object *object;
    grammar_node *named; /* [num_properties] name, colon, value */
    grammar_node other;  /* any member without a fixed name; if has_others */
    bool has_others;
};

/* --- Chains --- */

/* Returns the maximum number of others; -1: unlimited, or nearly so. */
static int most_others(const struct object *o) {
    return o->num_others <= MAX_COUNTED ? o->num_others : -1;
}

/* From the last property to the first, `members` is one member or more of those from here on, and
 * `behind` is what may follow a member: nothing, or a comma and such members. The comma comes
 * before the choice, so that hundreds of optional properties are not hundreds of parse states
 * twice. */
static grammar_node chain(struct schema_context *c, const struct members *m) {
    grammar_node nothing = schema_sequence(c, NULL, 0), behind = nothing, members = nothing;
    bool may_end = true, has_members = m->has_others;
    if (m->has_others) {
        grammar_node more[] = {schema_comma(c), m->other};
        int most = most_others(m->object);
        behind =
            grammar_repeat(c->builder, schema_sequence(c, more, 2), 0, most < 0 ? -1 : most - 1);
        members = schema_sequence(c, (grammar_node[]){m->other, behind}, 2);
    }
    for (int i = m->object->num_properties - 1; i >= 0; i--) {
        const struct property *property = &m->object->properties[i];
        grammar_node own[] = {m->named[i], behind};
        grammar_node choices[] = {schema_sequence(c, own, 2), members};
        bool can_skip = !property->required && has_members;
        if (property->is_absent)
            continue;
        members = can_skip ? grammar_alternatives(c->builder, choices, 2) : choices[0];
        if (i % RULE_EVERY == 0 && i > 0)
            members = as_rule(c, members);
        has_members = true;
        may_end = may_end && !property->required;
        grammar_node next[] = {schema_comma(c), members};
        behind = schema_sequence(c, next, 2);
        if (may_end)
            behind = grammar_repeat(c->builder, behind, 0, 1);
    }
    return may_end ? grammar_repeat(c->builder, members, 0, has_members ? 1 : 0) : members;
}

/* --- Chains that count --- */

/* A state: how many members there are, up to where more makes no difference, in front of property
 * i. nodes: what follows, of one i at a time. */
struct counting {
    const struct members *members;
    int most, num_required;       /* members that are told apart, and that there must be */
    grammar_node *nodes, *before; /* [most + 1] of the current property, and of the next */
};

static grammar_node comma_behind(struct schema_context *c, int count) {
    return count > 0 ? schema_comma(c) : schema_text(c, "");
}

/* Other members, after `count` named ones. No two have the same name (schema_open_names). */
static grammar_node others_behind(struct schema_context *c, const struct counting *s, int count) {
    const struct members *m = s->members;
    const struct object *o = m->object;
    int missing = o->min - count, max = most_others(o);
    if (o->max >= 0 && (max < 0 || o->max - count < max))
        max = o->max - count;
    bool comes_to_be = count >= s->num_required || count == s->most;
    if (!comes_to_be || (max >= 0 && missing > max) || (!m->has_others && missing > 0))
        return schema_nothing(c);
    if (!m->has_others || max == 0)
        return schema_sequence(c, NULL, 0);
    grammar_node more[] = {schema_comma(c), m->other};
    grammar_node further = grammar_repeat(c->builder, schema_sequence(c, more, 2),
                                          missing > 1 ? missing - 1 : 0, max < 0 ? -1 : max - 1);
    grammar_node items[] = {comma_behind(c, count), m->other, further};
    grammar_node some = schema_sequence(c, items, 3);
    return missing > 0 ? some : grammar_repeat(c->builder, some, 0, 1);
}

static void make_states(struct schema_context *c, const struct counting *s, int i) {
    const struct object *o = s->members->object;
    for (int count = 0; count <= s->most; count++) {
        grammar_node items[2];
        int num_items = 0, next = count < s->most ? count + 1 : count;
        bool may_come = !o->properties[i].is_absent && (o->max < 0 || count < o->max);
        if (may_come) {
            grammar_node parts[] = {comma_behind(c, count), s->members->named[i], s->before[next]};
            items[num_items++] = schema_sequence(c, parts, 3);
        }
        if (!o->properties[i].required)
            items[num_items++] = s->before[count];
        s->nodes[count] = num_items == 0   ? schema_nothing(c)
                          : num_items == 1 ? items[0]
                                           : grammar_alternatives(c->builder, items, num_items);
        if (i % RULE_EVERY == 0)
            s->nodes[count] = as_rule(c, s->nodes[count]);
    }
}

static int num_required(const struct object *o) {
    int count = 0;
    for (int i = 0; i < o->num_properties; i++)
        count += o->properties[i].required;
    return count;
}

static int counted_chain(struct schema_context *c, const struct members *m, grammar_node *out) {
    const struct object *o = m->object;
    int named = o->num_properties, most = o->max >= 0 ? o->max : o->min;
    struct counting s = {m, most < named ? most : named, num_required(o), NULL, NULL};
    if ((int64_t)(named + 1) * (s.most + 1) > MAX_STATES)
        return schema_decline(c, o->path,
                              "minProperties and maxProperties are not supported with this many "
                              "properties");
    grammar_node *memory = malloc(2 * ((size_t)s.most + 1) * sizeof(*memory));
    if (memory == NULL)
        return api_error_set_memory(c->err);
    s.nodes = memory;
    s.before = memory + s.most + 1;
    for (int count = 0; count <= s.most; count++)
        s.nodes[count] = others_behind(c, &s, count);
    for (int i = named - 1; i >= 0; i--) {
        grammar_node *done = s.nodes;
        s.nodes = s.before;
        s.before = done;
        make_states(c, &s, i);
    }
    *out = s.nodes[0];
    free(memory);
    return 0;
}

/* --- Members --- */

static int make_named(struct schema_context *c, const struct property *property,
                      grammar_node *out) {
    const struct schema_goal goal = {property->literals, property->num_literals};
    grammar_node items[] = {GRAMMAR_FAILED, schema_colon(c), GRAMMAR_FAILED};
    if (property->is_absent) {
        *out = schema_nothing(c);
        return 0;
    }
    if (schema_quoted(c, property->name, &items[0]) != 0 ||
        schema_goal_node(c, &goal, &items[2]) != 0)
        return -1;
    items[2] = schema_inner(c, items[2]);
    *out = schema_sequence(c, items, 3);
    return 0;
}

static int make_other(struct schema_context *c, const struct object *o,
                      const struct name_class *names, grammar_node *out) {
    const struct schema_goal goal = {names->literals, names->num_literals};
    grammar_node items[] = {schema_any_string(c), schema_colon(c), GRAMMAR_FAILED};
    struct error error = {0};
    if (names->automaton != NULL) {
        grammar_node parts[] = {schema_text(c, "\""), GRAMMAR_FAILED};
        if (text_automaton_write(names->automaton, c->builder, AUTOMATON_JSON_STRING, &parts[1],
                                 &error) != 0)
            return schema_decline_error(c, o->path, "a property's name", &error);
        items[0] = schema_sequence(c, parts, 2);
    }
    if (schema_goal_node(c, &goal, &items[2]) != 0)
        return -1;
    items[2] = schema_inner(c, items[2]);
    *out = schema_sequence(c, items, 3);
    return 0;
}

static int make_members(struct schema_context *c, const struct object *o, struct members *out) {
    grammar_node others[OBJECT_MAX_CLASSES];
    *out = (struct members){.object = o, .has_others = o->num_classes > 0};
    out->named = malloc(((size_t)o->num_properties + 1) * sizeof(*out->named));
    if (out->named == NULL)
        return api_error_set_memory(c->err);
    for (int i = 0; i < o->num_properties; i++)
        if (make_named(c, &o->properties[i], &out->named[i]) != 0)
            return -1;
    for (int i = 0; i < o->num_classes; i++)
        if (make_other(c, o, &o->classes[i], &others[i]) != 0)
            return -1;
    if (o->num_classes == 1)
        out->other = others[0];
    else if (o->num_classes > 1)
        out->other = grammar_alternatives(c->builder, others, o->num_classes);
    return 0;
}

/* Drops what has no effect: a minimum that the required properties reach, and a maximum that the
 * number of properties cannot exceed. */
static bool counts(const struct object *o) {
    int num_possible = 0;
    for (int i = 0; i < o->num_properties; i++)
        num_possible += !o->properties[i].is_absent;
    return o->min > num_required(o) ||
           (o->max >= 0 && (o->num_classes > 0 || o->max < num_possible));
}

int schema_object(struct schema_context *c, const struct schema_case *one, grammar_node *out) {
    struct object object;
    struct members members = {.named = NULL};
    grammar_node items[] = {GRAMMAR_FAILED, GRAMMAR_FAILED, schema_text(c, "}")};
    int result = schema_read_object(c, one, true, &object);
    if (result == 0 && object.is_empty) {
        *out = schema_nothing(c);
        return 0;
    }
    if (result == 0)
        result = make_members(c, &object, &members);
    if (result == 0 && counts(&object))
        result = counted_chain(c, &members, &items[1]);
    else if (result == 0)
        items[1] = chain(c, &members);
    items[0] = members.has_others ? schema_open_names(c) : schema_open(c, "{");
    *out = schema_sequence(c, items, 3);
    free(members.named);
    return result;
}

/* --- Emptiness --- */

static bool has_choice(const struct property *property) {
    for (int i = 0; i < property->num_literals; i++) {
        const cJSON *schema = property->literals[i].schema;
        if (cJSON_HasObjectItem(schema, "const") || cJSON_HasObjectItem(schema, "enum"))
            return true;
    }
    return false;
}

/* Looks at properties with given values first: those are what tells alternatives apart. */
int schema_object_is_empty(struct schema_context *c, const struct schema_case *one, bool *out) {
    struct object o;
    if (schema_read_object(c, one, false, &o) != 0)
        return -1;
    *out = o.is_empty;
    for (int pass = 0; pass < 2 && !*out; pass++) {
        for (int i = 0; i < o.num_properties && !*out; i++) {
            const struct property *property = &o.properties[i];
            const struct schema_goal goal = {property->literals, property->num_literals};
            if (!property->required || has_choice(property) != (pass == 0))
                continue;
            if (property->is_absent)
                *out = true;
            else if (schema_goal_is_empty(c, &goal, out) != 0)
                return -1;
        }
    }
    return 0;
}
