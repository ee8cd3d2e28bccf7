// The second source of answers: those that lie in a report. They were asked when it was made, of all steps; what the
// page asks now (a window, a folded module) is cut out of them or merged from them.
import type { Column, Columns, Parameters } from "./api";
import { decode, numbers, Refused } from "./api";

interface Kept {
  question: string; parameters: Record<string, string>; json?: any; columns?: string;
  each_of?: [number, number];  // of a matrix: its rows are these tensors, one each
  decoded?: Columns;
}
export interface Head {
  version: number; name: string; made: string; by: string; left_out: string[];
  commands: { what: string; command: string }[];
}

const kNan = 1, kInfinity = 2, kKept = 8;
const kOfMatrix = ["mean_abs", "l2", "abs_max", "std", "mean", "min", "max"];

function columnsOf(kept: Kept): Columns {
  kept.decoded ??= decode(Uint8Array.from(atob(kept.columns!), (c) => c.charCodeAt(0)).buffer);
  return kept.decoded;
}

/** Buckets whose steps reach into [begin, end). */
function within(columns: Columns, begin: number, end: number): number[] {
  const firsts = numbers(columns.columns.step_first!), lasts = numbers(columns.columns.step_last!);
  return firsts.map((_, i) => i).filter((i) => lasts[i]! >= begin && firsts[i]! < end);
}
function pick(column: Column, places: number[]): any {
  const picked = new (column.constructor as any)(places.length);
  places.forEach((place, i) => { picked[i] = column[place]; });
  return picked;
}

export class Report {
  private readonly kept: Kept[];
  private readonly ids = new Map<string, number>();

  constructor(readonly head: Head & { answers: Kept[] }) {
    this.kept = head.answers;
    for (const tensor of this.find("tensors", {})?.json.tensors ?? []) this.ids.set(tensor.name, tensor.id);
  }

  json(name: string, parameters: Parameters): any {
    if (name === "runs") return { runs: [{ name: this.head.name, state: "in this report" }], total: 1 };
    this.checkRun(parameters);
    const found = this.find(name, {});
    if (!found) throw this.lacks(`the answer to "${name}"`);
    return found.json;
  }

  columns(name: string, parameters: Parameters): Columns {
    this.checkRun(parameters);
    const begin = Number(parameters.begin ?? 0), end = Number(parameters.end ?? Infinity);
    const tensor = String(parameters.tensor ?? ""), field = String(parameters.field ?? "value");
    if (name === "matrix") return this.matrix(String(parameters.statistic), String(parameters.rows), begin, end);
    if (name === "line") return this.line(tensor, field, begin, end);
    if (name === "histogram") return this.histogram(tensor, Number(parameters.step));
    const found = this.find(name, name === "workers" ? { tensor, field } : { tensor });
    if (!found) throw this.lacks(name === "workers" ? `${field} of this tensor by worker` : "this tensor's distribution over the steps");
    return name === "workers" ? this.window(columnsOf(found), begin, end) : this.histograms(columnsOf(found), begin, end);
  }

  private checkRun(parameters: Parameters): void {
    const run = parameters.run;
    if (run !== undefined && run !== this.head.name) throw new Refused(`this report is about ${this.head.name} alone`);
  }
  private lacks(what: string): Refused {
    return new Refused(`This report does not hold ${what}; where the run is, ${this.head.commands[0]?.command ?? "tdbg view"} shows it.`);
  }
  private all(question: string, parameters: Record<string, string>): Kept[] {
    return this.kept.filter((k) => k.question === question && Object.entries(parameters).every(([key, value]) => (k.parameters[key] ?? "") === value));
  }
  private find(question: string, parameters: Record<string, string>): Kept | undefined { return this.all(question, parameters)[0]; }

  /** Segments of all steps, in order, each in buckets of its own width and maybe in several pieces of rows. */
  private segments(statistic: string): { first: number; pieces: Kept[] }[] {
    const by = new Map<number, Kept[]>();
    for (const kept of this.all("matrix", { statistic })) {
      const first = Number(kept.parameters.begin);
      by.set(first, [...(by.get(first) ?? []), kept]);
    }
    return [...by].map(([first, pieces]) => ({ first, pieces })).sort((a, b) => a.first - b.first);
  }

  private matrix(statistic: string, rows: string, begin: number, end: number): Columns {
    const segments = this.segments(statistic);
    if (!segments.length) throw this.lacks(`the statistic ${statistic}`);
    const members = rows.split(";").map((row) => row.split(",").filter((part) => part).flatMap((part) => {
      const [from, to] = part.split("-").map(Number) as [number, number?];
      return Array.from({ length: (to ?? from) - from + 1 }, (_, i) => from + i);
    }));
    const parts = segments.map(({ pieces }) => ({ pieces, buckets: within(columnsOf(pieces[0]!), begin, end) }));
    const buckets = parts.reduce((sum, part) => sum + part.buckets.length, 0);
    const low = new Float32Array(members.length * buckets).fill(NaN), high = new Float32Array(low);
    const flags = new Uint8Array(low.length), shed = new Uint32Array(buckets);
    const firsts: bigint[] = [], lasts: bigint[] = [];
    let at = 0;
    for (const { pieces, buckets: chosen } of parts) {
      const one = columnsOf(pieces[0]!).columns;
      for (const bucket of chosen) {
        firsts.push(one.step_first![bucket] as bigint);
        lasts.push(one.step_last![bucket] as bigint);
        shed[firsts.length - 1] = one.shed![bucket] as number;
      }
      for (const piece of pieces) {
        const { columns } = columnsOf(piece), width = columns.step_first!.length, [from, to] = piece.each_of!;
        members.forEach((tensors, row) => {
          for (const id of tensors) {
            if (id < from || id > to) continue;
            chosen.forEach((bucket, i) => {
              const cell = row * buckets + at + i, source = (id - from) * width + bucket;
              flags[cell]! |= columns.flags![source] as number;
              const l = columns.low![source] as number, h = columns.high![source] as number;
              if (!(low[cell]! <= l)) low[cell] = Number.isNaN(l) ? low[cell]! : l;
              if (!(high[cell]! >= h)) high[cell] = Number.isNaN(h) ? high[cell]! : h;
            });
          }
        });
      }
      at += chosen.length;
    }
    return { head: { question: "matrix", statistic }, columns: {
      step_first: BigInt64Array.from(firsts), step_last: BigInt64Array.from(lasts), shed, low, high, flags } };
  }

  /** What was asked as a line, single steps near findings put into it; of other tensors what the matrix says. */
  private line(tensor: string, field: string, begin: number, end: number): Columns {
    const kept = this.all("line", { tensor, field });
    if (!kept.length) return this.lineOfMatrix(tensor, field, begin, end);
    const whole = kept.filter((k) => k.parameters.begin === undefined), fine = kept.filter((k) => k.parameters.begin !== undefined);
    const span = (k: Kept) => [Number(k.parameters.begin), Number(k.parameters.end)] as const;
    const points = new Map<number, number>(), bad: [number, number][] = [];
    const take = (k: Kept, wanted: (step: number) => boolean) => {
      const { columns } = columnsOf(k);
      const steps = numbers(columns.step!), values = numbers(columns.value!);
      steps.forEach((step, i) => { if (wanted(step)) points.set(step, values[i]!); });
      const at = numbers(columns.nonfinite_step!), kinds = numbers(columns.nonfinite_value!);
      at.forEach((step, i) => { if (wanted(step)) bad.push([step, kinds[i]!]); });
    };
    const inside = (step: number) => step >= begin && step < end;
    for (const k of whole) take(k, (step) => inside(step) && !fine.some((f) => step >= span(f)[0] && step < span(f)[1]));
    for (const k of fine) take(k, inside);
    return this.asLine([...points].sort((a, b) => a[0] - b[0]), bad.sort((a, b) => a[0] - b[0]));
  }
  private lineOfMatrix(tensor: string, field: string, begin: number, end: number): Columns {
    const id = this.ids.get(tensor);
    if (id === undefined || !kOfMatrix.includes(field) || !this.segments(field).length) throw this.lacks(`${field} of this tensor over the steps`);
    const { columns } = this.matrix(field, String(id), begin, end);
    const points: [number, number][] = [], bad: [number, number][] = [];
    const firsts = numbers(columns.step_first!), lasts = numbers(columns.step_last!);
    firsts.forEach((first, i) => {
      const flag = columns.flags![i] as number, low = columns.low![i] as number, high = columns.high![i] as number;
      if (!(flag & kKept)) return;
      if (!Number.isNaN(low)) points.push([first, high]);
      if (!Number.isNaN(low) && lasts[i]! > first) points.push([lasts[i]!, low]);
      if (flag & kNan) bad.push([first, NaN]);
      else if (flag & kInfinity) bad.push([first, Infinity]);
    });
    return this.asLine(points, bad);
  }
  private asLine(points: [number, number][], bad: [number, number][]): Columns {
    return { head: { question: "line" }, columns: {
      step: Float64Array.from(points, (p) => p[0]), value: Float64Array.from(points, (p) => p[1]),
      nonfinite_step: Float64Array.from(bad, (p) => p[0]), nonfinite_value: Float64Array.from(bad, (p) => p[1]) } };
  }

  private histogram(tensor: string, step: number): Columns {
    const kept = this.all("histogram", { tensor });
    const found = kept.find((k) => Number(k.parameters.step) === step);
    if (found) return columnsOf(found);
    const steps = kept.map((k) => Number(k.parameters.step)).sort((a, b) => a - b);
    if (!steps.length) throw this.lacks("histograms of this tensor");
    throw new Refused(`This report holds it at the steps ${steps.join(", ")}.`);
  }
  private histograms(answer: Columns, begin: number, end: number): Columns {
    const { columns } = answer, places = within(answer, begin, end), entries: number[] = [], offset = [0];
    for (const place of places) {
      for (let at = columns.offset![place] as number; at < (columns.offset![place + 1] as number); at++) entries.push(at);
      offset.push(entries.length);
    }
    const cut: Record<string, Column> = { offset: Uint32Array.from(offset), bucket: pick(columns.bucket!, entries), count: pick(columns.count!, entries) };
    for (const name of ["step_first", "step_last", "zero_count", "nonfinite_count"]) cut[name] = pick(columns[name]!, places);
    return { head: answer.head, columns: cut };
  }
  /** A matrix of named rows. */
  private window(answer: Columns, begin: number, end: number): Columns {
    const { columns } = answer, places = within(answer, begin, end), all = columns.step_first!.length;
    const rows = all ? columns.low!.length / all : 0, cells: number[] = [];
    for (let row = 0; row < rows; row++) for (const place of places) cells.push(row * all + place);
    return { head: answer.head, columns: {
      step_first: pick(columns.step_first!, places), step_last: pick(columns.step_last!, places),
      low: pick(columns.low!, cells), high: pick(columns.high!, cells), flags: pick(columns.flags!, cells) } };
  }
}

/** The report that this document is, or null: then a server answers. */
export function openReport(): Report | null {
  const text = document.getElementById("report")?.textContent;
  return text ? new Report(JSON.parse(text)) : null;
}
