// The page: which view is shown, what keeps it fresh, which keys do what.
import { askJson, Refused, report } from "./api";
import { Chart } from "./chart";
import { Compare } from "./compare";
import { Context } from "./context";
import { bytes, copyable, el, fill, number, parsed, plain } from "./dom";
import { LayerMap } from "./layermap";
import { kOrders, kParts } from "./order";
import { follow, Incident, Run, Verdict } from "./run";
import { RunsView } from "./runs";
import { onState, remember, set, state } from "./state";
import { TensorPanel } from "./tensor";
import { Timeline } from "./timeline";
import { Workers } from "./workers";
import { themed } from "./dom";

const kPaper = 1030;  // CSS pixels across a page of A4, or letter paper, laid on its side
const kPalette = ["accent", "second", "third"];

class RunView {
  readonly element = el("main", { class: "run" });
  private readonly sentence = el("p", { class: "sentence", role: "status", "aria-live": "polite" });
  private readonly facts = el("p", { class: "facts" });
  private shown = "";  // what `findings` holds
  private readonly findings = el("section", { class: "findings", "aria-label": "Findings" });
  private readonly charts = el("section", { class: "charts", "aria-label": "Losses, metrics and rates" });
  private readonly live = el("button", { class: "live", click: () => this.freeze(!this.frozen) });
  private timeline!: Timeline;
  private map!: LayerMap;
  private panel!: TensorPanel;
  private workers!: Workers;
  private context!: Context;
  private compare: Compare | null = null;
  private drawn: Chart[] = [];
  private drawnNames = "";
  private frozen = false;
  private stops: (() => void)[] = [];
  private busy = false;
  private again = false;
  private announced = -1;
  private gone = false;
  private told = "";  // what `sentence` holds
  private readonly forget: () => void;
  private readonly resized = () => { if (this.timeline) void this.drawAll(); };
  private readonly bell = el("button", { class: "live", hidden: true, title: "a notification when something is found", click: async () => {
    await Notification.requestPermission();
    this.drawHead();
  } }, "notify me");

  constructor(private readonly run: Run, private readonly bar: HTMLElement) {
    this.forget = onState((_, changed) => {
      if (!this.timeline) return;  // the run's answer is still to come, or it could not be shown
      if (changed.has("begin") || changed.has("end")) void this.loadCharts();
      else if (changed.has("step")) for (const chart of this.drawn) chart.redraw();
      if (changed.has("rtol")) void this.compare?.load();
      if (changed.has("step")) this.workers?.draw();
      if (["begin", "end", "tensor", "field"].some((k) => changed.has(k as any))) void this.workers?.load();
      if (changed.has("tensor")) requestAnimationFrame(this.resized);
    });
    window.addEventListener("resize", this.resized);
  }

  async load(): Promise<void> {
    await this.run.load();
    if (this.gone) return;  // somebody went on while it was awaited
    this.timeline = new Timeline(this.run);
    this.map = new LayerMap(this.run);
    this.panel = new TensorPanel(this.run, () => this.marks());
    this.workers = new Workers(this.run);
    this.context = new Context(this.run);
    this.compare = this.run.other ? new Compare(this.run, (tensor, step) => this.go(tensor, step)) : null;
    const main = el("div", { class: "column" }, this.sentence, this.facts, this.compare?.element ?? null, this.findings, this.timeline.element, this.charts,
                    this.map.element, this.workers.element, this.context.element, about());
    fill(this.element, main, this.panel.element);
    if (report) fill(this.bar, el("strong", {}, plain(this.run.overview.name)), el("span", { class: "soft" }, `report of ${report.head.made}`));
    else fill(this.bar, el("a", { href: "#", class: "home", title: "all runs" }, "runs"), el("span", { "aria-hidden": "true" }, "/"),
              el("strong", {}, plain(this.run.overview.name)), this.run.other ? el("span", { class: "second against" }, `and ${plain(this.run.other.name)}`) : null,
              this.live, this.bell);
    this.panel.show();
    await this.drawAll();
    if (this.gone) return;
    for (const run of [this.run, ...(this.run.other ? [this.run.other] : [])])
      this.stops.push(follow(run.name, (news) => void this.news(news), (why) => this.tellGone(why)));
  }
  destroy(): void {
    this.gone = true;
    for (const stop of this.stops) stop();
    this.forget();
    this.compare?.destroy();
    this.context?.destroy();
    window.removeEventListener("resize", this.resized);
    this.timeline?.destroy();
    this.map?.destroy();
    this.panel?.destroy();
    for (const chart of this.drawn) chart.destroy();
    document.body.classList.remove("with-tensor");
    document.title = "tdbg";
  }

  private marks(): number[] {
    return this.run.overview.verdicts.flatMap((v) => v.findings.slice(0, 1).map((f) => f.global_step));
  }

  private async drawAll(): Promise<void> {
    this.drawHead();
    this.timeline.draw();
    this.map.rebuild();
    void this.compare?.load();
    await Promise.all([this.loadCharts(), this.workers.load(), this.context.load()]);
  }

  private drawHead(): void {
    const o = this.run.overview;
    const told = JSON.stringify(o.sentence);
    if (told !== this.told) {  // a button that is made anew at each step is hard to click
      this.told = told;
      this.sentence.className = `sentence ${o.sentence.mood}`;
      // Nothing found, in one step more: that is read aloud to nobody.
      this.sentence.setAttribute("aria-live", o.sentence.mood === "bad" ? "polite" : "off");
      const go = o.sentence.step >= 0
        ? el("button", { class: "go", click: () => this.go(o.sentence.tensor, o.sentence.step) }, "show it") : null;
      fill(this.sentence, plain(o.sentence.text), go);
    }
    const lost = o.dropped.reduce((sum, d) => sum + d.count, 0);
    fill(this.facts, el("span", { class: `state ${o.state.split(" ")[0]}` }, o.state),
      ` · ${o.steps} steps${o.steps ? ` (${o.first_step} to ${o.last_step})` : ""} · ${o.tensors} tensors · ${o.world_size || 1} worker${o.world_size > 1 ? "s" : ""}`,
      o.attempts.length > 1 ? ` · ${o.attempts.length} attempts` : "", ` · ${bytes(o.bytes)}`,
      lost ? el("span", { class: "warn", title: o.dropped.map((d) => d.text).join("\n") }, ` · ${lost} pieces dropped`) : null,
      o.damage.length ? el("span", { class: "bad", title: o.damage.join("\n") }, ` · ${o.damage.length} damaged places`) : null,
      o.coarse_steps ? el("span", { class: "warn", title: "tdbg compact --budget: coarse rows tell of them" }, ` · of ${o.coarse_steps} steps single rows were dropped to save room`) : null,
      // No reason: it went without a word, as a process that is killed for memory does.
      ...o.worker_ends.filter((e) => ["exception", "signal", ""].includes(e.reason)).slice(0, 3).map((e) =>
        el("span", { class: "bad", title: e.message }, e.reason ? ` · ${plain(e.worker)} ended: ${plain(e.message.split("\n")[0]!) || e.reason}`
          : ` · ${plain(e.worker)} is gone without a goodbye, last step ${e.last_step}`)));
    this.drawFindings();
    this.live.textContent = this.frozen ? "frozen: follow" : o.running ? "● live" : "ended";
    this.live.disabled = !o.running && !this.frozen;
    this.bell.hidden = !o.running || !("Notification" in window) || Notification.permission !== "default";
    const found = o.verdicts.filter((v) => v.status === "IssuesFound").length;
    document.title = `${found || o.sentence.mood === "bad" ? "⚠ " : ""}${o.name} · tdbg`;
    if (this.announced >= 0 && found > this.announced && "Notification" in window && Notification.permission === "granted") {
      new Notification(o.name, { body: o.sentence.text });
    }
    this.announced = found;
  }

  private drawFindings(): void {
    const o = this.run.overview;
    // News come several times a second, findings seldom: a button that is made anew each time is hard to click.
    const drawn = JSON.stringify([o.verdicts.map((v) => [v.name, v.status, v.details, v.findings, v.follows_from]), o.origins, o.incidents, o.first_nonfinite]);
    if (drawn === this.shown) return;
    this.shown = drawn;
    const card = (verdict: Verdict) => {
      const first = verdict.findings[0], others = verdict.findings.length - 1;
      const place = first ? `${first.tensor ? `${first.tensor} ` : ""}at ${first.at}` : verdict.details.split("\n")[0]!;
      const measure = first && first.measure ? `${first.measure} ${number(parsed(first.value))} ${first.comparison} ${number(parsed(first.threshold))}` : first?.text ?? "";
      return el("button", { class: `finding ${verdict.status}`, title: verdict.details, disabled: !first,
                            click: () => first && this.go(first.tensor, first.global_step) },
        el("b", {}, verdict.name), el("span", {}, plain(place)), el("span", { class: "soft" }, measure),
        others > 0 ? el("span", { class: "soft" }, `and ${others} more`) : null,
        verdict.follows_from ? el("span", { class: "soft" }, `follows from ${verdict.follows_from}`) : null);
    };
    // What the profile found is told by its incidents; a rule that somebody named has a card of its own.
    const told = o.incidents.filter((i) => i.detector && !i.muted);
    const muted = o.incidents.filter((i) => i.muted);
    const story = (incident: Incident) => el("article", { class: "incident" },
      el("h3", {}, `${plain(incident.title)}, from ${incident.at} on`), el("p", {}, plain(incident.sentence)),
      el("p", { class: "soft" }, el("b", {}, `${incident.confidence}: `), plain(incident.advice)),
      incident.consequences.length ? el("p", { class: "soft" }, `What followed: ${incident.consequences.slice(0, 3).map((f) => `${f.at}: ${plain(f.text || f.measure)}`).join(" · ")}`) : null,
      el("button", { class: "go", click: () => this.go(incident.tensor, incident.first_step) }, "show it"));
    const bad = o.verdicts.filter((v) => (v.status === "IssuesFound" && !(told.length && v.rule === "Profile")) || v.status === "Error");
    const good = o.verdicts.filter((v) => v.status !== "IssuesFound" && v.status !== "Error");
    fill(this.findings, ...o.origins.slice(0, 2).map((origin) => el("button", { class: "finding IssuesFound origin",
        click: () => this.go(o.first_nonfinite?.tensor ?? "", origin.global_step) },
        el("b", {}, `Where it began: ${origin.at}`), el("span", {}, plain(origin.sentence)),
        origin.advice ? el("span", { class: "soft" }, plain(origin.advice)) : null)),
      ...told.slice(0, 6).map(story), told.length > 6 ? el("p", { class: "soft" }, `and ${told.length - 6} more: tdbg explain`) : null,
      ...bad.map(card),
      ...muted.slice(0, 6).map((i) => el("p", { class: "soft" }, `Muted: ${plain(i.title)}, from ${i.at} on, because ${plain(i.because)}`)),
      good.length ? el("p", { class: "soft" }, `${good.map((v) => `${v.name}: ${v.status === "NoIssuesFound" ? "nothing" : v.status === "InProgress" ? "watching" : v.status}`).join(" · ")}`) : null);
  }

  /** To a place: its tensor beside the map, its step under the cursor, in a window that holds it. */
  private go(tensor: string, step: number): void {
    const [begin, end] = this.run.window(state.begin, state.end);
    const info = this.run.tree.tensors.find((t) => t.name === tensor);
    const open = new Set(state.open.length ? state.open : this.map.shownOpen());
    open.delete("-");
    if (info) {
      const { nodes } = this.run.tree;
      for (let at = info.node; at > 0; at = nodes[at]!.parent) {
        const parts: string[] = [];
        for (let up = at; up > 0; up = nodes[up]!.parent) parts.unshift(nodes[up]!.name);
        open.add(parts.join("/"));
      }
    }
    set({ tensor, step, open: [...open], ...(step < begin || step >= end ? { begin: null, end: null } : {}) });
  }

  private async loadCharts(): Promise<void> {
    const wanted = [...this.run.overview.charts];
    for (const chart of this.run.other?.overview.charts ?? []) if (!wanted.some((c) => c.tensor === chart.tensor)) wanted.push(chart);
    const names = wanted.map((c) => c.tensor).join("\n");
    if (names !== this.drawnNames || !this.drawn.length) {
      for (const chart of this.drawn) chart.destroy();
      this.drawnNames = names;
      const other = this.run.other?.name;
      const lines = (tensor: string, field: string) => () => [this.run.name, ...(other ? [other] : [])].map((run, i) => (
        { run, tensor, field, label: other ? run : field, colour: themed(kPalette[i]!) }));
      this.drawn = wanted.slice(0, 12).map((c) => new Chart(c.tensor, lines(c.tensor, "value")));
      this.drawn.push(new Chart("seconds a step", lines("", "step_seconds")));
      fill(this.charts, ...this.drawn.map((c) => c.element));
    }
    const [begin, end] = this.run.window(state.begin, state.end);
    await Promise.all(this.drawn.map((chart) => chart.load(begin, end, this.marks())));
  }

  private freeze(frozen: boolean): void {
    this.frozen = frozen;
    this.drawHead();
    if (!frozen) void this.news(null);
  }

  private async news(_: unknown): Promise<void> {
    if (this.frozen || this.gone) return;
    // One at a time: what came meanwhile is one more look, not a queue of them.
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    try {
      const generations = this.run.generations;
      await this.run.load();
      if (this.gone) return;
      if (this.run.generations !== generations) {
        await this.drawAll();
        await this.panel.load();
      } else {
        this.drawHead();  // the server answers again, if nothing else is new
      }
      this.element.dataset.step = String(this.run.overview.last_step);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.tellGone(error.message);  // it has ended between its news and our question
    } finally {
      this.busy = false;
      if (this.again) { this.again = false; void this.news(null); }
    }
  }
  private tellGone(why: string): void { this.live.textContent = why; }
  step(by: number): void {
    if (!this.timeline) return;
    const [first, end] = this.run.whole;
    set({ step: Math.min(end - 1, Math.max(first, (state.step ?? end - 1) + by)) });
  }
  zoom(factor: number, shift: number): void {
    if (!this.timeline) return;
    const [first, last] = this.run.whole, [begin, end] = this.run.window(state.begin, state.end);
    const middle = state.step !== null && state.step >= begin && state.step < end && factor !== 1 ? state.step : (begin + end) / 2 + shift * (end - begin);
    const size = Math.max(4, Math.min(last - first, (end - begin) * factor));
    const from = Math.round(Math.min(Math.max(first, middle - size / 2), last - size));
    set(size >= last - first ? { begin: null, end: null } : { begin: from, end: Math.round(from + size) });
  }
  toggleLive(): void { if (this.timeline) this.freeze(!this.frozen); }
}

/** Of a report: what it is, what it lacks, and how to see the same where the run is. */
function about(): HTMLElement | null {
  if (!report) return null;
  const { made, by, left_out, commands } = report.head;
  return el("section", { class: "about", "aria-label": "About this report" }, el("h2", {}, "About this report"),
    el("p", {}, `Made ${made} by ${by}. It is one file with a part of the run's data, and asks no network.`),
    el("h3", {}, "What was left out"), el("ul", {}, ...left_out.map((text) => el("li", {}, plain(text)))),
    el("h3", {}, "Where the run is"), ...commands.map(({ what, command }) => el("div", {}, el("p", { class: "soft" }, what), copyable(what, command))));
}

const bar = el("nav", { class: "where", "aria-label": "Where you are" });
const place = el("div", { id: "place" });
const help = el("dialog", { class: "help" }, el("h2", {}, "Keys"),
  el("table", {}, ...[["↑ ↓", "row of the layer map (when it has the focus)"], ["enter", "open the tensor; fold or unfold the module"],
    ["← →", "one step back or on"], ["w s", "zoom in, out"], ["a d", "earlier, later"], ["r", "the whole run"], ["f", "follow or freeze"], ["o", "order of the rows"],
    ["/", "filter"], ["esc", "close the tensor"], ["?", "this"]].map(([k, what]) => el("tr", {}, el("th", {}, k!), el("td", {}, what!)))),
  el("form", { method: "dialog" }, el("button", {}, "close")));

let view: RunView | null = null;
let list: RunsView | null = null;
let shown: string | null = null;
let turn = 0;

async function show(): Promise<void> {
  const name = state.run;
  if (shown === name && (view || name === "")) return;
  shown = name;
  const mine = ++turn;  // what is awaited for a run that nobody wants any more must not be shown
  view?.destroy();
  view = null;
  list?.destroy();
  list = null;
  try {
    if (!name) {
      const { runs, total } = await askJson("runs", { limit: 1 });
      if (mine !== turn) return;
      if (total === 1 && runs[0].state !== "unreadable") {
        remember("replaceState", `#${new URLSearchParams({ run: runs[0].name })}`);
        set({ run: runs[0].name });
        return;
      }
      fill(bar, el("strong", {}, "tdbg"));
      list = new RunsView();
      fill(place, list.element);
      await list.load();
      return;
    }
    const next = new RunView(new Run(name, state.other), bar);
    fill(place, next.element);
    view = next;
    await next.load();
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof TypeError)) throw error;
    if (mine !== turn) return;
    fill(place, el("main", { class: "failed" }, el("h1", {}, "This cannot be shown"), el("p", {}, error.message),
                   el("p", {}, el("a", { href: "#" }, "all runs"))));
  }
}

function nextOrder(): void {
  const orders = Object.keys(kOrders).filter((order) => order !== kParts || state.other);
  set({ order: orders[(orders.indexOf(state.order) + 1) % orders.length]! });
}

/** On paper: light, and as wide as the screen was. Canvases are drawn for it, and drawn back. */
function print(): void {
  let before: string | undefined;
  const redraw = () => window.dispatchEvent(new Event("resize"));
  window.addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    document.documentElement.style.setProperty("--paper", String(Math.min(1, kPaper / window.innerWidth)));
    redraw();
  });
  window.addEventListener("afterprint", () => {
    if (before) document.documentElement.dataset.theme = before;
    else delete document.documentElement.dataset.theme;
    redraw();
  });
}

function theme(next: string | null): void {
  if (next) document.documentElement.dataset.theme = next;
  try { if (next) localStorage.setItem("tdbg-theme", next); } catch { /* storage may be refused */ }
}

function start(): void {
  let kept: string | null = null;
  try { kept = localStorage.getItem("tdbg-theme"); } catch { /* storage may be refused */ }
  if (kept === "dark" || kept === "light") theme(kept);
  const swap = el("button", { "aria-label": "Dark or light", title: "dark or light", click: () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    theme(dark ? "light" : "dark");
    window.dispatchEvent(new Event("resize"));
  } }, "◐");
  document.body.append(el("header", { class: "top" }, bar, swap, el("button", { "aria-label": "Help", title: "keys", click: () => help.showModal() }, "?")), place, help);
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "Escape" && typing) (event.target as HTMLElement).blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const keys: Record<string, () => void> = {
      "/": () => document.getElementById("filter")?.focus(), "?": () => help.showModal(), Escape: () => set({ tensor: "" }),
      r: () => set({ begin: null, end: null }), f: () => view?.toggleLive(), o: nextOrder, w: () => view?.zoom(0.5, 0), s: () => view?.zoom(2, 0),
      a: () => view?.zoom(1, -0.4), d: () => view?.zoom(1, 0.4),
      ...(event.defaultPrevented ? {} : { ArrowLeft: () => view?.step(-1), ArrowRight: () => view?.step(1) }),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  print();
  if (report && state.other) set({ other: "" });  // it holds one run
  onState((_, changed) => { if (changed.has("run") || changed.has("other")) { if (changed.has("other")) shown = null; void show(); } });
  void show();
}
start();
