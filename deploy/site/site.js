// The search is a dialog without a name, and what scrolls sideways cannot be reached by the keyboard.
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
});
