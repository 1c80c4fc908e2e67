/**
 * The answers of the built-in verbs. They tell an agent what it may know anyway, and change nothing
 * but the agent's own requests.
 *
 * @module
 */
import { BUILD } from "#build";
import type { Refusal } from "../errors.ts";
import type { Tx } from "../ledger/ledger.ts";
import { PROTOCOL } from "../request/request.ts";
import { cancelRow } from "./cancel.ts";
import { catalogue } from "./catalogue.ts";
import type { Core } from "./core.ts";
import { publishMessage, takeReply } from "./messages.ts";
import { statusDocument } from "./status.ts";

/** One call of a built-in verb, whose arguments were checked, within a transaction. */
export interface BuiltinCall {
  readonly name: string;
  readonly agent: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly core: Core;
  readonly tx: Tx;
  /** Keeps an effect for after the commit. */
  after(effect: () => void): void;
  /** Keeps what takes back an effect on memory when the commit fails. */
  undo(step: () => void): void;
}

/** What a built-in verb says: its `answer`, or why not. */
export type BuiltinReply =
  | { readonly kind: "answer"; readonly answer: unknown }
  | { readonly kind: "refused"; readonly refusal: Refusal };

/** Answers a call. */
export function builtinReply(call: BuiltinCall): BuiltinReply {
  const { agent, core } = call;
  switch (call.name) {
    case "bridge.ping":
      return answer({ pong: true, protocol: PROTOCOL, version: BUILD.version });
    case "bridge.verbs":
      return answer({ verbs: catalogue(core.policy(), agent).verbs });
    case "bridge.status":
      return answer(statusDocument(core, agent, null));
    case "bridge.cancel":
      return cancel(call);
    case "bridge.reply":
      return reply(call);
    default:
      throw new RangeError("Cannot answer built-in verb: it is not served");
  }
}

function answer(value: unknown): BuiltinReply {
  return { kind: "answer", answer: value };
}

/** What a cancel did, in words. */
const CANCEL_WORDS = Object.freeze({
  cancelled: "It waited, and is not started any more",
  asked: "It runs and was asked to end; its own result says how it ended",
  over: "It was over already; nothing was changed",
  uncertain: "Nobody knows whether it happened; a human decides, and nothing was changed",
});

/** `bridge.cancel`: an agent names only what is its own, since ids and keys are looked up in it. */
function cancel({ agent, args, core, tx, after, undo }: BuiltinCall): BuiltinReply {
  const { id, idempotency_key: key } = args;
  const row = typeof id === "string"
    ? core.ledger.rowById(agent, id)
    : core.ledger.rowByKey(agent, String(key));
  if (row === null) {
    const what = typeof id === "string" ? `id "${id}"` : `idempotency_key "${String(key)}"`;
    return {
      kind: "refused",
      refusal: {
        stage: "args",
        reason: "bad-args",
        message: `No accepted request of yours has the ${what}`,
        hint: "A request that still lies in queue/ is withdrawn by removing its file",
      },
    };
  }
  const what = cancelRow(tx, row, { by: "agent", reason: null }, core.now());
  if (what === "cancelled") {
    const { rid, lock, expires_ms } = row;
    if (core.slots.forget(agent, rid)) {
      undo(() => core.slots.wait({ rid, agent, lock, expires_ms }));
    }
    after(() => {
      const now = core.ledger.row(rid);
      if (now !== null) core.publisher.row(now);
    });
  } else if (what === "asked") after(() => core.runs.askToEnd(row.rid));
  return answer({
    what,
    message: CANCEL_WORDS[what],
    id: row.id,
    state: what === "cancelled" ? "done" : row.state,
    outcome: what === "cancelled" ? "cancelled" : row.outcome,
  });
}

function reply({ agent, args, core, tx, after }: BuiltinCall): BuiltinReply {
  const replied = takeReply(
    tx,
    core.ledger,
    agent,
    args,
    core.now(),
    (run) => core.runs.active.get(run)?.finished === false,
  );
  if ("refusal" in replied) return { kind: "refused", refusal: replied.refusal };
  after(() => publishMessage(replied.message));
  return answer({ n: replied.message.n, replied: true });
}
