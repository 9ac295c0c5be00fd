// Not a module: it runs before the page is drawn, so that a chosen theme does not flash.
(() => {
  const key = "ladle-theme";
  const root = document.documentElement;
  const chosen = localStorage.getItem(key);
  if (chosen) root.dataset.theme = chosen;
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
      localStorage.setItem(key, root.dataset.theme);
    });
  });
})();
