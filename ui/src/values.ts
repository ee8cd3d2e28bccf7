// One step's values of a tensor, where they were kept: kernels and activations as images, matrices as a heat map, few or
// whole numbers as a table.
import { askColumns, numbers, Refused, report } from "./api";
import { colour, scaleFor } from "./colour";
import { el, fill, number, plain, sized, themed } from "./dom";

const kMostInTable = 64, kMostSide = 256;

interface Picture { across: number; down: number; rows: number; columns: number; what: string; }

/** How a shape is laid out: a grid of pictures, each of rows x columns; null: as a table. */
export function pictureOf(shape: number[], dtype: string): Picture | null {
  const axes = shape.filter((n) => n !== 1);
  const elements = shape.reduce((a, b) => a * b, 1);
  if (axes.length < 2 || elements <= kMostInTable || /^(u?int|bool)/.test(dtype)) return null;
  const columns = axes[axes.length - 1]!, rows = axes[axes.length - 2]!;
  if (axes.length === 2) return { across: 1, down: 1, rows, columns, what: `${rows} rows, ${columns} columns` };
  const across = axes[axes.length - 3]!, down = axes.slice(0, -3).reduce((a, b) => a * b, 1);
  return { across, down, rows, columns, what: `${across * down} pictures of ${rows} × ${columns}` };
}

export class Values {
  readonly element = el("section", { class: "values", "aria-label": "Values of one step" });
  private readonly canvas = el("canvas", { class: "values-picture", role: "img" });
  private turn = 0;
  private wanted = "";  // of this tensor: values are kept of few, and nobody is asked for the others'
  private latest: [string, string, number, number] | null = null;  // what the button asks for
  // One button: of a run that trains `load` is called at each step, and a button that is made anew is hard to click.
  private readonly ask = el("button", { click: () => {
    if (!this.latest) return;
    this.wanted = this.latest[1];
    void this.load(...this.latest);
  } }, "values of this step");

  async load(run: string, tensor: string, step: number, width: number): Promise<void> {
    const turn = ++this.turn;
    if (report) return;  // it never has any
    if (this.wanted !== tensor) {
      this.latest = [run, tensor, step, width];
      if (this.element.firstChild !== this.ask) fill(this.element, this.ask);
      return;
    }
    try {
      const { head, columns } = await askColumns("values", { run, tensor, step });
      if (turn !== this.turn) return;
      const values = numbers(columns.value!), shape: number[] = head.shape;
      const cut = head.shown < head.elements ? `, the first ${head.shown} of ${head.elements} elements` : "";
      const picture = pictureOf(shape, head.dtype);
      const title = el("h3", { id: "values-head" }, `Values at step ${step}`);
      if (picture) {
        this.draw(values, picture, width);
        this.canvas.setAttribute("aria-label", `Values of ${tensor} at step ${step}: ${picture.what}`);
        fill(this.element, title, this.canvas, el("p", { class: "note" }, `${picture.what}${cut}; blue below zero, orange above, bright where large`));
      } else {
        const shown = values.slice(0, kMostInTable);
        fill(this.element, title, el("table", { class: "numbers" }, ...rowsOf(shown)),
          el("p", { class: "note" }, values.length > shown.length ? `the first ${shown.length} of ${head.elements} elements` : ""));
      }
    } catch (error) {
      if (turn !== this.turn) return;
      if (!(error instanceof Refused)) throw error;
      fill(this.element, el("h3", { id: "values-head" }, `Values at step ${step}`), el("p", { class: "note" }, plain(error.message)));
    }
  }

  private draw(values: number[], picture: Picture, width: number): void {
    const { across, rows, columns } = picture;
    const wanted = Math.min(across, Math.max(1, Math.floor(width / (columns + 1))));
    const pictures = Math.ceil(values.length / (rows * columns)), wide = Math.min(wanted, pictures);
    const lines = Math.ceil(pictures / wide);
    const cell = Math.max(Math.min((width - wide) / (wide * columns), 14), width / (wide * columns + wide) / 2, 0.2);
    const tall = Math.min(lines * (rows * cell + 1), kMostSide * 2);
    const c = sized(this.canvas, width, tall);
    c.fillStyle = themed("empty");
    c.fillRect(0, 0, width, tall);
    const scale = scaleFor(values, "signed");
    // Cells smaller than a pixel: the largest magnitude is drawn last, so that no neighbour hides it.
    const order = cell >= 1 ? null : values.map((_, i) => i).sort((a, b) => Math.abs(values[a]!) - Math.abs(values[b]!));
    for (let n = 0; n < values.length; n++) {
      const i = order ? order[n]! : n, value = values[i]!, one = Math.floor(i / (rows * columns)), within = i % (rows * columns);
      const x = (one % wide) * (columns * cell + 1) + (within % columns) * cell;
      const y = Math.floor(one / wide) * (rows * cell + 1) + Math.floor(within / columns) * cell;
      if (y > tall) continue;
      c.fillStyle = Number.isNaN(value) ? themed("nan") : Number.isFinite(value) ? colour(scale, value) : themed("inf");
      c.fillRect(x, y, Math.max(cell, 1), Math.max(cell, 1));
    }
  }
}

function rowsOf(values: number[]): HTMLElement[] {
  const rows: HTMLElement[] = [];
  for (let at = 0; at < values.length; at += 8) {
    rows.push(el("tr", {}, el("th", { scope: "row" }, String(at)), ...values.slice(at, at + 8).map((v) => el("td", {}, number(v)))));
  }
  return rows;
}
