// The stream of events. EventSource cannot send a token, so this reads a response as it comes.

import { headers } from "./api.js";

const WAIT_MS = [1000, 30_000];

// Call `take(event)` for each event, forever. After an end, resume after the latest event.
export async function follow(take) {
  let latest = "0";
  let wait = WAIT_MS[0];
  for (;;) {
    try {
      for await (const [id, event] of stream(latest)) {
        latest = id;
        wait = WAIT_MS[0];
        take(event);
      }
    } catch {
      wait = Math.min(wait * 2, WAIT_MS[1]);
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function* stream(after) {
  const response = await fetch("api/events", { headers: headers({ "last-event-id": after }), cache: "no-store" });
  if (!response.ok) throw new Error(`Weir answered ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map(field));
      if (fields.id && fields.data && !fields.event) yield [fields.id, JSON.parse(fields.data)];
    }
  }
}

function field(line) {
  const at = line.indexOf(": ");
  return [line.slice(0, at), line.slice(at + 2)];
}
