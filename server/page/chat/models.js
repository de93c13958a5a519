/* The server's models, and the state of each where the server loads them when a request names one. */
let models = [], hasTemplate = true, startedAt = null;
let described = null; /* which model hasTemplate is about; null: none */

const STATES = { unloaded: "not loaded", loading: "loading", loaded: "loaded", sleeping: "asleep" };

/* Whether the server loads several in turn. */
const hasSeveral = () => models.some(({ status }) => status);

const modelOf = (name) => models.find(({ id }) => id === name);

/* Of an adapter, or of another name: the model that events name. */
const baseOf = ({ id, root, parent }) => parent ?? root ?? id;

function showStates() {
  $("model").classList.toggle("several", hasSeveral());
  for (const option of $("model").options) {
    const { id, status } = modelOf(option.value), label = status ? `${id} · ${STATES[status.value] ?? status.value}` : id;
    if (option.textContent !== label) option.textContent = label;
  }
}

/* Asks what the chosen model is like; the server says so once it has been loaded. */
async function describeModel() {
  const { id, status } = modelOf($("model").value) ?? {}, name = status ? id : "";
  if (described === name) return;
  hasTemplate = true;
  described = null;
  if (status && !["loaded", "sleeping"].includes(status.value)) return;
  let template = true;
  try {
    template = Boolean((await getJson(status ? "props?model=" + encodeURIComponent(id) : "props")).chat_template);
  } catch { /* a proxy shows the API alone */ }
  if (status && $("model").value !== id) return; /* another one was chosen meanwhile */
  hasTemplate = template;
  described = name;
}

/* Asks which models there are. Returns what has changed since the last time, in words, or null. */
async function loadModels() {
  const before = $("model").value, list = (await getJson("v1/models")).data;
  const isNew = JSON.stringify(list.map(({ id }) => id)) !== JSON.stringify(models.map(({ id }) => id));
  const wasRestarted = startedAt !== null && list[0]?.created !== startedAt;
  startedAt = list[0]?.created ?? null;
  models = list;
  if (isNew) {
    const wanted = before || load(localStorage, "model");
    $("model").replaceChildren(...models.map(({ id }) => element("option", { value: id })));
    if (modelOf(wanted)) $("model").value = wanted;
  }
  showStates();
  showContext();
  if (isNew || wasRestarted) described = null;
  await describeModel();
  if (!before || !(isNew || wasRestarted)) return null;
  return $("model").value !== before ? `The server now has ${models.map(({ id }) => id).join(", ") || "no model"}.` : wasRestarted ? "The server was restarted." : null;
}

async function pollStates() {
  for (const { id, status } of (await getJson("v1/models")).data) {
    if (modelOf(id)) modelOf(id).status = status;
  }
}

/* Calls show(status, progress from 0 to 1 or undefined) as the model's state changes, until the signal is aborted. The
 * server's events say so or, if a proxy refuses or delays them, its list of models. */
async function followModel(name, signal, show) {
  const base = baseOf(modelOf(name)), pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  let hears = false;
  const listen = async () => {
    for await (const text of serverEvents((await ask("models/sse", { signal })).body)) {
      const { model, data } = JSON.parse(text);
      hears = true;
      for (const one of models.filter((other) => baseOf(other) === model)) one.status = { value: data.status };
      showStates();
      if (model === base) show(data.status, data.progress?.value);
    }
  };
  if (modelOf(name).status.value === "loaded") await pause(300); /* most replies have begun by then */
  if (signal.aborted) return;
  listen().catch(() => {}).finally(() => { hears = false; });
  for (await pause(1000); !signal.aborted; await pause(1000)) {
    if (hears) continue;
    await pollStates().catch(() => {});
    if (signal.aborted || !modelOf(name)?.status) return;
    showStates();
    show(modelOf(name).status.value);
  }
}
