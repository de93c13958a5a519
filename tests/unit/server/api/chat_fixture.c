#include "tests/unit/server/api/chat_fixture.h"

#include "config/base/check.h"
#include "server/api/conversation/chat_model.h"

static char *const names[] = {"m"};

static const char source[] =
    "{%- if tools %}[TOOLS]{% endif %}"
    "{%- if thinking is defined %}[thinking={{ thinking }}]{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.content == 'refuse me' %}{{ raise_exception('no such words') }}{% endif %}"
    "{{- bos_token + message.role + ':' + message.content + eos_token }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ bos_token + 'assistant:' }}"
    "{%- if thinking is defined and thinking %}{{ '<think>' }}{% endif %}{% endif %}";

static struct serving_limits limits; /* of the context made last */

void chat_fixture_init(struct api_context *out, int32_t max_model_len) {
    limits = (struct serving_limits){.max_model_len = max_model_len, .max_logprobs = 20};
    const struct chat_model_config config = {
        .chat_template = source, .tool_call_parser = "hermes", .reasoning_parser = "think"};
    struct chat_model *model = NULL;
    struct error err = {0};
    CHECK(chat_model_create(NULL, &config, &model, &err) == 0 && model->chat_template != NULL);
    *out = (struct api_context){
        .limits = &limits,
        .chat = model,
        .sampling = SAMPLING_SETTINGS_NEUTRAL,
        .model_names = names,
        .num_model_names = 1,
        .max_prompts = 4,
        .max_n = 16,
        .max_choices = 32,
        .max_prompt_tokens = 1000,
        .system_fingerprint = "fp",
    };
}

void chat_fixture_finish(struct api_context *context) {
    chat_model_destroy((struct chat_model *)context->chat);
    context->chat = NULL;
}
