// The layer map: modules and tensors in the model's order over the steps. A folded module shows the worst of
// its children; NaN, infinity, all zero, missing and shed have signs of their own.
import { askColumns, numbers, Columns, Refused } from "./api";
import { colour, colourAt, scaleFor, Scale } from "./colour";
import { download, el, fill, number, plain, sized, themed } from "./dom";
import type { Run, TreeTensor } from "./run";
import { kOrders, kParts, ordered } from "./order";
import { onState, set, state } from "./state";

// What is unfolded by itself, where nobody has said: as many levels as fit a screen.
const kRowsUnfolded = 44, kNone = "-";
// Nine bytes each: an answer stays below 500 kB on any screen.
const kMostCells = 52_000;
const kRow = 18, kLabels = 270, kNan = 1, kInfinity = 2, kAllZero = 4, kKept = 8, kSigns = 7;

interface Row { key: string; depth: number; label: string; tensors: TreeTensor[]; node: number; folded: boolean; leaf: TreeTensor | null; }

export class LayerMap {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { class: "map-canvas" });
  private readonly labels = el("div", { class: "map-labels", role: "none" });
  private readonly scroll = el("div", { class: "map-scroll", tabindex: 0, role: "tree",
    "aria-label": "Layer map: rows are modules and tensors, columns are steps" });  // it has the focus: it is the tree whose rows are read aloud
  private readonly inner = el("div", { class: "map-inner" });
  private readonly stage = el("div", { class: "map-stage" });
  private readonly tip = el("div", { class: "tip", hidden: true });
  private readonly legend = el("div", { class: "legend" });
  private readonly controls = el("div", { class: "controls" });
  private rows: Row[] = [];
  private unfolded = new Set<string>();
  private answer: Columns | null = null;
  private answered: { first: number; keys: string[] } | null = null;  // a name may hold anything, a new line too
  private scale: Scale | null = null;
  private selected = 0;
  private revealed = "";
  private asking: AbortController | null = null;
  private ordering: AbortController | null = null;
  private orderingOf = "";
  private labelled = "";  // what `labels` holds
  private timer = 0;
  private readonly forget: () => void;
  private hover: { x: number; y: number } | null = null;

  constructor(private readonly run: Run) {
    this.stage.append(this.labels, this.canvas, this.tip);
    this.inner.append(this.stage);
    this.scroll.append(this.inner);
    this.element = el("section", { class: "map", "aria-label": "Layer map" },
                      el("div", { class: "section-head" }, el("h2", {}, "Layers"), this.controls), this.scroll, this.legend);
    this.makeControls();
    this.scroll.addEventListener("scroll", () => { this.draw(); this.later(); });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; this.tip.hidden = true; this.draw(); });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("dblclick", () => set({ begin: null, end: null }));
    this.scroll.addEventListener("keydown", (event) => this.key(event));
    this.forget = onState((_, changed) => {
      if (["statistic", "show", "order"].some((k) => changed.has(k as any))) this.makeControls();
      if (["open", "filter", "order"].some((k) => changed.has(k as any)) || (changed.has("statistic") && state.order)) this.rebuild();
      else if (["begin", "end", "statistic", ...(this.run.other ? ["show"] : [])].some((k) => changed.has(k as any))) this.later();
      else if (["tensor", "step", "show"].some((k) => changed.has(k as any))) { this.reveal(); this.draw(); }
    });
  }
  shownOpen(): string[] { return [...this.unfolded]; }
  destroy(): void { this.forget(); this.asking?.abort(); this.ordering?.abort(); clearTimeout(this.timer); }

  private makeControls(): void {
    const statistic = el("select", { "aria-label": "Statistic", change: (e: any) => set({ statistic: e.target.value }) });
    for (const { name, title } of this.run.overview.statistics) {
      statistic.append(el("option", { value: name, selected: name === state.statistic }, title));
    }
    const show = el("select", { "aria-label": "What of a cell is drawn", change: (e: any) => set({ show: e.target.value }) });
    const ways = [["high", "highest of a cell"], ["low", "lowest of a cell"], ["change", "against the row's own median"]];
    if (this.run.other) ways.push(["ratio", `ratio to ${this.run.other.name}`]);
    for (const [value, title] of ways) {
      show.append(el("option", { value: value!, selected: value === state.show }, title!));
    }
    const order = el("select", { "aria-label": "Order of the rows", change: (e: any) => set({ order: e.target.value }) });
    for (const [value, title] of Object.entries(kOrders)) if (value !== kParts || this.run.other) order.append(el("option", { value, selected: value === state.order }, title));
    const filter = el("input", { type: "search", placeholder: "filter names  /", "aria-label": "Filter by name", id: "filter",
                                 value: state.filter, input: (e: any) => set({ filter: e.target.value }) });
    fill(this.controls, filter, statistic, show, order,
         el("button", { title: "these rows as a table", click: () => this.save() }, "CSV"),
         el("button", { click: () => set({ open: this.allNodes() }) }, "unfold all"),
         el("button", { click: () => set({ open: [kNone] }) }, "fold all"));
  }

  private pathOf(node: number): string {
    const { nodes } = this.run.tree;
    const parts: string[] = [];
    for (let at = node; at > 0; at = nodes[at]!.parent) parts.unshift(nodes[at]!.name);
    return parts.join("/");
  }
  private allNodes(): string[] { return this.run.tree.nodes.map((_, i) => this.pathOf(i)).filter((p) => p).slice(0, 400); }

  /** Rows as they are folded now. A run of few tensors needs no folding. */
  rebuild(): void {
    const { nodes, tensors } = this.run.tree;
    const words = state.filter.toLowerCase().split(/\s+/).filter((w) => w);
    const matches = (t: TreeTensor) => words.every((w) =>
      t.name.toLowerCase().includes(w) || t.kind.toLowerCase() === w || t.collections.some((c) => c.toLowerCase() === w));
    const byOrder = state.order in kOrders && state.order && (state.order !== kParts || this.run.other);
    const about = byOrder ? JSON.stringify([state.order, state.statistic, state.filter]) : "";
    if (this.ordering && about && about === this.orderingOf) return;  // news would keep its answer from ever coming
    this.ordering?.abort();
    this.orderingOf = about;
    if (byOrder) return void this.rebuildOrdered(tensors.filter(matches));
    const everything = !!words.length;
    const below: TreeTensor[][] = nodes.map(() => []);
    const own: TreeTensor[][] = nodes.map(() => []);
    for (const tensor of tensors) {
      if (!matches(tensor)) continue;
      own[tensor.node]!.push(tensor);
      for (let at = tensor.node; at >= 0; at = nodes[at]!.parent) below[at]!.push(tensor);
    }
    const children: number[][] = nodes.map(() => []);
    nodes.forEach((node, i) => { if (node.parent >= 0) children[node.parent]!.push(i); });
    const open = this.unfolded = new Set(state.open);
    if (!open.size) {
      let level = nodes.flatMap((_, i) => (i === 0 ? [0] : [])), count = own[0]?.length ?? 0;
      while (level.length) {
        const next = level.flatMap((i) => children[i]!).filter((i) => below[i]!.length);
        const more = next.reduce((sum, i) => sum + own[i]!.length + children[i]!.filter((c) => below[c]!.length).length, next.length);
        if (count + more > kRowsUnfolded) break;
        count += more;
        for (const i of next) open.add(this.pathOf(i));
        level = next;
      }
    }
    const rows: Row[] = [];
    const walk = (node: number, depth: number) => {
      if (!below[node]!.length) return;
      const path = this.pathOf(node);
      let unfolded = true;
      if (node > 0) {
        unfolded = everything || open.has(path);
        rows.push({ key: path, depth, label: nodes[node]!.name, tensors: below[node]!, node, folded: !unfolded, leaf: null });
      }
      if (!unfolded) return;
      const inside = node > 0 ? depth + 1 : depth;
      for (const tensor of own[node]!) {
        rows.push({ key: tensor.name, depth: inside, label: tensor.leaf, tensors: [tensor], node, folded: false, leaf: tensor });
      }
      for (const child of children[node]!) walk(child, inside);
    };
    if (nodes.length) walk(0, 0);
    this.place(rows);
  }

  /** Tensors alone, each by its whole name. */
  private async rebuildOrdered(tensors: TreeTensor[]): Promise<void> {
    const asking = this.ordering = new AbortController();
    try {
      const sorted = await ordered(this.run, tensors, state.order, state.statistic, asking.signal);
      if (asking.signal.aborted) return;
      this.place(sorted.map((t) => ({ key: t.name, depth: 0, label: t.name, tensors: [t], node: t.node, folded: false, leaf: t })));
    } catch (error) {
      if (error instanceof Refused) fill(this.legend, error.message);
      else if ((error as Error).name !== "AbortError") throw error;
    } finally {
      if (this.ordering === asking) this.ordering = null;
    }
  }

  private place(rows: Row[]): void {
    this.rows = rows;
    this.inner.style.height = `${Math.max(rows.length * kRow, 40) + 4}px`;
    const most = Math.max(200, Math.min(window.innerHeight * 0.62, rows.length * kRow + 8));
    this.scroll.style.height = `${most}px`;
    this.reveal();
    this.draw();
    this.later(0);
  }

  /** The chosen tensor's row, once: who scrolls away from it afterwards means it. */
  private reveal(): void {
    if (state.tensor === this.revealed) return;
    const at = this.rows.findIndex((r) => r.leaf?.name === state.tensor);
    if (at < 0) { if (!state.tensor) this.revealed = ""; return; }
    this.revealed = state.tensor;
    this.selected = at;
    const y = at * kRow, shown = this.scroll.clientHeight;
    if (y < this.scroll.scrollTop || y + kRow > this.scroll.scrollTop + shown) this.scroll.scrollTop = Math.max(0, y - shown / 2);
  }

  private visible(): [number, number] {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / kRow));
    const last = Math.min(this.rows.length, Math.ceil((this.scroll.scrollTop + this.scroll.clientHeight) / kRow));
    return [first, last];
  }
  /** Of the names: on a narrow screen the cells have more than half. */
  private get labelWidth(): number { return Math.min(kLabels, Math.round(this.scroll.clientWidth * 0.45)); }
  private get plotWidth(): number { return Math.max(100, this.scroll.clientWidth - this.labelWidth - 4); }

  private later(wait = 60): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.load(), wait);
  }

  async load(): Promise<void> {
    const [from, to] = this.visible();
    const first = Math.max(0, from - 8), rows = this.rows.slice(first, to + 8);
    if (!rows.length || !this.plotWidth) { this.answer = null; this.draw(); return; }
    const [begin, end] = this.run.window(state.begin, state.end);
    this.asking?.abort();
    this.asking = new AbortController();
    try {
      const answer = await askColumns(this.ratio ? "ratio" : "matrix", {
        run: this.run.name, other: this.ratio ? this.run.other!.name : undefined, statistic: state.statistic, begin, end, columns: Math.round(Math.min(this.plotWidth, kMostCells / rows.length)),
        rows: rows.map((r) => ranges(r.tensors.map((t) => t.id))).join(";"),
      }, this.asking.signal);
      this.answer = answer;
      this.answered = { first, keys: rows.map((r) => r.key) };
      this.draw();
    } catch (error) {
      // A report may lack the statistic: then it says so.
      if (error instanceof Refused) { this.answer = null; this.draw(); fill(this.legend, error.message); }
      else if ((error as Error).name !== "AbortError") throw error;
    }
  }

  private get ratio(): boolean { return state.show === "ratio" && this.run.other !== null; }
  private kind(): "log" | "share" | "signed" | "change" | "ratio" {
    if (this.ratio) return "ratio";
    if (state.show === "change") return "change";
    if (state.statistic.endsWith("_share")) return "share";
    return ["mean", "min", "max"].includes(state.statistic) ? "signed" : "log";
  }

  draw(): void {
    const height = this.scroll.clientHeight, width = this.plotWidth;
    if (!height) return;
    const [from, to] = this.visible();
    this.stage.style.transform = `translateY(${from * kRow}px)`;
    this.stage.style.setProperty("--labels", `${this.labelWidth}px`);
    this.drawLabels(from, to);
    const c = sized(this.canvas, width, (to - from) * kRow);
    const answer = this.answer, answered = this.answered;
    if (!answer || !answered) return;
    const firsts = numbers(answer.columns.step_first!), lasts = numbers(answer.columns.step_last!);
    const buckets = firsts.length;
    const ratios = answer.columns.other_flags !== undefined;
    if (ratios !== this.ratio) return;  // of what was shown before
    const values = ratios ? farthest(answer) : (state.show === "low" ? answer.columns.low : answer.columns.high) as Float32Array;
    const flags = answer.columns.flags as Uint8Array, shed = answer.columns.shed as Uint32Array | undefined;
    const theirs = answer.columns.other_flags as Uint8Array | undefined;
    const keys = answered.keys;
    const [begin, end] = this.run.window(state.begin, state.end);
    const x = (step: number) => ((step - begin) / Math.max(1, end - begin)) * width;
    // A bucket reaches to the next one, but not over a hole in the run.
    const gaps = firsts.slice(1).map((step, i) => step - firsts[i]!).sort((a, b) => a - b);
    const usual = gaps[gaps.length >> 1] ?? 1;
    const edges = firsts.map((step, i) => Math.min(firsts[i + 1] ?? lasts[i]! + Math.min(usual, lasts[i]! - step + 1), lasts[i]! + 2 * usual));
    const shown = (row: number, bucket: number, median: number) => {
      const value = values[row * buckets + bucket]!;
      if (state.show !== "change") return value;
      return value > 0 && median > 0 ? Math.log10(value / median) : value === 0 && median > 0 ? -2 : NaN;
    };
    const medians = keys.map((_, row) => {
      if (state.show !== "change") return 1;
      const sorted = Array.from(values.subarray(row * buckets, (row + 1) * buckets)).filter((v) => v > 0).sort((a, b) => a - b);
      return sorted[sorted.length >> 1] ?? NaN;
    });
    this.scale = scaleFor(state.show === "change" ? [] : Array.from(values), this.kind());
    const empty = themed("empty");
    for (let i = from; i < to; i++) {
      const row = this.rows[i]!, at = keys.indexOf(row.key, Math.max(0, i - answered.first - 1));
      const y = (i - from) * kRow;
      c.fillStyle = empty;
      c.fillRect(0, y + 1, width, kRow - 2);
      if (at < 0) continue;
      // x, width, flags, and of whom: 0 everybody's, the whole height; of two runs each has half of it.
      const signs: [number, number, number, number][] = [];
      for (let b = 0; b < buckets; b++) {
        const x0 = x(firsts[b]!), w = Math.max(x(edges[b]!) - x0, 1);
        if (x0 > width || x0 + w < 0) continue;
        const flag = flags[at * buckets + b]!;
        if (!(flag & kKept)) {
          if (shed?.[b]) hatch(c, x0, y + 1, w, kRow - 2, themed("warn"));
          else { c.fillStyle = themed("missing"); c.fillRect(x0 + w / 2 - 0.5, y + kRow / 2 - 0.5, 1, 1); }
          continue;
        }
        const value = shown(at, b, medians[at]!);
        if (!Number.isNaN(value)) {
          c.fillStyle = colour(this.scale, value);
          c.fillRect(x0, y + 1, w + 0.5, kRow - 2);
        }
        const bad = flag & kSigns, their = theirs ? theirs[at * buckets + b]! : 0;
        if (theirs && !(their & kKept)) hatch(c, x0, y + 1, w + 0.5, kRow - 2, themed("missing"));
        if (!theirs || bad === (their & kSigns)) { if (bad) signs.push([x0, w, bad, 0]); continue; }
        if (bad) signs.push([x0, w, bad, 1]);
        if (their & kSigns) signs.push([x0, w, their & kSigns, 2]);
      }
      // Signs last and at least three pixels wide: no neighbour paints over them.
      for (const [x0, w, flag, whose] of signs) {
        const wide = Math.max(w, 3), tall = whose ? kRow / 2 - 1 : kRow - 2;
        c.fillStyle = themed(flag & kNan ? "nan" : flag & kInfinity ? "inf" : "zero");
        c.fillRect(x0, y + 1 + (whose === 2 ? tall : 0), wide, tall);
        if (wide >= 8 && !whose) {
          c.fillStyle = flag & (kNan | kInfinity) ? "#fff" : themed("zero-ink");
          c.font = "bold 11px system-ui";
          c.textAlign = "center";
          c.textBaseline = "middle";
          c.fillText(flag & kNan ? "×" : flag & kInfinity ? "∞" : "0", x0 + wide / 2, y + kRow / 2 + 1);
        }
      }
    }
    if (state.step !== null) {
      c.fillStyle = themed("ink");
      c.fillRect(x(state.step + 0.5) - 0.75, 0, 1.5, (to - from) * kRow);
    }
    if (this.hover) {
      c.strokeStyle = themed("soft");
      c.beginPath();
      c.moveTo(this.hover.x, 0);
      c.lineTo(this.hover.x, (to - from) * kRow);
      c.stroke();
    }
    this.drawLegend();
  }

  private drawLabels(from: number, to: number): void {
    // News come several times a second: a label that is made anew between press and release is not clicked.
    const shown = this.rows.slice(from, to).map((r) => [r.key, r.depth, r.folded, r.tensors.length]);
    const labelled = JSON.stringify([from, this.selected, state.tensor, shown]);
    if (labelled === this.labelled) return;
    this.labelled = labelled;
    const items: Node[] = [];
    for (let i = from; i < to; i++) {
      const row = this.rows[i]!;
      const chosen = row.leaf ? row.leaf.name === state.tensor : false;
      const label = el("div", {
        class: `map-label${row.leaf ? "" : " module"}${chosen ? " chosen" : ""}${i === this.selected ? " at" : ""}`,
        id: `map-row-${i}`, "data-name": row.key, role: "treeitem", "aria-level": row.depth + 1, "aria-expanded": row.leaf ? undefined : String(!row.folded),
        "aria-selected": String(chosen), title: row.leaf ? row.leaf.name : `${row.key}: ${row.tensors.length} tensors`,
        click: () => { this.selected = i; this.choose(row); },
      }, el("span", { class: "fold", "aria-hidden": "true" }, row.leaf ? "" : row.folded ? "▸" : "▾"), plain(row.label),
         row.leaf ? null : el("span", { class: "count" }, String(row.tensors.length)));
      label.style.paddingLeft = `${6 + 14 * Math.min(row.depth, 10)}px`;
      items.push(label);
    }
    fill(this.labels, ...items);
    if (this.selected >= from && this.selected < to) this.scroll.setAttribute("aria-activedescendant", `map-row-${this.selected}`);
    else this.scroll.removeAttribute("aria-activedescendant");
  }

  private choose(row: Row, step: number | null = null): void {
    if (row.leaf) {
      set({ tensor: row.leaf.name, ...(step === null ? {} : { step }) });
      return;
    }
    if (step !== null) set({ step });
    const open = new Set(this.unfolded);
    if (open.has(row.key)) open.delete(row.key); else open.add(row.key);
    open.delete(kNone);
    set({ open: open.size ? [...open] : [kNone] });
  }

  private cellAt(event: MouseEvent): { row: Row; index: number; bucket: number; at: number } | null {
    const box = this.canvas.getBoundingClientRect();
    const [from] = this.visible();
    const index = from + Math.floor((event.clientY - box.top) / kRow);
    const row = this.rows[index];
    if (!row || !this.answer || !this.answered) return null;
    const [begin, end] = this.run.window(state.begin, state.end);
    const step = begin + ((event.clientX - box.left) / box.width) * (end - begin);
    const firsts = numbers(this.answer.columns.step_first!);
    let bucket = firsts.length - 1;
    while (bucket > 0 && firsts[bucket]! > step) bucket--;
    return { row, index, bucket, at: this.answered.keys.indexOf(row.key) };
  }

  private point(event: PointerEvent): void {
    const box = this.canvas.getBoundingClientRect();
    this.hover = { x: event.clientX - box.left, y: event.clientY - box.top };
    const cell = this.cellAt(event);
    if (!cell || cell.at < 0 || cell.bucket < 0) { this.tip.hidden = true; return; }
    const columns = this.answer!.columns, buckets = columns.step_first!.length, at = cell.at * buckets + cell.bucket;
    const flag = columns.flags![at] as number;
    const first = Number(columns.step_first![cell.bucket]), last = Number(columns.step_last![cell.bucket]);
    const low = columns.low![at] as number, high = columns.high![at] as number;
    const their = columns.other_flags ? columns.other_flags[at] as number : null;
    const words = (f: number) => [f & kNan ? "NaN" : "", f & kInfinity ? "infinity" : "", f & kAllZero ? "all zero" : ""].filter((s) => s);
    const signs = [...words(flag), flag & kKept ? "" : ((columns.shed?.[cell.bucket] ?? 0) as number) > 0 ? "shed: lost under load" : "not kept"].filter((s) => s);
    if (their !== null) {
      const there = their & kKept ? words(their) : ["not kept"];
      if (there.length) signs.push(`there: ${there.join(", ")}`);
    }
    const dropped = Number(columns.coarse?.[cell.bucket] ?? 0);
    const value = (v: number) => (their === null ? number(v) : `×${number(v)}`);
    fill(this.tip, el("b", {}, plain(cell.row.key)), el("br"),
         first === last ? `step ${first}` : `steps ${first} – ${last}`, el("br"),
         Number.isNaN(high) ? "" : low === high ? value(high) : `${value(low)} – ${value(high)}`,
         signs.length ? el("span", { class: "signs" }, ` ${signs.join(", ")}`) : null,
         dropped ? el("span", { class: "soft" }, ` (single steps were dropped here: of 16 steps or more together)`) : null);
    this.tip.hidden = false;
    const left = this.hover.x + this.labelWidth + 14, width = this.tip.offsetWidth;
    this.tip.style.left = `${left + width > this.scroll.clientWidth ? left - width - 28 : left}px`;
    this.tip.style.top = `${Math.max(0, this.hover.y + 14 - (this.hover.y > this.scroll.clientHeight / 2 ? 80 : 0))}px`;
    this.draw();
  }

  private click(event: MouseEvent): void {
    const cell = this.cellAt(event);
    if (!cell || cell.bucket < 0) return;
    this.selected = cell.index;
    const step = Number(this.answer!.columns.step_last![cell.bucket]);
    if (cell.row.leaf) this.choose(cell.row, step); else set({ step });
    this.scroll.focus({ preventScroll: true });
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const row = this.rows[this.selected];
    const move = (by: number) => {
      this.selected = Math.min(this.rows.length - 1, Math.max(0, this.selected + by));
      const y = this.selected * kRow;
      if (y < this.scroll.scrollTop) this.scroll.scrollTop = y;
      else if (y + kRow > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = y + kRow - this.scroll.clientHeight;
      this.draw();
    };
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "PageDown") move(20);
    else if (event.key === "PageUp") move(-20);
    else if (event.key === "Enter" && row) this.choose(row);
    else if (event.key === "ArrowRight" && row && !row.leaf && row.folded) this.choose(row);
    else if (event.key === "ArrowLeft" && row && !row.leaf && !row.folded) this.choose(row);
    else return;
    event.preventDefault();
  }

  /** What is on the screen: a line for each row and bucket. */
  private save(): void {
    if (!this.answer || !this.answered) return;
    const { columns } = this.answer, firsts = numbers(columns.step_first!), lasts = numbers(columns.step_last!), buckets = firsts.length;
    const quoted = (text: string) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = ["row,first_step,last_step,low,high,flags"];
    this.answered.keys.forEach((key, row) => firsts.forEach((first, b) => {
      const at = row * buckets + b;
      lines.push(`${quoted(key)},${first},${lasts[b]},${columns.low![at]},${columns.high![at]},${columns.flags![at]}`);
    }));
    download(`${this.run.name}-${this.ratio ? "ratio-" : ""}${state.statistic}.csv`, `${lines.join("\n")}\n`);
  }

  private drawLegend(): void {
    const scale = this.scale;
    if (!scale) return;
    const bar = el("canvas", { class: "bar", "aria-hidden": "true" });
    const c = sized(bar, 160, 12);
    for (let i = 0; i < 160; i++) { c.fillStyle = colourAt(scale, i / 159); c.fillRect(i, 0, 1.5, 12); }
    const sign = (name: string, text: string) => el("span", { class: `sign ${name}` }, text);
    const times = number(+(10 ** scale.high).toPrecision(3));
    const ends = this.ratio ? [`÷${times}`, `×${times}`] : state.show === "change" ? ["÷100", "×100"] : [number(scale.low), number(scale.high)];
    fill(this.legend, el("span", {}, ends[0]!), bar, el("span", {}, ends[1]!), this.ratio ? el("span", {}, `of ${plain(this.run.other!.name)}; signs: above of this run, below of that one`) : null, sign("nan", "× NaN"), sign("inf", "∞ infinity"),
         sign("zero", "0 all zero"), this.ratio ? sign("there", `not in ${plain(this.run.other!.name)}`) : sign("shed", "shed"), sign("missing", "· not kept"));
  }
}

/** Of the smallest and the largest ratio, as decades, the one that is farther from none. */
function farthest(answer: Columns): Float32Array {
  const low = answer.columns.low as Float32Array, high = answer.columns.high as Float32Array;
  return Float32Array.from(low, (l, i) => {
    const down = Math.log10(l), up = Math.log10(high[i]!);
    return Math.abs(down) > Math.abs(up) ? down : up;
  });
}

function hatch(c: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, stroke: string): void {
  c.save();
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.strokeStyle = stroke;
  for (let at = x - h; at < x + w; at += 5) { c.beginPath(); c.moveTo(at, y + h); c.lineTo(at + h, y); c.stroke(); }
  c.restore();
}

/** "0-11,14": ids as a row of the question. */
export function ranges(ids: number[]): string {
  const sorted = [...ids].sort((a, b) => a - b), parts: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end]! + 1) end++;
    parts.push(end > i ? `${sorted[i]}-${sorted[end]}` : String(sorted[i]));
    i = end + 1;
  }
  return parts.join(",");
}
