"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const PAGE = 50, SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-left", "triangle-right"];
  const DASHES = ["solid", "dash", "dashdot", "longdash", "dot", "longdashdot"];
  const CONFIG = { responsive: true, displayModeBar: false, displaylogo: false };
  const drawings = [];

  // The colours of the page, which are others in the dark.
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (i) => {
    const found = data.colours[i % data.colours.length];
    return found === "#000000" ? style("--ink") : found;
  };
  const faint = (i, alpha) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour(i).slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${alpha})`;
  };
  const percent = (x) => (x === null ? "–" : `${(100 * x).toFixed(1)} %`.replace(" ", "\u00a0"));
  const minus = (text) => text.replace(/-/g, "−");
  const written = (x) => (x === null ? "–" : minus(String(+x.toPrecision(4))));
  const fixed = (x, digits) => (x === null ? "–" : minus(x.toFixed(digits)));
  // Conformal p-values are shares of held-out samples, so that two digits tell enough.
  const chance = (x) => (x === null ? "–" : x < 1e-4 ? minus(x.toExponential(1)) : x.toFixed(4));
  // Plotly reads tags such as <b> in a name; a person's name for a set is no tag.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const cut = (text) => plain(text.length <= 32 ? text : `${text.slice(0, 31)}…`);

  function layout(x, y, more = {}) {
    const axis = (title, options) => ({
      title: { text: title, standoff: 8 }, gridcolor: style("--rule"), zerolinecolor: style("--rule"),
      linecolor: style("--muted"), automargin: true, ...options,
    });
    return {
      paper_bgcolor: style("--paper"), plot_bgcolor: style("--paper"), dragmode: "zoom", hovermode: "closest",
      font: { color: style("--ink"), family: "system-ui, sans-serif", size: 13 }, margin: { l: 20, r: 12, t: 12, b: 20 },
      legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0, xanchor: "left", traceorder: "normal" },
      hoverlabel: { bgcolor: style("--wash"), bordercolor: style("--muted"), font: { color: style("--ink") } },
      ...more, xaxis: axis(x, more.xaxis), yaxis: axis(y, more.yaxis),
    };
  }
  // Draws now, and again when the scheme changes. `make` returns the traces and the layout.
  function drawn(id, make) {
    const draw = () => Plotly.react(id, ...make(), CONFIG);
    drawings.push(draw);
    draw();
    return draw;
  }
  dark.addEventListener("change", () => drawings.forEach((draw) => draw()));

  function fill(body, rows) {
    body.replaceChildren(...rows.map(([kind, ...cells]) => {
      const row = document.createElement("tr");
      row.className = kind;
      row.append(...cells.map((content, i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.scope = "row";
        cell.append(content);
        return cell;
      }));
      return row;
    }));
  }

  function thresholds() {
    const select = $("score"), range = $("threshold");
    let level = 0.05; // the share of false alarms that a person asked for last
    const now = () => data.alarms[select.value];
    const at = () => +range.value;
    const shares = (i) => Object.entries(now().flagged).map(([name, list]) => [name, list[i]]);
    // The last place with at most this share of false alarms; places are in the order of rising thresholds.
    const place = () => Math.max(0, now().flagged[data.known].findLastIndex((x) => x <= level + 1e-9));

    function bins() {
      const { bins: { edges, shares: heights }, thresholds: list, title } = now(), x = list[at()];
      const inside = Math.min(Math.max(x, edges[0]), edges[edges.length - 1]);
      const traces = Object.entries(heights).map(([name, values]) => {
        const i = data.sets.indexOf(name);
        return {
          name: cut(name), x: edges, y: [...values, values[values.length - 1]], type: "scatter", mode: "lines",
          line: { shape: "hv", color: colour(i), width: 1.8, dash: DASHES[i % DASHES.length] },
          fill: i < 3 ? "tozeroy" : "none", fillcolor: faint(i, 0.15), hovertemplate: "%{fullData.name}, from %{x:.4g}: %{y:.2%}<extra></extra>",
        };
      });
      const highest = Math.max(...Object.values(heights).flat());
      const line = { type: "line", x0: inside, x1: inside, y0: 0, y1: 1, yref: "paper", line: { color: style("--ink"), width: 2 } };
      const kind = highest > 0.5 ? { type: "log", dtick: 1, tickformat: "~%" } : { tickformat: ".0%", rangemode: "tozero" };
      return [traces, layout(plain(title), "share of samples", { shapes: x === null ? [] : [line], yaxis: kind, uirevision: select.value })];
    }
    const draw = drawn("bins", () => (now().bins.edges.length ? bins() : [[], layout("", "")]));

    function show() {
      const found = shares(at()), value = written(now().thresholds[at()]), title = now().title;
      const [alarms, ...others] = [found.find(([name]) => name === data.known), ...found.filter(([name]) => name !== data.known)];
      range.setAttribute("aria-valuetext", `${title} below ${value}: ${percent(alarms[1])} false alarms`);
      const caught = others.map(([name, share]) => `${percent(share)} of ${name}`).join(", ");
      $("live").textContent = `${title} below ${value}: ${percent(alarms[1])} false alarms` + (caught ? `; caught: ${caught}.` : ".");
      fill($("flagged").tBodies[0], found.map(([name, share]) => {
        const bar = document.createElement("span");
        bar.className = "share";
        bar.style.width = `${100 * share}%`;
        const size = data.sizes[name];
        const count = size ? `${Math.round(share * size).toLocaleString("en")} of ${size.toLocaleString("en")}` : "–";
        return [name === data.known ? "known" : "", `${name}${name === data.known ? " (false alarms)" : ""}`, percent(share), count, bar];
      }));
      $("bins").setAttribute("aria-label", `Histograms of ${title} for ${Object.keys(now().flagged).join(", ")}. The threshold is at ${value}.`);
      draw();
    }
    function choose() {
      range.max = now().thresholds.length - 1;
      range.value = place();
      show();
    }
    select.value = data.baseline in data.alarms ? data.baseline : Object.keys(data.alarms)[0];
    select.addEventListener("change", choose);
    range.addEventListener("input", () => {
      level = now().flagged[data.known][at()];
      show();
    });
    document.querySelectorAll("[data-level]").forEach((button) => button.addEventListener("click", () => {
      level = +button.dataset.level;
      choose();
    }));
    choose();
  }

  const diagonal = () => ({ x: [0, 1], y: [0, 1], mode: "lines", line: { color: style("--muted"), width: 1, dash: "dot" }, hoverinfo: "skip", showlegend: false });

  function curves() {
    const select = $("ood");
    const draw = drawn("roc", () => [
      [diagonal(), ...data.roc[select.value].map((curve, i) => ({
        name: plain(curve.name), x: curve.fpr, y: curve.tpr, mode: "lines",
        line: { color: colour(i), width: curve.wide ? 4 : 1.8, dash: curve.dashed ? "dash" : "solid" }, opacity: curve.wide ? 0.6 : 1,
        hovertemplate: "%{fullData.name}<br>false positive %{x:.2%}, true positive %{y:.2%}<extra></extra>",
      }))],
      layout("false positive rate (OOD kept)", "true positive rate (ID kept)", { xaxis: { range: [0, 1] }, yaxis: { range: [0, 1.01] } }),
    ]);
    select.addEventListener("change", draw);
  }

  function reliability() {
    drawn("reliability", () => [
      [diagonal(), ...data.reliability.map((curve, i) => ({
        name: plain(curve.name), x: curve.confidence, y: curve.accuracy, mode: "lines+markers", customdata: curve.samples.map((n, j) => [n, curve.low[j], curve.high[j]]),
        line: { color: colour(i), width: 1.8, dash: DASHES[i % DASHES.length] }, marker: { size: 7, symbol: SYMBOLS[i % SYMBOLS.length] },
        error_y: { type: "data", symmetric: false, color: faint(i, 0.5), width: 0, array: curve.high.map((x, j) => x - curve.accuracy[j]), arrayminus: curve.low.map((x, j) => curve.accuracy[j] - x) },
        hovertemplate: "%{fullData.name}<br>confidence %{x:.3f}<br>accuracy %{y:.3f} (%{customdata[1]:.3f} to %{customdata[2]:.3f})<br>%{customdata[0]:,} samples<extra></extra>",
      }))],
      layout("confidence", "accuracy", { xaxis: { range: [0, 1.02] }, yaxis: { range: [0, 1.02] } }),
    ]);
  }

  const all = data.samples.row ? data.samples.row.map((_, i) => i) : [];
  const called = (i) => data.samples.names[data.samples.set[i]];
  const target = (i) => (data.samples.target[i] < 0 ? "–" : String(data.samples.target[i]));

  function coherence() {
    const { confidence, least, most } = data.band, s = data.samples;
    const lowest = Math.max(0, Math.min(...s.confidence) - 0.02), inside = confidence.map((_, i) => i).filter((i) => confidence[i] >= lowest);
    const part = (list) => inside.map((i) => list[i]);
    // The gap of two classes is 0, up to rounding: the axis is never so short that it shows rounding.
    const highest = Math.max(...part(most), ...s.gap), heights = highest < 0.01 ? { range: [-0.0005, 0.0105] } : { rangemode: "tozero" };
    const label = (i) => [s.row[i], s.prediction[i], target(i), chance(s.p_value[i]), fixed(s.concentration[i], 4)];
    drawn("coherence", () => {
      const edge = { x: part(confidence), mode: "lines", hoverinfo: "skip" };
      const band = [
        { ...edge, y: part(most), line: { width: 0 }, showlegend: false },
        { ...edge, name: "possible", y: part(least), fill: "tonexty", fillcolor: faint(5, 0.25), line: { color: colour(5), width: 1.2 } },
      ];
      const points = s.names.map((name, k) => {
        const mine = all.filter((i) => s.set[i] === k), j = data.sets.indexOf(name);
        return {
          name: cut(name), x: mine.map((i) => s.confidence[i]), y: mine.map((i) => s.gap[i]), mode: "markers", customdata: mine.map(label),
          zorder: j ? 1 : 2, marker: { color: colour(j), symbol: SYMBOLS[j % SYMBOLS.length] + (j ? "-open" : ""), size: 6, opacity: 0.65 },
          hovertemplate: "%{fullData.name}, row %{customdata[0]}: p̂ %{x:.4f}, Δ %{y:.4f}<br>predicted %{customdata[1]}, target %{customdata[2]}<br>ρ %{customdata[4]}, p-value %{customdata[3]}<extra></extra>",
        };
      });
      return [[...band, ...points.filter((trace) => trace.x.length)], layout("confidence p̂", "coherence gap Δ", { xaxis: { range: [lowest, 1.01] }, yaxis: heights })];
    });
  }

  function list() {
    const s = data.samples, body = $("list").tBodies[0], buttons = [...$("list").querySelectorAll("button")];
    let key = "log_odds", rising = true, shown = PAGE;
    const suspicious = all.filter((i) => s.suspicious[i]);
    const value = (i) => (key === "set" ? s.set[i] : key === "target" && s.target[i] < 0 ? null : s[key][i]);
    function compare(a, b) {
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null); // unknown values come last in both directions
      return (rising ? 1 : -1) * (x - y) || s.log_odds[a] - s.log_odds[b] || a - b;
    }
    function show() {
      const among = $("among").value, found = suspicious.filter((i) => !among || called(i) === among).sort(compare), visible = found.slice(0, shown);
      fill(body, visible.map((i) => [
        "", called(i), s.row[i].toLocaleString("en"), String(s.prediction[i]), target(i),
        ...["confidence", "gap", "concentration"].map((name) => fixed(s[name][i], 4)), fixed(s.log_odds[i], 3), chance(s.p_value[i]),
      ]));
      visible.forEach((i, at) => {
        if (s.target[i] >= 0 && s.target[i] !== s.prediction[i]) body.rows[at].cells[2].className = "wrong";
      });
      buttons.forEach((button) => {
        const head = button.parentElement;
        if (button.dataset.key === key) head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
      const by = buttons.find((button) => button.dataset.key === key).textContent;
      $("listed").textContent = `${visible.length} of ${found.length} samples, by ${by}, ${rising ? "lowest" : "highest"} first`;
      $("more").hidden = visible.length === found.length;
    }
    buttons.forEach((button) => button.addEventListener("click", () => {
      rising = button.dataset.key === key ? !rising : true;
      key = button.dataset.key;
      show();
    }));
    $("among").addEventListener("change", () => {
      shown = PAGE;
      show();
    });
    $("more").addEventListener("click", () => {
      const first = shown;
      shown += PAGE;
      show();
      if ($("more").hidden) body.rows[first].scrollIntoView({ block: "nearest" });
    });
    show();
  }

  if ($("line")) thresholds();
  if ($("roc")) curves();
  if ($("reliability")) reliability();
  if ($("coherence")) coherence();
  if ($("list")) list();
})();
