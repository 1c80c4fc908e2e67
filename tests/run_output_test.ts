/** Raw output to head, tail and text file: `src/run/utf8.ts` and `src/run/output_view.ts`. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { Buffer } from "node:buffer";
import type { OutputView } from "../src/result.ts";
import type { StreamEnd } from "../src/run/order.ts";
import { OutputMirror, VIEW_BYTES } from "../src/run/output_view.ts";
import { openEnd, toUtf8, Utf8Stream } from "../src/run/utf8.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

function concat(...parts: Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** A small generator with a seed, so that a failing case can be repeated. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** A stream as the shim would leave it: the first `fileBytes` in the file, the end in the tail. */
function endOf(raw: Uint8Array, fileBytes = raw.length, complete = true): StreamEnd {
  const lost = raw.length > fileBytes;
  const tail = lost ? raw.subarray(Math.max(0, raw.length - VIEW_BYTES)) : new Uint8Array();
  return {
    bytes: raw.length,
    file_bytes: fileBytes,
    tail: Buffer.from(tail).toString("base64"),
    complete,
  };
}

/** Mirrors a stream that is fed in pieces of `size` bytes. */
function mirror(
  raw: Uint8Array,
  options: { size?: number; fileBytes?: number; complete?: boolean; accept?: number } = {},
): { view: OutputView; file: Uint8Array } {
  const { size = 65536, fileBytes = raw.length, complete = true, accept = Infinity } = options;
  const parts: Uint8Array[] = [];
  let taken = 0;
  const m = new OutputMirror({
    path: "/nonexistent/never-opened",
    file: "r1.stdout",
    append: (bytes) => {
      const part = bytes.slice(0, accept - taken);
      parts.push(part);
      taken += part.length;
      return part.length;
    },
  });
  const buffer = new Uint8Array(size);
  for (let at = 0; at < fileBytes; at += size) {
    const part = raw.subarray(at, Math.min(at + size, fileBytes));
    buffer.set(part);
    m.feed(buffer.subarray(0, part.length));
    buffer.fill(0x2a); // what the mirror kept must be its own copy
  }
  const view = m.finish(endOf(raw, fileBytes, complete));
  return { view, file: concat(...parts) };
}

/** The law that every view keeps, whatever the stream. */
function assertAccounted(view: OutputView, raw: Uint8Array): void {
  assertEquals(view.bytes, raw.length);
  const shown = view.bytes - view.dropped_bytes;
  assert(shown >= 0 && view.dropped_bytes >= 0);
  assert(encode(view.head).length <= 3 * 2 * VIEW_BYTES, "head is bounded");
  assert(encode(view.tail).length <= 3 * VIEW_BYTES, "tail is bounded");
  if (view.dropped_bytes === 0 && view.tail === "") {
    assertEquals(view.head, decode(toUtf8(raw).bytes));
  }
}

Deno.test("toUtf8() leaves well-formed text alone and replaces every other byte one for one", () => {
  const rows: [number[], string, number][] = [
    [[], "", 0],
    [[0x61, 0x00, 0x1b, 0x5b, 0x0d, 0x7f], "a\u0000\u001b[\r\u007f", 0],
    [[0xef, 0xbb, 0xbf, 0x61], "\ufeffa", 0],
    [[0xc3, 0xa9], "é", 0],
    [[0xf0, 0x9f, 0x98, 0x80], "😀", 0],
    [[0xff], "\ufffd", 1],
    [[0x61, 0x80, 0x62], "a\ufffdb", 1],
    [[0xc0, 0xaf], "\ufffd\ufffd", 2], // overlong
    [[0xe0, 0x80, 0xaf], "\ufffd\ufffd\ufffd", 3], // overlong
    [[0xed, 0xa0, 0x80], "\ufffd\ufffd\ufffd", 3], // surrogate
    [[0xf4, 0x90, 0x80, 0x80], "\ufffd\ufffd\ufffd\ufffd", 4], // above U+10FFFF
    [[0xe2, 0x82], "\ufffd\ufffd", 2], // cut off
    [[0xe2, 0x82, 0x41], "\ufffd\ufffdA", 2],
    [[0xe2, 0xe2, 0x82, 0xac], "\ufffd€", 1],
    [[0xef, 0xbf, 0xbd], "\ufffd", 0], // a replacement character that was sent as one
  ];
  for (const [bytes, want, replaced] of rows) {
    const got = toUtf8(new Uint8Array(bytes));
    assertEquals([decode(got.bytes), got.replaced], [want, replaced], String(bytes));
  }
});

Deno.test("toUtf8() agrees with the strict decoder on what is well-formed", () => {
  const seed = Date.now() % 1_000_000;
  const next = random(seed);
  for (let i = 0; i < 3000; i++) {
    const bytes = new Uint8Array(next(7));
    // Bytes near the borders of the encoding, where mistakes are.
    const edge = [0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0];
    const more = [0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff];
    for (let k = 0; k < bytes.length; k++) bytes[k] = [...edge, ...more][next(24)] ?? 0;
    let strict: string | null = null;
    try {
      strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      // not well-formed
    }
    const got = toUtf8(bytes);
    const what = `seed ${seed}: ${bytes}`;
    assertEquals(got.replaced === 0, strict !== null, what);
    if (strict !== null) assertEquals(decode(got.bytes), strict, what);
    else assertThrows(() => new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    assertEquals(got.bytes.length, bytes.length + 2 * got.replaced, what);
  }
});

Deno.test("Utf8Stream gives the same text and count however the bytes are cut (X14)", () => {
  const seed = Date.now() % 1_000_000;
  const next = random(seed);
  for (let i = 0; i < 300; i++) {
    const parts = ["aé", "€", "😀", "\n"].map(encode);
    parts.push(new Uint8Array([0xff]), new Uint8Array([0xe2, 0x82]), new Uint8Array([0xf0, 0x9f]));
    const raw = concat(...Array.from({ length: next(12) }, () => parts[next(7)] ?? encode("x")));
    const whole = toUtf8(raw);
    for (const size of [1, 2, 3, 5]) {
      const stream = new Utf8Stream();
      const out: Uint8Array[] = [];
      for (let at = 0; at < raw.length; at += size) {
        out.push(stream.push(raw.subarray(at, at + size)).slice());
      }
      out.push(stream.end());
      const what = `seed ${seed}: ${raw} by ${size}`;
      assertEquals(concat(...out), new Uint8Array(whole.bytes), what);
      assertEquals(stream.replaced, whole.replaced, what);
    }
  }
});

Deno.test("openEnd() holds back only what may still become a character", () => {
  const rows: [number[], number][] = [
    [[], 0],
    [[0x61], 0],
    [[0xc3], 1],
    [[0xe2, 0x82], 2],
    [[0xf0, 0x9f, 0x98], 3],
    [[0xf0, 0x9f, 0x98, 0x80], 0],
    [[0x80, 0x80, 0x80, 0x80], 0],
    [[0xe0, 0x80], 0], // already known to be invalid
    [[0xff], 0],
  ];
  for (const [bytes, want] of rows) assertEquals(openEnd(new Uint8Array(bytes)), want, `${bytes}`);
});

Deno.test("OutputMirror shows an empty stream as nothing, without a file", () => {
  const { view } = mirror(new Uint8Array());
  assertEquals(view, {
    head: "",
    tail: "",
    bytes: 0,
    dropped_bytes: 0,
    replaced_bytes: 0,
    file: null,
    complete: true,
  });
});

Deno.test("OutputMirror shows everything in head up to 32 KiB and cuts one byte above", () => {
  const whole = encode("x".repeat(2 * VIEW_BYTES));
  const at = mirror(whole);
  assertEquals([at.view.head.length, at.view.tail, at.view.dropped_bytes], [32768, "", 0]);
  const above = mirror(concat(whole, encode("y"))).view;
  assertEquals(above.head, "x".repeat(VIEW_BYTES));
  assertEquals(above.tail, "x".repeat(VIEW_BYTES - 1) + "y");
  assertEquals([above.bytes, above.dropped_bytes], [32769, 1]);
});

Deno.test("OutputMirror never tears a character at the end of head or the start of tail", () => {
  for (let shift = 0; shift < 4; shift++) {
    const raw = concat(encode("a".repeat(shift)), encode("😀".repeat(12_000)));
    const { view, file } = mirror(raw);
    assertEquals(view.replaced_bytes, 0);
    assert(!view.head.includes("\ufffd") && !view.tail.includes("\ufffd"), `shift ${shift}`);
    const head = encode(view.head).length;
    const tail = encode(view.tail).length;
    assert(head > VIEW_BYTES - 4 && head <= VIEW_BYTES);
    assert(tail > VIEW_BYTES - 4 && tail <= VIEW_BYTES);
    assertEquals(view.dropped_bytes, raw.length - head - tail);
    assertEquals(decode(raw).startsWith(view.head), true);
    assertEquals(decode(raw).endsWith(view.tail), true);
    assertEquals(file, raw);
  }
});

Deno.test("OutputMirror counts replaced bytes over the whole stream, not only what it shows (X14)", () => {
  const raw = encode("x".repeat(100_000));
  raw[10] = 0xff;
  raw[50_000] = 0xfe;
  raw[99_999] = 0xc3;
  const { view, file } = mirror(raw);
  assertEquals(view.replaced_bytes, 3);
  assertEquals(file.length, raw.length + 6);
  assertEquals(view.dropped_bytes, raw.length - 2 * VIEW_BYTES);
  assert(view.tail.endsWith("x\ufffd"));
  assertEquals(new TextDecoder("utf-8", { fatal: true }).decode(file).length, raw.length);
});

Deno.test("OutputMirror leaves NUL, escapes and forged lines in output as they are (X14)", () => {
  const text = 'a\u0000b\u001b[31m\u009b\u202e\n{"state":"done"}\r\n';
  const { view, file } = mirror(encode(text));
  assertEquals(view.head, text);
  assertEquals(decode(file), text);
  assertEquals(JSON.parse(JSON.stringify(view)).head, text);
});

Deno.test("OutputMirror fed byte by byte gives what it gives when fed whole", () => {
  const seed = Date.now() % 1_000_000;
  const next = random(seed);
  for (let i = 0; i < 6; i++) {
    const raw = new Uint8Array(30_000 + next(8000));
    for (let at = 0; at < raw.length; at++) raw[at] = next(4) === 0 ? next(256) : 0x61;
    const fileBytes = next(2) === 0 ? raw.length : next(raw.length);
    const whole = mirror(raw, { fileBytes });
    for (const size of [1, 7, 4096]) {
      const pieces = mirror(raw, { size, fileBytes });
      assertEquals(pieces.view, whole.view, `seed ${seed}, case ${i}, by ${size}`);
      assertEquals(pieces.file, whole.file, `seed ${seed}, case ${i}, by ${size}`);
    }
    assertAccounted(whole.view, raw);
  }
});

Deno.test("OutputMirror shows the true end of a stream that was longer than its file", () => {
  const raw = encode(Array.from({ length: 20_000 }, (_, i) => `line ${i}\n`).join(""));
  const { view, file } = mirror(raw, { fileBytes: 50_000 });
  assertEquals(file.length, 50_000);
  assertEquals(view.bytes, raw.length);
  assertEquals(view.head, decode(raw.subarray(0, VIEW_BYTES)));
  assertEquals(view.tail, decode(raw.subarray(raw.length - VIEW_BYTES)));
  assertEquals(view.dropped_bytes, raw.length - 2 * VIEW_BYTES);
  assertEquals(view.complete, false);
  assertEquals(view.file, "r1.stdout");
});

Deno.test("OutputMirror shows a short stream whole although the disk took only part of it (S1)", () => {
  const raw = encode("0123456789".repeat(1000));
  for (const fileBytes of [0, 1, 5000, 9999]) {
    const { view, file } = mirror(raw, { fileBytes });
    assertEquals([view.head, view.tail, view.dropped_bytes], [decode(raw), "", 0]);
    assertEquals(file.length, fileBytes);
    assertEquals(view.complete, false);
    assertEquals(view.file, fileBytes === 0 ? null : "r1.stdout");
  }
});

Deno.test("OutputMirror does not call a character invalid that the file was cut inside of", () => {
  const raw = encode("é".repeat(30_000));
  for (const fileBytes of [1001, 20_001]) {
    const { view, file } = mirror(raw, { fileBytes });
    assertEquals(view.replaced_bytes, 0);
    assertEquals(decode(file), "é".repeat((fileBytes - 1) / 2));
    assert(!`${view.head}${view.tail}`.includes("\ufffd"));
  }
});

Deno.test("OutputMirror starts a tail that has no known beginning at a whole character", () => {
  for (let shift = 0; shift < 4; shift++) {
    const raw = encode("😀".repeat(20_000) + "z".repeat(shift));
    const { view } = mirror(raw, { fileBytes: 100 });
    assert(view.tail.startsWith("😀"), `shift ${shift}`);
    assertEquals(view.replaced_bytes, 0);
    const shown = encode(view.head).length + encode(view.tail).length;
    assertEquals(view.dropped_bytes, raw.length - shown);
  }
});

Deno.test("OutputMirror tells invalid bytes beyond the file when it shows them", () => {
  const raw = encode("x".repeat(60_000));
  raw[59_000] = 0xff;
  assertEquals(mirror(raw, { fileBytes: 30_000 }).view.replaced_bytes, 1);
  assertEquals(mirror(raw, { fileBytes: 59_500 }).view.replaced_bytes, 1);
  const short = encode("x".repeat(100));
  short[90] = 0xff;
  assertEquals(mirror(short, { fileBytes: 50 }).view.replaced_bytes, 1);
  assertEquals(mirror(short, { fileBytes: 95 }).view.replaced_bytes, 1);
});

Deno.test("OutputMirror keeps the whole view when its target takes no more (S1)", () => {
  const raw = encode("abc".repeat(1000));
  const { view, file } = mirror(raw, { accept: 100, size: 64 });
  assertEquals(view.head, decode(raw));
  assertEquals(file.length, 100);
  assertEquals(view.complete, false);
  let calls = 0;
  const throwing = new OutputMirror({
    path: "/nonexistent/never-opened",
    file: "r1.stdout",
    append: () => {
      calls++;
      throw new Error("no space");
    },
  });
  throwing.feed(raw);
  throwing.feed(raw);
  const after = throwing.finish(endOf(concat(raw, raw)));
  assertEquals([after.head.length, after.file, after.complete, calls], [6000, null, false, 1]);
});

Deno.test("OutputMirror says incomplete for a cut pipe and for a run without an exit record", () => {
  const raw = encode("early\n");
  assertEquals(mirror(raw, { complete: false }).view.complete, false);
  const m = new OutputMirror({ path: "/nonexistent/x", file: "r1.stdout", append: () => {} });
  m.feed(raw);
  const view = m.finish(null);
  assertEquals([view.head, view.bytes, view.complete], ["early\n", 6, false]);
});

Deno.test("OutputMirror follows a growing file and reads the rest when it finishes", async () => {
  const dir = await Deno.makeTempDir();
  try {
    const path = `${dir}/stdout`;
    const parts: Uint8Array[] = [];
    const append = (bytes: Uint8Array) => void parts.push(bytes.slice());
    const m = new OutputMirror({ path, file: "r1.stdout", append });
    assertEquals(m.pump(), false, "a file that is not there yet is no error");
    const raw = encode("é".repeat(100_000));
    Deno.writeFileSync(path, raw.subarray(0, 70_001));
    assertEquals(m.pump(1), true);
    assertEquals(m.read, 65_536);
    assertEquals(m.pump(), false);
    assertEquals(concat(...parts).length, 70_000);
    Deno.writeFileSync(path, raw.subarray(70_001), { append: true });
    const view = m.finish(endOf(raw));
    assertEquals(concat(...parts), raw);
    assertEquals([view.bytes, view.replaced_bytes, view.complete], [200_000, 0, true]);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("OutputMirror tells bytes that the record has and the file lost as dropped", () => {
  const raw = encode("x".repeat(100));
  const m = new OutputMirror({ path: "/nonexistent/x", file: "r1.stdout", append: () => {} });
  const view = m.finish(endOf(raw));
  assertEquals([view.head, view.bytes, view.dropped_bytes, view.complete], ["", 100, 100, false]);
});

Deno.test("OutputMirror passes every byte through its filter, in order and to the end", () => {
  const parts: Uint8Array[] = [];
  let held = new Uint8Array();
  const m = new OutputMirror({
    path: "/nonexistent/x",
    file: "r1.stdout",
    append: (bytes) => void parts.push(bytes.slice()),
    // Holds one byte back and turns every "s" into "*".
    filter: () => ({
      push(bytes) {
        const all = concat(held, bytes).map((b) => b === 0x73 ? 0x2a : b);
        held = new Uint8Array(all.slice(-1));
        return all.slice(0, -1);
      },
      end: () => held,
      across: () => ({ before: held, after: new Uint8Array(), left_out: 0 }),
    }),
  });
  const raw = encode("a secret passes");
  for (const byte of raw) m.feed(new Uint8Array([byte]));
  const view = m.finish(endOf(raw));
  assertEquals(view.head, "a *ecret pa**e*");
  assertEquals(decode(concat(...parts)), "a *ecret pa**e*");
  assertEquals(view.complete, true);
});
