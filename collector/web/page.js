// Everything served reads without this. It sends the form when something is picked, sorts tables, writes pictures, switches dark and light;
// in a file of its own it shows the view that the address after # asks for, and narrows it to what was picked there.
"use strict";
const FACETS = ["fleet", "device", "board", "model", "runtime", "precision"];
const isFile = document.querySelector("template[data-address]") !== null;
const root = document.documentElement;

function save(name, parts, type) {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Pictures: the drawing with the looks that the style sheet gives it, so that it stands alone.
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity",
  "paint-order", "font-size", "font-weight", "font-family", "text-anchor"];
const SVG = "http://www.w3.org/2000/svg";
function drawn(name, attributes, ...within) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...within);
  return node;
}
function looked(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
    const look = getComputedStyle(from[index]);
    node.setAttribute("style", LOOKS.map((name) => `${name}:${look.getPropertyValue(name)}`).join(";"));
    node.removeAttribute("class");
  });
  copy.querySelectorAll("a").forEach((one) => one.removeAttribute("href"));
  copy.querySelectorAll("[hidden]").forEach((one) => one.remove());
  return copy;
}
// What colours and shapes stand for is written beside a figure, or above all figures of its section.
function legendOf(svg) {
  const within = svg.closest("figure").querySelector(".legend");
  const above = [...(svg.closest("section")?.querySelectorAll(".legend") ?? [])].find((one) => !one.closest("figure"));
  return [...((within ?? above)?.querySelectorAll("li") ?? [])].filter((one) => !one.hidden);
}
function standalone(svg) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const font = getComputedStyle(document.body).fontFamily;
  const text = (x, y, weight, said) => drawn("text", { x, y, fill: colour("--ink"), "font-family": font, "font-size": 12, "font-weight": weight }, said);
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `12px ${font}`;
  const top = 26, row = 20;
  const parts = [text(4, 17, 600, svg.closest("figure").querySelector("figcaption")?.textContent ?? "")];
  let [x, y] = [4, top + height + 4];
  for (const item of legendOf(svg)) {
    const said = item.textContent.trim(), wide = 20 + ruler.measureText(said).width + 16;
    if (x > 4 && x + wide > width) [x, y] = [4, y + row];
    const key = item.querySelector("svg.key"), shade = item.querySelector(".shade");
    if (key) {
      const symbol = looked(key);
      for (const [name, value] of Object.entries({ x, y, width: 14, height: 14 })) symbol.setAttribute(name, value);
      parts.push(symbol);
    } else if (shade) parts.push(drawn("rect", { x, y: y + 1, width: 14, height: 11, fill: getComputedStyle(shade).backgroundColor }));
    parts.push(text(x + 20, y + 11, 400, said));
    x += wide;
  }
  const whole = Math.ceil(x > 4 ? y + row : y);
  const copy = looked(svg);
  for (const [name, value] of Object.entries({ y: top, width, height })) copy.setAttribute(name, value);
  const paper = drawn("rect", { width, height: whole, fill: colour("--sheet") });
  const picture = drawn("svg", { width, height: whole, viewBox: `0 0 ${width} ${whole}` }, paper, copy, ...parts);
  return { text: new XMLSerializer().serializeToString(picture), width, height: whole };
}
function savePicture(svg, form, name) {
  const { text, width, height } = standalone(svg);
  if (form === "SVG") return save(`${name}.svg`, [text], "image/svg+xml");
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * 2, height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
    canvas.toBlob((blob) => save(`${name}.png`, [blob], "image/png"));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}
function viewName() {
  return (isFile ? location.hash.slice(2) : location.pathname.slice(1)).split("?")[0] || "overview";
}
function addPictureButtons(within) {
  within.querySelectorAll("figure").forEach((figure, index) => {
    const svg = figure.querySelector("svg.drawing");
    if (!svg) return;
    const tools = document.createElement("div");
    tools.className = "figure-tools";
    for (const form of ["SVG", "PNG"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = form;
      button.setAttribute("aria-label", `${form} of ${svg.getAttribute("aria-label")}`);
      button.addEventListener("click", () => savePicture(svg, form, `edgemeter-${viewName()}-${index + 1}`));
      tools.append(button);
    }
    figure.append(tools);
  });
}

function makeSortable(within) {
  within.querySelectorAll("table.grid").forEach((table) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        head.parentElement.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const body = table.tBodies[0];
        const isText = head.classList.contains("text");
        const value = (row) => row.cells[column].dataset.value ?? null;
        const order = (one, other) => {
          if (isText) return one.cells[column].textContent.localeCompare(other.cells[column].textContent, "en", { numeric: true });
          return Number(value(one)) - Number(value(other));
        };
        // What is absent stands last, however it is sorted.
        body.append(...[...body.rows].sort((one, other) => {
          if (!isText && (value(one) === null || value(other) === null)) return (value(one) === null) - (value(other) === null);
          return (rising ? 1 : -1) * order(one, other);
        }));
      });
    });
  });
}

// Within a file: hide what was not picked, and step again over what nothing of a series beats.
function narrow(within, picked) {
  const names = FACETS.filter((name) => picked[name]);
  within.querySelectorAll("[data-device],[data-model]").forEach((one) => {
    const off = one.dataset.kept === undefined && names.some((name) => one.dataset[name] !== undefined && one.dataset[name] !== picked[name]);
    one.toggleAttribute("hidden", off);
  });
  within.querySelectorAll("svg.drawing").forEach((svg) => {
    svg.querySelectorAll("path.front").forEach((path) => {
      const points = [...svg.querySelectorAll("a[data-x]")].filter((one) => !one.hasAttribute("hidden") && one.dataset.series === path.dataset.series)
        .map((one) => [Number(one.dataset.x), Number(one.dataset.y)]).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
      let steps = "", best = Infinity;
      for (const [x, y] of points) {
        if (y >= best) continue;
        steps += steps ? `H${x}V${y}` : `M${x} ${y}`;
        best = y;
      }
      path.setAttribute("d", steps);
    });
  });
  within.querySelectorAll("table.grid").forEach((table) => {
    const rows = [...table.tBodies[0].rows];
    table.parentElement.toggleAttribute("hidden", rows.length > 0 && rows.every((row) => row.hasAttribute("hidden")));
  });
}
function writeTables(within, form) {
  const held = JSON.parse(within.querySelector("script.tables").textContent);
  if (form === "json") {
    const tables = Object.fromEntries(held.tables.map((table) => [table.name, table.rows.map((row) => Object.fromEntries(table.columns.map((name, index) => [name, row[index]])))]));
    return save("edgemeter.json", [JSON.stringify({ view: held.view, tables }, null, 2)], "application/json");
  }
  const cell = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const [table] = held.tables;
  return save("edgemeter.csv", [[table.columns, ...table.rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n"], "text/csv");
}

// Addresses within a file: #/view?fields; the fields of the route pick the view, the others narrow it.
const ROUTES = { overview: [], compare: ["baseline"], model: ["model"], trend: ["model", "metric"], device: ["fleet", "device"], run: ["id"] };
function parse(text) {
  const [view, query = ""] = text.replace(/^#\//, "").split("?");
  return { view: view || "overview", fields: Object.fromEntries(new URLSearchParams(query)) };
}
function keyOf({ view, fields }) {
  return JSON.stringify([view, (ROUTES[view] ?? []).map((name) => fields[name] ?? "")]);
}
let original = null;
function route() {
  if (!location.hash.startsWith("#/") && original !== null && location.hash !== "") return;
  const shown = document.getElementById("shown");
  original ??= shown.cloneNode(true);
  const asked = parse(location.hash);
  const templates = [...document.querySelectorAll("template[data-address]")];
  const found = templates.find((one) => keyOf(parse(one.dataset.address)) === keyOf(asked))
    ?? templates.find((one) => parse(one.dataset.address).view === asked.view && !Object.keys(asked.fields).some((name) => ROUTES[asked.view]?.includes(name)));
  if (found) shown.replaceChildren(found.content.cloneNode(true));
  else shown.replaceChildren(...original.cloneNode(true).childNodes);
  if (!found && asked.view !== "overview") {
    const note = document.createElement("p");
    note.className = "caution";
    note.textContent = "This file does not hold that view: serve the ledger with `edgemeter collector web` to see it.";
    shown.querySelector("main").prepend(note);
  }
  dress(shown);
  const picked = { ...asked.fields };
  for (const name of ROUTES[asked.view] ?? []) delete picked[name];
  shown.querySelectorAll("form.filters [name]").forEach((field) => { if (asked.fields[field.name]) field.value = asked.fields[field.name]; });
  narrow(shown, picked);
  scrollTo(0, 0);
}

function dress(within) {
  addPictureButtons(within);
  makeSortable(within);
  const bar = within.querySelector("nav");
  if (bar) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "theme";
    const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => { setTheme(isDark() ? "light" : "dark"); label(); });
    label();
    bar.append(button);
  }
  within.querySelectorAll("form.filters").forEach((form) => {
    form.addEventListener("change", () => form.requestSubmit());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const fields = new URLSearchParams();
      // What is left open does not stand in the address.
      for (const [name, value] of [...new FormData(form)].sort()) if (value) fields.append(name, value);
      const query = fields.toString() ? `?${fields}` : "";
      if (isFile) location.hash = `#/${form.dataset.view}${query}`;
      else location.assign(`/${form.dataset.view}${query}`);
    });
  });
  within.querySelectorAll("[data-export]").forEach((button) => button.addEventListener("click", () => writeTables(within, button.dataset.export)));
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
  if (!isFile || !link || link.getAttribute("href").startsWith("#/")) return;
  // Inside a file the address after # is the view's: a place within it is scrolled to.
  event.preventDefault();
  const target = document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
  if (target) { target.scrollIntoView(); target.focus?.({ preventScroll: true }); }
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
if (isFile) { addEventListener("hashchange", route); route(); } else dress(document);
