// Warns when the operator does not respond, keeps opened details open when a part of the page is replaced, and the
// address in step with the filters, and copies commands.
"use strict";
document.documentElement.classList.add("scripted");
document.getElementById("plain").hidden = true;
function setStale(isStale) {
  document.getElementById("stale").hidden = !isStale;
}
for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, () => setStale(true));
}
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.xhr.status < 400) {
    setStale(false);
  }
});
let opened = [];
document.addEventListener("htmx:beforeSwap", () => {
  opened = Array.from(document.querySelectorAll("details[id][open]"), (each) => each.id);
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of opened) {
    document.getElementById(id)?.setAttribute("open", "");
  }
  history.replaceState(null, "", document.getElementById("polled").dataset.address + location.hash);
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (button) {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  }
});
