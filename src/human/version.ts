/**
 * `chb version`: what this program is and what it speaks.
 *
 * @module
 */
import { BUILD } from "#build";
import { PROTOCOL } from "../request/request.ts";
import type { Command } from "./command.ts";

/** The documents that the requirements were read from. */
const REFERENCE = "Container-Host Bridge specification, overview of v0.1.0";

export const version: Command = {
  name: "version",
  summary: "Print version, protocol and how the program was built",
  usage: "",
  details: ["The requirement ids of this project are its own, not those of the specification."],
  example: "./bin/chb version --json",
  flags: [],
  options: [],
  json: true,
  run(args, io) {
    const facts = {
      version: BUILD.version,
      commit: BUILD.commit,
      std: BUILD.std,
      source: BUILD.source,
      protocol: PROTOCOL,
      deno: Deno.version.deno,
      reference: REFERENCE,
      requirement_ids: "own",
    };
    if (args.json) io.out(JSON.stringify(facts) + "\n");
    else {
      io.out(
        `chb ${facts.version} (${facts.commit}), protocol ${facts.protocol}, ` +
          `Deno ${facts.deno}, std ${facts.std}${facts.source ? ", from source" : ""}\n` +
          `Reference: ${facts.reference}; requirement ids are the project's own\n`,
      );
    }
    return 0;
  },
};
