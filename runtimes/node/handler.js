// Finds a Lambda handler: `file.function`, `folder/file.function`, `file.object.function`.
//
// Files are looked for as Lambda does, at FILE, FILE.js, FILE.mjs, FILE.cjs, then among the packages. Node.js decides
// whether a file is an ES module. What cannot be loaded is an error with one of Lambda's names, `Runtime.…`.
'use strict';

const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');

const STREAMING = Symbol.for('aws.lambda.runtime.handler.streaming');
const EXTENSIONS = ['.js', '.mjs', '.cjs', ...(process.features.typescript ? ['.ts', '.mts', '.cts'] : [])];

/** An error that Lambda has a name for. */
function fault(type, message, trace) {
  const error = new Error(message);
  error.name = `Runtime.${type}`;
  if (trace) error.stack = trace;
  else Error.captureStackTrace(error, fault);
  return error;
}

async function loadModule(root, folder, name) {
  const file = path.resolve(root, folder, name);
  if (fs.existsSync(file)) return require(file);
  const extension = EXTENSIONS.find(extension => fs.existsSync(file + extension));
  if (extension) return import(pathToFileURL(file + extension).href);
  return require(require.resolve(name, { paths: [root, path.resolve(root, folder)] }));
}

function member(object, names) {
  return names.reduce((value, name) => (value === undefined || value === null ? undefined : value[name]), object);
}

/** The handler that is called `name`, of the code in `root`. */
async function load(root, name) {
  if (name.includes('..')) {
    throw fault('MalformedHandlerName', `'${name}' is not a valid handler name: it leads outside the code`);
  }
  const slash = name.lastIndexOf('/') + 1;
  const dot = name.indexOf('.', slash);
  if (dot <= slash || dot === name.length - 1) {
    throw fault('MalformedHandlerName', `Bad handler '${name}': write file.function`);
  }
  // Functions that stream their answer call this while they are loaded.
  globalThis.awslambda = { streamifyResponse: handler => Object.assign(handler, { [STREAMING]: 'response' }) };
  let loaded;
  try {
    loaded = await loadModule(root, name.slice(0, slash), name.slice(slash, dot));
  } catch (error) {
    if (error instanceof SyntaxError) throw fault('UserCodeSyntaxError', String(error), error.stack);
    if (error && ['MODULE_NOT_FOUND', 'ERR_MODULE_NOT_FOUND'].includes(error.code)) {
      throw fault('ImportModuleError', String(error));
    }
    throw error;
  }
  const names = name.slice(dot + 1).split('.');
  // What a CommonJS module exports is the default of its namespace.
  const found = member(loaded, names) ?? member(loaded.default, names);
  if (found === undefined || found === null) throw fault('HandlerNotFound', `${name} is undefined or not exported`);
  if (typeof found !== 'function') throw fault('HandlerNotFound', `${name} is not a function`);
  if (found[STREAMING]) {
    throw fault('InvalidStreamingOperation', `${name} streams its answer, which Nigh does not support: return the answer instead`);
  }
  return found;
}

module.exports = { fault, load };
