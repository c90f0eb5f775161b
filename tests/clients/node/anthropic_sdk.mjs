// The official `@anthropic-ai/sdk` package.

import Anthropic from "@anthropic-ai/sdk";
import { BASE_URL, CITY_SCHEMA, MODEL, run, weather } from "./driving.mjs";

class Messages {
  constructor(key) {
    this.messages = new Anthropic({ baseURL: BASE_URL, apiKey: key }).messages;
  }

  ask(messages, members = {}) {
    return this.messages.create({ model: MODEL, max_tokens: 100, messages, ...members });
  }

  async whole(question) {
    return (await this.ask([{ role: "user", content: question }])).content.at(-1).text;
  }

  async stream(question) {
    const pieces = [];
    const messages = [{ role: "user", content: question }];
    const stream = this.messages.stream({ model: MODEL, max_tokens: 100, messages });
    stream.on("text", (piece) => pieces.push(piece));
    await stream.finalMessage();
    return pieces;
  }

  async tools(question) {
    const tools = [{ name: "weather", input_schema: CITY_SCHEMA }];
    const messages = [{ role: "user", content: question }];
    for (;;) {
      const said = await this.ask(messages, { tools });
      if (said.stop_reason !== "tool_use") return said.content.at(-1).text;
      messages.push({ role: "assistant", content: said.content });
      const calls = said.content.filter((block) => block.type === "tool_use");
      const result = (block) => ({ type: "tool_result", tool_use_id: block.id, content: weather(block.input) });
      messages.push({ role: "user", content: calls.map(result) });
    }
  }

  async talk(questions) {
    const messages = [];
    const answers = [];
    for (const question of questions) {
      messages.push({ role: "user", content: question });
      const said = await this.ask(messages, { system: "Be brief." });
      messages.push({ role: "assistant", content: said.content });
      answers.push(said.content.at(-1).text);
    }
    return answers;
  }
}

await run({ messages: (key) => new Messages(key) });
