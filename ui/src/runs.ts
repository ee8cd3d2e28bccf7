// The list of runs.
import { askJson, Refused, report } from "./api";
import { bytes, el, fill, parsed, plain, since, sized, themed } from "./dom";
import { onState, set, state } from "./state";

// What each column is sorted by. Of losses the latest number that is one.
const kColumns: Record<string, (run: any) => string | number> = {
  name: (r) => r.name, state: (r) => r.state, steps: (r) => r.steps ?? -1,
  loss: (r) => (r.loss ?? []).map(parsed).filter(Number.isFinite).at(-1) ?? Infinity,
  found: (r) => r.found?.length ?? 0, "last seen": (r) => r.wall_nanos ?? 0, size: (r) => r.bytes ?? 0,
};

const kLookAgain = 15_000;  // milliseconds: who leaves the list open overnight is told what has ended

export class RunsView {
  readonly element = el("main", { class: "runs" });
  private entries: any[] = [];
  private total = 0;
  private readonly body = el("tbody");
  private readonly more = el("p", { class: "soft" });
  private readonly head = el("tr");
  private readonly forget: () => void;
  private timer = 0;
  private gone = false;
  private reading = false;
  private compare: string[] = [];
  private readonly compareButton = el("button", { disabled: true, click: () => set({ run: this.compare[0]!, other: this.compare[1]!, show: "ratio", filter: "" }) }, "compare two");

  constructor() {
    this.forget = onState((_, changed) => { if (changed.has("filter") || changed.has("sort")) this.draw(); });
  }
  destroy(): void { this.forget(); this.gone = true; clearInterval(this.timer); }

  async load(): Promise<void> {
    fill(this.element, el("div", { class: "section-head" }, el("h1", {}, "Runs"),
      el("input", { type: "search", id: "filter", placeholder: "filter  /", "aria-label": "Filter runs", value: state.filter, input: (e: any) => set({ filter: e.target.value }) }),
      this.compareButton),
      el("table", { class: "list" }, el("thead", {}, this.head), this.body), this.more);
    await this.read();
    if (this.gone || report) return;
    this.timer = window.setInterval(() => { if (!document.hidden) void this.readAgain(); }, kLookAgain);
  }
  private async read(): Promise<void> {
    const entries: any[] = [], known = new Set<string>(), first = !this.entries.length;
    let offset = 0;
    do {  // by the page, so that the newest of a thousand are there at once
      const answer = await askJson("runs", { offset, limit: 50 });
      if (this.gone) return;
      this.total = answer.total;
      if (!answer.runs.length) break;
      // One that begins meanwhile moves the others on: they come once more.
      for (const run of answer.runs) if (!known.has(run.name)) { known.add(run.name); entries.push(run); }
      offset += answer.runs.length;
      if (first) { this.entries = entries; this.draw(); }
    } while (offset < this.total);
    this.entries = entries;
    this.draw();
  }
  private async readAgain(): Promise<void> {
    if (this.reading) return;
    this.reading = true;
    try {
      await this.read();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.more.textContent = `${error.message}; this is what it said last`;
    } finally {
      this.reading = false;
    }
  }

  /** A click: up; another one: down; a third: the newest first, as they come. */
  private drawHead(): void {
    fill(this.head, ...["", "name", "state", "steps", "loss", "found", "last seen", "size"].map((name) => {
      if (!kColumns[name]) return el("th", {}, name);
      const way = state.sort === name ? "ascending" : state.sort === `-${name}` ? "descending" : "none";
      return el("th", { "aria-sort": way }, el("button", { class: "sort", click: () => set({ sort: way === "none" ? name : way === "ascending" ? `-${name}` : "" }) },
        `${name}${way === "ascending" ? " ▲" : way === "descending" ? " ▼" : ""}`));
    }));
  }
  private draw(): void {
    const words = state.filter.toLowerCase();
    const shown = this.entries.filter((r) => `${r.name} ${r.state} ${(r.found ?? []).join(" ")}`.toLowerCase().includes(words));
    const down = state.sort.startsWith("-"), by = kColumns[down ? state.sort.slice(1) : state.sort];
    if (by) {
      const key = new Map(shown.map((r) => [r, by(r)]));
      shown.sort((a, b) => { const [x, y] = [key.get(a)!, key.get(b)!]; return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
    }
    this.drawHead();
    this.more.textContent = this.total ? `${shown.length} of ${this.total} runs` : "No run here yet: start one with tdbg run -- COMMAND.";
    fill(this.body, ...shown.slice(0, 1000).map((r) => {
      const line = el("canvas", { class: "spark", "aria-hidden": "true" });
      const box = el("input", { type: "checkbox", "aria-label": `Compare ${r.name}`, checked: this.compare.includes(r.name), change: () => {
        this.compare = this.compare.includes(r.name) ? this.compare.filter((n) => n !== r.name) : [...this.compare.slice(-1), r.name];
        this.draw();
      } });
      const row = el("tr", {}, el("td", {}, box),
        el("td", {}, el("a", { href: `#${new URLSearchParams({ run: r.name })}` }, plain(r.name))), el("td", { class: `state ${String(r.state).split(" ")[0]}` }, r.state),
        el("td", { class: "right" }, r.steps === undefined ? "" : String(r.steps)), el("td", {}, line),
        el("td", { class: r.found?.length ? "bad" : "soft" }, plain(outcome(r))),
        el("td", { class: "soft" }, since(r.wall_nanos ?? 0)), el("td", { class: "right soft" }, r.bytes ? bytes(r.bytes) : ""));
      spark(line, (r.loss ?? []).map(parsed));
      return row;
    }));
    this.compareButton.disabled = this.compare.length !== 2;
  }
}

/** What was found in a run. A rule that could not judge has not found nothing. */
function outcome(r: any): string {
  if (r.error) return r.error;
  const parts: string[] = [r.found?.length ? r.found.join(", ") : r.judged ? "nothing" : "not judged"];
  if (r.undecided) parts.push(`${r.undecided} rule${r.undecided === 1 ? "" : "s"} could not judge`);
  if (r.damaged) parts.push(`damaged in ${r.damaged} place${r.damaged === 1 ? "" : "s"}`);
  return parts.join("; ");
}

function spark(canvas: HTMLCanvasElement, values: number[]): void {
  const c = sized(canvas, 90, 20), finite = values.filter(Number.isFinite);
  if (finite.length < 2) return;
  const low = Math.min(...finite), high = Math.max(...finite);
  c.strokeStyle = themed("accent");
  c.beginPath();
  finite.forEach((v, i) => {
    const x = 1 + (i / (finite.length - 1)) * 88, y = 18 - ((v - low) / (high - low || 1)) * 16;
    if (i) c.lineTo(x, y); else c.moveTo(x, y);
  });
  c.stroke();
}
