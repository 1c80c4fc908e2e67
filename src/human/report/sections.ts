/**
 * The page's sections, each from the facts to HTML. The page is whole without its program but for
 * the table of requests.
 *
 * @module
 */
import { STAGES } from "../../gates/stages.ts";
import { amountText } from "../../policy/amount.ts";
import { isoTime } from "../../result.ts";
import { rangeBar, shareBar, timeline, timelineSvg } from "./charts.ts";
import { CUT, groupOf, GROUPS, quantile } from "./digest.ts";
import { durationText } from "./duration_text.ts";
import { LISTED, type ReportFacts, SPEND_LISTED } from "./facts.ts";
import { Html, html } from "./html.ts";

/** Something that a person has to know first, and what to do about it. */
export interface Concern {
  readonly what: string;
  readonly why: string;
  readonly next: string;
}

/** A whole number with its thousands apart. */
export function whole(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

function minute(ms: number): string {
  return isoTime(ms).slice(0, 16).replace("T", " ");
}

/** The same, never broken over two lines. */
function moment(ms: number): Html {
  return html`<time datetime="${isoTime(ms)}">${minute(ms)}</time>`;
}

function words(end: string): string {
  return end.replaceAll("_", " ");
}

function things(n: number, one: string, many = `${one}s`): string {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

/** What is wrong or waits, the worst first. */
export function concerns(facts: ReportFacts): Concern[] {
  const { chain, open } = facts;
  const list: Concern[] = [];
  const say = (what: string, why: string, next: string) => void list.push({ what, why, next });
  if (chain !== null && !chain.ok) {
    say(
      `The audit chain does not hold at record ${chain.seq}`,
      `What is found there: ${chain.problem}.`,
      "./bin/chb audit verify",
    );
  }
  for (const { name, why } of facts.switches) {
    say(
      name === "KILL" ? "The kill switch is up" : `The kill switch of ${name.slice(5)} is up`,
      `Nothing ${name === "KILL" ? "" : "of this agent "}starts${why === "" ? "" : `: ${why}`}.`,
      `./bin/chb resume${name === "KILL" ? "" : ` --agent ${name.slice(5)}`}`,
    );
  }
  if (open.uncertain > 0) {
    say(
      `${things(open.uncertain, "request")} may or may not have happened`,
      "Look at what they were to do, then say what became of them.",
      "./bin/chb history --outcome uncertain, then ./bin/chb resolve AGENT/ID --as done, failed or retry",
    );
  }
  if (facts.trust === null) {
    say("No policy is trusted", "The bridge answers nothing but its own verbs.", "./bin/chb trust");
  }
  if (open.approvals > 0) {
    say(
      `${things(open.approvals, "request waits", "requests wait")} for your word`,
      "They start, or do not, when you say so.",
      "./bin/chb pending",
    );
  }
  const today = Math.floor(facts.made_ms / 86_400_000);
  for (const { agent, day, blocked } of facts.spend_days) {
    if (!blocked || day !== today) continue;
    say(
      `${agent} spends nothing more today`,
      "A run took more than it was granted.",
      "./bin/chb history",
    );
  }
  if (!facts.serving) {
    say("No daemon serves", "Requests stay in the queue until one does.", "./bin/chb serve");
  }
  if (facts.edited && facts.trust !== null) {
    say("The policy was edited", "What was trusted before is still in force.", "./bin/chb trust");
  }
  return list;
}

/** The first screen: is anything wrong, and what happened. */
export function opening(facts: ReportFacts): Html {
  const list = concerns(facts);
  const { digest } = facts;
  const title = list.length === 0
    ? "Nothing needs you"
    : `${list.length === 1 ? "One thing needs" : `${list.length} things need`} you`;
  let [first, last] = [Infinity, -Infinity];
  for (const t of digest.times) {
    first = Math.min(first, t);
    last = Math.max(last, t);
  }
  const span = digest.entries === 0
    ? "Nothing was asked for in this time."
    : html`From ${moment(first)} to ${moment(last)}.`;
  const items = list.map(({ what, why, next }) =>
    html`<li><strong>${what}.</strong> ${why} <code>${next}</code></li>`
  );
  const numbers = GROUPS.map((group) => {
    const n = sum(digest.ends, (end) => groupOf(end) === group);
    const share = digest.entries === 0 ? "" : percent(n / digest.entries);
    return html`
      <div>
        <dt><span class="key ${group}"></span>${group}</dt>
        <dd>${whole(n)}<small>${share}</small></dd>
      </div>
    `;
  });
  return html`<header>
<p class="over">chb report</p>
<h1>${title}</h1>
${list.length === 0 ? "" : html`<ul class="concerns">${items}</ul>`}
<p>${extent(facts)} ${span} All times are UTC.</p>
<dl class="numbers"><div><dt>entries</dt><dd>${whole(digest.entries)}</dd></div>${numbers}</dl>
</header>`;
}

/** What of the ledger the page has, in words. */
export function extent(facts: ReportFacts): string {
  const { digest, in_time, in_ledger, since_ms } = facts;
  const told = `${things(digest.requests, "request")} and ${things(digest.refusals, "refusal")}`;
  const there = in_time.requests + in_time.refusals;
  const cut = Math.max(0, there - digest.entries);
  const older = in_ledger.requests + in_ledger.refusals - there;
  const parts = [
    cut > 0
      ? `This page has the newest ${told}; ${
        things(cut, "older entry is", "older entries are")
      } left out, chb report --limit N takes more.`
      : `This page has ${told}: all that the ledger has${
        since_ms === null ? "" : ` since ${minute(since_ms)}`
      }.`,
  ];
  if (older > 0) {
    parts.push(
      `${
        things(older, "entry is", "entries are")
      } from before that, chb report without --since has them.`,
    );
  }
  if (facts.floor > 0) {
    parts.push(
      `Refusals up to record ${
        whole(facts.floor)
      } have left the ledger, and are in rotated segments of the audit log alone.`,
    );
  }
  return parts.join(" ");
}

/** When things happened. */
export function timelineSection({ digest }: ReportFacts): Html {
  const time = timeline(digest.times, digest.groups);
  const label = `Entries in each ${time.step}, at most ${whole(time.most)}; ` +
    "the same as a table below";
  const first = time.buckets[0];
  const last = time.buckets.at(-1);
  const rows = time.buckets.filter((b) => b.total > 0).map((b) =>
    html`<tr><th scope="row">${moment(b.from_ms)}</th>${
      b.counts.map((n) => html`<td class="n">${n}</td>`)
    }</tr>`
  );
  if (first === undefined || last === undefined) return section("timeline", "Timeline", nothing());
  return section(
    "timeline",
    "Timeline",
    html`
      <p class="note">Each bar is ${time.step}; the highest stands for ${things(
        time.most,
        "entry",
        "entries",
      )}.</p>
      <figure>${timelineSvg(time, label)}<figcaption class="axis"><span>${minute(
        first.from_ms,
      )}</span><span>${minute(last.from_ms + time.step_ms)}</span></figcaption></figure>
      <p class="legend">${GROUPS.map((g) =>
        html`
          <span><span class="key ${g}"></span>${g}</span>
        `
      )}</p>
      <details>
        <summary>The timeline as a table</summary>
        <div class="wide" role="region" aria-label="Timeline as a table" tabindex="0">
          <table>
            <thead>
              <tr><th scope="col">from</th>${GROUPS.map((g) =>
                html`<th scope="col" class="n">${g}</th>`
              )}</tr>
            </thead>
            <tbody>${rows}</tbody>
          </table>
        </div>
      </details>
    `,
  );
}

/** How they ended. */
export function outcomeSection({ digest }: ReportFacts): Html {
  const rows = [...digest.ends].sort((a, b) => b[1] - a[1]).map(([end, n]) =>
    html`
      <tr>
        <th scope="row">${words(end)}</th>
        <td class="n">${whole(n)}</td>
        <td class="n quiet">${percent(n / digest.entries)}</td>
        <td class="draw">${shareBar(n / digest.entries, groupOf(end))}</td>
      </tr>
    `
  );
  return section(
    "outcomes",
    "Outcomes",
    rows.length === 0 ? nothing() : table(["outcome", "entries", "share", ""], rows),
  );
}

/** Where the bridge said no. */
export function refusalSection({ digest }: ReportFacts): Html {
  const all = sum(digest.stages, () => true);
  if (all === 0) return section("refusals", "Refusals by stage", nothing("Nothing was refused."));
  const order = [...STAGES as readonly string[], ...digest.stages.keys()];
  const most = Math.max(...digest.stages.values());
  const rows = [...new Set(order)].flatMap((stage) => {
    const n = digest.stages.get(stage);
    return n === undefined ? [] : [
      html`
        <tr>
          <th scope="row">${stage === "" ? "unknown" : stage}</th>
          <td class="n">${whole(n)}</td>
          <td class="draw">${shareBar(n / most, "refused")}</td>
        </tr>
      `,
    ];
  });
  const reasons = [...digest.reasons].sort((a, b) => b[1] - a[1]).slice(0, 6)
    .map(([reason, n]) => `${reason === "" ? "unknown" : reason} ${whole(n)}`).join(", ");
  return section(
    "refusals",
    "Refusals by stage",
    html`<p class="note">In the order in which the stages are asked. Reasons: ${reasons}.</p>${
      table(["stage", "refusals", ""], rows)
    }`,
  );
}

/** How long runs took. */
export function durationSection({ digest }: ReportFacts): Html {
  const verbs = [...digest.verbs].map(([name, verb]) => ({
    name,
    ...verb,
    took: verb.took.toSorted((a, b) => a - b),
  })).sort((a, b) => b.runs - a.runs);
  if (verbs.length === 0) return section("durations", "Durations by verb", nothing("Nothing ran."));
  const most = Math.max(1, ...verbs.map((v) => v.took.at(-1) ?? 0));
  const rows = verbs.map(({ name, runs, failed, took }) => {
    const [middle, high] = [quantile(took, 0.5), quantile(took, 0.95)];
    const text = (ms: number | null | undefined) =>
      ms === null || ms === undefined ? "–" : durationText(ms);
    return html`
      <tr>
        <th scope="row"><code>${name}</code></th>
        <td class="n">${whole(runs)}</td>
        <td class="n">${failed === 0 ? "–" : `${whole(failed)}`}</td>
        <td class="n">${text(middle)}</td>
        <td class="n">${text(high)}</td>
        <td class="n">${text(took.at(-1))}</td>
        <td class="draw">${middle === null || high === null
          ? ""
          : rangeBar(middle, high, most)}</td>
      </tr>
    `;
  });
  return section(
    "durations",
    "Durations by verb",
    html`
      <p
        class="note">From start to end. The line goes from the median to the time that 95 of 100 stay below, on a logarithmic scale.</p>
      <div class="wide" role="region" aria-label="Durations by verb" tabindex="0">${table([
        "verb",
        "runs",
        "failed",
        "median",
        "95 of 100",
        "longest",
        "",
      ], rows)}</div>
    `,
  );
}

/** What people said. */
export function approvalSection(facts: ReportFacts): Html {
  const counts = facts.approval_counts;
  const all = sum(counts, () => true);
  if (all === 0) {
    return section("approvals", "Approvals", nothing("No request had to wait for a person."));
  }
  const names: readonly (readonly [string, number])[] = [
    ["approved", (counts.get("given") ?? 0) + (counts.get("used") ?? 0)],
    ["denied", counts.get("denied") ?? 0],
    ["lapsed", counts.get("lapsed") ?? 0],
    ["waiting", counts.get("waiting") ?? 0],
  ];
  const rows = facts.approvals.map((a) =>
    html`
      <tr>
        <td>${moment(a.since_ms)}</td>
        <td><code>${a.agent}/${a.id}</code> <span class="quiet">${a.verb}</span></td>
        <td>${a.state === "used" || a.state === "given"
          ? "approved"
          : a.state}${a.by === null || a.by === "" ? "" : html`
          <span class="quiet">by <bdi>${a.by}</bdi></span>
        `}</td>
      </tr>
    `
  );
  return section(
    "approvals",
    "Approvals",
    html`<p class="sentence">${names.map(([name, n]) => `${whole(n)} ${name}`).join(", ")}.</p>${
      listed(
        all,
        facts.approvals.length,
        html`<div class="wide" role="region" aria-label="Newest approvals" tabindex="0">${
          table(["asked", "request", "word"], rows)
        }</div>`,
      )
    }`,
  );
}

/** What was spent. */
export function spendSection(facts: ReportFacts): Html {
  const { spend_days, spend_verbs } = facts;
  if (spend_days.length === 0 && spend_verbs.length === 0) {
    const none = facts.since_ms === null ? "No verb spends anything." : "Nothing in this time.";
    return section("spend", "Spend", nothing(none));
  }
  const days = spend_days.map((d) =>
    html`
      <tr>
        <th scope="row">${isoTime(d.day * 86_400_000).slice(0, 10)}</th>
        <td>${d.agent}</td>
        <td class="n">${amountText(d.spent)}${d.blocked
          ? html`
            <strong>stopped</strong>
          `
          : ""}</td>
      </tr>
    `
  );
  const verbs = spend_verbs.map((v) =>
    html`
      <tr>
        <th scope="row"><code>${v.verb}</code></th>
        <td>${v.agent}</td>
        <td class="n">${whole(v.requests)}</td>
        <td class="n">${amountText(v.charged)}</td>
        <td class="n">${amountText(v.granted)}</td>
      </tr>
    `
  );
  const more = (n: number) =>
    n < SPEND_LISTED ? "" : html`<p class="note">Only the first ${SPEND_LISTED} are listed.</p>`;
  return section(
    "spend",
    "Spend",
    html`${table(["verb", "agent", "requests", "charged", "held"], verbs)}${more(verbs.length)}
<details><summary>By day, the newest ${spend_days.length}</summary>${
      table(["day", "agent", "spent"], days)
    }${more(days.length)}</details>`,
  );
}

/** Whether the record of all this can be believed. */
export function chainSection({ chain, events }: ReportFacts): Html {
  const replays = (events.get("replayed") ?? 0) + (events.get("joined") ?? 0);
  const other = `Also recorded: ${things(replays, "replay")}, ${
    things(events.get("answered") ?? 0, "call")
  } of built-in verbs, ${things(events.get("shed") ?? 0, "notice")} of entries shed in a flood.`;
  if (chain === null) {
    return section(
      "chain",
      "Audit chain",
      html`
        <p class="sentence">Not verified for this page: <code>./bin/chb audit verify</code></p>
        <p class="note">${other}</p>
      `,
    );
  }
  if (!chain.ok) {
    return section(
      "chain",
      "Audit chain",
      html`<p class="sentence"><strong>Not sound</strong> at record ${chain.seq}: ${chain.problem}${
        chain.where === undefined ? "" : `, ${chain.where}`
      }.</p>`,
    );
  }
  if (chain.head === null) {
    return section("chain", "Audit chain", nothing("There are no records yet."));
  }
  return section(
    "chain",
    "Audit chain",
    html`
      <p class="sentence">Sound, records ${whole(chain.first ?? 1)} to ${whole(chain.head.seq)}.</p>
      <p class="note">Head, to be noted where this host cannot write:</p>
      <p><code class="hash">${chain.head.seq} ${chain.head.hash}</code></p>
      <p class="note">${things(chain.segments, "rotated segment")}. ${things(
        chain.rows,
        "result names",
        "results name",
      )} a record of it. ${other}</p>
    `,
  );
}

/** What people and the daemon did. */
export function deedSection(facts: ReportFacts): Html {
  if (facts.deeds.length === 0) return section("deeds", "What people did", nothing());
  const rows = facts.deeds.map((d) =>
    html`
      <tr>
        <td>${moment(Date.parse(d.at))}</td>
        <th scope="row">${d.event.replaceAll("-", " ")}</th>
        <td><bdi>${d.facts.join(", ").slice(0, 160)}</bdi>${d.who === "" ? "" : html`
          <span class="quiet">by <bdi>${d.who.slice(0, 80)}</bdi></span>
        `}</td>
      </tr>
    `
  );
  return section(
    "deeds",
    "What people did",
    listed(
      facts.deed_count,
      rows.length,
      html`<div class="wide" role="region" aria-label="What people did" tabindex="0">${
        table(["when", "what", ""], rows)
      }</div>`,
    ),
  );
}

/** The frame of the table; the page's program fills it. */
export function tableSection({ digest }: ReportFacts): Html {
  const cut = digest.cut === 0
    ? ""
    : `${things(digest.cut, "text is", "texts are")} cut to ${CUT} ` +
      "characters here; chb show AGENT/ID prints all of one. ";
  const options = (list: Iterable<string>) =>
    [...list].sort().map((v) => html`<option value="${v}">${words(v)}</option>`);
  return html`
    <section id="requests" aria-labelledby="h-requests">
      <h2 id="h-requests" tabindex="-1">Requests</h2>
      <p
        class="note">${cut}What an agent wrote is shown as it is, with what cannot be seen as \\u and four digits.</p>
      <noscript><p><strong>This table needs the page's own program.</strong> <code>./bin/chb history</code> prints the same.</p></noscript>
      <p
        id="loading">The table is being drawn. If this stays, the file is not whole, or its program may not run.</p>
      <form id="find" role="search" hidden>
        <label>Search <input type="search" id="q" autocomplete="off" spellcheck="false"></label>
        <label>Agent <select id="agent"><option value="">all</option>${options(
          digest.agents.keys(),
        )}</select></label>
        <label>Outcome <select id="end"><option value="">all</option>${options(
          digest.ends.keys(),
        )}</select></label>
        <p id="count" role="status"></p>
      </form>
      <div class="wide" role="region" aria-labelledby="h-requests" tabindex="0" id="scroll" hidden>
        <table id="list">
          <thead>
            <tr>
              <th scope="col" aria-sort="descending"
                data-sort="t"><button type="button">received</button></th>
              <th scope="col">request</th>
              <th scope="col">outcome</th>
              <th scope="col" class="n" data-sort="d"><button type="button">took</button></th>
            </tr>
          </thead>
          <tbody></tbody>
        </table>
      </div>
      <nav id="pages" aria-label="Pages of the table" hidden>
    <button type="button" data-go="first">First</button> <button type="button" data-go="before">Newer</button>
    <span id="page"></span>
    <button type="button" data-go="next">Older</button> <button type="button" data-go="last">Last</button>
      </nav>
    </section>
  `;
}

/** Where the page comes from. */
export function closing(facts: ReportFacts): Html {
  const trust = facts.trust === null
    ? "no trusted policy"
    : `policy ${facts.trust.policy.slice(0, 12)}, trusted ${minute(facts.trust.at_ms)}`;
  return html`
    <footer>
      <p>Made ${minute(facts.made_ms)} by chb ${facts.version} from the ledger of <code>${facts
        .root}</code>, ${trust}. This file loads nothing and sends nothing.</p>
    </footer>
  `;
}

function section(id: string, title: string, body: Html): Html {
  return html`
    <section id="${id}"
      aria-labelledby="h-${id}"><h2 id="h-${id}">${title}</h2>${body}</section>
  `;
}

/** Columns whose names say that numbers stand below them. */
const NUMBERS = new Set([
  "entries",
  "share",
  "refusals",
  "runs",
  "failed",
  "median",
  "95 of 100",
  "longest",
  "requests",
  "charged",
  "held",
  "spent",
]);

function table(head: readonly string[], rows: readonly Html[]): Html {
  const cells = head.map((name) =>
    name === "" ? html`<td></td>` : html`
      <th scope="col" ${NUMBERS.has(name) ? new Html(' class="n"') : ""}>${name}</th>
    `
  );
  return html`
    <table>
      <thead>
        <tr>${cells}</tr>
      </thead>
      <tbody>${rows}</tbody>
    </table>
  `;
}

function nothing(text = "Nothing in this time."): Html {
  return html`<p class="quiet">${text}</p>`;
}

function listed(all: number, there: number, body: Html): Html {
  if (there >= all) return body;
  return html`${body}<p class="note">The newest ${LISTED} of ${whole(all)}.</p>`;
}

function sum<K>(map: ReadonlyMap<K, number>, wanted: (key: K) => boolean): number {
  let n = 0;
  for (const [key, value] of map) if (wanted(key)) n += value;
  return n;
}

function percent(share: number): string {
  if (share === 0) return "0 %";
  return share < 0.001 ? "< 0.1 %" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}
