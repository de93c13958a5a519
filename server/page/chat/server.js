/* The server's API, and its errors in words for people. */
function headers() {
  const key = $("key").value.trim();
  return key ? { Authorization: "Bearer " + key } : {};
}

const HELP = {
  401: (message) => ($("key").value.trim() ? "The server does not accept this API key. Check it in Settings." : "This server asks for an API key. Enter it in Settings."),
  404: (message) => message + ". Choose another model above.",
  413: () => "This message is too large for the server. Send less text.",
  429: (message, wait) => `The server is busy${wait ? `. Try again in ${wait} s` : ". Try again soon"}.`,
  503: (message, wait) => `The server cannot answer now: ${message}${wait ? `. Try again in ${wait} s` : ""}.`,
};

async function problemOf(response) {
  const text = await response.text();
  let message = text.slice(0, 2000) || response.statusText, code = null;
  try {
    const { error } = JSON.parse(text);
    message = error.message ?? message;
    code = error.code;
  } catch { /* not the API's shape */ }
  if (response.status === 401) showSettings(true, "key");
  if (code === "no_chat_template") return new Error("This model is not made for a chat. Choose Completion as the mode in Settings, or another model above.");
  const help = HELP[response.status];
  return new Error(help ? help(message, response.headers.get("Retry-After")) : `${message} (status ${response.status})`);
}

/* fetch, whose own errors name no reason. */
async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

const getJson = async (path) => (await ask(path)).json();

/* The data of each server-sent event. */
async function* serverEvents(body) {
  const source = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [];
  for (;;) {
    let piece;
    try {
      piece = await source.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The connection to the server broke off");
    }
    if (piece.done) return;
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((line) => line.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      if (line || !data.length) continue;
      yield data.join("\n");
      data = [];
    }
  }
}

const isCompletion = () => $("mode").value === "completion";

/* The body of the request for `turn`, the last one of the branch: a new reply, or one that goes on. */
function requestBody(turn) {
  const turns = branch(), system = $("system").value.trim();
  const body = { model: $("model").value || undefined, stream: true, stream_options: { include_usage: true }, ...samplingFields() };
  if (isCompletion()) {
    if (body.max_completion_tokens) body.max_tokens = body.max_completion_tokens;
    delete body.max_completion_tokens;
    delete body.tools;
    return { ...body, prompt: turns.map(({ content }) => content).join("") };
  }
  const isContinued = turn.content !== "";
  body.messages = (isContinued ? turns : turns.slice(0, -1)).map(messageOf);
  if (isContinued) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  if (system) body.messages.unshift({ role: "system", content: system });
  return body;
}

function takeToolCalls(turn, calls) {
  for (const { index, id, function: called } of calls) {
    turn.toolCalls[index] ??= { id: "", name: "", text: "" };
    turn.toolCalls[index].id ||= id ?? "";
    turn.toolCalls[index].name += called?.name ?? "";
    turn.toolCalls[index].text += called?.arguments ?? "";
  }
}

/* Takes a chunk into the turn; returns whether anything new is to be seen. */
function takeChunk(turn, chunk) {
  const choice = chunk.choices?.[0], delta = choice?.delta ?? { content: choice?.text };
  const thought = delta.reasoning_content ?? delta.reasoning ?? "";
  turn.usage = chunk.usage ?? turn.usage;
  turn.finish = choice?.finish_reason ?? turn.finish;
  if (!thought && !delta.content && !delta.tool_calls) return false;
  turn.times.last = performance.now();
  turn.times.first ??= turn.times.last;
  if (delta.content) turn.times.answer ??= turn.times.last;
  turn.reasoning += thought;
  turn.content += delta.content ?? "";
  turn.pieces++;
  takeToolCalls(turn, delta.tool_calls ?? []);
  return true;
}

/* Fills the turn from the stream; calls changed() after each piece. */
async function readReply(turn, signal, changed) {
  const body = JSON.stringify(requestBody(turn));
  Object.assign(turn, { times: { sent: performance.now() }, pieces: 0, finish: null, stopped: false });
  const response = await ask(isCompletion() ? "v1/completions" : "v1/chat/completions",
    { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  for await (const data of serverEvents(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    if (takeChunk(turn, chunk)) changed();
  }
  throw new Error("The connection ended before the reply did");
}
