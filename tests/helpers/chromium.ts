/**
 * A headless Chromium that a test drives over its DevTools protocol, on a socket that the browser
 * itself chose. It is given no network: pages come from files.
 *
 * @module
 */
import { join } from "@std/path/join";

const PROGRAM = "/usr/bin/chromium";

/** Why no browser can be driven here, or null. */
export function noChromium(): string | null {
  try {
    return Deno.statSync(PROGRAM).isFile ? null : `${PROGRAM} is no file`;
  } catch {
    return "chromium is not installed";
  }
}

type Json = Record<string, unknown>;

/** One page of the browser. */
export class Page implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (answer: Json) => void>();
  readonly #session: string;
  readonly #said: string[];
  #id = 0;

  private constructor(
    child: Deno.ChildProcess,
    profile: string,
    socket: WebSocket,
    waiting: Map<number, (answer: Json) => void>,
    session: string,
    said: string[],
    id: number,
  ) {
    this.#child = child;
    this.#profile = profile;
    this.#socket = socket;
    this.#waiting = waiting;
    this.#session = session;
    this.#said = said;
    this.#id = id;
  }

  /** Starts the browser with one empty page. */
  static async open(): Promise<Page> {
    const profile = Deno.makeTempDirSync({ prefix: "chb-chromium-" });
    const child = new Deno.Command(PROGRAM, {
      args: [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--remote-debugging-port=0",
        `--user-data-dir=${profile}`,
        "about:blank",
      ],
      env: { HOME: profile, TMPDIR: profile, XDG_CONFIG_HOME: profile, XDG_CACHE_HOME: profile },
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    try {
      const address = await endpoint(profile);
      const socket = new WebSocket(address);
      await new Promise<void>((resolve, reject) => {
        socket.onopen = () => resolve();
        socket.onerror = () => reject(new Error(`Cannot reach the browser at ${address}`));
      });
      const waiting = new Map<number, (answer: Json) => void>();
      const said: string[] = [];
      socket.onmessage = (event) => {
        const message: Json = JSON.parse(event.data);
        if (typeof message["id"] === "number") {
          waiting.get(message["id"])?.(message);
          waiting.delete(message["id"]);
        } else if (
          ["Runtime.exceptionThrown", "Log.entryAdded", "Network.requestWillBeSent"].includes(
            String(message["method"]),
          )
        ) {
          said.push(event.data);
        }
      };
      const send = (id: number, method: string, params: Json) =>
        new Promise<Json>((resolve) => {
          waiting.set(id, resolve);
          socket.send(JSON.stringify({ id, method, params }));
        });
      const made = await send(1, "Target.createTarget", { url: "about:blank" });
      const { targetId } = made["result"] as { targetId: string };
      const bound = await send(2, "Target.attachToTarget", { targetId, flatten: true });
      const { sessionId } = bound["result"] as { sessionId: string };
      const page = new Page(child, profile, socket, waiting, sessionId, said, 2);
      for (const domain of ["Page", "Runtime", "Log", "Network"]) {
        await page.send(`${domain}.enable`);
      }
      await page.send("Performance.enable", { timeDomain: "threadTicks" });
      return page;
    } catch (error) {
      await end(child, profile);
      throw error;
    }
  }

  /** Faults, complaints of the console, and requests, as the protocol told them, since the last call. */
  said(): string[] {
    return this.#said.splice(0);
  }

  /** One call of the protocol. */
  async send(method: string, params: Json = {}): Promise<Json> {
    const id = ++this.#id;
    const answer = await new Promise<Json>((resolve) => {
      this.#waiting.set(id, resolve);
      this.#socket.send(JSON.stringify({ id, method, params, sessionId: this.#session }));
    });
    if (answer["error"] !== undefined) throw new Error(`${method}: ${JSON.stringify(answer)}`);
    return answer["result"] as Json;
  }

  /** What an expression gives in the page, as JSON; promises are waited for. */
  async value<T>(expression: string): Promise<T> {
    const result = await this.send("Runtime.evaluate", {
      expression,
      returnByValue: true,
      awaitPromise: true,
    });
    if (result["exceptionDetails"] !== undefined) {
      throw new Error(`${expression.slice(0, 100)}: ${JSON.stringify(result["exceptionDetails"])}`);
    }
    return (result["result"] as { value: T }).value;
  }

  /** Waits until an expression is true in the page. */
  async until(expression: string, ms = 60_000): Promise<void> {
    const end = performance.now() + ms;
    while (await this.value<boolean>(`Boolean(${expression})`) !== true) {
      if (performance.now() > end) throw new Error(`Waited ${ms} ms for ${expression}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Opens a file and waits until its table is drawn. */
  async show(file: string): Promise<void> {
    await this.send("Page.navigate", { url: `file://${file}` });
    await this.until(`location.protocol === "file:" && document.documentElement?.dataset.ready`);
  }

  /** Processor time of the page's own thread so far, milliseconds. */
  async busy(): Promise<number> {
    const { metrics } = await this.send("Performance.getMetrics") as {
      metrics: { name: string; value: number }[];
    };
    return 1000 * (metrics.find(({ name }) => name === "TaskDuration")?.value ?? NaN);
  }

  /** Presses one key. */
  async press(key: string, code: string = key, number = 0): Promise<void> {
    const text = key === "Enter" ? "\r" : key === " " ? " " : "";
    const common = { key, code, windowsVirtualKeyCode: number };
    await this.send("Input.dispatchKeyEvent", {
      type: text === "" ? "rawKeyDown" : "keyDown",
      ...common,
      ...(text === "" ? {} : { text }),
    });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...common });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#socket.onclose = resolve);
    this.#socket.close();
    await closed;
    await end(this.#child, this.#profile);
  }
}

async function endpoint(profile: string): Promise<string> {
  const file = join(profile, "DevToolsActivePort");
  for (let left = 3000; left > 0; left--) {
    try {
      const [port, path] = Deno.readTextFileSync(file).split("\n");
      if (port !== undefined && path !== undefined) return `ws://127.0.0.1:${port}${path}`;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("The browser has not opened its port in a minute");
}

async function end(child: Deno.ChildProcess, profile: string): Promise<void> {
  child.kill("SIGTERM");
  const late = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await child.status;
  clearTimeout(late);
  for (let left = 50;; left--) {
    // Its helpers may write their last for a moment.
    try {
      return Deno.removeSync(profile, { recursive: true });
    } catch (error) {
      if (left === 0) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
