/** Small charts: one or two lines over the last few minutes, drawn by hand. */

import { drawing } from "../kit/element.js";

const WIDTH = 240;
const HEIGHT = 48;
const EDGE = 2;

/** @typedef {{name: string, values: (number | null)[]}} Line */

/**
 * @param {string} label what a screen reader says instead
 * @param {Line[]} lines with as many values each; null where nothing is known
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

/** A line for every stretch without a gap. @param {Line} line @param {number} top */
function marksOf(line, top) {
  const step = WIDTH / Math.max(1, line.values.length - 1);
  /** @type {string[][]} */
  const stretches = [[]];
  line.values.forEach((value, index) => {
    if (value === null) return stretches.push([]);
    const y = HEIGHT - EDGE - (value / top) * (HEIGHT - 2 * EDGE);
    return stretches[stretches.length - 1].push(`${(index * step).toFixed(1)},${y.toFixed(1)}`);
  });
  return stretches
    .filter((points) => points.length > 0)
    .map((points) => drawing("polyline", { class: line.name, points: drawn(points, step) }));
}

/** A single point is drawn as a short line, or nobody would see it. @param {string[]} points @param {number} step */
function drawn(points, step) {
  if (points.length > 1) return points.join(" ");
  const [x, y] = points[0].split(",");
  return `${Math.max(0, Number(x) - step)},${y} ${x},${y}`;
}
