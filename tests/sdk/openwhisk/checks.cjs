// OpenWhisk's own client, with its default settings, against a node: NIGH_APIHOST, NIGH_AUTH. Actions really run.
// NIGH_NODE_KIND names the kind of JavaScript actions, and is empty where the node has none. Ends at the first wrong result.
"use strict";
const assert = require("node:assert/strict");
const zlib = require("node:zlib");
const openwhisk = require("openwhisk");

const apihost = process.env.NIGH_APIHOST;
const nodeKind = process.env.NIGH_NODE_KIND;
const ow = openwhisk({ apihost, api_key: process.env.NIGH_AUTH });
const ok = (operation) => console.log(`ok ${operation}`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const GREET = `
import os

def main(args):
    print("a line of the log")
    name = args.get("name", "stranger")
    return {"greeting": "Hello " + name + args.get("mark", ""), "activation": os.environ["__OW_ACTIVATION_ID"]}
`;
const FAILS = `
def main(args):
    if "answer" in args:
        return args["answer"]
    if "error" in args:
        return {"error": args["error"]}
    raise ValueError("asked to")
`;

/** The call fails with this status. */
async function refused(status, call, words) {
  const error = await call.then(
    () => assert.fail(`expected ${status}, but the call succeeded`),
    (error) => error,
  );
  assert.equal(error.statusCode, status, error);
  if (words) assert.match(error.message, words);
  return error;
}

/** An archive of stored files, with their permissions. */
function zip(files) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [name, text, mode] of files) {
    const [data, bytes] = [Buffer.from(text), Buffer.from(name)];
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt32LE(zlib.crc32(data), 10);
    common.writeUInt32LE(data.length, 14);
    common.writeUInt32LE(data.length, 18);
    common.writeUInt16LE(bytes.length, 22);
    const head = Buffer.concat([Buffer.from("PK\x03\x04"), common, bytes, data]);
    const entry = Buffer.alloc(16);
    entry.writeUInt32LE(((0o100000 | (mode || 0o644)) << 16) >>> 0, 6);
    entry.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x03"), common, entry.subarray(0, 14), bytes]));
    parts.push(head);
    offset += head.length;
  }
  const listed = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(files.length, 4);
  end.writeUInt16LE(files.length, 6);
  end.writeUInt32LE(listed.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...parts, listed, Buffer.from("PK\x05\x06"), end]);
}

/** The record of an activation, when it is there. */
async function recorded(id) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await ow.activations.get(id);
    } catch (error) {
      if (error.statusCode !== 404 || tries > 300) throw error;
      await sleep(100);
    }
  }
}

const annotation = (entity, key) => (entity.annotations.find((one) => one.key === key) || {}).value;
const run = (name, params = {}) => ow.actions.invoke({ name, params, blocking: true, result: true });

const checks = {
  async namespaces() {
    const [namespace] = await ow.namespaces.list();
    assert.equal(typeof namespace, "string");
  },

  async actions() {
    const made = await ow.actions.create({ name: "greet", action: GREET, kind: "python:3", params: { mark: "!" } });
    assert.deepEqual([made.version, made.exec.kind, made.limits.memory], ["0.0.1", "python:3", 256]);
    await refused(409, ow.actions.create({ name: "greet", action: GREET, kind: "python:3" }), /already exists/);
    const answer = await run("greet", { name: "you" });
    assert.equal(answer.greeting, "Hello you!");
    assert.match(answer.activation, /^[0-9a-f]{32}$/);
    const changed = await ow.actions.update({ name: "greet", action: GREET, kind: "python:3", limits: { timeout: 5000 } });
    assert.deepEqual([changed.version, changed.limits.timeout, changed.limits.memory], ["0.0.2", 5000, 256]);
    assert.deepEqual(changed.parameters, [{ key: "mark", value: "!" }], "what is not said stays");
    assert.equal((await ow.actions.get("greet")).exec.code, GREET);
    assert.equal((await ow.actions.get({ name: "greet", code: false })).exec.code, undefined);
    const listed = await ow.actions.list({ limit: 10 });
    assert.ok(listed.some((one) => one.name === "greet" && annotation(one, "exec") === "python:3"));
    assert.ok((await ow.actions.list({ count: true })).actions >= 1);
  },

  async records() {
    const record = await ow.actions.invoke({ name: "greet", params: { name: "all" }, blocking: true });
    assert.deepEqual([record.name, record.version], ["greet", "0.0.2"]);
    assert.deepEqual([record.response.status, record.response.success, record.response.statusCode], ["success", true, 0]);
    assert.equal(record.response.result.greeting, "Hello all!");
    assert.equal(record.response.result.activation, record.activationId);
    assert.match(annotation(record, "path"), /\/greet$/);
    assert.equal(annotation(record, "kind"), "python:3");
    assert.deepEqual(annotation(record, "limits"), { concurrency: 1, logs: 10, memory: 256, timeout: 5000 });
    assert.equal(typeof annotation(record, "waitTime"), "number");
    assert.ok(record.end - record.start === record.duration && record.duration > 0);
    assert.ok(record.logs.some((line) => /^\S+ +stdout: a line of the log$/.test(line)), record.logs);
    const warm = await ow.actions.invoke({ name: "greet", blocking: true });
    assert.equal(annotation(warm, "initTime"), undefined, "only a cold start has it");
    const { activationId } = await ow.actions.invoke({ name: "greet", params: { name: "later" } });
    const later = await recorded(activationId);
    assert.equal(later.response.result.greeting, "Hello later!");
    assert.deepEqual((await ow.activations.logs(activationId)).logs, later.logs);
    assert.equal((await ow.activations.result(activationId)).result.greeting, "Hello later!");
    const listed = await ow.activations.list({ name: "greet", limit: 2 });
    assert.deepEqual(listed.map((one) => one.activationId), [activationId, warm.activationId]);
    assert.equal(listed[0].statusCode, 0);
    const docs = await ow.activations.list({ name: "greet", limit: 1, skip: 1, docs: true });
    assert.equal(docs[0].response.success, true);
    assert.deepEqual(await ow.activations.list({ since: Date.now() + 60_000 }), []);
    const until = await ow.activations.list({ name: "greet", upto: warm.start - 1, limit: 200 });
    assert.ok(until.length >= 1 && until.every((one) => one.start < warm.start));
    assert.ok((await ow.activations.list({ name: "greet", count: true })).activations >= 4);
  },

  async failures() {
    await ow.actions.create({ name: "fails", action: FAILS, kind: "python:3" });
    const raised = await refused(502, ow.actions.invoke({ name: "fails", blocking: true }));
    assert.equal(raised.error.response.status, "application error");
    assert.equal(raised.error.response.result.error, "asked to");
    assert.ok(raised.error.logs.some((line) => line.includes("ValueError: asked to")), "its traceback is in the log");
    const own = await refused(502, ow.actions.invoke({ name: "fails", params: { error: "mine" }, blocking: true }));
    assert.equal(own.error.response.result.error, "mine");
    for (const answer of [1, "text", null]) {
      const none = await refused(502, ow.actions.invoke({ name: "fails", params: { answer }, blocking: true }));
      assert.equal(none.error.response.status, "action developer error", String(answer));
    }
    await ow.actions.update({ name: "fails", action: "def main(args):\n    return {'a': 'x' * args['bytes']}\n", kind: "python:3" });
    for (const bytes of [2 << 20, 7 << 20]) {
      const large = await refused(502, ow.actions.invoke({ name: "fails", params: { bytes }, blocking: true }));
      assert.equal(large.error.response.status, "application error");
      assert.match(large.error.response.result.error, /exceeded/, String(bytes));
    }
    assert.equal((await run("fails", { bytes: 1000 })).a.length, 1000, "and it goes on");
    await ow.actions.update({ name: "fails", action: "def main(args)\n  return {}", kind: "python:3" });
    const broken = await refused(502, ow.actions.invoke({ name: "fails", blocking: true }));
    assert.equal(broken.error.response.status, "action developer error");
    assert.match(broken.error.response.result.error, /failed during initialization: SyntaxError/);
    await ow.actions.update({ name: "fails", action: "import time\ndef main(a):\n  time.sleep(9)", kind: "python:3", limits: { timeout: 300 } });
    const late = await refused(502, ow.actions.invoke({ name: "fails", blocking: true }));
    assert.match(late.error.response.result.error, /exceeded its time limits of 300 milliseconds/);
    assert.equal(annotation(late.error, "timeout"), true);
    await ow.actions.delete("fails");
    await refused(404, ow.actions.get("fails"), /does not exist/);
    await refused(404, ow.actions.delete("fails"));
    await refused(400, ow.actions.create({ name: "fails", action: "x", kind: "cobol:85" }), /not supported/);
    await refused(400, ow.actions.create({ name: "fails", action: "x", kind: "python:3", limits: { memory: 1 } }), /below/);
    const stranger = openwhisk({ apihost, api_key: "nobody:nothing" });
    await refused(401, stranger.actions.list());
    await refused(403, openwhisk({ apihost, api_key: process.env.NIGH_AUTH, namespace: "another" }).actions.list());
  },

  async archives() {
    const files = [["__main__.py", "import other\n\ndef run(args):\n    return other.answer(args)\n"], ["other.py", "def answer(args):\n    return {'from': 'a module', **args}\n"]];
    await ow.actions.create({ name: "packed", action: zip(files), kind: "python:3", exec: { main: "run" } });
    assert.deepEqual(await run("packed", { a: 1 }), { from: "a module", a: 1 });
    const got = await ow.actions.get("packed");
    assert.deepEqual([got.exec.binary, got.exec.main], [true, "run"]);
    assert.ok(Buffer.from(got.exec.code, "base64").equals(zip(files)), "as it was uploaded");
    const program = "#!/bin/sh\necho a line before\necho \"{\\\"got\\\": $1, \\\"name\\\": \\\"$__OW_ACTION_NAME\\\"}\"\n";
    await ow.actions.create({ name: "program", action: zip([["exec", program, 0o755]]), kind: "native" });
    const answer = await ow.actions.invoke({ name: "program", params: { a: [1, "ü"] }, blocking: true });
    assert.deepEqual(answer.response.result.got, { a: [1, "ü"] });
    assert.match(answer.response.result.name, /\/program$/);
    assert.ok(answer.logs.some((line) => line.endsWith("a line before")));
  },

  async javascript() {
    if (!nodeKind) return "absent javascript: the node has no Node.js";
    const code = "function main(args) { return new Promise(done => setTimeout(() => done({ sum: args.a + args.b }), 5)); }";
    await ow.actions.create({ name: "sum", action: code, kind: nodeKind });
    assert.deepEqual(await run("sum", { a: 1, b: 2 }), { sum: 3 });
    assert.deepEqual(await run("sum", { a: 3, b: 2 }), { sum: 5 }, "warm");
    const files = [["package.json", '{"main": "lib.js"}'], ["lib.js", "exports.main = a => { if (a.fail) throw new Error('no'); return { packed: true, ...a }; };"]];
    await ow.actions.update({ name: "sum", action: zip(files), kind: "nodejs:default" });
    assert.deepEqual(await run("sum", { a: 1 }), { packed: true, a: 1 });
    const thrown = await refused(502, ow.actions.invoke({ name: "sum", params: { fail: 1 }, blocking: true }));
    assert.equal(thrown.error.response.result.error, "no");
  },

  async packages() {
    await ow.packages.create({ name: "tools", package: { parameters: [{ key: "mark", value: "?" }, { key: "name", value: "package" }] } });
    await ow.actions.create({ name: "tools/greet", action: GREET, kind: "python:3" });
    assert.equal((await run("tools/greet")).greeting, "Hello package?");
    await ow.actions.update({ name: "tools/greet", params: { name: "action" } });
    assert.equal((await run("tools/greet")).greeting, "Hello action?");
    assert.equal((await run("tools/greet", { name: "call" })).greeting, "Hello call?");
    const [namespace] = await ow.namespaces.list();
    await ow.packages.create({ name: "bound", package: { binding: { namespace, name: "tools" }, parameters: [{ key: "mark", value: "..." }] } });
    const record = await ow.actions.invoke({ name: "bound/greet", blocking: true });
    assert.equal(record.response.result.greeting, "Hello action...");
    assert.equal(annotation(record, "path"), `${namespace}/tools/greet`);
    assert.equal(annotation(record, "binding"), `${namespace}/bound`);
    await refused(400, ow.actions.create({ name: "bound/x", action: GREET, kind: "python:3" }), /not permitted on package binding/);
    assert.deepEqual((await ow.packages.get("bound")).actions.map((one) => one.name), ["greet"]);
    assert.ok((await ow.activations.list({ name: "tools/greet" })).length >= 4);
    await refused(409, ow.packages.delete("tools"), /not empty/);
    await refused(404, ow.actions.create({ name: "nowhere/x", action: GREET, kind: "python:3" }));
    await ow.packages.delete("bound");
  },

  async sequences() {
    const add = "def main(args):\n    if args.get('n') == 99: return {'error': 'enough'}\n    return {'n': args.get('n', 0) + args.get('by', 1), 'seen': args.get('seen', []) + ['x']}\n";
    await ow.actions.create({ name: "add", action: add, kind: "python:3" });
    await ow.actions.create({ name: "twice", sequence: ["/_/add", "/_/add"] });
    await ow.actions.create({ name: "thrice", sequence: ["/_/twice", "/_/add"] });
    const record = await ow.actions.invoke({ name: "thrice", params: { n: 5 }, blocking: true });
    assert.deepEqual(record.response.result, { n: 8, seen: ["x", "x", "x"] });
    assert.equal(record.logs.length, 2, "the ids of its components");
    assert.deepEqual([annotation(record, "kind"), annotation(record, "topmost"), record.cause], ["sequence", true, undefined]);
    const inner = await recorded(record.logs[0]);
    assert.deepEqual([inner.cause, inner.name, annotation(inner, "causedBy")], [record.activationId, "twice", "sequence"]);
    const last = await recorded(record.logs[1]);
    assert.deepEqual([last.cause, last.name, last.response.result.n], [record.activationId, "add", 8]);
    const failed = await refused(502, ow.actions.invoke({ name: "twice", params: { n: 99 }, blocking: true }));
    assert.deepEqual([failed.error.response.result.error, failed.error.logs.length], ["enough", 1]);
    await refused(400, ow.actions.update({ name: "twice", sequence: ["/_/thrice"] }), /may not refer to itself/);
    await refused(400, ow.actions.create({ name: "lacks", sequence: ["/_/nothing"] }), /does not exist/);
    await ow.actions.delete("add");
    const gone = await refused(502, ow.actions.invoke({ name: "twice", blocking: true }));
    assert.match(gone.error.response.result.error, /component does not exist/);
    assert.deepEqual((await ow.actions.get("twice")).exec.components.map((one) => one.split("/").pop()), ["add", "add"]);
  },

  async conductors() {
    const code = "def main(args):\n    step = args.pop('step', 0)\n    if step < 2: return {'action': ['triple', '/_/increment'][step], 'params': args, 'state': {'step': step + 1}}\n    return {'params': args}\n";
    await ow.actions.create({ name: "triple", action: "def main(args):\n    return {'value': args['value'] * 3}\n", kind: "python:3" });
    await ow.actions.create({ name: "increment", action: "def main(args):\n    return {'value': args['value'] + 1}\n", kind: "python:3" });
    await ow.actions.create({ name: "composed", action: code, kind: "python:3", annotations: { conductor: true } });
    const record = await ow.actions.invoke({ name: "composed", params: { value: 3 }, blocking: true });
    assert.deepEqual(record.response.result, { value: 10 });
    assert.deepEqual(["conductor", "kind", "topmost"].map((key) => annotation(record, key)), [true, "sequence", true]);
    const parts = await Promise.all(record.logs.map(recorded));
    assert.deepEqual(parts.map((one) => one.name), ["composed", "triple", "composed", "increment", "composed"]);
    assert.ok(parts.every((one) => one.cause === record.activationId && annotation(one, "causedBy") === "sequence"));
    assert.equal(parts.reduce((sum, one) => sum + one.duration, 0), record.duration);
    await ow.actions.delete("triple");
    const told = await run("composed", { value: 3 });
    assert.match(told.error, /'value'/, "its conductor went on without it, and increment had no value");
  },

  async triggers() {
    await ow.triggers.create({ name: "tick", trigger: { parameters: [{ key: "name", value: "trigger" }] } });
    await ow.triggers.invoke({ name: "tick" });
    await ow.rules.create({ name: "on-tick", action: "greet", trigger: "tick" });
    await refused(400, ow.rules.create({ name: "lacks", action: "nothing", trigger: "tick" }), /does not exist/);
    const fired = await ow.triggers.invoke({ name: "tick", params: { mark: "~" } });
    const record = await recorded(fired.activationId);
    const [result] = record.logs.map((line) => JSON.parse(line));
    assert.deepEqual([result.success, result.statusCode, record.end], [true, 0, undefined]);
    assert.equal((await recorded(result.activationId)).response.result.greeting, "Hello trigger~");
    assert.equal((await ow.rules.get("on-tick")).status, "active");
    await ow.rules.disable({ name: "on-tick" });
    assert.equal((await ow.rules.get("on-tick")).status, "inactive");
    await ow.triggers.invoke({ name: "tick" });
    await ow.rules.enable({ name: "on-tick" });
    const trigger = await ow.triggers.get("tick");
    assert.deepEqual(Object.values(trigger.rules).map((rule) => [rule.status, rule.action.name]), [["active", "greet"]]);
    assert.equal((await ow.triggers.list()).length, 1);
    assert.equal((await ow.rules.list())[0].trigger.name, "tick");
    await ow.triggers.delete("tick");
    assert.equal((await ow.rules.get("on-tick")).status, "inactive");
    await refused(404, ow.rules.enable({ name: "on-tick" }), /existing triggers/);
    await ow.rules.delete("on-tick");
  },

  async web() {
    const [namespace] = await ow.namespaces.list();
    const url = (rest) => `${apihost}/api/v1/web/${namespace}/default/${rest}`;
    const code = "def main(args):\n    return {'statusCode': 201, 'headers': {'x-own': 'yes'}, 'body': {'method': args['__ow_method'], 'path': args['__ow_path'], 'q': args.get('q')}}\n";
    await ow.actions.create({ name: "page", action: code, kind: "python:3", annotations: { "web-export": true } });
    const answer = await fetch(url("page/deeper?q=1"));
    assert.deepEqual([answer.status, answer.headers.get("x-own")], [201, "yes"]);
    assert.deepEqual(await answer.json(), { method: "get", path: "/deeper", q: "1" });
    assert.equal(answer.headers.get("access-control-allow-origin"), "*");
    assert.equal((await (await fetch(url("page.json"))).json()).statusCode, 201);
    assert.equal((await fetch(url("page?__ow_path=x"))).status, 400);
    assert.equal((await fetch(url("greet"))).status, 404, "what is not exported is not there");
    assert.equal((await fetch(url("page"), { method: "OPTIONS" })).status, 200);
    await ow.actions.update({ name: "page", annotations: { "web-export": true, "require-whisk-auth": "secret" } });
    assert.equal((await fetch(url("page"))).status, 401);
    assert.equal((await fetch(url("page"), { headers: { "x-require-whisk-auth": "secret" } })).status, 201);
  },

  async limits() {
    await ow.triggers.create({ name: "often" });
    for (let fired = 0; ; fired += 1) {
      // Two minutes may have part in this.
      assert.ok(fired <= 41, "nothing bounds it");
      const refusal = await ow.triggers.invoke({ name: "often" }).then(() => null, (error) => error);
      if (!refusal) continue;
      assert.equal(refusal.statusCode, 429, refusal);
      assert.match(refusal.message, /Too many requests in the last minute \(count: 21, allowed: 20\)/);
      break;
    }
    await ow.triggers.delete("often");
  },
};

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    const absent = await check();
    if (absent) console.log(absent);
    else ok(name);
  }
  console.log("all checks hold");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
