// Everything that comes from the proxy: one look at the start, then the stream. A broken stream begins anew with a look.

const AGAIN_MS = 3000;
// After so long without a turn of the stream the page says that it shows the past.
const SILENT_MS = 5000;
// Without the user and password that an address may have: browsers ask for nothing by such a one, and send them anyway.
const url = (path) => new URL(path, location.origin + location.pathname);

async function answered(path, how) {
  const answer = await fetch(url(path), how).catch(() => {
    throw new Error("the proxy does not answer");
  });
  if (answer.status === 401) throw new Error("the token was not accepted: load this page anew to enter it");
  return answer;
}

/** What a path answers, as JSON or text. Throws with a sentence for people. */
export async function get(path, form = "json") {
  const answer = await answered(path, { cache: "no-store" });
  const told = await answer[form]();
  if (!answer.ok) throw new Error(told.error ?? `${path} answered ${answer.status}`);
  return told;
}

/** Ask for something to be done; what came of it. Throws with a sentence for people, and `lines` where there are several. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await answered(path, { method: "POST", headers, body: JSON.stringify(body ?? null) });
  const told = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(told.error ?? (told.problems ?? []).join("; ")), { lines: told.problems ?? [] });
  return told;
}

/**
 * Follow the proxy until the page is left. `look` is awaited at the start and after each break, then `show` called; `hear` gets each event
 * of the stream by name; `link` is told how the connection stands: live, waiting, or broken with a sentence.
 */
export function follow({ look, show, hear, link }) {
  let stream = null;
  let heardAt = 0;
  let timer = 0;

  async function begin() {
    clearTimeout(timer);
    try {
      await look();
    } catch (error) {
      again(error.message);
      return;
    }
    show();
    stream = new EventSource(url("stream"));
    for (const name of ["sample", "journal", "decisions", "state"]) {
      stream.addEventListener(name, (event) => {
        heardAt = performance.now();
        link("live", "live");
        hear[name](JSON.parse(event.data));
      });
    }
    stream.addEventListener("error", () => again("the connection broke"));
  }

  // The stream is begun anew by us, not by the browser: what was missed meanwhile is in the history.
  function again(why) {
    stream?.close();
    stream = null;
    link("broken", `${why}; trying again`);
    clearTimeout(timer);
    timer = setTimeout(begin, AGAIN_MS);
  }

  setInterval(() => {
    if (stream && performance.now() - heardAt > SILENT_MS) link("waiting", "nothing new comes");
  }, 1000);
  return begin();
}
