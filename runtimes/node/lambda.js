// Calls Lambda handlers written in JavaScript: asks the Runtime API for each input and answers it.
//
// Run as `node lambda.js FILE.FUNCTION`. A handler returns a promise or calls back; a callback is answered when nothing
// is left in the event loop, unless the handler sets `context.callbackWaitsForEmptyEventLoop` to false. Log lines and
// errors have the form of Lambda's own runtime.
'use strict';

const util = require('util');

const api = require('./runtime_api.js');
const { fault, load } = require('./handler.js');

const ROOT = process.env.LAMBDA_TASK_ROOT || '/var/task';

/** The invocation that runs now. */
let current;
let initialised = false;

function patchConsole() {
  for (const [method, level] of Object.entries({ debug: 'DEBUG', log: 'INFO', info: 'INFO', warn: 'WARN', error: 'ERROR' })) {
    const plain = console[method].bind(console);
    console[method] = (...words) => plain(`${new Date().toISOString()}\t${current}\t${level}\t${util.format(...words)}`);
  }
}

/** Lambda's document of an error, or of anything else that was thrown. */
function describe(error) {
  try {
    if (util.types.isNativeError(error) || (error && error.name && error.message && error.stack)) {
      return { errorType: String(error.name), errorMessage: String(error.message), trace: String(error.stack).split('\n') };
    }
    return { errorType: typeof error, errorMessage: String(error), trace: [] };
  } catch {
    return { errorType: 'handled', errorMessage: 'the error has no readable name, message or stack', trace: [] };
  }
}

function typeHeader({ errorType }) {
  return { 'lambda-runtime-function-error-type': errorType.replace(/[^\x20-\x7e]/g, '?') };
}

function complain(what, { errorType, errorMessage, trace }) {
  console.error(`${what}\t${JSON.stringify({ errorType, errorMessage, stack: trace })}`);
}

function parsed(header) {
  // Node.js reads the octets of a header as Latin-1.
  return header === undefined ? undefined : JSON.parse(Buffer.from(header, 'latin1').toString('utf8'));
}

/** Calls `handler`. The outcome has a `value` or an `error`. */
function run(handler, { id, headers, text }) {
  return new Promise(resolve => {
    let called;
    const settle = outcome => {
      process.removeListener('beforeExit', onIdle);
      resolve(outcome);
    };
    // Nothing is left that could settle it.
    const onIdle = () => settle(called ?? { value: null });
    process.on('beforeExit', onIdle);
    const callback = (error, value) => {
      if (called) return;
      called = error === undefined || error === null ? { value } : { error };
      if ('error' in called || !context.callbackWaitsForEmptyEventLoop) settle(called);
    };
    const now = done => (...words) => {
      context.callbackWaitsForEmptyEventLoop = false;
      done(...words);
    };
    const environment = process.env;
    const context = {
      callbackWaitsForEmptyEventLoop: true,
      functionName: environment.AWS_LAMBDA_FUNCTION_NAME,
      functionVersion: environment.AWS_LAMBDA_FUNCTION_VERSION,
      memoryLimitInMB: environment.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
      logGroupName: environment.AWS_LAMBDA_LOG_GROUP_NAME,
      logStreamName: environment.AWS_LAMBDA_LOG_STREAM_NAME,
      invokedFunctionArn: headers['lambda-runtime-invoked-function-arn'],
      awsRequestId: id,
      getRemainingTimeInMillis: () => Number(headers['lambda-runtime-deadline-ms']) - Date.now(),
      succeed: now(value => callback(null, value)),
      fail: now(error => callback(error ?? 'handled')),
      done: now(callback),
    };
    try {
      context.clientContext = parsed(headers['lambda-runtime-client-context']);
      context.identity = parsed(headers['lambda-runtime-cognito-identity']);
      let event;
      try {
        event = JSON.parse(text);
      } catch (error) {
        throw fault('UnmarshalError', `the input is not JSON: ${error.message}`);
      }
      const result = handler(event, context, callback);
      if (result && typeof result.then === 'function') {
        result.then(value => settle(called ?? { value }), error => settle(called ?? { error }));
      }
    } catch (error) {
      settle({ error });
    }
  });
}

function asText(value) {
  const text = JSON.stringify(value === undefined ? null : value);
  if (text === undefined) throw new Error('the answer is a function or a symbol');
  return text;
}

async function answer(id, outcome) {
  let { error } = outcome;
  if (!('error' in outcome)) {
    let text;
    try {
      text = asText(outcome.value);
    } catch (reason) {
      error = fault('MarshalError', `Unable to stringify response body: ${describe(reason).errorMessage}`);
    }
    if (text !== undefined) return api.respond(id, text);
  }
  const document = describe(error);
  complain('Invoke Error', document);
  return api.fail(id, document, typeHeader(document));
}

/** Ends the process after an error that no handler caught. */
async function die(error, status) {
  const document = describe(error);
  complain(current ? 'Uncaught Exception' : 'Init Error', document);
  try {
    if (current) await api.fail(current, document, typeHeader(document));
    else if (!initialised) await api.failInit(document, typeHeader(document));
  } finally {
    process.exit(status);
  }
}

async function main() {
  process.chdir(ROOT);
  patchConsole();
  process.on('uncaughtException', error => die(error, 129));
  process.on('unhandledRejection', reason => {
    const isError = util.types.isNativeError(reason);
    die(fault('UnhandledPromiseRejection', isError ? String(reason) : util.format(reason), isError ? reason.stack : undefined), 128);
  });
  let handler;
  try {
    handler = await load(ROOT, process.argv[2] || process.env._HANDLER || '');
  } catch (error) {
    return die(error, 1);
  }
  for (;;) {
    const waiting = api.nextInput();
    initialised = true;
    const input = await waiting;
    current = input.id;
    process.env._X_AMZN_TRACE_ID = input.headers['lambda-runtime-trace-id'] || '';
    await answer(input.id, await run(handler, input));
    current = undefined;
  }
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
