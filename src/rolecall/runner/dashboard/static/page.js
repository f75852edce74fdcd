// Says when the operator does not answer any more, because a page that stands still looks like one where nothing happens.
"use strict";
document.getElementById("plain").hidden = true;
function told(isStale) {
  document.getElementById("stale").hidden = !isStale;
}
for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, () => told(true));
}
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.xhr.status < 400) {
    told(false);
  }
});
