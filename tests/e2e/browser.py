"""A headless Chromium, driven over the DevTools protocol through a pair of pipes.

Protocol: https://chromedevtools.github.io/devtools-protocol/ ; with --remote-debugging-pipe the
browser reads messages from file descriptor 3 and writes them to 4, each ended by a NUL."""

import json
import os
import select
import shutil
import subprocess
import time

NAMES = ["chromium-headless-shell", "chromium", "google-chrome"]
SWITCHES = ["--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--no-proxy-server", "--disable-background-networking",
            "--disable-component-update", "--disable-sync"]
TIMEOUT = 60
KEYS = {"Enter": {"code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
        "Escape": {"code": "Escape", "windowsVirtualKeyCode": 27},
        "Tab": {"code": "Tab", "windowsVirtualKeyCode": 9},
        "ArrowDown": {"code": "ArrowDown", "windowsVirtualKeyCode": 40},
        "ArrowUp": {"code": "ArrowUp", "windowsVirtualKeyCode": 38}}


def find_browser():
    """Its path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, folder):
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()
        command = [find_browser(), *SWITCHES, f"--user-data-dir={folder}", "about:blank"]
        if os.getuid() == 0:
            command.append("--no-sandbox")  # which Chromium's own sandbox does not start as root
        wired = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command]
        self.process = subprocess.Popen(wired, pass_fds=(to_browser, from_browser),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.received = b""
        self.last_id = 0
        self.pages = {}

    def read_message(self, deadline):
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self.input, 1 << 16)
            assert data, "the browser has ended"
            self.received += data
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **params):
        """Waits for the result; events that come before it go to their page."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self.read_message(deadline)
            if answer.get("id") == self.last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if answer.get("sessionId") in self.pages:
                self.pages[answer["sessionId"]].take_event(answer["method"], answer["params"])

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.input)
        os.close(self.output)


class Page:
    """A tab with storage of its own. `problems` collects what a console would show in red, `requests`
    the address of everything that was requested."""

    def __init__(self, browser, dark=False, width=1100, height=800):
        self.browser, self.problems, self.requests = browser, [], []
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)
        attached = browser.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        browser.pages[self.session] = self
        for domain in ["Runtime", "Log", "Network", "Page", "Audits"]:
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def take_event(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(params)
        elif method == "Audits.issueAdded" and "ContentSecurity" in params["issue"]["code"]:
            self.problems.append(params["issue"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression):
        """The value of a JavaScript expression, awaited when it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def run_between(self, expression):
        """The same; None while the page goes from one document to the next."""
        try:
            return self.run(expression)
        except AssertionError as error:
            if "navigated or closed" not in str(error):
                raise

    def wait_for(self, expression):
        deadline = time.monotonic() + TIMEOUT
        while not (value := self.run_between(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)
        return value

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def count(self, selector):
        return self.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def click(self, selector):
        """At the element's middle, with a real mouse event: what covers it gets it."""
        x, y = self.run(f"""(() => {{
            const node = document.querySelector({json.dumps(selector)});
            node.scrollIntoView({{block: "nearest"}});
            const box = node.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0,
                      **KEYS[key])

    def screenshot(self):
        return self.call("Page.captureScreenshot", format="png")["data"]

    def close(self):
        self.browser.pages.pop(self.session)
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
