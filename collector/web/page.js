// Everything served reads without this. It draws the charts, sends the form when something is picked, sorts tables, switches dark and light;
// in a file of its own it shows the view that the address after # asks for, and narrows it to what was picked there.
"use strict";
const isFile = document.querySelector("template[data-address]") !== null;
const root = document.documentElement;
const placeOf = (run) => {
  const address = `run?${new URLSearchParams({ id: run })}`;
  return isFile ? heldAs(address) && `#/${address}` : `/${address}`;
};
const make = (name, attributes = {}, ...within) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...within);
  return node;
};
const button = (text, label, act) => {
  const node = make("button", { type: "button", ...(label ? { "aria-label": label } : {}) }, text);
  node.addEventListener("click", act);
  return node;
};
function save(name, parts, type) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob(parts, { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function csvOf(columns, rows) {
  const cell = (value) => {
    // As `csv_cell` in `agent/base/documents.py` writes it: a spreadsheet runs no text as a formula.
    const isFormula = typeof value === "string" && /^[=+\-@\t\r]/.test(value) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value);
    const text = value === null || value === undefined ? "" : `${isFormula ? "'" : ""}${value}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
const viewName = () => (isFile ? location.hash.slice(2) || document.getElementById("shown").dataset.address : location.pathname.slice(1)).split("?")[0] || "overview";

// Charts: what the server wrote is a specification without data, and the rows beside it.
let drawn = [];
const layersOf = (spec) => (spec.layer ? spec.layer.flatMap(layersOf) : [spec]);
function zoomAxes(spec) {
  const unit = layersOf(spec).find((one) => one.params?.some((param) => param.name === "zoom"));
  const axes = unit?.params.find((param) => param.name === "zoom").select.encodings ?? [];
  return axes.map((axis) => ({ axis, signal: `zoom_${unit.encoding[axis].field}`, isLog: unit.encoding[axis].scale?.type === "log" }));
}
function embed(place, spec, more = {}) {
  return vegaEmbed(place, spec, {
    mode: "vega-lite", ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true }, config: THEME, ...more,
  });
}
async function drawChart(figure, picked = {}) {
  const held = JSON.parse(figure.querySelector("script.chart-data").textContent);
  const place = figure.querySelector(".chart"), title = figure.querySelector("figcaption").textContent;
  const all = held.rows.map((row) => Object.fromEntries(held.columns.map((name, index) => [name, row[index]])));
  // Boards of one type are one mark, until one of them was picked.
  const every = all.filter((row) => row.of === undefined || (picked.device ? row.boards === 1 : row.of === null));
  const rows = every.filter((row) => row.standing === "the reference" || FACETS.every((name) => !picked[name] || row[name] === undefined || row[name] === picked[name]));
  const spec = { ...held.spec, data: { values: rows } };
  if (spec.datasets?.marks) spec.datasets = { marks: rows };
  if (spec.datasets && innerWidth <= 640) spec.height = 240;
  const chart = { figure, place, title, held, rows, spec, hidden: new Set() };
  if (!rows.length) {
    // A scale of nothing has no ends.
    place.textContent = "Nothing of this was picked.";
    figure.classList.add("is-drawn");
    return;
  }
  drawn.push(chart);
  addTools(chart);
  // Here the legend is made of buttons; a picture has its own.
  const { view } = await embed(place, JSON.parse(JSON.stringify(spec, (key, value) => (key === "legend" ? null : value))));
  chart.view = view;
  // What it shows is in the label of its place and in the table behind it; Vega's own roles have no names.
  place.querySelector("svg").setAttribute("aria-hidden", "true");
  view.addEventListener("click", (_, item) => item?.datum && follow(item.datum));
  if (held.brushes) linked(chart);
  await restore(chart);
  for (const { signal } of zoomAxes(spec)) view.addSignalListener(signal, () => { if (held.brushes) zoomTogether(chart); keepState(chart); });
  figure.classList.add("is-drawn");
}
// What is hidden and how far a chart is zoomed is in the address: c1={"off": [series], "x": [low, high]} of the first chart.
const stateName = (chart) => `c${[...document.querySelectorAll("figure.chart-figure")].indexOf(chart.figure) + 1}`;
const fieldsHere = () => (isFile ? location.hash || `#/${document.getElementById("shown").dataset.address}` : location.pathname + location.search).split("?");
function putField(name, value, isNew = false) {
  const [base, query = ""] = fieldsHere(), fields = new URLSearchParams(query);
  if (value === null) fields.delete(name); else fields.set(name, value);
  if (`${fields}` !== `${new URLSearchParams(query)}`) history[isNew ? "pushState" : "replaceState"](null, "", `${base}${fields.size ? `?${fields}` : ""}`);
}
async function restore(chart) {
  let state = {};
  try { state = JSON.parse(new URLSearchParams(fieldsHere()[1]).get(stateName(chart))) ?? {}; } catch { /* somebody else's */ }
  for (const [name] of chart.held.legend) if (state.off?.includes?.(name) && !chart.hidden.has(name)) switchSeries([chart], name, true);
  // Charts over time have one period, which is shown in all of them.
  const range = chart.held.brushes ? rangeOf("zoom") ?? rangeOf("between") : null;
  for (const { axis, signal } of zoomAxes(chart.spec)) {
    const shown = chart.held.brushes ? range : state[axis];
    if (shown?.length === 2 && shown.every(Number.isFinite)) chart.view.signal(signal, shown);
  }
  await chart.view.runAsync();
  await recount(chart);
}
// Marks that would cover each other as they are drawn now are one, with their number and one interval; a name is left away where it has no room.
async function recount(chart) {
  if (!chart.spec.datasets?.marks || isOff(chart)) return;
  const shown = shownRows(chart).map((row) => ({ ...row, count: row.boards > 1 ? `×${row.boards}` : "" }));
  // A scale spans what is shown before marks are where it has them. Vega marks what it is given as its own.
  await chart.view.data("marks", shown.map((row) => ({ ...row }))).runAsync();
  const [x, y] = ["x", "y"].map((axis) => chart.view.scale(axis));
  const middle = (rows, name) => {
    const sorted = rows.map((row) => row[name]).sort((one, other) => one - other), half = (sorted.length - 1) / 2;
    return (sorted[Math.floor(half)] + sorted[Math.ceil(half)]) / 2;
  };
  const cover = (one, other) => {
    const [width, height] = one.rows.length > 1 && other.rows.length > 1 ? [26, 13] : [12, 12];
    return Math.abs(one.at[0] - other.at[0]) < width && Math.abs(one.at[1] - other.at[1]) < height;
  };
  let groups = shown.map((row) => [row]), found = [];
  for (;;) {
    found = [];
    for (const rows of groups) {
      const one = { at: [x(middle(rows, "cost")), y(middle(rows, "accuracy"))], rows: [...rows] };
      const other = found.find((group) => cover(one, group));
      if (other) other.rows.push(...rows); else found.push(one);
    }
    if (found.length === groups.length) break;
    groups = found.map(({ rows }) => rows);
  }
  const marks = groups.map((rows) => rows.length > 1 ? markOf(rows, middle) : { ...rows[0] });
  const free = (mark) => {
    const left = x(mark.cost), right = left + 18 + 6.5 * (mark.label?.length ?? 0), height = y(mark.accuracy);
    return right <= chart.view.width() + 20 && marks.every((other) => other === mark || Math.abs(y(other.accuracy) - height) > 18 || x(other.cost) < left || x(other.cost) - 6 > right);
  };
  for (const mark of marks) if (mark.label && !free(mark)) mark.label = null;
  return chart.view.data("marks", marks).runAsync();
}
function markOf(rows, middle) {
  const end = (name, choose) => {
    const ends = rows.map((row) => row[name]).filter((value) => value !== null);
    return ends.length ? choose(...ends) : null;
  };
  const every = (name) => [...new Set(rows.map((row) => row[name]))];
  const more = rows.length > 6 ? ` and ${rows.length - 6} more` : "";
  const boards = rows.reduce((sum, row) => sum + row.boards, 0);
  return {
    ...rows[0], label: null, boards, count: `×${boards}`,
    case: `${rows.length} cases: ${rows.slice(0, 6).map((row) => row.case).join("; ")}${more}`,
    series: every("series").length > 1 ? "several series" : rows[0].series,
    cost: middle(rows, "cost"), cost_low: end("cost_low", Math.min), cost_high: end("cost_high", Math.max),
    accuracy: middle(rows, "accuracy"), accuracy_low: end("accuracy_low", Math.min), accuracy_high: end("accuracy_high", Math.max),
    standing: every("standing").join("; "), verdict: every("verdict").join("; "),
  };
}
function keepState(chart) {
  clearTimeout(chart.keeping);
  chart.keeping = setTimeout(() => {
    if (!chart.figure.isConnected) return;
    recount(chart);
    const state = chart.hidden.size ? { off: [...chart.hidden] } : {};
    for (const { axis, signal } of zoomAxes(chart.spec)) {
      const range = chart.view.signal(signal);
      if (chart.held.brushes) {
        const zoom = range?.map((one) => Math.round(Number(one))).join(",") ?? null;
        putField("zoom", zoom === new URLSearchParams(fieldsHere()[1]).get("between") ? null : zoom);
      } else if (range) state[axis] = range.map((one) => Number(Number(one).toPrecision(13)));
    }
    putField(stateName(chart), Object.keys(state).length ? JSON.stringify(state) : null);
  }, 150);
}
function follow(datum) {
  const found = datum.run && placeOf(datum.run);
  if (found) location.assign(found);
  else if (datum.anchor) reveal(document.getElementById(datum.anchor))?.scrollIntoView({ block: "center" });
}
// A board is within the row of its type.
function reveal(target) {
  const boards = target?.matches?.("tr.board") && target.parentElement.querySelector("details");
  if (boards) boards.open = true;
  return target;
}
function zoomed(chart, factor, shift = 0) {
  for (const { axis, signal, isLog } of zoomAxes(chart.spec)) {
    if (factor === null) { chart.view.signal(signal, null); continue; }
    const to = isLog ? Math.log : Number, from = isLog ? Math.exp : Number;
    const [low, high] = chart.view.scale(axis).domain().map(to);
    const middle = (low + high) / 2 + (axis === "x" ? shift * (high - low) : 0), half = ((high - low) / 2) * factor;
    chart.view.signal(signal, [from(middle - half), from(middle + half)]);
  }
  return chart.view.runAsync();
}
// Charts that share a legend have it above them, with the series of all of them.
function addLegend(chart, gallery) {
  const before = gallery?.previousElementSibling?.matches(".legend") && gallery.previousElementSibling;
  const keys = before || make("div", { class: "legend", role: "group", "aria-label": gallery ? "Series of these charts" : `Series of ${chart.title}` });
  for (const [name, colour, shape] of chart.held.legend) {
    if ([...keys.children].some((toggle) => toggle.dataset.series === name)) continue;
    const key = make("span", { class: "key", "aria-hidden": "true" }, GLYPHS[shape] ?? "●");
    key.style.color = colour;
    const toggle = button("", null, () => switchSeries(gallery ? drawn.filter((other) => gallery.contains(other.figure)) : [chart], name));
    toggle.dataset.series = name;
    toggle.append(key, ` ${name}`);
    toggle.setAttribute("aria-pressed", "true");
    keys.append(toggle);
  }
  if (gallery && !before) gallery.before(keys); else if (!gallery) chart.figure.append(keys);
}
const legendOf = (chart) => chart.figure.closest(".gallery.one-legend")?.previousElementSibling ?? chart.figure.querySelector(".legend");
// Whether nothing is left of a chart, or of the lines in it: of nothing there is no scale.
function isOff(chart) {
  const lines = layersOf(chart.held.spec).flatMap((one) => one.data?.values ?? []).map((row) => row.series).filter((name) => name !== undefined);
  const names = lines.length ? lines : chart.held.legend.map(([name]) => name);
  return names.length > 0 && names.every((name) => chart.hidden.has(name));
}
function switchSeries(charts, name, off = !charts.some((chart) => chart.hidden.has(name))) {
  const toggle = [...legendOf(charts[0]).children].find((one) => one.dataset.series === name);
  toggle.setAttribute("aria-pressed", String(!off));
  for (const chart of charts.filter((one) => one.held.legend.some(([series]) => series === name))) {
    chart.hidden[off ? "add" : "delete"](name);
    // The chart stays as it is and is not seen.
    chart.place.classList.toggle("is-off", isOff(chart));
    if (!isOff(chart)) chart.view.signal("hidden", [...chart.hidden]).runAsync().then(() => recount(chart));
    keepState(chart);
  }
}
function addTools(chart) {
  const { figure, held: { legend }, title } = chart;
  const bar = make("div", { class: "figure-tools" });
  const gallery = figure.closest(".gallery.one-legend");
  if (legend.length > 1 || gallery) addLegend(chart, gallery);
  if (zoomAxes(chart.spec).length) {
    bar.append(
      button("+", `Zoom in: ${title}`, () => zoomed(chart, 0.5)), button("−", `Zoom out: ${title}`, () => zoomed(chart, 2)),
      button("←", `Move left: ${title}`, () => zoomed(chart, 1, -0.25)), button("→", `Move right: ${title}`, () => zoomed(chart, 1, 0.25)),
      button("Whole", `Show the whole range: ${title}`, () => zoomed(chart, null)),
    );
  }
  bar.append(
    button("SVG", `SVG of ${title}`, () => savePicture(chart, "svg")), button("PNG", `PNG of ${title}`, () => savePicture(chart, "png")),
    button("CSV", `CSV of ${title}`, () => save(`${fileName(chart)}.csv`, [csvOf(chart.held.columns, shownRows(chart).map((row) => chart.held.columns.map((name) => row[name])))], "text/csv")),
  );
  const table = button("Table", `Table behind ${title}`, () => {
    const old = figure.querySelector(".behind");
    if (old) old.remove(); else figure.append(tableBehind(chart));
    table.setAttribute("aria-expanded", String(!old));
  });
  table.setAttribute("aria-expanded", "false");
  bar.append(table);
  figure.append(bar);
}
const seriesOf = (row) => row.series !== undefined && row.part !== undefined ? row.part : row.series;
const shownRows = (chart) => chart.rows.filter((row) => !chart.hidden.has(seriesOf(row)) && (!period || row.started_at_ns === undefined || inPeriod(row.started_at_ns)));
function tableBehind(chart) {
  const names = chart.held.columns.filter((name) => chart.rows.some((row) => row[name] !== null && row[name] !== undefined && name !== "anchor"));
  const text = (name, value) => {
    if (name.endsWith("at_ns") && value !== null) return new Date(value / 1e6).toISOString().slice(0, 19).replace("T", " ");
    return typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 5 }) : value ?? "–";
  };
  const cell = (row, name) => {
    const found = name === "run" && row.run && placeOf(row.run);
    if (found) return make("td", {}, make("a", { href: found }, row.run));
    return make("td", {}, String(text(name, row[name])));
  };
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name.replace(/_ns$/, "").replaceAll("_", " "))));
  const body = shownRows(chart).map((row) => make("tr", {}, ...names.map((name) => cell(row, name))));
  const table = make("table", {}, make("caption", {}, chart.title), make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "behind scroll", tabindex: "0", role: "region", "aria-label": `Table behind ${chart.title}` }, table);
}

// Pictures: the chart as it is zoomed and toggled, with its title and legend, in the colours that are seen.
const fileName = (chart) => `edgemeter-${viewName()}-${[...document.querySelectorAll("figure.chart-figure")].indexOf(chart.figure) + 1}`;
async function picture(chart) {
  const place = document.body.appendChild(make("div", { class: "off-screen" }));
  try {
    const width = chart.spec.width === "container" ? { width: Math.max(320, chart.place.clientWidth - 20) } : {};
    const title = { text: chart.title, anchor: "start", color: "var(--ink)", fontSize: 13 };
    const { view } = await embed(place, { ...chart.spec, ...width, title }, { config: { ...THEME, background: "var(--sheet)" } });
    if (chart.hidden.size) view.signal("hidden", [...chart.hidden]);
    for (const { axis, signal } of zoomAxes(chart.spec)) view.signal(signal, chart.view.scale(axis).domain().map(Number));
    if (chart.spec.datasets?.marks) view.data("marks", chart.view.data("marks").map((mark) => Object.fromEntries(Object.entries(mark))));
    await view.runAsync();
    const colours = getComputedStyle(root);
    const text = (await view.toSVG()).replace(/var\((--\w+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
    view.finalize();
    return text;
  } finally {
    place.remove();
  }
}
async function savePicture(chart, form) {
  const text = await picture(chart);
  if (form === "svg") return save(`${fileName(chart)}.svg`, [text], "image/svg+xml");
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas");
    [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${fileName(chart)}.png`, [blob], "image/png"));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

// A period, picked in a chart, narrows the tables below and what is exported; it is in the address.
let period = null, waiting = null, isDrawing = false;
const inPeriod = (atNs) => atNs / 1e6 >= period[0] && atNs / 1e6 <= period[1];
const overTime = () => drawn.filter((chart) => chart.held.brushes && chart.view);
const rangeOf = (name) => { const range = /^(\d+),(\d+)$/.exec(new URLSearchParams(fieldsHere()[1]).get(name) ?? ""); return range && [Number(range[1]), Number(range[2])]; };
function linked(chart) {
  chart.view.addSignalListener("brush", (_, value) => {
    const range = Object.values(value ?? {})[0];
    clearTimeout(waiting);
    // A click is no period, and a hand that rests has not decided.
    const pick = () => {
      if (isDrawing) waiting = setTimeout(pick, 120);
      else pickPeriod([Math.floor(Math.min(...range)), Math.ceil(Math.max(...range))]);
    };
    if (range && Math.abs(range[1] - range[0]) > 60000) waiting = setTimeout(pick, 120);
  });
  chart.place.addEventListener("pointerdown", () => { isDrawing = true; });
}
for (const ending of ["pointerup", "pointercancel"]) addEventListener(ending, () => { isDrawing = false; });
// A period that is picked in one panel is shown in all of them, and narrows the tables.
function pickPeriod(range) {
  setPeriod(range);
  for (const chart of overTime()) {
    chart.view.data("brush_store", []);
    for (const { signal } of zoomAxes(chart.spec)) chart.view.signal(signal, range);
    chart.view.runAsync();
  }
}
let isZooming = false;
function zoomTogether(chart) {
  if (isZooming) return;
  isZooming = true;
  for (const { axis, signal } of zoomAxes(chart.spec)) {
    const range = chart.view.signal(signal)?.map(Number) ?? null;
    for (const other of overTime()) if (other !== chart && axis === "x" && `${other.view.signal(signal)?.map(Number) ?? null}` !== `${range}`) {
      other.view.signal(signal, range).runAsync();
    }
  }
  isZooming = false;
}
function setPeriod(range) {
  period = range;
  const shown = document.querySelector(".period");
  if (!shown) return;
  shown.hidden = range === null;
  const text = (at) => new Date(at).toISOString().slice(0, 16).replace("T", " ");
  if (range) shown.querySelector("b").textContent = `runs from ${text(range[0])} to ${text(range[1])} UTC`;
  document.querySelectorAll("tr[data-at]").forEach((row) => row.classList.toggle("is-outside", range !== null && !inPeriod(Number(row.dataset.at))));
  putField("between", range && range.join(","));
  document.querySelectorAll(".exports a").forEach((link) => {
    const [path, own = ""] = link.getAttribute("href").split("?"), fields = new URLSearchParams(own);
    if (range) fields.set("between", range.join(",")); else fields.delete("between");
    link.setAttribute("href", `${path}?${fields}`);
  });
}

// The tables of a section are sorted and searched together; how is in the address: t_runs={...}.
const FEWEST_ROWS = 6;
const headOf = (head) => head.textContent.trim();
const sections = new Map();
function makeTables(within) {
  for (const section of within.matches?.("section") ? [within] : within.querySelectorAll("main > section, main")) {
    // Where not all rows are listed, the form searches all of them.
    if (section.dataset.byForm !== undefined) continue;
    const tables = [...section.querySelectorAll("table.grid")].filter((table) => table.closest("main > section, main") === section);
    if (tables.length) makeTable(section, tables.map((table) => ({ table, units: unitsOf(table) })));
  }
}
function makeTable(section, tables) {
  const name = `t_${section.id || "view"}`, state = { q: "", sort: null };
  const group = { section, tables, state, render: () => tables.forEach(({ table, units }) => renderTable(table, units, state)) };
  const keep = (isNew) => {
    const kept = Object.fromEntries(Object.entries(state).filter(([, value]) => value?.length));
    putField(name, Object.keys(kept).length ? JSON.stringify(kept) : null, isNew);
  };
  for (const { table } of tables) {
    for (const head of table.tHead.rows[0].cells) {
      const heading = headOf(head);
      if (heading) head.replaceChildren(button(heading, null, () => {
        state.sort = [heading, state.sort?.[0] === heading && state.sort[1] === 1 ? -1 : 1];
        group.show?.();
        group.render();
        keep(true);
      }));
    }
  }
  group.restore = () => {
    let kept = {};
    try { kept = JSON.parse(new URLSearchParams(fieldsHere()[1]).get(name)) ?? {}; } catch { /* somebody else's */ }
    state.q = typeof kept.q === "string" ? kept.q : "";
    state.sort = Array.isArray(kept.sort) && kept.sort.length === 2 ? [String(kept.sort[0]), kept.sort[1] === -1 ? -1 : 1] : null;
    group.show?.();
    group.render();
  };
  sections.set(section, group);
  if (tables.reduce((sum, { units }) => sum + units.flat().length, 0) >= FEWEST_ROWS) addTableTools(group, keep);
  group.restore();
}
function addTableTools(group, keep) {
  const { tables, state, section } = group;
  const heads = [...new Set(tables.flatMap(({ table }) => [...table.tHead.rows[0].cells].map(headOf)).filter(Boolean))];
  const search = make("input", { type: "search", placeholder: "Search" });
  // On a phone there are no headings to sort by.
  const orders = heads.flatMap((heading) => [[heading, 1], [heading, -1]]).map((sort) => make("option", { value: JSON.stringify(sort) }, `${sort[0]} ${sort[1] === 1 ? "↑" : "↓"}`));
  const order = make("select", {}, make("option", { value: "" }, "as listed"), ...orders);
  const label = (text, field) => make("label", {}, make("span", {}, text), field);
  search.addEventListener("input", () => { state.q = search.value; group.render(); keep(false); });
  order.addEventListener("change", () => { state.sort = JSON.parse(order.value || "null"); group.render(); keep(true); });
  group.show = () => {
    search.value = state.q;
    order.value = state.sort ? JSON.stringify(state.sort) : "";
  };
  const tools = make("div", { class: "table-tools", role: "group", "aria-label": "Rows" }, label("Search", search), label("Sort by", order));
  (section.querySelector(":scope > h2") ?? tables[0].table.parentElement).after(tools);
}
// What is sorted as one: a row, or that of a board type with its boards below it, which have a tbody of their own.
function unitsOf(table) {
  const bodies = [...table.tBodies];
  return bodies.length > 1 || table.querySelector("tr.boards") ? bodies.map((body) => [...body.rows]) : [...bodies[0].rows].map((row) => [row]);
}
function renderTable(table, units, { q, sort }) {
  const heads = [...table.tHead.rows[0].cells], words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const column = sort ? heads.findIndex((head) => headOf(head) === sort[0]) : -1;
  heads.forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", sort[1] === 1 ? "ascending" : "descending"); else head.removeAttribute("aria-sort");
  });
  const matches = (row) => { const text = row.textContent.toLowerCase(); return words.every((word) => text.includes(word)); };
  for (const [first, ...boards] of units) {
    // A board that is searched for is shown: the row of its type opens as long as it is.
    const matching = words.length ? boards.filter(matches) : [], type = first.querySelector("details");
    first.classList.toggle("is-unmatched", !matching.length && !matches(first));
    for (const row of boards) row.classList.toggle("is-unmatched", matching.length > 0 && !matching.includes(row));
    if (type && matching.length > 0 !== type.classList.contains("is-sought")) type.open = type.classList.toggle("is-sought");
  }
  const sorted = (rows) => column < 0 ? rows : sortedBy(rows, column, heads[column].classList.contains("text"), sort[1]);
  const unitOf = new Map(units.map((unit) => [unit[0], unit])), firsts = sorted(units.map(([first]) => first));
  if (table.tBodies.length === 1 && units.every((unit) => unit.length === 1)) return table.tBodies[0].replaceChildren(...firsts);
  // The boards of a type stay below its row.
  for (const first of firsts) {
    first.parentElement.replaceChildren(first, ...sorted(unitOf.get(first).slice(1)));
    table.append(first.parentElement);
  }
}
function sortedBy(rows, column, isText, direction) {
  const value = (row) => row.cells[column].dataset.value ?? null;
  const order = (one, other) => isText
    ? one.cells[column].textContent.localeCompare(other.cells[column].textContent, "en", { numeric: true })
    : Number(value(one)) - Number(value(other));
  // What is absent stands last, however it is sorted.
  return [...rows].sort((one, other) => {
    if (!isText && (value(one) === null || value(other) === null)) return (value(one) === null) - (value(other) === null);
    return direction * order(one, other);
  });
}
// All that was picked, zoomed, searched and sorted is in the address: the link is the saved view.
function addCopyLink(within) {
  const place = within.querySelector(".exports");
  if (!place) return;
  const copy = button("Copy link", "Copy the link to this view as it is shown", async () => {
    try { await navigator.clipboard.writeText(location.href); copy.textContent = "Copied"; } catch { prompt("The link to this view", location.href); }
    setTimeout(() => { copy.textContent = "Copy link"; }, 2000);
  });
  place.append(" ", copy);
}
// A table that is wider than its place says so.
function cueWideTables() {
  document.querySelectorAll("main .scroll").forEach((place) => {
    const isWide = place.scrollWidth > place.clientWidth + 1;
    if (place.previousElementSibling?.classList.contains("cue")) place.previousElementSibling.remove();
    if (isWide) place.before(make("p", { class: "note cue" }, "More columns to the right: scroll the table."));
  });
}

// Within a file: hide what was not picked.
function narrow(within, picked) {
  const names = [...FACETS, "verdict", "source"].filter((name) => picked[name]);
  within.querySelectorAll("[data-device],[data-model]").forEach((one) => {
    const off = one.dataset.kept === undefined && names.some((name) => one.dataset[name] !== undefined && one.dataset[name] !== picked[name]);
    one.toggleAttribute("hidden", off);
  });
  within.querySelectorAll("table.grid").forEach((table) => {
    for (const body of table.tBodies) {
      const [first, ...boards] = body.rows;
      if (!first?.matches(".boards")) continue;
      // A board that was picked stands for itself.
      first.toggleAttribute("hidden", Boolean(picked.device) || first.hasAttribute("hidden"));
      if (picked.device && boards.some((row) => !row.hasAttribute("hidden"))) first.querySelector("details").open = true;
    }
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    table.parentElement.toggleAttribute("hidden", rows.length > 0 && rows.every((row) => row.hasAttribute("hidden")));
  });
}
function writeTables(within, form) {
  const all = JSON.parse(within.querySelector("script.tables").textContent);
  const rowsOf = (table) => {
    const at = table.columns.indexOf("started_at_ns");
    return table.rows.filter((row) => !period || at < 0 || inPeriod(row[at]));
  };
  if (form === "json") {
    const tables = Object.fromEntries(all.tables.map((table) => [table.name, rowsOf(table).map((row) => Object.fromEntries(table.columns.map((name, index) => [name, row[index]])))]));
    return save("edgemeter.json", [JSON.stringify({ view: all.view, tables }, null, 2)], "application/json");
  }
  return save("edgemeter.csv", [csvOf(all.tables[0].columns, rowsOf(all.tables[0]))], "text/csv");
}

// Addresses within a file: #/view?fields; the fields of the route pick the view, the others narrow it.
function parse(text) {
  const [view, query = ""] = text.replace(/^#\//, "").split("?");
  return { view: view || "overview", fields: Object.fromEntries(new URLSearchParams(query)) };
}
// The address of what is held that shows a view: the same route, or where it is left open the first that fits.
function heldAs(text) {
  const asked = parse(text), every = [...document.querySelectorAll("[data-address]")].map((one) => one.dataset.address);
  const fits = (given) => every.find((one) => {
    const { view, fields } = parse(one);
    return view === asked.view && (ROUTES[view] ?? []).every((name) => given(name) === (fields[name] ?? "") || given(name) === undefined);
  });
  return fits((name) => asked.fields[name] ?? "") ?? fits((name) => asked.fields[name]);
}
// Views and Vega's script are compressed in the file: it is a fifth as large.
const unpacked = (text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
async function loadCharts() {
  document.head.append(make("script", {}, await unpacked(document.getElementById("charts").content.textContent)));
}
let original = null, charts = null;
async function route() {
  if (!location.hash.startsWith("#/") && original !== null && location.hash !== "") return;
  const shown = document.getElementById("shown"), here = location.hash;
  original ??= shown.cloneNode(true);
  const first = shown.dataset.address, asked = parse(here || first), found = heldAs(here || first);
  const template = [...document.querySelectorAll("template[data-address]")].find((one) => one.dataset.address === found);
  await (charts ??= loadCharts());
  const text = template && await unpacked(template.content.textContent);
  // Another address was asked for meanwhile.
  if (here !== location.hash) return;
  if (template) shown.innerHTML = text; else shown.replaceChildren(...original.cloneNode(true).childNodes);
  shown.dataset.shown = found ?? first;
  if (!found) {
    shown.querySelector("main").prepend(make("p", { class: "caution" }, "This file does not hold that view. Serve the ledger: ", make("code", {}, "edgemeter collector web")));
  }
  document.title = `${shown.querySelector("h1").textContent} - Edgemeter`;
  const picked = { ...asked.fields };
  for (const name of ROUTES[asked.view] ?? []) delete picked[name];
  shown.querySelectorAll("form.filters [name]").forEach((field) => { if (asked.fields[field.name]) field.value = asked.fields[field.name]; });
  narrow(shown, picked);
  dress(shown, picked);
  scrollTo(0, 0);
}
async function dress(within, picked = {}) {
  for (const chart of drawn) chart.view?.finalize();
  drawn = [];
  sections.clear();
  makeTables(within);
  addCopyLink(within);
  cueWideTables();
  const bar = within.querySelector("nav");
  if (bar) {
    const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
    const theme = button("", null, () => { setTheme(isDark() ? "light" : "dark"); label(); });
    theme.className = "theme";
    label();
    bar.append(theme);
  }
  within.querySelectorAll("form.filters").forEach((form) => {
    form.addEventListener("change", () => form.requestSubmit());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const fields = new URLSearchParams();
      // What is left open does not stand in the address.
      for (const [name, value] of [...new FormData(form)].sort()) if (value) fields.append(name, value);
      // How tables are shown stays.
      for (const [name, value] of new URLSearchParams(fieldsHere()[1])) if (name.startsWith("t_")) fields.append(name, value);
      const query = fields.toString() ? `?${fields}` : "";
      if (isFile) location.hash = `#/${form.dataset.view}${query}`;
      else location.assign(`/${form.dataset.view}${query}`);
    });
  });
  within.querySelectorAll("[data-export]").forEach((one) => one.addEventListener("click", () => writeTables(within, one.dataset.export)));
  within.querySelector(".period button")?.addEventListener("click", () => pickPeriod(null));
  setPeriod(rangeOf("between"));
  await drawAll([within], picked);
}
async function drawAll(places, picked = {}) {
  const mine = drawn;
  for (const figure of places.flatMap((one) => [...one.querySelectorAll("figure.chart-figure:not([hidden])")])) {
    if (mine !== drawn) return;
    await drawChart(figure, picked);
  }
  if (mine === drawn) root.dataset.drawn = String(mine.length);
}

// Live: the page asks whether it is still the newest; the parts of the view that are other now are replaced, all else stays as it is.
const written = new WeakMap(), ASK_AGAIN_MS = 2000;
async function keepUp(address, tag) {
  try {
    const answer = document.hidden ? null : await fetch(address, { headers: { "If-None-Match": tag } });
    if (answer?.ok) {
      tag = answer.headers.get("ETag");
      await replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
  } catch { /* the server is away: it is asked again */ }
  setTimeout(keepUp, ASK_AGAIN_MS, address, tag);
}
async function replaceParts(page) {
  const main = document.querySelector("main");
  document.title = page.title;
  for (const name of ["header", "footer"]) document.querySelector(name).replaceWith(page.querySelector(name));
  const kept = new Map([...main.children].map((one) => [written.get(one), one])), active = document.activeElement, fresh = [];
  main.replaceChildren(...[...page.querySelector("main").children].map((one) => {
    const text = one.outerHTML;
    if (kept.has(text)) return kept.get(text);
    written.set(one, text);
    fresh.push(one);
    return one;
  }));
  if (!fresh.length) return;
  if (active?.isConnected) active.focus({ preventScroll: true });
  const line = document.querySelector(".live");
  line.hidden = false;
  line.textContent = `Updated at ${new Date().toISOString().slice(11, 19)} UTC.`;
  drawn.filter((chart) => !chart.figure.isConnected).forEach((chart) => chart.view?.finalize());
  drawn = drawn.filter((chart) => chart.figure.isConnected);
  fresh.forEach(makeTables);
  cueWideTables();
  setPeriod(period);
  await drawAll(fresh);
}

// Dark and light: as the system has it, unless it was switched here.
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
function setTheme(name) {
  root.dataset.theme = name;
  try { localStorage.setItem("edgemeter-theme", name); } catch { /* a browser may keep nothing */ }
}
try {
  const kept = localStorage.getItem("edgemeter-theme");
  if (kept) root.dataset.theme = kept;
} catch { /* as above */ }

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  const first = document.querySelector("form.filters select, form.filters input");
  if (first) { event.preventDefault(); first.focus(); }
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || link.getAttribute("href").startsWith("#/")) return;
  reveal(document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1))));
  if (!isFile) return;
  // Inside a file the address after # is the view's: a place within it is scrolled to.
  event.preventDefault();
  const target = document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
  if (target) { target.scrollIntoView(); target.focus?.({ preventScroll: true }); }
});
addEventListener("popstate", () => { if (!isFile) for (const [section, group] of sections) if (section.isConnected) group.restore(); });
addEventListener("resize", cueWideTables);
// A browser that goes back keeps what was picked before it left: the form shows what the address asks for.
if (!isFile) {
  addEventListener("pageshow", () => document.querySelectorAll("form.filters").forEach((form) => form.reset()));
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
if (isFile) { addEventListener("hashchange", route); route(); }
else {
  document.querySelectorAll("main > *").forEach((one) => written.set(one, one.outerHTML));
  dress(document);
  const { tag } = document.querySelector("footer").dataset;
  if (tag) keepUp(location.href, tag);
}
