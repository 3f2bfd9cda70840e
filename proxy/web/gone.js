// A proxy from which nothing comes: one line across the page, what it said last goes dim, and ages go on.

import { at, say } from "./dom.js";
import { latest, length, silence, store } from "./store.js";
import { clock, span } from "./words.js";

/** Show whether the proxy is gone; called again while it is, since the line tells for how long. */
export function tellGone(gone) {
  store.gone = gone && length() > 0;
  document.body.classList.toggle("gone", store.gone);
  const line = at("gone");
  if (store.gone) say(line, `✕ No word from the proxy for ${span(silence())}; this page shows what it said at ${clock(latest())}.`);
  line.hidden = !store.gone;
}
