"use strict";
(() => {
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Everything that depends on light or dark is a template, so that a figure holds data only.
  const template = () => {
    const axis = {
      gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, automargin: true,
      ticks: "", title: { font: { size: 12, color: colour("--quiet") }, standoff: 8 }, tickfont: { size: 12 },
    };
    return {
      layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--ink") },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
        margin: { l: 8, r: 12, t: 8, b: 40 }, xaxis: axis, yaxis: axis,
        hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), align: "left",
          font: { color: colour("--ink"), family: getComputedStyle(document.body).fontFamily } },
        annotationdefaults: { font: { size: 12, color: colour("--quiet") }, arrowcolor: colour("--quiet") },
      },
      data: { bar: [{ type: "bar", marker: { line: { color: colour("--page"), width: 1 } } }] },
    };
  };

  const figures = [...document.querySelectorAll(".figure")].map((place) => {
    const figure = JSON.parse(place.nextElementSibling.textContent);
    const layout = () => ({ ...structuredClone(figure.layout), template: template(),
      ...(figure.layout.meta && figure.layout.meta.idle ? { plot_bgcolor: colour("--idle") } : {}) });
    Plotly.newPlot(place, figure.data, layout(), { displayModeBar: false, responsive: true });
    return (width) => Plotly.react(place, figure.data, { ...layout(), ...(width ? { width } : {}) });
  });
  const redraw = (width) => figures.forEach((draw) => draw(width));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  // Paper is light and about this wide.
  addEventListener("beforeprint", () => { root.classList.add("paper"); redraw(660); });
  addEventListener("afterprint", () => { root.classList.remove("paper"); redraw(); });

  // Meanings of words: the browser's own tooltip is slow and does not come with a touch or a focus.
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "tooltip");
  tip.id = "tip";
  document.querySelectorAll(".term").forEach((term) => {
    const text = term.title;
    term.removeAttribute("title");
    term.setAttribute("aria-description", text);
    const show = () => {
      tip.textContent = text;
      tip.style.display = "block";
      const at = term.getBoundingClientRect();
      const left = Math.min(at.left, root.clientWidth - tip.offsetWidth - 8);
      const below = at.bottom + tip.offsetHeight + 8 < innerHeight;
      tip.style.left = `${Math.max(8, left)}px`;
      tip.style.top = `${below ? at.bottom + 6 : at.top - tip.offsetHeight - 6}px`;
    };
    const hide = () => { tip.style.display = "none"; };
    term.addEventListener("pointerenter", show);
    term.addEventListener("focus", show);
    term.addEventListener("pointerleave", hide);
    term.addEventListener("blur", hide);
  });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.style.display = "none"; });
  addEventListener("scroll", () => { tip.style.display = "none"; }, { passive: true });
})();
