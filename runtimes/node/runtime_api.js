// The client's half of the Lambda Runtime API (Lambda developer guide, "Runtime API"), over one connection.
'use strict';

const http = require('http');

const [HOST, PORT] = (process.env.AWS_LAMBDA_RUNTIME_API || '').split(':');
const API = '/2018-06-01/runtime';
// While nothing is sent, the agent's connection does not keep the event loop alive.
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

/** One request. Nagle's algorithm is off, as one answer is one packet. */
function call(method, target, body, further) {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': body ? body.length : 0, ...further };
    const request = http.request({ host: HOST, port: PORT, method, path: API + target, agent, headers }, response => {
      const parts = [];
      response.on('data', part => parts.push(part));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
      response.on('error', reject);
    });
    request.setNoDelay(true);
    request.on('error', reject);
    request.end(body);
  });
}

/** Waits for the next input: its id, its headers, and its text. */
async function nextInput() {
  const { status, headers, body } = await call('GET', '/invocation/next');
  if (status !== 200) throw new Error(`the Runtime API answered ${status}`);
  return { id: headers['lambda-runtime-aws-request-id'], headers, text: body.toString('utf8') };
}

/** Answers the invocation `id` with a JSON text. */
function respond(id, text) {
  return call('POST', `/invocation/${id}/response`, Buffer.from(text));
}

/** Answers the invocation `id` with an error document. */
function fail(id, document, headers) {
  return call('POST', `/invocation/${id}/error`, Buffer.from(JSON.stringify(document)), headers);
}

/** Reports that the function cannot be initialised. */
function failInit(document, headers) {
  return call('POST', '/init/error', Buffer.from(JSON.stringify(document)), headers);
}

module.exports = { nextInput, respond, fail, failInit };
