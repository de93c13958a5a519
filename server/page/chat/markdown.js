/* Markdown to elements: markdown-it says what the text is (CommonMark, tables, ~~strikethrough~~,
 * links), KaTeX sets formulas, highlight.js colours code. A page built without them shows plain
 * text. HTML in the text stays text; pictures become links, so that nobody else is asked for them. */
const MAX_MARKDOWN = 500000, MAX_COLOURED = 50000, MAX_FORMULA = 5000;
const MAX_DEPTH = 40; /* of colours in each other: a browser hangs on elements thousands deep */
const { markdownit, katex, hljs } = window;

/* --- Formulas: $x$, $$x$$, \(x\), \[x\] --- */

const FORMULAS = [["\\(", "\\)", false], ["\\[", "\\]", true], ["$$", "$$", true], ["$", "$", false]];

function formulaAt(text, at) {
  const form = FORMULAS.find(([open]) => text.startsWith(open, at));
  if (!form) return null;
  const [open, close, isBlock] = form, begin = at + open.length;
  const length = text.slice(begin, begin + MAX_FORMULA).indexOf(close);
  const tex = text.slice(begin, begin + length), end = begin + length + close.length;
  if (length <= 0 || !/[\p{L}\p{N}]/u.test(tex)) return null;
  /* A price is not a formula. */
  if (open === "$" && (/^\s|[\s\\]$|\n\s*\n/.test(tex) || /\d/.test(text[end] ?? ""))) return null;
  return { tex, isBlock, end };
}

function readInlineFormula(state, silent) {
  const formula = formulaAt(state.src.slice(0, state.posMax), state.pos);
  if (!formula) return false;
  if (!silent) Object.assign(state.push("formula", "", 0), { content: formula.tex, meta: formula });
  state.pos = formula.end;
  return true;
}

/* From a line that begins with the opening mark to one that ends with the closing one. */
function readFormulaLines(state, first, last, silent) {
  const textOf = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
  const open = textOf(first).slice(0, 2), close = { "$$": "$$", "\\[": "\\]" }[open];
  if (!close) return false;
  const lines = [textOf(first).slice(2)];
  let line = first;
  while (!lines.at(-1).trimEnd().endsWith(close)) {
    if (++line >= last || lines.join().length > MAX_FORMULA) return false;
    lines.push(textOf(line));
  }
  if (silent) return true;
  const tex = lines.join("\n").trimEnd().slice(0, -2);
  if (!tex.trim() || tex.includes(close)) return false;
  Object.assign(state.push("formula", "", 0), { content: tex, meta: { isBlock: true }, map: [first, line + 1] });
  state.line = line + 1;
  return true;
}

function renderFormula(tex, isBlock) {
  const node = element(isBlock ? "div" : "span", { className: "formula" });
  try {
    katex.render(tex, node, { displayMode: isBlock, throwOnError: true, strict: "ignore", maxExpand: 300, maxSize: 40 });
  } catch { /* not TeX that KaTeX knows */
    node.replaceChildren(element("code", { textContent: tex }));
  }
  return node;
}

/* --- Code --- */

const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };

/* highlight.js writes spans with a class, and text with these entities. */
function colouredNodes(html) {
  const root = document.createDocumentFragment(), open = [root];
  for (const [, className, end, text] of html.matchAll(/<span class="([^"]*)">|(<\/span>)|([^<]+)/g)) {
    if (className !== undefined) {
      const span = open.length < MAX_DEPTH ? element("span", { className }) : open.at(-1);
      if (span !== open.at(-1)) open.at(-1).append(span);
      open.push(span);
    } else if (end) {
      if (open.length > 1) open.pop();
    } else {
      open.at(-1).append(text.replace(/&(amp|lt|gt|quot|#x27);/g, (entity) => ENTITIES[entity]));
    }
  }
  return root;
}

function renderCode(text, language) {
  const code = element("code", { textContent: text });
  if (language) code.className = "language-" + language;
  if (hljs && text.length <= MAX_COLOURED && hljs.getLanguage(language)) {
    const nodes = colouredNodes(hljs.highlight(language, text, true).value);
    if (nodes.textContent === text) code.replaceChildren(nodes);
  }
  const copy = button("plain", "Copy", (pressed) => copyText(text, pressed));
  return element("div", { className: "code" }, element("div", {}, element("span", { textContent: language || "text" }), copy),
    element("pre", { tabIndex: 0, ariaLabel: "Code" }, code));
}

/* --- Links --- */

const SCHEMES = ["http:", "https:", "mailto:"];

function renderLink(address, title) {
  let url = null;
  try { url = new URL(address, location.href); } catch { /* not an address */ }
  if (!url || !SCHEMES.includes(url.protocol)) return element("span");
  const link = element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow ugc" });
  if (title) link.title = title;
  return link;
}

function renderPicture(token, parent) {
  const address = token.attrGet("src"), alt = token.children.map(({ content }) => content).join("") || address;
  if (/^data:image\/(png|gif|jpeg|webp);/.test(address)) return element("img", { src: address, alt });
  if (parent.closest?.("a")) return "Image: " + alt;
  const link = renderLink(address, token.attrGet("title"));
  link.append("Image: " + alt);
  return link;
}

/* --- Elements of tokens --- */

const reader = markdownit?.({ html: false, linkify: true });
if (reader && katex) {
  reader.inline.ruler.before("escape", "formula", readInlineFormula);
  reader.block.ruler.before("fence", "formula", readFormulaLines, { alt: ["paragraph", "reference", "blockquote", "list"] });
}
hljs?.configure({ hideUpgradeWarningAcceptNoSupportOrSecurityUpdates: true });

/* One that has no end token, or null. */
function renderLeaf(token, parent) {
  switch (token.type) {
    case "text": return token.content;
    case "softbreak": return "\n";
    case "hardbreak": return element("br");
    case "hr": return element("hr");
    case "code_inline": return element("code", { textContent: token.content });
    case "formula": return renderFormula(token.content, token.meta.isBlock);
    case "image": return renderPicture(token, parent);
    case "fence": return renderCode(token.content.replace(/\n$/, ""), reader.utils.unescapeAll(token.info).trim().split(/\s+/)[0]);
    case "code_block": return renderCode(token.content.replace(/\n$/, ""), "");
    default: return token.content;
  }
}

function openElement(token) {
  if (token.type === "link_open") return renderLink(token.attrGet("href"), token.attrGet("title"));
  const node = element(token.tag);
  if (token.attrGet("start") !== null) node.start = Number(token.attrGet("start"));
  const align = /^text-align:(\w+)$/.exec(token.attrGet("style") ?? "");
  if (align) node.style.textAlign = align[1];
  return node;
}

/* "[x] done" at the start of an item is a task. */
function takeTask(parent, token) {
  const item = parent.tagName === "P" ? parent.parentElement : parent;
  const mark = /^\[([ xX])\] /.exec(token.content), first = token.children[0];
  if (item?.tagName !== "LI" || item.textContent || !mark || first.type !== "text") return;
  const box = element("input", { type: "checkbox", disabled: true, checked: mark[1] !== " " });
  box.ariaLabel = box.checked ? "done" : "to do";
  item.classList.add("task");
  parent.append(box);
  first.content = first.content.slice(4);
}

function appendTokens(root, tokens) {
  const open = [root];
  for (const token of tokens) {
    if (token.type === "inline") {
      takeTask(open.at(-1), token);
      appendTokens(open.at(-1), token.children);
    } else if (token.nesting > 0) {
      const node = token.hidden ? open.at(-1) : openElement(token);
      if (!token.hidden) open.at(-1).append(node);
      open.push(node);
    } else if (token.nesting < 0) {
      open.pop();
    } else {
      open.at(-1).append(renderLeaf(token, open.at(-1)));
    }
  }
  return root;
}

/* The tokens of each block, with the text that they come from. */
function blocksOf(source) {
  const environment = {}, tokens = reader.parse(source, environment), lines = source.split("\n"), blocks = [];
  const links = JSON.stringify(environment.references ?? {});
  let depth = 0, begin = 0;
  tokens.forEach((token, index) => {
    depth += token.nesting;
    if (depth) return;
    const [first, last] = tokens[begin].map ?? [0, lines.length];
    blocks.push({ key: tokens[begin].type + links + lines.slice(first, last).join("\n"), tokens: tokens.slice(begin, index + 1) });
    begin = index + 1;
  });
  return blocks;
}

/* Replaces only the blocks that changed, so that finished ones keep their selection and scroll. */
function renderMarkdown(container, source) {
  if (!reader || source.length > MAX_MARKDOWN) {
    container.classList.add("verbatim");
    container.textContent = source;
    return;
  }
  const blocks = blocksOf(source);
  blocks.forEach((block, index) => {
    const old = container.children[index];
    if (old?.key === block.key) return;
    const node = appendTokens(document.createDocumentFragment(), block.tokens).firstElementChild;
    node.key = block.key;
    if (old) old.replaceWith(node);
    else container.append(node);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}
