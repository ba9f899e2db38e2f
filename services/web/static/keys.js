// Keys: "/" to the search field, "g" and a page's letter to the page, j and k from row to row, n to older entries.
"use strict";
let going = false;
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  if (going) {
    going = false;
    document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
  } else if (event.key === "g") {
    going = true;
  } else if (event.key === "/") {
    event.preventDefault();
    document.querySelector("[data-search]")?.focus();
  } else if (event.key === "j") {
    rows[Math.min(at + 1, rows.length - 1)]?.focus();
  } else if (event.key === "k") {
    rows[Math.max(at - 1, 0)]?.focus();
  } else if (event.key === "n") {
    document.querySelector("[data-next]")?.click();
  }
});
addEventListener("input", (event) => {
  if (event.target.matches("[data-moment]")) event.target.form.querySelector("output").value = event.target.value;
});
