// Two runs: the first step and tensor where they part, looked for a piece at a time while the page is open.
import { askJson, Refused } from "./api";
import { copyable, el, fill, number, parsed, plain, shellWord } from "./dom";
import type { Run } from "./run";
import { set, state } from "./state";

const kTolerances: Record<string, string> = {
  "": "exactly", "1e-6": "within 1 in a million", "1e-4": "within 1 in 10,000", "1e-2": "within 1 %", "1e-1": "within 10 %",
};
const kPause = 30;  // between two questions, in which others are answered

interface Difference {
  global_step: number; mode: string; mode_step: number; tensor: string; worker: string; by: string; field?: string;
  value?: number | string; other_value?: number | string; elements?: number; different?: number; shape?: string; other_shape?: string;
}
interface Compared { steps: number; values: number; statistics: number; unread: number; coarse_steps: number; }
const kNothing: Compared = { steps: 0, values: 0, statistics: 0, unread: 0, coarse_steps: 0 };
interface Only { tensors: number; steps: number; workers: string[]; some_tensors: string[]; }
interface Found {
  parted: boolean; differences: Difference[]; different: number; next_step: number; compared: { steps: number; values: number; statistics: number };
  shapes: { tensor: string; shape: string; other_shape: string }[]; other_shapes: number; unread: number; coarse_steps: number; only_in_run: Only; only_in_other: Only;
  over: boolean; other_path: string; last_step: number;
}

function how(d: Difference): string {
  if (d.shape) return `${d.shape} against ${d.other_shape}`;
  const what = d.value === undefined ? "" : `${d.field ?? "an element"}: ${number(parsed(d.value))} against ${number(parsed(d.other_value!))}`;
  return d.by === "values" ? `${d.different} of ${d.elements} elements${what ? `, ${what}` : ""}` : what;
}
function counted(n: number, one: string): string { return `${n} ${one}${n === 1 ? "" : "s"}`; }

export class Compare {
  readonly element: HTMLElement;
  private readonly verdict = el("p", { class: "parting", role: "status", "aria-live": "polite" });
  private readonly rest = el("div", { class: "soft" });
  private asking: AbortController | null = null;
  // What the answers so far are about, and how far they go: of a run that grows only new steps are asked about.
  private about = "";
  private first: Found | null = null;
  private begin = 0;
  private parted = false;
  private compared = kNothing;

  constructor(private readonly run: Run, private readonly go: (tensor: string, step: number) => void) {
    const tolerance = el("select", { "aria-label": "When two numbers are the same", change: (e: any) => set({ rtol: e.target.value }) });
    const known = state.rtol in kTolerances ? kTolerances : { ...kTolerances, [state.rtol]: `within ${state.rtol}` };
    for (const [value, title] of Object.entries(known)) tolerance.append(el("option", { value, selected: value === state.rtol }, title));
    const other = run.other!.name;
    this.element = el("section", { class: "compare", "aria-label": "Where the two runs part" },
      el("div", { class: "section-head" },
        el("h2", {}, "Against ", el("span", { class: "second" }, plain(other))),
        el("div", { class: "controls" }, tolerance,
          el("button", { click: () => set({ run: other, other: run.name, tensor: state.tensor }) }, "swap"),
          el("button", { click: () => set({ other: "", show: state.show === "ratio" ? "high" : state.show }) }, "this run alone"))),
      this.verdict, this.rest);
  }
  destroy(): void { this.asking?.abort(); }

  async load(): Promise<void> {
    // When one ends, what only one of them has is known anew.
    const about = JSON.stringify([state.rtol, ...[this.run, this.run.other!].map((r) => [r.overview.attempts, r.overview.running])]);
    if (about === this.about && (this.asking || this.parted)) return;
    if (about !== this.about) {
      this.about = about;
      this.first = null;
      this.begin = 0;
      this.parted = false;
      this.compared = kNothing;
      fill(this.verdict, "Looking for the first step at which they differ …");
    }
    this.asking?.abort();
    const asking = this.asking = new AbortController();
    try {
      for (;;) {
        const found: Found = await askJson("compare", { run: this.run.name, other: this.run.other!.name, begin: this.begin, rtol: state.rtol || undefined }, asking.signal);
        if (asking.signal.aborted) return;
        this.first ??= found;
        this.parted = found.parted;
        const { compared } = this;  // what the pieces before could not compare is no less uncompared
        this.compared = { steps: compared.steps + found.compared.steps, values: compared.values + found.compared.values,
          statistics: compared.statistics + found.compared.statistics, unread: compared.unread + found.unread, coarse_steps: compared.coarse_steps + found.coarse_steps };
        this.tell(found, this.first, this.compared);
        this.begin = Math.max(this.begin, found.last_step + 1);
        if (found.next_step < 0) return;
        await new Promise((resolve) => setTimeout(resolve, kPause));
        if (asking.signal.aborted) return;
      }
    } catch (error) {
      if ((error as Error).name === "AbortError") return;
      if (!(error instanceof Refused)) throw error;
      fill(this.verdict, error.message);
    } finally {
      if (this.asking === asking) this.asking = null;
    }
  }

  private tell(found: Found, first: Found, compared: Compared): void {
    const by = `${counted(compared.values, "value")} and ${counted(compared.statistics, "statistic")} of ${counted(compared.steps, "step")} were compared`;
    const within = kTolerances[state.rtol] ?? `within ${state.rtol}`;
    const one = found.differences[0];
    this.verdict.setAttribute("aria-busy", String(!found.parted && found.next_step >= 0));  // how far it has come is read aloud to nobody
    if (found.parted && one) {
      fill(this.verdict, el("b", {}, `They part at step ${one.global_step}: `), `${plain(one.tensor)} differs`,
        this.run.overview.world_size > 1 && one.worker ? ` (${plain(one.worker)})` : "", `, ${how(one)} `,
        el("button", { class: "go", click: () => this.go(one.tensor, one.global_step) }, "show it"));
    } else if (found.next_step >= 0) {
      fill(this.verdict, `The same ${within} up to step ${found.next_step - 1}; looking on …`);
    } else if (!compared.values && !compared.statistics) {
      fill(this.verdict, `They share no tensor at any step${found.over ? "." : " so far."}`);
    } else {
      const damaged = this.run.overview.damage.length + this.run.other!.overview.damage.length;
      fill(this.verdict, el("b", {}, `The same ${within}${found.over ? "" : " so far"}`), ` at all steps that both have${damaged ? ", as far as they can be read" : ""}.`);
    }
    const lacks = (only: Only, name: string) => {
      const parts = [only.tensors ? `${counted(only.tensors, "tensor")} (${only.some_tensors.slice(0, 3).map(plain).join(", ")}${only.tensors > 3 ? ", …" : ""})` : "",
        only.steps ? counted(only.steps, "step") : "", only.workers.length ? only.workers.map(plain).join(", ") : ""].filter((p) => p);
      return parts.length ? el("p", {}, `Only in ${plain(name)}: ${parts.join("; ")}.`) : null;
    };
    const others = found.differences.slice(1, 7);
    fill(this.rest, el("p", {}, `${by}, ${within}.`),
      others.length ? el("p", {}, "At that step, too: ", ...others.map((d) => el("button", { class: "chip", title: `${d.tensor}: ${how(d)}`, click: () => this.go(d.tensor, d.global_step) }, plain(d.tensor).slice(0, 60))),
        found.different > 7 ? ` and ${found.different - 7} more` : "") : null,
      compared.unread ? el("p", { class: "bad" }, `Damaged, and not compared: ${compared.unread} values or statistics.`) : null,
      compared.coarse_steps ? el("p", { class: "warn" }, `Of ${counted(compared.coarse_steps, "step")} rows were dropped to save room: only what is left of them was compared.`) : null,
      first.other_shapes ? el("p", {}, `Declared otherwise: ${first.shapes.slice(0, 3).map((s) => `${plain(s.tensor)} (${s.shape}, ${s.other_shape})`).join("; ")}${first.other_shapes > 3 ? ", …" : ""}.`) : null,
      lacks(first.only_in_run, this.run.name), lacks(first.only_in_other, this.run.other!.name),
      copyable("comparison", `tdbg diff ${shellWord(this.run.overview.path)} ${shellWord(found.other_path)}${state.rtol ? ` --rtol ${state.rtol}` : ""}`));
  }
}
