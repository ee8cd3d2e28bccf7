// Rank by step of any statistic of the chosen tensor: who is the odd one out, and since when.
import { askColumns, Columns, numbers, Refused } from "./api";
import { colour, scaleFor } from "./colour";
import { el, fill, number, plain, sized, themed } from "./dom";
import type { Run } from "./run";
import { set, state } from "./state";
import { kFields } from "./tensor";

const kRow = 18, kLabel = 110, kNan = 1, kInfinity = 2, kKept = 8;
const kApart = 0.01;  // of the others' median: less is what different batches do

interface Odd { row: number; apart: number; since: number; bad: boolean; }

/**
 * The row that is farthest from the median of the others, over all buckets, and where it began. A row alone in being
 * NaN is odder than any number. Null: no two differ.
 */
export function oddOneOut(high: ArrayLike<number>, flags: ArrayLike<number>, rows: number, buckets: number): Odd | null {
  const sums = Array.from({ length: rows }, () => ({ sum: 0, count: 0, since: -1, bad: -1 }));
  for (let b = 0; b < buckets; b++) {
    for (let row = 0; row < rows; row++) {
      const flag = flags[row * buckets + b]!, mine = sums[row]!;
      if (!(flag & kKept)) continue;
      const others: number[] = [];
      let othersBad = 0, othersKept = 0;
      for (let other = 0; other < rows; other++) {
        const its = flags[other * buckets + b]!;
        if (other === row || !(its & kKept)) continue;
        othersKept++;
        if (its & (kNan | kInfinity)) othersBad++;
        if (Number.isFinite(high[other * buckets + b]!)) others.push(high[other * buckets + b]!);
      }
      if (!othersKept) continue;
      if (flag & (kNan | kInfinity)) {
        if (othersBad * 2 < othersKept && mine.bad < 0) mine.bad = b;
        continue;
      }
      if (!others.length) continue;
      others.sort((x, y) => x - y);
      const middle = others[others.length >> 1]!, value = high[row * buckets + b]!;
      const apart = Math.abs(value - middle) / (Math.abs(middle) || Math.abs(value) || 1);
      mine.sum += apart;
      mine.count++;
      if (apart >= kApart && mine.since < 0) mine.since = b;
    }
  }
  let odd: Odd | null = null;
  sums.forEach(({ sum, count, since, bad }, row) => {
    const apart = bad >= 0 ? Infinity : count ? sum / count : 0;
    if (apart > 0 && (!odd || apart > odd.apart || (bad >= 0 && odd.bad && bad < odd.since)))
      odd = { row, apart, since: bad >= 0 ? bad : since, bad: bad >= 0 };
  });
  return odd;
}

export class Workers {
  readonly element = el("section", { class: "workers", "aria-label": "Workers" });
  private readonly canvas = el("canvas", { role: "img" });
  private readonly note = el("p", { class: "note" });
  private answer: Columns | null = null;
  private turn = 0;
  private why = "";
  private headOf = "";  // of what tensor and statistic the head is

  constructor(private readonly run: Run) {
    this.canvas.addEventListener("click", (event) => {
      if (!this.answer) return;
      const box = this.canvas.getBoundingClientRect(), [begin, end] = run.window(state.begin, state.end);
      set({ step: Math.round(begin + ((event.clientX - box.left - kLabel) / (box.width - kLabel)) * (end - begin)) });
    });
  }

  async load(): Promise<void> {
    const turn = ++this.turn;
    const several = this.run.overview.world_size > 1;
    this.element.hidden = !several;
    const tensor = state.tensor || this.run.overview.charts[0]?.tensor;
    if (!several || !tensor) return;
    const [begin, end] = this.run.window(state.begin, state.end);
    const info = this.run.tree.tensors.find((t) => t.name === tensor);
    const number = !info || info.kind === "scalar" || info.shape.every((n) => n === 1);
    const field = number && !state.tensor ? "value" : info ? state.field : "value";
    this.why = "";
    try {
      const answer = await askColumns("workers", { run: this.run.name, tensor, field, begin, end, columns: 400 });
      if (turn !== this.turn) return;
      this.answer = answer;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (turn !== this.turn) return;
      this.answer = null;
      this.why = error.message;
    }
    // News come several times a second: a choice that is open is not made anew below the hand.
    if (this.headOf === `${tensor}\n${field}`) return this.draw();
    this.headOf = `${tensor}\n${field}`;
    const choice = el("select", { "aria-label": "Statistic of the workers", change: (e: any) => set({ field: e.target.value, tensor }) });
    for (const name of kFields) choice.append(el("option", { value: name, selected: name === field }, name));
    fill(this.element, el("div", { class: "section-head" }, el("h2", {}, `Workers: ${plain(tensor)}`), el("div", { class: "controls" }, choice)),
      this.canvas, this.note);
    this.draw();
  }

  draw(): void {
    const answer = this.answer;
    this.canvas.hidden = !answer;
    if (this.element.hidden) return;
    if (!answer) { this.note.textContent = this.why || "Nothing is kept of it by worker."; return; }
    const names: string[] = answer.head.workers, width = this.element.clientWidth;
    const c = sized(this.canvas, width, names.length * kRow);
    const firsts = numbers(answer.columns.step_first!), lasts = numbers(answer.columns.step_last!), buckets = firsts.length;
    const high = answer.columns.high as Float32Array, flags = answer.columns.flags as Uint8Array;
    const [begin, end] = this.run.window(state.begin, state.end);
    const x = (step: number) => kLabel + ((step - begin) / Math.max(1, end - begin)) * (width - kLabel);
    const scale = scaleFor(Array.from(high), Array.from(high).some((v) => v < 0) ? "signed" : "log");
    const odd = oddOneOut(high, flags, names.length, buckets), silent: string[] = [];
    names.forEach((name, row) => {
      c.fillStyle = themed(odd?.row === row ? "bad" : "ink");
      c.font = odd?.row === row ? "bold 12px system-ui" : "12px system-ui";
      c.textBaseline = "middle";
      c.fillText(plain(name), 2, row * kRow + kRow / 2, kLabel - 6);
      c.fillStyle = themed("empty");
      c.fillRect(kLabel, row * kRow + 1, width - kLabel, kRow - 2);
      let last = -1;
      for (let b = 0; b < buckets; b++) {
        const at = row * buckets + b, x0 = x(firsts[b]!), w = Math.max(1, x(firsts[b + 1] ?? lasts[b]! + 1) - x0);
        if (flags[at]! & kKept) last = b;
        if (flags[at]! & (kNan | kInfinity)) { c.fillStyle = themed(flags[at]! & kNan ? "nan" : "inf"); c.fillRect(x0, row * kRow + 1, Math.max(3, w), kRow - 2); continue; }
        if (!(flags[at]! & kKept)) continue;
        c.fillStyle = colour(scale, high[at]!);
        c.fillRect(x0, row * kRow + 1, w + 0.5, kRow - 2);
      }
      if (last < buckets - 1) silent.push(`${plain(name)}: nothing after step ${last < 0 ? begin - 1 : lasts[last]}`);
    });
    if (state.step !== null) { c.fillStyle = themed("ink"); c.fillRect(x(state.step + 0.5) - 0.75, 0, 1.5, names.length * kRow); }
    const said = !odd ? "All are the same."
      : odd.bad ? `The odd one out: ${plain(names[odd.row]!)}, alone not finite from step ${firsts[odd.since]} on.`
      : odd.since < 0 ? `No more than ${number(odd.apart * 100)} % apart on average.`
      : names.length > 2 ? `The odd one out: ${plain(names[odd.row]!)}, ${number(odd.apart * 100)} % from the others' median on average, first beyond ${kApart * 100} % at step ${firsts[odd.since]}.`
      : `The two are ${number(odd.apart * 100)} % apart on average, first beyond ${kApart * 100} % at step ${firsts[odd.since]}.`;
    fill(this.note, said, silent.length ? ` ${silent.slice(0, 4).join("; ")}.` : "");
    this.canvas.setAttribute("aria-label", `${names.length} workers over ${buckets} steps. ${said}`);
  }
}
