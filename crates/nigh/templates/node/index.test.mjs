import assert from 'node:assert/strict';
import { test } from 'node:test';

import { handler } from './index.mjs';

test('it greets who is named', async () => {
  assert.deepEqual(await handler({ name: 'Ada' }), { greeting: 'Hello, Ada!' });
});

test('without a name it greets the world', async () => {
  assert.deepEqual(await handler({}), { greeting: 'Hello, world!' });
});
