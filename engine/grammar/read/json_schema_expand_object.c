#include "engine/grammar/read/json_schema_expand_object.h"

#include "engine/grammar/read/json_schema_cases.h"

#include <stdio.h>

/* Adds to the cases that there is, or is not, a property of this name. */
static int add_name(const struct schema_expansion *e, const cJSON *name, enum fact_kind kind,
                    bool ands, struct schema_cases *into) {
    struct schema_cases own;
    struct schema_fact fact = {kind, *e->of, e->item, NULL, 0};
    if (schema_check_is(e, cJSON_IsString(name), "an array of strings") != 0)
        return -1;
    fact.name = name->valuestring;
    if (schema_one_fact(e->c, fact, &own) != 0)
        return -1;
    return ands ? schema_and_cases(e->c, e->type, into, &own) : schema_or_cases(e->c, into, &own);
}

int schema_expand_required(const struct schema_expansion *e) {
    const cJSON *name;
    if (schema_check_is(e, cJSON_IsArray(e->item), "an array of strings") != 0)
        return -1;
    cJSON_ArrayForEach(name, e->item) {
        if (schema_check_is(e, cJSON_IsString(name), "an array of strings") != 0)
            return -1;
    }
    if (!e->of->negated)
        return e->item->child != NULL ? schema_keep_fact(e) : schema_expand_value(e, true);
    if (schema_expand_value(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(name, e->item) {
        if (add_name(e, name, FACT_FORBIDDEN, false, e->out) != 0)
            return -1;
    }
    return 0;
}

int schema_expand_properties(const struct schema_expansion *e) {
    const cJSON *property;
    if (schema_check_is(e, cJSON_IsObject(e->item), "an object of schemas") != 0)
        return -1;
    if (!e->of->negated)
        return schema_keep_fact(e);
    if (schema_expand_value(e, false) != 0)
        return -1;
    cJSON_ArrayForEach(property, e->item) {
        struct schema_cases own;
        struct schema_fact fact = {FACT_PROPERTY, *e->of, property, property->string, 0};
        fact.of.negated = false;
        if (schema_one_fact(e->c, fact, &own) != 0 || schema_or_cases(e->c, e->out, &own) != 0)
            return -1;
    }
    return 0;
}

/* The names that one property asks for, all of them; or the opposite, that one is not there. */
static int expand_names(const struct schema_expansion *e, const cJSON *names, bool negated,
                        struct schema_cases *out) {
    const cJSON *name;
    if (schema_set_cases(e->c, !negated, out) != 0)
        return -1;
    cJSON_ArrayForEach(name, names) {
        if (add_name(e, name, negated ? FACT_FORBIDDEN : FACT_REQUIRED, !negated, out) != 0)
            return -1;
    }
    return 0;
}

/* What a property that is there asks for: names, or a schema of the whole object. */
static int expand_dependency(const struct schema_expansion *e, const cJSON *dependency,
                             struct schema_cases *out) {
    char label[96];
    if (cJSON_IsArray(dependency))
        return expand_names(e, dependency, e->of->negated, out);
    snprintf(label, sizeof(label), "%s.%s", e->item->string, dependency->string);
    return schema_expand_within(e, dependency, label, e->of->negated, out);
}

int schema_expand_dependencies(const struct schema_expansion *e) {
    const cJSON *dependency;
    bool negated = e->of->negated;
    if (schema_check_is(e, cJSON_IsObject(e->item), "an object") != 0 ||
        schema_expand_value(e, !negated) != 0)
        return -1;
    cJSON_ArrayForEach(dependency, e->item) {
        struct schema_fact fact = {negated ? FACT_REQUIRED : FACT_FORBIDDEN, *e->of, e->item,
                                   dependency->string, 0};
        struct schema_cases own, asked;
        if (schema_one_fact(e->c, fact, &own) != 0 || expand_dependency(e, dependency, &asked) != 0)
            return -1;
        int result = negated ? schema_and_cases(e->c, e->type, &own, &asked)
                             : schema_or_cases(e->c, &own, &asked);
        if (result == 0)
            result = negated ? schema_or_cases(e->c, e->out, &own)
                             : schema_and_cases(e->c, e->type, e->out, &own);
        if (result != 0)
            return -1;
    }
    return 0;
}
