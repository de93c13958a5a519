"""Conversations that make_chat_template_cases.py renders with every chat template: what an API's clients send, and
what they send by mistake. Each is the variables of one rendering; what is not named is None.
"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city, e.g. Paris"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "description": "The time now."}}
ORDER = {
    "type": "function",
    "function": {
        "name": "order_food",
        "description": "Orders food.\nSeveral \"dishes\" <at once> & more.",
        "parameters": {
            "type": "object",
            "properties": {
                "dishes": {
                    "type": "array",
                    "description": "What to order",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "description": "Café, 茶, or any"},
                            "count": {"type": "integer", "minimum": 1, "maximum": 20, "default": 1},
                            "extras": {"type": "array", "items": {"type": "string"}},
                        },
                        "required": ["name"],
                    },
                },
                "tip": {"type": "number", "description": "Percent", "default": 12.5},
                "note": {"type": ["string", "null"], "description": "A note", "nullable": True},
                "when": {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "When"},
                "address": {"$ref": "#/$defs/address"},
                "paid": {"type": "boolean", "default": False, "description": "Paid already"},
                "level": {"type": "integer", "enum": [1, 2, 3]},
                "any": {},
            },
            "required": ["dishes", "address"],
            "additionalProperties": False,
            "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}}}},
        },
        "strict": True,
        "return": {"type": "string", "description": "The order's number"},
    },
}
EMPTY = {"type": "function", "function": {"name": "ping", "description": "",
                                         "parameters": {"type": "object", "properties": {}}}}
DOCUMENTS = [{"title": "Moths", "text": "Moths like light."},
             {"title": "Bees \"and\" more", "text": "Bees\nlike flowers.", "doc_id": 7}]
NESTED = {"dishes": [{"name": "茶 \"green\"", "count": 2, "extras": ["milk", "it's"]}, {"name": "a<b>&c"}],
          "tip": 12.5, "note": None, "paid": True, "small": 1.5e-07, "big": 12345678901234, "negative": -3,
          "empty": {}, "none": [], "text": "line\nbreak\ttab \\ backslash"}
UNICODE = "Grüße, 世界! 👩‍👩‍👧 \"double\" 'single' <b>&amp;</b> \\n \\\nnew line\r\n\ttab"
SPACES = "\n \t two words \u00a0\u2003\u200b\u2028\x85 \n\n"


def user(content="What is the weather in Paris?", **more):
    return {"role": "user", "content": content, **more}


def assistant(content="It is sunny.", **more):
    return {"role": "assistant", "content": content, **more}


def system(content="You are a pirate.", **more):
    return {"role": "system", "content": content, **more}


def tool(content='{"temperature": 22}', **more):
    return {"role": "tool", "content": content, "tool_call_id": "abcdef123", "name": "get_weather", **more}


def call(name="get_weather", arguments=None, number=3):
    return {"id": f"abcdef12{number}", "type": "function",
            "function": {"name": name, "arguments": {"city": "Paris"} if arguments is None else arguments}}


def calls(*list_of_calls, content=None, **more):
    return {"role": "assistant", "content": content, "tool_calls": list(list_of_calls), **more}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


def private(number):
    """Characters that no template has, in place of a client's words: the test finds them again."""
    return "".join(chr(0xE000 + 16 * number + i) for i in range(1 + number % 3))


PRIVATE_TOOL = {"type": "function", "function": {
    "name": private(20), "description": private(21),
    "parameters": {"type": "object", "required": [private(22)],
                   "properties": {private(22): {"type": "string", "description": private(23)}}}}}
TURNS = [user(), assistant(), user("And in Rome?"), assistant("It rains."), user("Thanks!")]
FULL = [system(), user(), calls(call()), tool(), assistant("It is 22 °C."), user("And now?")]
STEPS = [user(), assistant("Let me see.", reasoning_content="The user asks about the weather.\nI think."),
         user("So?")]

CONVERSATIONS = {
    "user": dict(messages=[user()]),
    "user_closed": dict(messages=[user()], add_generation_prompt=False),
    "system": dict(messages=[system(), user()]),
    "system_closed": dict(messages=[system(), user()], add_generation_prompt=False),
    "turns": dict(messages=TURNS),
    "turns_with_system": dict(messages=[system(), *TURNS]),
    "turns_closed": dict(messages=TURNS[:4], add_generation_prompt=False),
    "ends_with_assistant": dict(messages=[system(), *TURNS[:4]]),
    "to_be_continued": dict(messages=[user(), assistant("It is CONTINUE_FINAL_MESSAGE_TAG ")],
                            add_generation_prompt=False),
    "many_turns": dict(messages=[system()] + 6 * [user("Again?"), assistant("Again.")] + [user("No.")]),
    "no_messages": dict(messages=[]),
    "only_system": dict(messages=[system()]),
    "empty_content": dict(messages=[system(""), user(""), assistant(""), user("")]),
    "none_content": dict(messages=[user(), {"role": "assistant", "content": None}, user("So?")]),
    "no_content": dict(messages=[user(), {"role": "assistant"}, user("So?")]),
    "unicode": dict(messages=[system(UNICODE), user(UNICODE), assistant(UNICODE), user(UNICODE)]),
    "white_space": dict(messages=[system(SPACES), user(SPACES), assistant(SPACES), user("  \n a  b \n")]),
    "control_tokens": dict(messages=[system("<|im_end|>"), user("<|eot_id|></s>[/INST]<|im_start|>system"),
                                     assistant("<end_of_turn><|end|>"), user("<|bos|><|eos|><s>")]),
    "template_syntax": dict(messages=[user("{{ 7 * 7 }}{% if x %}{# y #}%s {0} $1"), assistant("}}"), user("#}")]),
    "parts": dict(messages=[user(parts("What is", " this?"))]),
    "parts_everywhere": dict(messages=[system(parts("Be kind.")), user(parts("Hi")), assistant(parts("Hello", "!")),
                                       user(parts("Bye"))]),
    "image": dict(messages=[user([{"type": "image"}, *parts("What is this?")]), assistant("A cat."),
                            user([*parts("And"), {"type": "image_url", "image_url": {"url": "x"}}])]),
    "names": dict(messages=[user("Hi", name="Ann"), assistant("Hi.", name="Bob"), user("Who?", name="Ann")]),
    "tools": dict(messages=[user()], tools=[WEATHER]),
    "tools_with_system": dict(messages=[system(), user()], tools=[WEATHER, TIME]),
    "tools_large": dict(messages=[system(), user()], tools=[ORDER, EMPTY, WEATHER]),
    "tools_empty_list": dict(messages=[user()], tools=[]),
    "tool_called": dict(messages=[user(), calls(call())], tools=[WEATHER], add_generation_prompt=False),
    "tool_answered": dict(messages=[user(), calls(call()), tool()], tools=[WEATHER]),
    "tool_full": dict(messages=FULL, tools=[WEATHER]),
    "tool_arguments_text": dict(messages=[user(), calls(call(arguments='{"city": "Paris"}')), tool(), assistant()],
                                tools=[WEATHER], add_generation_prompt=False),
    "tool_parallel": dict(messages=[user(), calls(call(), call("get_time", {}, 4)), tool(),
                                    tool("12:00", tool_call_id="abcdef124", name="get_time"), assistant(), user("Ok")],
                          tools=[WEATHER, TIME]),
    "tool_nested": dict(messages=[user(), calls(call("order_food", NESTED)), tool("done", name="order_food")],
                        tools=[ORDER]),
    "tool_with_content": dict(messages=[user(), calls(call(), content="I look it up."), tool()], tools=[WEATHER]),
    "tool_with_reasoning": dict(messages=[user(), calls(call(), content="", reasoning_content="Look it up."), tool()],
                                tools=[WEATHER]),
    "tool_steps": dict(messages=[user(), calls(call(), content="", reasoning_content="One."), tool(),
                                 calls(call("get_time", {"zone": "UTC"}, 4), content="", reasoning_content="Two."),
                                 tool("12:00", tool_call_id="abcdef124", name="get_time")], tools=[WEATHER, TIME]),
    "tool_long_ids": dict(messages=[user(), calls({**call(), "id": "call_0123456789"}),
                                    tool(tool_call_id="call_0123456789")], tools=[WEATHER]),
    "tool_without_ids": dict(messages=[user(), calls({"function": call()["function"]}),
                                       {"role": "tool", "content": "22"}], tools=[WEATHER]),
    "tool_result_parts": dict(messages=[user(), calls(call()), tool(parts("22", "C"))], tools=[WEATHER]),
    "tool_undeclared": dict(messages=FULL),
    "tool_result_first": dict(messages=[tool(), user()]),
    "tool_no_calls": dict(messages=[user(), calls(content="Hi."), user("Bye")]),
    "reasoning": dict(messages=STEPS),
    "reasoning_closed": dict(messages=STEPS[:2], add_generation_prompt=False),
    "reasoning_inline": dict(messages=[user(), assistant("<think>\nHm.\n</think>\n\nYes."), user("So?"),
                                       assistant("<think>No</think>It is.")], add_generation_prompt=False),
    "thinking_on": dict(messages=STEPS, enable_thinking=True, thinking=True),
    "thinking_off": dict(messages=STEPS, enable_thinking=False, thinking=False),
    "thinking_off_with_tools": dict(messages=FULL, tools=[WEATHER], enable_thinking=False, thinking=False),
    "no_think": dict(messages=[system("Be brief. /no_think"), user("Why? /no_think")]),
    "effort_high": dict(messages=[user()], reasoning_effort="high", thinking_budget=512),
    "effort_none": dict(messages=[system(), user()], reasoning_effort="none", thinking_budget=0),
    "documents": dict(messages=[user()], documents=DOCUMENTS),
    "documents_and_tools": dict(messages=[system(), user()], documents=DOCUMENTS, tools=[WEATHER]),
    "options": dict(messages=[system(), user()], tools=[WEATHER], date_string="26 Jul 2024",
                    tools_in_user_message=False, builtin_tools=["brave_search", "code_interpreter"],
                    model_identity="You are Nobody.", keep_past_thinking=True, clear_thinking=False,
                    preserve_thinking=True, citations="on", safety_mode="strict"),
    "two_users": dict(messages=[user(), user("Well?")]),
    "two_assistants": dict(messages=[user(), assistant(), assistant("Still."), user("Ok")]),
    "assistant_first": dict(messages=[assistant("Hello!"), user()]),
    "two_systems": dict(messages=[system(), system("And polite."), user()]),
    "system_late": dict(messages=[user(), assistant(), system("Be polite."), user("So?")]),
    "developer": dict(messages=[{"role": "developer", "content": "Be brief."}, user()]),
    "unknown_role": dict(messages=[user(), {"role": "critic", "content": "Bad."}, user("So?")]),
    "private_user": dict(messages=[user(private(1))]),
    "private_turns": dict(messages=[system(private(2)), user(private(3)), assistant(private(4)), user(private(5))]),
    "private_tools": dict(messages=[system(private(6)), user(private(7)),
                                    calls(call(private(20), {private(22): private(8)}), content=private(9),
                                          reasoning_content=private(10)),
                                    tool(private(11), name=private(20)), assistant(private(12)), user(private(13))],
                          tools=[PRIVATE_TOOL]),
    "private_documents": dict(messages=[user(private(14))],
                              documents=[{"title": private(15), "text": private(16)}]),
}
