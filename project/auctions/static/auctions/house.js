// Counts down to the closings, and renews the parts of a page that are no views of an entity.
"use strict";

function tick() {
  for (const clock of document.querySelectorAll("time[data-closes]")) {
    const left = Math.max(0, Math.ceil((Date.parse(clock.dateTime) - Date.now()) / 1000));
    clock.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
    clock.classList.toggle("soon", left <= 15);
  }
}

function replace(part, fresh) {
  if (!fresh || fresh.dataset.key === part.dataset.key) return;
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  part.replaceChildren(...fresh.childNodes);
  part.dataset.key = fresh.dataset.key;
  if (focused) document.getElementById(focused)?.focus();
}

async function renew(parts) {
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) replace(part, page.getElementById(part.id));
    tick();
  } catch {
    // The site restarts: the next turn finds it again.
  }
}

function follow(parts) {
  setTimeout(async () => {
    if (!document.hidden) await renew(parts);
    follow(parts);
  }, Number(parts[0].dataset.refresh));
}

tick();
setInterval(tick, 500);
document.addEventListener("sharding:live", tick, true);
const parts = [...document.querySelectorAll("[data-refresh]")];
if (parts.length) follow(parts);
for (const field of document.querySelectorAll("[data-submits]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}
