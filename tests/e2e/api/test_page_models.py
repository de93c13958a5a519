"""The chat page on a server of several models: the choice, the states, the loading of one."""

import shutil

import httpx
import pytest

from browser import Page, find_browser
from page_stage import text_chunks
from quire_server import MODEL, NAME, ROOT
from test_page import browser, open_page, say, stage, wait_for_end  # noqa: F401 (fixtures)
from test_page_access import violations
from test_page_features import EXPORT, import_text

pytestmark = pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here")

FAMILIES = ROOT / "tests/golden/families"
TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


@pytest.fixture
def start_three(start_server, tmp_path):
    """start_three(*arguments) -> server of smollm2, which is loaded, llama3 and gone, whose file is missing by now."""
    def start(*arguments):
        template, file = tmp_path / "template.jinja", tmp_path / "gone.gguf"
        template.write_text(TEMPLATE)
        shutil.copy(FAMILIES / "qwen2.gguf", file)
        server = start_server("--model", MODEL, "--served-model-name", NAME, "--model", FAMILIES / "llama3.gguf", "--model", file,
                              "--max-model-len", 512, "--chat-template", template, *arguments, has_model=True)
        file.unlink()
        return server
    return start


def open_at(browser, url):
    page = Page(browser)
    page.open(url + "/")
    page.wait_for("document.querySelector('#model').value")
    page.run("document.querySelector('#max-tokens').value = '8'")
    return page


def states(page):
    return page.run("[...document.querySelector('#model').options].map((option) => option.textContent)")


def notes(page):
    return page.run("[...document.querySelectorAll('.assistant .note')].map((note) => note.textContent.split(' · ')[0])")


def choose(page, key):
    page.run("document.querySelector('#model').focus()")
    page.press(key)


def test_choose_load_and_switch(browser, start_three):
    server = start_three("--models-max", 1)
    page = open_at(browser, server.url)
    assert states(page) == ["smollm2 · loaded", "llama3 · not loaded", "gone · not loaded"]
    assert page.text("#context") == "0 / 512"
    choose(page, "ArrowDown")
    page.wait_for("document.querySelector('#model').value === 'llama3'")
    assert page.text("#context") == "" and page.run("document.querySelector('#meter').hidden")
    say(page, "Hello")
    wait_for_end(page)
    page.wait_for("document.querySelector('#context').innerText.endsWith(' / 512')")
    assert notes(page) == ["llama3"] and states(page) == ["smollm2 · asleep", "llama3 · loaded", "gone · not loaded"]
    choose(page, "ArrowUp")
    page.wait_for("document.querySelector('#model').value === 'smollm2'")
    say(page, "And you?")
    wait_for_end(page)
    assert notes(page) == ["llama3", "smollm2"]
    choose(page, "ArrowDown")
    page.open(server.url + "/")
    page.wait_for("document.querySelector('#model').value === 'llama3'")  # remembered
    page.wait_for("document.querySelectorAll('.assistant .note').length === 2")
    page.wait_for("document.querySelector('.assistant .note').textContent.startsWith('llama3')")  # once the models are known
    assert notes(page) == ["llama3", "smollm2"] and page.problems == []
    page.close()


def test_waiting_for_another_model(browser, start_three):
    server = start_three("--models-max", 1)
    page = open_at(browser, server.url)
    choose(page, "ArrowDown")
    say(page, "Hello")
    wait_for_end(page)
    body = {"model": "smollm2", "prompt": "Once", "max_tokens": 500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=body) as other:
        lines = other.iter_lines()
        next(lines)  # smollm2 does not sleep before its end
        say(page, "Again")
        page.wait_for("[...document.querySelectorAll('.loading')].at(-1).innerText === 'Waiting until llama3 can be loaded'")
        assert page.run("[...document.querySelectorAll('.loading progress')].at(-1).ariaLabel") == "Waiting until llama3 can be loaded"
        assert page.text("#status") == "Waiting until llama3 can be loaded" and page.text("#send") == "Stop"
    wait_for_end(page)
    assert page.count(".loading:not([hidden])") == 0
    assert notes(page) == ["llama3", "llama3"] and page.problems == []
    page.close()


def test_a_load_that_fails_is_said(browser, start_three):
    page = open_at(browser, start_three().url)
    choose(page, "ArrowDown")
    choose(page, "ArrowDown")
    page.wait_for("document.querySelector('#model').value === 'gone'")
    say(page, "Hello")
    assert 'the model "gone" cannot be opened' in page.wait_for("document.querySelector('.problem p')?.innerText")
    wait_for_end(page)
    assert page.count(".assistant") == 0 and states(page)[2] == "gone · not loaded"
    choose(page, "ArrowUp")
    page.wait_for("document.querySelector('#model').value === 'llama3'")
    page.click(".problem .again")
    wait_for_end(page)
    assert notes(page) == ["llama3"] and page.count(".problem") == 0
    assert all("status of 503" in entry["text"] for entry in page.problems)
    page.close()


# ---- scripted: what a large model takes minutes for ----

def listed(status):
    models = {"smollm2": "loaded", "large": status}
    return 200, {"data": [{"id": name, "created": 1, "root": name, "parent": None, "max_model_len": None, "status": {"value": value}}
                          for name, value in models.items()]}


def event(status, progress=None):
    data = {"status": status, **({} if progress is None else {"progress": {"value": progress}})}
    return {"model": "large", "event": "status_change", "data": data}


def wait_for_large(open_page, stage, **options):
    """A page whose message waits for the large model, until the stage's gate is opened."""
    def reply():
        assert stage.gate.wait(60)
        yield from text_chunks("Hello")

    stage.reply = reply
    page = open_page(**options)
    choose(page, "ArrowDown")
    page.wait_for("document.querySelector('#model').value === 'large'")
    say(page, "Hello")
    return page


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_progress(open_page, stage, width, dark):
    def events():
        yield from [event("unloaded"), event("loading"), event("loading", 0.425)]
        stage.gate.wait(60)

    stage.models, stage.events = lambda: listed("loading"), events
    page = wait_for_large(open_page, stage, width=width, dark=dark)
    page.wait_for("document.querySelector('.loading')?.innerText.trim() === 'Loading large · 42 %'")
    assert page.run("document.querySelector('.loading progress').value") == 0.425
    assert states(page)[1] == "large · loading"
    assert page.run("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    stage.gate.set()
    wait_for_end(page)
    assert page.run("document.querySelector('.loading').hidden") and notes(page) == ["large"]
    assert stage.chats[0]["model"] == "large"


def test_states_without_events(open_page, stage):
    stage.models, stage.events = lambda: listed("loading"), lambda: (404, {})
    page = wait_for_large(open_page, stage)
    page.wait_for("document.querySelector('.loading')?.innerText === 'Loading large'")
    stage.models = lambda: listed("unloaded")
    page.wait_for("document.querySelector('.loading')?.innerText === 'Waiting until large can be loaded'")
    page.press("Escape")
    wait_for_end(page)
    assert "Stopped" in page.text(".problem")
    assert all("status of 404" in entry["text"] for entry in page.problems)
    page.problems.clear()


def test_an_exported_reply_keeps_its_model(open_page, stage):
    stage.models = lambda: listed("unloaded")
    page, other = open_page(), open_page()
    say(page, "Hello")
    wait_for_end(page)
    for one in (page, other):
        one.click("#open-side")
    import_text(other, page.run(EXPORT))
    other.wait_for("document.querySelectorAll('#conversations li').length === 1")
    other.click("#conversations .open")
    other.wait_for("document.querySelectorAll('article').length === 2")
    assert notes(other) == ["smollm2"]


def test_a_base_model_does_not_chat(open_page, stage):
    stage.models = lambda: listed("unloaded")
    stage.reply = lambda: (400, {"error": {"message": "the model has no chat template", "code": "no_chat_template"}})
    page = open_page()
    say(page, "Hello")
    page.wait_for("document.querySelector('.problem p') !== null")
    wait_for_end(page)
    assert page.text(".problem p") == ("This model is not made for a chat. Choose Completion as the mode in Settings, "
                                       "or another model above.")
    page.problems.clear()
