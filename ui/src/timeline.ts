// The whole run in one strip: what was found, what happened, and the window that everything else shows.
import { el, sized, themed } from "./dom";
import type { Run } from "./run";
import { onState, set, state } from "./state";

const kHeight = 44;

export class Timeline {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { class: "timeline", role: "img", tabindex: 0 });
  private readonly forget: () => void;
  private drag: { from: number; to: number } | null = null;

  constructor(private readonly run: Run) {
    this.element = el("section", { class: "timeline-box", "aria-label": "Timeline of the run" }, this.canvas);
    const stepAt = (event: PointerEvent) => {
      const box = this.canvas.getBoundingClientRect();
      const [first, last] = run.whole;
      const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      return Math.round(first + part * (last - first));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { from: stepAt(event), to: stepAt(event) };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) return;
      this.drag.to = stepAt(event);
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => {
      if (!this.drag) return;
      const { from, to } = this.drag;
      this.drag = null;
      const [first, last] = run.whole;
      if (Math.abs(to - from) < (last - first) * 0.005) set({ step: Math.min(to, last - 1) });
      else set({ begin: Math.min(from, to), end: Math.max(from, to) });
    });
    this.canvas.addEventListener("dblclick", () => set({ begin: null, end: null }));
    this.forget = onState((_, changed) => {
      if (changed.has("begin") || changed.has("end") || changed.has("step")) this.draw();
    });
  }

  draw(): void {
    const width = this.element.clientWidth;
    if (!width) return;
    const c = sized(this.canvas, width, kHeight);
    const { overview } = this.run;
    const [first, last] = this.run.whole;
    const x = (step: number) => ((step - first) / Math.max(1, last - first)) * width;
    c.fillStyle = themed("panel");
    c.fillRect(0, 8, width, 22);
    // What was lost is hatched.
    c.strokeStyle = themed("soft");
    for (const drop of overview.dropped) {
      if (drop.first_step < 0) continue;
      const a = x(drop.first_step), b = Math.max(x(drop.last_step + 1), a + 3);
      c.save();
      c.beginPath();
      c.rect(a, 8, b - a, 22);
      c.clip();
      for (let at = a - 22; at < b; at += 5) { c.beginPath(); c.moveTo(at, 30); c.lineTo(at + 22, 8); c.stroke(); }
      c.restore();
    }
    // Evaluations are a band at the foot; where another attempt goes on, a line stands across.
    c.fillStyle = themed("soft");
    for (const [from, to] of overview.evaluations ?? []) c.fillRect(x(from), 26, Math.max(1, x(to + 1) - x(from)), 4);
    const later = (overview.attempt_starts ?? []).slice(1);
    for (const { attempt, first_step } of later) {
      const at = Math.round(x(first_step)) + 0.5;
      c.strokeStyle = themed("ink");
      c.setLineDash([3, 2]);
      c.beginPath();
      c.moveTo(at, 6);
      c.lineTo(at, 31);
      c.stroke();
      c.setLineDash([]);
      c.fillStyle = themed("soft");
      c.font = "10px system-ui";
      c.textBaseline = "top";
      c.textAlign = at > width - 70 ? "right" : "left";
      c.fillText(`attempt ${attempt}`, at + (at > width - 70 ? -3 : 3), 10);
    }
    const [begin, end] = this.drag
      ? [Math.min(this.drag.from, this.drag.to), Math.max(this.drag.from, this.drag.to)]
      : this.run.window(state.begin, state.end);
    c.fillStyle = themed("select");
    c.fillRect(x(begin), 8, Math.max(2, x(end) - x(begin)), 22);
    c.strokeStyle = themed("accent");
    c.strokeRect(x(begin) + 0.5, 8.5, Math.max(2, x(end) - x(begin) - 1), 21);
    const flag = (step: number, colour: string) => {
      if (step < 0) return;
      const at = x(step + 0.5);
      c.fillStyle = colour;
      c.fillRect(at - 1, 2, 2, 28);
      c.beginPath();
      c.moveTo(at, 1);
      c.lineTo(at + 9, 5);
      c.lineTo(at, 9);
      c.fill();
    };
    for (const verdict of overview.verdicts) for (const f of verdict.findings.slice(0, 1)) flag(f.global_step, themed("bad"));
    if (overview.first_nonfinite) flag(overview.first_nonfinite.global_step, themed("nan"));
    for (const event of overview.events) {
      if (event.kind === "stalled" || event.kind === "worker_lost" || event.kind === "action") flag(event.global_step, themed("warn"));
    }
    if (state.step !== null) {
      c.fillStyle = themed("accent");
      c.fillRect(x(state.step + 0.5) - 1, 6, 2, 26);
    }
    c.fillStyle = themed("soft");
    c.font = "11px system-ui";
    c.textBaseline = "top";
    c.textAlign = "left";
    c.fillText(`step ${first}`, 2, 32);
    c.textAlign = "right";
    c.fillText(`${last - 1}`, width - 2, 32);
    if (state.begin !== null || state.end !== null) {
      c.textAlign = "center";
      c.fillText(`${begin} – ${end - 1}   (double-click: all)`, width / 2, 32);
    }
    this.canvas.setAttribute("aria-label",
      `Steps ${first} to ${last - 1}; shown: ${begin} to ${end - 1}; ${overview.verdicts.filter((v) => v.findings.length).length} findings` +
      (later.length ? `; ${later.map((a) => `attempt ${a.attempt} from step ${a.first_step}`).join(", ")}` : "") +
      (overview.evaluations?.length ? `; ${overview.evaluations.length} evaluations` : ""));
  }
  destroy(): void { this.forget(); }
}
