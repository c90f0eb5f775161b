// The official `openai` package of Node: chat completions and responses.

import OpenAI from "openai";
import { CITY_SCHEMA, MODEL, V1, run, weather } from "./driving.mjs";

class Chat {
  constructor(key) {
    this.completions = new OpenAI({ baseURL: V1, apiKey: key }).chat.completions;
  }

  async whole(question) {
    const said = await this.completions.create({ model: MODEL, messages: [{ role: "user", content: question }] });
    return said.choices[0].message.content;
  }

  async stream(question) {
    const messages = [{ role: "user", content: question }];
    const pieces = [];
    for await (const event of await this.completions.create({ model: MODEL, messages, stream: true })) {
      if (event.choices[0]?.delta.content) pieces.push(event.choices[0].delta.content);
    }
    return pieces;
  }

  async tools(question) {
    const tool = { name: "weather", parameters: CITY_SCHEMA, parse: JSON.parse, function: weather };
    const messages = [{ role: "user", content: question }];
    const tools = [{ type: "function", function: tool }];
    return await this.completions.runTools({ model: MODEL, messages, tools }).finalContent();
  }

  async talk(questions) {
    const messages = [];
    const answers = [];
    for (const question of questions) {
      messages.push({ role: "user", content: question });
      const said = await this.completions.create({ model: MODEL, messages, max_tokens: 100 });
      messages.push(said.choices[0].message);
      answers.push(said.choices[0].message.content);
    }
    return answers;
  }
}

class Responses {
  constructor(key) {
    this.responses = new OpenAI({ baseURL: V1, apiKey: key }).responses;
  }

  async whole(question) {
    return (await this.responses.create({ model: MODEL, input: question })).output_text;
  }

  async stream(question) {
    const pieces = [];
    for await (const event of this.responses.stream({ model: MODEL, input: question })) {
      if (event.type === "response.output_text.delta") pieces.push(event.delta);
    }
    return pieces;
  }

  async tools(question) {
    const tools = [{ type: "function", name: "weather", parameters: CITY_SCHEMA, strict: true }];
    const input = [{ role: "user", content: question }];
    for (;;) {
      const said = await this.responses.create({ model: MODEL, input, tools });
      const calls = said.output.filter((item) => item.type === "function_call");
      if (!calls.length) return said.output_text;
      input.push(...said.output);
      for (const call of calls) {
        const output = weather(JSON.parse(call.arguments));
        input.push({ type: "function_call_output", call_id: call.call_id, output });
      }
    }
  }

  async talk(questions) {
    const input = [];
    const answers = [];
    for (const question of questions) {
      input.push({ role: "user", content: question });
      const said = await this.responses.create({ model: MODEL, input, max_output_tokens: 100 });
      input.push(...said.output);
      answers.push(said.output_text);
    }
    return answers;
  }
}

await run({ chat: (key) => new Chat(key), responses: (key) => new Responses(key) });
