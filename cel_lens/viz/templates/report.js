"use strict";
(function () {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const theme = read("theme"), options = read("plot-options");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const plots = Array.from(document.querySelectorAll(".plot"));

  function colours(name, layout) {
    const palette = theme[name];
    const change = {
      "font.color": palette.text,
      "xaxis.gridcolor": palette.grid,
      "yaxis.gridcolor": palette.grid,
      "hoverlabel.bgcolor": palette.surface,
      "hoverlabel.font.color": palette.text,
    };
    if (layout.coloraxis) change["coloraxis.colorscale"] = palette.scale;
    return change;
  }

  const current = () => (dark.matches ? "dark" : "light");
  const paint = (name) => plots.forEach((plot) => Plotly.relayout(plot, colours(name, plot.layout)));

  Promise.all(plots.map((plot) => {
    const figure = read(plot.id + "-data");
    return Plotly.newPlot(plot, figure.data, figure.layout, options);
  })).then(() => {
    paint(current());
    dark.addEventListener("change", () => paint(current()));
    window.addEventListener("beforeprint", () => paint("light"));
    window.addEventListener("afterprint", () => paint(current()));
  });
})();
