"""The chat page's conversations, branches, files, settings and what it shows, in a headless Chromium."""

import json

import pytest

from page_stage import delta, text_chunks
from test_page import browser, needs_browser, open_page, say, stage, wait_for_end  # noqa: F401 (fixtures)


def finished(reason, text="Half of"):
    events = list(text_chunks(text))
    next(event for event in events if event["choices"][0]["finish_reason"])["choices"][0]["finish_reason"] = reason
    return events


def titles(page):
    return page.run("[...document.querySelectorAll('#conversations .open')].map((node) => node.innerText)")


def ask_in_turn(page, *texts):
    for text in texts:
        page.click("#clear")
        say(page, text)
        wait_for_end(page)
        page.wait_for(f"document.querySelector('#conversations .open')?.innerText === {json.dumps(text)}")


# ---- conversations ----

@needs_browser
def test_conversations_are_listed_searched_renamed_and_deleted(open_page):
    page = open_page()
    page.click("#open-side")
    assert "kept here" in page.text("#none-found")
    ask_in_turn(page, "About ships", "About bread")
    assert titles(page) == ["About bread", "About ships"]
    page.click("#conversations li:last-child .open")
    page.wait_for("document.querySelector('.user .text').innerText === 'About ships'")
    page.click("#search")
    page.type("bread")
    page.wait_for("document.querySelectorAll('#conversations li').length === 1")
    assert titles(page) == ["About bread"]
    page.run("document.querySelector('#search').value = ''")
    page.type(" ")
    page.wait_for("document.querySelectorAll('#conversations li').length === 2")
    page.run("document.querySelector('#conversations li:last-child .rename').click()")
    page.type("Boats")
    page.press("Enter")
    page.wait_for("document.title === 'Boats – Quire'")
    assert titles(page) == ["About bread", "Boats"]
    page.run("document.querySelector('#conversations li:last-child .delete').click()")
    assert titles(page) == ["About bread", "Boats"], "one press deleted it"
    page.run("document.querySelector('#conversations .sure').click()")
    page.wait_for("document.querySelectorAll('#conversations li').length === 1")
    assert titles(page) == ["About bread"] and page.count("article") == 0


@needs_browser
def test_a_search_finds_what_was_answered(open_page, stage):
    page = open_page()
    page.click("#open-side")
    stage.reply = lambda: text_chunks("A yacht has sails")
    ask_in_turn(page, "One")
    stage.reply = lambda: text_chunks("Rye has little gluten")
    ask_in_turn(page, "Two")
    page.click("#search")
    page.type("GLUTEN")
    page.wait_for("document.querySelectorAll('#conversations li').length === 1")
    assert titles(page) == ["Two"]


@needs_browser
def test_all_is_there_after_the_browser_forgot_the_tab(open_page, stage):
    page = open_page()
    ask_in_turn(page, "Remember this")
    page.run("sessionStorage.clear()")
    page.open(stage.url + "/")
    page.click("#open-side")
    page.wait_for("document.querySelectorAll('#conversations li').length === 1")
    assert page.count("article") == 0
    page.click("#conversations .open")
    page.wait_for("document.querySelectorAll('article').length === 2")
    assert page.text(".assistant .text") == "Hello"


def half(stage):
    yield delta(role="assistant", content="")
    yield delta(content="Half of it")
    stage.gate.wait(60)


@needs_browser
@pytest.mark.parametrize("way", ["new", "reload", "other"])
def test_what_is_under_way_is_kept(open_page, stage, way):
    page = open_page()
    page.click("#open-side")
    ask_in_turn(page, "Before")
    stage.reply = lambda: half(stage)
    page.click("#clear")
    say(page, "Precious")
    page.wait_for("document.querySelector('.assistant .text')?.innerText === 'Half of it'")
    if way == "new":
        page.click("#clear")
    elif way == "other":
        page.click("#conversations li:last-child .open")
        page.wait_for("document.querySelector('.user .text').innerText === 'Before'")
    else:
        page.open(stage.url + "/")
        page.wait_for("document.querySelector('.user .text')?.innerText === 'Precious'")
        return
    page.wait_for("document.querySelectorAll('#conversations li').length === 2")
    page.run("[...document.querySelectorAll('#conversations .open')].find((node) => node.innerText === 'Precious').click()")
    page.wait_for("document.querySelector('.user .text')?.innerText === 'Precious'")
    assert page.text(".assistant .text") == "Half of it" and "stopped" in page.text(".assistant .note")


EXPORT = """new Promise((resolve) => {
    const made = URL.createObjectURL;
    URL.createObjectURL = (blob) => { URL.createObjectURL = made; blob.text().then(resolve); return "data:,"; };
    document.querySelector("#export").click();
})"""


def import_text(page, text):
    page.run(f"""(() => {{
        const files = new DataTransfer();
        files.items.add(new File([{json.dumps(text)}], "kept.json"));
        document.querySelector("#import-file").files = files.files;
        document.querySelector("#import-file").dispatchEvent(new Event("change"));
    }})()""")


@needs_browser
def test_what_is_exported_can_be_imported(open_page):
    page = open_page()
    page.click("#open-side")
    ask_in_turn(page, "Export me")
    text = page.run(EXPORT)
    other = open_page()
    other.click("#open-side")
    import_text(other, text)
    other.wait_for("document.querySelectorAll('#conversations li').length === 1")
    other.click("#conversations .open")
    other.wait_for("document.querySelectorAll('article').length === 2")
    assert (other.text(".user .text"), other.text(".assistant .text")) == ("Export me", "Hello")


@needs_browser
def test_a_wrong_file_is_not_imported(open_page):
    page = open_page()
    good = {"format": "quire-conversations", "version": 1}
    turn = {"id": 1, "parent": None, "role": "user", "content": "x"}
    for text, words in (("{", "it is not JSON"), ("[]", "was not exported"), (json.dumps({**good, "version": 2, "conversations": []}), "was not exported"),
                        (json.dumps({**good, "conversations": [{"turns": []}]}), "no title"),
                        *((json.dumps({**good, "conversations": [{"title": "t", "turns": [{**turn, **fields}]}]}), "a turn is not")
                          for fields in ({"role": "system"}, {"content": 5}, {"parent": 7}, {"id": "1"})),
                        (json.dumps({**good, "conversations": [{"title": "t", "turns": [{**turn, "id": n} for n in range(10001)]}]}), "more than 10000 turns"),
                        (json.dumps({**good, "conversations": [{"title": "t", "turns": [turn]}] * 1001}), "more than 1000 conversations")):
        page.run("document.querySelectorAll('.problem').forEach((node) => node.remove())")
        import_text(page, text)
        message = page.wait_for("document.querySelector('.problem p')?.innerText")
        assert message.startswith("kept.json was not imported") and words in message
    assert titles(page) == []


@needs_browser
def test_a_long_conversation_is_imported(open_page):
    """As long as one may be, and with a time that no clock says."""
    page = open_page()
    page.click("#open-side")
    turns = [{"id": n, "parent": n - 1 if n else None, "role": ["user", "assistant"][n % 2], "content": str(n)} for n in range(2000)]
    text = json.dumps({"format": "quire-conversations", "version": 1, "conversations": [{"title": "Long", "updated": 5, "turns": turns}]})
    import_text(page, text.replace('"updated": 5', '"updated": 1e999'))
    page.wait_for("document.querySelectorAll('#conversations li').length === 1")
    page.click("#conversations .open")
    page.wait_for("document.querySelectorAll('article').length === 2000")
    ask_in_turn(page, "Newer")
    assert titles(page) == ["Newer", "Long"]


# ---- replies ----

@needs_browser
def test_versions_after_an_edit_and_a_new_reply(open_page, stage):
    page = open_page()
    say(page, "One")
    wait_for_end(page)
    stage.reply = lambda: text_chunks("Second")
    page.click(".again")
    wait_for_end(page)
    assert page.text(".assistant .versions .note") == "2 / 2" and page.text(".assistant .text") == "Second"
    page.click(".assistant .back")
    page.wait_for("document.querySelector('.assistant .text').innerText === 'Hello'")
    page.click(".user .edit")
    page.run("document.querySelector('.user textarea').select()")
    page.type("Uno")
    page.press("Enter")
    wait_for_end(page)
    assert page.text(".user .versions .note") == "2 / 2"
    page.click(".user .back")
    page.wait_for("document.querySelector('.user .text').innerText === 'One'")
    assert page.text(".user .versions .note") == "1 / 2" and page.text(".assistant .versions .note") in ("1 / 2", "2 / 2")
    say(page, "Go on")
    wait_for_end(page)
    assert [message["content"] for message in stage.chats[-1]["messages"]][::2] == ["One", "Go on"]


@needs_browser
def test_a_cut_reply_goes_on(open_page, stage):
    stage.reply = lambda: finished("length")
    page = open_page()
    say(page, "Write")
    wait_for_end(page)
    assert "cut at the token limit" in page.text(".note")
    stage.reply = lambda: text_chunks(" a tale")
    page.click(".continue")
    wait_for_end(page)
    assert page.text(".assistant .text") == "Half of a tale" and page.count(".assistant") == 1
    chat = stage.chats[-1]
    assert chat["messages"][-1] == {"role": "assistant", "content": "Half of"}
    assert chat["continue_final_message"] is True and chat["add_generation_prompt"] is False
    assert page.run("document.querySelector('.continue').hidden")


@needs_browser
def test_tool_calls_are_shown_and_answered(open_page, stage):
    def script():
        yield delta(role="assistant", content="")
        yield delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}])
        yield delta(tool_calls=[{"index": 0, "function": {"arguments": '{"place":'}}])
        yield delta(tool_calls=[{"index": 0, "function": {"arguments": '"Rome"}'}}])
        end = delta()
        end["choices"][0]["finish_reason"] = "tool_calls"
        yield end

    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    stage.reply = script
    page = open_page()
    page.click("#open-settings")
    page.run("document.querySelector('#more').open = true")
    page.click("#tools")
    page.type(json.dumps(tools))
    page.click("#close-settings")
    say(page, "Weather?")
    wait_for_end(page)
    assert stage.chats[-1]["tools"] == tools
    assert page.text(".call summary") == "Calls weather" and '"place": "Rome"' in page.text(".call pre")
    stage.reply = lambda: text_chunks("Sunny")
    page.click(".call textarea")
    page.type("sun")
    page.click(".call .accept")
    wait_for_end(page)
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"place":"Rome"}'}}
    assert stage.chats[-1]["messages"][1:] == [{"role": "assistant", "content": "", "tool_calls": [call]},
                                               {"role": "tool", "content": "sun", "tool_call_id": "call_1"}]
    assert page.run("[...document.querySelectorAll('.assistant .text')].at(-1).innerText") == "Sunny"


@needs_browser
def test_a_completion_continues_the_text(open_page, stage):
    def script():
        for text in ("upon", " a time"):
            yield {"choices": [{"index": 0, "text": text, "finish_reason": None}]}
        yield {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}

    stage.reply = script
    page = open_page()
    page.click("#open-settings")
    page.run("""document.querySelector('#mode').value = 'completion',
                document.querySelector('#mode').dispatchEvent(new Event('change'))""")
    page.click("#close-settings")
    say(page, "Once ")
    wait_for_end(page)
    assert stage.paths[-1] == "/v1/completions" and stage.chats[-1]["prompt"] == "Once " and "messages" not in stage.chats[-1]
    page.click(".continue")
    wait_for_end(page)
    assert stage.chats[-1]["prompt"] == "Once upon a time"


@needs_browser
def test_all_sampling_fields_are_sent(open_page, stage):
    page = open_page()
    page.click("#open-settings")
    page.click("#more summary")
    given = {"top-p": 0.9, "top-k": 40, "min-p": 0.05, "presence-penalty": 0.5, "frequency-penalty": -0.5, "repetition-penalty": 1.1, "seed": 7}
    for name, value in given.items():
        page.click("#" + name)
        page.type(str(value))
    page.run("""document.querySelector('#stop').value = 'END\\n###', document.querySelector('#schema').value = '{"type": "object"}'""")
    page.click("#close-settings")
    say(page, "Hi")
    wait_for_end(page)
    chat = stage.chats[-1]
    assert {name: chat[name.replace("-", "_")] for name in given} == given
    assert chat["stop"] == ["END", "###"]
    assert chat["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


@needs_browser
def test_wrong_settings_are_named_and_nothing_is_sent(open_page, stage):
    page = open_page()
    for name, value, words in (("schema", "{", "JSON schema: not valid JSON"), ("schema", "[]", "JSON schema: an object"),
                               ("tools", "{}", "Tools: a list"), ("top-p", "2", "Top p: ")):
        page.run(f"document.querySelector('#{name}').value = {json.dumps(value)}")
        say(page, "Hi")
        assert words in page.wait_for("document.querySelector('.problem p')?.innerText")
        page.run(f"document.querySelector('#{name}').value = ''")
        page.click("#clear")
    assert stage.chats == []


DROP = """(() => {
    const data = new DataTransfer();
    for (const [name, bytes] of %s) data.items.add(new File([new Uint8Array(bytes)], name));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data }));
})()"""


@needs_browser
def test_text_files_go_with_the_message(open_page, stage):
    page = open_page()
    page.run(DROP % json.dumps([["notes.md", list(b"a\n```\nb\n")], ["photo.png", [137, 80, 78, 71, 255, 0]]]))
    assert "photo.png was not added: it is not a text file" in page.wait_for("document.querySelector('.problem p')?.innerText")
    page.wait_for("document.querySelectorAll('#files li').length === 1")
    page.run("document.querySelector('.problem').remove()")
    say(page, "Sum up")
    wait_for_end(page)
    assert stage.chats[-1]["messages"][0]["content"] == "notes.md:\n````\na\n```\nb\n````\n\nSum up"
    assert page.count("#files li") == 0


# ---- the server ----

@needs_browser
def test_a_server_that_is_gone_and_back(open_page, stage):
    page = open_page()
    stage.models = lambda: (503, {})
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for("!document.querySelector('#notice').hidden")
    stage.models = lambda: (200, {"data": [{"id": "other", "created": 5, "max_model_len": 100}]})
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for("document.querySelector('#notice').innerText === 'The server now has other.'")
    assert page.text("#model") == "other" and page.text("#context") == "0 / 100"
    page.problems.clear()


@needs_browser
def test_errors_for_people(open_page, stage):
    page = open_page()
    for status, words in ((401, "asks for an API key"), (429, "The server is busy"), (413, "too large")):
        stage.reply = lambda: (status, {"error": {"message": "words of the API", "code": "x"}})
        say(page, "Hello")
        wait_for_end(page)
        assert words in page.text(".problem p")
        page.click("#clear")
    page.problems.clear()


# ---- what is shown ----

RICH = r"""| a | b |
|:-:|--:|
| 1 | 2 |

~~gone~~ [safe](https://example.org "t") [bad](javascript:alert(1)) ![picture](https://example.org/x.png)

- [x] done
- [ ] open

> outer
> > inner

Price $5 and $6. Inline $x^2$, \(y\).

$$
\frac{1}{2}
$$

```c
int x = 1; /* one */
```"""


@needs_browser
def test_rich_text(open_page, stage):
    stage.reply = lambda: text_chunks(RICH, 9)
    page = open_page()
    say(page, "Show")
    wait_for_end(page)
    text = ".assistant .text "
    assert page.count(text + "table td") == 2
    assert page.run(f"document.querySelector('{text}td').style.textAlign") == "center"
    assert page.text(text + "s") == "gone"
    links = page.run(f"[...document.querySelectorAll('{text}a')].map((node) => [node.href, node.rel, node.target])")
    assert links == [[url, "noopener noreferrer nofollow ugc", "_blank"] for url in ("https://example.org/", "https://example.org/x.png")]
    assert "[bad](javascript:alert(1))" in page.text(".assistant .text") and page.count(text + "img") == 0
    assert page.run(f"[...document.querySelectorAll('{text}li input')].map((box) => [box.checked, box.disabled])") == [[True, True], [False, True]]
    assert page.text(text + "blockquote blockquote") == "inner"
    assert page.count(text + "span.formula math") == 2 and page.count(text + "div.formula .katex-display") == 1
    assert "Price $5 and $6." in page.text(".assistant .text")
    assert page.text(text + ".hljs-keyword, " + text + ".hljs-built_in") == "int"
    assert page.text(text + ".hljs-comment") == "/* one */"


@needs_browser
def test_text_that_wants_to_stop_the_page(open_page, stage):
    """Each within the minute that the browser has to answer."""
    page = open_page()
    for text in ("```python\n" + 'f"{' * 12000 + "\n```", "```javascript\n" + "`${" * 12000 + "\n```", "> " * 3000, "- " * 3000,
                 "[" * 20000, "*a_" * 10000, "$a" * 10000, "x" + " " * 60000 + "y", "$" + "\\frac{" * 800 + "$"):
        stage.reply = lambda: text_chunks(text, 100000)
        page.click("#clear")
        say(page, "Hang")
        wait_for_end(page)
        assert page.count(".assistant") == 1, text[:20]


HOSTILE = [
    "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,<script>alert(1)</script>)",
    "[a](vbscript:x)", "<javascript:alert(1)>", "![a](javascript:alert(1))", "![a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a]: javascript:alert(1)\n\n[a]", "$\\href{javascript:alert(1)}{x}$", "$$\\url{javascript:alert(1)}$$", "$\\htmlData{x=y}{z}$",
    "$\\includegraphics{https://example.org/x.png}$", "```html\n<script>alert(1)</script>\n```", "```\"onclick=alert(1)\nx\n```",
    "[a](https://example.org \"\\\" onmouseover=alert(1)\")", "|<img src=x onerror=alert(1)>|\n|-|\n|x|", "- [ ] <iframe srcdoc='<script>alert(1)</script>'>",
    "<math><mi xlink:href=javascript:alert(1)>", "&lt;script&gt;alert(1)&lt;/script&gt;", "[a](\\u0001javascript:alert(1))", "[a](&#106;avascript:alert(1))",
]
DANGEROUS = """[...document.querySelectorAll("#turns *")].filter((node) =>
    ["SCRIPT", "IFRAME", "OBJECT", "EMBED", "STYLE"].includes(node.tagName) || [...node.attributes].some(({ name, value }) =>
        /^on|^src/.test(name) || /^\\W*(javascript|vbscript|data):/i.test(value))).map((node) => node.outerHTML)"""


@needs_browser
def test_nothing_of_a_reply_runs(open_page, stage):
    page = open_page()
    page.run("window.alert = () => { window.pwned = true; }")
    for text in HOSTILE:
        stage.reply = lambda: text_chunks(text, 1000)
        page.click("#clear")
        say(page, "Attack")
        wait_for_end(page)
        assert page.run(DANGEROUS) == [], text
        page.run("[...document.querySelectorAll('#turns a')].forEach((node) => node.dispatchEvent(new MouseEvent('mouseover')))")
    assert page.run("window.pwned === undefined")
