"use strict";
// The few things of the back office that need a script: double-submit guard, logged reveal, search by keyboard.

// The theme's Alpine evaluates nothing here (its CSP build, static/unfold/js/alpine): what its templates name is
// registered by name, and the few globals they read are handed to them as plain values.
document.addEventListener("alpine:init", () => {
  for (const name of ["theme", "searchForm", "searchDropdown", "searchCommand"]) {
    if (typeof window[name] === "function") window.Alpine.data(name, window[name]);
  }
  window.Alpine.data("desk", () => ({
    activeTab: "",
    sidebarMobileOpen: false,
    sidebarDesktopOpen: localStorage.getItem("sidebarDesktopOpen") !== "0",
    window: { location: { pathname: location.pathname, search: location.search } },
    init() {
      this.activeTab = this.$el.dataset.tab ? window.getCurrentTab() || this.$el.dataset.tab : "";
      this.$watch("sidebarDesktopOpen", (open) => localStorage.setItem("sidebarDesktopOpen", open ? "1" : "0"));
    },
  }));
});

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

// Many rows, a few at a time: each says what became of it, and the page shows how far it is.
const ROWS_AT_ONCE = 5;

function rowsOf(form, rows) {
  const body = new FormData(form);
  body.delete("ids");
  rows.forEach((row) => body.append("ids", row.dataset.row));
  return body;
}

function tellRow(row, told) {
  row.dataset.ok = told.ok ? "yes" : "no";
  const icon = row.querySelector("[data-icon]");
  icon.textContent = told.ok ? "check_circle" : "error";
  icon.className = `material-symbols-outlined ${told.ok ? "q-good" : "q-bad"}`;
  row.querySelector("[data-said]").textContent = told.said;
}

function stayUntilDone(event) {
  event.preventDefault();
}

async function sendRows(form) {
  const all = [...form.querySelectorAll("[data-row]")];
  const left = all.filter((row) => row.dataset.ok !== "yes");
  const progress = form.querySelector("[data-progress]");
  const text = progress.querySelector("[data-done]");
  const show = () => {
    const done = all.filter((row) => row.dataset.ok === "yes").length;
    const told = all.filter((row) => row.dataset.ok).length;
    Object.assign(progress.querySelector("progress"), { value: told, max: Math.max(all.length, 1) });
    text.textContent = text.dataset.text.replace("{done}", done).replace("{all}", all.length);
  };
  form.querySelector("[data-lost]").hidden = true;
  progress.hidden = false;
  show();
  for (let at = 0; at < left.length; at += ROWS_AT_ONCE) {
    const few = left.slice(at, at + ROWS_AT_ONCE);
    const answer = await fetch(form.action, {
      method: "POST",
      body: rowsOf(form, few),
      headers: { Accept: "application/json" },
      credentials: "same-origin",
    });
    if (!(answer.headers.get("Content-Type") || "").startsWith("application/json")) {
      // The form wants an answer first, or the session is over: the page itself says which.
      window.removeEventListener("beforeunload", stayUntilDone);
      form.submit();
      return;
    }
    const { rows } = await answer.json();
    few.forEach((row) => {
      const told = rows.find((one) => one.pk === row.dataset.row);
      if (told) tellRow(row, told);
    });
    show();
  }
  form.querySelector("[type=submit]").hidden = true;
  form.querySelector("[data-cancel]").hidden = true;
  form.querySelector("[data-back]").hidden = false;
  const fields = form.querySelector("[data-fields]");
  if (fields) fields.hidden = true;
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (event.defaultPrevented || !form.matches("[data-rows]")) return;
  event.preventDefault();
  window.addEventListener("beforeunload", stayUntilDone);
  try {
    await sendRows(form);
  } catch {
    form.querySelector("[data-lost]").hidden = false;
    delete form.dataset.sent;
    form.querySelectorAll(".q-busy").forEach((button) => button.classList.remove("q-busy"));
  } finally {
    window.removeEventListener("beforeunload", stayUntilDone);
  }
});

// Images in a viewer: arrows turn the page, Esc closes, a click shows the image in its own size.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-viewer] a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const list = link.closest("[data-viewer]");
  const links = [...list.querySelectorAll("a")];
  let place = links.indexOf(link);
  const viewer = document.createElement("dialog");
  viewer.className = "q-viewer";
  const image = viewer.appendChild(document.createElement("img"));
  const caption = viewer.appendChild(document.createElement("p"));
  const show = (step) => {
    place = (place + step + links.length) % links.length;
    image.src = links[place].href;
    image.alt = links[place].querySelector("img").alt;
    image.classList.remove("q-viewer-large");
    const note = links[place].parentElement.querySelector("span");
    caption.textContent = `${place + 1} / ${links.length}${note ? ` · ${note.textContent.trim()}` : ""}`;
  };
  const button = (sign, label, act) => {
    const made = viewer.appendChild(document.createElement("button"));
    Object.assign(made, { type: "button", textContent: sign, ariaLabel: label, title: label });
    made.className = `q-viewer-${sign === "×" ? "close" : sign === "‹" ? "before" : "next"}`;
    made.addEventListener("click", act);
  };
  if (links.length > 1) {
    button("‹", list.dataset.before, () => show(-1));
    button("›", list.dataset.next, () => show(1));
  }
  button("×", list.dataset.close, () => viewer.close());
  image.addEventListener("click", () => image.classList.toggle("q-viewer-large"));
  viewer.addEventListener("click", (click) => click.target === viewer && viewer.close());
  viewer.addEventListener("keydown", (press) => {
    if (press.key === "ArrowLeft") show(-1);
    if (press.key === "ArrowRight") show(1);
  });
  viewer.addEventListener("close", () => {
    viewer.remove();
    link.focus();
  });
  document.body.append(viewer);
  show(0);
  viewer.showModal();
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
