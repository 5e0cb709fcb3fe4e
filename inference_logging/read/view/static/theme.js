// Runs before the first paint, so that a page in the chosen theme never flashes in the other one.
(() => {
  try {
    const theme = localStorage.getItem("view.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be switched off: the system's preference counts then.
  }
})();
