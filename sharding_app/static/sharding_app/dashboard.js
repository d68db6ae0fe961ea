// Brings the dashboard up to date: by a WebSocket where the site has one, by asking every two seconds else.
// Nothing is asked for while the page is hidden or paused. What has not changed is not touched, so that focus,
// selection and scroll positions stay.
"use strict";

(() => {
  const root = document.getElementById("sharding");
  if (!root) return;

  const POLL_MS = 2000;
  const AGAIN_MS = [500, 1000, 2000, 5000];
  // The site says something every 20 seconds at least: after longer silence what is shown may be old.
  const SILENCE_MS = 25000;
  // A page whose WebSocket has worked before tries another one after this time of asking.
  const POLLING_MS = 30000;
  const state = {
    socket: null, timer: 0, silence: 0, failures: 0, paused: false, heard: false,
    pollsUntil: root.dataset.socket ? 0 : Infinity,
  };
  const badge = document.getElementById("sh-live");
  const words = badge.querySelector("[data-live-text]");
  const pause = badge.querySelector("[data-pause]");

  // -- What is shown ---------------------------------------------------------------------------------------------

  function says(mode) {
    badge.hidden = false;
    badge.className = `sh-live ${mode}`;
    const text = words.dataset[mode];
    if (words.textContent !== text) words.textContent = text;
    const label = state.paused ? pause.dataset.go : pause.dataset.stop;
    if (pause.textContent !== label) pause.textContent = label;
  }

  function same(old, made) {
    return old.nodeType === made.nodeType && old.nodeName === made.nodeName
      && (old.nodeType !== 1 || old.getAttribute("data-row") === made.getAttribute("data-row"));
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

  function renewChildren(old, made) {
    let place = old.firstChild;
    for (const wanted of [...made.childNodes]) {
      let found = place;
      if (found && !same(found, wanted) && wanted.nodeType === 1 && wanted.hasAttribute("data-row")) {
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

  const former = new Map();

  function show(parts) {
    for (const [name, html] of Object.entries(parts)) {
      if (former.get(name) === html) continue;
      former.set(name, html);
      const box = root.querySelector(`[data-part="${name}"]`);
      if (!box) continue;
      const made = document.createElement("template");
      made.innerHTML = html;
      renewChildren(box, made.content);
    }
  }

  // -- The map of shards -----------------------------------------------------------------------------------------

  const map = root.querySelector("[data-map]");
  const tip = root.querySelector("[data-tip]");
  const rows = new Map();
  const squares = new Map();
  const cells = new Map();
  const heads = [...root.querySelectorAll("[data-map-table] thead th")].map((head) => head.textContent);
  const SIGNS = { lost: "!", stopped: "□", unused: "" };
  if (map) {
    for (const square of map.querySelectorAll("[data-shard]")) squares.set(square.dataset.shard, square);
    for (const row of root.querySelectorAll("[data-map-table] tr[data-shard]")) rows.set(row.dataset.shard, row);
    map.addEventListener("click", (event) => {
      const square = event.target.closest("[data-shard]");
      if (square) window.location.assign(`${map.dataset.shards}${square.dataset.shard}/`);
    });
    map.addEventListener("pointermove", (event) => {
      const square = event.target.closest("[data-shard]");
      for (const other of map.querySelectorAll(".here")) if (other !== square) other.classList.remove("here");
      if (!square) return;
      square.classList.add("here");
      const row = rows.get(square.dataset.shard);
      if (row) tip.textContent = [...row.cells].map((cell, index) => `${heads[index]} ${cell.textContent}`).join(" · ");
    });
  }

  function paint(list) {
    for (const cell of list) {
      const key = cell.join("|");
      const [shard, letter, colour, level, how, entities, epoch, home, text, journal] = cell;
      const id = String(shard);
      if (cells.get(id) === key) continue;
      cells.set(id, key);
      const square = squares.get(id);
      if (square) {
        const here = square.classList.contains("here") ? " here" : "";
        square.setAttribute("class", `sh-cell c${colour} l${level} s-${how}${here}`);
        square.lastChild.textContent = how in SIGNS ? SIGNS[how] : letter;
      }
      const row = rows.get(id);
      if (row) {
        const values = [null, home ? `${letter} ${home}` : "–", text, entities ?? "–", epoch ?? "–"];
        if (journal) values.push(journal);
        values.forEach((value, index) => {
          if (value !== null && row.cells[index].textContent !== String(value)) row.cells[index].textContent = value;
        });
      }
    }
  }

  function take(news) {
    if (news.parts) show(news.parts);
    if (news.cells) paint(news.cells);
    if (news.summary) {
      const summary = document.getElementById("sh-map-summary");
      if (summary && summary.textContent !== news.summary) summary.textContent = news.summary;
    }
  }

  // -- Where news come from --------------------------------------------------------------------------------------

  const asleep = () => state.paused || document.hidden;

  function stop() {
    window.clearTimeout(state.timer);
    window.clearTimeout(state.silence);
    if (state.socket) {
      const socket = state.socket;
      state.socket = null;
      socket.close();
    }
  }

  function go() {
    stop();
    if (asleep()) {
      says("off");
    } else if (Date.now() < state.pollsUntil) {
      poll();
    } else {
      connect();
    }
  }

  function connect() {
    // Rows that were asked for so far stand still until the first message.
    if (state.failures >= 2) says("lost");
    const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
    let socket;
    try {
      const site = encodeURIComponent(root.dataset.site);
      socket = new WebSocket(`${scheme}//${window.location.host}${root.dataset.socket}?site=${site}`);
    } catch {
      // A policy or an extension of the browser's forbids it.
      state.pollsUntil = Infinity;
      poll();
      return;
    }
    state.socket = socket;
    let heard = false;
    const lost = () => {
      if (state.socket !== socket) return;
      state.socket = null;
      window.clearTimeout(state.silence);
      state.failures += 1;
      // Never heard of: what stands between us lets no WebSocket through, or the site's session does not count there.
      // A page that has heard of one before meets a restart of the site, or the end of its session, which a poll sees.
      if (!heard && state.failures >= 2) state.pollsUntil = state.heard ? Date.now() + POLLING_MS : Infinity;
      if (heard) says("lost");
      state.timer = window.setTimeout(go, AGAIN_MS[Math.min(state.failures, AGAIN_MS.length) - 1]);
    };
    const waitForWords = () => {
      window.clearTimeout(state.silence);
      state.silence = window.setTimeout(() => {
        if (state.socket !== socket) return;
        lost();
        says("lost");
        socket.close();
      }, SILENCE_MS);
    };
    waitForWords();
    socket.addEventListener("open", () => socket.send(JSON.stringify({
      page: root.dataset.topic, language: document.documentElement.lang, zone: root.dataset.zone,
    })));
    socket.addEventListener("message", (event) => {
      if (state.socket !== socket) return;
      heard = state.heard = true;
      waitForWords();
      state.failures = 0;
      const news = JSON.parse(event.data);
      says(news.trouble ? "lost" : "on");
      take(news);
    });
    socket.addEventListener("close", lost);
  }

  async function poll() {
    let mode = "slow";
    // A site that takes the question and says nothing would leave what is shown as if it were new.
    const patience = new AbortController();
    const limit = window.setTimeout(() => patience.abort(), SILENCE_MS);
    try {
      const answer = await fetch(`${root.dataset.poll}?page=${encodeURIComponent(root.dataset.topic)}`, {
        credentials: "same-origin", headers: { Accept: "application/json" }, signal: patience.signal,
      });
      if (answer.redirected || answer.status === 403) { window.location.reload(); return; }
      const news = await answer.json();
      if (news.trouble) mode = "lost";
      take(news);
    } catch {
      mode = "lost";
    } finally {
      window.clearTimeout(limit);
    }
    if (asleep() || state.socket) return;
    says(mode);
    state.timer = window.setTimeout(go, POLL_MS);
  }

  pause.addEventListener("click", () => { state.paused = !state.paused; go(); });
  document.addEventListener("visibilitychange", go);
  window.addEventListener("pagehide", stop);

  // -- Forms -----------------------------------------------------------------------------------------------------

  const find = root.querySelector("[data-find]");
  if (find) find.addEventListener("submit", (event) => {
    event.preventDefault();
    const number = find.elements.shard.value.trim();
    if (/^\d+$/.test(number)) window.location.assign(`${find.getAttribute("action")}${number}/`);
  });
  const slider = root.querySelector("[data-slider]");
  if (slider) {
    const output = slider.querySelector("output");
    slider.elements.at.addEventListener("input", () => { output.textContent = `${slider.elements.at.value} / ${slider.elements.at.max}`; });
    slider.elements.at.addEventListener("change", () => slider.requestSubmit());
  }

  go();
})();
