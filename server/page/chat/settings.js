/* The settings: kept in this browser, but for the API key, which is kept until the tab is closed. */
const NUMBERS = { temperature: "temperature", "max-tokens": "max_completion_tokens", "top-p": "top_p", "top-k": "top_k", "min-p": "min_p",
  "presence-penalty": "presence_penalty", "frequency-penalty": "frequency_penalty", "repetition-penalty": "repetition_penalty", seed: "seed" };
const SAVED = ["system", ...Object.keys(NUMBERS), "stop", "schema", "tools"];

function parsedField(name, label, isFit) {
  const text = $(name).value.trim();
  if (!text) return undefined;
  let value;
  try { value = JSON.parse(text); } catch (error) { throw new Error(`${label}: not valid JSON (${error.message})`); }
  if (!isFit(value)) throw new Error(`${label}: ${name === "tools" ? "a list of tools" : "an object"} is needed`);
  return value;
}

/* The fields of a request that the settings say; throws an Error that names a wrong one. */
function samplingFields() {
  const fields = {};
  for (const [name, field] of Object.entries(NUMBERS)) {
    if (!$(name).checkValidity()) throw new Error(`${$(name).labels[0].firstChild.textContent.trim()}: ${$(name).validationMessage}`);
    if ($(name).value) fields[field] = Number($(name).value);
  }
  const stop = $("stop").value.split("\n").filter(Boolean);
  if (stop.length) fields.stop = stop;
  const schema = parsedField("schema", "JSON schema", (value) => typeof value === "object" && value !== null && !Array.isArray(value));
  if (schema) fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  const tools = parsedField("tools", "Tools", Array.isArray);
  if (tools?.length) fields.tools = tools;
  return fields;
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", isDark());
}

function showSettings(shown, field) {
  $("settings").hidden = !shown;
  $("open-settings").setAttribute("aria-expanded", shown);
  if (shown && field && $(field).closest("details")) $(field).closest("details").open = true;
  $(shown ? field ?? "system" : "open-settings").focus();
}

function loadSettings() {
  for (const name of SAVED) {
    $(name).value = load(localStorage, name);
    $(name).oninput = () => store(localStorage, name, $(name).value);
  }
  $("more").open = SAVED.slice(3).some((name) => $(name).value);
  $("key").value = load(sessionStorage, "key");
  setTheme(load(localStorage, "theme"));
  $("theme").onclick = () => {
    const theme = isDark() ? "light" : "dark";
    store(localStorage, "theme", theme);
    setTheme(theme);
  };
  $("open-settings").onclick = () => showSettings($("settings").hidden);
  $("close-settings").onclick = () => showSettings(false);
}
