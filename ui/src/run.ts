// The run that is looked at: what the server says of it as a whole, refreshed while it trains.
import { askJson, report } from "./api";

export interface Finding {
  global_step: number; at: string; tensor: string; worker: string; measure: string; value: number | string; comparison: string;
  threshold: number | string; text: string;
}
export interface Verdict {
  name: string; rule: string; status: string; details: string; steps_judged: number; steps_incomplete: number;
  findings: Finding[]; follows_from?: string;
}
export interface Incident {
  id: string; title: string; sentence: string; first_step: number; at: string; tensor: string; worker: string; confidence: string;
  advice: string; detector: string; muted: boolean; because: string; evidence: Finding[]; consequences: Finding[];
}
export interface Overview {
  name: string; path: string; state: string; running: boolean; generation: number; steps: number; first_step: number;
  last_step: number; first_wall_nanos: number; last_wall_nanos: number; tensors: number; bytes: number;
  attempts: number[]; world_size: number;
  workers: { name: string; attempt: number; rank: number; alive: boolean; ended: boolean; last_step: number }[];
  worker_ends: { worker: string; reason: string; message: string; last_step: number }[];
  dropped: { kind: string; cause: string; text: string; count: number; first_step: number; last_step: number;
    worker: string }[];
  damage: string[];
  coarse_steps?: number;  // reports of earlier versions lack it, and these:
  attempt_starts?: { attempt: number; first_step: number }[];
  evaluations?: [number, number][];
  charts: { tensor: string; group: string }[];
  statistics: { name: string; title: string }[];
  first_nonfinite?: { global_step: number; tensor: string; nan: boolean; steps: number };
  sentence: { text: string; mood: string; step: number; tensor: string };
  events: { kind: string; global_step: number; wall_nanos: number; what: string }[];
  verdicts: Verdict[];
  incidents: Incident[];
  origins: { global_step: number; at: string; worker: string; title: string; sentence: string; advice: string }[];
}
export interface TreeTensor {
  id: number; name: string; leaf: string; node: number; kind: string; module_kind: string; collections: string[];
  dtype: string; shape: number[];
}
export interface Tree {
  nodes: { name: string; parent: number }[];
  tensors: TreeTensor[];
  series: { id: number; name: string; collections: string[] }[];
}

export class Run {
  overview!: Overview;
  tree!: Tree;
  /** A second run, laid over this one. */
  readonly other: Run | null;
  private tensorsKnown = -1;

  constructor(readonly name: string, other = "") {
    this.other = other ? new Run(other) : null;
  }

  async load(): Promise<void> {
    if (this.other) this.other.overview = await askJson("run", { run: this.other.name });
    this.overview = await askJson("run", { run: this.name });
    if (this.overview.tensors !== this.tensorsKnown) {
      this.tree = await askJson("tensors", { run: this.name });
      this.tensorsKnown = this.overview.tensors;
    }
  }
  /** Which answers are the latest. */
  get generations(): string { return `${this.overview.generation} ${this.other?.overview.generation ?? ""}`; }
  /** Steps [begin, end) of all; of both runs, where there are two. */
  get whole(): [number, number] {
    const those = [this.overview, ...(this.other && this.other.overview.steps ? [this.other.overview] : [])];
    return [Math.max(0, Math.min(...those.map((o) => o.first_step))), Math.max(1, ...those.map((o) => o.last_step + 1))];
  }
  window(begin: number | null, end: number | null): [number, number] {
    const [first, last] = this.whole;
    return [begin ?? first, end ?? last];
  }
}

/** Follows a run by the server's events. Returns how to stop. */
export function follow(name: string, news: (what: any) => void, gone: (why: string) => void): () => void {
  if (report) return () => {};
  const source = new EventSource(`api/v1/news?${new URLSearchParams({ run: name })}`);
  source.addEventListener("news", (event) => news(JSON.parse((event as MessageEvent).data)));
  source.addEventListener("gone", (event) => { source.close(); gone(JSON.parse((event as MessageEvent).data)); });
  source.onerror = () => gone("the server does not answer");
  return () => source.close();
}
