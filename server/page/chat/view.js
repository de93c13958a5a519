/* The shown branch as articles, and what a reader can do with each. */
const nodes = new Map(); /* turn -> its article */
let running = null;      /* {controller, turn} of the reply that is coming */

function showContext() {
  const size = modelOf($("model").value)?.max_model_len ?? 0, used = lastUsed();
  $("meter").max = size || 1;
  $("meter").value = used;
  $("meter").hidden = hasSeveral() && !size;
  $("context").textContent = size ? `${used} / ${size}` : "";
}

function noteOf({ content, model, usage, times, pieces, finish, stopped }) {
  const writer = hasSeveral() && model ? [model] : [];
  if (!times?.first) return content ? writer.join() : ""; /* imported, or not begun */
  const count = usage?.completion_tokens ?? pieces, span = times.last - times.first;
  const parts = [...writer, `${usage ? "" : "about "}${count} token${count === 1 ? "" : "s"}`];
  if (count > 1 && span > 0) parts.push(`${((count - 1) * 1000 / span).toFixed(1)} tokens/s`);
  parts.push(`first after ${seconds(times.first - times.sent)}`);
  if (usage?.prompt_tokens_details?.cached_tokens) parts.push(`${usage.prompt_tokens_details.cached_tokens} prompt tokens cached`);
  if (finish === "length") parts.push("cut at the token limit");
  if (stopped) parts.push("stopped");
  return parts.join(" · ");
}

function branchTools(turn) {
  const all = siblings(turn);
  if (all.length < 2) return [];
  const go = (step) => () => { if (!running) { showSibling(turn, step); showConversation(); saveShown(); } };
  const at = element("span", { className: "note", textContent: `${all.indexOf(turn) + 1} / ${all.length}` });
  const [back, on] = [button("plain back", "‹", go(-1)), button("plain on", "›", go(1))];
  back.ariaLabel = "Previous version";
  on.ariaLabel = "Next version";
  return [element("span", { className: "versions", role: "group", ariaLabel: "Versions" }, back, at, on)];
}

function newUserNode(turn) {
  const text = element("div", { className: "text", textContent: turn.content });
  const tools = element("div", { className: "tools" }, ...branchTools(turn), button("plain edit", "Edit", () => editTurn(turn)),
    button("plain copy", "Copy", (pressed) => copyText(turn.content, pressed)));
  return element("article", { className: turn.role, ariaLabel: turn.role === "tool" ? "Result" : "You" }, text, tools);
}

function newReplyNode(turn) {
  const reasoning = element("details", { className: "reasoning", hidden: true }, element("summary"), element("div"));
  const again = button("plain again", "Regenerate", () => regenerate(turn)), more = button("plain continue", "Continue", () => continueReply(turn));
  const tools = element("div", { className: "tools" }, element("span", { className: "note" }), ...branchTools(turn), more,
    button("plain copy", "Copy", (pressed) => copyText(turn.content, pressed)), again);
  const loading = element("div", { className: "loading", hidden: true }, element("progress"), element("span"));
  return element("article", { className: "assistant", ariaLabel: "Reply" }, loading, reasoning, element("div", { className: "text" }),
    element("div", { className: "calls" }), tools);
}

function prettyJson(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

/* A call of a tool, with a field for what came of it. */
function callNode(turn, call) {
  const node = element("details", { className: "call", open: true }, element("summary", { textContent: `Calls ${call.name}` }), renderCode(prettyJson(call.text), "json"));
  const answered = conversation.turns.some(({ parent, toolCallId }) => parent === turn.id && toolCallId === call.id);
  if (running || answered || conversation.head !== turn.id) return node;
  const area = element("textarea", { rows: 2, ariaLabel: `Result of ${call.name}`, placeholder: "The result, to send back" });
  node.append(area, element("div", { className: "tools" }, button("plain accept", "Send the result", () => sendResult(call, area.value))));
  return node;
}

function showReply(turn) {
  const node = nodes.get(turn), text = node.querySelector(".text"), reasoning = node.querySelector(".reasoning");
  const isComing = running?.turn === turn;
  if (isCompletion()) { text.classList.add("verbatim"); text.textContent = turn.content; } else renderMarkdown(text, turn.content);
  text.classList.toggle("waiting", isComing && !turn.content);
  node.querySelector(".calls").replaceChildren(...(turn.toolCalls ?? []).map((call) => callNode(turn, call)));
  if (!isComing || turn.times?.first) node.querySelector(".loading").hidden = true;
  node.querySelector(".note").textContent = noteOf(turn);
  node.querySelectorAll(".tools button").forEach((one) => { one.hidden = isComing; });
  node.querySelector(".continue").hidden = isComing || conversation.head !== turn.id || !turn.content || !(isCompletion() || turn.stopped || turn.finish === "length");
  reasoning.hidden = !turn.reasoning;
  if (!turn.reasoning) return;
  const { first, answer, last } = turn.times ?? {};
  reasoning.querySelector("summary").textContent = isComing && !turn.content ? "Thinking" : first ? `Thought for ${seconds((answer ?? last) - first)}` : "Thoughts";
  reasoning.querySelector("div").textContent = turn.reasoning;
}

function appendTurn(turn) {
  nodes.set(turn, turn.role === "assistant" ? newReplyNode(turn) : newUserNode(turn));
  $("turns").append(nodes.get(turn));
  if (turn.role === "assistant") showReply(turn);
  $("welcome").hidden = true;
}

function showConversation() {
  nodes.clear();
  $("turns").replaceChildren();
  const turns = branch();
  $("welcome").hidden = turns.length > 0;
  turns.forEach(appendTurn);
  showContext();
  showTitle();
}

function clearProblems() {
  document.querySelectorAll(".problem").forEach((node) => node.remove());
}

function showProblem(message, isBad) {
  const node = element("div", { className: isBad ? "problem bad" : "problem", role: "alert" }, element("p", { textContent: message }));
  if (["user", "tool"].includes(branch().at(-1)?.role)) node.append(button("plain again", "Try again", reply));
  $("turns").append(node);
}

function keepConversation(one) {
  saveConversation(structuredClone(one)).then(showList, (error) => announce("This conversation could not be kept: " + error.message));
}

function saveShown() {
  if (!conversation.turns.length) return;
  conversation.updated = Date.now();
  conversation.mode = $("mode").value;
  keepConversation(conversation);
  store(sessionStorage, "shown", conversation.id);
}

/* --- Replies --- */

function setRunning(next) {
  running = next;
  $("send").textContent = next ? "Stop" : "Send";
  $("log").ariaBusy = String(next !== null);
}

const isEmptyReply = (turn, problem) => !turn.content && !turn.toolCalls.length && (problem !== null || !turn.reasoning);

/* Keeps what is left of a reply whose conversation is no longer shown, unless that was deleted. */
function keepUnshown(one, turn, problem) {
  if (!kept.has(one.id)) return;
  if (isEmptyReply(turn, problem)) removeTurn(turn, one);
  keepConversation(one);
}

/* Shows what is left of a reply that has ended; problem is null or the reason. */
function finishReply(turn, problem) {
  const isEmpty = isEmptyReply(turn, problem);
  if (isEmpty) removeTurn(turn);
  if (turn.stopped) problem = isEmpty ? "Stopped before the first token" : null;
  else if (isEmpty) problem ??= "The reply is empty";
  showConversation();
  if (problem) showProblem(problem, !turn.stopped);
  saveShown();
  announce(problem ?? (turn.stopped ? "Stopped" : "The reply is complete"));
}

/* Follows the end unless the reader scrolled up. */
function keepEnd(change) {
  const log = $("log"), follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (follows) log.scrollTop = log.scrollHeight;
}

/* Shows that the turn waits for its model; progress is from 0 to 1, or undefined. */
function showLoading(turn, status, progress) {
  const node = nodes.get(turn)?.querySelector(".loading");
  if (!node || turn.times?.first) return;
  const [bar, text] = node.children, isFirst = node.hidden;
  const words = status === "loading" ? "Loading " + turn.model : `Waiting until ${turn.model} can be loaded`;
  keepEnd(() => {
    node.hidden = status === "loaded";
    bar.ariaLabel = words;
    if (progress) bar.value = progress;
    else bar.removeAttribute("value");
    text.textContent = progress ? `${words} · ${Math.floor(100 * progress)} %` : words;
  });
  if (isFirst && !node.hidden) announce(words);
}

/* Lets the turn come, and shows it meanwhile. A long text is drawn less often: drawing takes a quarter of the time at most. */
async function receive(turn) {
  const log = $("log"), controller = new AbortController(), following = new AbortController(), shown = conversation;
  let timer = 0, pause = 0, problem = null;
  const draw = () => {
    timer = 0;
    if (running?.turn !== turn) return;
    const begin = performance.now();
    keepEnd(() => showReply(turn));
    pause = 3 * (performance.now() - begin);
  };
  clearProblems();
  turn.model = hasSeveral() ? $("model").value : undefined;
  setRunning({ controller, turn });
  showReply(turn);
  log.scrollTop = log.scrollHeight;
  if (turn.model) followModel(turn.model, following.signal, (...state) => showLoading(turn, ...state));
  try {
    await readReply(turn, controller.signal, () => { following.abort(); timer ||= setTimeout(() => requestAnimationFrame(draw), pause); });
  } catch (error) {
    turn.stopped = controller.signal.aborted;
    problem = error.message;
  }
  following.abort();
  clearTimeout(timer);
  setRunning(null);
  if (turn.model) lookAtServer(false); /* its state, and what is known of it now */
  if (conversation !== shown) { keepUnshown(shown, turn, problem); return; }
  finishReply(turn, problem);
  log.scrollTop = log.scrollHeight;
}

function reply() {
  if (running) return;
  const turn = addTurn(conversation.head, { role: "assistant", reasoning: "", toolCalls: [] });
  appendTurn(turn);
  receive(turn);
}

/* In a completion the text simply goes on. */
function continueReply(turn) {
  if (running) return;
  if (isCompletion()) reply();
  else receive(turn);
}

function send(text) {
  const turn = addTurn(conversation.head, { role: "user", content: text });
  appendTurn(turn);
  saveShown();
  reply();
}

function sendResult(call, text) {
  if (running) return;
  conversation.head = branch().at(-1).id;
  addTurn(conversation.head, { role: "tool", content: text, toolCallId: call.id });
  showConversation();
  reply();
}

/* Another reply to the same message: a branch of its own. */
function regenerate(turn) {
  if (running) return;
  conversation.head = turn.parent;
  showConversation();
  reply();
}

function editTurn(turn) {
  if (running) return;
  const node = nodes.get(turn), text = node.querySelector(".text"), tools = node.querySelector(".tools");
  const area = element("textarea", { value: turn.content, rows: Math.min(12, turn.content.split("\n").length + 1), ariaLabel: "Edit your message" });
  const close = () => { area.remove(); actions.remove(); text.hidden = tools.hidden = false; };
  const accept = () => {
    if (running || !area.value.trim()) return;
    conversation.head = turn.parent;
    showConversation();
    if (turn.role === "user") send(area.value.trim());
    else sendEdited(turn, area.value);
  };
  const actions = element("div", { className: "tools" }, button("plain cancel", "Cancel", close), button("plain accept", "Send", accept));
  area.onkeydown = (event) => {
    if (event.key === "Escape") close();
    if (isEnter(event)) { event.preventDefault(); accept(); }
  };
  text.hidden = tools.hidden = true;
  node.append(area, actions);
  area.focus();
}

function sendEdited({ toolCallId }, content) {
  addTurn(conversation.head, { role: "tool", content, toolCallId });
  showConversation();
  reply();
}
