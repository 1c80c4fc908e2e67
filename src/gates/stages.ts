/**
 * The names of the stages, in their order. A refusal records the name of the stage that said no.
 *
 * @module
 */

export const STAGES = [
  "claim",
  "kill",
  "object",
  "name",
  "read",
  "parse",
  "schema",
  "auth",
  "fresh",
  "replay",
  "denial",
  "allow",
  "args",
  "scope",
  "spend",
  "rate",
  "base",
  "approval",
  "slot",
  "recheck",
  "start",
] as const;

export type StageName = (typeof STAGES)[number];
