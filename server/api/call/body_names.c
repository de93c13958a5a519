#include "server/api/call/body_names.h"

const struct body_names openai_names = {.format = "response_format"};

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
