/** Small SVG line charts of the last few minutes. */

import { drawing } from "../kit/element.js";

const WIDTH = 240;
const HEIGHT = 48;
const EDGE = 2;

/** @typedef {{name: string, values: (number | null)[]}} Line */

/**
 * @param {string} label the text for screen readers
 * @param {Line[]} lines with equally many values; null for gaps
 */
export function chart(label, lines) {
  const top = Math.max(1, ...lines.flatMap((line) => line.values.map((value) => value ?? 0)));
  const marks = lines.flatMap((line) => marksOf(line, top));
  const ground = drawing("line", { class: "ground", x1: 0, y1: HEIGHT - EDGE, x2: WIDTH, y2: HEIGHT - EDGE });
  return drawing(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    ground,
    ...marks,
  );
}

/** One polyline per run of values without a gap. @param {Line} line @param {number} top */
function marksOf(line, top) {
  const step = WIDTH / Math.max(1, line.values.length - 1);
  /** @type {string[][]} */
  const runs = [[]];
  line.values.forEach((value, index) => {
    if (value === null) return runs.push([]);
    const y = HEIGHT - EDGE - (value / top) * (HEIGHT - 2 * EDGE);
    return runs[runs.length - 1].push(`${(index * step).toFixed(1)},${y.toFixed(1)}`);
  });
  return runs
    .filter((points) => points.length > 0)
    .map((points) => drawing("polyline", { class: line.name, points: pointsText(points, step) }));
}

/** Draws a single point as a short line to make it visible. @param {string[]} points @param {number} step */
function pointsText(points, step) {
  if (points.length > 1) return points.join(" ");
  const [x, y] = points[0].split(",");
  return `${Math.max(0, Number(x) - step)},${y} ${x},${y}`;
}
