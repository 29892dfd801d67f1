// Sliders over the numbers in a page's own JSON (`train/evaluate/exploration.py` says what is in it). No number is made here: what is
// drawn is what is there, point by point, and every point carries it as data-value.
"use strict";
(() => {
  const NARROW = 300, HEIGHT = 250, SAME = 1e-9, EVERY = 2000; // pixels, relative distance, milliseconds

  function made(space, name, attributes = {}, ...children) {
    const node = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }
  const space = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;
  const svg = (...given) => made(space, ...given);
  const html = (...given) => made("", ...given);
  const isNumber = (x) => typeof x === "number" && Number.isFinite(x);
  const words = (name) => ({ gamma: "γ₀", gamma0: "γ₀" })[name] ?? name.replaceAll("_", " ");

  function shown(x) {
    if (x === "inf") return "diverged";
    if (!isNumber(x)) return String(x);
    const digits = Number(x.toPrecision(4));
    return Number.isInteger(x) && Math.abs(x) < 1e6 ? String(x) : String(digits).replace("-", "−");
  }

  const same = (a, b) => a === b || (isNumber(a) && isNumber(b) && Math.abs(a - b) <= SAME * Math.abs(b));
  const at = (values, place) => place.reduce((part, i) => part[i], values);

  function nearest(grid, wanted) {
    const apart = (x) => Math.abs(x > 0 && wanted > 0 ? Math.log(x / wanted) : x - wanted);
    let best = 0;
    grid.forEach((x, i) => { if (apart(x) < apart(grid[best])) best = i; });
    return best;
  }

  function scale(values, from, to, log) {
    const f = log ? Math.log : (x) => x;
    const [low, high] = [f(Math.min(...values)), f(Math.max(...values))];
    const margin = high > low ? 0.04 * (high - low) : 0.5;
    const map = (x) => from + (to - from) * (f(x) - low + margin) / (high - low + 2 * margin);
    const back = (x) => (log ? Math.exp(x) : x);
    return Object.assign(map, { log, low: back(low - margin), high: back(high + margin) });
  }

  function ticks(map, most) {
    const { low, high } = map, found = [];
    const decades = map.log ? Math.log10(high / low) : 0;
    if (decades > 0.5) {
      const first = Math.floor(Math.log10(low));
      const parts = decades < 0.9 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : decades < 2.2 ? [1, 2, 5] : [1];
      const every = decades < 2.2 ? 1 : Math.max(1, Math.ceil(decades / most));
      for (let k = first; k <= Math.log10(high) + 1; k += every) for (const part of parts) found.push(part * 10 ** k);
    } else {
      const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
      const step = unit * [1, 2, 5, 10].find((m) => m * unit >= rough);
      for (let x = Math.ceil(low / step); x * step <= high; x++) found.push(Number((x * step).toPrecision(12)));
    }
    return found.map((x) => Number(x.toPrecision(6))).filter((x) => x >= low && x <= high);
  }

  function thinned(values, map, apart) { // of what would lie too close, the first
    let last = -Infinity;
    return values.filter((x) => Math.abs(map(x) - last) >= apart && ((last = map(x)), true));
  }

  class Exploration {
    constructor(section) {
      this.section = section;
      this.chosen = {}; // the value of every axis that was asked for
      this.here = section.querySelector(".here");
      this.read();
      this.controls = html("div", { class: "controls" });
      this.readout = html("p", { class: "readout", "aria-live": "polite" });
      this.legend = html("div", { class: "legend" });
      this.panels = html("div", { class: "panels" });
      this.here.replaceChildren(this.controls, this.readout, this.legend, this.panels);
      this.fromAddress();
      new ResizeObserver(() => this.draw()).observe(this.panels);
    }

    read() {
      this.data = JSON.parse(this.section.querySelector("script").textContent);
      this.outer = this.data.axes;
      this.cells = this.data.cells.map((cell) => ({
        ...cell,
        at: cell.at.map((i, a) => this.outer[a].values[i]),
        grids: cell.grids.map((i) => this.data.grids[i]),
      }));
      this.chosen = { ...this.data.start, ...this.chosen };
    }

    fromAddress() { // #width=64&depth=3
      const given = new URLSearchParams(location.hash.slice(1));
      for (const name of this.names) {
        if (!given.has(name)) continue;
        const word = given.get(name), number = Number(word);
        this.chosen[name] = word !== "" && !Number.isNaN(number) ? number : word;
      }
      this.settle();
    }

    choose(...pairs) { // [axis, value]; they stay in the address, from where a page that is made anew has them
      const address = new URLSearchParams(location.hash.slice(1));
      for (const [name, value] of pairs) {
        this.chosen[name] = value;
        address.set(name, value);
      }
      this.settle(pairs[0][0]);
      history.replaceState(null, "", `#${address}`);
    }

    settle(first = "") { // on the cell that has most of what is chosen, what was chosen last before all
      const away = (cell) => this.outer.reduce((sum, { name, values }, a) => {
        const wanted = this.chosen[name], has = cell.at[a];
        if (same(has, wanted)) return sum;
        const places = [values.indexOf(has), values.findIndex((x) => same(x, wanted))];
        return sum + (name === first ? 1e6 : 1) * (1 + Math.abs(places[0] - places[1]) / values.length);
      }, 0);
      this.cell = this.cells.reduce((best, cell) => (away(cell) < away(best) ? cell : best));
      this.outer.forEach(({ name }, a) => { this.chosen[name] = this.cell.at[a]; });
      this.place = this.data.inner.map((name, i) => {
        const stops = this.stops(name);
        this.chosen[name] = stops[nearest(stops, this.chosen[name])];
        return this.cell.grids[i].findIndex((x) => same(x, this.chosen[name]));
      });
      this.control();
      this.draw();
    }

    stops(name) { // along a grid, those that all lines of a picture have
      const a = this.outer.findIndex((axis) => axis.name === name), i = this.data.inner.indexOf(name);
      if (a >= 0) return this.outer[a].values;
      const others = this.cells.filter((cell) => this.outer.every(({ name: each }, b) =>
        this.data.together.includes(each) || same(cell.at[b], this.cell.at[b])));
      const shared = this.cell.grids[i].filter((x) => others.every((cell) => cell.grids[i].some((y) => same(x, y))));
      return shared.length > 1 ? shared : this.cell.grids[i];
    }

    get names() {
      return [...this.outer.map((axis) => axis.name), ...this.data.inner];
    }

    control() {
      for (const name of this.names) {
        const stops = this.stops(name);
        let box = this.controls.querySelector(`[data-name="${CSS.escape(name)}"]`);
        if (!box && stops.length > 1) this.controls.append((box = this.box(name, stops)));
        if (!box) continue;
        const input = box.querySelector("input, select"), now = stops.findIndex((x) => same(x, this.chosen[name]));
        if (input.tagName === "SELECT") {
          input.replaceChildren(...stops.map((x, i) => html("option", { value: i }, shown(x))));
        } else {
          input.max = stops.length - 1;
          input.setAttribute("aria-valuetext", shown(this.chosen[name]));
          box.querySelector("output").textContent = shown(this.chosen[name]);
        }
        input.value = now;
      }
    }

    box(name, stops) {
      const input = stops.some(isNumber) ? html("input", { type: "range", min: 0, step: 1 }) : html("select");
      input.addEventListener("input", () => this.choose([name, this.stops(name)[Number(input.value)]]));
      const title = html("span", { class: "name" }, words(name));
      return html("label", { "data-name": name }, title, input, ...(input.tagName === "INPUT" ? [html("output")] : []));
    }

    key(cell, axis) { // of the line that a cell belongs to, in a panel over this axis
      return this.outer.map(({ name }, a) => (name !== axis && this.data.together.includes(name) ? cell.at[a] : null));
    }

    lines(axis) { // [{key, points: [{x, place, cell}], level: points without an x}], the chosen one last
      const inner = this.data.inner.indexOf(axis), outer = this.outer.findIndex(({ name }) => name === axis);
      const found = new Map();
      for (const cell of this.cells) {
        const free = (name) => name === axis || this.data.together.includes(name);
        if (!this.outer.every(({ name }, a) => free(name) || same(cell.at[a], this.chosen[name]))) continue;
        const place = this.data.inner.map((name, i) => cell.grids[i].findIndex((x) => same(x, this.chosen[name])));
        if (place.some((i, n) => i < 0 && n !== inner)) continue;
        const key = this.key(cell, axis), id = JSON.stringify(key);
        if (!found.has(id)) found.set(id, { key, points: [], level: [], chosen: false });
        const line = found.get(id);
        line.chosen ||= cell === this.cell;
        if (inner >= 0) cell.grids[inner].forEach((x, i) => line.points.push({ x, cell, place: place.with(inner, i) }));
        else (isNumber(cell.at[outer]) ? line.points : line.level).push({ x: cell.at[outer], cell, place });
      }
      for (const line of found.values()) line.points.sort((p, q) => p.x - q.x);
      return [...found.values()].sort((p, q) => p.chosen - q.chosen);
    }

    style(line, values = line.key) { // {class, rank}: numbers on a scale of colours, words each a colour of its own
      let rank = 1, word = "";
      this.outer.forEach(({ name, values: all }, a) => {
        if (!this.data.together.includes(name) || values[a] === null) return;
        const numbers = all.filter(isNumber), named = all.filter((x) => !isNumber(x));
        if (isNumber(values[a])) rank = numbers.length > 1 ? numbers.indexOf(values[a]) / (numbers.length - 1) : 1;
        else if (values[a] !== "measured") word = ` word${named.filter((x) => x !== "measured").indexOf(values[a]) % 3}`;
      });
      return { class: `line${word}`, style: `--rank: ${(100 * rank).toFixed(0)}%` };
    }

    draw() {
      const numeric = (values) => values.filter(isNumber).length > 1;
      const axes = [...this.data.inner.filter((name) => numeric(this.stops(name))),
        ...this.outer.filter((axis) => numeric(axis.values)).map((axis) => axis.name)];
      const one = this.value(this.cell, this.place);
      const where = this.names.filter((name) => this.controls.querySelector(`[data-name="${CSS.escape(name)}"]`));
      this.readout.replaceChildren(
        `${this.data.quantity} `, html("strong", { "data-value": one.value }, shown(one.value)),
        ...(isNumber(one.low) && isNumber(one.high) ? [` [${shown(one.low)}, ${shown(one.high)}]`] : []),
        html("span", { class: "muted" }, ` ${this.said(where.map((name) => [name, this.chosen[name]]))}`));
      this.drawLegend();
      const all = this.cells.flatMap((cell) => [cell.value, cell.low, cell.high].flat(Infinity)).filter(isNumber);
      this.log = Math.min(...all) > 0 && Math.max(...all) > 5 * Math.min(...all);
      this.panels.replaceChildren(...axes.map((axis) => this.panel(axis)));
    }

    value(cell, place) {
      return { value: at(cell.value, place), low: cell.low && at(cell.low, place), high: cell.high && at(cell.high, place) };
    }

    said(pairs) {
      const limit = pairs.some(([name, x]) => this.data.together.includes(name) && !isNumber(x) && x !== "measured");
      const kept = pairs.filter(([, x]) => !(limit && x === "measured")); // of what no one could measure
      return kept.map(([name, x]) => (isNumber(x) ? `${words(name)} ${shown(x)}` : x)).join(", ");
    }

    drawLegend() {
      const seen = new Map();
      for (const cell of this.cells) {
        const key = this.key(cell, "");
        if (key.some((x) => x !== null)) seen.set(JSON.stringify(key), { key, cell });
      }
      const buttons = seen.size < 2 ? [] : [...seen.values()].map(({ key }) => {
        const names = this.outer.map(({ name }, a) => [name, key[a]]).filter(([, x]) => x !== null);
        const now = names.every(([name, x]) => same(this.chosen[name], x));
        const { class: kind, style } = this.style(null, key);
        const button = html("button", { type: "button", "aria-pressed": now }, html("i", { class: kind, style }), this.said(names));
        button.addEventListener("click", () => this.choose(...names));
        return button;
      });
      this.legend.replaceChildren(...buttons);
    }

    panel(axis) {
      const lines = this.lines(axis), width = Math.max(NARROW, Math.floor(this.panelWidth()));
      const points = lines.flatMap((line) => [...line.points, ...line.level]);
      const heights = points.flatMap(({ cell, place }) => Object.values(this.value(cell, place))).filter((y) => isNumber(y) && (!this.log || y > 0));
      const [left, right, top, bottom] = [56, width - 12, 22, HEIGHT - 40];
      const xs = lines.flatMap((line) => line.points.map(({ x }) => x));
      const ratio = Math.max(...xs) / Math.min(...xs);
      const x = scale(xs.length ? xs : [1], left, right, axis !== "step" && Math.min(...xs) > 0 && ratio >= 4);
      const y = scale(heights.length ? heights : [1], bottom, top, this.log);
      const root = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "data-axis": axis,
        "aria-label": `${this.data.quantity} against ${words(axis)}` });
      this.frame(root, axis, [x, y], [...new Set(xs)], [left, right, top, bottom]);
      this.named = []; // heights of names of levels: one that would cover others stands beside them
      for (const line of lines) this.line(root, line, [x, y], [left, right, top, bottom]);
      return root;
    }

    panelWidth() {
      const whole = this.panels.clientWidth, gap = 16, columns = Math.max(1, Math.min(3, Math.floor((whole + gap) / (340 + gap))));
      return (whole - gap * (columns - 1)) / columns;
    }

    frame(root, axis, [x, y], values, [left, right, top, bottom]) {
      const few = values.length <= 8 ? values.sort((p, q) => p - q) : ticks(x, (right - left) / 60);
      for (const value of thinned(few, x, 44)) {
        root.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: bottom }),
          svg("text", { class: "tick", x: x(value), y: bottom + 15, "text-anchor": "middle", "data-x": value }, shown(value)));
      }
      for (const value of thinned(ticks(y, 5), y, 18)) {
        root.append(svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
          svg("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end", "data-y": value }, shown(value)));
      }
      const chosen = this.chosen[axis];
      if (isNumber(chosen)) root.append(svg("line", { class: "cursor", x1: x(chosen), x2: x(chosen), y1: top, y2: bottom }));
      root.append(svg("text", { class: "title", x: left, y: 13 }, this.data.quantity),
        svg("text", { class: "title", x: (left + right) / 2, y: bottom + 32, "text-anchor": "middle" }, words(axis)));
    }

    line(root, line, [x, y], [left, right, top]) {
      const group = svg("g", { ...this.style(line), ...(line.chosen ? { "data-chosen": "" } : {}) });
      const points = line.points.map((point) => ({ ...point, ...this.value(point.cell, point.place) }));
      const height = (value) => (isNumber(value) && (!this.log || value > 0) ? y(value) : null);
      const drawn = points.filter((point) => height(point.value) !== null);
      if (line.chosen) {
        const band = drawn.filter((point) => height(point.low) !== null && height(point.high) !== null);
        const ends = [...band.map((p) => [x(p.x), y(p.high)]), ...band.reverse().map((p) => [x(p.x), y(p.low)])];
        if (band.length > 1) group.append(svg("polygon", { class: "band", points: ends.map((p) => p.join()).join(" ") }));
        else for (const p of band) group.append(svg("line", { class: "bar", x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high) }));
      }
      let path = "", lifted = true; // a line is broken where a run diverged
      for (const point of points) {
        const h = height(point.value);
        if (h !== null) path += `${lifted ? "M" : "L"}${x(point.x).toFixed(1)} ${h.toFixed(1)}`;
        lifted = h === null;
      }
      group.append(svg("path", { d: path }));
      for (const point of line.level.map((each) => ({ ...each, ...this.value(each.cell, each.place) }))) {
        const h = height(point.value), { class: kind } = this.style(null, this.outer.map((_, a) => point.cell.at[a]));
        if (h === null) continue;
        const beside = this.named.filter((other) => Math.abs(other - h) < 12).length;
        this.named.push(h);
        group.append(svg("line", { class: `level ${kind}`, x1: left, x2: right, y1: h, y2: h, "data-value": point.value, "data-x": point.x }),
          svg("text", { class: `${kind} name`, x: left + 4 + 90 * beside, y: h - 4 }, shown(point.x)));
      }
      for (const point of points) {
        const h = height(point.value), about = { "data-x": point.x, "data-value": point.value };
        const said = svg("title", {}, `${shown(point.x)}: ${shown(point.value)}`);
        const now = point.cell === this.cell && point.place.every((i, n) => i === this.place[n]);
        if (h === null) group.append(svg("text", { class: "lost", x: x(point.x), y: top + 4, "text-anchor": "middle", ...about }, "×", said));
        else group.append(svg("circle", { cx: x(point.x), cy: h, r: now ? 5.5 : line.chosen && points.length < 30 ? 3 : 1.8, ...about, ...(now ? { class: "now" } : {}) }, said));
      }
      root.append(group);
    }
  }

  document.documentElement.classList.add("script");
  let pages = [...document.querySelectorAll(".explore")].map((section) => new Exploration(section));
  window.addEventListener("hashchange", () => pages.forEach((page) => page.fromAddress()));

  async function renew() { // a page that is served while the numbers come in; sliders stay where they are
    const answer = await fetch(location.pathname, { cache: "no-cache" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!("live" in fresh.body.dataset)) return location.reload(); // finished: with its pictures
    if (fresh.body.dataset.live === document.body.dataset.live) return undefined;
    document.body.replaceChildren(...[...fresh.body.childNodes].filter((node) => node.nodeName !== "SCRIPT"));
    document.body.dataset.live = fresh.body.dataset.live;
    pages = [...document.querySelectorAll(".explore")].map((section) => new Exploration(section));
    return undefined;
  }
  if ("live" in document.body.dataset) setInterval(() => renew().catch(() => undefined), EVERY);
})();
