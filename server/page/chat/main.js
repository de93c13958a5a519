/* Events of the document, and the start. */
const isEnter = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function showTitle() {
  document.title = conversation.title ? conversation.title + " – Quire" : "Quire";
}

function fitInput() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = input.scrollHeight + "px";
}

function stopReply() {
  running?.controller.abort();
}

function startNew() {
  stopReply();
  conversation = newConversation();
  store(sessionStorage, "shown", "");
  $("mode").value = hasTemplate ? "chat" : "completion";
  clearProblems();
  showConversation();
  showList();
  $("input").focus();
}

let isModeChosen = false; /* by the reader, so that the model's kind no longer decides */

function showMode() {
  $("input").placeholder = isCompletion() ? "Write a text that the model continues" : "Write a message";
  $("greeting").textContent = models.length ? "Everything you write is sent to this server and nowhere else." : "This server has no model now.";
}

/* The mode that the chosen model is made for, while the reader has not begun. */
function fitMode() {
  if (!isModeChosen && !conversation.turns.length) $("mode").value = hasTemplate ? "chat" : "completion";
  showMode();
}

async function chooseModel() {
  store(localStorage, "model", $("model").value);
  showContext();
  await describeModel();
  fitMode();
}

/* Looks for another model or a restarted server; isFirst: says nothing of what it finds. */
async function lookAtServer(isFirst) {
  try {
    const change = await loadModels();
    $("notice").hidden = !change;
    if (change) announce($("notice").textContent = change);
    if (isFirst) fitMode();
    else showMode();
    showContext();
    if (isFirst && hasSeveral() && !running) { /* its replies now say who wrote them */
      const problem = document.querySelector(".problem");
      showConversation();
      if (problem) $("turns").append(problem);
    }
  } catch (error) {
    if (isFirst || !models.length) $("greeting").textContent = error.message;
    else if (!running) { $("notice").textContent = error.message; $("notice").hidden = false; }
  }
}

$("composer").onsubmit = (event) => {
  event.preventDefault();
  if (running) { stopReply(); return; }
  const typed = isCompletion() ? $("input").value : $("input").value.trim(), text = messageWithFiles(typed);
  if (!text.trim()) return;
  $("input").value = "";
  fitInput();
  send(text);
};
$("input").oninput = fitInput;
$("input").onkeydown = (event) => {
  if (!isEnter(event)) return;
  event.preventDefault();
  if (!running) $("composer").requestSubmit();
};
$("input").onpaste = (event) => {
  if (!event.clipboardData.files.length) return;
  event.preventDefault();
  attach(event.clipboardData.files);
};
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (running) stopReply();
    else if (!$("settings").hidden) showSettings(false);
    else if ($("side").contains(document.activeElement) || document.activeElement === $("open-side")) { showSide(false); $("open-side").focus(); }
  }
  if (!(event.ctrlKey || event.metaKey)) return;
  if (event.key === "k") { event.preventDefault(); showSide(true); $("search").focus(); }
  if (event.key === "O" && event.shiftKey) { event.preventDefault(); startNew(); }
});
document.addEventListener("dragover", (event) => { event.preventDefault(); });
document.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) lookAtServer(false); else if (running?.turn.content) saveShown(); });
setInterval(() => { if (!document.hidden && !running) lookAtServer(false); }, 30000);
$("clear").onclick = startNew;
$("attach").onclick = () => $("attach-file").click();
$("attach-file").onchange = () => { attach($("attach-file").files).then(() => { $("attach-file").value = ""; }); };
$("open-side").onclick = () => {
  showSide($("side").hidden);
  /* A field would bring up a phone's keyboard. */
  if (!$("side").hidden && !matchMedia("(pointer: coarse)").matches) $("search").focus();
};
$("search").oninput = search;
$("export").onclick = async () => saveFile("quire-conversations.json", await exportConversations());
$("import").onclick = () => $("import-file").click();
$("import-file").onchange = async () => { await importFile($("import-file").files[0]); $("import-file").value = ""; };
$("model").onchange = chooseModel;
$("model").onfocus = () => { if (hasSeveral()) lookAtServer(false); };
$("mode").onchange = () => { isModeChosen = true; showMode(); showConversation(); };
$("key").onchange = () => { store(sessionStorage, "key", $("key").value.trim()); lookAtServer(false); };

loadSettings();
showSide(load(localStorage, "side") === "shown" && !matchMedia("(max-width: 60rem)").matches);
await openStore();
const shown = load(sessionStorage, "shown"), last = shown ? await loadConversation(shown) : null;
if (last) conversation = last;
if (last?.mode) $("mode").value = last.mode;
showConversation();
showList();
lookAtServer(true);
