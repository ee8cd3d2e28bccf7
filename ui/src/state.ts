// What is looked at. It lies in the address, so that a link shows the same thing; views subscribe.
export interface State {
  run: string;
  tensor: string;
  step: number | null;
  begin: number | null;  // of the window; null: the whole run
  end: number | null;    // not included
  statistic: string;
  show: "high" | "low" | "change" | "ratio";  // ratio: to the other run, where there is one
  field: string;
  open: string[];  // names of unfolded modules
  filter: string;
  other: string;   // a second run, laid over
  rtol: string;    // within which numbers of two runs are the same; "": exactly
  sort: string;    // of the list of runs: a column of it, "-" in front: the largest first
  order: string;   // of the layer map's rows, a key of kOrders; "": the model's
}

const kEmpty: State = {
  run: "", tensor: "", step: null, begin: null, end: null, statistic: "mean_abs", show: "high", field: "mean_abs",
  open: [], filter: "", other: "", rtol: "", sort: "", order: "",
};

function read(): State {
  const query = new URLSearchParams(location.hash.slice(1));
  const whole = (key: string) => {
    const text = query.get(key);
    return text !== null && /^\d+$/.test(text) ? Number(text) : null;
  };
  const show = query.get("show");
  return {
    run: query.get("run") ?? "", tensor: query.get("tensor") ?? "", step: whole("step"), begin: whole("begin"),
    end: whole("end"), statistic: query.get("statistic") ?? kEmpty.statistic,
    show: show === "low" || show === "change" || show === "ratio" ? show : "high", field: query.get("field") ?? kEmpty.field,
    open: query.getAll("open"), filter: query.get("filter") ?? "", other: query.get("other") ?? "",
    rtol: /^[0-9.e-]+$/.test(query.get("rtol") ?? "") ? query.get("rtol")! : "", sort: query.get("sort") ?? "",
    order: query.get("order") ?? "",
  };
}

function write(state: State): string {
  const query = new URLSearchParams();
  for (const key of ["run", "tensor", "statistic", "show", "field", "filter", "other", "rtol", "sort", "order"] as const) {
    if (state[key] && state[key] !== kEmpty[key]) query.set(key, state[key]);
  }
  for (const key of ["step", "begin", "end"] as const) if (state[key] !== null) query.set(key, String(state[key]));
  for (const name of state.open) query.append("open", name);
  return `#${query}`;
}

type Listener = (state: State, changed: Set<keyof State>) => void;
const listeners = new Set<Listener>();
export let state: State = read();

export function onState(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(next: State): void {
  const changed = new Set<keyof State>();
  for (const key of Object.keys(next) as (keyof State)[]) {
    if (JSON.stringify(next[key]) !== JSON.stringify(state[key])) changed.add(key);
  }
  state = next;
  if (changed.size) for (const listener of [...listeners]) listener(state, changed);
}

/** A document that lies inside of another one (a notebook's) has no address of its own: then it is not kept. */
export function remember(how: "pushState" | "replaceState", address: string): void {
  try { history[how](null, "", address); } catch { /* as said */ }
}

/** Another run or tensor is a place to come back from; a cursor's step is not. */
export function set(part: Partial<State>): void {
  const next = { ...state, ...part };
  const address = write(next);
  if (address !== location.hash) {
    const place = (part.run ?? state.run) !== state.run || (part.tensor ?? state.tensor) !== state.tensor;
    remember(place ? "pushState" : "replaceState", address);
  }
  tell(next);
}

window.addEventListener("popstate", () => tell(read()));
window.addEventListener("hashchange", () => tell(read()));
