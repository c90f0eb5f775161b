// Vercel's AI SDK: `ai` with `@ai-sdk/openai` (chat completions, responses) and `@ai-sdk/anthropic`.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { CITY_SCHEMA, MODEL, V1, run, weather } from "./driving.mjs";

class Model {
  constructor(model) {
    this.model = model;
  }

  async whole(prompt) {
    return (await generateText({ model: this.model, prompt })).text;
  }

  async stream(prompt) {
    const pieces = [];
    for await (const piece of streamText({ model: this.model, prompt }).textStream) pieces.push(piece);
    return pieces;
  }

  async tools(prompt) {
    const tools = { weather: tool({ inputSchema: jsonSchema(CITY_SCHEMA), execute: weather }) };
    return (await generateText({ model: this.model, prompt, tools, stopWhen: stepCountIs(3) })).text;
  }

  async talk(questions) {
    const messages = [];
    const answers = [];
    for (const question of questions) {
      messages.push({ role: "user", content: question });
      const said = await generateText({ model: this.model, messages, maxOutputTokens: 100 });
      messages.push(...said.response.messages);
      answers.push(said.text);
    }
    return answers;
  }
}

const openai = (apiKey) => createOpenAI({ baseURL: V1, apiKey });
await run({
  chat: (key) => new Model(openai(key).chat(MODEL)),
  responses: (key) => new Model(openai(key).responses(MODEL)),
  messages: (apiKey) => new Model(createAnthropic({ baseURL: V1, apiKey })(MODEL)),
});
