// The search's index is most of what a page weighs: it is loaded when a reader turns to the search.
(() => {
  const { open, send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this.waits = String(url).endsWith("search_index.json") && !location.search.includes("q=");
    open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (...given) {
    if (!this.waits) return send.apply(this, given);
    const start = event => {
      if (!this.waits || !event.target.closest?.(".md-search, [for=__search]")) return;
      this.waits = false;
      send.apply(this, given);
    };
    for (const kind of ["focusin", "pointerdown"]) document.addEventListener(kind, start);
  };
})();
