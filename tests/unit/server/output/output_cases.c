#include "tests/unit/server/output/output_cases.h"

#define NOTHING                                                                                    \
    { .tools = TOOL_CALL_FORMAT_NONE }
#define HERMES                                                                                     \
    { .tools = TOOL_CALL_FORMAT_HERMES }
#define LLAMA3                                                                                     \
    { .tools = TOOL_CALL_FORMAT_LLAMA3_JSON }
#define MISTRAL                                                                                    \
    { .tools = TOOL_CALL_FORMAT_MISTRAL }
#define THINK                                                                                      \
    { .reasoning = REASONING_FORMAT_THINK }
#define OPENED                                                                                     \
    { .reasoning = REASONING_FORMAT_THINK, .begins_in_reasoning = true }
#define THINK_HERMES                                                                               \
    { .tools = TOOL_CALL_FORMAT_HERMES, .reasoning = REASONING_FORMAT_THINK }
#define THINK_LLAMA3                                                                               \
    { .tools = TOOL_CALL_FORMAT_LLAMA3_JSON, .reasoning = REASONING_FORMAT_THINK }

static const char two_names[] = "f\0mcp/git";
#define ALLOWED(format)                                                                            \
    { .tools = TOOL_CALL_FORMAT_##format, .allowed_names = two_names, .num_allowed_names = 2 }

/* Of f: s is a string, n one or null. */
static const char types_of_f[] = "f\0ss\0nn\0";
#define QWEN3_CODER                                                                                \
    {                                                                                              \
        .tools = TOOL_CALL_FORMAT_QWEN3_CODER, .parameter_types = {                                \
            types_of_f,                                                                            \
            sizeof(types_of_f)                                                                     \
        }                                                                                          \
    }
#define GLM                                                                                        \
    {                                                                                              \
        .tools = TOOL_CALL_FORMAT_GLM45, .parameter_types = { types_of_f, sizeof(types_of_f) }     \
    }
#define THINK_GLM                                                                                  \
    { .tools = TOOL_CALL_FORMAT_GLM45, .reasoning = REASONING_FORMAT_THINK }

#define HARMONY                                                                                    \
    { .tools = TOOL_CALL_FORMAT_HARMONY, .reasoning = REASONING_FORMAT_HARMONY }
#define HARMONY_ANSWER                                                                             \
    { .reasoning = REASONING_FORMAT_HARMONY }

#define DEEPSEEK                                                                                   \
    { .tools = TOOL_CALL_FORMAT_DEEPSEEK_V3, .reasoning = REASONING_FORMAT_THINK }
#define KIMI                                                                                       \
    { .tools = TOOL_CALL_FORMAT_KIMI_K2 }
#define GRANITE                                                                                    \
    { .tools = TOOL_CALL_FORMAT_GRANITE, .reasoning = REASONING_FORMAT_GRANITE }
#define COHERE                                                                                     \
    { .tools = TOOL_CALL_FORMAT_COHERE, .reasoning = REASONING_FORMAT_COHERE }

#define GRANITE_20B                                                                                \
    { .tools = TOOL_CALL_FORMAT_GRANITE_20B }
#define GRANITE_33                                                                                 \
    { .tools = TOOL_CALL_FORMAT_GRANITE, .reasoning = REASONING_FORMAT_GRANITE_33 }
#define PYTHONIC                                                                                   \
    { .tools = TOOL_CALL_FORMAT_PYTHONIC }
#define THINK_PYTHONIC                                                                             \
    { .tools = TOOL_CALL_FORMAT_PYTHONIC, .reasoning = REASONING_FORMAT_THINK }

static const char given_names[] =
    "get_weather\0bash\0read_file\0write_file\0search_code\0add\0run_python\0f";
#define BARE(format)                                                                               \
    { .tools = TOOL_CALL_FORMAT_##format, .bare_names = given_names, .num_bare_names = 8 }
#define FORCED(format)                                                                             \
    { .tools = TOOL_CALL_FORMAT_##format, .is_forced = true }

/* DeepSeek's markers. */
#define DS(word) "<\uff5ctool\u2581" word "\uff5c>"
#define DS_BEGIN DS("calls\u2581begin")
#define DS_END DS("calls\u2581end")
#define DS_CALL DS("call\u2581begin")
#define DS_CALL_END DS("call\u2581end")
#define DS_SEP DS("sep")
#define KIMI_BEGIN "<|tool_calls_section_begin|>"
#define KIMI_END "<|tool_calls_section_end|>"
#define KIMI_CALL(id, arguments)                                                                   \
    "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"

/* Sixteen levels of nesting. */
#define DEEP_OPEN "[[[[[[[[[[[[[[[["
#define DEEP_CLOSE "]]]]]]]]]]]]]]]]"
#define DEEP_48 DEEP_OPEN DEEP_OPEN DEEP_OPEN
#define DEEP_48_CLOSE DEEP_CLOSE DEEP_CLOSE DEEP_CLOSE

#define NAME_16 "aaaaaaaaaaaaaaaa"
#define NAME_128 NAME_16 NAME_16 NAME_16 NAME_16 NAME_16 NAME_16 NAME_16 NAME_16

const struct output_case output_cases[] = {
    /* No format: every byte is content. */
    {NOTHING, "", ""},
    {NOTHING, " <think>a</think>\n<tool_call>{\"name\":\"f\"}</tool_call> ",
     "|content: <think>a</think>\n<tool_call>{\"name\":\"f\"}</tool_call> "},

    /* Reasoning. */
    {THINK, "<think>\nFirst.\n\nSecond.\n</think>\n\nAnswer.\n",
     "|reasoning:First.\n\nSecond.|content:Answer.\n"},
    {THINK, "<think>\n\n</think>\n\nAnswer.", "|content:Answer."},
    {THINK, "\n<think>a</think>", "|reasoning:a"},
    {THINK, "  No thoughts.</think> x", "|content:  No thoughts.</think> x"},
    {THINK, "<thin", "|content:<thin"},
    {THINK, "<<think>a</think>", "|content:<<think>a</think>"},
    {THINK, "Then <think>no</think>", "|content:Then <think>no</think>"},
    {THINK, "<think>a < b, </thin </ </think >\n</think>b",
     "|reasoning:a < b, </thin </ </think >|content:b"},
    {THINK, "<think>a</</think>b</think>c", "|reasoning:a</|content:b</think>c"},
    {THINK, "<think>cut off </thi", "|reasoning:cut off </thi"},
    {THINK, "<think>\u00e9\u4f60\U0001F600</think>\U0001F600", /* characters of 2, 3, 4 bytes */
     "|reasoning:\u00e9\u4f60\U0001F600|content:\U0001F600"},
    {OPENED, "Thoughts\n</think>\n\nAnswer", "|reasoning:Thoughts|content:Answer"},
    {OPENED, "<think>\nThoughts\n</think>Answer", "|reasoning:Thoughts|content:Answer"},
    {OPENED, "\n\nThoughts", "|reasoning:Thoughts"},
    {OPENED, "</think>Answer", "|content:Answer"},
    {OPENED, "<th</think>Answer", "|reasoning:<th|content:Answer"},

    /* Hermes. */
    {HERMES, "Just text, 1 < 2, <tool>, <tool_cal and spaces  \n ",
     "|content:Just text, 1 < 2, <tool>, <tool_cal and spaces  \n "},
    {HERMES,
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
     "|call 0:get_weather|arguments 0:{\"city\": \"Oslo\"}"},
    {HERMES, "Let me look. \n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n\n Done. ",
     "|content:Let me look.|call 0:f|arguments 0:{}|content:Done. "},
    {HERMES,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"g\", \"arguments\": {\"b\": [1, {\"c\": null}]}}\n</tool_call>",
     "|call 0:f|arguments 0:{\"a\": 1}|call 1:g|arguments 1:{\"b\": [1, {\"c\": null}]}"},
    {HERMES, "<tool_call>{\"arguments\": {\"a\": {\"b\": {}}}, \"name\": \"f\"}</tool_call>",
     "|call 0:f|arguments 0:{\"a\": {\"b\": {}}}"},
    {HERMES,
     "<tool_call>{\"id\": -1.5e+3, \"type\": [true, false], \"name\": \"f\", \"x\": 0}</tool_call>",
     "|call 0:f|arguments 0:{}"},
    {HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
     "|call 0:f|arguments 0:{}"},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
     "\\\"x\\\\n\\u00e9\\uD83D\\uDE00\\\"}\"}"
     "</tool_call>",
     "|call 0:f|arguments 0:{\"a\": \"x\\n\u00e9\U0001F600\"}"},
    {HERMES,
     "<tool_call>{\"arguments\":\"\\ud83d "
     "\\ud83d\\ud83d\\n\\udE00\\ud83d\",\"name\":\"f\"}</tool_call>",
     "|content:<tool_call>{\"arguments\":\"\\ud83d "
     "\\ud83d\\ud83d\\n\\udE00\\ud83d\",\"name\":\"f\"}</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"\"}</tool_call>",
     "|call 0:f|arguments 0:{}"},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"}{\\\"\\\\\\u007d</tool_call>\"}}</"
     "tool_call>",
     "|call 0:f|arguments 0:{\"a\":\"}{\\\"\\\\\\u007d</tool_call>\"}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"line\nline\ttab\"}}</tool_call>",
     "|call 0:f|arguments 0:{\"a\":\"line\\u000aline\\u0009tab\"}"},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1},\"arguments\":{\"b\":2},\"name\":\"g\"}</"
     "tool_call>",
     "|call 0:f|arguments 0:{\"a\":1}"},
    {HERMES, "a <to \n<tool_call>{\"name\":\"f\"}</tool_call>",
     "|content:a <to|call 0:f|arguments 0:{}"},
    /* The end marker is missing. */
    {HERMES, "<tool_call>{\"name\":\"f\"}\n<tool_call>{\"name\":\"g\"}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {HERMES, "<tool_call>{\"name\":\"f\"}</tool_ca", "|call 0:f|arguments 0:{}"},
    {HERMES, "<tool_call>{\"name\":\"f\"} </tool> b", "|call 0:f|arguments 0:{}|content:</tool> b"},
    /* It breaks off. */
    {HERMES, "a <tool_call>{\"name\": \"f\", ", "|content:a <tool_call>{\"name\": \"f\", "},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"b",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"b"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":\""},
    /* It is none. */
    {HERMES, "Use <tool_call> tags.", "|content:Use <tool_call> tags."},
    {HERMES, " <tool_call>\n{\"name\": \"f\"", "|content: <tool_call>\n{\"name\": \"f\""},
    {HERMES, "<tool_call>{\"name\": f}</tool_call>",
     "|content:<tool_call>{\"name\": f}</tool_call>"},
    {HERMES, "<tool_call>{\"name\": \"a b\"}</tool_call>",
     "|content:<tool_call>{\"name\": \"a b\"}</tool_call>"},
    {HERMES, "<tool_call>{\"name\": \"\"}</tool_call>",
     "|content:<tool_call>{\"name\": \"\"}</tool_call>"},
    {HERMES, "<tool_call>{}</tool_call>", "|content:<tool_call>{}</tool_call>"},
    {HERMES, "<tool_call>{\"arguments\": {}}</tool_call>",
     "|content:<tool_call>{\"arguments\": {}}</tool_call>"},
    {HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
     "|content:<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"" NAME_128 "a\"}",
     "|content:<tool_call>{\"name\":\"" NAME_128 "a\"}"},
    {HERMES, "<tool_call>{\"name\":\"" NAME_128 "\"}", "|call 0:" NAME_128 "|arguments 0:{}"},
    /* Names as MCP has them, also with the slash escaped, and what only looks like one. */
    {HERMES, "<tool_call>{\"name\":\"mcp/git.log:v1_x-2\"}",
     "|call 0:mcp/git.log:v1_x-2|arguments 0:{}"},
    {HERMES, "<tool_call>{\"n\\u0061me\":\"mcp\\/git\"}", "|call 0:mcp/git|arguments 0:{}"},
    {HERMES, "<tool_call>{\"name\":\"f\\ud83d\"}", "|content:<tool_call>{\"name\":\"f\\ud83d\"}"},
    {LLAMA3, "{\"name\": \"mcp/git.log\", \"parameters\": {}}",
     "|call 0:mcp/git.log|arguments 0:{}"},
    {MISTRAL, "[TOOL_CALLS]mcp/git.log[ARGS]{\"a\": 1}",
     "|call 0:mcp/git.log|arguments 0:{\"a\": 1}"},
    {MISTRAL, "[TOOL_CALLS]" NAME_128 "{}", "|call 0:" NAME_128 "|arguments 0:{}"},
    {MISTRAL, "[TOOL_CALLS]" NAME_128 "a{}", "|content:[TOOL_CALLS]" NAME_128 "a{}"},
    /* Where only some may be called, calls of others are content. */
    {ALLOWED(HERMES), "<tool_call>{\"name\":\"mcp/git\"}</tool_call>",
     "|call 0:mcp/git|arguments 0:{}"},
    {ALLOWED(HERMES), "<tool_call>{\"name\":\"mcp/gi\"}</tool_call>",
     "|content:<tool_call>{\"name\":\"mcp/gi\"}</tool_call>"},
    {ALLOWED(HERMES),
     "<tool_call>{\"arguments\":{\"a\":1},\"name\":\"g\"}</tool_call> <tool_call>{\"name\":\"f\"}",
     "|content:<tool_call>{\"arguments\":{\"a\":1},\"name\":\"g\"}</tool_call>|call 0:f|arguments "
     "0:{}"},
    {ALLOWED(LLAMA3_JSON), "{\"name\":\"g\",\"parameters\":{}}",
     "|content:{\"name\":\"g\",\"parameters\":{}}"},
    {ALLOWED(LLAMA3_JSON), "{\"name\":\"f\",\"parameters\":{}}", "|call 0:f|arguments 0:{}"},
    {ALLOWED(MISTRAL), "[TOOL_CALLS]g[ARGS]{}", "|content:[TOOL_CALLS]g[ARGS]{}"},
    {ALLOWED(MISTRAL), "[TOOL_CALLS]g{}", "|content:[TOOL_CALLS]g{}"},
    {ALLOWED(MISTRAL), "[TOOL_CALLS]f[ARGS]{}", "|call 0:f|arguments 0:{}"},
    {HERMES, "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>",
     "|content:<tool_call>|call 0:f|arguments 0:{}"},
    {HERMES, "<tool_call>{\"x\":01,<tool_call>{\"name\":\"f\"}</tool_call>",
     "|content:<tool_call>{\"x\":01,|call 0:f|arguments 0:{}"},
    /* It breaks behind what is out. */
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":tru}}</tool_call> x",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":tru}}</tool_call> x"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\\x\"}}",
     "|call 0:f|arguments 0:{\"a\":\"\\\\x\"}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" DEEP_48 "]",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" DEEP_48 "]"},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" DEEP_OPEN DEEP_OPEN DEEP_CLOSE DEEP_CLOSE
     "}}</tool_call>",
     "|call 0:f|arguments 0:{\"a\":" DEEP_OPEN DEEP_OPEN DEEP_CLOSE DEEP_CLOSE "}"},

    /* What is no strict JSON, and means something nevertheless. */
    {HERMES,
     "<tool_call>{\"name\":\"bash\",\"arguments\":{\"command\":\"rm -rf \\$HOME/tmp/x\"}}"
     "</tool_call>",
     "|call 0:bash|arguments 0:{\"command\":\"rm -rf \\\\$HOME/tmp/x\"}"},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"it\\'s \\d+ C:\\Users \\u12 \\x41 \\\n"
     "end\"}}</tool_call>",
     "|call 0:f|arguments 0:{\"a\":\"it's \\\\d+ C:\\\\Users \\\\u12 \\\\x41 \\\\\\u000aend\"}"},
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":True,\"b\": [None, False,\n], },}"
     "</tool_call>",
     "|call 0:f|arguments 0:{\"a\":true,\"b\": [null, false]}"},
    {HERMES,
     "<tool_call>{'name': 'f', 'arguments': {'a': 'say \"hi\", it\\'s me', \"b\": '\\n'}}"
     "</tool_call> x",
     "|call 0:f|arguments 0:{\"a\": \"say \\\"hi\\\", it's me\", \"b\": \"\\n\"}|content:x"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"{'a': '\\\\d', }\"}</tool_call>",
     "|call 0:f|arguments 0:{\"a\": \"\\\\d\"}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"{'a': tru}\"}</tool_call>",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":\"{'a': tru}\"}</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\"{'a': 1\"}</tool_call>",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":\"{'a': 1\"}</tool_call>"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":\" {} {}\"}</tool_call>",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":\" {} {}\"}</tool_call>"},
    {MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": \"\\$x\",}", "|call 0:f|arguments 0:{\"a\": \"\\\\$x\"}"},
    {HARMONY, "<|channel|>commentary to=functions.f<|message|>{\"a\": '\\$x'}<|call|>",
     "|call 0:f|arguments 0:{\"a\": \"\\\\$x\"}"},
    {LLAMA3, "{\"name\": \"f\", \"parameters\": {\"a\": True,}}",
     "|call 0:f|arguments 0:{\"a\": true}"},
    /* The last brace is missing. */
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}</tool_call> x",
     "|call 0:f|arguments 0:{\"a\":1}|content:x"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}",
     "|call 0:f|arguments 0:{\"a\":1}"},
    {HERMES, "<tool_call>{\"arguments\":{\"a\":1}</tool_call>",
     "|content:<tool_call>{\"arguments\":{\"a\":1}</tool_call>"},
    /* A brace more than there are. */
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}}</tool_call> x",
     "|call 0:f|arguments 0:{}|content:x"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}} }\n</tool_call>",
     "|call 0:f|arguments 0:{\"a\":1}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}}", "|call 0:f|arguments 0:{}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}}<tool_call>{\"name\":\"g\"}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}}} x",
     "|call 0:f|arguments 0:{}|content:x"},
    /* Several in one tag. */
    {HERMES, "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\"}]</tool_call> x",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}|content:x"},
    {HERMES, "<tool_call>\n[\n{\"name\":\"f\"}\n]\n</tool_call><tool_call>{\"name\":\"g\"}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {HERMES, "<tool_call>[{\"name\":\"f\"}</tool_call> x<", "|call 0:f|arguments 0:{}|content:x<"},
    {HERMES, "<tool_call>[{\"name\":\"f\"}\n<tool_call>{\"name\":\"g\"}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}\n<tool_call>{\"name\":\"g\"}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {HERMES, "<tool_call>[]</tool_call>", "|content:<tool_call>[]</tool_call>"},
    {HERMES, "<tool_call>[{\"name\":\"f\"}, 1]</tool_call>",
     "|call 0:f|arguments 0:{}|content:, 1]</tool_call>"},
    {HERMES, "<tool_call>[1]</tool_call>", "|content:<tool_call>[1]</tool_call>"},
    /* Which quote ends the string is not clear. */
    {HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"say \"hi\"\"}}</tool_call>",
     "|content:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"say \"hi\"\"}}</tool_call>"},
    {HERMES, "<tool_call>{'name':'f','arguments':{'a':'it's'}}</tool_call>",
     "|content:<tool_call>{'name':'f','arguments':{'a':'it's'}}</tool_call>"},
    /* The second is broken, the first is none the less one. */
    {HERMES,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"f\","
     "\"arguments\":{\"a\":",
     "|call 0:f|arguments 0:{}|content:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":"},
    /* A grammar writes the calls. */
    {FORCED(HERMES), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"b",
     "|call 0:f|arguments 0:{\"a\":\"b"},
    {FORCED(QWEN3_CODER), "<tool_call><function=f><parameter=s>1\n</parameter>\n<par",
     "|call 0:f|arguments 0:{\"s\": 1"},
    {FORCED(HARMONY), "<|channel|>commentary to=functions.f<|message|>{\"a\": [1",
     "|call 0:f|arguments 0:{\"a\": ["},

    /* Without markers, as Qwen2.5-Coder-0.5B-Instruct wrote them. */
    {BARE(HERMES),
     "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"unit\": \"celsius\"}}",
     "|call 0:get_weather|arguments 0:{\"city\": \"Paris\", \"unit\": \"celsius\"}"},
    {BARE(HERMES),
     "```json\n{\n  \"name\": \"bash\",\n  \"arguments\": {\n    \"command\": \"rm -rf "
     "$HOME/tmp/x\"\n  }\n}\n```",
     "|call 0:bash|arguments 0:{\n    \"command\": \"rm -rf $HOME/tmp/x\"\n  }"},
    {BARE(HERMES),
     "```json\n{\n  \"name\": \"bash\",\n  \"arguments\": {\n    \"command\": \"find . -name "
     "'*.c' -exec grep -o 'main' {} \\;\"\n  }\n}\n```",
     "|call 0:bash|arguments 0:{\n    \"command\": \"find . -name '*.c' -exec grep -o 'main' {} "
     "\\\\;\"\n  }"},
    {BARE(HERMES),
     "```json\n[\n    {\"name\": \"bash\", \"arguments\": {\"command\": \"grep -r '\\\\bmain\\\\b' "
     ".c\"}}\n]\n```",
     "|call 0:bash|arguments 0:{\"command\": \"grep -r '\\\\bmain\\\\b' .c\"}"},
    {BARE(HERMES),
     "```json\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"hello.txt\", \"content\": "
     "\"Hello, world!\"}}\n{\"name\": \"read_file\", \"arguments\": {\"path\": "
     "\"hello.txt\"}}\n```",
     "|call 0:write_file|arguments 0:{\"path\": \"hello.txt\", \"content\": \"Hello, "
     "world!\"}|call 1:read_file|arguments 1:{\"path\": \"hello.txt\"}"},
    {BARE(HERMES),
     "It takes a city name as a parameter.\nExample call as JSON:\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"New York\", \"unit\": \"celsius\"}}\n",
     "|content:It takes a city name as a parameter.\nExample call as JSON:|call "
     "0:get_weather|arguments 0:{\"city\": \"New York\", \"unit\": \"celsius\"}"},
    /* It names no given tool, is no call, or is explained. */
    {BARE(HERMES),
     "```json\n{\n  \"name\": \"hello.c\",\n  \"arguments\": {\n    \"path\": \"/dev/null\"\n  "
     "}\n}\n```",
     "|content:```json\n{\n  \"name\": \"hello.c\",\n  \"arguments\": {\n    \"path\": "
     "\"/dev/null\"\n  }\n}\n```"},
    {BARE(HERMES), "```json\n{\"name\": \"add\", \"arguments\": 12.5 + 30}\n```",
     "|content:```json\n{\"name\": \"add\", \"arguments\": 12.5 + 30}\n```"},
    {BARE(HERMES),
     "Here's an example JSON object:\n\n{\"name\": \"Alice\", \"arguments\": {\"name\": "
     "\"Alice\", \"age\": 30}}",
     "|content:Here's an example JSON object:\n\n{\"name\": \"Alice\", \"arguments\": {\"name\": "
     "\"Alice\", \"age\": 30}}"},
    {BARE(HERMES),
     "```json\n{\n  \"name\": \"run_python\",\n  \"description\": \"Run Python code\",\n  "
     "\"parameters\": {\n    \"code\": \"1\"\n  }\n}\n```",
     "|content:```json\n{\n  \"name\": \"run_python\",\n  \"description\": \"Run Python "
     "code\",\n  \"parameters\": {\n    \"code\": \"1\"\n  }\n}\n```"},
    {BARE(HERMES),
     "Here is a sample request for Paris:\n\n```json\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"Paris\"}}\n```\n\nIt will return the weather.",
     "|content:Here is a sample request for Paris:\n\n```json\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"Paris\"}}\n```\n\nIt will return the weather."},
    /* Other ways of other models. */
    {BARE(HERMES), "{\"name\":\"f\",\"arguments\":{}}\n</tool_call>\nDone.",
     "|call 0:f|arguments 0:{}|content:Done."},
    {BARE(HERMES), "{\"name\":\"f\",\"arguments\":{}}\n<tool_call>{\"name\":\"add\"}</tool_call> x",
     "|call 0:f|arguments 0:{}|call 1:add|arguments 1:{}|content:x"},
    {BARE(HERMES), "Hm.\n```\n{\"name\":\"f\",\"arguments\":{}}",
     "|content:Hm.|call 0:f|arguments 0:{}"},
    {BARE(HERMES),
     "```json\n{\"name\":\"f\",\"arguments\":{}}\n```\n\n```json\n{\"name\":\"f\","
     "\"arguments\":{}}\n```\n",
     "|call 0:f|arguments 0:{}|call 1:f|arguments 1:{}"},
    {BARE(LLAMA3_JSON), "I look.\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
     "|content:I look.|call 0:f|arguments 0:{\"a\": 1}"},
    {BARE(HERMES), "{\"name\": \"f\", \"parameters\": {}}",
     "|content:{\"name\": \"f\", \"parameters\": {}}"},
    {BARE(HERMES), "{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"f\",\"arguments\":{}}",
     "|call 0:f|arguments 0:{}|call 1:f|arguments 1:{}"},
    {BARE(HERMES), "{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"f\",\"argum",
     "|content:{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"f\",\"argum"},
    {BARE(HERMES), "{{\"name\":\"f\",\"arguments\":{}}", "|content:{|call 0:f|arguments 0:{}"},
    {BARE(HERMES), "`{\"name\":\"f\",\"arguments\":{}}` is ``a``, ```c\nint x[] = {1};\n``` {}",
     "|content:`{\"name\":\"f\",\"arguments\":{}}` is ``a``, ```c\nint x[] = {1};\n``` {}"},
    {BARE(HERMES), "```json a b c d e f g h\n{\"name\":\"f\",\"arguments\":{}} x",
     "|content:```json a b c d e f g h\n{\"name\":\"f\",\"arguments\":{}} x"},
    {BARE(QWEN3_CODER), "{\"name\":\"f\",\"arguments\":{}}",
     "|content:{\"name\":\"f\",\"arguments\":{}}"},
    {BARE(HERMES), "[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"add\",\"arguments\":{}}]",
     "|call 0:f|arguments 0:{}|call 1:add|arguments 1:{}"},
    {BARE(HERMES), "[1, 2] and [a](b)", "|content:[1, 2] and [a](b)"},

    /* Hermes behind reasoning, which has no calls. */
    {THINK_HERMES,
     "<think>\nI call <tool_call>{\"name\":\"f\"}</tool_call>\n</think>\n\n<tool_call>\n"
     "{\"name\": \"g\", \"arguments\": {\"a\": 1}}\n</tool_call>",
     "|reasoning:I call <tool_call>{\"name\":\"f\"}</tool_call>|call 0:g|arguments 0:{\"a\": 1}"},
    {THINK_HERMES, "<tool_call>{\"name\":\"g\"}</tool_call>", "|call 0:g|arguments 0:{}"},

    /* Llama 3. */
    {LLAMA3, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
     "|call 0:f|arguments 0:{\"a\": \"b\"}"},
    {LLAMA3, "\n\n<|python_tag|>{\"name\": \"f\", \"arguments\": {\"a\": 2}}",
     "|call 0:f|arguments 0:{\"a\": 2}"},
    {LLAMA3, " {\"type\": \"function\", \"parameters\": {\"a\": 1}, \"name\": \"f\"} ",
     "|call 0:f|arguments 0:{\"a\": 1}"},
    {LLAMA3, "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{\"x\":\";\"}};\n",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{\"x\":\";\"}"},
    {LLAMA3, "{\"name\":\"f\",\"parameters\":{}}\n{\"name\":\"g\",\"parameters\":{}} and so on {}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}|content:and so on {}"},
    {LLAMA3, "{\"name\":\"f\",\"parameters\":{}}; done", "|call 0:f|arguments 0:{}|content:; done"},
    {LLAMA3, "{\"name\":\"f\",\"parameters\":{}}<|python_tag|>{\"name\":\"g\",\"parameters\":{}}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {LLAMA3, "{\"name\":\"f\",\"parameters\":{}}; {\"answer\": 1}",
     "|call 0:f|arguments 0:{}|content:; {\"answer\": 1}"},
    {LLAMA3, "Sure.<|python_tag|>{\"name\":\"f\",\"parameters\":{}}",
     "|content:Sure.|call 0:f|arguments 0:{}"},
    {LLAMA3, "{\"answer\": 42} ", "|content:{\"answer\": 42} "},
    {LLAMA3, "{\"name\": \"Ann\"}", "|content:{\"name\": \"Ann\"}"},
    {LLAMA3, "{\"name\": \"Ann\", \"age\": 5}\n{\"name\":\"f\",\"parameters\":{}}",
     "|content:{\"name\": \"Ann\", \"age\": 5}\n{\"name\":\"f\",\"parameters\":{}}"},
    {LLAMA3, "Text {\"name\":\"f\",\"parameters\":{}}",
     "|content:Text {\"name\":\"f\",\"parameters\":{}}"},
    {LLAMA3, "<|python_tag|>print(1)", "|content:<|python_tag|>print(1)"},
    {LLAMA3, "<|{\"name\":\"f\",\"parameters\":{}}",
     "|content:<|{\"name\":\"f\",\"parameters\":{}}"},
    {LLAMA3,
     "{\"name\":\"f\",\"parameters\":{\"a\":", "|content:{\"name\":\"f\",\"parameters\":{\"a\":"},
    {THINK_LLAMA3, "<think>{\"name\":\"no\"}</think>\n{\"name\":\"f\",\"parameters\":{}}",
     "|reasoning:{\"name\":\"no\"}|call 0:f|arguments 0:{}"},

    /* Mistral. */
    {MISTRAL, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
     "|call 0:f|arguments 0:{\"a\": 1}"},
    {MISTRAL,
     "Hm. [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{},\"id\":\"abcdefghi\"}, "
     "{\"arguments\":{\"b\":[]},"
     "\"name\":\"g\"}] bye",
     "|content:Hm.|call 0:f|arguments 0:{}|call 1:g|arguments 1:{\"b\":[]}|content:bye"},
    {MISTRAL, "[TOOL_CALLS]{\"name\":\"f\",\"arguments\":{}}", "|call 0:f|arguments 0:{}"},
    {MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": \"]\"}[TOOL_CALLS]g.h-1[CALL_ID]Abc123xyz[ARGS] {}",
     "|call 0:f|arguments 0:{\"a\": \"]\"}|call 1:g.h-1|arguments 1:{}"},
    {MISTRAL, "[TOOL_CALLS]f{\"a\": 1}\nmore", "|call 0:f|arguments 0:{\"a\": 1}|content:more"},
    {MISTRAL, "[TOOL_CALLS]f{}, x", "|call 0:f|arguments 0:{}|content:, x"},
    {MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}", "|call 0:f|arguments 0:{}"},
    {MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}},", "|call 0:f|arguments 0:{}"},
    {MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, {\"nam",
     "|call 0:f|arguments 0:{}|content:, {\"nam"},
    {MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}[TOOL_CALLS]g{}",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {MISTRAL, "[TOOL_CALLS][] x", "|content:[TOOL_CALLS][] x"},
    {MISTRAL, "[TOOL_CALLS] ", "|content:[TOOL_CALLS] "},
    {MISTRAL, "[TOOL_CALLS]two words", "|content:[TOOL_CALLS]two words"},
    {MISTRAL, "[TOOL_CALLS]f[ARGUMENTS]{}", "|content:[TOOL_CALLS]f[ARGUMENTS]{}"},
    {MISTRAL, "[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}", "|content:[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}"},
    {MISTRAL, "[TOOL_CALLS]f[ARGS]12", "|content:[TOOL_CALLS]f[ARGS]12"},
    {MISTRAL, "[TOOL_CALLS][ARGS]{}", "|content:[TOOL_CALLS][ARGS]{}"},
    {MISTRAL, "[[TOOL_CALLS]f{}", "|content:[|call 0:f|arguments 0:{}"},
    {MISTRAL, "[TOOL_[TOOL_CALLS]f{}", "|content:[TOOL_|call 0:f|arguments 0:{}"},

    /* Qwen3-Coder. */
    {QWEN3_CODER,
     "I look.\n\n<tool_call>\n<function=f>\n<parameter=s>\nline \"1\"\n\n\tC:\\x "
     "</param\n</parameter>\n<parameter=a>\n12\n</parameter>\n</function>\n</tool_call>\nDone.",
     "|content:I look.|call 0:f|arguments 0:{\"s\": \"line \\\"1\\\"\\n\\n\\tC:\\\\x </param\", "
     "\"a\": 12}|content:Done."},
    {QWEN3_CODER,
     "<tool_call>\n<function=g>\n</function>\n</tool_call>\n<tool_call>\n<function=mcp/git.log>\n"
     "<parameter=a>\n{\"b\": [1, \"\u00e9\U0001F600\", "
     "{}]}\n</parameter>\n</function>\n</tool_call>",
     "|call 0:g|arguments 0:{}|call 1:mcp/git.log|arguments 1:{\"a\": {\"b\": [1, "
     "\"\u00e9\U0001F600\", {}]}}"},
    /* A string stays one, whatever it reads; other values are JSON where they are some. */
    {QWEN3_CODER, "<tool_call><function=f><parameter=s>12</parameter></function></tool_call>",
     "|call 0:f|arguments 0:{\"s\": \"12\"}"},
    {QWEN3_CODER,
     "<tool_call><function=f><parameter=n>null</parameter><parameter=n>12</parameter></function>",
     "|call 0:f|arguments 0:{\"n\": null, \"n\": \"12\"}"},
    {QWEN3_CODER,
     "<tool_call><function=g><parameter=s>-1.5e3</parameter><parameter=b>True</parameter>"
     "<parameter=c>\nNone\n</parameter><parameter=d>two words</parameter>"
     "<parameter=e>12 34</parameter><parameter=h>{\"a\":\"x\ny\"} </parameter></function>",
     "|call 0:g|arguments 0:{\"s\": -1.5e3, \"b\": true, \"c\": null, \"d\": \"two words\", \"e\": "
     "\"12 34\", \"h\": {\"a\":\"x\\u000ay\"}}"},
    {QWEN3_CODER,
     "<tool_call><function=f><parameter=s></parameter><parameter=x>\n\n</parameter></function>",
     "|call 0:f|arguments 0:{\"s\": \"\", \"x\": \"\"}"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=s>\n\n a \n\n</parameter></function>",
     "|call 0:f|arguments 0:{\"s\": \"\\n a \\n\"}"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=a \"b\">1</parameter></function>",
     "|call 0:f|arguments 0:{\"a \\\"b\\\"\": 1}"},
    /* It breaks off. */
    {QWEN3_CODER, "<tool_call>\n<function=f", "|content:<tool_call>\n<function=f"},
    {QWEN3_CODER, "<tool_call>\n<function=f>\n<param",
     "|content:<tool_call>\n<function=f>\n<param"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=s>a</par",
     "|content:<tool_call><function=f><parameter=s>a</par"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=n>a\"",
     "|content:<tool_call><function=f><parameter=n>a\""},
    {QWEN3_CODER, "<tool_call><function=f><parameter=a>[1, 2</",
     "|content:<tool_call><function=f><parameter=a>[1, 2</"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=a>1</parameter>\n<par",
     "|content:<tool_call><function=f><parameter=a>1</parameter>\n<par"},
    /* It is none, or breaks behind what is out. */
    {QWEN3_CODER, "Use <tool_call> and <function=f>", "|content:Use <tool_call> and <function=f>"},
    {QWEN3_CODER, "<tool_call>{\"name\":\"f\"}</tool_call>",
     "|content:<tool_call>{\"name\":\"f\"}</tool_call>"},
    {QWEN3_CODER, "<tool_call><function=a b></function>",
     "|content:<tool_call><function=a b></function>"},
    {QWEN3_CODER, "<tool_call><function=></function>",
     "|content:<tool_call><function=></function>"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=></function>",
     "|content:<tool_call><function=f><parameter=></function>"},
    {QWEN3_CODER, "<tool_call><function=f><parameter=a>1</parameter> then\n</function>",
     "|call 0:f|arguments 0:{\"a\": \"1</parameter> then\"}"},
    {ALLOWED(QWEN3_CODER), "<tool_call><function=g></function></tool_call>",
     "|content:<tool_call><function=g></function></tool_call>"},
    {QWEN3_CODER, "<tool_call><function=f></function> <tool_call><function=g></function>",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},

    /* The first tag is missing, the last ones are. */
    {QWEN3_CODER,
     "I look.\n<function=f>\n<parameter=s>\nls\n</parameter>\n</function>\n</tool_call>\nDone.",
     "|content:I look.|call 0:f|arguments 0:{\"s\": \"ls\"}|content:Done."},
    {QWEN3_CODER, "<function=f><parameter=s>ls</parameter></function>",
     "|call 0:f|arguments 0:{\"s\": \"ls\"}"},
    {QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=s>\nls\n</parameter>\n</tool_call> x",
     "|call 0:f|arguments 0:{\"s\": \"ls\"}|content:x"},
    {QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=s>\nls\n</parameter>\n",
     "|call 0:f|arguments 0:{\"s\": \"ls\"}"},
    {QWEN3_CODER,
     "<tool_call>\n<function=f>\n<parameter=s>\nls\n<parameter=x>\n1\n</function>\n</tool_call>",
     "|call 0:f|arguments 0:{\"s\": \"ls\", \"x\": 1}"},
    {QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=s>\nls\n</function>\n",
     "|call 0:f|arguments 0:{\"s\": \"ls\"}"},
    {QWEN3_CODER, "<tool_call>\n<function=f>\n<parameter=s>\nls\n</param",
     "|content:<tool_call>\n<function=f>\n<parameter=s>\nls\n</param"},
    /* Two functions in one call. */
    {QWEN3_CODER,
     "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n<function=g>\n"
     "<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>\nDone.",
     "|call 0:f|arguments 0:{\"s\": \"a\"}|call 1:g|arguments 1:{\"x\": 1}|content:Done."},
    /* A value has tags in it. */
    {QWEN3_CODER,
     "<tool_call>\n<function=f>\n<parameter=s>\nthe </parameter> tag, </function>, "
     "<parameter=x>,\n</parameter>\n\n</parameter>\n and </tool_call> \n</parameter>\n"
     "</function>\n</tool_call>",
     "|call 0:f|arguments 0:{\"s\": \"the </parameter> tag, </function>, "
     "<parameter=x>,\\n</parameter>\\n\\n</parameter>\\n and </tool_call> \"}"},
    /* Python's words and lists. */
    {QWEN3_CODER, "<tool_call><function=g><parameter=s>['a', True,]</parameter></function>",
     "|call 0:g|arguments 0:{\"s\": [\"a\", true]}"},

    /* GLM. */
    {GLM,
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a\n\"b\" <\u00e9></arg_value>\n<arg_key>x"
     "</arg_key>\n<arg_value>{\"c\": null}</arg_value>\n</tool_call>",
     "|call 0:f|arguments 0:{\"s\": \"a\\n\\\"b\\\" <\u00e9>\", \"x\": {\"c\": null}}"},
    {GLM,
     "Hm.\n<tool_call>g\n</tool_call>\n<tool_call>f<arg_key>s</arg_key><arg_value>1\n</arg_value>"
     "</tool_call> x",
     "|content:Hm.|call 0:g|arguments 0:{}|call 1:f|arguments 1:{\"s\": \"1\\n\"}|content:x"},
    {GLM, "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_va",
     "|content:<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_va"},
    {GLM, "<tool_call>f<arg_key>s</arg_key> a", "|content:<tool_call>f<arg_key>s</arg_key> a"},
    {GLM, "<tool_call>f<arg_key>s</arg_ke>", "|content:<tool_call>f<arg_key>s</arg_ke>"},
    {GLM, "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key>2",
     "|content:<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key>2"},
    {GLM, "<tool_call> two words </tool_call>", "|content:<tool_call> two words </tool_call>"},
    {GLM, "<tool_call></tool_call>", "|content:<tool_call></tool_call>"},
    {ALLOWED(GLM45), "<tool_call>g</tool_call><tool_call>f</tool_call>",
     "|content:<tool_call>g</tool_call>|call 0:f|arguments 0:{}"},
    {GLM,
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a </arg_value> b\n</arg_value>\n"
     "<arg_key>x</arg_key>\n<arg_value>1",
     "|content:<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a </arg_value> b\n</arg_value>\n"
     "<arg_key>x</arg_key>\n<arg_value>1"},
    {GLM,
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a </arg_value> b</arg_value>\n"
     "<arg_key>x</arg_key>\n<arg_value>1</tool_call>",
     "|call 0:f|arguments 0:{\"s\": \"a </arg_value> b\", \"x\": 1}"},
    {GLM, "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value>",
     "|call 0:f|arguments 0:{\"s\": \"a\"}"},
    {GLM,
     "<tool_call>f<arg_key>s</arg_key><arg_value>a<arg_key>x</arg_key><arg_value>1</arg_value>"
     "</tool_call>\n<tool_call>g</tool_call>",
     "|call 0:f|arguments 0:{\"s\": \"a\", \"x\": 1}|call 1:g|arguments 1:{}"},
    {THINK_GLM, "\n<think>a <tool_call>g</tool_call></think>\n<tool_call>f\n</tool_call>",
     "|reasoning:a <tool_call>g</tool_call>|call 0:f|arguments 0:{}"},

    /* Harmony. */
    {HARMONY,
     "<|channel|>analysis<|message|>a <b> <|x "
     "\n<|end|><|start|>assistant<|channel|>final<|message|>Hi "
     "\u00e9\n<|return|>",
     "|reasoning:a <b> <|x \n|content:Hi \u00e9\n"},
    {HARMONY,
     "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>"
     "Let me "
     "look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>"
     "{\"a\": \"<|call|> }\", \"b\": [{}]}<|call|>",
     "|reasoning:One.|content:Let me look.|call 0:f|arguments 0:{\"a\": \"<|call|> }\", \"b\": "
     "[{}]}"},
    {HARMONY,
     " to=functions.mcp/git<|channel|>commentary json<|message|> {} \n<|call|><|start|>assistant "
     "to=functions.g<|channel|>commentary json<|message|>{\"x\":\"a\nb\"}",
     "|call 0:mcp/git|arguments 0:{}|call 1:g|arguments 1:{\"x\":\"a\\u000ab\"}"},
    {HARMONY,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|"
     "channel|>"
     "final<|message|>c<|start|>assistant<|channel|>final<|message|>d",
     "|reasoning:a\nb|content:c\nd"},
    {HARMONY, "<|message|>a<|end|>b", "|content:a\nb"},
    {HARMONY, "No header <|cha", "|content:No header <|cha"},
    {HARMONY, " told", "|content: told"},
    {HARMONY, "<|channel|>anal", ""},
    {HARMONY, "<|channel|>analysis<|message|>a<|en", "|reasoning:a<|en"},
    {HARMONY, "<|channel|>commentary to=functions.f<|message|>{\"a\": [1",
     "|content:<|channel|>commentary to=functions.f<|message|>{\"a\": [1"},
    /* A call is none, or breaks. */
    {HARMONY, "<|channel|>commentary to=functions.f<|message|>",
     "|content:<|channel|>commentary to=functions.f<|message|>"},
    {HARMONY, "<|channel|>commentary to=functions.f<|message|> one<|end|>two",
     "|content:<|channel|>commentary to=functions.f<|message|> one\ntwo"},
    {HARMONY, "<|channel|>commentary to=functions.f<|message|>{\"a\":1]<|call|>",
     "|content:<|channel|>commentary to=functions.f<|message|>{\"a\":1]"},
    {HARMONY, "<|channel|>commentary to=browser.search<|message|>{}<|call|>",
     "|content:<|channel|>commentary to=browser.search<|message|>{}"},
    {HARMONY, "<|channel|>analysis to=python<|message|>1+1<|end|>", "|reasoning:1+1"},
    {HARMONY, "<|channel|>commentary to=functions.a b<|message|>{} and<|call|>",
     "|call 0:a|arguments 0:{}|content:and"},
    {HARMONY_ANSWER, "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
     "|content:<|channel|>commentary to=functions.f<|message|>{}"},
    {ALLOWED(HARMONY),
     "<|channel|>final<|message|>a<|end|><|start|>assistant to=functions.g<|message|>{}",
     "|content:a\n<|start|>assistant to=functions.g<|message|>{}"},
    {HARMONY, "<|channel|>" NAME_128 NAME_128 NAME_128 "<|message|>a", "|content:a"},

    /* DeepSeek: V3.1, then V3 and R1. */
    {DEEPSEEK,
     "<think>a</think>Hm." DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": \"\u00e9\nb\"}" DS_CALL_END DS_CALL
     "mcp/git" DS_SEP "{}" DS_CALL_END DS_END "Done.",
     "|reasoning:a|content:Hm.|call 0:f|arguments 0:{\"a\": \"\u00e9\\u000ab\"}|call "
     "1:mcp/git|arguments "
     "1:{}|content:Done."},
    {DEEPSEEK,
     DS_BEGIN DS_CALL "function" DS_SEP "f\n```json\n{\"a\": {\"b\": [1]}}\n```" DS_CALL_END
                      "\n" DS_CALL "function" DS_SEP "g\n```json\n{}\n```" DS_CALL_END DS_END,
     "|call 0:f|arguments 0:{\"a\": {\"b\": [1]}}|call 1:g|arguments 1:{}"},
    {DEEPSEEK, DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": 1}", "|call 0:f|arguments 0:{\"a\": 1}"},
    {DEEPSEEK,
     DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": ", "|content:" DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": "},
    {DEEPSEEK, DS_BEGIN DS_CALL "f" DS_SEP "[]", "|content:" DS_BEGIN DS_CALL "f" DS_SEP "[]"},
    {DEEPSEEK, DS_BEGIN DS_CALL "function" DS_SEP "f\n{}",
     "|content:" DS_BEGIN DS_CALL "function" DS_SEP "f\n{}"},
    {DEEPSEEK, DS_BEGIN DS_CALL "f" DS_SEP "{}" DS_CALL_END DS("call\u2581x"),
     "|call 0:f|arguments 0:{}|content:" DS("call\u2581x")},
    {DEEPSEEK, "<\uff5ctool\u2581\uff5d", "|content:<\uff5ctool\u2581\uff5d"},
    {ALLOWED(DEEPSEEK_V31), DS_BEGIN DS_CALL "g" DS_SEP "{}" DS_CALL_END DS_END,
     "|content:" DS_BEGIN DS_CALL "g" DS_SEP "{}" DS_CALL_END DS_END},

    /* Kimi K2. */
    {KIMI,
     "I look." KIMI_BEGIN KIMI_CALL("functions.f:0", "{\"a\": \"<|tool_call_end|>\"}")
         KIMI_CALL("functions.a.b:12", " {}") KIMI_END " end",
     "|content:I look.|call 0:f|arguments 0:{\"a\": \"<|tool_call_end|>\"}|call 1:a.b|arguments "
     "1:{}|content:end"},
    {KIMI, KIMI_BEGIN "\n" KIMI_CALL("f", "{}") "\n" KIMI_CALL("g:1", "{}"),
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}"},
    {KIMI, KIMI_BEGIN KIMI_END, "|content:" KIMI_BEGIN KIMI_END},
    {KIMI, KIMI_BEGIN "<|tool_call_begin|>functions.f",
     "|content:" KIMI_BEGIN "<|tool_call_begin|>functions.f"},
    {KIMI, KIMI_BEGIN KIMI_CALL("functions.f:0", "{}") "x", "|call 0:f|arguments 0:{}|content:x"},
    {ALLOWED(KIMI_K2), KIMI_BEGIN KIMI_CALL("functions.g:0", "{}"),
     "|content:" KIMI_BEGIN KIMI_CALL("functions.g:0", "{}")},

    /* Granite 3. */
    {GRANITE,
     "Here is my thought process:\nFirst \u00e9.\n\nHere is my response:\nHm. <|tool_call|> [\n "
     "{\"name\": "
     "\"f\", \"arguments\": {\"a\": [1]}},{\"name\": \"g\"}] bye",
     "|reasoning:First \u00e9.|content:Hm.|call 0:f|arguments 0:{\"a\": [1]}|call 1:g|arguments "
     "1:{}|content:bye"},
    {GRANITE, "Here is my response", "|content:Here is my response"},
    {GRANITE, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"b",
     "|content:<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"b"},
    {GRANITE, "<|tool_call|>[]", "|content:<|tool_call|>[]"},
    {GRANITE, "<|tool_call|>{\"name\": \"f\"}x", "|call 0:f|arguments 0:{}|content:x"},
    {ALLOWED(GRANITE), "<|tool_call|>[{\"name\": \"g\"}]",
     "|content:<|tool_call|>[{\"name\": \"g\"}]"},

    /* Command R7B and Command A. */
    {COHERE,
     "<|START_THINKING|>I look <|x.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": "
     "\"0\", "
     "\"tool_name\": \"f\", \"parameters\": {\"a\": \"]\\n\"}},\n    {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
     "|reasoning:I look <|x.|call 0:f|arguments 0:{\"a\": \"]\\n\"}|call 1:g|arguments 1:{}"},
    {COHERE, "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>One < <|two|>\n<|END_RESPONSE|>",
     "|reasoning:a|content:One < <|two|>\n"},
    {COHERE, "<|START_TEXT|>a<|START_RESP<|END_TEXT|><|END_", "|content:a<|START_RESP<|END_"},
    {COHERE, "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {}}]x",
     "|call 0:f|arguments 0:{}|content:x"},
    {COHERE, "<|START_ACTION|>[{\"tool_name\": 1}]",
     "|content:<|START_ACTION|>[{\"tool_name\": 1}]"},
    {ALLOWED(COHERE), "<|START_ACTION|>[{\"tool_name\": \"g\"}]",
     "|content:<|START_ACTION|>[{\"tool_name\": \"g\"}]"},

    /* Python's calls. */
    {PYTHONIC, "[get_weather(city=\"Oslo\", n=3), f()]",
     "|call 0:get_weather|arguments 0:{\"city\": \"Oslo\", \"n\": 3}|call 1:f|arguments 1:{}"},
    {PYTHONIC, "[get_weather(city='San Francisco', metric='celsius')]",
     "|call 0:get_weather|arguments 0:{\"city\": \"San Francisco\", \"metric\": \"celsius\"}"},
    {PYTHONIC,
     "[register_user(name='John Doe', age=37, address={'city': 'San Francisco', 'state': 'CA'}, "
     "role=None, passed_test=True, aliases=['John', 'Johnny'])]",
     "|call 0:register_user|arguments 0:{\"name\": \"John Doe\", \"age\": 37, \"address\": "
     "{\"city\": "
     "\"San Francisco\", \"state\": \"CA\"}, \"role\": null, \"passed_test\": true, \"aliases\": "
     "[\"John\", \"Johnny\"]}"},
    {PYTHONIC, "[f(a={}), f(a=[])]",
     "|call 0:f|arguments 0:{\"a\": {}}|call 1:f|arguments 1:{\"a\": []}"},
    {PYTHONIC, "[f(s='mark\\'s ten \"ft\\\\')]",
     "|call 0:f|arguments 0:{\"s\": \"mark's ten \\\"ft\\\\\"}"},
    {PYTHONIC, "<|python_start|>[f(a=1)]<|python_end|>", "|call 0:f|arguments 0:{\"a\": 1}"},
    {PYTHONIC, "I look.\n<|python_start|> [f(a=1)] <|python_end|>\nDone.",
     "|content:I look.|call 0:f|arguments 0:{\"a\": 1}|content:Done."},
    {PYTHONIC, "<|python_start|>print(1)<|python_end|>",
     "|content:<|python_start|>print(1)<|python_end|>"},
    {PYTHONIC, "[f(a=1)]<|python_", "|call 0:f|arguments 0:{\"a\": 1}"},
    {PYTHONIC, "[f(a=1)] Done <|", "|call 0:f|arguments 0:{\"a\": 1}|content:Done <|"},
    {PYTHONIC, "\n [ f ( a = 1 , \n\tb = 'x' , ) , g ( ) , ] \n",
     "|call 0:f|arguments 0:{\"a\": 1, \"b\": \"x\"}|call 1:g|arguments 1:{}"},
    {THINK_PYTHONIC, "<think>[f()]</think>\n[f()]", "|reasoning:[f()]|call 0:f|arguments 0:{}"},
    {PYTHONIC, "[mcp/files.read:v1_x-2(from-date='a', $top=1, \u00e9t\u00e9=2)]",
     "|call 0:mcp/files.read:v1_x-2|arguments 0:{\"from-date\": \"a\", \"$top\": 1, "
     "\"\u00e9t\u00e9\": 2}"},

    /* Its literals. */
    {PYTHONIC,
     "[f(a=\"\\n\\t\\r\\b\\f\\a\\v\\\\\\'\\\"\\/"
     "\\\n|\\0\\12\\1234\\x41\\xe9\\u00e9\\U0001F600\\q\\N{x}\")]",
     "|call 0:f|arguments 0:{\"a\": "
     "\"\\n\\t\\r\\u0008\\u000c\\u0007\\u000b\\\\'\\\"/|\\u0000\\nS4A\u00e9"
     "\u00e9\U0001F600\\\\q\\\\N{x}\"}"},
    {PYTHONIC, "[f(a='\\ud83d\\ude00', b='\\18')]",
     "|call 0:f|arguments 0:{\"a\": \"\\ud83d\\ude00\", \"b\": \"\\u00018\"}"},
    {PYTHONIC, "[f(a='\u00e9\u4f60\U0001F600', b='line\nline\ttab')]",
     "|call 0:f|arguments 0:{\"a\": \"\u00e9\u4f60\U0001F600\", \"b\": \"line\\nline\\ttab\"}"},
    {PYTHONIC,
     "[f(a='''it's ''a'' \"q\"\n''', b=\"\"\"\"\"\", c='', d='' 'x' \"y\", e='a'\n'''b''')]",
     "|call 0:f|arguments 0:{\"a\": \"it's ''a'' \\\"q\\\"\\n\", \"b\": \"\", \"c\": \"\", \"d\": "
     "\"xy\", \"e\": \"ab\"}"},
    {PYTHONIC, "[f(a=r'\\d\\'', b=u\"x\", c=R\"\"\"\\n\"\"\")]",
     "|call 0:f|arguments 0:{\"a\": \"\\\\d\\\\'\", \"b\": \"x\", \"c\": \"\\\\n\"}"},
    {PYTHONIC, "[f(a=-1, b=+2, c=1_000, d=0x1F, e=-0o17, f=0b1_01, g=00, h=0xFFFFFFFFFFFFFFFF)]",
     "|call 0:f|arguments 0:{\"a\": -1, \"b\": 2, \"c\": 1000, \"d\": 31, \"e\": -15, \"f\": 5, "
     "\"g\": 0, \"h\": 18446744073709551615}"},
    {PYTHONIC, "[f(a=1., b=.5, c=-1.50, d=1e5, e=1.E-5, f=007.5e+1_0, g=123456789012345678901)]",
     "|call 0:f|arguments 0:{\"a\": 1.0, \"b\": 0.5, \"c\": -1.50, \"d\": 1e5, \"e\": 1.0e-5, "
     "\"f\": 7.5e10, \"g\": 123456789012345678901}"},
    {PYTHONIC,
     "[f(a=[True, False, None, true, false, null, [ ], {}, ], b={1: 'x', None: [2], 'k': {\"q\": "
     "1.5,}})]",
     "|call 0:f|arguments 0:{\"a\": [true, false, null, true, false, null, [], {}], \"b\": {\"1\": "
     "\"x\", \"null\": [2], \"k\": {\"q\": 1.5}}}"},
    {PYTHONIC, "[f(a=" DEEP_48 "1" DEEP_48_CLOSE ")]",
     "|call 0:f|arguments 0:{\"a\": " DEEP_48 "1" DEEP_48_CLOSE "}"},
    {PYTHONIC, "[f(a=" DEEP_48 "[", "|content:[f(a=" DEEP_48 "["},

    /* No calls. */
    {PYTHONIC, "[1, 2, 3]", "|content:[1, 2, 3]"},
    {PYTHONIC, "[]", "|content:[]"},
    {PYTHONIC, "[docs](a=1) and [f()]", "|content:[docs](a=1) and [f()]"},
    {PYTHONIC, "[f() for x in y]", "|content:[f() for x in y]"},
    {PYTHONIC, "[f(x)]", "|content:[f(x)]"},
    {PYTHONIC, "[f(x == 1)]", "|content:[f(x == 1)]"},
    {PYTHONIC, "[f(x=y)]", "|content:[f(x=y)]"},
    {PYTHONIC, "[f(x=1j)]", "|content:[f(x=1j)]"},
    {PYTHONIC, "[f(x=012)]", "|content:[f(x=012)]"},
    {PYTHONIC, "[f(x=1__0)]", "|content:[f(x=1__0)]"},
    {PYTHONIC, "[f(x=0x)]", "|content:[f(x=0x)]"},
    {PYTHONIC, "[f(x=0x10000000000000000)]", "|content:[f(x=0x10000000000000000)]"},
    {PYTHONIC, "[f(x=1e)]", "|content:[f(x=1e)]"},
    {PYTHONIC, "[f(x=.)]", "|content:[f(x=.)]"},
    {PYTHONIC, "[f(x=- 1)]", "|content:[f(x=- 1)]"},
    {PYTHONIC, "[f(x=1-2)]", "|content:[f(x=1-2)]"},
    {PYTHONIC, "[f(x=f'a')]", "|content:[f(x=f'a')]"},
    {PYTHONIC, "[f(x=(1, 2))]", "|content:[f(x=(1, 2))]"},
    {PYTHONIC, "[f(,)]", "|content:[f(,)]"},
    {PYTHONIC, "[f(x=1", "|content:[f(x=1"},
    {PYTHONIC, "[f()", "|content:[f()"},
    {PYTHONIC, "[, f()]", "|content:[, f()]"},
    {PYTHONIC, "[" NAME_128 "a()]", "|content:[" NAME_128 "a()]"},
    {PYTHONIC, "The list [f()]", "|content:The list [f()]"},
    {ALLOWED(PYTHONIC), "[f(), g(a=1)]", "|call 0:f|arguments 0:{}|content:g(a=1)]"},
    {ALLOWED(PYTHONIC), "[g()]", "|content:[g()]"},

    /* What breaks off or is wrong behind a call's beginning. */
    {PYTHONIC, "[f(a='x", "|content:[f(a='x"},
    {PYTHONIC, "[f(a='x'", "|content:[f(a='x'"},
    {PYTHONIC, "[f(a='x')", "|call 0:f|arguments 0:{\"a\": \"x\"}"},
    {PYTHONIC, "[f(a='x'), ", "|call 0:f|arguments 0:{\"a\": \"x\"}"},
    {PYTHONIC, "[f(a='x'), g", "|call 0:f|arguments 0:{\"a\": \"x\"}|content:g"},
    {PYTHONIC, "[f(a=['x', 12", "|content:[f(a=['x', 12"},
    {PYTHONIC, "[f(a='x', b) and", "|content:[f(a='x', b) and"},
    {PYTHONIC, "[f(a='x' + 'y')]", "|content:[f(a='x' + 'y')]"},
    {PYTHONIC, "[f(a='\\xg')]", "|content:[f(a='\\xg')]"},
    {PYTHONIC, "[f(a='\\U00110000')]", "|content:[f(a='\\U00110000')]"},
    {PYTHONIC, "[f(a=[1,,2])]", "|content:[f(a=[1,,2])]"},
    {PYTHONIC, "[f(a={'x', 1})]", "|content:[f(a={'x', 1})]"},

    /* granite-20b-functioncalling: a marker for each call. */
    {GRANITE_20B, "<function_call> {\"name\": \"f\", \"arguments\": {\"a\": 1}}",
     "|call 0:f|arguments 0:{\"a\": 1}"},
    {GRANITE_20B,
     "<function_call>{\"name\": \"f\", \"arguments\": {}}\n<function_call> {\"name\": \"g\"} End",
     "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{}|content:End"},
    {GRANITE_20B, "<function_call> f", "|content:<function_call> f"},
    {ALLOWED(GRANITE_20B), "<function_call> {\"name\": \"no_function\", \"arguments\": {}}",
     "|content:<function_call> {\"name\": \"no_function\", \"arguments\": {}}"},

    /* Granite 3.3: tags around the answer, too. */
    {GRANITE_33, "<think>a</think>\n\n<response>\n b </response>\n", "|reasoning:a|content:b"},
    {GRANITE_33, "<think>a</think><response>b</response>", "|reasoning:a|content:b"},
    {GRANITE_33, "<think>a</think>b</response>", "|reasoning:a|content:b</response>"},
    {GRANITE_33, "<think>a</think><response>b </response> c<response></response></response>",
     "|reasoning:a|content:b </response> c<response></response>"},
    {GRANITE_33, "<think>a</think><response>b\n</resp", "|reasoning:a|content:b\n</resp"},
    {GRANITE_33, "<think>a</think><resp", "|reasoning:a|content:<resp"},
    {GRANITE_33, "<response>b</response>", "|content:<response>b</response>"},
    {GRANITE_33,
     "<think>a</think><response><|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]</response>",
     "|reasoning:a|call 0:f|arguments 0:{}"},
    {GRANITE_33, "<think>a</think><|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]",
     "|reasoning:a|call 0:f|arguments 0:{}"},
};
const int num_output_cases = sizeof(output_cases) / sizeof(output_cases[0]);
