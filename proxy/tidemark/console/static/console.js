// The console's script. Pages work without it; it shows times in the visitor's zone, keeps pages up to date, and shows
// notices while a compaction runs. It asks for newer elements of those with data-live, and only the changed ones come.
"use strict";

const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit" },
  date: { day: "numeric", month: "short" },
  moment: { dateStyle: "medium", timeStyle: "short" },
};
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];
const ago = (moment) => {
  const seconds = Math.max(0, (Date.now() - moment) / 1000);
  const [unit, length] = UNITS.find(([, most]) => seconds >= most) || [];
  return unit ? `${Math.floor(seconds / length)} ${unit} ago` : "just now";
};
const showTimes = (root) => {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    const form = time.dataset.form || "moment";
    if (form === "ago") { time.title = moment.toLocaleString([], FORMS.moment); time.textContent = ago(moment); continue; }
    time.textContent = moment.toLocaleString([], FORMS[form]);
  }
};

const SIGN_IN = "/console/login";
const RETRY_MS = 5000;
const SHOWN_MS = 15000;
const LONGEST_MS = 600000;
const FOR_EVER_MS = 2 ** 31 - 1;
const say = (text, shownMs = SHOWN_MS) => {
  const line = document.createElement("p");
  line.textContent = text;
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), shownMs);
  return line;
};

// Makes an element like its newer self and keeps its nodes, and with them focus, scroll positions, what is folded open and
// what was typed. Children with an id stay the same ones.
const isAlike = (here, next) => here.nodeType === next.nodeType && here.nodeName === next.nodeName && !here.id;
const renewAttributes = (here, next) => {
  const isOwn = (name) => name === "open" || (here.matches(".reader") && ["style", "aria-valuenow", "aria-valuetext"].includes(name));
  for (const { name, value } of next.attributes) {
    if (!isOwn(name) && here.getAttribute(name) !== value) here.setAttribute(name, value);
  }
  for (const { name } of [...here.attributes]) if (!isOwn(name) && !next.hasAttribute(name)) here.removeAttribute(name);
};
const renew = (here, next) => {
  if (here.isEqualNode(next)) return;
  if (here.nodeType !== Node.ELEMENT_NODE) { here.nodeValue = next.nodeValue; return; }
  renewAttributes(here, next);
  const chosen = here.localName === "select" ? here.value : null;
  const named = new Map([...here.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = here.firstChild;
  for (const child of [...next.childNodes]) {
    const same = child.id ? named.get(child.id) : place && isAlike(place, child) ? place : null;
    if (!same) { here.insertBefore(child, place); continue; }
    if (same === place) place = place.nextSibling; else here.insertBefore(same, place);
    renew(same, child);
  }
  while (place) { const rest = place; place = place.nextSibling; rest.remove(); }
  if (chosen !== null && [...here.options].some((option) => option.value === chosen)) here.value = chosen;
};

// The newest messages come into view if their reader saw the end and types nothing; else the link to them counts them.
const NEAR_END = 48;
const NEWEST = "newest";
const seesEnd = (list) => !list.lastElementChild || list.lastElementChild.getBoundingClientRect().bottom <= innerHeight + NEAR_END;
const countNewer = (count) => {
  const link = document.querySelector("[data-newest]");
  if (!link) return;
  link.dataset.newest = count || "";
  link.querySelector(".count").textContent = count ? ` (${count} new)` : "";
};
const append = (list, messages) => {
  const [first] = messages;
  const follows = seesEnd(list) && !document.activeElement?.matches("input, select, textarea");
  document.getElementById(NEWEST)?.remove();
  list.append(...messages);
  if (follows) first.scrollIntoView();
  else countNewer(Number(document.querySelector("[data-newest]")?.dataset.newest) + messages.length);
};
const noticeEnd = () => {
  const list = document.getElementById("messages");
  if (document.querySelector("[data-newest]:not([data-newest=''])") && seesEnd(list)) countNewer(0);
};

// Adds the messages that are new to the list, and marks those that the model no longer sees.
const goOn = (list, more) => {
  const covered = Number(more.dataset.covered);
  for (const item of list.querySelectorAll(":scope > [data-state]")) {
    const state = Number(item.id.slice("message-".length)) <= covered ? "summarized" : "in_context";
    if (item.dataset.state === state || item.dataset.state === "unreadable") continue;
    item.dataset.state = state;
    item.querySelector(".state").textContent = state === "summarized" ? more.dataset.summarized : more.dataset.inContext;
  }
  if (more.children.length) append(list, [...more.children]);
  more.removeAttribute("data-more");
  renewAttributes(list, more);
};

// Puts the rows of a table into their new order, adds new ones and removes those that are no more. Rows that stay in their
// order are not touched, so that a selection in them stays.
const order = (rows, next) => {
  const shown = new Map([...rows.children].map((row) => [row.id, row]));
  const ordered = [...next.children].map((row) => ("same" in row.dataset ? shown.get(row.id) : row)).filter(Boolean);
  for (const row of shown.values()) if (!ordered.includes(row)) row.remove();
  let place = rows.firstElementChild;
  for (const row of ordered) {
    if (row === place) place = place.nextElementSibling; else rows.insertBefore(row, place);
  }
  next.removeAttribute("data-order");
  renewAttributes(rows, next);
};

const renewPart = (next) => {
  const here = document.getElementById(next.id);
  if ("gone" in next.dataset) { if (here && here.dataset.after) here.remove(); return; }
  const anchor = next.dataset.after && document.getElementById(next.dataset.after);
  if (anchor && (!here || here.dataset.after !== next.dataset.after)) anchor.after(here || next);
  if (!here) return;
  if ("more" in next.dataset) goOn(here, next);
  else if ("order" in next.dataset) order(here, next);
  else renew(here, next);
};

const renewParts = (text) => {
  const answer = new DOMParser().parseFromString(`<body>${text}`, "text/html");
  const focused = document.activeElement;
  showTimes(answer);
  for (const part of answer.querySelectorAll("[data-live]")) renewPart(part);
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
};

// Says the figures of the point of a plot that somebody points at or goes to by keyboard.
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
const read = (reader, place) => {
  const points = JSON.parse(reader.dataset.points);
  const last = Math.max(points.length - 1, 1);
  const at = Math.min(Math.max(place, 0), points.length - 1);
  const [start, words] = points[at];
  const said = `${new Date(start).toLocaleString([], FORMS.moment)}: ${words}`;
  reader.style.setProperty("--at", `${(100 * at) / last}%`);
  reader.style.setProperty("--seen", "1");
  reader.ariaValueNow = at + 1;
  reader.ariaValueText = said;
  const readout = reader.closest(".plot-card").querySelector(".readout");
  readout.textContent = said;
  readout.hidden = false;
};
const readPlots = () => {
  document.addEventListener("pointermove", ({ target, clientX }) => {
    if (!target.matches?.(".reader")) return;
    const { left, width } = target.getBoundingClientRect();
    read(target, Math.round(((clientX - left) / width) * (Number(target.ariaValueMax) - 1)));
  });
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (!target.matches?.(".reader") || !(key in STEPS)) return;
    event.preventDefault();
    read(target, Number(target.ariaValueNow) - 1 + STEPS[key]);
  });
};

const PARTS_HEADER = "x-console-parts";
const knownParts = () =>
  [...document.querySelectorAll("[data-live]:not([data-reply])")]
    .filter((part) => !part.closest("details:not([open])") || part.closest("summary"))
    .map((part) => `${part.id}=${part.dataset.live}`)
    .join(",");

// Says that the session has ended, until it goes on. The page stays, with what was typed.
let ending = null;
const askToSignIn = () => {
  if (ending) return;
  const link = document.createElement("a");
  link.href = SIGN_IN;
  link.target = "_blank";
  link.textContent = "Sign in again";
  ending = say("Your session has ended, so this page no longer changes. ", FOR_EVER_MS);
  ending.append(link);
};

let isRenewing = false;
let isAgainDue = false;
const refresh = async () => {
  const { events: address } = document.querySelector("[data-events]").dataset;
  if (!address) return;
  if (document.hidden || isRenewing) { isAgainDue = true; return; }
  isRenewing = true;
  isAgainDue = false;
  try {
    const response = await fetch(address, { headers: { [PARTS_HEADER]: knownParts() } });
    if (new URL(response.url).pathname === SIGN_IN) askToSignIn();
    else if (response.ok) { ending?.remove(); ending = null; }
    if (response.ok && response.headers.has(PARTS_HEADER)) renewParts(await response.text());
  } catch {
    // The server is away for a moment; the next event tries again.
  } finally {
    isRenewing = false;
    if (isAgainDue && !document.hidden) refresh();
  }
};

const number = (value) => Number(value).toLocaleString("en");
const NOTICES = {
  "compaction.started": (event) => `Summarizing ${number(event.messages)} messages`,
  "compaction.finished": (event) =>
    `Summarized ${number(event.messages)} messages: ${number(event.tokens_before)} → ${number(event.tokens_after)} tokens`,
  "compaction.failed": () => "A summary could not be made; the conversation goes on without it",
};

// Asks again and again, while the page is seen and its switch "Live" is on: such a page changes with every request.
const poll = (pause) => {
  const live = document.getElementById("live");
  if (live) live.closest("[hidden]")?.removeAttribute("hidden");
  const isOn = () => !document.hidden && (!live || live.checked);
  setInterval(() => { if (isOn()) refresh(); }, pause);
  for (const [target, kind] of [[document, "visibilitychange"], [live, "change"]]) target?.addEventListener(kind, () => { if (isOn()) refresh(); });
};

const listen = () => {
  const live = document.querySelector("[data-events]");
  if (!live) return;
  if (live.dataset.every) { poll(Number(live.dataset.every)); return; }
  const pause = Number(live.dataset.pause || 1000);
  const running = new Map();
  let timer = null;
  const changed = () => {
    if (timer === null) timer = setTimeout(() => { timer = null; refresh(); }, pause);
  };
  const only = live.dataset.conversation;
  const receive = (message) => {
    const event = JSON.parse(message.data);
    if (only && event.conversation !== only) return;
    const words = NOTICES[message.type];
    if (words) {
      const isStart = message.type === "compaction.started";
      running.get(event.conversation)?.remove();
      running.delete(event.conversation);
      if (live.dataset.notices === "true") {
        const line = say(words(event), isStart ? LONGEST_MS : SHOWN_MS);
        if (isStart) running.set(event.conversation, line);
      }
    }
    changed();
  };
  // The browser itself comes back to a server that is away. After an answer that is no stream of events it would not.
  let isInterrupted = false;
  const open = () => {
    const source = new EventSource("/console/events");
    for (const kind of [...Object.keys(NOTICES), "conversation.updated", "window.learned", "window.assumed"]) source.addEventListener(kind, receive);
    source.addEventListener("open", () => { if (isInterrupted) changed(); isInterrupted = false; });
    source.addEventListener("error", () => {
      isInterrupted = true;
      if (source.readyState !== EventSource.CLOSED) return;
      changed();
      setTimeout(open, RETRY_MS);
    });
  };
  open();
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isAgainDue) refresh(); });
  document.addEventListener("toggle", ({ target }) => { if (target.open && target.querySelector("[data-live]")) refresh(); }, true);
};

// A form that takes long is sent from here, so that the page goes on meanwhile. What is no answer of the page itself, such
// as the sign-in after a session has ended, is left to the browser.
const send = async (event) => {
  const form = event.target;
  if (!form.dataset.parts) return;
  event.preventDefault();
  if (form.ariaBusy === "true") return;
  form.ariaBusy = "true";
  try {
    const headers = { [PARTS_HEADER]: form.dataset.parts.split(" ").map((part) => `${part}=`).join(",") };
    const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers });
    if (!response.headers.has(PARTS_HEADER)) { form.submit(); return; }
    if (response.ok) form.reset();
    renewParts(await response.text());
    document.querySelector("main [autofocus]")?.focus();
    refresh();
  } catch {
    say("The server did not answer, so this is not known to be done. Look again in a moment.");
  } finally {
    form.ariaBusy = "false";
  }
};

// "/" leads to the search, a field with data-filter hides what does not have its text, and data-copy is what a button copies.
const searchByKey = (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) return;
  const field = document.querySelector("main input[type=search]");
  if (!field) return;
  event.preventDefault();
  field.focus();
};
const filterRows = ({ target }) => {
  if (!target.dataset.filter) return;
  const text = target.value.trim().toLowerCase();
  for (const row of document.querySelectorAll(target.dataset.filter)) {
    row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(text);
    const section = row.closest("section");
    section.hidden = !section.querySelector("tbody tr:not([hidden])");
  }
};
const offerCopies = () => {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(button.dataset.copy); say("Copied."); } catch { say("The browser did not allow it."); }
    });
  }
};

// An address without a place opens a conversation at its newest message, as links do. Who comes back is where they were.
const [visit] = performance.getEntriesByType("navigation");
if (visit?.type === "navigate" && !location.hash && document.querySelector(`#${NEWEST}[data-opening]`)) location.replace(`#${NEWEST}`);

showTimes(document);
setInterval(() => showTimes(document), 30000);
listen();
readPlots();
offerCopies();
document.addEventListener("keydown", searchByKey);
document.addEventListener("input", filterRows);
document.addEventListener("submit", send);
document.addEventListener("scroll", noticeEnd, { passive: true });
