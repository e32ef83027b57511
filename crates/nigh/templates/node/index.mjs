// The function: `handler` is called with each event.
export const handler = async (event, context) => {
  const name = event.name ?? 'world';
  console.log('greeting', name);
  return { greeting: `Hello, ${name}!` };
};
