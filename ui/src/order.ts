// Rows by what happened to them: who changed first, who is worst now.
import { askColumns } from "./api";
import type { Run, TreeTensor } from "./run";

export const kParts = "parts";  // of two runs
export const kOrders: Record<string, string> = {
  "": "in the model's order", first: "who changed first", now: "who is worst now", [kParts]: "who parts first from the other run" };

const kColumns = 64, kMostRows = 4096 /* of a question */, kNan = 1, kInfinity = 2, kAllZero = 4, kKept = 8;
const kBefore = 4;     // buckets that make a past
const kApart = Math.log10(1.02);  // of two runs: more than random numbers of the same training mostly do
const kDecades = 1;    // that far from its past a tensor has changed

/** Smaller comes first. Of a tensor's buckets: when it first left its own past, or how far it is from it at the end. */
export function rankOf(order: string, high: ArrayLike<number>, flags: ArrayLike<number>): number {
  const past: number[] = [];
  let worst = 0, last = 0;
  for (let i = 0; i < high.length; i++) {
    if (!(flags[i]! & kKept)) continue;
    const middle = [...past].sort((a, b) => a - b)[past.length >> 1] ?? NaN;
    const size = Math.log10(Math.abs(high[i]!));
    const bad = flags[i]! & kNan ? 1000 : flags[i]! & kInfinity ? 900 : 0;
    const vanished = past.length >= kBefore && (flags[i]! & kAllZero || high[i] === 0) ? 100 : 0;
    last = bad || vanished || (past.length >= kBefore && Number.isFinite(size) ? Math.abs(size - middle) : 0);
    if (order === "first" && last >= kDecades) return i - Math.min(last, 999) / 1000;
    worst = Math.max(worst, last);
    if (Number.isFinite(size)) past.push(size);
  }
  return order === "first" ? high.length + 1 - Math.min(worst, 999) / 1000 : -last;
}

/** Smaller comes first: when the ratio of two runs left 1, and how far. */
function rankOfRatio(low: ArrayLike<number>, high: ArrayLike<number>, flags: ArrayLike<number>, theirs: ArrayLike<number>): number {
  let worst = 0;
  for (let i = 0; i < high.length; i++) {
    if (!(flags[i]! & kKept) || !(theirs[i]! & kKept)) continue;
    const sign = (flags[i]! ^ theirs[i]!) & (kNan | kInfinity) ? 100 : 0;
    const apart = sign || Math.min(99, Math.max(Math.abs(Math.log10(low[i]!)), Math.abs(Math.log10(high[i]!))) || 0);
    if (apart >= kApart) return i - apart / 1000;
    worst = Math.max(worst, apart);
  }
  return high.length + 1 - worst;
}

/** Tensors, ordered by the statistic over all steps. */
export async function ordered(run: Run, tensors: TreeTensor[], order: string, statistic: string, signal: AbortSignal): Promise<TreeTensor[]> {
  const [begin, end] = run.whole, rank: number[] = [];
  for (let from = 0; from < tensors.length; from += kMostRows) {  // all of them: the one that went wrong first may be the last
    const some = tensors.slice(from, from + kMostRows);
    const { columns } = await askColumns(order === kParts ? "ratio" : "matrix", {
      run: run.name, other: order === kParts ? run.other!.name : undefined, statistic, begin, end, columns: kColumns, rows: some.map((t) => t.id).join(";") }, signal);
    const buckets = columns.step_first!.length, high = columns.high as Float32Array, flags = columns.flags as Uint8Array;
    const row = (column: Float32Array | Uint8Array, i: number) => column.subarray(i * buckets, (i + 1) * buckets);
    some.forEach((_, i) => rank.push(order === kParts
      ? rankOfRatio(row(columns.low as Float32Array, i), row(high, i), row(flags, i), row(columns.other_flags as Uint8Array, i))
      : rankOf(order, row(high, i), row(flags, i))));
  }
  return tensors.map((_, i) => i).sort((a, b) => rank[a]! - rank[b]! || a - b).map((i) => tensors[i]!);
}
