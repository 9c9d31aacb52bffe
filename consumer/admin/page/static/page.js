"use strict";
// Fetches the parts of the page that change, once a second while somebody looks, and puts in what is new. Elements stay where they can, and with
// them the focus, the selection and how far a table is scrolled. Without this script the page works, and is as old as its last load.
(() => {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  const stale = document.getElementById("stale");
  const policy = window.trustedTypes ? trustedTypes.createPolicy("longshore", { createHTML: s => s }) : { createHTML: s => s };
  const every = 1000, patience = 5000;

  // become makes an element what another one is.
  function become(old, fresh) {
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
    contain(old, fresh);
  }

  // contain gives an element the children of another one. One that has the same id, or the same place and kind, is changed and stays.
  function contain(old, fresh) {
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      let same = at;
      if (next.id) same = [...old.children].find(c => c.id === next.id) || at;
      if (!same || same.nodeName !== next.nodeName || (same.id || "") !== (next.id || "")) {
        old.insertBefore(next, at);
        continue;
      }
      if (same !== at) old.insertBefore(same, at);
      else at = at.nextSibling;
      if (same.nodeType === Node.ELEMENT_NODE) become(same, next);
      else if (same.data !== next.data) same.data = next.data;
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  async function step() {
    if (!document.hidden) {
      try {
        const answer = await fetch(live.dataset.live, { signal: AbortSignal.timeout(patience), redirect: "error" });
        if (!answer.ok) throw new Error(String(answer.status));
        const got = document.createElement("template");
        got.innerHTML = policy.createHTML(await answer.text());
        for (const part of got.content.children) {
          const here = document.getElementById(part.id);
          if (here) contain(here, part);
        }
        if (stale.textContent) stale.textContent = "";
      } catch {
        if (!stale.textContent) stale.textContent = "no answer; trying again";
      }
    }
    setTimeout(step, every);
  }
  setTimeout(step, every);
})();
