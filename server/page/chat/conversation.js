/* A conversation is a tree of turns: an edited message or another reply is one more child of the
 * turn before it. `head` is the last turn of the branch that is shown.
 *
 * turn: {id, parent, role: user | assistant | tool, content}; a reply also has model (of a server with
 * several), reasoning, toolCalls [{id, name, text}], usage, times, finish, stopped; a tool's result toolCallId. */
const newConversation = () => ({ id: newId(), title: "", updated: 0, mode: "", head: null, turns: [] });

let conversation = newConversation();

/* The shown branch, first turn first. */
function branch() {
  const byId = new Map(conversation.turns.map((turn) => [turn.id, turn])), turns = [];
  for (let turn = byId.get(conversation.head); turn; turn = byId.get(turn.parent)) turns.push(turn);
  return turns.reverse();
}

const siblings = (turn) => conversation.turns.filter(({ parent }) => parent === turn.parent);

function addTurn(parent, fields) {
  const id = conversation.turns.reduce((most, turn) => Math.max(most, turn.id), 0) + 1;
  const turn = { id, parent, content: "", ...fields };
  conversation.turns.push(turn);
  conversation.head = id;
  if (!conversation.title) conversation.title = turn.content.trim().split("\n")[0].slice(0, 60);
  return turn;
}

/* The newest end of the turn's branches. */
function endOf(turn) {
  const newest = new Map(conversation.turns.map((one) => [one.parent, one]));
  while (newest.has(turn.id)) turn = newest.get(turn.id);
  return turn;
}

function showSibling(turn, step) {
  const all = siblings(turn);
  conversation.head = endOf(all[(all.indexOf(turn) + step + all.length) % all.length]).id;
}

function removeTurn(turn, from = conversation) {
  from.turns = from.turns.filter((other) => other !== turn);
  from.head = turn.parent;
}

function messageOf({ role, content, toolCalls, toolCallId }) {
  const message = { role, content };
  if (toolCalls?.length) message.tool_calls = toolCalls.map(({ id, name, text }) => ({ id, type: "function", function: { name, arguments: text } }));
  if (toolCallId) message.tool_call_id = toolCallId;
  return message;
}

const lastUsed = () => branch().findLast((turn) => turn.usage)?.usage.total_tokens ?? 0;
