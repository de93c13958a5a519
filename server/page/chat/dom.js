/* Text of the model and of the user reaches the document as text nodes only: nothing here, nor in
 * the libraries, parses HTML, and the policy allows no code that does. */
const $ = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function button(name, label, action) {
  const node = element("button", { type: "button", className: name, textContent: label });
  node.onclick = () => action(node);
  return node;
}

async function copyText(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { /* no clipboard without HTTPS */
    const area = element("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  pressed.textContent = "Copied";
  setTimeout(() => { pressed.textContent = "Copy"; }, 1500);
}

/* Hands the text to the reader as a file. */
function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/* Read aloud by screen readers, without moving the focus. */
function announce(text) {
  $("status").textContent = text;
}

const seconds = (ms) => (ms / 1000).toFixed(ms < 10000 ? 2 : 0) + " s";
