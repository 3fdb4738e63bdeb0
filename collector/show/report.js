// The page reads without this; it sorts the table by a column, and opens what a link or the printer needs.
document.querySelectorAll("table.summary thead th").forEach((head, column) => {
  if (column === 0) return;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const rising = head.getAttribute("aria-sort") !== "ascending";
    head.parentElement.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const value = (row) => {
      const text = row.cells[column].dataset.value;
      return text === undefined ? (rising ? Infinity : -Infinity) : Number(text);
    };
    head.closest("table").querySelectorAll("tbody").forEach((body) => {
      const rows = [...body.rows].slice(1);
      rows.sort((one, other) => (rising ? 1 : -1) * (value(one) - value(other)) || 0);
      body.append(...rows);
    });
  });
});
const open = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", open);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
open();
