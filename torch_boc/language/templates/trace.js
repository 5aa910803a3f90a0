"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip"), select = document.getElementById("quantity");
  const sections = [...document.querySelectorAll(".sequence")];
  const places = new Map(); // of each token's element: its sequence and its number in it
  const tokens = sections.map((section, s) => {
    const found = [...section.querySelectorAll(".text span")];
    found.forEach((element, i) => places.set(element, [s, i]));
    return found;
  });
  const WINDOW = 16;
  let current = null, leaving = 0;

  const edges = (name) => data.scales[name].slice(1);
  const rising = (name) => edges(name)[0] < edges(name)[data.levels - 2];
  const level = (name, x) => edges(name).filter((edge) => (rising(name) ? x >= edge : x <= edge)).length;
  const height = (name, x) => {
    const e = edges(name), last = e.length - 1, at = level(name, x);
    const ends = [2 * e[0] - e[1], ...e, 2 * e[last] - e[last - 1]];
    const part = (x - ends[at]) / (ends[at + 1] - ends[at]);
    return Math.round((100 * (at + Math.min(Math.max(part, 0), 1))) / data.levels);
  };
  const written = (x) => (Math.abs(x) >= 1e4 ? x.toFixed(0) : String(+x.toPrecision(4)));
  const values = (s, name) => data.sequences[s].numbers[name] || tokens[s].map(() => null);

  const means = (list) => list.map((_, i) => {
    const known = list.slice(Math.max(0, i + 1 - WINDOW), i + 1).filter((x) => x !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  });

  function strip(s, name) {
    const list = values(s, name), section = sections[s];
    const bars = list.map((x) => "V" + (100 - (x === null ? 0 : height(name, x))) + "h1").join("");
    let open = false;
    const line = means(list).map((x, i) => {
      const step = x === null ? "" : (open ? "L" : "M") + i + ".5," + (100 - height(name, x));
      open = x !== null;
      return step;
    });
    section.querySelector(".area").setAttribute("d", "M0,100" + bars + "V100Z");
    section.querySelector(".mean").setAttribute("d", line.join(""));
    section.querySelectorAll(".axis span").forEach((mark, i) => (mark.textContent = written(edges(name)[2 * i + 1])));
    const known = list.filter((x) => x !== null).sort((a, b) => a - b);
    const [low, middle, high] = [0, known.length >> 1, known.length - 1].map((i) => written(known[i] || 0));
    const told = known.length ? `${data.scales[name][0]} along the text: from ${low} to ${high}, median ${middle}.`
      : `No token has a number of ${data.scales[name][0]}.`;
    const svg = section.querySelector("svg");
    svg.setAttribute("aria-label", told);
    svg.setAttribute("viewBox", `0 0 ${Math.max(1, list.length)} 100`);
    section.querySelector(".strip").hidden = false;
  }

  function paint(name) {
    tokens.forEach((list, s) => {
      const numbers = values(s, name);
      list.forEach((element, i) => {
        const x = numbers[i];
        element.className = element.className.replace(/q\S/, "q" + (x === null ? "n" : level(name, x)));
      });
      strip(s, name);
    });
    const [below, above] = rising(name) ? ["<", "≥"] : [">", "≤"];
    document.querySelectorAll(".legend small").forEach((cell, i) => {
      cell.textContent = (i ? above : below) + written(edges(name)[Math.max(0, i - 1)]).replace(/^(-?)0\./, "$1.");
    });
  }

  function make(tag, text, kind, parent) {
    const element = document.createElement(tag);
    element.textContent = text;
    if (kind) element.className = kind;
    parent.append(element);
    return element;
  }

  const percent = (p) => (p >= 0.9995 ? "> 99.9 %" : p >= 0.001 ? (100 * p).toFixed(1) + " %" : p.toExponential(1));

  function rival(list, label, p, emitted) {
    const item = make("li", "", emitted ? "emitted" : "", list);
    make("span", (emitted ? "▸ " : "") + (label < 0 ? "?" : data.labels[label]), "", item);
    make("i", "", "", make("div", "", "", item)).style.width = 100 * p + "%";
    make("em", percent(p), "", item);
  }

  function fill(s, i) {
    const sequence = data.sequences[s], token = sequence.tokens[i];
    tip.textContent = "";
    const head = make("p", "", "name", tip);
    make("b", token < 0 ? "?" : data.labels[token], "", head);
    make("span", `token ${sequence.first + i + 1} of ${sequence.first + tokens[s].length}`, "", head);
    const table = make("dl", "", "", tip);
    for (const name of Object.keys(data.scales)) {
      const x = values(s, name)[i];
      if (x === null || x === undefined) continue;
      const on = name === select.value ? "on" : "";
      make("dt", data.scales[name][0], on, table);
      make("dd", written(x), on, table);
    }
    const own = values(s, "log_probability")[i], list = make("ol", "", "", tip);
    list.setAttribute("aria-label", "The likeliest tokens");
    let seen = false;
    sequence.rivals[i].forEach((label, k) => {
      const chance = sequence.chances[i][k];
      if (label < 0 || chance === null) return;
      seen ||= label === token;
      rival(list, label, Math.min(1, Math.exp(chance)), label === token);
    });
    if (!seen && own !== null) rival(list, token, Math.min(1, Math.exp(own)), true);
    if (!list.children.length) list.remove();
  }

  function show(element) {
    clearTimeout(leaving);
    const [s, i] = places.get(element);
    if (current) current.classList.remove("now");
    current = element;
    element.classList.add("now");
    fill(s, i);
    tip.hidden = false;
    const box = element.getClientRects()[0] || element.getBoundingClientRect(), room = document.documentElement.clientWidth;
    const above = box.bottom + tip.offsetHeight + 12 > innerHeight && box.top - tip.offsetHeight - 12 > 0;
    tip.style.left = scrollX + Math.max(8, Math.min(box.left, room - tip.offsetWidth - 8)) + "px";
    tip.style.top = scrollY + (above ? box.top - tip.offsetHeight - 8 : box.bottom + 8) + "px";
    sections.forEach((section, n) => section.querySelector(".here").setAttribute("d", n === s ? `M${i + 0.5},0V100` : ""));
  }

  function hide() {
    tip.hidden = true;
    if (current) current.classList.remove("now");
    current = null;
    sections.forEach((section) => section.querySelector(".here").setAttribute("d", ""));
  }

  function leave() {
    clearTimeout(leaving);
    leaving = setTimeout(() => (places.has(document.activeElement) ? show(document.activeElement) : hide()), 200);
  }

  function focus(element) {
    tokens[places.get(element)[0]].forEach((other) => other.removeAttribute("tabindex"));
    element.tabIndex = 0;
    element.setAttribute("aria-describedby", "tip");
    element.focus({ preventScroll: true });
    element.scrollIntoView({ block: "nearest" });
    show(element);
  }

  function neighbour(element, down) {
    const [s, i] = places.get(element), from = element.getBoundingClientRect(), step = down ? 1 : -1;
    let best = null, line = null;
    for (let k = i + step; tokens[s][k]; k += step) {
      const box = tokens[s][k].getBoundingClientRect();
      if (Math.abs(box.top - from.top) < from.height / 2) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > from.height / 2) break;
      const far = Math.abs(box.left - from.left);
      if (!best || far <= best[0]) best = [far, tokens[s][k]];
    }
    return best && best[1];
  }

  const keys = {
    ArrowRight: (s, i) => tokens[s][i + 1],
    ArrowLeft: (s, i) => tokens[s][i - 1],
    ArrowDown: (s, i) => neighbour(tokens[s][i], true),
    ArrowUp: (s, i) => neighbour(tokens[s][i], false),
    Home: (s) => tokens[s][0],
    End: (s) => tokens[s][tokens[s].length - 1],
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const place = places.get(document.activeElement), key = keys[event.key];
    if (!place || !key || event.ctrlKey || event.altKey || event.metaKey) return undefined;
    event.preventDefault();
    const next = key(...place);
    return next && focus(next);
  });
  document.addEventListener("pointerover", (event) => {
    if (places.has(event.target)) show(event.target);
    else if (tip.contains(event.target)) clearTimeout(leaving);
    else if (!tip.hidden) leave();
  });
  document.addEventListener("focusin", (event) => (places.has(event.target) ? show(event.target) : hide()));
  document.addEventListener("click", (event) => {
    if (places.has(event.target)) focus(event.target);
  });
  sections.forEach((section, s) => {
    const svg = section.querySelector("svg"), list = tokens[s];
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      return list[Math.max(0, Math.min(list.length - 1, Math.floor(((event.clientX - box.left) / box.width) * list.length)))];
    };
    svg.addEventListener("click", (event) => list.length && focus(at(event)));
    svg.addEventListener("pointermove", (event) => {
      if (list.length) section.querySelector(".here").setAttribute("d", `M${places.get(at(event))[1] + 0.5},0V100`);
    });
    svg.addEventListener("pointerleave", leave);
    if (list.length) list[0].tabIndex = 0;
  });
  select.addEventListener("change", () => paint(select.value));
  paint(select.value);
  document.getElementById("by").hidden = true;
  document.getElementById("choose").hidden = false;
  document.getElementById("help").hidden = false;
})();
