// The page's address says what is on show, so that it can be sent to somebody: everything but an uploaded picture.

window.camapp.address = (() => {
  const usual = { opacity: "70", threshold: "0", colors: "viridis", tab: "explain" };

  // Writes changes into the address; "" and what is as usual are left out of it.
  return (changes) => {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === "" || String(value) === usual[name]) query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
  };
})();

// Small facts in the top bar, by name.
window.camapp.badge = (name, text) => {
  const badge = document.querySelector(`#badge-${name}`);
  if (!badge) return;
  badge.textContent = text;
  badge.hidden = !text;
};
