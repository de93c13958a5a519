/* Conversations, kept in this browser's IndexedDB, and settings. Where neither is allowed (a private
 * window), they last as long as the page. */
const MAX_CONVERSATIONS = 1000, MAX_TURNS = 10000, MAX_IMPORT_BYTES = 64 << 20, EXPORT_FORMAT = "quire-conversations";

const asked = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

let database = null;           /* null: memory alone */
const kept = new Map();        /* id -> {id, title, updated}: what the list shows */
const whole = new Map();       /* without a database: the conversations */

async function openStore() {
  try {
    const request = indexedDB.open("quire", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("titles", { keyPath: "id" });
      request.result.createObjectStore("conversations", { keyPath: "id" });
    };
    database = await asked(request);
    for (const entry of await asked(database.transaction("titles").objectStore("titles").getAll())) kept.set(entry.id, entry);
  } catch { /* not allowed here */ }
}

function changeBoth(change) {
  const transaction = database.transaction(["titles", "conversations"], "readwrite");
  change(transaction.objectStore("titles"), transaction.objectStore("conversations"));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

const listed = () => [...kept.values()].sort((a, b) => b.updated - a.updated);

async function saveConversation(conversation) {
  const { id, title, updated } = conversation;
  kept.set(id, { id, title, updated });
  if (!database) whole.set(id, conversation);
  else await changeBoth((titles, conversations) => { titles.put(kept.get(id)); conversations.put(conversation); });
  for (const { id: oldest } of listed().slice(MAX_CONVERSATIONS)) await deleteConversation(oldest);
}

async function loadConversation(id) {
  return database ? asked(database.transaction("conversations").objectStore("conversations").get(id)) : whole.get(id);
}

async function deleteConversation(id) {
  kept.delete(id);
  whole.delete(id);
  if (database) await changeBoth((titles, conversations) => { titles.delete(id); conversations.delete(id); });
}

/* The ids of those that hold the words anywhere. */
async function findConversations(words) {
  const wanted = words.toLowerCase(), found = new Set();
  for (const { id, title } of listed()) {
    const text = title.toLowerCase().includes(wanted) ? null : JSON.stringify((await loadConversation(id))?.turns.map(({ content }) => content) ?? "");
    if (text === null || text.toLowerCase().includes(wanted)) found.add(id);
  }
  return found;
}

async function exportConversations() {
  const conversations = [];
  for (const { id } of listed()) conversations.push(await loadConversation(id));
  return JSON.stringify({ format: EXPORT_FORMAT, version: 1, conversations });
}

const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const isText = (value) => typeof value === "string";

function importedTurn(turn, turns) {
  const isFit = Number.isInteger(turn?.id) && !turns.has(turn.id) && ["user", "assistant", "tool"].includes(turn.role) &&
    isText(turn.content) && (turn.parent === null || turns.has(turn.parent));
  if (!isFit) throw new Error("a turn is not one of this page's");
  const { id, parent, role, content } = turn, made = { id, parent, role, content };
  if (isText(turn.model)) made.model = turn.model;
  if (isText(turn.reasoning)) made.reasoning = turn.reasoning;
  if (isText(turn.toolCallId)) made.toolCallId = turn.toolCallId;
  if (Array.isArray(turn.toolCalls) && turn.toolCalls.every(({ id, name, text }) => [id, name, text].every(isText))) {
    made.toolCalls = turn.toolCalls.map(({ id, name, text }) => ({ id, name, text }));
  }
  return made;
}

/* What a file of exportConversations holds, checked; throws an Error that says what is wrong. */
function importedConversations(text) {
  let file;
  try { file = JSON.parse(text); } catch { throw new Error("it is not JSON"); }
  if (file?.format !== EXPORT_FORMAT || file.version !== 1 || !Array.isArray(file.conversations)) throw new Error("it was not exported from this page");
  if (file.conversations.length > MAX_CONVERSATIONS) throw new Error(`it has more than ${MAX_CONVERSATIONS} conversations`);
  return file.conversations.map((one) => {
    const turns = new Map();
    if (!isText(one?.title) || !Array.isArray(one.turns)) throw new Error("a conversation has no title or no turns");
    if (one.turns.length > MAX_TURNS) throw new Error(`a conversation has more than ${MAX_TURNS} turns`);
    for (const turn of one.turns) turns.set(turn?.id, importedTurn(turn, turns));
    const head = turns.has(one.head) ? one.head : [...turns.keys()].at(-1) ?? null;
    const updated = one.updated > 0 && one.updated <= Date.now() ? Number(one.updated) : 0;
    return { id: newId(), title: one.title.slice(0, 200), updated, mode: one.mode === "completion" ? "completion" : "chat", head, turns: [...turns.values()] };
  });
}

/* --- Settings: one string each --- */

function store(storage, name, value) {
  try {
    if (value) storage.setItem("quire-" + name, value);
    else storage.removeItem("quire-" + name);
  } catch { /* storage is full or switched off */ }
}

function load(storage, name) {
  try { return storage.getItem("quire-" + name) ?? ""; } catch { return ""; }
}
