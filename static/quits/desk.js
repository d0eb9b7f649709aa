"use strict";
// The few things of the back office that need a script: double-submit guard, logged reveal, search by keyboard.

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("[data-once]")) return;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "1";
  const button = event.submitter || form.querySelector("[type=submit]");
  if (button) {
    button.setAttribute("aria-busy", "true");
    button.classList.add("q-busy");
  }
});

// Coming back with the browser's back button finds the form usable again; its one-time token still works once.
window.addEventListener("pageshow", () => {
  document.querySelectorAll("[data-once]").forEach((form) => delete form.dataset.sent);
  document.querySelectorAll(".q-busy").forEach((button) => button.classList.remove("q-busy"));
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-reveal]");
  if (!button) return;
  event.preventDefault();
  button.disabled = true;
  const token = document.querySelector("[name=csrfmiddlewaretoken]");
  const body = new URLSearchParams({
    model: button.dataset.model,
    pk: button.dataset.pk,
    field: button.dataset.field,
    csrfmiddlewaretoken: token ? token.value : "",
  });
  const answer = await fetch(button.dataset.reveal, { method: "POST", body, credentials: "same-origin" });
  if (!answer.ok) {
    button.disabled = false;
    return;
  }
  const { value } = await answer.json();
  const holder = button.closest(".q-masked");
  holder.querySelector("[data-masked]").textContent = value;
  button.remove();
});

// Ctrl+K (⌘K) goes to the one search box, or to its page where the box is hidden.
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey) return;
  const box = document.querySelector("[data-search-box]");
  if (!box) return;
  event.preventDefault();
  if (box.offsetParent === null) {
    window.location.assign(box.form.action);
    return;
  }
  box.focus();
  box.select();
});

// Lists by keyboard: j and k move, Enter opens, x ticks; ? shows the shortcuts.
(() => {
  let place = -1;
  const rows = () => [...document.querySelectorAll("#result_list tbody tr.data-row, #result_list tbody tr")];

  function go(step) {
    const all = rows();
    if (!all.length) return;
    if (all[place]) all[place].classList.remove("q-row-on");
    place = Math.max(0, Math.min(all.length - 1, place + step));
    all[place].classList.add("q-row-on");
    all[place].scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, button, a, [contenteditable], dialog")) return;
    const row = rows()[place];
    if (event.key === "?") {
      const help = document.querySelector("dialog.q-keys");
      if (help) help.showModal();
    } else if (event.key === "j") go(1);
    else if (event.key === "k") go(-1);
    else if (event.key === "Enter" && row) {
      const link = row.querySelector("th a, td a");
      if (link) window.location.assign(link.href);
    } else if (event.key === "x" && row) {
      const box = row.querySelector("input.action-select");
      if (box) box.click();
    } else return;
    event.preventDefault();
  });
})();
