/**
 * Messages to an agent: what is published of them in `inbox/messages/`, and what becomes of a reply.
 * A message informs or asks; nothing that an agent replies widens what it may do.
 *
 * 1. A message and its record are committed before it is published; at a start all that should be
 *    there is published again.
 * 2. A question is answered once. The same reply again is the same reply; another one is a conflict.
 * 3. A reply is data of the agent: it is stored, bounded, and handed to whoever asked, never run.
 *
 * @module
 */
import type { Refusal } from "../errors.ts";
import type { Ledger, Tx } from "../ledger/ledger.ts";
import type { Message } from "../ledger/messages.ts";
import { isoTime } from "../result.ts";
import { publish, removeMessage } from "../spool/publish.ts";
import { encodeDocument } from "./publisher.ts";

/** Messages of an agent that are published. */
export const MESSAGES_PUBLISHED = 200;

/** Longest message or reply, UTF-8 bytes. */
export const MESSAGE_BYTES = 4096;

/** A text as it may be shown: without controls but newline and tab, and within the bound. */
export function messageText(text: string): string {
  const plain = text.toWellFormed().replace(
    /(?![\n\t])[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu,
    " ",
  );
  const bytes = new TextEncoder().encode(plain);
  if (bytes.length <= MESSAGE_BYTES) return plain;
  // A character that is cut in two at the end is left out.
  return new TextDecoder().decode(bytes.subarray(0, MESSAGE_BYTES)).replace(/\ufffd+$/, "");
}

/** What an agent reads of a message. */
export function messageDocument(m: Message): unknown {
  return {
    chb: 1,
    n: m.n,
    at: isoTime(m.at_ms),
    from: m.sender,
    text: m.text,
    ask: m.ask,
    reply_by: m.reply_by_ms === null ? null : isoTime(m.reply_by_ms),
    replied: m.reply !== null,
  };
}

/**
 * Publishes one message, and takes back the one that is too old by it.
 *
 * @throws what `publish` throws
 */
export function publishMessage(m: Message): void {
  publish(m.agent, "messages", `${m.n}.json`, encodeDocument(messageDocument(m)));
  if (m.n > MESSAGES_PUBLISHED) removeMessage(m.agent, m.n - MESSAGES_PUBLISHED);
}

/** Publishes what a start finds. Throws what `publish` throws. */
export function publishMessages(ledger: Ledger, agent: string): void {
  for (const m of ledger.messages(agent, MESSAGES_PUBLISHED)) publishMessage(m);
}

/** What became of a reply: a refusal, or the message as it is now. */
export type Replied =
  | { readonly refusal: Refusal }
  | { readonly message: Message };

/** Takes the reply of a `bridge.reply`, whose arguments have been checked. */
export function takeReply(
  tx: Tx,
  ledger: Ledger,
  agent: string,
  args: Readonly<Record<string, unknown>>,
  now_ms: number,
  isRunning: (run: string) => boolean,
): Replied {
  const n = Number(args["n"]);
  const text = messageText(String(args["text"] ?? ""));
  const message = ledger.message(agent, n);
  if (message === null) {
    return {
      refusal: {
        stage: "args",
        reason: "bad-args",
        message: `There is no message ${n}`,
        hint: "Messages are in inbox/messages/, by number",
      },
    };
  }
  if (message.reply !== null) {
    if (message.reply === text) return { message };
    return {
      refusal: {
        stage: "replay",
        reason: "key-conflict",
        message: `Message ${n} has been answered, with another text`,
        hint: "The first reply counts; tell the person on the host if it was wrong",
      },
    };
  }
  const late = message.reply_by_ms !== null && now_ms > message.reply_by_ms;
  if (late || (message.run !== null && !isRunning(message.run))) {
    return {
      refusal: {
        stage: "fresh",
        reason: "expired",
        message: late
          ? `Message ${n} wanted an answer until ${isoTime(message.reply_by_ms ?? 0)}`
          : `The command that sent message ${n} has ended`,
        hint: "Nobody waits for it any more",
      },
    };
  }
  tx.reply(agent, n, text, now_ms);
  return { message: { ...message, reply: text, replied_ms: now_ms } };
}
