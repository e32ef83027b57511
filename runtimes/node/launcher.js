// Calls OpenWhisk actions written in JavaScript: asks the Runtime API for each activation and answers it.
//
// Run as `node launcher.js MAIN`. The action is /var/task: `index.js`, or what its package.json says. What it throws, or
// rejects with, is printed and becomes its answer {"error": ...}, as in OpenWhisk's own runtime.
'use strict';

const fs = require('fs');
const path = require('path');

const api = require('./runtime_api.js');

const ROOT = process.env.LAMBDA_TASK_ROOT || '/var/task';

function failure(type, message) {
  return { errorType: type, errorMessage: message, stackTrace: [] };
}

/** The file that the action begins with: that of package.json, else index.js. */
function entry() {
  const description = path.join(ROOT, 'package.json');
  if (fs.existsSync(description)) {
    const main = JSON.parse(fs.readFileSync(description, 'utf8')).main || 'index.js';
    return path.join(ROOT, main);
  }
  const index = path.join(ROOT, 'index.js');
  if (!fs.existsSync(index)) {
    throw new Error('Zipped actions must contain either package.json or index.js at the root.');
  }
  return index;
}

/** The function `name` of the action: exported, or, in an index.js that is a plain script, declared. */
async function load(name) {
  process.chdir(ROOT);
  const file = entry();
  let loaded;
  try {
    loaded = require(file);
  } catch (error) {
    if (error.code !== 'ERR_REQUIRE_ESM') throw error;
    loaded = await import(file);
  }
  const found = name.split('.').reduce((value, part) => (value === undefined || value === null ? undefined : value[part]), loaded);
  if (typeof found === 'function') return found;
  if (typeof loaded === 'function' && name === 'main') return loaded;
  throw new Error(`Action entrypoint '${name}' is not a function.`);
}

/** OpenWhisk takes plain scripts: a function that is declared and not exported counts. */
function script(file, name) {
  if (!/^[A-Za-z_$][\w$]*$/.test(name)) return undefined;
  const Module = require('module');
  const source = fs.readFileSync(file, 'utf8').replace(/^#!.*/, '');
  const own = new Module(file, null);
  own.filename = file;
  own.paths = Module._nodeModulePaths(path.dirname(file));
  try {
    own._compile(`${source}\n;module.exports = (typeof ${name} === 'function') ? ${name} : undefined;`, file);
  } catch (error) {
    return undefined;
  }
  return typeof own.exports === 'function' ? own.exports : undefined;
}

/** What an action that failed answers. */
function complaint(error) {
  if (error === undefined || error === null) return {};
  if (typeof error === 'object' && !(error instanceof Error)) return error;
  return error instanceof Error ? error.message || String(error) : error;
}

function isScript(file) {
  const source = fs.readFileSync(file, 'utf8');
  return !/\b(module\.exports|exports\.|export\s)/.test(source);
}

async function main() {
  let action;
  try {
    const name = process.argv[2] || 'main';
    process.chdir(ROOT);
    const file = entry();
    // A script is run once: with the line that hands out its function.
    action = (isScript(file) && script(file, name)) || (await load(name));
  } catch (error) {
    console.error(error);
    await api.failInit(failure('Action.Init', `The action failed during initialization: ${complaint(error)}`));
    process.exit(1);
  }
  for (;;) {
    const { id, headers, text: input } = await api.nextInput();
    const activation = id.replace(/-/g, '');
    process.env.__OW_ACTIVATION_ID = activation;
    process.env.__OW_TRANSACTION_ID = activation;
    process.env.__OW_DEADLINE = headers['lambda-runtime-deadline-ms'];
    let answer;
    try {
      answer = await action(JSON.parse(input));
      // OpenWhisk takes a function that returns nothing for one that returns an empty object.
      if (answer === undefined) answer = {};
    } catch (error) {
      console.error(error);
      answer = { error: complaint(error) };
    }
    let text;
    try {
      text = JSON.stringify(answer);
    } catch (error) {
      text = undefined;
    }
    if (text === undefined) {
      await api.fail(id, failure('Action.NotJson', 'the answer is not JSON'));
    } else {
      await api.respond(id, text);
    }
  }
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
