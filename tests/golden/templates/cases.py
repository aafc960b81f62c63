"""The chats that every template renders: written to cases.json, which the test reads too."""
import json
import pathlib

SYSTEM = {"role": "system", "content": "You are a careful assistant."}
HELLO = {"role": "user", "content": "Hello, who are you?"}
ODD = "Quotes \" and ' and \\, tags <|im_end|> </s> & <b>,\n\ttwo lines, é, 漢字, 🙂 \u200b."
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Current weather of a city",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city's name"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}},
                      "required": ["lat"]}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "now", "description": "The time.\nSecond line with \"quotes\" and ümlaut",
        "parameters": {"type": "object", "properties": {}}}},
]


def call(name, arguments, identity="abcdef123"):
    return {"id": identity, "type": "function",
            "function": {"name": name, "arguments": arguments}}


def tool_turns(arguments, content=""):
    return [HELLO,
            {"role": "assistant", "content": content,
             "tool_calls": [call("get_weather", arguments)]},
            {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123",
             "content": "{\"temperature\": 21.5, \"sky\": \"clear\"}"}]


ARGUMENTS = {"city": "Köln", "days": 3, "where": {"lat": 50.9}, "tags": ["a", "b"], "dry": True}
LONG = [SYSTEM, HELLO, {"role": "assistant", "content": "I am a model.\n"},
        {"role": "user", "content": "  And then?  "}]
THOUGHT = [HELLO, {"role": "assistant", "content": "It is 4.", "reasoning_content": "2 + 2\nis 4"},
           {"role": "user", "content": "Sure?"},
           {"role": "assistant", "content": "<think>\nYes\n</think>\n\nYes.", "thinking": "hm"},
           {"role": "user", "content": "Good."}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Look: "},
                                      {"type": "text", "text": "here."}]}]

CASES = {
    "user": {"messages": [HELLO]},
    "user_no_prompt": {"messages": [HELLO], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, HELLO]},
    "turns": {"messages": LONG},
    "turns_no_prompt": {"messages": LONG[:3], "add_generation_prompt": False},
    "odd_text": {"messages": [{"role": "system", "content": ODD}, {"role": "user", "content": ODD},
                              {"role": "assistant", "content": ODD}, HELLO]},
    "tools": {"messages": [SYSTEM, HELLO], "tools": TOOLS},
    "tools_no_system": {"messages": [HELLO], "tools": TOOLS},
    "tool_call": {"messages": tool_turns(ARGUMENTS), "tools": TOOLS},
    "tool_call_no_content": {"messages": [SYSTEM] + tool_turns(ARGUMENTS, None), "tools": TOOLS},
    "tool_call_text_arguments": {"messages": tool_turns(json.dumps(ARGUMENTS)), "tools": TOOLS},
    "tool_calls_two": {"messages": [HELLO, {
        "role": "assistant", "content": "Let me see.",
        "tool_calls": [call("get_weather", ARGUMENTS, "aaaaaaaa1"), call("now", {}, "bbbbbbbb2")]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "aaaaaaaa1", "content": "rain"},
        {"role": "tool", "name": "now", "tool_call_id": "bbbbbbbb2", "content": "12:00"},
        {"role": "assistant", "content": "It rains at noon."}, HELLO], "tools": TOOLS},
    "tool_call_no_prompt": {"messages": tool_turns(ARGUMENTS)[:2], "tools": TOOLS,
                            "add_generation_prompt": False},
    "reasoning": {"messages": THOUGHT},
    "reasoning_system_no_prompt": {"messages": [SYSTEM] + THOUGHT[:4],
                                   "add_generation_prompt": False},
    "thinking_off": {"messages": THOUGHT, "enable_thinking": False, "thinking": False},
    "thinking_on": {"messages": [SYSTEM, HELLO], "enable_thinking": True, "thinking": True,
                    "reasoning_effort": "high"},
    "parts": {"messages": PARTS},
    "parts_system": {"messages": [{"role": "system", "content": [
        {"type": "text", "text": "Be brief."}]}] + PARTS},
    "image": {"messages": [{"role": "user", "content": [
        {"type": "image"}, {"type": "text", "text": "What is it?"}]}]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, HELLO]},
    "two_users": {"messages": [HELLO, HELLO]},
    "assistant_first": {"messages": [{"role": "assistant", "content": "Hi"}, HELLO]},
    "unknown_role": {"messages": [{"role": "narrator", "content": "Once"}, HELLO]},
    "empty_content": {"messages": [{"role": "user", "content": ""}]},
    "no_content": {"messages": [{"role": "user"}]},
    "no_messages": {"messages": []},
    "documents": {"messages": [HELLO], "documents": [
        {"title": "One", "text": "First text", "doc_id": 1},
        {"title": "Two", "text": "Second \"text\"", "doc_id": 2}]},
}

if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("cases.json")
    path.write_text(json.dumps(CASES, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
