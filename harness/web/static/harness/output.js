// Appends what a task shows while it runs. The view follows only with Follow on.
(() => {
  "use strict";
  let attempt = 0;
  document.addEventListener("harness:text", ({ detail: said }) => {
    const output = document.getElementById("output-text");
    if (!output) return;
    const whole = Number(output.dataset.end || 0);
    attempt = Number(output.dataset.attempt || 0);
    if (said.attempt > attempt || said.offset === 0) {
      output.textContent = said.text;
    } else if (said.offset + said.text.length > whole) {
      output.append(said.text.slice(Math.max(0, whole - said.offset)));
    } else return;
    output.dataset.attempt = said.attempt;
    output.dataset.end = said.offset + said.text.length;
    document.getElementById("output")?.removeAttribute("hidden");
    if (document.getElementById("follow")?.checked) output.scrollIntoView({ block: "end", behavior: "instant" });
  });
})();
