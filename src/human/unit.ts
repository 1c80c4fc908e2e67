/**
 * `chb unit`: prints the service unit for this root. The program cannot install it; a person reads it
 * and redirects it to where the service manager looks.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { UsageError } from "../errors.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import { printPolicyErrors, readPolicyText } from "./check.ts";
import type { Command } from "./command.ts";
import { launchdPlist } from "./launchd_plist.ts";
import { type Profile, unitFacts } from "./unit_facts.ts";
import { unitFiles } from "./unit_text.ts";

const PROFILES: readonly Profile[] = ["strict", "containers"];
const PARTS = ["service", "path", "timer"] as const;

export const unit: Command = {
  name: "unit",
  summary: "Print the service unit for this bridge",
  usage: "[-] [--user] [--once [--part P]] [--profile P] [--name N] [--launchd]",
  details: [
    "Made from ./bridge.jsonc, or a policy on standard input for -, and from bin/chb.",
    "--user         for the service manager of a user, who owns the root",
    "--once         a service that handles what is there and leaves, and what starts it",
    `--part P       with --once: only its ${PARTS.join(", ")}`,
    `--profile P    ${
      PROFILES.join(" or ")
    }; without it, containers when a verb talks to an engine`,
    "--name N       name of the unit (default: chb- and the name of the root)",
    "--launchd      a property list for macOS",
  ],
  example: "./bin/chb unit > /etc/systemd/system/chb-app.service",
  flags: ["user", "once", "launchd"],
  options: ["profile", "part", "name"],
  json: true,
  words: 1,
  run(args, io) {
    const given = args.options["profile"];
    const chosen = PROFILES.find((known) => known === given);
    if (given !== undefined && chosen === undefined) {
      throw new UsageError(`--profile takes one of ${PROFILES.join(", ")}`);
    }
    const part = args.options["part"];
    const once = args.flags["once"] === true;
    if (part !== undefined && (!once || !PARTS.some((known) => known === part))) {
      throw new UsageError(`--part takes one of ${PARTS.join(", ")}, with --once`);
    }
    const name = args.options["name"];
    if (name !== undefined && !/^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$/.test(name)) {
      throw new UsageError("--name takes letters, digits, - and _");
    }
    const parsed = parsePolicy(readPolicyText(args.positional[0], io));
    if (!parsed.ok) {
      printPolicyErrors(parsed, io);
      return EXIT.config;
    }
    const facts = unitFacts(parsed.policy, name);
    if (args.flags["launchd"] === true) {
      if (once || args.flags["user"] === true || given !== undefined) {
        throw new UsageError("--launchd takes no other choice than --name");
      }
      io.out(launchdPlist(facts));
      return EXIT.ok;
    }
    const profile = chosen ?? (facts.engines.length > 0 ? "containers" : "strict");
    const files = unitFiles(facts, { profile, user: args.flags["user"] === true, once })
      .filter((file) => part === undefined || file.name.endsWith(`.${part}`));
    if (args.json) {
      io.out(JSON.stringify({ profile, files }) + "\n");
      return EXIT.ok;
    }
    io.out(
      files.map((file) => files.length > 1 ? `# ${file.name}\n${file.text}` : file.text).join("\n"),
    );
    if (profile === "strict" && facts.engines.length > 0) {
      io.err(
        `chb unit: under the strict profile ${facts.engines.join(", ")} may not reach the engine\n`,
      );
    }
    return EXIT.ok;
  },
};
