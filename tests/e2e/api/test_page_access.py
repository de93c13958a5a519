"""The chat page for the keyboard and for screen readers, by axe-core's rules and by hand."""

from importlib import resources

import pytest

from browser import find_browser
from page_stage import delta, text_chunks
from test_page import browser, open_page, say, stage, wait_for_end  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here")

REPLY = "# One\n\n- [x] *two* `three`\n\n```python\ndef f(): return 1  # note\n```\n\n|a|\n|-|\n|b|\n\n$x^2$ [link](https://example.org)\n\n> quote"
VIOLATIONS = """axe.run().then(({violations}) => violations.filter(({impact}) => impact !== "minor").map(
    ({id, nodes}) => [id, nodes.map(({target, failureSummary}) => target.join(" ") + ": " + failureSummary)]))"""


def violations(page):
    page.call("Runtime.evaluate", expression=resources.files("axe_core_python").joinpath("axe.min.js").read_text())
    return page.run(VIOLATIONS)


def script():
    yield delta(role="assistant", content="")
    yield delta(reasoning_content="Hm.")
    yield delta(tool_calls=[{"index": 0, "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}])
    yield from list(text_chunks(REPLY))[1:]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_axe(open_page, stage, width, dark):
    page = open_page(width=width, dark=dark)
    assert violations(page) == []
    stage.reply = script
    say(page, "Show me")
    wait_for_end(page)
    page.click(".again")
    wait_for_end(page)
    assert violations(page) == []
    stage.reply = lambda: (429, {"error": {"message": "no slot is free"}})
    say(page, "More")
    wait_for_end(page)
    page.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    assert violations(page) == []
    page.click("#open-settings")
    assert violations(page) == []
    page.click("#close-settings")
    page.click("#open-side")
    assert violations(page) == []
    page.problems.clear()  # the refusal



def test_order_of_the_keyboard(open_page):
    page = open_page(width=1280)
    page.run("document.querySelector('a, button, input, select, textarea, [tabindex]').focus()")
    order = [page.run("document.activeElement.id || document.activeElement.innerText")]
    while order[-1] != "send":
        page.press("Tab")
        order.append(page.run("document.activeElement.id || document.activeElement.innerText"))
        assert len(order) < 20, order
    assert order == ["To the message", "open-side", "model", "clear", "theme", "open-settings", "attach", "input", "send"]
    page.run("document.querySelector('.skip').focus()")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "input", "the link does not skip"


@pytest.mark.parametrize("button, panel", [("open-settings", "settings"), ("open-side", "side")])
def test_escape_closes_and_returns(open_page, button, panel):
    page = open_page(width=768)
    page.run(f"document.querySelector('#{button}').focus()")
    page.press("Enter")
    assert page.run(f"document.querySelector('#{panel}').contains(document.activeElement)")
    assert page.run(f"document.querySelector('#{button}').ariaExpanded") == "true"
    page.press("Escape")
    assert page.run("document.activeElement.id") == button
    assert page.run(f"document.querySelector('#{panel}').hidden")
    assert page.run(f"document.querySelector('#{button}').ariaExpanded") == "false"


def test_model_has_room_on_a_phone(open_page):
    page = open_page(width=360)
    assert page.run("document.querySelector('#model').getBoundingClientRect().width") >= 90


def test_end_of_a_reply_is_said(open_page, stage):
    page = open_page(width=1280)
    say(page, "Hello")
    wait_for_end(page)
    page.wait_for("document.querySelector('#status').textContent === 'The reply is complete'")
    assert page.run("document.querySelector('#status').role") == "status"
