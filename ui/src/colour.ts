// Scales that people with any colour vision can read: viridis for amounts, blue to orange around a middle.
const kViridis = [
  [68, 1, 84], [71, 19, 101], [72, 36, 117], [70, 52, 128], [65, 68, 135], [59, 82, 139], [53, 95, 141],
  [47, 108, 142], [42, 120, 142], [37, 132, 142], [33, 145, 140], [30, 156, 137], [34, 168, 132], [47, 180, 124],
  [68, 191, 112], [94, 201, 98], [122, 209, 81], [155, 217, 60], [189, 223, 38], [223, 227, 24], [253, 231, 37],
];
const kDiverging = [
  [0, 84, 147], [38, 119, 178], [94, 158, 204], [155, 196, 224], [209, 226, 238], [240, 240, 236], [250, 224, 196],
  [246, 189, 134], [231, 144, 72], [202, 98, 27], [153, 61, 4],
];

function table(stops: number[][]): string[] {
  const out: string[] = [];
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1), low = Math.floor(at), part = at - low;
    const a = stops[low]!, b = stops[Math.min(low + 1, stops.length - 1)]!;
    out.push(`rgb(${a.map((v, k) => Math.round(v + (b[k]! - v) * part)).join(",")})`);
  }
  return out;
}
const kAmount = table(kViridis), kAround = table(kDiverging);

/** What a value is drawn as: 0..1 on one of the two tables. */
export interface Scale {
  place: (value: number) => number;
  value: (place: number) => number;
  around: boolean;
  low: number;
  high: number;
}

export function colour(scale: Scale, value: number): string {
  const place = Math.min(1, Math.max(0, scale.place(value)));
  return (scale.around ? kAround : kAmount)[Math.round(place * 255)]!;
}
export function colourAt(scale: Scale, place: number): string {
  return (scale.around ? kAround : kAmount)[Math.round(place * 255)]!;
}

function percentile(sorted: number[], part: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(part * (sorted.length - 1))))]!;
}

/** Robust to outliers: its ends are the 1st and the 99th of a hundred. */
export function scaleFor(values: number[], kind: "log" | "share" | "signed" | "change" | "ratio"): Scale {
  if (kind === "change") {
    return { place: (v) => (v + 2) / 4, value: (p) => p * 4 - 2, around: true, low: -2, high: 2 };
  }
  if (kind === "ratio") {  // decades; a difference of 1 % is seen where there is nothing larger
    const sizes = values.filter(Number.isFinite).map(Math.abs).sort((a, b) => a - b);
    const most = Math.min(3, Math.max(0.004, sizes.length ? percentile(sizes, 0.99) : 0));
    return { place: (v) => (v / most + 1) / 2, value: (p) => (p * 2 - 1) * most, around: true, low: -most, high: most };
  }
  if (kind === "share") return { place: (v) => Math.sqrt(v), value: (p) => p * p, around: false, low: 0, high: 1 };
  const useful = values.filter((v) => Number.isFinite(v) && (kind === "signed" || v > 0)).sort((a, b) => a - b);
  if (!useful.length) return { place: () => 0, value: () => NaN, around: false, low: NaN, high: NaN };
  let low = percentile(useful, 0.01), high = percentile(useful, 0.99);
  if (kind === "signed") {
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return { place: (v) => (v / most + 1) / 2, value: (p) => (p * 2 - 1) * most, around: true, low: -most, high: most };
  }
  let a = Math.log10(low), b = Math.log10(high);
  if (b - a < 0.5) { const middle = (a + b) / 2; a = middle - 0.25; b = middle + 0.25; }
  return {
    place: (v) => (v > 0 ? (Math.log10(v) - a) / (b - a) : 0), value: (p) => 10 ** (a + p * (b - a)), around: false,
    low: 10 ** a, high: 10 ** b,
  };
}
