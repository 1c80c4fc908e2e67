/**
 * `chb init`: prints the script that makes a new bridge. The program itself cannot write its own
 * policy; a person reads the script and runs it.
 *
 * @module
 */
import { BUILD } from "#build";
import { STARTER_ARGV } from "../permissions.ts";
import { schemas } from "../policy/schema.ts";
import type { Command } from "./command.ts";
import { MANAGE_SCRIPT } from "./manage_script.ts";

/** The policy that a new bridge starts with: one agent, one harmless verb that works at once. */
export const STARTER_POLICY = `{
  // What the sandbox may ask of this host. After every edit:  ./bin/chb check && ./bin/chb trust
  "$schema": "./bridge.schema.json",
  "agents": {
    "main": { "verbs": ["date"], "scope": "observe" }
  },
  "verbs": {
    "date": {
      "description": "Tell the host's date and time in UTC.",
      "class": "observe",
      "argv": [${STARTER_ARGV.map((word) => JSON.stringify(word)).join(", ")}],
      "timeout_s": 10
    }
  },
  "limits": { "concurrency": 2 }
}
`;

/** What an agent finds in its inbox before the bridge was started for the first time. */
export const INBOX_README = `This is the inbox of a container-host bridge (chb).
The bridge has not been started yet: no request is answered until a human runs it on the host.
Once it runs, catalogue.json lists what you may ask for and status.json says whether it is up.
`;

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function heredoc(path: string, text: string): string {
  return [
    `if [ -e ${path} ]; then echo "kept ${path}"; else`,
    `cat > ${path} <<'CHB_END'`,
    text.trimEnd(),
    "CHB_END",
    "fi",
  ].join("\n");
}

/** The whole script. `executable` is what it installs as `bin/chb`. */
export function initScript(executable: string | null): string {
  const install = executable === null
    ? `[ -x bin/chb ] || { echo "chb init: bin/chb is missing: start from source once more" >&2; exit 78; }`
    : [
      `if [ -e bin/chb ]; then echo "kept bin/chb"; else`,
      `  cp ${
        quote(executable)
      } bin/.chb.new && chmod 0555 bin/.chb.new && mv bin/.chb.new bin/chb`,
      "fi",
    ].join("\n");
  return `#!/bin/sh
# Makes a bridge in the current directory. Read it, then run it there: sh init.sh
# It overwrites nothing. Written by chb ${BUILD.version}.
set -eu
umask 077

root=$(pwd -P)
dir=$root
while :; do
  if [ -e "$dir/.git" ]; then
    echo "chb init: $dir is a git repository; a bridge inside a tree that an agent edits is no" >&2
    echo "bridge. Make an empty directory elsewhere, such as ~/.local/share/chb/NAME" >&2
    exit 78
  fi
  [ "$dir" = / ] && break
  dir=$(dirname "$dir")
done
case $root in
  /tmp/*|/var/tmp/*|/dev/shm/*)
    if [ "\${CHB_INIT_ANYWHERE:-}" != 1 ]; then
      echo "chb init: $root is a temporary directory, and what lies there goes. Make an empty" >&2
      echo "directory elsewhere, such as ~/.local/share/chb/NAME; for a trial: CHB_INIT_ANYWHERE=1" >&2
      exit 78
    fi ;;
esac

chmod 0700 .
for d in bin base; do [ -d "$d" ] || mkdir -m 0755 "$d"; done
for d in keys state state/policies state/runs state/control state/audit work work/main \\
  work/main/claims work/main/staging work/main/quarantine; do
  [ -d "$d" ] || mkdir -m 0700 "$d"
done
for d in spool spool/main spool/main/results spool/main/inbox; do
  [ -d "$d" ] || mkdir -m 0755 "$d"
done
[ -d spool/main/queue ] || mkdir -m 0700 spool/main/queue

${install}

${heredoc("bridge.jsonc", STARTER_POLICY)}
${heredoc("bridge.schema.json", JSON.stringify(schemas().policy, null, 2))}
${heredoc("manage.sh", MANAGE_SCRIPT)}
${heredoc("spool/main/inbox/README", INBOX_README)}
chmod 0644 manage.sh bridge.jsonc bridge.schema.json spool/main/inbox/README

if command -v selinuxenabled >/dev/null 2>&1 && selinuxenabled; then
  chcon -R -t container_file_t spool work/main/staging || echo "chb init: chcon failed: a sandbox may not see the spool until its label is container_file_t" >&2
fi

cat <<CHB_END
A bridge is in $root. Next:
  cd $root
  ./bin/chb check          # is the policy valid?
  ./bin/chb trust          # read it and put it in force
  ./bin/chb serve          # serve requests (Ctrl-C ends it)
  ./bin/chb status         # from another terminal
  sh manage.sh install     # as a service
Mount lines for the sandbox:
CHB_END
./bin/chb mounts
`;
}

export const init: Command = {
  name: "init",
  summary: "Print the script that makes a new bridge here",
  usage: "",
  details: [
    "Run it in an empty directory that no sandbox mounts and no repository contains.",
    "The script installs this executable as bin/chb, makes the directories and a starter policy",
    "with one verb, and overwrites nothing.",
  ],
  example: "chb init > init.sh; less init.sh; sh init.sh",
  flags: [],
  options: [],
  json: false,
  run(_args, io) {
    io.out(initScript(BUILD.source ? null : Deno.execPath()));
    return 0;
  },
};
