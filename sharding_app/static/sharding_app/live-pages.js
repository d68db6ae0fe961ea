// Keeps the live views of a page up to date: by one WebSocket, or by server-sent events where no WebSocket gets
// through. Values are written as text, HTML only as the site's own templates have made it. Nothing is evaluated.
"use strict";

(() => {
  const script = document.currentScript;
  if (!script || window.shardingLive) return;
  window.shardingLive = true;

  const KEY_LENGTH = 16;
  // The site says something every 20 seconds at least.
  const SILENCE_MS = 45000;
  const FIRST_MS = 500;
  const LONGEST_MS = 30000;
  const PATIENCE_MS = 1000;
  // The site ends a connection for a message of more than 64 KiB.
  const LONGEST_MESSAGE = 60000;
  const root = document.documentElement;
  const refused = new Map();
  const latest = new Map();
  let watched = new Map();
  let line = null;
  let timer = 0;
  let silence = 0;
  let lostTimer = 0;
  let failures = 0;
  let unheard = 0;
  let turnedAway = false;
  let scanning = false;

  const keyOf = (token) => token.slice(token.lastIndexOf(":") + 1).slice(0, KEY_LENGTH);
  const elements = () => [...document.querySelectorAll("[data-live]")];

  // -- What is shown -----------------------------------------------------------------------------------------------

  function partOf(value, path) {
    for (const name of path ? path.split(".") : []) {
      const has = value !== null && typeof value === "object" && Object.prototype.hasOwnProperty.call(value, name);
      value = has && (!Array.isArray(value) || /^\d+$/.test(name)) ? value[name] : null;
    }
    return value;
  }

  function textOf(value) {
    if (value === null || value === undefined) return "";
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  function renew(old, made) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
      return;
    }
    // Parts that the user has unfolded stay so.
    for (const { name } of [...old.attributes]) if (name !== "open" && !made.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    renewChildren(old, made);
  }

  // What has not changed is not touched, so that focus and selection stay. An id or a data-row tells which is which.
  const mark = (node) => (node.nodeType === 1 ? node.getAttribute("data-row") || node.id : "");
  const same = (old, made) => old.nodeType === made.nodeType && old.nodeName === made.nodeName && mark(old) === mark(made);

  function renewChildren(old, made) {
    let place = old.firstChild;
    for (const wanted of [...made.childNodes]) {
      let found = place;
      if (found && !same(found, wanted) && mark(wanted)) {
        while (found && !same(found, wanted)) found = found.nextSibling;
        if (found) while (place !== found) { const gone = place; place = place.nextSibling; gone.remove(); }
      }
      if (found && same(found, wanted)) {
        place = found.nextSibling;
        renew(found, wanted);
      } else {
        old.insertBefore(wanted, place);
      }
    }
    while (place) { const gone = place; place = place.nextSibling; gone.remove(); }
  }

  function show(element, item) {
    if ("html" in item) {
      const made = document.createElement("template");
      made.innerHTML = item.html;
      renewChildren(element, made.content);
    } else {
      const text = textOf(partOf(item.value, element.dataset.liveField));
      if (element.textContent !== text) element.textContent = text;
    }
    element.dispatchEvent(new CustomEvent("sharding:live", { bubbles: true, detail: item }));
  }

  function mode(element, name) {
    if (element.dataset.liveState !== name) element.dataset.liveState = name;
  }

  function says(name) {
    window.clearTimeout(lostTimer);
    lostTimer = 0;
    if (root.dataset.livePage === name) return;
    root.dataset.livePage = name;
    for (const status of document.querySelectorAll("[data-live-status]")) {
      const text = status.dataset[name] || "";
      if (status.textContent !== text) status.textContent = text;
      status.hidden = !text;
    }
  }

  function disconnected() {
    for (const [key, entry] of watched) {
      if (!refused.has(key)) for (const element of entry.elements) mode(element, "lost");
    }
    // A moment without a connection is not worth a word.
    if (!lostTimer && root.dataset.livePage !== "lost") lostTimer = window.setTimeout(() => says("lost"), PATIENCE_MS);
  }

  function connected() {
    says(refused.size && [...watched.keys()].every((key) => refused.has(key)) ? "refused" : "on");
  }

  function take(items) {
    for (const item of items) {
      if (item.ask) {
        if (line && line.answer) line.answer({ got: item.ask });
        continue;
      }
      if (!item.key) {
        if (item.refused) turnAway();
        continue;
      }
      const entry = watched.get(item.key);
      if (item.refused) {
        refused.set(item.key, item.refused);
        latest.delete(item.key);
      } else if (!item.lost) {
        latest.set(item.key, item);
      }
      if (!entry) continue;
      for (const element of entry.elements) present(element, item);
    }
  }

  function present(element, item) {
    if (item.refused) {
      mode(element, "refused");
      element.dataset.liveRefused = item.refused;
    } else if (item.lost) {
      mode(element, "lost");
    } else {
      mode(element, "on");
      show(element, item);
    }
  }

  // -- What is watched ---------------------------------------------------------------------------------------------

  function scan() {
    scanning = false;
    const found = new Map();
    for (const element of elements()) {
      const token = element.dataset.live;
      const key = keyOf(token);
      if (!found.has(key)) found.set(key, { token, elements: [] });
      found.get(key).elements.push(element);
    }
    const before = watched;
    watched = found;
    const gone = [...before.keys()].filter((key) => !found.has(key));
    const fresh = [...found.keys()].filter((key) => !before.has(key));
    for (const key of gone) { latest.delete(key); refused.delete(key); }
    for (const [key, entry] of found) {
      const known = before.get(key);
      if (!known) continue;
      for (const element of entry.elements) {
        if (known.elements.includes(element)) continue;
        if (refused.has(key)) present(element, { refused: refused.get(key) });
        else if (latest.has(key)) present(element, latest.get(key));
      }
    }
    if (!wanted().length) { hangUp(); return; }
    if (!line) { if (!timer) connect(); return; }
    line.change(fresh.map((key) => found.get(key).token), gone);
  }

  // Puts tokens into lists, each short enough for a message. A token is ASCII.
  function lists(tokens) {
    const made = [];
    let length = Infinity;
    for (const token of tokens) {
      length += token.length + 3;
      if (length > LONGEST_MESSAGE) {
        made.push([]);
        length = token.length + 3;
      }
      made.at(-1).push(token);
    }
    return made;
  }

  const wanted = () => (turnedAway ? [] : [...watched].filter(([key]) => !refused.has(key)).map(([, entry]) => entry.token));

  new MutationObserver(() => {
    if (!scanning) { scanning = true; window.queueMicrotask(scan); }
  }).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-live"] });

  // -- Where it comes from -----------------------------------------------------------------------------------------

  function turnAway() {
    turnedAway = true;
    hangUp();
    for (const entry of watched.values()) for (const element of entry.elements) mode(element, "refused");
    says("refused");
  }

  function hangUp() {
    window.clearTimeout(timer);
    window.clearTimeout(silence);
    timer = 0;
    const former = line;
    line = null;
    if (former) former.close();
  }

  function again(heard) {
    window.clearTimeout(silence);
    line = null;
    failures = heard ? 1 : failures + 1;
    unheard = heard ? 0 : unheard + 1;
    disconnected();
    // Not all browsers come back at the same moment.
    const pause = Math.min(FIRST_MS * 2 ** (failures - 1), LONGEST_MS) * (0.5 + Math.random());
    window.clearTimeout(timer);
    timer = window.setTimeout(connect, pause);
  }

  function connect() {
    timer = 0;
    if (!wanted().length) return;
    const { liveSocket } = script.dataset;
    const liveStream = window.EventSource ? script.dataset.liveStream : undefined;
    if (!liveSocket && !liveStream) { turnAway(); return; }
    // A WebSocket that was never heard of twice: something on the way lets none through.
    line = liveSocket && (unheard < 2 || unheard % 4 === 3 || !liveStream) ? openSocket(liveSocket) : openStream(liveStream);
  }

  // Calls `took` for each message, and `ended` once.
  function listen(open, close) {
    let heard = false;
    let over = false;
    const made = { close: () => { over = true; close(); } };
    const ended = () => {
      if (over) return;
      over = true;
      close();
      if (line === made) again(heard);
    };
    const wait = () => {
      window.clearTimeout(silence);
      silence = window.setTimeout(ended, SILENCE_MS);
    };
    wait();
    open({
      took: (text) => {
        if (over || line !== made) return;
        heard = true;
        wait();
        take(JSON.parse(text));
        if (line === made) connected();
      },
      ended,
    });
    return made;
  }

  function openSocket(path) {
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    let socket;
    try {
      socket = new WebSocket(`${scheme}//${window.location.host}${path}`);
    } catch {
      // A policy or an extension of the browser's forbids it.
      window.setTimeout(() => again(false), 0);
      return { close() {}, change() {} };
    }
    const say = (words) => { if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(words)); };
    const watch = (tokens) => { for (const list of lists(tokens)) say({ watch: list }); };
    const made = listen(({ took, ended }) => {
      socket.addEventListener("open", () => watch(wanted()));
      socket.addEventListener("message", (event) => took(event.data));
      socket.addEventListener("close", ended);
    }, () => socket.close());
    made.answer = say;
    made.change = (fresh, gone) => {
      watch(fresh);
      if (gone.length) say({ forget: gone });
    };
    return made;
  }

  function openStream(path) {
    const query = new URLSearchParams({ frames: "1" });
    for (const token of wanted()) query.append("watch", token);
    const source = new EventSource(`${path}?${query}`);
    const made = listen(({ took, ended }) => {
      source.addEventListener("message", (event) => took(event.data));
      // It would come again by itself, all browsers at the same moment.
      source.addEventListener("error", ended);
    }, () => source.close());
    made.change = (fresh) => {
      if (fresh.length) { hangUp(); connect(); }
    };
    return made;
  }

  function hurry() {
    if (timer && !line) { window.clearTimeout(timer); connect(); }
  }

  window.addEventListener("online", hurry);
  window.addEventListener("pageshow", (event) => { if (event.persisted) { hangUp(); connect(); } });
  window.addEventListener("pagehide", hangUp);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) hurry(); });

  scan();
})();
