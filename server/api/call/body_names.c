#include "server/api/call/body_names.h"

/* -1: as many tokens as the context holds, as in llama.cpp. */
static const struct json_alias aliases[] = {
    {"max_tokens", "n_predict", .is_synonym = true, .has_none = true, .none = -1},
    {"max_tokens", "max_new_tokens", .is_synonym = true, .has_none = true, .none = -1},
    {"n", "n_cmpl", .is_synonym = true},
    {"return_token_ids", "return_tokens", .is_synonym = true},
    BODY_SYNONYMS,
};

const struct body_names openai_names = {.aliases = aliases,
                                        .num_aliases = sizeof(aliases) / sizeof(aliases[0]),
                                        .format = "response_format"};

const cJSON *body_names_given(const struct body_names *names, const cJSON *body, const char *name) {
    return json_aliased_member(body, names->aliases, names->num_aliases, name);
}

const char *body_names_field(const struct body_names *names, const cJSON *body, const char *name) {
    return json_aliased_name(body, names->aliases, names->num_aliases, name);
}

struct json_table body_names_table(const struct body_names *names, struct json_table table) {
    table.aliases = names->aliases;
    table.num_aliases = names->num_aliases;
    return table;
}
