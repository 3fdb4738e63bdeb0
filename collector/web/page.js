// Everything served is readable without this script. It draws the charts, sends the form on a selection, sorts tables, and switches dark and light;
// in a one-file page it shows the view of the address after #, and filters it by the selection there.
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
const saveFrom = (name, href) => make("a", { download: name, href }).click();
function save(name, text, type) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  saveFrom(name, href);
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}
function csvOf(columns, rows) {
  const cell = (value) => {
    // As `csv_cell` in `agent/base/documents.py`: a spreadsheet runs no text as a formula.
    const isFormula = typeof value === "string" && /^[=+\-@\t\r]/.test(value) && !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value);
    const text = value === null || value === undefined ? "" : `${isFormula ? "'" : ""}${value}`;
    const shown = text.replaceAll("\0", "\ufffd");
    return /[",\r\n]/.test(shown) ? `"${shown.replaceAll('"', '""')}"` : shown;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

// Selections, zoom, searches and sorting are in the address, so that a link to a view shows it unchanged.
const viewHere = () => (isFile ? location.hash.slice(2) || document.getElementById("shown").dataset.address : (location.pathname + location.search).slice(1)).split("?");
const viewName = () => viewHere()[0] || "overview";
const fieldsHere = () => new URLSearchParams(viewHere()[1]);
function putField(name, value, isNew = false) {
  const fields = fieldsHere(), before = `${fields}`;
  if (value === null) fields.delete(name); else fields.set(name, value);
  if (`${fields}` !== before) history[isNew ? "pushState" : "replaceState"](null, "", `${isFile ? "#" : ""}/${viewHere()[0]}${fields.size ? `?${fields}` : ""}`);
}
// The state of a chart or a table is one field, such as c1={"off": [series], "x": [low, high]}, without default values.
function stateOf(name) {
  try { return JSON.parse(fieldsHere().get(name)) ?? {}; } catch { return {}; }
}
function putState(name, state, isNew) {
  const changed = Object.entries(state).filter(([, value]) => value?.length);
  putField(name, changed.length ? JSON.stringify(Object.fromEntries(changed)) : null, isNew);
}
function rangeIn(name) {
  const ends = /^(\d+),(\d+)$/.exec(fieldsHere().get(name));
  return ends && [Number(ends[1]), Number(ends[2])];
}

// Charts: the server writes a specification without data, and the rows next to it.
let drawn = [];
const layersOf = (spec) => (spec.layer ? spec.layer.flatMap(layersOf) : [spec]);
function zoomAxes(spec) {
  const unit = layersOf(spec).find((one) => one.params?.some((param) => param.name === "zoom"));
  const axes = unit?.params.find((param) => param.name === "zoom").select.encodings ?? [];
  return axes.map((axis) => ({ axis, signal: `zoom_${unit.encoding[axis].field}`, isLog: unit.encoding[axis].scale?.type === "log" }));
}
// Cost against accuracy: overlapping marks are drawn as one.
const hasMarks = (spec) => spec.data?.name === "marks";
function embed(place, spec, config = THEME) {
  return vegaEmbed(place, spec, { mode: "vega-lite", ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true }, config });
}
async function drawChart(figure) {
  const held = JSON.parse(figure.querySelector("script.chart-data").textContent);
  const place = figure.querySelector(".chart"), title = figure.querySelector("figcaption").textContent;
  const all = held.rows.map((row) => Object.fromEntries(held.columns.map((name, index) => [name, row[index]])));
  // Boards of one type are one mark, until one of them is selected.
  const every = all.filter((row) => row.of === undefined || (picked.device ? row.boards === 1 : row.of === null));
  const rows = every.filter((row) => row.standing === "the reference" || FACETS.every((name) => !picked[name] || row[name] === undefined || row[name] === picked[name]));
  const spec = { ...held.spec, data: { ...held.spec.data, values: rows } };
  if (hasMarks(spec) && innerWidth <= 640) spec.height = 240;
  const chart = { figure, place, title, held, rows, spec, hidden: new Set() };
  if (!rows.length) {
    // An empty scale has no ends.
    place.textContent = "Nothing matches the selection.";
    figure.classList.add("is-drawn");
    return;
  }
  drawn.push(chart);
  addTools(chart);
  // Here the legend consists of buttons; a picture has its own.
  const { view } = await embed(place, JSON.parse(JSON.stringify(spec, (key, value) => (key === "legend" ? null : value))));
  chart.view = view;
  // The label of its container and the table behind it describe the chart; Vega's own roles have no names.
  place.querySelector("svg").setAttribute("aria-hidden", "true");
  view.addEventListener("click", (_, item) => item?.datum && follow(item.datum));
  // A click is no period.
  if (held.brushes) view.addSignalListener("brush", (_, value) => { brushed = value?.at && Math.abs(value.at[1] - value.at[0]) > 60000 ? value.at : null; });
  await restore(chart);
  for (const { signal } of zoomAxes(spec)) view.addSignalListener(signal, () => {
    const range = view.signal(signal)?.map(Number) ?? null;
    if (held.brushes) for (const other of overTime()) if (`${other.view.signal(signal)?.map(Number) ?? null}` !== `${range}`) other.view.signal(signal, range).runAsync();
    keepState(chart);
  });
  figure.classList.add("is-drawn");
}
const numberOf = (chart) => [...document.querySelectorAll("figure.chart-figure")].indexOf(chart.figure) + 1;
async function restore(chart) {
  const state = stateOf(`c${numberOf(chart)}`);
  for (const [name] of chart.held.legend) if (state.off?.includes?.(name) && !chart.hidden.has(name)) switchSeries([chart], name, true);
  // Charts over time share one period.
  if (chart.held.brushes) Object.assign(state, { x: rangeIn("zoom") ?? rangeIn("between") });
  for (const { axis, signal } of zoomAxes(chart.spec)) if (state[axis]?.length === 2 && state[axis].every(Number.isFinite)) chart.view.signal(signal, state[axis]);
  await chart.view.runAsync();
  await recount(chart);
}
// Marks that overlap in the present drawing become one, with their number and one interval; a name without room is omitted.
async function recount(chart) {
  if (!hasMarks(chart.spec) || isOff(chart)) return;
  const shown = shownRows(chart);
  // A scale has its range before marks have their positions. Vega changes the objects that it gets.
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
  let groups = shown.map((row) => [row]), count;
  do {
    count = groups.length;
    const merged = [];
    for (const rows of groups) {
      const group = { at: [x(middle(rows, "cost")), y(middle(rows, "accuracy"))], rows: [...rows] };
      const covered = merged.find((other) => cover(group, other));
      if (covered) covered.rows.push(...rows); else merged.push(group);
    }
    groups = merged.map(({ rows }) => rows);
  } while (groups.length < count);
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
    ...rows[0], label: null, boards,
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
    const ranges = Object.fromEntries(zoomAxes(chart.spec).map(({ axis, signal }) => [axis, chart.view.signal(signal)?.map(Number)]));
    if (chart.held.brushes) {
      const zoom = ranges.x?.map(Math.round).join(",") ?? null;
      putField("zoom", zoom === fieldsHere().get("between") ? null : zoom);
      delete ranges.x;
    }
    for (const axis in ranges) ranges[axis] = ranges[axis]?.map((end) => Number(end.toPrecision(13)));
    putState(`c${numberOf(chart)}`, { off: [...chart.hidden], ...ranges });
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
// The charts of a gallery share the legend above it, with the series of all of them.
const galleryOf = (chart) => chart.figure.closest(".gallery");
const legendOf = (chart) => galleryOf(chart).previousElementSibling;
function addLegend(chart) {
  const gallery = galleryOf(chart);
  if (!legendOf(chart)?.matches(".legend")) gallery.before(make("div", { class: "legend", role: "group", "aria-label": "Series of these charts" }));
  const keys = legendOf(chart);
  for (const [name, colour, shape] of chart.held.legend) {
    if ([...keys.children].some((toggle) => toggle.dataset.series === name)) continue;
    const key = make("span", { class: "key", "aria-hidden": "true" }, GLYPHS[shape] ?? "●");
    key.style.color = colour;
    const toggle = button("", null, () => switchSeries(drawn.filter((other) => gallery.contains(other.figure)), name));
    toggle.dataset.series = name;
    toggle.append(key, ` ${name}`);
    toggle.setAttribute("aria-pressed", "true");
    keys.append(toggle);
  }
}
// An empty chart has no scale.
const isOff = ({ held: { legend }, hidden }) => legend.length > 0 && legend.every(([name]) => hidden.has(name));
function switchSeries(charts, name, off = !charts.some((chart) => chart.hidden.has(name))) {
  const toggle = [...legendOf(charts[0]).children].find((one) => one.dataset.series === name);
  toggle.setAttribute("aria-pressed", String(!off));
  for (const chart of charts.filter((one) => one.held.legend.some(([series]) => series === name))) {
    chart.hidden[off ? "add" : "delete"](name);
    // The chart stays unchanged and hidden.
    chart.place.classList.toggle("is-off", isOff(chart));
    recount(chart);
    keepState(chart);
  }
}
// The buttons below a chart: text, label (followed by the chart's title) and action; those that zoom are for charts with a zoom.
const ZOOM_TOOLS = [
  ["+", "Zoom in:", (chart) => zoomed(chart, 0.5)],
  ["−", "Zoom out:", (chart) => zoomed(chart, 2)],
  ["←", "Move left:", (chart) => zoomed(chart, 1, -0.25)],
  ["→", "Move right:", (chart) => zoomed(chart, 1, 0.25)],
  ["Whole", "Show the whole range:", (chart) => zoomed(chart, null)],
];
const TOOLS = [
  ["SVG", "SVG of", (chart) => savePicture(chart, "svg")],
  ["PNG", "PNG of", (chart) => savePicture(chart, "png")],
  ["CSV", "CSV of", (chart) => save(fileName(chart, "csv"), csvOf(chart.held.columns, shownRows(chart).map((row) => chart.held.columns.map((name) => row[name]))), "text/csv")],
  ["Table", "Table behind", toggleTable],
];
function addTools(chart) {
  const { figure, held: { legend }, title } = chart;
  if (legend.length) addLegend(chart);
  const tools = [...(zoomAxes(chart.spec).length ? ZOOM_TOOLS : []), ...TOOLS];
  figure.append(make("div", { class: "figure-tools" }, ...tools.map(([text, label, act]) => button(text, `${label} ${title}`, (event) => act(chart, event.target)))));
  figure.querySelector(".figure-tools > :last-child").setAttribute("aria-expanded", "false");
}
function toggleTable(chart, toggle) {
  const shown = chart.figure.querySelector(".behind");
  if (shown) shown.remove(); else chart.figure.append(tableBehind(chart));
  toggle.setAttribute("aria-expanded", String(!shown));
}
const shownRows = (chart) => chart.rows.filter((row) => !chart.hidden.has(row.series) && (!period || row.started_at_ns === undefined || inPeriod(row.started_at_ns)));
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

// Pictures: the chart with its present zoom and series, its title and legend, in the visible colours.
const fileName = (chart, form) => `edgemeter-${viewName()}-${numberOf(chart)}.${form}`;
async function savePicture(chart, form) {
  const place = document.body.appendChild(make("div", { class: "off-screen" }));
  try {
    const colour = (_, name) => { place.style.color = `var(${name})`; return getComputedStyle(place).color; };
    const inColour = (spec) => JSON.parse(JSON.stringify(spec).replace(/var\((--\w+)\)/g, colour));
    const width = chart.spec.width === "container" ? { width: Math.max(320, chart.place.clientWidth - 20) } : {};
    const title = { text: chart.title, anchor: "start", color: "var(--ink)", fontSize: 13 };
    const { view } = await embed(place, inColour({ ...chart.spec, ...width, title }), inColour({ ...THEME, background: "var(--sheet)" }));
    for (const { axis, signal } of zoomAxes(chart.spec)) view.signal(signal, chart.view.scale(axis).domain().map(Number));
    if (hasMarks(chart.spec)) view.data("marks", chart.view.data("marks").map((mark) => Object.fromEntries(Object.entries(mark))));
    await view.runAsync();
    saveFrom(fileName(chart, form), await view.toImageURL(form, form === "png" ? 2 : 1));
    view.finalize();
  } finally {
    place.remove();
  }
}

// A period selected in a chart over time applies to all of them, to the tables below and to exports.
let period = null, brushed = null;
const inPeriod = (atNs) => atNs / 1e6 >= period[0] && atNs / 1e6 <= period[1];
const overTime = () => drawn.filter((chart) => chart.held.brushes && chart.view);
addEventListener("pointerdown", () => { brushed = null; }, true);
// A pause while drawing is not a decision.
for (const ending of ["pointerup", "pointercancel"]) addEventListener(ending, () => {
  if (brushed) pickPeriod([Math.floor(Math.min(...brushed)), Math.ceil(Math.max(...brushed))]);
});
function pickPeriod(range) {
  setPeriod(range);
  for (const chart of overTime()) {
    chart.view.data("brush_store", []);
    for (const { signal } of zoomAxes(chart.spec)) chart.view.signal(signal, range);
    chart.view.runAsync();
  }
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

// The tables of a section are sorted and searched together; the state is in the address: t_runs={"q": words, "sort": [heading, direction]}.
const FEWEST_ROWS = 6;
const restores = new Map();
const headingsOf = (table) => [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
// The unit of sorting: a row, or that of a board type with its boards below it, which have a tbody of their own.
const unitsOf = (table) => table.querySelector("tr.boards") ? [...table.tBodies].map((body) => [...body.rows]) : [...table.tBodies[0].rows].map((row) => [row]);
function makeTables(within) {
  for (const section of within.matches?.("section") ? [within] : within.querySelectorAll("main > section, main")) {
    const tables = [...section.querySelectorAll("table.grid")].filter((table) => table.closest("main > section, main") === section);
    // If not all rows are listed, the form searches all of them.
    if (tables.length && section.dataset.byForm === undefined) makeTable(section, tables.map((table) => ({ table, units: unitsOf(table) })));
  }
}
function makeTable(section, tables) {
  const name = `t_${section.id || "view"}`, state = { q: "", sort: null };
  const headings = [...new Set(tables.flatMap(({ table }) => headingsOf(table)).filter(Boolean))];
  const search = make("input", { type: "search", placeholder: "Search" });
  // A phone has no headings to sort by.
  const orders = headings.flatMap((heading) => [[heading, 1], [heading, -1]]).map((sort) => make("option", { value: JSON.stringify(sort) }, `${sort[0]} ${sort[1] === 1 ? "↑" : "↓"}`));
  const order = make("select", {}, make("option", { value: "" }, "as listed"), ...orders);
  const show = () => {
    search.value = state.q;
    order.value = state.sort ? JSON.stringify(state.sort) : "";
    for (const { table, units } of tables) renderTable(table, units, state);
  };
  const change = (part, isNew) => {
    show(Object.assign(state, part));
    putState(name, state, isNew);
  };
  search.addEventListener("input", () => change({ q: search.value }, false));
  order.addEventListener("change", () => change({ sort: JSON.parse(order.value || "null") }, true));
  for (const { table } of tables) {
    for (const [index, heading] of headingsOf(table).entries()) {
      const sort = () => change({ sort: [heading, state.sort?.[0] === heading && state.sort[1] === 1 ? -1 : 1] }, true);
      if (heading) table.tHead.rows[0].cells[index].replaceChildren(button(heading, null, sort));
    }
  }
  if (tables.reduce((sum, { units }) => sum + units.flat().length, 0) >= FEWEST_ROWS) {
    const label = (text, field) => make("label", {}, make("span", {}, text), field);
    const tools = make("div", { class: "table-tools", role: "group", "aria-label": "Rows" }, label("Search", search), label("Sort by", order));
    (section.querySelector(":scope > h2") ?? tables[0].table.parentElement).after(tools);
  }
  const restore = () => {
    const { q, sort } = stateOf(name);
    state.q = typeof q === "string" ? q : "";
    state.sort = Array.isArray(sort) && sort.length === 2 ? [String(sort[0]), sort[1] === -1 ? -1 : 1] : null;
    show();
  };
  restores.set(section, restore);
  restore();
}
function renderTable(table, units, { q, sort }) {
  const heads = [...table.tHead.rows[0].cells], words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const column = sort ? headingsOf(table).indexOf(sort[0]) : -1;
  heads.forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", sort[1] === 1 ? "ascending" : "descending"); else head.removeAttribute("aria-sort");
  });
  const matches = (row) => { const text = row.textContent.toLowerCase(); return words.every((word) => text.includes(word)); };
  for (const [first, ...boards] of units) {
    // A board found by a search is shown: the row of its type opens meanwhile.
    const matching = words.length ? boards.filter(matches) : [], type = first.querySelector("details");
    first.classList.toggle("is-unmatched", !matching.length && !matches(first));
    for (const row of boards) row.classList.toggle("is-unmatched", matching.length > 0 && !matching.includes(row));
    if (type && matching.length > 0 !== type.classList.contains("is-sought")) type.open = type.classList.toggle("is-sought");
  }
  const inOrder = (rows) => column < 0 ? rows : rows.toSorted(comparing(column, heads[column].classList.contains("text"), sort[1]));
  const unitOf = new Map(units.map((unit) => [unit[0], unit]));
  for (const first of inOrder([...unitOf.keys()])) {
    // The boards of a type stay below its row.
    first.parentElement.append(first, ...inOrder(unitOf.get(first).slice(1)));
    table.append(first.parentElement);
  }
}
function comparing(column, isText, direction) {
  const text = (row) => row.cells[column].textContent, value = (row) => row.cells[column].dataset.value;
  if (isText) return (one, other) => direction * text(one).localeCompare(text(other), "en", { numeric: true });
  // Absent values are last in any order.
  return (one, other) => (value(one) === undefined) - (value(other) === undefined) || direction * (value(one) - value(other)) || 0;
}
function addCopyLink(within) {
  const place = within.querySelector(".exports");
  if (!place) return;
  const copy = button("Copy link", "Copy the link to this view as it is shown", async () => {
    try { await navigator.clipboard.writeText(location.href); copy.textContent = "Copied"; } catch { prompt("The link to this view", location.href); }
    setTimeout(() => { copy.textContent = "Copy link"; }, 2000);
  });
  place.append(" ", copy);
}
// A note next to a table that is wider than its container.
function cueWideTables() {
  document.querySelectorAll("main .scroll").forEach((place) => {
    const isWide = place.scrollWidth > place.clientWidth + 1;
    if (place.previousElementSibling?.classList.contains("cue")) place.previousElementSibling.remove();
    if (isWide) place.before(make("p", { class: "note cue" }, "More columns to the right: scroll the table."));
  });
}

// In one file: hide what was not selected.
function narrow(within) {
  const names = [...FACETS, "verdict", "source"].filter((name) => picked[name]);
  within.querySelectorAll("[data-device],[data-model]").forEach((one) => {
    const off = one.dataset.kept === undefined && names.some((name) => one.dataset[name] !== undefined && one.dataset[name] !== picked[name]);
    one.toggleAttribute("hidden", off);
  });
  within.querySelectorAll("table.grid").forEach((table) => {
    for (const body of table.tBodies) {
      const [first, ...boards] = body.rows;
      if (!first?.matches(".boards")) continue;
      // A selected board is shown by itself.
      first.toggleAttribute("hidden", Boolean(picked.device) || first.hasAttribute("hidden"));
      if (picked.device && boards.some((row) => !row.hasAttribute("hidden"))) first.querySelector("details").open = true;
    }
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    table.parentElement.toggleAttribute("hidden", rows.length > 0 && rows.every((row) => row.hasAttribute("hidden")));
  });
}
function writeTables(form) {
  const all = JSON.parse(document.querySelector("script.tables").textContent);
  const rowsOf = (table) => {
    const at = table.columns.indexOf("started_at_ns");
    return table.rows.filter((row) => !period || at < 0 || inPeriod(row[at]));
  };
  if (form === "json") {
    const tables = Object.fromEntries(all.tables.map((table) => [table.name, rowsOf(table).map((row) => Object.fromEntries(table.columns.map((name, index) => [name, row[index]])))]));
    return save("edgemeter.json", JSON.stringify({ view: all.view, tables }, null, 2), "application/json");
  }
  return save("edgemeter.csv", csvOf(all.tables[0].columns, rowsOf(all.tables[0])), "text/csv");
}

// Addresses within a file: #/view?fields; the route's fields select the view, the others filter it.
function parse(text) {
  const [view, query = ""] = text.replace(/^#\//, "").split("?");
  return { view: view || "overview", fields: Object.fromEntries(new URLSearchParams(query)) };
}
// The address of a stored view that matches: the same route, or the first one if a field is left open.
function heldAs(text) {
  const asked = parse(text), every = [...document.querySelectorAll("[data-address]")].map((one) => one.dataset.address);
  const fits = (given) => every.find((one) => {
    const { view, fields } = parse(one);
    return view === asked.view && (ROUTES[view] ?? []).every((name) => given(name) === (fields[name] ?? "") || given(name) === undefined);
  });
  return fits((name) => asked.fields[name] ?? "") ?? fits((name) => asked.fields[name]);
}
// Views and Vega's script are compressed in the file, to a fifth of their size.
const unpacked = (text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
let original = null, charts = null, picked = {};
async function route() {
  if (!location.hash.startsWith("#/") && original !== null && location.hash !== "") return;
  const shown = document.getElementById("shown"), here = location.hash;
  original ??= shown.cloneNode(true);
  const first = shown.dataset.address, asked = parse(here || first), found = heldAs(here || first);
  const template = [...document.querySelectorAll("template[data-address]")].find((one) => one.dataset.address === found);
  charts ??= unpacked(document.getElementById("charts").content.textContent).then((script) => document.head.append(make("script", {}, script)));
  await charts;
  const text = template && await unpacked(template.content.textContent);
  // Another address was requested meanwhile.
  if (here !== location.hash) return;
  if (template) shown.innerHTML = text; else shown.replaceChildren(...original.cloneNode(true).childNodes);
  shown.dataset.shown = found ?? first;
  if (!found) {
    shown.querySelector("main").prepend(make("p", { class: "caution" }, "This file does not contain that view. Serve the ledger: ", make("code", {}, "edgemeter collector web")));
  }
  document.title = `${shown.querySelector("h1").textContent} - Edgemeter`;
  picked = { ...asked.fields };
  for (const name of ROUTES[asked.view] ?? []) delete picked[name];
  shown.querySelectorAll("form.filters [name]").forEach((field) => { if (asked.fields[field.name]) field.value = asked.fields[field.name]; });
  narrow(shown);
  dress(shown);
  scrollTo(0, 0);
}
async function dress(within) {
  for (const chart of drawn) chart.view?.finalize();
  drawn = [];
  restores.clear();
  makeTables(within);
  addCopyLink(within);
  cueWideTables();
  const theme = button(isDark() ? "Light" : "Dark", null, () => {
    theme.textContent = isDark() ? "Dark" : "Light";
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("edgemeter-theme", root.dataset.theme); } catch { /* a browser may keep nothing */ }
  });
  theme.className = "theme";
  within.querySelector("nav")?.append(theme);
  setPeriod(rangeIn("between"));
  await drawAll([within]);
}
async function drawAll(places) {
  const mine = drawn;
  for (const figure of places.flatMap((one) => [...one.querySelectorAll("figure.chart-figure:not([hidden])")])) {
    if (mine !== drawn) return;
    await drawChart(figure);
  }
  if (mine === drawn) root.dataset.drawn = String(mine.length);
}

// Live update: the page asks whether it is still current; changed parts of the view are replaced, all else stays.
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

// Dark and light: the system's setting, unless it was switched here.
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
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
  if (event.target.matches("[data-export]")) writeTables(event.target.dataset.export);
  if (event.target.matches(".period button")) pickPeriod(null);
  const reference = event.target.closest?.('a[href^="#"]:not([href^="#/"])')?.getAttribute("href");
  if (!reference) return;
  const target = reveal(document.getElementById(decodeURIComponent(reference.slice(1))));
  if (!isFile) return;
  // In one file the address after # is the view's: a position within it is scrolled to.
  event.preventDefault();
  target?.scrollIntoView();
  target?.focus({ preventScroll: true });
});
// The browser sends the form; in one file its fields are the address after #.
document.addEventListener("change", ({ target }) => target.closest("form.filters")?.requestSubmit());
document.addEventListener("formdata", ({ formData }) => {
  // Empty fields are not in the address; the state of tables stays.
  for (const [name, value] of [...formData]) if (!value) formData.delete(name);
  for (const [name, value] of fieldsHere()) if (name.startsWith("t_")) formData.append(name, value);
});
document.addEventListener("submit", (event) => {
  if (!isFile) return;
  event.preventDefault();
  location.hash = `#/${event.target.dataset.view}?${new URLSearchParams(new FormData(event.target))}`;
});
addEventListener("popstate", () => { if (!isFile) for (const [section, restore] of restores) if (section.isConnected) restore(); });
addEventListener("resize", cueWideTables);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
if (isFile) { addEventListener("hashchange", route); route(); }
else {
  // A browser that goes back restores former selections: the form shows those of the address.
  addEventListener("pageshow", () => document.querySelectorAll("form.filters").forEach((form) => form.reset()));
  document.querySelectorAll("main > *").forEach((one) => written.set(one, one.outerHTML));
  dress(document);
  const { tag } = document.querySelector("footer").dataset;
  if (tag) keepUp(location.href, tag);
}
