// The `openai` npm SDK and node's own http against a proxy: node openai.mjs BASE DEAD. Prints {name: what was seen} as
// JSON; what is right is asserted in test_client_npm.py. DEAD is a base URL where nobody listens.

import http from "node:http";
import OpenAI from "openai";

const [base, dead] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "key", maxRetries: 0, timeout: 20000 });
const messages = [{ role: "user", content: "Tell me of the sea." }];
const chat = { model: "any", messages, max_tokens: 12 };
const tool = {
  type: "function",
  function: {
    name: "find_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city", "days"],
    },
  },
};
const failing = (kind) => ({ headers: { "x-engine-fault": kind } });

// The error of a call, by the SDK's own classes.
async function errorOf(act) {
  try {
    await act();
    return null;
  } catch (error) {
    const kinds = ["BadRequestError", "NotFoundError", "PermissionDeniedError", "RateLimitError", "InternalServerError",
      "APIConnectionError", "APIError"];
    const kind = kinds.find((name) => error instanceof OpenAI[name]) ?? String(error);
    return { kind, status: error.status ?? null, code: error.code ?? null };
  }
}

// One request by node's http, the connection closed after it.
function plainly(method, path, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const sent = { "content-type": "application/json", ...headers };
    const request = http.request(base + path, { method, headers: sent, agent: false }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (piece) => (text += piece));
      answer.on("error", () => {}); // an answer that is cut; `complete` tells it
      answer.on("close", () =>
        resolve({ status: answer.statusCode, headers: answer.headers, complete: answer.complete, text }));
    });
    request.on("error", reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

const scenes = {
  async whole() {
    const { data, response } = await client.chat.completions.create(chat).withResponse();
    const [choice] = data.choices;
    return { text: choice.message.content, usage: data.usage, backend: response.headers.get("x-crossover-backend"),
      requestId: data._request_id };
  },

  async streamed() {
    let text = "", finish = null, usage = null;
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.chat.completions.create({ ...chat, ...options })) {
      text += chunk.choices[0]?.delta.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    return { text, finish, usage };
  },

  async two() {
    const whole = await client.chat.completions.create({ ...chat, n: 2 });
    const texts = ["", ""];
    for await (const chunk of await client.chat.completions.create({ ...chat, n: 2, stream: true })) {
      for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? "";
    }
    return { choices: whole.choices.length, texts };
  },

  async tools() {
    const asked = { ...chat, max_tokens: 200, tools: [tool], tool_choice: "required" };
    const whole = (await client.chat.completions.create(asked)).choices[0];
    const streamed = (await client.chat.completions.stream(asked).finalChatCompletion()).choices[0];
    return [whole, streamed].map((choice) => ({
      finish: choice.finish_reason,
      name: choice.message.tool_calls[0].function.name,
      asked: Object.keys(JSON.parse(choice.message.tool_calls[0].function.arguments)).sort(),
    }));
  },

  async others() {
    const models = await client.models.list();
    const model = await client.models.retrieve(models.data[0].id);
    const completion = await client.completions.create({ model: "any", prompt: "Once", max_tokens: 4 });
    const embeddings = await client.embeddings.create({ model: "any", input: ["a", "b"], encoding_format: "float" });
    const answer = await client.responses.create({ model: "any", input: "Hello", max_output_tokens: 8 });
    return { listed: models.data[0].id, retrieved: model.id, completion: completion.choices[0].text,
      embeddings: embeddings.data.length, answer: answer.output_text };
  },

  async leaving() {
    const stream = await client.chat.completions.create({ ...chat, max_tokens: 4000, stream: true });
    for await (const _ of stream) break; // which aborts the request
    return (await client.chat.completions.create(chat)).choices.length;
  },

  async errors() {
    const root = new OpenAI({ baseURL: base, apiKey: "key", maxRetries: 0 });
    const alone = new OpenAI({ baseURL: dead, apiKey: "key", maxRetries: 0 });
    const drained = async (kind) => {
      for await (const _ of await client.chat.completions.create({ ...chat, max_tokens: 60, stream: true },
        failing(kind)));
    };
    return {
      bad: await errorOf(() => client.chat.completions.create({ ...chat, max_tokens: 10_000_000 })),
      unknown: await errorOf(() => client.files.list()),
      denied: await errorOf(() => root.post("/flush_cache")),
      busy: await errorOf(() => client.chat.completions.create(chat, failing("429"))),
      failed: await errorOf(() => client.chat.completions.create(chat, failing("500"))),
      broken: await errorOf(() => client.chat.completions.create(chat, failing("reset"))),
      full: await errorOf(() => drained("queue-full")),
      died: await errorOf(() => drained("die-mid-line=2")),
      alone: await errorOf(() => alone.models.list()),
    };
  },

  async plain() {
    const [path, streamed] = ["/v1/chat/completions", { ...chat, stream: true }];
    const whole = await plainly("POST", path, streamed);
    const died = await plainly("POST", path, { ...streamed, max_tokens: 60 }, { "x-engine-fault": "die-mid-line=2" });
    const cut = await plainly("POST", path, { ...chat, max_tokens: 60 }, { "x-engine-fault": "reset-stream" });
    const head = await plainly("HEAD", "/v1/models");
    const options = await plainly("OPTIONS", path);
    return { whole, died, cut, head, options };
  },
};

const seen = {};
for (const [name, scene] of Object.entries(scenes)) {
  try {
    seen[name] = await scene();
  } catch (error) {
    seen[name] = { threw: `${error.stack}` };
  }
}
console.log(JSON.stringify(seen));
