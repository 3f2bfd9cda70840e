// The theme that the page wears, set before anything is painted: the one chosen here before, else the system's.
// Choosing is in main.js.
"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Wears what is chosen: light or dark, or auto for what the system says. */
globalThis.wear = (theme) => {
  const { dataset } = document.documentElement;
  dataset.choice = theme;
  dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
};

dark.addEventListener("change", () => globalThis.wear(document.documentElement.dataset.choice));
let chosen = "auto";
try {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") chosen = kept;
} catch {
  // Without storage the system's theme holds.
}
globalThis.wear(chosen);
