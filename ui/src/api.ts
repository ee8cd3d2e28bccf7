// Questions to the server (docs/http.md), or to the report that this document is. Columns arrive as a safetensors file;
// typed arrays lie on top of it.
import { openReport } from "./report";

export type Column = Float64Array | Float32Array | BigInt64Array | BigUint64Array | Int32Array | Uint32Array |
  Int16Array | Uint16Array | Uint8Array;
export interface Columns { head: any; columns: Record<string, Column>; }
export type Parameters = Record<string, string | number | undefined>;

export class Refused extends Error {}

const kTypes: Record<string, any> = {
  F64: Float64Array, F32: Float32Array, I64: BigInt64Array, U64: BigUint64Array, I32: Int32Array, U32: Uint32Array,
  I16: Int16Array, U16: Uint16Array, U8: Uint8Array,
};

export function address(name: string, parameters: Parameters): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) if (value !== undefined) query.set(key, String(value));
  return `api/v1/${name}?${query}`;
}

/** Of refusals before a question is read, which are no JSON. */
const kRefusals: Record<number, string> = {
  403: "this address is not the server's any more: open the one that tdbg view printed last",
  431: "there are too many tensors in these rows to ask for at once: filter them, or unfold fewer",
};

/** Null: a server answers. */
export const report = openReport();

async function fetched(name: string, parameters: Parameters, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(address(name, parameters), { signal }).catch((error: unknown) => {
    throw error instanceof TypeError ? new Refused("the server does not answer") : error;  // fetch's word for no connection
  });
  if (response.ok) return response;
  let why = kRefusals[response.status] ?? `the server answers with status ${response.status}`;
  try { why = (await response.json()).error; } catch { /* no JSON: the status says it */ }
  throw new Refused(why);
}

export async function askJson(name: string, parameters: Parameters = {}, signal?: AbortSignal): Promise<any> {
  if (report) return report.json(name, parameters);
  return (await fetched(name, parameters, signal)).json();
}

export async function askColumns(name: string, parameters: Parameters, signal?: AbortSignal): Promise<Columns> {
  if (report) return report.columns(name, parameters);
  return decode(await (await fetched(name, parameters, signal)).arrayBuffer());
}

export function decode(buffer: ArrayBuffer): Columns {
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const columns: Record<string, Column> = {};
  for (const [name, entry] of Object.entries<any>(header)) {
    if (name === "__metadata__") continue;
    const [begin, end] = entry.data_offsets;
    const type = kTypes[entry.dtype];
    columns[name] = new type(buffer, 8 + size + begin, (end - begin) / type.BYTES_PER_ELEMENT);
  }
  return { head: JSON.parse(header.__metadata__.answer), columns };
}

/** Steps fit a double for longer than anybody trains. */
export function numbers(column: Column): number[] {
  return Array.from(column as any, Number);
}
