// A line over the steps, by uPlot, with what no line shows (NaN, infinity) and where something was found.
import uPlot from "uplot";
import { askColumns, Columns, numbers, Refused } from "./api";
import { el, number, plain, themed } from "./dom";
import { set, state } from "./state";

const cursor = uPlot.sync("steps");

export interface Wanted { run: string; tensor: string; field: string; label: string; colour: string; }

interface Answered { line: Wanted; mode: string; answer: Columns; }

export class Chart {
  readonly element: HTMLElement;
  private plot: uPlot | null = null;
  private nonfinite: { step: number; value: number }[] = [];
  private marks: number[] = [];
  private readonly body: HTMLElement;
  private readonly note = el("p", { class: "note", hidden: true });
  private asked = 0;
  private shape = "";  // of the plot that is there: all that new data does not change
  private range: [number, number] = [0, 1];

  constructor(title: string, private readonly wanted: () => Wanted[], private readonly height = 150) {
    this.body = el("div", { class: "chart-body" });
    this.element = el("figure", { class: "chart", "aria-label": `${title} over the steps` },
                      el("figcaption", { title }, title), this.body, this.note);
  }

  async load(begin: number, end: number, marks: number[]): Promise<void> {
    const turn = ++this.asked;
    const width = Math.max(160, this.body.clientWidth || 320);
    const refusals: string[] = [];
    const ask = async (line: Wanted, mode?: string): Promise<Answered[]> => {
      try {
        const answer = await askColumns("line", {
          run: line.run, tensor: line.tensor, field: line.field, mode, begin, end, columns: Math.round(width) });
        return [{ line, mode: mode ?? "", answer }];
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        refusals.push(error.message);
        return [];
      }
    };
    // What training and evaluation both record is a line each: one through both goes up and down between them.
    const lines = (await Promise.all(this.wanted().map(async (line) => {
      const whole = await ask(line), modes: string[] = line.tensor ? whole[0]?.answer.head.modes ?? [] : [];
      return modes.length > 1 ? (await Promise.all(modes.map((mode) => ask(line, mode)))).flat() : whole;
    }))).flat();
    if (turn !== this.asked) return;
    this.marks = marks;
    this.nonfinite = [];
    const series: uPlot.Series[] = [{ label: "step" }];
    const tables: uPlot.AlignedData[] = [];
    const notes: string[] = [];
    for (const { line, mode, answer } of lines) {
      const label = mode ? `${line.label} ${mode.toLowerCase()}` : line.label, whose = lines.length > 1 ? `${plain(label)}: ` : "";
      if (answer.head.lost) notes.push(`${whose}of some steps nothing is kept of it any more.`);
      else if (answer.head.coarse) notes.push(`${whose}some single steps were dropped; extremes of each 16 or more are there.`);
      const steps = numbers(answer.columns.step!), values = numbers(answer.columns.value!);
      tables.push([steps, values]);
      const bad = numbers(answer.columns.nonfinite_step!), kinds = numbers(answer.columns.nonfinite_value!);
      bad.forEach((step, i) => this.nonfinite.push({ step, value: kinds[i]! }));
      series.push({ label, stroke: line.colour, width: 1.5, dash: mode && mode !== "TRAIN" ? [6, 4] : undefined, spanGaps: true,
                    points: { show: steps.length < 2 || undefined, size: 5 },
                    value: (_, v) => (v === null || v === undefined ? "–" : number(v)) });
    }
    if (!tables.length) notes.push(...refusals);  // of two runs one may lack it
    this.note.hidden = !notes.length;
    this.note.textContent = notes.join(" ");
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0] ?? [[], []];
    this.draw(data, series, begin, end, width);
  }

  private draw(data: uPlot.AlignedData, series: uPlot.Series[], begin: number, end: number, width: number): void {
    this.range = [begin, Math.max(begin + 1, end - 1)];
    const text = themed("soft"), grid = themed("line");
    const shape = JSON.stringify([width, text, grid, series.map((s) => [s.label, s.stroke, s.dash, s.points?.show])]);
    // A training's next step is new data: a plot that is made anew under the hand is neither clicked nor dragged over.
    if (this.plot && shape === this.shape) { this.plot.setData(data); return; }
    this.shape = shape;
    this.plot?.destroy();
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui" };
    this.plot = new uPlot({
      width, height: this.height, series,
      legend: { show: true, live: true },
      cursor: { sync: { key: cursor.key, setSeries: false }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: false, range: () => this.range } },
      axes: [
        { ...axis, size: 24, values: (_, ticks) => ticks.map((t) => (Number.isInteger(t) ? String(t) : "")) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map(number) },
      ],
      hooks: {
        draw: [(plot) => this.drawMarks(plot)],
        setSelect: [(plot) => {
          if (plot.select.width < 4) return;
          const from = Math.round(plot.posToVal(plot.select.left, "x"));
          const to = Math.round(plot.posToVal(plot.select.left + plot.select.width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          set({ begin: from, end: Math.max(to, from + 1) + 1 });
        }],
      },
    }, data, this.body);
    this.plot.over.addEventListener("click", () => {
      const at = this.plot?.cursor.left;
      if (at !== undefined && at >= 0) set({ step: Math.round(this.plot!.posToVal(at, "x")) });
    });
    this.plot.over.addEventListener("dblclick", () => set({ begin: null, end: null }));
  }

  private drawMarks(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - 8, bbox.width, bbox.height + 16);
    ctx.clip();
    for (const step of this.marks) {
      const x = plot.valToPos(step, "x", true);
      ctx.strokeStyle = themed("bad");
      ctx.globalAlpha = 0.55;
      ctx.setLineDash([4, 3]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
    if (state.step !== null) {
      const x = plot.valToPos(state.step, "x", true);
      ctx.strokeStyle = themed("accent");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    // A bar at the top for each: at every zoom at least three pixels wide.
    for (const { step, value } of this.nonfinite) {
      const x = plot.valToPos(step, "x", true);
      ctx.fillStyle = themed(Number.isNaN(value) ? "nan" : "inf");
      ctx.fillRect(x - 1.5, bbox.top, 3, 10);
    }
    ctx.restore();
  }

  redraw(): void { this.plot?.redraw(false); }
  destroy(): void { this.asked++; this.plot?.destroy(); this.plot = null; }
}
