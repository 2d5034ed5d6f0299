"use strict";
// Draws the page from the JSON inside it. Four kinds of picture: curves, bars, maps of numbers, tables of counts.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const tip = document.querySelector(".tip");
  const NS = "http://www.w3.org/2000/svg";
  const redraw = []; // what depends on the theme's colours

  // ---- small tools -------------------------------------------------------------------------------------------
  const make = (parent, tag, attributes = {}, text) => {
    const drawn = parent instanceof SVGElement || tag === "svg";
    const node = drawn ? document.createElementNS(NS, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const round = (value, digits = 3) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
    return size >= 10000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(size >= 1000 ? Math.max(4, digits) : digits));
  };
  const percent = (value) => `${(100 * value).toFixed(1)}%`;
  const known = (values) => values.filter((value) => value !== null && Number.isFinite(value));
  // What was put there under this name: every object also inherits some, such as `constructor`.
  const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);
  const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const ofPart = (what) => (data.part ? ` ${what} is of the ${data.part} part.` : "");
  const tell = (node, text) => make(node, "p", { class: "note" }, text);
  const whole = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : round(value));
  // How much room a text takes, nearly: letters of East Asia are twice as wide as others.
  const span = (text, letter = 6.6) => letter * [...text].reduce((sum, one) => sum + (one > "\u2e7f" ? 2 : 1), 0);
  const short = (text, most) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);
  // A text that is shortened says all of itself when it is pointed at.
  const label = (svg, attributes, text, most = 20) => {
    const node = make(svg, "text", attributes, short(text, most));
    if (short(text, most) !== text) make(node, "title", {}, text);
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const mix = (from, to, part) => from.map((value, place) => Math.round(value + (to[place] - value) * part));

  const say = (event, text) => {
    tip.textContent = text;
    tip.classList.add("on");
    const box = tip.getBoundingClientRect();
    // Without what a scroll bar takes; where there is no room to the right of the pointer, to the left of it.
    const beside = event.clientX + 14, edge = document.documentElement.clientWidth - 12;
    const left = beside + box.width > edge ? Math.min(event.clientX - 14, edge) - box.width : beside;
    const above = event.clientY + 18 + box.height > innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above ? event.clientY - box.height - 12 : event.clientY + 18}px`;
  };
  const hush = () => tip.classList.remove("on");

  const section = (id, title, text) => {
    const node = make(page, "section", { id });
    make(node, "h2", {}, title);
    if (text) make(node, "p", {}, text);
    return node;
  };
  const card = (parent, title, wide) => {
    const node = make(parent, "div", { class: wide ? "card wide" : "card" }), head = make(node, "div", { class: "head" });
    make(head, "h3", {}, title);
    return { node, head };
  };
  // Buttons for a few, a list for many.
  const picker = (parent, names, label, choose) => {
    if (names.length < 2) return choose(0);
    const node = make(parent, "div", { class: "picker" });
    if (names.length > 8) {
      const list = make(node, "select", { "aria-label": label });
      names.forEach((name, place) => make(list, "option", { value: place }, name));
      list.addEventListener("change", () => choose(+list.value));
    } else {
      const buttons = names.map((name, place) => {
        const button = make(node, "button", { type: "button", "aria-pressed": place === 0 }, name);
        button.addEventListener("click", () => {
          buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
          choose(place);
        });
        return button;
      });
    }
    choose(0);
  };

  // ---- scales ------------------------------------------------------------------------------------------------
  const nice = (low, high, count) => {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
    const ticks = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) ticks.push(+at.toPrecision(12));
    return ticks;
  };
  const decades = (low, high) => {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const stride = Math.max(1, Math.ceil((last - first) / 6));
    // Within less than two decades, twos and fives as well.
    const factors = Math.log10(high / low) < 2 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = first; power <= last; power += stride) for (const factor of factors) ticks.push(+(factor * 10 ** power).toPrecision(3));
    const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    return inside.length > 1 ? inside : nice(low, high, 4).filter((tick) => tick > 0);
  };
  // As few digits as it takes to tell ticks apart.
  const texts = (ticks) => {
    const tries = [3, 4, 5, 6].map((digits) => ticks.map((tick) => round(tick, digits)));
    return tries.find((found) => new Set(found).size === ticks.length) || tries[3];
  };
  // The room inside an element: charts are drawn at their true size, so that their letters are.
  const room = (node) => {
    const style = getComputedStyle(node);
    return Math.max(260, node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
  };
  const scale = (low, high, from, to, log) => {
    const place = log ? Math.log10 : (value) => value;
    const start = place(low), span = place(high) - start || 1;
    return (value) => from + ((place(value) - start) / span) * (to - from);
  };

  // ---- curves ------------------------------------------------------------------------------------------------
  // series: {name, x, y, color, faint, dashed, band: [low, high]}; all numbers, null where there is none.
  const curves = (parent, series, options = {}) => {
    const W = room(parent), H = options.height || 230;
    const pad = { left: options.left ?? 46, right: options.right ?? 12, top: options.unit ? 24 : 10, bottom: 34 };
    const svg = make(parent, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.label || "curves" });
    const xs = series.flatMap((one) => known(one.x));
    let ys = series.flatMap((one) => known(one.y));
    if (options.log) ys = ys.filter((value) => value > 0);
    if (!xs.length || !ys.length) { make(svg, "text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, "no numbers"); return svg; }
    const [x0, x1] = options.xrange || [Math.min(...xs), Math.max(...xs)];
    let y0 = options.low ?? Math.min(...ys), y1 = options.high ?? Math.max(...ys);
    if (y0 === y1) { const spread = Math.abs(y0) * 0.1 || 1; y0 -= options.log ? 0 : spread; y1 += spread; if (options.log) y0 /= 2; }
    else if (!options.log && options.low === undefined) { const spare = (y1 - y0) * 0.05; y0 -= spare; y1 += options.high === undefined ? spare : 0; }
    const px = scale(x0, x1 === x0 ? x0 + 1 : x1, pad.left, W - pad.right), py = scale(y0, y1, H - pad.bottom, pad.top, options.log);
    const show = options.format || (options.unit ? (value) => `${round(value)} ${options.unit}` : round);
    const ticks = options.log ? decades(y0, y1) : nice(y0, y1, 4);
    const labels = show === percent ? ticks.map((tick) => `${+(100 * tick).toPrecision(3)}%`) : texts(ticks);
    ticks.forEach((tick, place) => {
      make(svg, "line", { class: "grid", x1: pad.left, x2: W - pad.right, y1: py(tick), y2: py(tick) });
      make(svg, "text", { x: pad.left - 7, y: py(tick), "text-anchor": "end", "dominant-baseline": "middle" }, labels[place]);
    });
    if (options.unit) make(svg, "text", { x: pad.left - 7, y: 9, "text-anchor": "end" }, options.unit);
    make(svg, "line", { class: "axis", x1: pad.left, x2: W - pad.right, y1: H - pad.bottom, y2: H - pad.bottom });
    // There is no half an epoch, and no half a step.
    for (const tick of nice(x0, x1, 6).filter(Number.isInteger))
      make(svg, "text", { x: px(tick), y: H - pad.bottom + 15, "text-anchor": "middle" }, round(tick));
    if (options.xlabel) make(svg, "text", { x: W - pad.right, y: H - 4, "text-anchor": "end" }, options.xlabel);
    for (const x of options.guides || []) make(svg, "line", { class: "guide", x1: px(x), x2: px(x), y1: pad.top, y2: H - pad.bottom });
    // What is below a scale of powers is not at its edge, however small: it is not drawn.
    const drawn = (y) => y !== null && Number.isFinite(y) && (!options.log || y >= y0 * 0.999);
    for (const one of series) {
      let path = "", open = false;
      one.x.forEach((x, place) => {
        const y = one.y[place], good = drawn(y);
        if (good) path += `${open ? "L" : "M"}${px(x).toFixed(1)} ${py(Math.min(Math.max(y, y0), y1)).toFixed(1)}`;
        open = good;
      });
      make(svg, "path", { class: one.faint ? "curve faint" : "curve", d: path, style: `stroke: var(${one.color})${one.dashed ? "; stroke-dasharray: 5 4" : ""}` });
      if (one.x.length < 40 && !one.faint && !one.dashed) one.x.forEach((x, place) => {
        const y = one.y[place], none = options.log && y === 0;
        // Zero has no place on a scale of powers: it is a ring at the lower edge.
        if (none) make(svg, "circle", { class: "zero", cx: px(x), cy: H - pad.bottom, r: 3, style: `stroke: var(${one.color})` });
        else if (drawn(y)) make(svg, "circle", { cx: px(x), cy: py(Math.min(Math.max(y, y0), y1)), r: 2.2, style: `fill: var(${one.color})` });
      });
    }
    const hair = make(svg, "line", { class: "hair", y1: pad.top, y2: H - pad.bottom });
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      const x = x0 + (((event.clientX - box.left) / box.width) * W - pad.left) / (W - pad.left - pad.right) * (x1 - x0);
      let nearest = xs[0];
      for (const value of xs) if (Math.abs(value - x) < Math.abs(nearest - x)) nearest = value;
      hair.setAttribute("x1", px(nearest)); hair.setAttribute("x2", px(nearest)); hair.classList.add("on");
      const lines = series.map((one) => [one, one.x.indexOf(nearest)]).filter(([one, place]) => place >= 0 && one.y[place] !== null);
      say(event, [`${options.xname || options.xlabel || "step"} ${whole(nearest)}`, ...lines.map(([one, place]) => `${one.name}  ${show(one.y[place])}`)].join("\n"));
    };
    svg.addEventListener("pointermove", at);
    svg.addEventListener("pointerdown", at);
    svg.addEventListener("pointerleave", () => { hair.classList.remove("on"); hush(); });
    return svg;
  };
  const legend = (head, series) => {
    const node = make(head, "span", { class: "legend" });
    for (const one of series) {
      const entry = make(node, "span", {});
      make(entry, "i", { class: one.dashed ? "dashed" : "", style: `color: var(${one.color})${one.faint ? "; opacity: .4" : ""}` });
      entry.append(one.name);
    }
  };

  // ---- bars --------------------------------------------------------------------------------------------------
  const bars = (parent, edges, counts, options) => {
    const W = room(parent), H = 210, left = 40, bottom = 34;
    const svg = make(parent, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.label });
    const most = Math.max(...counts, 1);
    // A bar begins half a step before its first length, so that one of a single length stands above its number.
    const low = edges[0] - 0.5, high = edges[edges.length - 1] - 0.5;
    const px = scale(low, high, left, W - 10), py = scale(0, most, H - bottom, 10);
    for (const tick of nice(0, most, 4)) {
      make(svg, "line", { class: "grid", x1: left, x2: W - 10, y1: py(tick), y2: py(tick) });
      make(svg, "text", { x: left - 7, y: py(tick), "text-anchor": "end", "dominant-baseline": "middle" }, round(tick));
    }
    counts.forEach((count, place) => {
      const x = px(edges[place] - 0.5), width = Math.max(0.5, px(edges[place + 1] - 0.5) - x - 1);
      const bar = make(svg, "rect", { class: "bar", x, y: py(count), width, height: H - bottom - py(count), rx: 1.5 });
      const last = edges[place + 1] - 1;
      bar.addEventListener("pointermove", (event) => say(event, `${edges[place]}${last > edges[place] ? ` to ${last}` : ""} ${last === 1 ? "step" : "steps"}\n${counted(count, "sequence")}`));
      bar.addEventListener("pointerleave", hush);
    });
    for (const tick of nice(low, high, 6).filter(Number.isInteger))
      make(svg, "text", { x: px(tick), y: H - bottom + 15, "text-anchor": "middle" }, round(tick));
    make(svg, "text", { x: W - 10, y: H - 4, "text-anchor": "end" }, "steps");
  };

  // ---- maps of numbers ---------------------------------------------------------------------------------------
  // values: rows × columns of numbers between -limit and limit (signed) or 0 and limit.
  const unpack = (packed) => {
    const bytes = Uint8Array.from(atob(packed.values), (letter) => letter.charCodeAt(0));
    const signed = (place) => bytes[place] << 24 >> 24;
    // -128 stands for what is no finite number.
    const value = (place) => (signed(place) === -128 ? NaN : (signed(place) / 127) * packed.limit);
    return { ...packed, at: (row, column) => value(row * packed.columns + column) };
  };
  const map = (parent, grid, height, describe) => {
    const canvas = make(parent, "canvas", { width: grid.columns, height: grid.rows, style: `height: ${height}px`, role: "img", "aria-label": "a map of numbers" });
    const draw = () => {
      const pen = canvas.getContext("2d"), image = pen.createImageData(grid.columns, grid.rows);
      const [cold, zero, warm, none] = ["--cold", "--zero", "--warm", "--soft"].map((name) => rgb(color(name)));
      for (let row = 0; row < grid.rows; row++) for (let column = 0; column < grid.columns; column++) {
        const part = grid.at(row, column) / grid.limit;
        const shade = Number.isNaN(part) ? none : mix(zero, part < 0 ? cold : warm, Math.min(1, Math.abs(part)));
        image.data.set([...shade, 255], 4 * (row * grid.columns + column));
      }
      pen.putImageData(image, 0, 0);
    };
    draw();
    redraw.push(draw);
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.min(grid.columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * grid.columns)));
      const row = Math.min(grid.rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * grid.rows)));
      say(event, describe(row, column, grid.at(row, column)));
    };
    canvas.addEventListener("pointermove", at);
    canvas.addEventListener("pointerdown", at);
    canvas.addEventListener("pointerleave", hush);
  };

  // ---- the sections ------------------------------------------------------------------------------------------
  const pairs = (parent, [both, left, right], facts) => facts.forEach(([name, value]) => {
    const node = make(parent, both);
    make(node, left, {}, name);
    make(node, right, {}, value);
  });
  const tiles = (facts) => pairs(make(page, "dl", { class: "tiles" }), ["div", "dt", "dd"], facts);

  const learning = ({ steps, epochs }) => {
    const node = section("learning", "Learning", `Each epoch is one pass over the training data, and a point of the training curve is the mean over its epoch, while the model still learned.${Object.keys(epochs.valid).length ? " The validation part is never learned from: where its curve turns away from the training curve, the model has begun to learn by heart." : " There is no validation part: nothing here says how the model does on other data."}`);
    const cards = make(node, "div", { class: "cards" });
    for (const name of epochs.names) {
      const rate = epochs.rates.includes(name);
      const box = card(cards, name === "" ? "(no name)" : name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " "));
      const series = [];
      if (name === "loss" && steps.number.length > epochs.number.length)
        series.push({ name: "each step", x: steps.epoch, y: steps.loss, color: "--a", faint: true });
      const [training, held] = [own(epochs.train, name), own(epochs.valid, name)];
      if (training) series.push({ name: "training", x: epochs.number, y: training, color: "--a" });
      if (held) series.push({ name: "validation", x: epochs.number, y: held, color: "--b" });
      const baseline = own(epochs.baselines, name);
      const compared = baseline === undefined ? undefined : own(epochs.valid, baseline) || own(epochs.train, baseline);
      if (compared) series.push({ name: `${baseline}, ${own(epochs.valid, baseline) ? "validation" : "training"}`, x: epochs.number, y: compared, color: "--d", dashed: true });
      legend(box.head, series);
      const positive = series.every((one) => known(one.y).every((value) => value > 0));
      const values = series.flatMap((one) => known(one.y));
      const log = !rate && positive && Math.max(...values) > 8 * Math.min(...values);
      curves(box.node, series, { log, xlabel: "epoch", label: `${name} by epoch`, format: rate ? percent : round, ...(rate ? { low: 0, high: 1 } : {}) });
      const lost = own(epochs.lost, name);
      if (lost) tell(box.node, `Not finite, and so not drawn: ${counted(lost, "value")}.`);
    }
  };

  const confusion = ({ names, matrix, totals, total: all, classes }) => {
    const node = section("confusion", "Which class is taken for which", "Rows are what it is, columns what the model says. The diagonal is right; everything else is a confusion.");
    const box = card(node, `${all.toLocaleString("en")} ${data.part ? `${data.part} ` : ""}${data.unit || "sequences"}`, true);
    const size = names.length, widest = Math.max(...names.map((name) => span(short(name, 20))));
    const left = 16 + Math.min(150, widest);
    // As large as there is room, within reason; columns are named along their width, or else aslant.
    const cell = Math.max(16, Math.min(88, Math.max(24, 560 / size), (room(box.node) - left - 10) / size)), aslant = widest > cell - 6;
    const below = aslant ? 14 + 0.71 * Math.min(widest, span("m".repeat(14))) : 16;
    const W = left + size * cell + 10, H = size * cell + below + 18;
    const scroll = make(box.node, "div", { class: "scroll" });
    const svg = make(scroll, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "confusion matrix", style: `width: ${W}px; margin: 0 auto` });
    matrix.forEach((row, is) => {
      // Of all that was said of it, also by classes that are not shown.
      const total = totals[is];
      label(svg, { x: left - 8, y: is * cell + cell / 2, "text-anchor": "end", "dominant-baseline": "central" }, names[is]);
      row.forEach((count, said) => {
        const part = count / (total || 1), right = is === said;
        const rect = make(svg, "rect", { x: left + said * cell, y: is * cell, width: cell - 1.5, height: cell - 1.5, rx: 3, style: `fill: var(${right ? "--a" : "--b"}); fill-opacity: ${count ? 0.1 + 0.85 * part : 0.03}` });
        rect.addEventListener("pointermove", (event) => say(event, `is ${names[is]}, taken for ${names[said]}\n${count} of ${total} (${percent(part)})`));
        rect.addEventListener("pointerleave", hush);
        if (count && span(String(count), 7) < cell - 3) make(svg, "text", { class: "cell-text", x: left + said * cell + cell / 2, y: is * cell + cell / 2, style: `fill: ${part > 0.55 ? "var(--card)" : "var(--ink)"}` }, count);
      });
    });
    names.forEach((name, place) => {
      const x = left + place * cell + cell / 2, y = size * cell + 14;
      label(svg, aslant ? { x: x + 4, y, "text-anchor": "end", transform: `rotate(-45 ${x + 4} ${y})` } : { x, y, "text-anchor": "middle" }, name, aslant ? 14 : 20);
    });
    make(svg, "text", { x: W - 10, y: H - 3, "text-anchor": "end" }, "said →");
    if (classes > size) tell(box.node, `${size} of ${classes.toLocaleString("en")} classes are shown: those most often confused, and after them the most frequent. The others are left out, but shares are of everything.`);
  };

  const forecasts = (list) => {
    const node = section("forecasts", "What comes next", `The model has read the sequence up to the dotted line and says what follows; the real future is drawn beside it.${ofPart("It")}${data.part === "training" ? " The model has learned from it." : ""}`);
    const place = make(node, "div"), holder = make(node, "div");
    // Of a long past the end is shown, so that the forecast has room; all of it is one click away.
    const draw = (one, box, length) => {
      box.replaceChildren();
      const cards = make(box, "div", { class: "cards" });
      for (const column of one.columns) {
        const series = [
          { name: "known", x: one.past.slice(-length), y: column.past.slice(-length), color: "--a" },
          { name: "what came", x: one.future, y: column.truth, color: "--a", dashed: true },
          { name: "forecast", x: one.future, y: column.forecast, color: "--b" },
        ];
        const inner = card(cards, column.name, one.columns.length === 1);
        legend(inner.head, series);
        curves(inner.node, series, { xlabel: "step", label: `forecast of ${column.name}`, height: 240, guides: one.past.slice(-1) });
        if (column.lost) tell(inner.node, `Not finite, and so not drawn: ${counted(column.lost, "forecast value")}.`);
      }
    };
    picker(place, list.map((one) => one.name), "sequence", (chosen) => {
      holder.replaceChildren();
      const one = list[chosen], ways = make(holder, "div"), box = make(holder, "div");
      const near = Math.max(3 * one.future.length, 20), past = one.past.length;
      const lengths = past > 1.5 * near ? [near, past] : [past || 1];
      const named = (length) => `${length === one.past[past - 1] ? "all" : "the last"} ${counted(length, "step")}`;
      picker(ways, lengths.map(named), "how much of the past", (way) => draw(one, box, lengths[way]));
    });
  };

  const through = (list) => {
    const flows = list.some((one) => one.layers.some((layer) => layer.gradient));
    const node = section("through-time", "Through time", `The hidden state as the model reads one sequence: a row is a unit, a column a step, units ordered by where they end.${ofPart("The sequence")}${flows ? " Below it, how much of the gradient reaches each step in the backward pass: where it falls to nothing, what happened there can no longer be learned." : ""}`);
    const place = make(node, "div"), box = make(node, "div");
    picker(place, list.map((one) => one.name), "sequence", (chosen) => {
      box.replaceChildren();
      redraw.length = 0;
      const one = list[chosen];
      for (const layer of one.layers) {
        const grid = unpack(layer.states), inner = card(box, layer.name, true);
        inner.node.style.marginBottom = "1.1rem";
        const ramp = make(inner.head, "span", { class: "ramp" });
        ramp.append(round(-grid.limit)); make(ramp, "i"); ramp.append(round(grid.limit));
        const shown = layer.steps ? " of those shown" : "";
        const number = (column) => (layer.steps ? layer.steps[column] : column + 1);
        const step = (column) => `step ${whole(number(column))}${one.labels ? `: ${one.labels[column]}` : ""}`;
        const wrap = make(inner.node, "div", { class: "axis-row" });
        make(wrap, "span", { class: "y" }, `${grid.rows} units`);
        const maps = make(wrap, "div");
        map(maps, grid, Math.min(300, Math.max(120, grid.rows * 3)), (row, column, value) => `${step(column)}\nunit ${layer.order ? layer.order[row] : row}\n${Number.isNaN(value) ? "not finite" : round(value)}`);
        if (one.labels && grid.columns <= Math.min(60, room(maps) / 7)) {
          const row = make(inner.node, "div", { class: "axis-row" });
          make(row, "span");
          const letters = make(row, "div", { class: "letters" });
          one.labels.forEach((name) => make(letters, "span", { title: name }, name));
        }
        if (layer.gradient) {
          const row = make(inner.node, "div", { class: "axis-row" });
          make(row, "span", { class: "y" }, "gradient norm");
          const x = layer.gradient.map((_, column) => number(column));
          const series = [{ name: "gradient norm", x, y: layer.gradient, color: "--b" }];
          // Half the distance of two columns, so that points lie below the middle of theirs.
          const half = x.length > 1 ? (layer.length - 1) / (x.length - 1) / 2 : 0.5;
          const holder = make(row, "div"), least = layer.gradient.filter((value) => value > 0);
          const low = Math.max(1e-12, Math.min(...least) / 1.6), faint = least.filter((value) => value < low).length;
          curves(holder, series, { log: true, height: 170, left: 0, right: 0, xrange: [1 - half, layer.length + half], xlabel: "step", label: "gradient norm through time", low, high: Math.min(Number.MAX_VALUE, Math.max(...layer.gradient) * 1.6) });
          if (faint) tell(inner.node, `Less than ${round(low)}, and so not drawn: at ${counted(faint, "step")}${shown}.`);
        }
        const zeros = layer.gradient ? layer.gradient.filter((value) => value === 0).length : 0;
        if (zeros && zeros < layer.gradient.length) tell(inner.node, `The gradient is 0 at ${counted(zeros, "step")}${shown}${layer.gradient.length < 40 ? ": a ring at the lower edge" : ", where nothing is drawn"}.`);
        if (layer.verdict) make(inner.node, "p", { class: "note verdict" }, layer.verdict);
        if (layer.steps) tell(inner.node, `${grid.columns} of ${layer.length.toLocaleString("en")} steps are shown, at nearly equal distances.`);
        if (layer.lost) tell(inner.node, `Not finite, and grey in the map where they are shown: ${counted(layer.lost, "value")} of the state.`);
      }
    });
  };

  const attention = (list) => {
    const node = section("attention", "Where it looks", "A row for each thing written, a column for each thing read: the fuller its colour, the more the model looked there while writing. A path from corner to corner is an alignment that it found by itself.");
    const place = make(node, "div"), box = make(node, "div");
    picker(place, list.map((one) => one.name), "sequence", (chosen) => {
      box.replaceChildren();
      const one = list[chosen], inner = card(box, `${one.name}`, true);
      const shown = (token) => token === " " ? "␣" : token;
      const widest = (tokens, most) => Math.max(16, ...tokens.map((token) => span(short(shown(token), most), 8)));
      const count = one.source.length, high = 26, left = 16 + widest(one.target, 20), free = room(inner.node) - left - 8;
      // Words stand side by side where there is room, and aslant where there is none.
      const needed = widest(one.source, 14) + 10, aslant = Math.max(40, needed) * count > free && needed > 34;
      const wide = aslant ? Math.max(16, Math.min(40, free / count)) : Math.max(14, needed, Math.min(40, free / count));
      const rise = aslant ? 0.71 * needed : 0, top = 34 + rise;
      const W = left + count * wide + 8 + rise, H = top + one.target.length * high + 8;
      const svg = make(make(inner.node, "div", { class: "scroll" }), "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "attention map", style: `width: ${W}px; margin: 0 auto` });
      one.source.forEach((token, column) => {
        const x = left + column * wide + wide / 2, y = top - 10, turn = aslant ? { "text-anchor": "start", transform: `rotate(-45 ${x} ${y})` } : { "text-anchor": "middle" };
        label(svg, { x, y, ...turn, style: "font-size: 13px" }, shown(token), 14);
      });
      one.weights.forEach((row, written) => {
        label(svg, { x: left - 8, y: top + written * high + high / 2, "text-anchor": "end", "dominant-baseline": "central", style: "font-size: 13px" }, shown(one.target[written]));
        row.forEach((weight, read) => {
          const rect = make(svg, "rect", { x: left + read * wide, y: top + written * high, width: wide - 1.5, height: high - 1.5, rx: 3, style: `fill: var(--a); fill-opacity: ${0.04 + 0.96 * Math.sqrt(Math.min(1, Math.max(0, weight)))}` });
          rect.addEventListener("pointermove", (event) => say(event, `writing ${shown(one.target[written])}, reading ${shown(one.source[read])}\n${weight === null ? "not finite" : percent(weight)}`));
          rect.addEventListener("pointerleave", hush);
        });
      });
      const signs = { "■": "■ is the end of what is written", " ": "␣ is a space", "?": "? stands for what the model has never seen" };
      const told = Object.keys(signs).filter((sign) => one.target.includes(sign) || one.source.includes(sign)).map((sign) => signs[sign]);
      if (told.length) tell(inner.node, `${told.join("; ")}.`);
      if (one.lost) tell(inner.node, `Not finite, and so left pale: ${counted(one.lost, "weight")}.`);
    });
  };

  const lengths = ({ edges, counts, padding, padding_at_random, total, longest, part }) => {
    const box = card(data.cards, `How long the ${part ? `${part} ` : ""}sequences are`);
    const sequences = counts.reduce((sum, count) => sum + count, 0), alike = total === sequences * longest;
    if (alike) tell(box.node, sequences === 1 ? `There is one sequence, of ${counted(longest, "step")}.` : `All ${counted(sequences, "sequence")} have ${counted(longest, "step")}.`);
    else bars(box.node, edges, counts, { label: "histogram of lengths" });
    const note = make(box.node, "p", { class: "note" });
    make(note, "strong", {}, `${total.toLocaleString("en")} real steps`);
    const text = [alike ? "." : `, at most ${longest.toLocaleString("en")} in a sequence.`];
    // Each figure is told only if it is known.
    const both = padding !== null && padding_at_random !== null && percent(padding) !== percent(padding_at_random);
    if (both || padding === null && padding_at_random !== null) text.push(` Batches at random would be ${percent(padding_at_random)} padding${padding === null ? "." : ";"}`);
    if (padding !== null) text.push(` ${both ? "batches of like length" : "Batches"} are ${percent(padding)}${both ? "" : " padding"}, and none of it is computed.`);
    note.append(text.join(""));
  };

  const cost = ({ steps }) => {
    // Where there are many, each is the mean of neighbours, and so is its number.
    const x = steps.number.map(Math.round);
    const time = card(data.cards, "Time of a training step");
    const { count, longest, first } = steps.slow, most = `${round(longest * 1000)} ms`;
    const seconds = [{ name: "time", x: steps.timed.map(Math.round), y: steps.seconds.map((value) => value * 1000), color: "--a" }];
    curves(time.node, seconds, { xlabel: "training step", unit: "ms", low: 0, height: 210, label: "milliseconds a step" });
    // Steps that compile would press all others flat: they are told.
    const several = `Not drawn: ${counted(count, "step")} of up to ${most}${first ? ", the first among them: there kernels are compiled" : ""}.`;
    const apart = !count ? "" : count === 1 && first ? ` The first took ${most}, and compiled the kernels.` : ` ${several}`;
    tell(time.node, `${round(data.rate)} sequence steps a second, on average.${apart}`);
    const flow = card(data.cards, "Norm of the gradient, training step by step");
    curves(flow.node, [{ name: "gradient norm", x, y: steps.gradient, color: "--b" }], { xlabel: "training step", log: true, height: 210, label: "gradient norm by step" });
    if (steps.lost) tell(flow.node, `Not finite, and so not drawn: ${counted(steps.lost, "step")}.`);
    if (known(steps.memory).some((value) => value > 0)) {
      const memory = card(data.cards, "Memory, at most so far");
      const [unit, bytes] = Math.max(...known(steps.memory)) < 10 * 2 ** 30 ? ["MiB", 2 ** 20] : ["GiB", 2 ** 30];
      curves(memory.node, [{ name: "memory", x, y: steps.memory.map((value) => (value === null ? null : value / bytes)), color: "--c" }], { xlabel: "training step", unit, height: 210, label: "memory by step" });
    }
    const rate = card(data.cards, "Learning rate");
    curves(rate.node, [{ name: "learning rate", x, y: steps.learning_rate, color: "--d" }], { xlabel: "training step", low: 0, height: 210, label: "learning rate by step" });
  };

  const plan = (text) => {
    const node = section("plan", "How it runs", "What the engine made of the cell: what left the loop over time, what stayed in it, on which backend, and what it costs.");
    make(node, "pre", { class: "short" }, text.split("\n").slice(0, 3).join("\n").trim());
    const more = make(node, "details");
    make(more, "summary", {}, "The whole plan");
    make(more, "pre", {}, text);
  };

  const settings = (facts) => {
    const node = section("settings", "Settings", "Everything needed to run it again.");
    pairs(make(node, "table", { class: "facts" }), ["tr", "th", "td"], facts);
  };

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    redraw.forEach((draw) => draw());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw.forEach((draw) => draw()));

  if (data.facts.length) tiles(data.facts);
  if (data.history) learning(data.history);
  if (data.confusion) confusion(data.confusion);
  if (data.forecasts.length) forecasts(data.forecasts);
  if (data.attention.length) attention(data.attention);
  if (data.through.length) through(data.through);
  if (data.lengths || data.history) {
    const node = section("cost", "Data and cost", "Batches hold sequences of like length, and padding is never computed: time goes where the steps are.");
    data.cards = make(node, "div", { class: "cards" });
    if (data.lengths) lengths(data.lengths);
    if (data.history && data.history.steps.number.length) cost(data.history);
  }
  if (data.plan) plan(data.plan);
  if (data.settings.length) settings(data.settings);
  document.documentElement.dataset.ready = "true";
})();
