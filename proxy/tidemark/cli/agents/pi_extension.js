// Leads pi's own providers through Tidemark; all of their models and logins stay.
export default function (pi) {
  pi.registerProvider("openai", { baseUrl: `${process.env.PI_TIDEMARK_URL}/v1` });
  pi.registerProvider("anthropic", { baseUrl: process.env.PI_TIDEMARK_URL });
}
