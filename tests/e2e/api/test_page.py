"""The chat page in a headless Chromium. Its server is the real binary; the model's words are scripted
(page_stage.py), but for the last test."""

import httpx
import pytest

from browser import Browser, Page, find_browser
from page_stage import Stage, delta, text_chunks

HTML = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}

needs_browser = pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def stage(server):
    stage = Stage(server)
    yield stage
    stage.close()


@pytest.fixture
def open_page(browser, stage):
    """open_page(dark=False, width=1100) -> Page on the stage; its console stays clean, and it requests nobody
    but the stage."""
    pages = []

    def open_one(**options):
        pages.append(Page(browser, **options))
        pages[-1].open(stage.url + "/")
        pages[-1].wait_for("document.querySelector('#model').value")
        return pages[-1]

    yield open_one
    for page in pages:
        page.run("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
        assert page.problems == []
        assert {url for url in page.requests if not url.startswith((stage.url, "data:"))} == set()
        page.close()


def say(page, text):
    page.click("#input")
    page.type(text)
    page.press("Enter")


def wait_for_end(page):
    page.wait_for("document.querySelector('#send').innerText === 'Send'")


# ---- the route ----

def test_negotiation(server):
    page = httpx.get(server.url + "/", headers=HTML)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>") and page.headers["content-encoding"] == "gzip"
    assert int(page.headers["content-length"]) < 700_000
    for fields in [{"Accept": "*/*"}, {"Accept": "text/plain"}, {"Accept": "application/json"}, {"Accept": ""},
                   {**HTML, "Accept-Encoding": "identity"}]:
        index = httpx.get(server.url + "/", headers=fields)
        assert index.headers["content-type"] == "text/plain; charset=utf-8"
        assert "POST /v1/completions" in index.text
    assert page.headers["vary"] == index.headers["vary"] == "Accept, Accept-Encoding"


def test_header_fields(server):
    headers = httpx.get(server.url + "/", headers=HTML).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy.keys() == {"default-src", "script-src", "style-src", "font-src", "img-src", "connect-src",
                             "base-uri", "form-action", "frame-ancestors", "require-trusted-types-for", "trusted-types"}
    for name in ["default-src", "base-uri", "form-action", "frame-ancestors", "trusted-types"]:
        assert policy[name] == "'none'"
    assert policy["connect-src"] == "'self'" and policy["img-src"] == policy["font-src"] == "data:"
    for name, count in ("script-src", 2), ("style-src", 1):
        hashes = policy[name].split(" ")
        assert len(hashes) == count and all(one.startswith("'sha256-") for one in hashes)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_not_modified(server):
    page = httpx.get(server.url + "/", headers=HTML)
    tag = page.headers["etag"]
    for given in [tag, "W/" + tag, f'"other", {tag}']:
        again = httpx.get(server.url + "/", headers={**HTML, "If-None-Match": given})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert httpx.get(server.url + "/", headers={**HTML, "If-None-Match": '"other"'}).status_code == 200


def test_page_needs_no_key_but_the_api_does(start_server):
    server = start_server("--api-key", "secret")
    assert httpx.get(server.url + "/", headers=HTML).status_code == 200
    assert httpx.get(server.url + "/").status_code == 200
    assert httpx.get(server.url + "/v1/models").status_code == 401


def test_head_options_and_methods(server):
    head = httpx.head(server.url + "/", headers=HTML)
    assert head.status_code == 200 and head.content == b"" and int(head.headers["content-length"]) > 10_000
    assert httpx.options(server.url + "/").headers["allow"] == "GET, HEAD"
    assert httpx.post(server.url + "/", json={}).status_code == 405


# ---- in the browser ----

@needs_browser
def test_opens_quietly(open_page):
    page = open_page()
    assert page.text("#model") == "smollm2"
    assert page.text("#context") == "0 / 8192"
    assert page.run("document.activeElement.id") == "input"


@needs_browser
def test_reply_streams(open_page, stage):
    def script():
        yield delta(role="assistant", content="")
        yield delta(content="First half")
        assert stage.gate.wait(60)
        yield from list(text_chunks(", second half."))[1:]

    stage.reply = script
    page = open_page()
    say(page, "Hello there")
    page.wait_for("document.querySelector('.assistant .text')?.innerText === 'First half'")
    assert page.text("#send") == "Stop"
    assert page.text(".user .text") == "Hello there"
    stage.gate.set()
    wait_for_end(page)
    assert page.text(".assistant .text") == "First half, second half."
    note = page.text(".assistant .note")
    assert "5 tokens" in note and "tokens/s" in note and "first after" in note
    assert page.text("#context") == "15 / 8192"
    assert stage.chats == [{"model": "smollm2", "messages": [{"role": "user", "content": "Hello there"}],
                            "stream": True, "stream_options": {"include_usage": True}}]


def endless(stage):
    yield delta(role="assistant", content="")
    while not stage.gate.wait(0.02):
        yield delta(content="again ")


@needs_browser
@pytest.mark.parametrize("way", ["button", "escape"])
def test_stop(open_page, stage, way):
    stage.reply = lambda: endless(stage)
    page = open_page()
    say(page, "Go on")
    page.wait_for("document.querySelector('.assistant .text')?.innerText.includes('again again')")
    page.click("#send") if way == "button" else page.press("Escape")
    wait_for_end(page)
    assert stage.gone.wait(30), "the stream was not closed"
    assert "stopped" in page.text(".assistant .note")
    assert page.count(".problem") == 0
    assert page.text(".assistant .text").startswith("again again")


@needs_browser
def test_stop_before_the_first_token(open_page, stage):
    def script():
        yield delta(role="assistant", content="")
        stage.gate.wait(60)

    stage.reply = script
    page = open_page()
    say(page, "Hello")
    page.wait_for("!!document.querySelector('.waiting')")
    page.press("Escape")
    assert "Stopped" in page.wait_for("document.querySelector('.problem')?.innerText")
    stage.reply = lambda: text_chunks("Here")
    page.click(".problem .again")
    wait_for_end(page)
    assert page.text(".assistant .text") == "Here" and page.count(".problem") == 0


MARKDOWN = """# Title

Some **bold `x`** and `inline` text with 2 * 3 * 4.

- one
  - nested *deep*
- two

1. first

2. second

```python
def f(x):
    return "<b>" + x
```
after"""


@needs_browser
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_markdown(open_page, stage, size):
    stage.reply = lambda: text_chunks(MARKDOWN, size)
    page = open_page()
    say(page, "Show me")
    wait_for_end(page)
    assert page.text(".assistant h1") == "Title"
    assert page.text(".assistant strong") == "bold x" and page.text(".assistant strong code") == "x"
    assert page.count(".assistant em") == 1
    assert page.count(".assistant .text > ul > li") == 2
    assert page.text(".assistant ul ul li") == "nested deep"
    assert page.count(".assistant ol > li") == 2
    assert page.text(".assistant pre code") == 'def f(x):\n    return "<b>" + x'
    assert page.text(".assistant .code span") == "python"
    assert page.run("document.querySelector('.assistant .text').lastChild.innerText") == "after"


@needs_browser
def test_code_is_copied(open_page, stage):
    stage.reply = lambda: text_chunks("```\nto be copied\n```")
    page = open_page()
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
              browserContextId=page.context)
    say(page, "Code")
    wait_for_end(page)
    page.click(".code button")
    page.wait_for("document.querySelector('.code button').innerText === 'Copied'")
    assert page.run("navigator.clipboard.readText()") == "to be copied"


HOSTILE = """<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2">
**<svg onload="window.pwned = 3">** `<b>` [link](javascript:window.pwned=4)

- <iframe src="javascript:window.pwned=5"></iframe>

```"><script>window.pwned = 6</script>
</code></pre><script>window.pwned = 7</script>
```"""


@needs_browser
def test_markup_of_the_model_is_text(open_page, stage):
    def script():
        yield delta(role="assistant", content="", reasoning_content="<img src=x onerror='window.pwned = 8'>")
        yield from text_chunks(HOSTILE)

    stage.reply = script
    page = open_page()
    say(page, "<img src=x onerror='window.pwned = 9'>")
    wait_for_end(page)
    assert page.run("window.pwned === undefined")
    assert page.count("#turns :is(script, img, svg, iframe, a)") == 0
    assert "<script>window.pwned = 1</script>" in page.text(".assistant .text")
    assert page.text(".assistant pre").startswith("</code></pre><script>")
    assert page.text(".user .text").startswith("<img src=x")


@needs_browser
def test_an_injected_script_does_not_run(open_page):
    page = open_page()
    page.run("""(() => {
        const script = document.createElement("script");
        try { script.textContent = "window.pwned = 1"; document.body.append(script); } catch {}
        try { document.body.innerHTML = "<img src=x onerror='window.pwned = 2'>"; } catch {}
    })()""")
    page.wait_for("true")
    assert page.run("window.pwned === undefined")
    assert page.problems, "the policy was not enforced"
    page.problems.clear()


@needs_browser
def test_reasoning_is_folded(open_page, stage):
    def script():
        yield delta(role="assistant", content="")
        yield delta(reasoning="Let me ", reasoning_content="Let me ")
        yield delta(reasoning="think.", reasoning_content="think.")
        yield from text_chunks("42")

    stage.reply = script
    page = open_page()
    say(page, "What is it?")
    wait_for_end(page)
    assert page.text(".assistant .text") == "42"
    assert page.text(".reasoning summary").startswith("Thought for")
    assert page.run("document.querySelector('.reasoning').open") is False
    page.click(".reasoning summary")
    assert page.text(".reasoning div") == "Let me think."


@needs_browser
def test_errors_in_the_servers_words(open_page, stage):
    body = {"error": {"message": "temperature must be a number from 0 to 2, not 3", "type": "invalid_request_error",
                      "param": "temperature", "code": "out_of_range"}}
    stage.reply = lambda: (400, body)
    page = open_page()
    say(page, "Hello")
    wait_for_end(page)
    assert page.text(".problem p") == "temperature must be a number from 0 to 2, not 3 (status 400)"
    assert page.count(".assistant") == 0
    assert all("status of 400" in entry["text"] for entry in page.problems)
    page.problems.clear()


@needs_browser
def test_error_inside_a_stream(open_page, stage):
    stage.reply = lambda: [delta(role="assistant", content="Well"), {"error": {"message": "the device failed"}}]
    page = open_page()
    say(page, "Hello")
    wait_for_end(page)
    assert page.text(".problem p") == "the device failed"
    assert page.text(".assistant .text") == "Well"


@needs_browser
def test_edit_regenerate_and_clear(open_page, stage):
    page = open_page()
    say(page, "One")
    wait_for_end(page)
    say(page, "Two")
    wait_for_end(page)
    page.click(".assistant:last-of-type .again")
    wait_for_end(page)
    asked = [[message["content"] for message in chat["messages"]] for chat in stage.chats]
    assert asked == [["One"], ["One", "Hello", "Two"], ["One", "Hello", "Two"]]
    page.click(".user .edit")
    page.run("document.querySelector('.user textarea').select()")
    page.type("Uno")
    page.press("Enter")
    wait_for_end(page)
    assert [message["content"] for message in stage.chats[-1]["messages"]] == ["Uno"]
    assert page.count("article") == 2
    page.click("#clear")
    assert page.count("article") == 0 and page.text("#context") == "0 / 8192"


@needs_browser
def test_a_reload_keeps_the_conversation(open_page, stage):
    page = open_page()
    say(page, "One")
    wait_for_end(page)
    page.open(stage.url + "/")
    page.wait_for("document.querySelector('#context').innerText === '12 / 8192'")
    assert (page.text(".user .text"), page.text(".assistant .text")) == ("One", "Hello")


@needs_browser
def test_settings_are_sent(open_page, stage):
    page = open_page()
    page.click("#open-settings")
    for field, text in [("system", "Be brief."), ("temperature", "0.4"), ("max-tokens", "33")]:
        page.click("#" + field)
        page.type(text)
    page.click("#close-settings")
    say(page, "Hi")
    wait_for_end(page)
    chat = stage.chats[-1]
    assert chat["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (chat["temperature"], chat["max_completion_tokens"]) == (0.4, 33)


@needs_browser
def test_shift_enter_is_a_line(open_page, stage):
    page = open_page()
    page.click("#input")
    page.type("one")
    page.press("Enter", shift=True)
    page.type("two")
    page.press("Enter")
    wait_for_end(page)
    assert stage.chats[-1]["messages"][0]["content"] == "one\ntwo"


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_dark_and_light(open_page, stage, dark):
    page = open_page(dark=dark)
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    assert (page.run(brightness) < 100) == dark
    assert page.run("document.querySelector('#theme').ariaPressed") == str(dark).lower()
    page.click("#theme")
    assert (page.run(brightness) < 100) != dark
    page.open(stage.url + "/")
    assert (page.run(brightness) < 100) != dark, "the choice was not kept"


@needs_browser
def test_phone_width(open_page, stage):
    stage.reply = lambda: text_chunks("```\n" + "wide " * 60 + "\n```\n" + "w" * 300)
    page = open_page(width=360, height=640)
    say(page, "Hello")
    wait_for_end(page)
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.run("document.querySelector('#log').scrollWidth <= document.querySelector('#log').clientWidth")
    page.click("#open-settings")
    assert page.run("document.querySelector('#settings').getBoundingClientRect().width") == 360
    page.click("#close-settings")


@needs_browser
def test_every_control_has_a_name(open_page, stage):
    page = open_page()
    say(page, "Hello")
    wait_for_end(page)
    page.click("#open-settings")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in nodes if not node["ignored"] and node["role"]["value"] in
                ("button", "textbox", "combobox", "spinbutton", "meter", "main", "complementary", "article")]
    assert len(controls) >= 15
    assert [node for node in controls if not node.get("name", {}).get("value")] == []


@needs_browser
def test_key_is_asked_for(browser, start_server):
    server = start_server("--api-key", "secret")
    page = Page(browser)
    page.open(server.url + "/")
    page.wait_for("document.activeElement.id === 'key'")
    assert "API key" in page.text("#greeting")
    page.type("secret")
    page.press("Enter")
    page.wait_for("document.querySelector('#model').value === 'smollm2'")
    assert page.run("Object.entries(localStorage).flat().includes('secret')") is False
    assert page.run("sessionStorage.getItem('quire-key')") == "secret"
    page.close()


@needs_browser
def test_with_the_real_model(browser, server):
    page = Page(browser)
    page.open(server.url + "/")
    page.wait_for("document.querySelector('#model').value")
    page.click("#open-settings")
    for field, text in [("temperature", "0"), ("max-tokens", "24")]:
        page.click("#" + field)
        page.type(text)
    page.click("#close-settings")
    say(page, "Say hello.")
    wait_for_end(page)
    assert "Hello" in page.text(".assistant .text")
    used, size = map(int, page.text("#context").split(" / "))
    assert 24 < used < 100 and size == 8192
    assert page.problems == []
    page.close()
