/**
 * `chb mounts`: the lines that give a sandbox its three directories, and nothing else.
 *
 * Each directory is a mount of its own. Inside, none of them can then be renamed or replaced, which
 * is what the host's claims and publications rest on (P3).
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError, UsageError } from "../errors.ts";
import { isId } from "../names.ts";
import { look } from "../spool/look.ts";
import type { Command } from "./command.ts";

const ROLES = [
  { role: "queue", ro: false },
  { role: "results", ro: true },
  { role: "inbox", ro: true },
] as const;

const ENGINES = ["docker", "podman", "compose", "devcontainer", "bwrap"] as const;
type Engine = (typeof ENGINES)[number];

/** The lines for one engine. `selinux` adds `:z`, which shares a label with the host. */
export function mountLines(
  engine: Engine,
  root: string,
  agent: string,
  selinux: boolean,
): string[] {
  const source = (role: string) => `${root}/spool/${agent}/${role}`;
  switch (engine) {
    case "docker":
    case "podman": {
      const z = selinux ? ",z" : "";
      const lines = ROLES.map(({ role, ro }) =>
        `-v ${shellWord(source(role))}:/chb/${role}:${ro ? "ro" : "rw"}${z}`
      );
      return engine === "podman" ? ["--userns=keep-id", ...lines] : lines;
    }
    case "compose":
      return [
        "volumes:",
        ...ROLES.flatMap(({ role, ro }) => [
          "  - type: bind",
          `    source: ${JSON.stringify(source(role))}`,
          `    target: /chb/${role}`,
          ...(ro ? ["    read_only: true"] : []),
          ...(selinux ? ["    bind:", "      selinux: z"] : []),
        ]),
      ];
    case "devcontainer":
      return [
        '"mounts": [',
        ...ROLES.map(({ role, ro }, i) =>
          "  " + JSON.stringify(
            `type=bind,source=${source(role)},target=/chb/${role}${ro ? ",readonly" : ""}`,
          ) + (i < ROLES.length - 1 ? "," : "")
        ),
        "]",
      ];
    case "bwrap":
      return ROLES.map(({ role, ro }) =>
        `${ro ? "--ro-bind" : "--bind"} ${shellWord(source(role))} /chb/${role}`
      );
  }
}

function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export const mounts: Command = {
  name: "mounts",
  summary: "Print the mount lines for a sandbox",
  usage: `[--agent A] [--engine ${ENGINES.join("|")}] [--selinux]`,
  details: [
    "--agent A     the agent whose directories to mount (default main)",
    "--engine E    whose syntax (default docker)",
    "--selinux     add the shared label (z); never use Z, it takes the label from the host",
  ],
  example: "./bin/chb mounts --engine podman",
  flags: ["selinux"],
  options: ["agent", "engine"],
  json: true,
  run(args, io) {
    const agent = args.options["agent"] ?? "main";
    if (!isId(agent)) throw new UsageError("--agent takes 1 to 64 of a-z 0-9 - _");
    const engine = args.options["engine"] ?? "docker";
    const known = ENGINES.find((e) => e === engine);
    if (known === undefined) throw new UsageError(`--engine takes one of ${ENGINES.join(", ")}`);
    const root = Deno.cwd();
    // An engine makes what is missing, as root, and the bridge would not start with it.
    if (ROLES.some(({ role }) => look(`spool/${agent}/${role}`)?.kind !== "directory")) {
      throw new ExitError(
        EXIT.config,
        look("spool")?.kind === "directory"
          ? `no spool/${agent} yet: say --agent with one that there is, or name it in bridge.jsonc, ` +
            "trust that, and serve it once"
          : "no bridge here: run it in the root that the init script made",
      );
    }
    if (args.json) {
      const mountsOut = ROLES.map(({ role, ro }) => ({
        source: `${root}/spool/${agent}/${role}`,
        target: `/chb/${role}`,
        read_only: ro,
      }));
      io.out(JSON.stringify({ agent, mounts: mountsOut }) + "\n");
    } else {
      io.out(mountLines(known, root, agent, args.flags["selinux"] === true).join("\n") + "\n");
    }
    return 0;
  },
};
