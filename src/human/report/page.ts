/**
 * The page of `chb report`, in pieces: one file that loads nothing, with its style, its program and
 * its data in it.
 *
 * @module
 */
import { groupOf } from "./digest.ts";
import type { ReportFacts } from "./facts.ts";
import { contentPolicy, pageJson } from "./html.ts";
import script from "./page.js" with { type: "text" };
import style from "./page.css" with { type: "text" };
import {
  approvalSection,
  chainSection,
  closing,
  concerns,
  deedSection,
  durationSection,
  opening,
  outcomeSection,
  refusalSection,
  spendSection,
  tableSection,
  timelineSection,
} from "./sections.ts";

/** Totals for the page's program, and for whoever holds the page against the ledger. */
function totals({ digest }: ReportFacts): unknown {
  return {
    entries: digest.entries,
    requests: digest.requests,
    refusals: digest.refusals,
    ends: Object.fromEntries(digest.ends),
    stages: Object.fromEntries(digest.stages),
    groups: Object.fromEntries([...digest.ends.keys()].map((end) => [end, groupOf(end)])),
  };
}

/** The page's text from its first line to its last. */
export function* page(facts: ReportFacts): Generator<string> {
  const needs = concerns(facts).length;
  yield `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${contentPolicy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>chb report${needs === 0 ? "" : `: ${needs} to look at`}</title>
<style>${style}</style>
</head>
<body>
<a class="skip" href="#h-requests">Skip to the table of requests</a>
`;
  yield opening(facts).text;
  yield "<main>\n";
  const sections = [
    timelineSection,
    outcomeSection,
    refusalSection,
    durationSection,
    approvalSection,
    spendSection,
    chainSection,
    deedSection,
    tableSection,
  ];
  for (const section of sections) yield section(facts).text;
  yield "</main>\n" + closing(facts).text;
  yield `\n<script type="application/json" id="totals">${pageJson(totals(facts))}</script>\n`;
  for (const block of facts.digest.blocks) {
    yield `<script type="application/json" class="rows">${block}</script>\n`;
  }
  yield `<script>${script}</script>\n</body>\n</html>\n`;
}
