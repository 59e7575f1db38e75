// Refreshes the page in place, tells when the server is gone, switches light and dark.
// Without it everything else works.
"use strict";
(() => {
const LIMIT_MS = 10000;
const RETRY_MS = 3000;
const html = document.documentElement;
const period = Number(html.dataset.refresh) * 1000;
const $ = (id) => document.getElementById(id);
const write = (id, words) => { if ($(id)) $(id).textContent = words; };

const memory = {
  get(key) { try { return localStorage.getItem(`gpumon-${key}`); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(`gpumon-${key}`, value); } catch { /* private */ } },
};

// At once, so that a dark page is never light first. The style sheet has the dark colours once,
// under a condition that the choice replaces.
const MEDIA = { auto: "(prefers-color-scheme: dark)", light: "not all", dark: "all" };
const rules = [...(document.styleSheets[0]?.cssRules ?? [])];
const dark = rules.find((rule) => rule.media?.mediaText.includes("dark"));
const theme = () => (memory.get("theme") in MEDIA ? memory.get("theme") : "auto");
const showTheme = () => {
  html.dataset.theme = theme();
  if (dark) dark.media.mediaText = MEDIA[theme()];
  write("theme", `Colours: ${theme() === "auto" ? "as the system" : theme()}`);
};
showTheme();
html.classList.add("js");

// The new page goes into the old one piece by piece: what is equal stays, so focus, scroll position
// and opened details last. Selected text waits until it no longer is; so does a cell with a link
// in use: no link becomes another under a finger. What tells the state of a GPU never waits.
const isElement = (node) => node.nodeType === Node.ELEMENT_NODE;
const keyOf = (node) => node.dataset?.host ?? node.dataset?.key ?? (node.id || undefined);
const selected = (node) => !getSelection().isCollapsed && getSelection().containsNode(node, true);
const inUse = (node) => selected(node) || node.contains(document.activeElement);
const waits = (node) => /^(TD|P)$/.test(node.nodeName) && node.querySelector("a")
  && !node.querySelector("table") && inUse(node);

function take(old, fresh) {
  if (old.isEqualNode(fresh) || waits(old)) return;
  if (old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (!isElement(old)) {
    if (!selected(old) || old.parentElement.matches(".c")) old.data = fresh.data;
    return;
  }
  for (const name of [...old.getAttributeNames(), ...fresh.getAttributeNames()]) {
    const value = fresh.getAttribute(name);
    if (name === "open" || value === old.getAttribute(name)) continue;
    if (value === null) old.removeAttribute(name); else old.setAttribute(name, value);
  }
  takeChildren(old, [...old.childNodes], [...fresh.childNodes]);
}

function takeChildren(parent, olds, news) {
  const known = new Map();
  for (const child of olds) if (keyOf(child) !== undefined) known.set(keyOf(child), child);
  if (!known.size) {
    news.forEach((child, at) => (at < olds.length ? take(olds[at], child) : parent.append(child)));
    for (const child of olds.slice(news.length)) if (!inUse(child)) child.remove();
    return;
  }
  const plain = (child) => isElement(child) && keyOf(child) === undefined;
  const others = olds.filter(plain);
  let last = null;
  for (const child of news.filter(isElement)) {
    const old = plain(child) ? others.shift() : known.get(keyOf(child));
    known.delete(keyOf(child));
    if (old) take(old, child);
    // Rows keep their places: their order changes by a click or a reload alone. Sections have one.
    else if (child.id) last ? last.after(child) : parent.prepend(child);
    else parent.append(child);
    last = old?.isConnected ? old : child;
  }
  for (const old of [...known.values(), ...others]) if (!inUse(old)) old.remove();
}

let [paused, asking] = [false, false];
let [timer, failures, etag, good] = [0, 0, null, performance.now()];

function tick() {
  const s = Math.max(0, Math.floor((performance.now() - good) / 1000));
  const ago = s < 60 ? `${s}s` : s < 7200 ? `${Math.floor(s / 60)}m` : `${Math.floor(s / 3600)}h`;
  $("ago").textContent = `, ${ago} ago${paused ? " (paused)" : ""}`;
}

function lost(why) {
  if (!$("gone").hidden) return;
  $("gone").textContent = `No answer from the server (${why}). `
    + `The last one was ${$("asof").textContent}. What is free now is not known.`;
  $("gone").hidden = false;
  document.title = document.title.replace(/^(\d+ )?/, "? ");
  const each = (where, change) => document.querySelectorAll(where).forEach(change);
  const say = (where, words) => each(where, (one) => { one.textContent = words; });
  each("main .c:not(#legend *), .map i, :is(.gpus, .flow) .w, .said.w", (one) => {
    one.className = `${one.className.match(/^(said w |[cw] )?/)[0]}unknown`;
  });
  say("main .c:not(#legend *), #counts b, #free tbody .n, #hosts td.f", "?");
  say(":is(.gpus, .flow) .w, .cells .sr, .said", "unknown");
  say("#totals", "Nothing is known of now.");
  each(".map a", (one) => { one.title = "unknown"; });
  each("[data-gpu][data-state]", (one) => { one.dataset.state = "unknown"; });
  each("[data-host][data-state=fresh]", (one) => { one.dataset.state = "stale"; });
  etag = null;
}

async function refresh() {
  if (asking) return;
  asking = true;
  const started = performance.now();
  const stop = new AbortController();
  const limit = setTimeout(() => stop.abort(), LIMIT_MS);
  try {
    const headers = { Accept: "text/html", ...(etag && { "If-None-Match": etag }) };
    const answer = await fetch(location.href, { headers, signal: stop.signal, cache: "no-store" });
    if (answer.status !== 304) {
      if (!answer.ok) throw new Error(`it says ${answer.status}`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!page.documentElement.dataset.gpumon) throw new Error("something else answers");
      const script = (where) => where.querySelector("script")?.getAttribute("src");
      if (script(page) !== script(document)) { location.reload(); return; }
      if (!paused || failures) show(page);
      etag = answer.headers.get("ETag");
    }
    [failures, good] = [0, started];
    if (!$("gone").hidden) {  // what stays so is not written: it would be announced again
      write("say", "The server answers again.");
      $("gone").hidden = true;
    }
    tick();
  } catch (error) {
    failures += 1;
    const late = error.name === "AbortError" && "it takes too long";
    if (failures > 1) lost(late || (error.name === "Error" ? error.message : "not reached"));
  } finally {
    clearTimeout(limit);
    asking = false;
    plan(failures === 1 ? Math.min(RETRY_MS, period) : period);
  }
}

function show(page) {
  document.title = page.title;
  for (const part of ["#counts", "#asof", "main", "#totals"]) {
    const [old, fresh] = [document.querySelector(part), page.querySelector(part)];
    if (old && fresh) take(old, fresh);
  }
}

function plan(delay) {
  clearTimeout(timer);
  if (!paused && !document.hidden) timer = setTimeout(refresh, delay);
}

function pause() {
  paused = !paused;
  $("pause").textContent = paused ? "Resume" : "Pause";
  $("say").textContent = paused ? "Refreshing is paused." : "The page refreshes again.";
  if (paused) clearTimeout(timer); else refresh();
  tick();
}

// Shows a button that does nothing without the script.
const button = (id, press) => {
  if ($(id)) { $(id).hidden = false; $(id).addEventListener("click", press); }
};

const keysOn = () => memory.get("keys") === "on";
const showKeys = () => write("shortcuts", keysOn() ? "Switch off" : "Switch on");
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input,textarea,select");
  if (!keysOn() || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && $("q")) { event.preventDefault(); $("q").focus(); }
  if (event.key === "f") document.querySelector('#counts a[data-state="free"]')?.click();
  if (event.key === "?") document.querySelector('footer a[href$="help"]')?.click();
});

document.addEventListener("DOMContentLoaded", () => {
  showTheme();
  showKeys();
  button("shortcuts", () => { memory.set("keys", keysOn() ? "off" : "on"); showKeys(); });
  button("theme", () => {
    const names = Object.keys(MEDIA);
    memory.set("theme", names[(names.indexOf(theme()) + 1) % names.length]);
    showTheme();
  });
  // A page that reloads itself (?refresh=), or that shows no live data, is left alone.
  if (!$("pause") || new URLSearchParams(location.search).has("refresh")) return;
  button("pause", pause);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer); else if (!paused) refresh();
  });
  good = performance.getEntriesByType("navigation")[0]?.responseStart ?? good;
  setInterval(tick, 1000);
  tick();
  plan(period);
});
})();
