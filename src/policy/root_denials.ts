/**
 * What can only be judged when the absolute path of the root is known: nothing in a policy may
 * reach into the root except through `base/`, and nothing may hand out a directory that the root
 * lies in. The parser has no root, because daemon and shims parse the same bytes anywhere; `chb
 * check`, `chb trust` and the start of the daemon ask here.
 *
 * Rules that this file keeps:
 * 1. No program, working directory, argument, PATH part, path root or mount lies in the root
 *    outside `base/`: a command must not read or run what a spool can write, nor see keys, policy
 *    or ledger (X3, X9).
 * 2. No mount, path root or write grant contains the root: whoever gets the parent directory gets
 *    the root with it (P3, X9).
 *
 * @module
 */
import { mountedPaths } from "./container_denials.ts";
import { type Denial, type DenialRule, deniedProgram, isInside } from "./denials.ts";
import { slotOf } from "./argv_template.ts";
import { below } from "./json_path.ts";
import type { ArgSpec, ArgvElement, Policy, PolicyError, VerbPolicy } from "./policy.ts";

/**
 * Every denial of a policy that depends on where the root is. Pure.
 *
 * @param root absolute real path, without trailing slash
 */
export function deniedUnderRoot(policy: Policy, root: string): readonly PolicyError[] {
  if (!root.startsWith("/")) throw new RangeError(`Cannot judge a policy: root "${root}"`);
  const errors: PolicyError[] = [];
  const deny = (path: string, denial: Denial | null) => {
    if (denial !== null) errors.push({ path, ...denial });
  };
  for (const verb of policy.verbs.values()) {
    const path = below("verbs", verb.name);
    vector(verb.program, verb.argv, verb.args, below(path, "argv"), root, deny);
    if (verb.lookup !== null) {
      const at = below(below(path, "lookup"), "argv");
      vector(verb.lookup.program, verb.lookup.argv, verb.args, at, root, deny);
    }
    surroundings(verb, path, root, deny);
  }
  policy.notify?.forEach((text, index) => {
    const at = below("notify", index);
    deny(at, index === 0 ? deniedProgram(text, undefined, root) : reaches(text, root));
  });
  return errors;
}

type Deny = (path: string, denial: Denial | null) => void;

function vector(
  program: string,
  elements: readonly ArgvElement[],
  args: ReadonlyMap<string, ArgSpec>,
  path: string,
  root: string,
  deny: Deny,
): void {
  deny(below(path, 0), deniedProgram(program, undefined, root));
  const slots = elements.map((element) => slotOf(element, args));
  const mounts = mountedPaths(program, slots);
  slots.forEach((slot, index) => {
    const found = slot.texts.map((text) => reaches(text, root)).find((denial) => denial !== null) ??
      mounts.filter((mount) => mount.index === index)
        .map((mount) => contains(mount.path, root, "container-mount"))
        .find((denial) => denial !== null);
    deny(below(path, index + 1), found ?? null);
  });
}

function surroundings(verb: VerbPolicy, path: string, root: string, deny: Deny): void {
  deny(below(path, "cwd"), reaches(verb.cwd, root));
  for (const [name, value] of Object.entries(verb.env)) {
    deny(below(below(path, "env"), name), reaches(value, root));
  }
  for (const [name, spec] of verb.args) {
    if (spec.type !== "path" || !spec.agent_writable) continue;
    const at = below(below(below(path, "args"), name), "root");
    deny(at, reaches(spec.root, root) ?? contains(spec.root, root, "path-root"));
  }
  verb.needs.forEach((need, index) => {
    const at = below(below(path, "needs"), index);
    const written = need.startsWith("write:") ? need.slice("write:".length) : null;
    if (written === null) return;
    if (isInside(written, root)) {
      deny(at, {
        rule: "needs-write",
        message: "The command could write into the root",
        hint: "Let it write elsewhere",
      });
    } else {
      deny(at, contains(written, root, "needs-write"));
    }
  });
}

/** Rule 1, for every path that a text can mean: whole, after `=`, or between `:` and `,`. */
function reaches(text: string, root: string): Denial | null {
  for (const part of text.split(/[=:,]/)) {
    const path = part.replace(/\/+$/, "");
    if (path === "" || !isInside(path, root) || isInside(path, `${root}/base`)) continue;
    return {
      rule: "root-path",
      message: "A path in the root, outside base/",
      hint: "Keep the file in base/ and write base/…, or keep it outside the root",
    };
  }
  return null;
}

/** Rule 2. */
function contains(path: string, root: string, rule: DenialRule): Denial | null {
  if (!path.startsWith("/") || !isInside(root, path.replace(/\/+$/, "") || "/")) return null;
  return {
    rule,
    message: "The directory contains the root of the bridge",
    hint: "Name a directory that the root does not lie in",
  };
}
