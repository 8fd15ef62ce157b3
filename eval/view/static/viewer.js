// Turns the plain pages of the viewer into a quick tool: links and filters swap parts of the page instead of
// loading a new one, keys move about, and what is live is fetched again. Without it every link still works.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const PARTS = ["filters", "notes", "list", "detail"];
let latest = 0; // of two answers under way only the later one counts

async function fetchPage(url) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function say(text) {
  $("#status").textContent = text;
}

async function swap(url, { push = true, keepList = false } = {}) {
  const ticket = ++latest;
  const target = new URL(url, location.href);
  $("#detail")?.setAttribute("aria-busy", "true");
  const page = await fetchPage(target.pathname + target.search);
  if (ticket !== latest) return;
  if (!$("#list", page)) return location.assign(target); // an error page, or another kind of page
  const scrolled = $("#list").scrollTop;
  const focused = document.activeElement?.name;
  const typed = document.activeElement?.type === "search" ? document.activeElement.value : null;
  const inList = document.activeElement?.closest("#list");
  const methodsOpen = $(".methods")?.open;
  for (const id of PARTS) $("#" + id).replaceWith($("#" + id, page));
  $(".methods").open = Boolean(methodsOpen);
  $("#list").scrollTop = keepList ? scrolled : 0;
  if (inList) $("#list [aria-current]")?.focus();
  if (focused) {
    const field = $(`#filters [name="${CSS.escape(focused)}"]`);
    field?.focus();
    if (typed !== null) {
      field.value = typed; // more may have been typed since the question was sent
      field.setSelectionRange(typed.length, typed.length);
    }
  }
  document.title = page.title;
  if (push) history.pushState(null, "", target);
  arrive(target.hash);
  say($("#detail h2")?.textContent ?? "");
}

function arrive(hash) {
  $("#list [aria-current]")?.scrollIntoView({ block: "nearest" });
  const step = hash && document.getElementById(hash.slice(1));
  if (step) mark(step);
  wait();
}

function mark(step) {
  $$(".stepline.marked").forEach((one) => one.classList.remove("marked"));
  step.classList.add("marked");
  step.scrollIntoView({ block: "center" });
  step.focus({ preventScroll: true });
}

function wait() {
  const note = $("[data-wait]");
  if (note) setTimeout(() => note.isConnected && swap(location.href, { push: false, keepList: true }), 1000 * note.dataset.wait);
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-help]")) return $("#help").showModal();
  const link = event.target.closest("a[data-swap]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button || !$("#list")) return;
  event.preventDefault();
  const narrow = getComputedStyle($("#list")).maxHeight !== "none"; // list above, trajectory below
  swap(link.href, { keepList: !("page" in link.dataset) }).then(() => {
    if (narrow && !("page" in link.dataset) && !new URL(link.href).hash) $("#detail").scrollIntoView();
  });
});

// Other methods on the same trajectory; other filters open the first one that fits.
function submit(form, changed) {
  const data = [...new FormData(form)].filter(([, value]) => value !== "");
  const { u, i } = $("#detail").dataset;
  const page = new URLSearchParams(location.search).get("page");
  if (changed === "methods" && u) data.push(["u", u], ["i", i], ...(page ? [["page", page]] : []));
  swap(location.pathname + "?" + new URLSearchParams(data));
}

let typing;
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-swap]")) return;
  event.preventDefault();
  submit(event.target);
});
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-swap]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => submit(form, event.target.name), event.target.type === "search" ? 250 : 0);
});

document.addEventListener("toggle", async (event) => {
  const more = event.target;
  if (!more.matches?.("details[data-src]") || !more.open || more.dataset.loaded) return;
  more.dataset.loaded = "yes";
  const part = $("[data-part]", await fetchPage(more.dataset.src));
  $(".loaded", more).replaceChildren(part ?? "This could not be loaded; is the viewer still running?");
}, true);

window.addEventListener("popstate", () => $("#list") && swap(location.href, { push: false, keepList: true }));
window.addEventListener("hashchange", () => arrive(location.hash));

function move(items, current, by) {
  return items[Math.min(Math.max(items.indexOf(current) + by, 0), items.length - 1)];
}

function moveEntry(by) {
  const entries = $$("[data-entry]");
  if (entries.length) {
    const here = $("[data-entry][aria-current]");
    const next = move(entries, here, by);
    if (next !== here) return next.click();
    return $(`[data-page="${by}"]`)?.click();
  }
  const runs = $$(".run .go");
  move(runs, document.activeElement, by)?.focus();
}

function moveStep(by) {
  const steps = $$(".stepline");
  const marked = $(".stepline.marked");
  const next = marked || by > 0 ? move(steps, marked, by) : steps[0];
  if (next) mark(next);
}

const KEYS = {
  j: () => moveEntry(1),
  k: () => moveEntry(-1),
  n: () => moveStep(1),
  p: () => moveStep(-1),
  o: () => $(".stepline.marked .more > summary")?.click(),
  m: () => $(".stepline.marked .match")?.click(),
  "[": () => $('[data-page="-1"]')?.click(),
  "]": () => $('[data-page="1"]')?.click(),
  "/": () => $('[type="search"]')?.select(),
  g: () => location.assign("/"),
  "?": () => $("#help").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("input, select")) return event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || $("#help").open) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

async function live() {
  const part = $("[data-live]");
  if (!part) return;
  if (!document.hidden) {
    const ticked = new Set($$(":checked", part).map((box) => box.value));
    const focused = document.activeElement?.getAttribute("href") ?? document.activeElement?.value;
    const fresh = $("#" + part.id, await fetchPage(location.href).catch(() => document));
    if (fresh !== part) {
      for (const box of $$("[type=checkbox]", fresh)) box.checked = ticked.has(box.value);
      part.replaceWith(fresh);
      if (focused) $$("a, input", fresh).find((one) => [one.getAttribute("href"), one.value].includes(focused))?.focus();
      say("");
    } else say("The viewer does not answer; is it still running?");
  }
  setTimeout(live, 1000 * part.dataset.live);
}

if ($("[data-live]")) setTimeout(live, 1000 * $("[data-live]").dataset.live);
if ($("#list")) arrive(location.hash);
