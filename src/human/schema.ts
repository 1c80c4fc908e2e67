/**
 * `chb schema`: the JSON Schemas of everything that the bridge reads and writes.
 *
 * @module
 */
import { UsageError } from "../errors.ts";
import { schemas } from "../policy/schema.ts";
import type { Command } from "./command.ts";

export const schema: Command = {
  name: "schema",
  summary: "Print the JSON Schema of a format",
  usage: "[policy|request|envelope|result|status|catalogue|message|audit-record]",
  details: ["Without a name it prints all of them as one object."],
  example: "./bin/chb schema policy > bridge.schema.json",
  flags: [],
  options: [],
  json: false,
  words: 1,
  run(args, io) {
    const all: Readonly<Record<string, object>> = schemas();
    const [name] = args.positional;
    if (name === undefined) {
      io.out(JSON.stringify(all, null, 2) + "\n");
      return 0;
    }
    const one = Object.hasOwn(all, name) ? all[name] : undefined;
    if (one === undefined) {
      throw new UsageError(`No schema "${name}": there are ${Object.keys(all).join(", ")}`);
    }
    io.out(JSON.stringify(one, null, 2) + "\n");
    return 0;
  },
};
