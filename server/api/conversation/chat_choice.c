#include "server/api/conversation/chat_choice.h"

#include "config/base/array.h"
#include "config/base/random_id.h"
#include "server/output/tool_call.h"

#include <stdlib.h>
#include <string.h>

#define NUM_ID_DIGITS 24

void chat_choice_init(struct chat_choice *choice, const struct chat_choice_config *config) {
    choice->parser_config = config->parser;
    choice->custom_names = config->custom_names;
    choice->num_custom_names = config->num_custom_names;
    choice->hides_reasoning = config->hides_reasoning;
    choice->hides_content = config->must_call_tools;
    choice->max_tool_calls = config->allows_parallel ? OUTPUT_MAX_TOOL_CALLS : 1;
}

static bool is_plain(const struct chat_choice *choice) {
    return choice->parser_config.tools == TOOL_CALL_FORMAT_NONE &&
           choice->parser_config.reasoning == REASONING_FORMAT_NONE;
}

void chat_choice_finish(struct chat_choice *choice) {
    output_parser_destroy(choice->parser);
    byte_buffer_finish(&choice->content);
    byte_buffer_finish(&choice->reasoning);
    byte_buffer_finish(&choice->logprobs);
    byte_buffer_finish(&choice->token_ids);
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        byte_buffer_finish(&choice->tool_calls[i].name);
        byte_buffer_finish(&choice->tool_calls[i].arguments);
    }
    free(choice->tool_calls);
}

static int begin_tool_call(struct chat_choice *choice, const struct output_part *part) {
    if (!array_reserve(&choice->tool_calls, &choice->tool_calls_capacity,
                       (size_t)choice->num_tool_calls + 1, sizeof(*choice->tool_calls)))
        return -1;
    struct chat_tool_call *call = &choice->tool_calls[choice->num_tool_calls++];
    *call = (struct chat_tool_call){
        .is_custom = tool_call_name_is_listed(choice->custom_names, choice->num_custom_names,
                                              part->text, part->length),
    };
    byte_buffer_append(&call->name, part->text, part->length);
    return random_id("call_", NUM_ID_DIGITS, call->id, sizeof(call->id));
}

static void add_arguments(struct chat_tool_call *call, const char *text, size_t length) {
    if (call->is_custom)
        custom_input_push(&call->input, text, length, &call->arguments);
    else
        byte_buffer_append(&call->arguments, text, length);
    call->has_arguments = call->has_arguments || length > 0;
}

static int add_part(struct chat_choice *choice, const struct output_part *part) {
    switch (part->kind) {
    case OUTPUT_PART_REASONING:
        if (!choice->hides_reasoning)
            byte_buffer_append(&choice->reasoning, part->text, part->length);
        return 0;
    case OUTPUT_PART_CONTENT:
        if (!choice->hides_content)
            byte_buffer_append(&choice->content, part->text, part->length);
        return 0;
    case OUTPUT_PART_TOOL_CALL:
        return part->tool_index < choice->max_tool_calls ? begin_tool_call(choice, part) : 0;
    case OUTPUT_PART_TOOL_ARGUMENTS:
        if (part->tool_index < choice->num_tool_calls)
            add_arguments(&choice->tool_calls[part->tool_index], part->text, part->length);
        return 0;
    }
    return 0;
}

/* Completes empty arguments: clients parse them as JSON, even those of a function that takes
 * none. */
static void complete_tool_calls(struct chat_choice *choice) {
    for (int32_t i = 0; i < choice->num_tool_calls; i++)
        if (!choice->tool_calls[i].has_arguments)
            add_arguments(&choice->tool_calls[i], "{}", 2);
}

static bool has_failed(const struct chat_choice *choice) {
    bool failed = choice->content.failed || choice->reasoning.failed;
    for (int32_t i = 0; i < choice->num_tool_calls; i++)
        failed =
            failed || choice->tool_calls[i].name.failed || choice->tool_calls[i].arguments.failed;
    return failed;
}

enum output_end chat_choice_end_of(const struct token_event *event) {
    if (event->finish == FINISH_NONE)
        return OUTPUT_GOES_ON;
    bool is_models = event->finish == FINISH_STOP && event->stop_string < 0;
    return is_models ? OUTPUT_ENDS : OUTPUT_IS_CUT;
}

int chat_choice_add(struct chat_choice *choice, const struct token_event *event) {
    bool is_end = event->finish != FINISH_NONE;
    struct output_part part;
    if (is_plain(choice)) {
        byte_buffer_append(&choice->content, event->text, event->text_bytes);
        return choice->content.failed ? -1 : 0;
    }
    if (choice->parser == NULL)
        choice->parser = output_parser_create(&choice->parser_config);
    if (choice->parser == NULL)
        return -1;
    if (output_parser_push(choice->parser, event->text, event->text_bytes,
                           chat_choice_end_of(event)) != 0)
        return -1;
    choice->has_broken_call = output_parser_is_broken(choice->parser);
    while (output_parser_next(choice->parser, &part)) {
        if (part.kind == OUTPUT_PART_REASONING)
            choice->num_reasoning_tokens = event->num_generated;
        if (add_part(choice, &part) != 0)
            return -1;
    }
    if (is_end)
        complete_tool_calls(choice);
    return has_failed(choice) ? -1 : 0;
}

bool chat_choice_has_output(const struct chat_choice *choice) {
    if (choice->content.length > 0 || choice->reasoning.length > 0)
        return true;
    for (int32_t i = 0; i < choice->num_tool_calls; i++)
        if (!choice->tool_calls[i].is_begun || choice->tool_calls[i].arguments.length > 0)
            return true;
    return false;
}

void chat_choice_clear(struct chat_choice *choice) {
    byte_buffer_clear(&choice->content);
    byte_buffer_clear(&choice->reasoning);
    byte_buffer_clear(&choice->logprobs);
    byte_buffer_clear(&choice->token_ids);
    for (int32_t i = 0; i < choice->num_tool_calls; i++) {
        choice->tool_calls[i].is_begun = true;
        byte_buffer_clear(&choice->tool_calls[i].arguments);
    }
}

size_t chat_choice_bytes(const struct chat_choice *choice) {
    size_t bytes = choice->content.capacity + choice->reasoning.capacity +
                   choice->logprobs.capacity + choice->token_ids.capacity;
    for (int32_t i = 0; i < choice->num_tool_calls; i++)
        bytes += choice->tool_calls[i].name.capacity + choice->tool_calls[i].arguments.capacity;
    return bytes;
}
