// What every driver of a Node client shares; `tests/clients/python/driving.py` says how drivers are run.

export const BASE_URL = process.env.TIDEMARK_URL;
export const V1 = `${BASE_URL}/v1`;
export const MODEL = "small";
const TURNS = 12;

export const CITY_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

export const weather = ({ city }) => `It is sunny in ${city}.`;

function questions() {
  const words = (turn) => Array.from({ length: 60 }, (_, word) => `w${turn}x${word % 7}`).join(" ");
  return Array.from({ length: TURNS }, (_, turn) => `Point ${turn}: ${words(turn)}`);
}

export async function run(clients) {
  const [dialect, ...scenarios] = process.argv.slice(2);
  for (const scenario of scenarios) {
    const client = clients[dialect](`sk-${scenario}-${process.env.CLIENT_NAME}`);
    const outcome = { scenario };
    if (scenario === "talk") {
      outcome.texts = await client.talk(questions());
    } else if (scenario === "stream") {
      const pieces = await client.stream("Say hello.");
      outcome.texts = [pieces.join("")];
      outcome.pieces = pieces.length;
    } else {
      outcome.texts = [await client[scenario]("Say hello.")];
    }
    console.log(JSON.stringify(outcome));
  }
}
