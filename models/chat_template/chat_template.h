/* A model's chat template: turns messages into the prompt's text. Executes the part of Jinja2 that
 * published templates use, with the setup of Hugging Face Transformers
 * (ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks and loop controls; the functions
 * raise_exception and strftime_now; the filter tojson without HTML escapes; the block `generation`,
 * which changes nothing).
 *
 * Immutable after creation, shared by all threads. A rendering runs code of the model's authors on
 * a client's data, so it is bounded: CHAT_TEMPLATE_MAX_STEPS evaluated nodes, the arena's bytes for
 * values and output, 64 nested calls. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_CHAT_TEMPLATE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_CHAT_TEMPLATE_H

#include "config/base/error.h"
#include "models/chat_template/template_value.h"

#define CHAT_TEMPLATE_MAX_BYTES (1 << 20) /* of the source */
#define CHAT_TEMPLATE_MAX_STEPS 2000000

/* Bounds for a template from a client, which may be as expensive as it can be: a rendering takes at
 * most some ten milliseconds. */
#define CHAT_TEMPLATE_CLIENT_MAX_BYTES (64 << 10)
#define CHAT_TEMPLATE_CLIENT_MAX_STEPS 200000

struct chat_template;

/* Parses the source. ERROR_SYNTAX names the line and what is unknown: a tag, filter, test, function
 * or method that neither the engine nor the template itself defines, even in code that may never
 * run, so that a template that needs more than is implemented is refused at start. */
int chat_template_create(const char *source, size_t length, struct chat_template **out,
                         struct error *err);
/* The same for a client's source, within these bounds. */
int chat_template_create_client(const char *source, size_t length, struct chat_template **out,
                                struct error *err);
void chat_template_destroy(struct chat_template *chat); /* accepts NULL */

/* A prompt's text, in the arena of its rendering. */
struct chat_text {
    const char *data; /* valid UTF-8 if all input strings were; not NUL-terminated */
    size_t length;
    /* The parts that come from a client: ascending, disjoint, not empty. */
    const struct text_span *client_spans;
    size_t num_client_spans;
};

/* `variables` is a map: messages, tools, add_generation_prompt, the special tokens, and the
 * request's own. `now` is the time strftime_now writes, in seconds since 1970, local time.
 * ERROR_SYNTAX, with the template's line where one is known, when the template itself raises an
 * error (raise_exception: its message), meets a value it cannot use, or exceeds a bound;
 * ERROR_MEMORY when memory was short. */
int chat_template_render(const struct chat_template *chat, struct template_arena *arena,
                         const struct template_value *variables, int64_t now, struct chat_text *out,
                         struct error *err);

#endif
