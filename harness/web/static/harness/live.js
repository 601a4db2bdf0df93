// Keeps a page up to date: fragments of it come by server-sent events and are put in place by their ids, where nothing
// moves under a finger: what has the focus keeps it, an open form waits until it is left, an opened part stays open.
// Without this script the page reloads itself, and every button is a form.
(() => {
  "use strict";
  const QUIET_MS = 12_000; // two beats and a little: then what is shown may be old
  const INERT_MS = 600; // after buttons have changed: a click that was meant for those before them
  const path = document.body.dataset.livePath;
  const mark = document.getElementById("live-mark");
  const waiting = new Map(); // fragments that somebody types in, by id
  let source = null;
  let last = "";
  let over = false;
  let heardAt = Date.now();

  const say = (text, ended) => {
    if (!mark || mark.textContent === text) return;
    mark.textContent = text;
    mark.classList.toggle("ended", ended);
  };

  const typing = (element) => {
    const active = document.activeElement;
    if (active && element.contains(active) && active.matches("input:not([type=hidden]), textarea, select")) return true;
    return [...element.querySelectorAll("input[type=text], textarea")].some((one) => one.value !== one.defaultValue);
  };

  const put = (id, digest, html) => {
    const element = document.getElementById(id);
    if (!element || element.dataset.live === digest) return;
    if (typing(element)) {
      waiting.set(id, [digest, html]);
      return;
    }
    waiting.delete(id);
    const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
    const opened = [...element.querySelectorAll("details[open][id]")].map((one) => one.id);
    const buttons = [...element.querySelectorAll(".acts")].map((one) => one.textContent).join();
    htmx.swap(element, html, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 0, focusScroll: false });
    element.dataset.live = digest;
    for (const one of opened) document.getElementById(one)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    const now = [...element.querySelectorAll(".acts")];
    if (now.map((one) => one.textContent).join() !== buttons) {
      for (const one of now) {
        one.inert = true;
        setTimeout(() => { one.inert = false; }, INERT_MS);
      }
    }
  };

  const heard = (event) => {
    heardAt = Date.now();
    if (event.lastEventId) last = event.lastEventId;
    if (!over) say("Live", false);
  };

  const open = () => {
    if (!path || over || source) return;
    source = new EventSource(last ? `${path}?after=${encodeURIComponent(last)}` : path);
    const on = (name, act) => source.addEventListener(name, (event) => { heard(event); act(JSON.parse(event.data)); });
    on("beat", () => {});
    on("swap", (parts) => { for (const [id, [digest, html]] of Object.entries(parts)) put(id, digest, html); });
    on("title", (text) => { document.title = text; });
    on("text", (said) => document.dispatchEvent(new CustomEvent("harness:text", { detail: said })));
    on("end", (told) => {
      over = true;
      close();
      say(told.gone ? "Gone" : "Ended", true);
    });
    source.onerror = () => {
      // A broken connection comes again by itself, with the last id; a refusal doesn't.
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 3000);
      }
    };
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => { document.hidden ? close() : open(); });
  document.addEventListener("focusout", () => {
    setTimeout(() => { for (const [id, [digest, html]] of [...waiting]) put(id, digest, html); }, 0);
  });
  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button && button.dataset.doing) setTimeout(() => { button.textContent = button.dataset.doing; }, 0);
  });
  setInterval(() => {
    const old = path && !over && !document.hidden && Date.now() - heardAt > QUIET_MS;
    document.body.classList.toggle("old", old);
    if (old) say(`Not live, last ${new Date(heardAt).toISOString().slice(11, 19)}, trying again`, true);
  }, 1000);
  open();
})();
