/**
 * `check-mounts` in real sandboxes with right and wrong mounts. They are made with bubblewrap, which
 * mounts like an engine does and needs none; where it is missing, or this user may not make
 * namespaces, the tests say so.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { there } from "./helpers/bridge.ts";

const SHELL = ["/usr/bin/busybox", "/bin/busybox"].find(there);

/** Why there are no sandboxes here, or null. */
function why(): string | null {
  if (SHELL === undefined) return "busybox is missing";
  try {
    const { success, stderr } = new Deno.Command("bwrap", {
      args: ["--ro-bind", "/", "/", "--proc", "/proc", "true"],
      stdin: "null",
    }).outputSync();
    return success ? null : `bwrap: ${new TextDecoder().decode(stderr).trim()}`;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "bwrap is missing";
    throw error;
  }
}
const WHY = why();

interface Root {
  readonly path: string;
  readonly role: (name: string) => string;
}

function makeRoot(): Root & Disposable {
  const path = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb mounts-" }));
  for (
    const d of [
      "bin",
      "state",
      "work",
      "spool/main/queue",
      "spool/main/results",
      "spool/main/inbox",
    ]
  ) {
    Deno.mkdirSync(join(path, d), { recursive: true });
  }
  for (const f of ["bridge.jsonc", "bin/chb", "state/ledger.db"]) {
    Deno.writeTextFileSync(join(path, f), "");
  }
  return {
    path,
    role: (name) => join(path, "spool/main", name),
    [Symbol.dispose]: () => Deno.removeSync(path, { recursive: true }),
  };
}

/** Runs the check in a sandbox that sees these mounts and little else. */
async function check(
  mounts: readonly string[],
  more: readonly string[] = [],
): Promise<{ code: number; out: string; err: string }> {
  const shell = SHELL ?? "";
  const command = new Deno.Command("bwrap", {
    args: [
      ...["--unshare-all", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"],
      ...["--ro-bind", shell, "/bin/busybox", "--ro-bind-try", "/lib", "/lib"],
      ...["--ro-bind-try", "/lib64", "/lib64", "--ro-bind-try", "/usr/lib", "/usr/lib"],
      ...["--ro-bind", inRepository("agent", "check-mounts"), "/check-mounts"],
      ...["--setenv", "PATH", "/bin", "--dir", "/chb"],
      ...mounts,
      ...["--symlink", "busybox", "/bin/sed", "--symlink", "busybox", "/bin/mv"],
      ...["--symlink", "busybox", "/bin/rm", "--symlink", "busybox", "/bin/id"],
      ...more,
      ...["/bin/busybox", "sh", "/check-mounts"],
    ],
    stdin: "null",
  });
  const { code, stdout, stderr } = await command.output();
  const text = new TextDecoder();
  return { code, out: text.decode(stdout), err: text.decode(stderr) };
}

Deno.test({
  name: `check-mounts tells right mounts from wrong ones${
    WHY === null ? "" : ` (skipped: ${WHY})`
  }`,
  ignore: WHY !== null,
  async fn() {
    using root = makeRoot();
    const { role } = root;
    const queue = ["--bind", role("queue"), "/chb/queue"];
    const results = ["--ro-bind", role("results"), "/chb/results"];
    const inbox = ["--ro-bind", role("inbox"), "/chb/inbox"];

    const right = await check([...queue, ...results, ...inbox]);
    assertEquals(right, { code: 0, out: "mounts: ok\n", err: "" });

    // The kernel writes a space in a place as a number.
    const spaced = await check([
      ...["--dir", "/c 040", "--setenv", "CHB_DIR", "/c 040"],
      ...["--bind", role("queue"), "/c 040/queue"],
      ...["--ro-bind", role("results"), "/c 040/results"],
      ...["--ro-bind", role("inbox"), "/c 040/inbox"],
    ]);
    assertEquals(spaced, { code: 0, out: "mounts: ok\n", err: "" });

    const wrong: [string, string[], string][] = [
      [
        "one mount of all, writable",
        ["--bind", join(root.path, "spool/main"), "/chb"],
        "queue is no mount of its own, and can be renamed from here",
      ],
      [
        "results writable",
        [...queue, "--bind", role("results"), "/chb/results", ...inbox],
        "results can be written from here",
      ],
      [
        "inbox writable",
        [...queue, ...results, "--bind", role("inbox"), "/chb/inbox"],
        "inbox can be written from here",
      ],
      [
        "queue read-only",
        ["--ro-bind", role("queue"), "/chb/queue", ...results, ...inbox],
        "queue is mounted read-only",
      ],
      ["no inbox", [...queue, ...results], "/chb/inbox is not there"],
      [
        "a link for a mount",
        [...queue, ...results, "--symlink", "results", "/chb/inbox"],
        "/chb/inbox is not there",
      ],
      [
        "the whole root as well",
        ["--bind", root.path, "/chb", ...queue, ...results, ...inbox],
        "the bridge's own bridge.jsonc can be seen from here",
      ],
      ["the spool in its place in the root", [
        "--bind",
        root.path,
        "/r",
        "--symlink",
        "/r/spool/main",
        "/chb2",
        "--bind",
        role("queue"),
        "/r/spool/main/queue",
        "--ro-bind",
        role("results"),
        "/r/spool/main/results",
        "--ro-bind",
        role("inbox"),
        "/r/spool/main/inbox",
        "--setenv",
        "CHB_DIR",
        "/r/spool/main",
      ], "the bridge's own bridge.jsonc can be seen from here"],
    ];
    for (const [name, mounts, text] of wrong) {
      const said = await check(mounts);
      assertEquals([said.code, said.err], [1, ""], `${name}: ${said.out}${said.err}`);
      assertStringIncludes(said.out, `mounts: wrong: ${text}`, name);
      assertStringIncludes(said.out, "mend, on the host: ", name);
    }
    // It leaves nothing behind, and no directory under another name.
    for (const name of ["queue", "results", "inbox"]) {
      assertEquals([...Deno.readDirSync(role(name))], [], name);
    }
    assertEquals(
      [...Deno.readDirSync(join(root.path, "spool/main"))].map((e) => e.name).sort(),
      ["inbox", "queue", "results"],
    );
  },
});

Deno.test({
  name: `one mount is right where its owner is another user${
    WHY === null ? "" : ` (skipped: ${WHY})`
  }`,
  ignore: WHY !== null,
  async fn() {
    using root = makeRoot();
    // The sandbox's user owns the queue alone: in its namespace the rest belongs to nobody.
    Deno.chmodSync(join(root.path, "spool/main"), 0o555);
    try {
      const ids = ["--uid", "4000", "--gid", "4000"];
      const single = [
        "--ro-bind",
        join(root.path, "spool/main"),
        "/chb",
        "--bind",
        root.role("queue"),
        "/chb/queue",
        ...ids,
      ];
      const said = await check(single);
      assertEquals(said, { code: 0, out: "mounts: ok\n", err: "" });
    } finally {
      Deno.chmodSync(join(root.path, "spool/main"), 0o755);
    }
  },
});
