// What the training was doing at a step: mode, time, workers, and every plain number that was recorded with it.
import { askJson, Refused, report } from "./api";
import { el, fill, number, parsed, plain } from "./dom";
import type { Run } from "./run";
import { onState, state } from "./state";

const kWait = 120;  // the cursor passes over steps: only where it rests is asked about
const kMostRows = 200;

export class Context {
  readonly element = el("section", { class: "context", "aria-label": "What was going on at the step" });
  private readonly forget: () => void;
  private timer = 0;
  private asking: AbortController | null = null;

  constructor(private readonly run: Run) {
    this.forget = onState((_, changed) => {
      if (!changed.has("step")) return;
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.load(), kWait);
    });
  }
  destroy(): void { this.forget(); clearTimeout(this.timer); this.asking?.abort(); }

  async load(): Promise<void> {
    const step = state.step ?? this.run.overview.last_step;
    if (step < 0) { fill(this.element); return; }
    this.asking?.abort();
    const asking = this.asking = new AbortController();
    try {
      const answer = await askJson("step", { run: this.run.name, step }, asking.signal);
      if (asking.signal.aborted) return;
      const workers = [...new Set<string>(answer.scalars.map((s: any) => s.worker))], names = [...new Set<string>(answer.scalars.map((s: any) => s.name))];
      const values = new Map<string, string>(answer.scalars.map((s: any) => [`${s.name}\n${s.worker}`, number(parsed(s.value))]));
      const facts = [`${answer.mode} ${answer.mode_step}`, new Date(answer.wall_nanos / 1e6).toLocaleString(),
        this.run.overview.attempts.length > 1 ? `attempt ${answer.attempt}` : "", answer.skipped ? "its update was skipped" : "",
        answer.shed ? `${answer.shed} pieces shed under load` : "", answer.complete ? "" : "not complete yet",
        answer.missing_workers.length ? `nothing from ${answer.missing_workers.map(plain).join(", ")}` : ""].filter((f) => f);
      fill(this.element, el("h2", { id: "context-head" }, `At step ${step}`), el("p", { class: "soft" }, facts.join(" · ")),
        names.length ? el("table", { class: "list" },
          workers.length > 1 ? el("tr", {}, el("th", {}, ""), ...workers.map((w) => el("th", { scope: "col" }, plain(w)))) : null,
          ...names.slice(0, kMostRows).map((name) => el("tr", {}, el("th", { scope: "row" }, plain(name)),
            ...workers.map((w) => el("td", {}, values.get(`${name}\n${w}`) ?? "–"))))) : null,
        names.length > kMostRows ? el("p", { class: "soft" }, `and ${names.length - kMostRows} more`) : null);
    } catch (error) {
      if ((error as Error).name === "AbortError") return;
      if (!(error instanceof Refused)) throw error;
      if (report) fill(this.element);  // it never has any
      else fill(this.element, el("h2", { id: "context-head" }, `At step ${step}`), el("p", { class: "soft" }, error.message));
    }
  }
}
