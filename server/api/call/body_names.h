/* How an endpoint names the fields that all generating endpoints have. Readers of shared fields
 * look them up by these names, and use them in errors. */
#ifndef QUIRE_SERVER_API_CALL_BODY_NAMES_H
#define QUIRE_SERVER_API_CALL_BODY_NAMES_H

#include "config/json/json_field.h"

/* Static. */
struct body_names {
    const struct json_alias *aliases; /* NULL: none */
    int num_aliases;
    const char *format;    /* the dotted path of the output's form: "response_format" */
    bool has_flat_format;  /* the members of a json_schema (name, schema, strict) are in the form
                              itself, not in its member json_schema */
    bool has_schema_alone; /* only the schema of these: the others are unknown there */
};

/* Lines of aliases: names that llama.cpp and other servers have for fields with the same meaning.
 */
#define BODY_SYNONYMS                                                                              \
    {"repetition_penalty", "repeat_penalty", .is_synonym = true},                                  \
        {"typical_p", "typical", .is_synonym = true}, {"typical_p", "typ_p", .is_synonym = true},  \
        {"top_n_sigma", "nsigma", .is_synonym = true},                                             \
        {"mirostat", "mirostat_mode", .is_synonym = true},                                         \
        {"seed", "random_seed", .is_synonym = true}, {"seed", "sampler_seed", .is_synonym = true}, \
        {"seed", "sampling_seed", .is_synonym = true},                                             \
        {"ignore_eos", "ban_eos_token", .is_synonym = true},                                       \
        {"include_stop_str_in_output", "no_stop_trim", .is_synonym = true},                        \
        {"thinking_token_budget", "reasoning_budget_tokens", .is_synonym = true},                  \
        {"thinking_token_budget", "reasoning_budget", .is_synonym = true},                         \
        {"thinking_token_budget", "thinking_budget_tokens", .is_synonym = true}, {                 \
        "thinking_token_budget", "thinking_budget", .is_synonym = true                             \
    }

/* The names of completions and chats. */
extern const struct body_names openai_names;

/* Returns a field's member, NULL if it is not given. */
const cJSON *body_names_given(const struct body_names *names, const cJSON *body, const char *name);
/* Returns what the body calls a field, which is its alias if the body has neither; static, like
 * `name`. */
const char *body_names_field(const struct body_names *names, const cJSON *body, const char *name);
/* Returns the table with the aliases added. */
struct json_table body_names_table(const struct body_names *names, struct json_table table);

#endif
