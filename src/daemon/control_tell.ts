/**
 * Sends an agent a message of a person.
 *
 * @module
 */
import { isId } from "../names.ts";
import { type ControlCommand, once } from "./control_command.ts";
import { MESSAGE_BYTES, messageText, publishMessage } from "./messages.ts";
import { wordsFor } from "./trust_of.ts";

/** What `chb tell` hands over. */
export interface TellArgs {
  readonly agent: string;
  readonly text: string;
  readonly ask: boolean;
  /** Seconds within which an answer is taken, or null. */
  readonly within_s: number | null;
}

export const controlTell: ControlCommand<TellArgs> = {
  name: "tell",
  parse(v) {
    const { agent, text, ask, within_s } = v;
    if (!isId(agent) || typeof text !== "string" || text === "" || typeof ask !== "boolean") {
      return null;
    }
    if (new TextEncoder().encode(text).length > MESSAGE_BYTES) return null;
    if (within_s === null) return { agent, text, ask, within_s };
    if (typeof within_s !== "number" || !(within_s > 0 && within_s <= 31_536_000)) return null;
    return { agent, text, ask, within_s };
  },
  apply(context, args) {
    const now = context.now();
    const answer = once(context, (tx) => {
      const { n } = tx.tell({
        agent: args.agent,
        at_ms: now,
        sender: context.by === "" ? "a person on the host" : wordsFor(context, context.by),
        text: messageText(wordsFor(context, args.text)),
        ask: args.ask,
        reply_by_ms: args.within_s === null ? null : now + Math.round(args.within_s * 1000),
        run: null,
        name: null,
      });
      tx.append({
        event: "told",
        agent: args.agent,
        by: context.by,
        n,
        ask: args.ask,
        control: context.name,
      });
      return { ok: true, message: "told", data: { n, published: context.live !== null } };
    });
    const message = context.ledger.message(args.agent, Number(answer.data?.["n"]));
    // Without a daemon nobody holds the agent's directories; the next start publishes it.
    if (message !== null && context.live !== null) {
      try {
        publishMessage(message);
      } catch {
        return { ...answer, data: { ...answer.data, published: false } };
      }
      context.live.wake();
    }
    return answer;
  },
};
