// Filters the rules and folds the areas; the page is complete without it.
(() => {
  const form = document.getElementById("filter");
  const areas = [...document.querySelectorAll("details.area")];
  const nothing = document.getElementById("nothing");

  function apply() {
    const words = form.elements.words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const outcomes = new Set([...form.querySelectorAll("[name=outcome]:checked")].map((box) => box.value));
    for (const area of areas) {
      for (const row of area.querySelectorAll("li")) {
        const text = row.textContent.toLowerCase();
        row.hidden = !outcomes.has(row.dataset.outcome) || !words.every((word) => text.includes(word));
      }
      const chosen = !form.elements.area.value || form.elements.area.value === area.dataset.area;
      area.hidden = !chosen || !area.querySelector("li:not([hidden])");
    }
    nothing.hidden = areas.some((area) => !area.hidden);
  }

  function fold() {
    const open = areas.every((area) => !area.open);
    for (const area of areas) area.open = open;
    form.elements.fold.textContent = open ? "Fold all" : "Unfold all";
  }

  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.fold.addEventListener("click", fold);
  window.addEventListener("beforeprint", () => areas.forEach((area) => (area.open = true)));
  form.hidden = false;
})();
