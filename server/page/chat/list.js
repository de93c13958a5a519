/* The list of conversations, and the text files that go with the next message. */
let found = null; /* ids that the search found; null: no search */

function showList() {
  const entries = listed().filter(({ id }) => found === null || found.has(id));
  $("conversations").replaceChildren(...entries.map(entryNode));
  $("none-found").hidden = entries.length > 0;
  $("none-found").textContent = found === null ? "Conversations are kept here, in this browser." : "Nothing found.";
}

function entryNode({ id, title }) {
  const open = button("plain open", title || "Untitled", () => openConversation(id));
  if (id === conversation.id) open.setAttribute("aria-current", "true");
  const rename = button("plain rename", "Edit", () => renameConversation(id, node)), remove = button("plain delete", "×", () => confirmDelete(id, node));
  rename.ariaLabel = "Rename " + title;
  remove.ariaLabel = "Delete " + title;
  const node = element("li", {}, open, rename, remove);
  return node;
}

function renameConversation(id, node) {
  const field = element("input", { value: kept.get(id).title, maxLength: 200, ariaLabel: "New title" });
  const accept = async () => {
    const one = id === conversation.id ? conversation : await loadConversation(id), title = field.value.trim();
    if (!field.isConnected || !one || !title) return showList();
    one.title = title;
    await saveConversation(structuredClone(one));
    showList();
    if (one === conversation) showTitle();
  };
  field.onblur = accept;
  field.onkeydown = (event) => {
    if (isEnter(event)) field.blur();
    if (event.key !== "Escape") return;
    event.stopPropagation();
    field.onblur = null;
    showList();
  };
  node.replaceChildren(field);
  field.focus();
  field.select();
}

/* The second press deletes. */
function confirmDelete(id, node) {
  const sure = button("plain delete sure", "Delete?", async () => {
    await deleteConversation(id);
    if (id === conversation.id) startNew();
    else showList();
    $("search").focus();
  });
  sure.onblur = showList;
  node.lastElementChild.replaceWith(sure);
  sure.focus();
}

async function openConversation(id) {
  const one = id === conversation.id ? null : await loadConversation(id);
  if (one) {
    stopReply();
    conversation = one;
    $("mode").value = one.mode || "chat";
    store(sessionStorage, "shown", id);
    showConversation();
    showList();
    $("log").scrollTop = $("log").scrollHeight;
  }
  if (matchMedia("(max-width: 60rem)").matches) showSide(false);
  $("input").focus();
}

function showSide(shown) {
  $("side").hidden = !shown;
  $("open-side").setAttribute("aria-expanded", shown);
  store(localStorage, "side", shown ? "shown" : "hidden");
}

async function importFile(file) {
  try {
    if (file.size > MAX_IMPORT_BYTES) throw new Error("it is larger than 64 MiB");
    const read = importedConversations(await file.text());
    for (const one of read) await saveConversation(one);
    announce(`${read.length} conversations imported`);
  } catch (error) {
    showProblem(`${file.name} was not imported: ${error.message}`, true);
  }
  showList();
}

async function search() {
  const words = $("search").value.trim();
  const result = words ? await findConversations(words) : null;
  if (words !== $("search").value.trim()) return; /* typed on meanwhile */
  found = result;
  showList();
}

/* --- Files --- */

const MAX_FILE_BYTES = 512 << 10, MAX_FILES = 20;
let files = []; /* {name, text} */

function showFiles() {
  $("files").replaceChildren(...files.map((file) => {
    const remove = button("plain", "×", () => { files = files.filter((other) => other !== file); showFiles(); });
    remove.ariaLabel = "Remove " + file.name;
    return element("li", {}, file.name, remove);
  }));
}

async function attach(list) {
  for (const file of list) {
    try {
      if (file.size > MAX_FILE_BYTES) throw new Error("it is larger than 512 KiB");
      if (files.length >= MAX_FILES) throw new Error(`a message takes at most ${MAX_FILES} files`);
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new TypeError();
      files.push({ name: file.name, text });
    } catch (error) {
      showProblem(`${file.name} was not added: ${error instanceof TypeError ? "it is not a text file" : error.message}`, true);
    }
  }
  showFiles();
}

/* The message with its files, each between fences longer than any in it. */
function messageWithFiles(text) {
  const parts = files.map(({ name, text: body }) => {
    const fence = "`".repeat(Math.max(3, ...[...body.matchAll(/`+/g)].map(([run]) => run.length + 1)));
    return `${name}:\n${fence}\n${body.replace(/\n$/, "")}\n${fence}`;
  });
  files = [];
  showFiles();
  return [...parts, text].filter(Boolean).join("\n\n");
}
