// One tensor: its statistics and its distribution over the steps, one step's histogram, its kin, and the same
// question for Python and the shell.
import { askColumns, Columns, numbers, Refused, report } from "./api";
import { Chart } from "./chart";
import { colourAt, Scale } from "./colour";
import { copyable, download, el, fill, number, parsed, plain, shellWord, sized, themed } from "./dom";
import type { Run, TreeTensor } from "./run";
import { onState, set, state } from "./state";
import { Values } from "./values";

export const kFields = ["mean_abs", "l2", "mean", "std", "min", "max", "abs_max", "zero_count", "nan_count", "value"];
const kBias = 4301, kSaved = 16384;

/** The lower bound of a bucket's magnitude, as log2. Buckets are quarters of powers of two (docs/statistics.md). */
function log2Of(bucket: number): number {
  const k = Math.abs(bucket) - kBias, e = Math.floor(k / 4), m = k - 4 * e;
  return e + Math.log2(1 + m / 4);
}

export class TensorPanel {
  readonly element = el("aside", { class: "tensor", "aria-label": "Tensor" });
  private readonly forget: () => void;
  private chart: Chart | null = null;
  private readonly over = el("canvas", { class: "dist-over", role: "img" });
  private readonly one = el("canvas", { class: "dist-one", role: "img" });
  private readonly oneHead = el("h3", { id: "histogram-head" });
  private readonly table = el("table", { class: "numbers" });
  private readonly dist = el("div", { class: "dist" }, this.over);
  private readonly note = el("p", { class: "note" });
  private readonly values = new Values();
  private histograms: Columns | null = null;
  private shownTensor = "";
  private isNew = false;  // and its latest histogram was not known when its commands were written

  constructor(private readonly run: Run, private readonly marks: () => number[]) {
    this.forget = onState((_, changed) => {
      if (changed.has("tensor")) return this.show();
      if (changed.has("begin") || changed.has("end")) void this.load();
      else if (changed.has("field")) void this.loadLine();
      if (changed.has("step")) { this.chart?.redraw(); this.drawOver(); void this.loadStep(); this.commands(); }
    });
    this.over.addEventListener("click", (event) => {
      const at = this.columnAt(event);
      if (at !== null) set({ step: Number(this.histograms!.columns.step_last![at]) });
    });
  }
  destroy(): void { this.forget(); this.chart?.destroy(); }

  get info(): TreeTensor | undefined { return this.run.tree.tensors.find((t) => t.name === state.tensor); }

  show(): void {
    this.chart?.destroy();
    this.chart = null;
    this.element.hidden = !state.tensor;
    document.body.classList.toggle("with-tensor", !!state.tensor);
    if (!state.tensor) { fill(this.element); this.shownTensor = ""; return; }
    this.shownTensor = state.tensor;
    this.histograms = null;  // of the tensor before
    this.isNew = true;
    const info = this.info;
    const field = el("select", { "aria-label": "Statistic of the line", change: (e: any) => set({ field: e.target.value }) });
    for (const name of kFields) field.append(el("option", { value: name, selected: name === this.field }, name));
    this.chart = new Chart("over the steps", () => [
      { run: this.run.name, tensor: state.tensor, field: this.field, label: this.field, colour: themed("accent") },
      ...(state.other ? [{ run: state.other, tensor: state.tensor, field: this.field, label: state.other, colour: themed("second") }] : []),
    ], 160);
    const kin = info ? this.run.tree.tensors.filter((t) => t.node === info.node && t.name !== info.name) : [];
    fill(this.element,
      el("header", {}, el("h2", { title: state.tensor, id: "tensor-name" }, plain(state.tensor)),
        el("button", { class: "close", "aria-label": "Close", click: () => set({ tensor: "" }) }, "×")),
      el("p", { class: "soft" }, info ? `${info.dtype} [${info.shape.join(", ")}]  ${info.module_kind}  ${info.collections.filter((c) => c !== "all").join(", ")}` : ""),
      kin.length ? el("p", { class: "kin" }, "beside it: ", ...kin.slice(0, 12).map((t) =>
        el("button", { class: "chip", title: t.name, click: () => set({ tensor: t.name }) }, plain(t.leaf)))) : null,
      el("div", { class: "section-head" }, el("h3", {}, "Statistics"),
        el("div", { class: "controls" }, field, el("button", { title: "this line as a table", click: () => void this.save() }, "CSV"))), this.chart.element,
      el("h3", {}, "Distribution over the steps"), this.dist, this.note,
      this.oneHead, this.one, this.table, this.values.element,
      el("h3", {}, "The same question"), el("div", { class: "commands", id: "commands" }));
    this.commands();
    void this.load();
  }
  private get field(): string {
    const info = this.info;
    return !info || info.kind === "scalar" ? "value" : state.field;
  }

  async load(): Promise<void> {
    if (!state.tensor || this.shownTensor !== state.tensor) return;
    await Promise.all([this.loadLine(), this.loadHistograms().then(() => this.loadStep())]);
  }
  private async loadLine(): Promise<void> {
    const [begin, end] = this.run.window(state.begin, state.end);
    await this.chart?.load(begin, end, this.marks());
  }
  /** The line of the window that is shown, every point that one answer holds. */
  private async save(): Promise<void> {
    const [begin, end] = this.run.window(state.begin, state.end), tensor = state.tensor, field = this.field;
    const lines = ["run,tensor,field,step,value"];
    const quoted = (text: string) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    for (const run of [this.run.name, ...(this.run.other ? [this.run.other.name] : [])]) {
      try {
        const { columns } = await askColumns("line", { run, tensor, field, begin, end, columns: kSaved });
        const points = numbers(columns.step!).map((step, i) => [step, String(columns.value![i])] as const);
        numbers(columns.nonfinite_step!).forEach((step, i) => points.push([step, String(columns.nonfinite_value![i])]));
        for (const [step, value] of points.sort((a, b) => a[0] - b[0])) lines.push([run, tensor, field].map(quoted).join(",") + `,${step},${value}`);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
      }
    }
    download(`${tensor}-${field}.csv`, `${lines.join("\n")}\n`);
  }
  private async loadHistograms(): Promise<void> {
    const [begin, end] = this.run.window(state.begin, state.end), tensor = state.tensor;
    try {
      const answer = await askColumns("histograms", { run: this.run.name, tensor, begin, end, columns: 160 });
      if (tensor !== state.tensor) return;
      this.histograms = answer;
      const { kept, read } = answer.head;
      this.note.textContent = kept === 0 ? "No histograms were kept of it in these steps (tdbg run --histograms)."
        : read < kept ? `${read} of ${kept} histograms were read for this picture.` : "";
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.histograms = null;
      this.note.textContent = error.message;
    }
    this.drawOver();
  }

  /** Where a signed bucket stands: negative ones below zeros, zeros in the middle. */
  private axis(): { low: number; high: number; y: (bucket: number, height: number) => [number, number] } {
    const buckets = this.histograms!.columns.bucket as Int16Array;
    let low = Infinity, high = -Infinity;
    for (const b of buckets) {
      const at = log2Of(b);
      low = Math.min(low, at);
      high = Math.max(high, at + 0.33);
    }
    low = Math.max(low, high - 36);  // 2^-36 of the largest is a pixel next to zero
    const span = Math.max(high - low, 1);
    return {
      low, high, y: (bucket, height) => {
        const half = height / 2 - 4, bottom = Math.max(0, (log2Of(bucket) - low) / span) * half;
        const top = Math.max(0, (log2Of(bucket) + 0.33 - low) / span) * half;
        return bucket > 0 ? [height / 2 - 4 - top, height / 2 - 4 - bottom] : [height / 2 + 4 + bottom, height / 2 + 4 + top];
      },
    };
  }
  private columnAt(event: MouseEvent): number | null {
    if (!this.histograms) return null;
    const firsts = numbers(this.histograms.columns.step_first!);
    const box = this.over.getBoundingClientRect(), [begin, end] = this.run.window(state.begin, state.end);
    const step = begin + ((event.clientX - box.left) / box.width) * (end - begin);
    let at = firsts.length - 1;
    while (at > 0 && firsts[at]! > step) at--;
    return firsts.length ? at : null;
  }
  private drawOver(): void {
    const width = this.dist.clientWidth || 380, height = 170;
    const c = sized(this.over, width, height);
    c.fillStyle = themed("empty");
    c.fillRect(0, 0, width, height);
    const answer = this.histograms;
    if (!answer || !answer.columns.bucket!.length) return;
    const firsts = numbers(answer.columns.step_first!), offsets = answer.columns.offset as Uint32Array;
    const buckets = answer.columns.bucket as Int16Array, counts = numbers(answer.columns.count!), zeros = numbers(answer.columns.zero_count!);
    const bad = numbers(answer.columns.nonfinite_count!);
    const [begin, end] = this.run.window(state.begin, state.end);
    const x = (step: number) => ((step - begin) / Math.max(1, end - begin)) * width;
    const { y, low, high } = this.axis();
    const scale: Scale = { place: (v) => v, value: (v) => v, around: false, low: 0, high: 1 };
    const gaps = firsts.slice(1).map((s, i) => s - firsts[i]!).sort((a, b) => a - b), usual = gaps[gaps.length >> 1] ?? 1;
    firsts.forEach((step, i) => {
      const x0 = x(step), w = Math.max(1, x(Math.min(firsts[i + 1] ?? step + usual, step + 2 * usual)) - x0);
      let most = zeros[i]!, all = zeros[i]!;
      for (let k = offsets[i]!; k < offsets[i + 1]!; k++) { most = Math.max(most, counts[k]!); all += counts[k]!; }
      const shade = (n: number) => colourAt(scale, n > 0 ? 0.12 + 0.88 * Math.sqrt(n / most) : 0);
      for (let k = offsets[i]!; k < offsets[i + 1]!; k++) {
        const [top, bottom] = y(buckets[k]!, height);
        c.fillStyle = shade(counts[k]!);
        c.fillRect(x0, top, w + 0.5, Math.max(1.2, bottom - top + 0.5));
      }
      if (zeros[i]! > 0) { c.fillStyle = shade(zeros[i]!); c.fillRect(x0, height / 2 - 3, w + 0.5, 6); }
      if (bad[i]! > 0) { c.fillStyle = themed("nan"); c.fillRect(x0, 0, Math.max(w, 3), 6); }
    });
    c.fillStyle = themed("soft");
    c.font = "10px system-ui";
    c.textBaseline = "top";
    c.fillStyle = themed("ink");
    const tag = (text: string, at: number) => {
      c.fillStyle = themed("panel");
      c.globalAlpha = 0.8;
      c.fillRect(1, at, c.measureText(text).width + 6, 12);
      c.globalAlpha = 1;
      c.fillStyle = themed("ink");
      c.fillText(text, 4, at + 1);
    };
    tag(number(2 ** high), 0);
    tag(`±${number(2 ** low)}`, height / 2 - 6);
    tag(number(-(2 ** high)), height - 12);
    if (state.step !== null) { c.fillStyle = themed("bad"); c.fillRect(x(state.step + 0.5) - 1, 0, 2, height); }
    this.over.setAttribute("aria-label", `Histograms of ${state.tensor} at ${firsts.length} places from step ${firsts[0]} on`);
  }

  /** The chosen step; else the latest that has a histogram: the run's last one is mostly none, or an evaluation's. */
  private get step(): number {
    const steps = this.histograms?.columns.step_last;
    if (state.step !== null) return state.step;
    return steps?.length && !report ? Number(steps[steps.length - 1]) : this.run.overview.last_step;
  }
  private async loadStep(): Promise<void> {
    const tensor = state.tensor, step = this.step;
    if (!tensor) return;  // closed while something else was awaited
    let answer: Columns | null = null, why = "";
    try {
      answer = await askColumns("histogram", { run: this.run.name, tensor, step });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      why = error.message;
    }
    if (tensor !== state.tensor) return;
    if (this.isNew) this.commands();
    this.isNew = false;
    this.oneHead.textContent = `Histogram at step ${step}`;
    const width = this.dist.clientWidth || 380;
    void this.values.load(this.run.name, tensor, step, width);
    const c = sized(this.one, width, 120);
    c.fillStyle = themed("empty");
    c.fillRect(0, 0, width, 120);
    if (!answer || !answer.columns.count!.length) {
      c.fillStyle = themed("soft");
      c.font = "12px system-ui";
      wrap(c, why || answer?.head.why_none || "no finite element but zeros", 8, 20, width - 16);
    } else {
      this.drawOne(c, width, 120, answer, step);
    }
    const summary = answer?.head.summary;
    fill(this.table);
    if (!summary) return;
    const row = (...cells: [string, string][]) => el("tr", {}, ...cells.flatMap(([name, value]) => [el("th", { scope: "row" }, name), el("td", {}, value)]));
    const v = (name: string) => number(parsed(summary[name]));
    this.table.append(row(["count", v("count")], ["mean", v("mean")]), row(["NaN", v("nan_count")], ["std", number(Math.sqrt(parsed(summary.variance)))]),
      row(["±inf", String(summary.pos_inf_count + summary.neg_inf_count)], ["mean |x|", v("mean_abs")]),
      row(["zeros", v("zero_count")], ["l2", v("l2")]), row(["min", v("min")], ["max", v("max")]));
  }
  private drawOne(c: CanvasRenderingContext2D, width: number, height: number, answer: Columns, step: number): void {
    const lower = numbers(answer.columns.lower!), upper = numbers(answer.columns.upper!), count = numbers(answer.columns.count!);
    const zeros = Number(answer.head.summary.zero_count);
    const sizes = lower.map((v, i) => Math.max(Math.abs(v), Math.abs(upper[i]!)));
    const high = Math.log2(Math.max(...sizes)), low = Math.max(Math.log2(Math.min(...sizes)) - 0.4, high - 36);
    const half = width / 2 - 6, span = Math.max(high - low, 1);
    const at = (value: number) => {
      const size = Math.max(0, Math.log2(Math.abs(value)) - low) / span * half;
      return value > 0 ? width / 2 + 6 + size : width / 2 - 6 - size;
    };
    const most = Math.max(zeros, ...count);
    c.fillStyle = themed("accent");
    lower.forEach((a, i) => {
      const [x0, x1] = [a === 0 ? width / 2 : at(a), upper[i] === 0 ? width / 2 : at(upper[i]!)];
      const h = Math.max(1, (count[i]! / most) * (height - 26));
      c.fillRect(x0, height - 14 - h, Math.max(1, x1 - x0 - 0.5), h);
    });
    if (zeros > 0) {
      const h = Math.max(1, (zeros / most) * (height - 26));
      c.fillStyle = themed("second");
      c.fillRect(width / 2 - 4, height - 14 - h, 8, h);
    }
    c.fillStyle = themed("soft");
    c.font = "10px system-ui";
    c.textBaseline = "bottom";
    c.textAlign = "left";
    c.fillText(number(-(2 ** high)), 2, height - 1);
    c.textAlign = "center";
    c.fillText(`0 (${number(zeros)})`, width / 2, height - 1);
    c.textAlign = "right";
    c.fillText(number(2 ** high), width - 2, height - 1);
    this.one.setAttribute("aria-label", `Histogram of ${state.tensor} at step ${step}: ${count.length} buckets, ${zeros} zeros`);
  }

  private commands(): void {
    const box = this.element.querySelector("#commands");
    if (!box) return;
    const step = this.step, path = this.run.overview.path;
    const shell = `tdbg show ${shellWord(path)} ${shellWord(state.tensor)} --steps ${step}:${step + 1}`;
    const python = `tdbg.open(${JSON.stringify(path)}).tensor(${JSON.stringify(state.tensor)}).summary(${step})`;
    fill(box, copyable("shell", shell), copyable("python", python));
  }
}

function wrap(c: CanvasRenderingContext2D, text: string, x: number, y: number, width: number): void {
  let line = "";
  for (const word of text.split(" ")) {
    if (c.measureText(line + word).width > width && line) { c.fillText(line, x, y); y += 15; line = ""; }
    line += `${word} `;
  }
  c.fillText(line, x, y);
}

