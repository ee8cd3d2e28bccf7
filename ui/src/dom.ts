// Elements by hand. Text is only ever set as text: names of tensors are somebody's data, and may be markup.
type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: any) => void) | undefined>;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((c): c is Node | string => !!c));
}

/** A canvas of so many CSS pixels, sharp on any screen. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** A colour of the page's theme. */
export function themed(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const kUnits = ["B", "kB", "MB", "GB", "TB"];
export function bytes(n: number): string {
  let unit = 0;
  while (n >= 1000 && unit < kUnits.length - 1) { n /= 1000; unit++; }
  return `${unit ? n.toFixed(1) : n} ${kUnits[unit]}`;
}
export function number(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
  return String(+value.toPrecision(4));
}
/** An answer's number: JSON spells NaN and infinities as text. */
export function parsed(value: number | string): number {
  return typeof value === "number" ? value : value === "NaN" ? NaN : value === "Infinity" ? Infinity : -Infinity;
}
export function since(wallNanos: number): string {
  if (!wallNanos) return "";
  const seconds = Date.now() / 1e3 - wallNanos / 1e9;
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

/** A name as it is shown: what steers a screen (controls, directions of writing) by its code, and not obeyed. */
export function plain(name: string): string {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).slice(0, 2000);
}

/** A word for a shell, whatever it holds. */
export function shellWord(text: string): string {
  return /^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Text as a file of the reader's. */
export function download(name: string, text: string): void {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name.replace(/[^\w.-]+/g, "_").slice(0, 120) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A command to take along. */
export function copyable(name: string, text: string): HTMLElement {
  const button = el("button", { "aria-label": `Copy the ${name} command`, click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {  // not everywhere where a report is opened
      getSelection()?.selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } }, "copy");
  const code = el("code", { "data-kind": name }, text);
  return el("div", { class: "command" }, code, button);
}
