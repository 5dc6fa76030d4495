// The official TypeScript client against a running server:
//   MCP_URL=http://127.0.0.1:8080/mcp MCP_TOKEN=... node client.mjs
// It creates notes, follows a receipt, finds the notes by search, and deletes
// them again where the server can. Exits with 1 at the first thing that is not so.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const { MCP_URL, MCP_TOKEN } = process.env;
assert(MCP_URL && MCP_TOKEN, 'set MCP_URL and MCP_TOKEN');

const client = new Client({ name: 'standmeet-check', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(MCP_URL), {
  requestInit: { headers: { Authorization: `Bearer ${MCP_TOKEN}` } },
}));
assert.match(client.getInstructions() ?? '', /indexed: false/);

const tools = new Map();
let cursor;
do {
  const page = await client.listTools({ cursor });
  for (const t of page.tools) {
    assert(!tools.has(t.name), `${t.name} is listed twice`);
    assert.match(t.name, /^[A-Za-z0-9_-]{1,64}$/);
    tools.set(t.name, t);
  }
  cursor = page.nextCursor;
} while (cursor);

// The client checks structuredContent against the output schema by itself.
async function call(name, args) {
  const res = await client.callTool({ name, arguments: args });
  assert(!res.isError, `${name}: ${res.content?.map(c => c.text).join('\n')}`);
  return res.structuredContent;
}

const mark = `marker${randomUUID().replaceAll('-', '')}`;
const takesKey = tool => 'idempotency_key' in tools.get(tool).inputSchema.properties;

async function create(title, more) {
  const args = { genre: 'wiki', title, body: `A note about ${mark}.`, ...more };
  if (takesKey('corpus_create')) args.idempotency_key = randomUUID();
  const made = await call('corpus_create', args);
  assert(made.note.id);
  if (args.idempotency_key) {
    const again = await call('corpus_create', args);
    assert.equal(again.note.id, made.note.id, 'a repeated key made another note');
  }
  return made;
}

async function follow(receipt) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const { task } = await call('tasks_get', { id: receipt, wait_seconds: 20 });
    if (task.state === 'completed') return;
    assert(['pending', 'running', 'retryable'].includes(task.state), `task ${receipt} is ${task.state}`);
    assert(Date.now() < deadline, `task ${receipt} is still ${task.state} after a minute`);
  }
}

async function found(id) {
  const { items } = await call('corpus_search', { q: mark });
  assert(items.some(i => i.note.id === id), `search does not find ${id}`);
}

const waited = await create(`${mark} one`);
if (!waited.indexed) await follow(waited.index_job_id);
await found(waited.note.id);

const receipt = await create(`${mark} two`, { wait_seconds: 0 });
assert.equal(receipt.wait.ended, 'not_asked');
// A quick index may have it before the answer is written.
if (!receipt.indexed) await follow(receipt.index_job_id);
await found(receipt.note.id);

const refused = await client.callTool({ name: 'corpus_create', arguments: { genre: 'wiki', title: '', body: '' } });
assert.equal(refused.isError, true);
assert.match(refused.content[0].text, /title/);
assert(JSON.parse(refused.content[1].text).code);

await assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), e => e.code === -32602);

let removed = 0;
if (tools.has('corpus_delete')) {
  for (const { note } of [waited, receipt]) {
    await call('corpus_delete', { id: note.id });
    removed++;
  }
}
await client.close();
console.log(JSON.stringify({ tools: tools.size, first: { indexed: waited.indexed, wait: waited.wait }, receipt: receipt.index_job_id, removed }));
