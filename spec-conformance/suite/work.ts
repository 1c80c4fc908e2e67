/**
 * The place of one started implementation: a directory with the host's programs and their witness,
 * the policy as it is handed over, and an empty root that is the implementation's own.
 *
 * ```
 * <work>/root/          empty at first
 * <work>/policy.json    the policy, with absolute paths of programs
 * <work>/host/          programs that verbs run, and victims that nothing may touch
 * <work>/witness        one line for each time that a program was run
 * ```
 *
 * @module
 */
import { join } from "node:path";
import { readJson, SUITE } from "./vector.ts";

/** A request that lies on the host, where no agent can write. It must never be carried out. */
const VICTIM = '{"verb":"mark","args":{"tag":"victim"}}\n';
/** A text that no agent may ever read. */
export const SECRET = "host-only-secret-5f1c8e";

/** What the witness must never be told. */
const HARM: readonly string[] = ["victim", "tampered"];

/** A policy, as far as the suite itself looks at it. */
export interface Policy {
  readonly agents: Readonly<Record<string, unknown>>;
  readonly verbs: Readonly<Record<string, { readonly argv: readonly string[] }>>;
}

export class Work {
  readonly directory: string;

  /** @param directory absolute; made, and the suite's own from here on */
  constructor(directory: string, policy: string) {
    this.directory = directory;
    for (const name of ["root", "host", "host/tree"]) {
      Deno.mkdirSync(join(directory, name), { recursive: true, mode: 0o755 });
    }
    Deno.chmodSync(this.root, 0o700);
    Deno.writeTextFileSync(this.witness, "");
    this.#writePrograms();
    this.heal();
    Deno.writeTextFileSync(this.policy, policyText(directory, policy));
  }

  get root(): string {
    return join(this.directory, "root");
  }

  get policy(): string {
    return join(this.directory, "policy.json");
  }

  get witness(): string {
    return join(this.directory, "witness");
  }

  host(name: string): string {
    return join(this.directory, "host", name);
  }

  spool(agent: string, ...parts: string[]): string {
    return join(this.root, "spool", agent, ...parts);
  }

  /** Undoes what an earlier vector left when it failed, so that it is not found again. */
  heal(): void {
    for (const name of ["KILL", "KILL.other"]) {
      try {
        Deno.removeSync(join(this.root, "state", name));
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
    }
    for (const name of ["victim.json", "tree/inner.json"]) this.#write(name, VICTIM);
    this.#write("secret.txt", `${SECRET}\n`);
    const lines = Deno.readTextFileSync(this.witness).split("\n");
    const sound = lines.filter((line) => !HARM.includes(line));
    if (sound.length < lines.length) Deno.writeTextFileSync(this.witness, sound.join("\n"));
  }

  #write(name: string, text: string): void {
    const path = this.host(name);
    Deno.writeTextFileSync(`${path}.new`, text);
    Deno.chmodSync(`${path}.new`, 0o644);
    Deno.renameSync(`${path}.new`, path);
  }

  #writePrograms(): void {
    for (const { name } of Deno.readDirSync(join(SUITE, "programs"))) {
      const text = Deno.readTextFileSync(join(SUITE, "programs", name));
      Deno.writeTextFileSync(this.host(name), text.replaceAll("@WITNESS@", this.witness));
      Deno.chmodSync(this.host(name), 0o755);
    }
  }

  /** Changes a program behind the implementation's back. */
  tamper(name: string): void {
    const text = `#!/bin/sh\necho tampered >>'${this.witness}'\n`;
    Deno.writeTextFileSync(`${this.host(name)}.new`, text);
    Deno.chmodSync(`${this.host(name)}.new`, 0o755);
    Deno.renameSync(`${this.host(name)}.new`, this.host(name));
  }

  /** How often each tag was told. */
  told(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const tag of Deno.readTextFileSync(this.witness).split("\n")) {
      if (tag !== "") counts.set(tag, (counts.get(tag) ?? 0) + 1);
    }
    return counts;
  }

  /** What happened on the host that never may. */
  harm(): string[] {
    const found: string[] = [];
    for (const tag of HARM) {
      if (this.told().has(tag)) found.push(`a program ran that must not: "${tag}"`);
    }
    for (const [name, text] of [["victim.json", VICTIM], ["tree/inner.json", VICTIM]] as const) {
      const path = this.host(name);
      const { mode, isFile } = Deno.lstatSync(path);
      if (!isFile || (mode ?? 0) % 0o1000 !== 0o644 || Deno.readTextFileSync(path) !== text) {
        found.push(`host/${name} was changed`);
      }
    }
    return found;
  }

  /** Removes everything, whatever modes it was left with. */
  remove(): void {
    new Deno.Command("chmod", { args: ["-R", "u+rwx", this.directory], stderr: "null" })
      .outputSync();
    Deno.removeSync(this.directory, { recursive: true });
  }
}

/** The policy of a name as it is handed over: programs with the absolute paths of a work directory. */
export function policyText(directory: string, name: string): string {
  const policy = readJson<Policy>("policies", `${name}.json`);
  const verbs = Object.entries(policy.verbs).map(([verb, value]) => {
    const [program = "", ...args] = value.argv;
    const rest = args.map((word) => word.replaceAll("@HOST@", join(directory, "host")));
    return [verb, { ...value, argv: [join(directory, "host", program), ...rest] }];
  });
  return JSON.stringify({ ...policy, verbs: Object.fromEntries(verbs) }, null, 2) + "\n";
}
