// The console's script. Pages work without it; it shows times in the visitor's zone, keeps pages up to date, and shows
// notices while a compaction runs. Elements with data-live are replaced by those of the same id in the page as it is now.
"use strict";

const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit" },
  date: { day: "numeric", month: "short" },
  moment: { dateStyle: "medium", timeStyle: "short" },
};
const showTimes = (root) => {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) time.textContent = moment.toLocaleString([], FORMS[time.dataset.form || "moment"]);
  }
};

const say = (text) => {
  const list = document.getElementById("notices");
  const line = document.createElement("p");
  line.textContent = text;
  list.append(line);
  setTimeout(() => line.remove(), 15000);
};

let refreshing = false;
let again = false;
const refresh = async () => {
  if (document.hidden) { again = true; return; }
  if (refreshing) { again = true; return; }
  refreshing = true;
  again = false;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (!response.ok || response.redirected) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(part.id);
      if (!next || next.outerHTML === part.dataset.source || part.contains(document.activeElement)) continue;
      const source = next.outerHTML;
      showTimes(next);
      for (const details of part.querySelectorAll("details[open][id]")) {
        const same = next.querySelector(`#${CSS.escape(details.id)}`);
        if (same) same.open = true;
      }
      part.replaceWith(next);
      next.dataset.source = source;
    }
  } catch {
    // The server is away for a moment; the next event tries again.
  } finally {
    refreshing = false;
  }
};

const number = (value) => Number(value).toLocaleString("en");
const NOTICES = {
  "compaction.started": (event) => `Summarizing ${number(event.messages)} messages`,
  "compaction.finished": (event) =>
    `Summarized ${number(event.messages)} messages: ${number(event.tokens_before)} → ${number(event.tokens_after)} tokens`,
  "compaction.failed": () => "A summary could not be made; the conversation goes on without it",
};

const listen = () => {
  const live = document.querySelector("[data-events]");
  if (!live) return;
  const pause = Number(live.dataset.pause || 1000);
  const source = new EventSource("/console/events");
  let timer = null;
  const changed = () => {
    if (timer === null) timer = setTimeout(() => { timer = null; refresh(); }, pause);
  };
  const only = live.dataset.conversation;
  const receive = (message) => {
    const event = JSON.parse(message.data);
    if (only && event.conversation !== only) return;
    const words = NOTICES[message.type];
    if (words && live.dataset.notices === "true") say(words(event));
    changed();
  };
  for (const kind of [...Object.keys(NOTICES), "conversation.updated", "window.learned"]) source.addEventListener(kind, receive);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && again) refresh(); });
};

showTimes(document);
listen();
