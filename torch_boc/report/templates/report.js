"use strict";
(() => {
  // The review threshold: what is left and what is found if a share of the samples is reviewed.
  const data = JSON.parse(document.getElementById("data").textContent), slider = document.getElementById("share");
  const percent = (x) => `${(100 * x).toFixed(1)}\u00a0%`;
  if (slider) {
    const line = document.getElementById("cut"), width = 400;  // of the axis, in units of the drawing
    slider.max = data.share.length - 1;
    slider.closest("p").hidden = false;
    const show = () => {
      const i = +slider.value, share = data.share[i];
      const found = Object.entries(data.detected).filter(([, list]) => list[i] !== null)
        .map(([name, list]) => `${percent(list[i])} of ${name === data.test_set ? "the errors" : name}`);
      const rest = data.accuracy[i] === null ? "" : ` Accuracy of the rest: ${percent(data.accuracy[i])}.`;
      const told = `Review ${percent(share)}: confidence below ${percent(data.threshold[i])}.${rest} Found: ${found.join(", ")}.`;
      document.getElementById("live").textContent = told;
      slider.setAttribute("aria-valuetext", told);
      line.setAttribute("transform", `translate(${(1 - share) * width} 0)`);
    };
    slider.addEventListener("input", show);
    slider.value = Math.max(0, data.share.indexOf(data.review_share));
    show();
  }

  // Tables whose rows are sorted by a click on a title: numbers by size, texts by letters, dashes last.
  document.querySelectorAll(".sortable table").forEach((table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const key = (row) => row.cells[column].innerText.replace("−", "-");
        const compare = (a, b) => (a[0] === "–") - (b[0] === "–") || (rising ? 1 : -1) * a.localeCompare(b, "en", { numeric: true });
        table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b))));
      });
    });
  });
})();
