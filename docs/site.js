// Tables that scroll can be scrolled by keyboard. The theme wraps them when a page is shown.
document$.subscribe(() => {
  for (const place of document.querySelectorAll(".md-typeset__scrollwrap")) {
    place.tabIndex = 0;
    place.setAttribute("role", "region");
    place.setAttribute("aria-label", "table");
  }
});
