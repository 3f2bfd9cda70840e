// What an operator may do from here, each behind a question that says what will happen.

import { at, make, say } from "./dom.js";
import { post } from "./feed.js";

let wanted = null;

/** Wire the dialog; `done` is called after each act. */
export function beginActions(done) {
  at("ask-yes").addEventListener("click", async () => {
    at("ask-yes").disabled = true;
    try {
      const told = await post(wanted.path, wanted.body);
      say(at("said"), `Done: ${wanted.title}`);
      if ("changes" in told) result(told.changes.length ? "Taken over:" : "Taken over; nothing had changed.", told.changes);
      else at("ask").close();
      done();
    } catch (error) {
      if (error.lines?.length > 1) result("Not done:", error.lines);
      else result(`Not done: ${error.message}`);
    }
  });
}

function result(text, lines = []) {
  at("ask-result").replaceChildren(make("p", { text }), ...(lines.length ? [make("ul", {}, ...lines.map((line) => make("li", { text: line })))] : []));
  at("ask-yes").hidden = true;
  say(at("ask-no"), "Close");
  at("ask-no").focus();
}

/** Ask whether to do it. */
export function ask(act) {
  wanted = act;
  say(at("ask-title"), act.title);
  say(at("ask-what"), act.what);
  say(at("ask-result"), "");
  say(at("ask-no"), "Cancel");
  say(at("ask-yes"), act.verb);
  at("ask-yes").hidden = at("ask-yes").disabled = false;
  at("ask").showModal();
}

export const pin = (role) => ({
  path: "pin",
  body: { role },
  title: `Pin everything to ${role}?`,
  what: `Every new request goes to ${role} until you unpin, whatever the policy says. The other backend is only its failover. What runs goes on.`,
  verb: `Pin to ${role}`,
});

export const unpin = () => ({
  path: "pin",
  body: { role: null },
  title: "Take the pin back?",
  what: "The policy of the configuration decides again, from the next request on.",
  verb: "Unpin",
});

export const drain = (role, draining) => ({
  path: "drain",
  body: { role, draining },
  title: draining ? `Drain ${role}?` : `Take ${role} back into service?`,
  what: draining
    ? `${role} gets nothing new; what runs there goes on to its end. With the other one drained as well, requests are sent all the same.`
    : `${role} gets new requests again, from the next one on.`,
  verb: draining ? `Drain ${role}` : `Take ${role} back`,
});

export const reload = () => ({
  path: "reload",
  body: null,
  title: "Reload the configuration?",
  what: "The file is read again and taken over as a whole, or refused as a whole with every reason. No request is lost.",
  verb: "Reload",
});
