// Counts down to the closings, and renews the parts of a page that are no views of an entity.
"use strict";

function tick() {
  for (const clock of document.querySelectorAll("time[data-closes]")) {
    const left = Math.max(0, Math.ceil((Date.parse(clock.dateTime) - Date.now()) / 1000));
    clock.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
    clock.classList.toggle("soon", left <= 15);
  }
}

async function renew(part) {
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(part.id);
    if (!fresh || fresh.dataset.key === part.dataset.key) return;
    part.replaceChildren(...fresh.childNodes);
    part.dataset.key = fresh.dataset.key;
    tick();
  } catch {
    // The site restarts: the next turn finds it again.
  }
}

function follow(part) {
  setTimeout(async () => {
    if (!document.hidden) await renew(part);
    follow(part);
  }, Number(part.dataset.refresh));
}

tick();
setInterval(tick, 500);
document.addEventListener("sharding:live", tick, true);
document.querySelectorAll("[data-refresh]").forEach(follow);
for (const field of document.querySelectorAll("[data-submits]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}
