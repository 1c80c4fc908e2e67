/**
 * The mutants: each takes one check out of our program, or exchanges two of them. `find` is the place,
 * which has to be there exactly once; `vectors` are patterns of those that should notice.
 *
 * Checks that stand behind another one for the same entry have none by themselves, since nothing can
 * be seen when one of them goes:
 *
 * - the second look at a claimed file, when it is opened: only a race can tell it from the first;
 * - the base at the recheck, which the process that starts the command compares as well and answers
 *   in the same way: there is a mutant that takes both out;
 * - the move of a directory into quarantine: it has left the queue by the claim and is answered, and
 *   where the host keeps it no agent can see. `tests/spool_read_drain_test.ts` looks there.
 *
 * @module
 */

/** One place of one file. */
export interface Change {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** One check that is missing. */
export interface Mutant extends Change {
  readonly what: string;
  readonly vectors: readonly string[];
  /** Other places of the same check. */
  readonly also?: readonly Change[];
}

/** Every mutant. */
export const MUTANTS: readonly Mutant[] = [
  {
    file: "src/gates/entry.ts",
    what: "kill: the switch",
    find: `  if (up === null) return PASS;
  if (c.claim.id === null`,
    replace: `  if (up !== "") return PASS;
  if (c.claim.id === null`,
    also: [{
      file: "src/daemon/intake.ts",
      find: "      if (up !== null) decision =",
      replace: '      if (up === "") decision =',
    }],
    vectors: ["12/kill_switch"],
  },
  {
    file: "src/gates/entry.ts",
    what: "kill: what is no request goes on",
    find: ' || object(c, deps).kind === "refuse") return PASS;',
    replace: ") return PASS;",
    vectors: ["06/object_while_killed"],
  },
  {
    file: "src/gates/entry.ts",
    what: "kill: a bad name goes on",
    find: "if (c.claim.id === null || object",
    replace: "if (object",
    vectors: ["06/name_while_killed"],
  },
  {
    file: "src/gates/entry.ts",
    what: "object: type and links",
    find: "  if (detail !== null) {",
    replace: '  if (detail === "") {',
    vectors: ["09/directory_empty", "08/symlink_to_request"],
  },
  {
    file: "src/gates/entry.ts",
    what: "object: size",
    find: "if (look.size > deps.limits.request_bytes) {",
    replace: "if (look.size < 0) {",
    vectors: ["04/limit_size_plus_one"],
  },
  {
    file: "src/gates/entry.ts",
    what: "name",
    find: "  if (c.claim.id !== null) return PASS;",
    replace: '  if (c.claim.id !== "") return PASS;',
    vectors: ["04/name_no_extension"],
  },
  {
    file: "src/gates/text.ts",
    what: "parse: the limits are asked",
    find: `  if (!parsed.ok) return refuse("parse", "malformed", parsed.message, parsed.hint);
  c.value = parsed.value;`,
    replace:
      "  c.value = parsed.ok ? parsed.value : JSON.parse(new TextDecoder().decode(c.bytes));",
    vectors: ["04/limit_depth_plus_one"],
  },
  {
    file: "src/gates/text.ts",
    what: "parse: the policy's bound of a string",
    find: ": deps.limits.string_bytes,",
    replace: ": deps.limits.request_bytes,",
    vectors: ["04/limit_string_plus_one"],
  },
  {
    file: "src/gates/text.ts",
    what: "schema",
    find: `  if (!parsed.ok) return refuse("schema", "schema", parsed.message, parsed.hint);
  c.request = parsed.request;
  c.key = parsed.request.idempotency_key ?? id;`,
    replace: `  // deno-lint-ignore no-explicit-any
  c.request = (parsed.ok ? parsed.request : c.value) as any;
  c.key = id;`,
    vectors: ["04/shape_unknown_field"],
  },
  {
    file: "src/gates/text.ts",
    what: "auth: signatures are asked for",
    find: 'if (agent?.auth === "signed") return signature(c, deps);',
    replace: 'if (agent?.auth === "signed") return PASS;',
    vectors: ["07/signed_changed_payload"],
  },
  {
    file: "src/gates/known.ts",
    what: "fresh",
    find: "  if (c.now_ms <= expiresAt(c, deps)) return PASS;",
    replace: "  if (c.now_ms <= Infinity) return PASS;",
    vectors: ["04/age_limit"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: a bound id with another request",
    find: "if (!same || byId.key !== key) return",
    replace: "if (byId.key !== key) return",
    vectors: ["04/conflict_other_arguments"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: a bound id with another key",
    find: "if (!same || byId.key !== key) return",
    replace: "if (!same) return",
    vectors: ["04/conflict_other_key"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: a bound key with another request",
    find: '  if (!same) return conflict("idempotency_key", key, row);',
    replace: "",
    vectors: ["04/conflict_key_of_another"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: keys are looked up",
    find: "const row = byId ?? deps.rowByKey(agent, key);",
    replace: "const row = byId;",
    vectors: ["04/replay_under_another_id"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: ids are looked up",
    find: "const byId = deps.rowById(agent, id);",
    replace: "const byId = deps.rowById(agent, `${id}-`);",
    vectors: ["04/replay_same_request", "04/conflict_other_key"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: ids of a row are bounded",
    find: "if (deps.countIds(row.rid) >= MAX_IDS) {",
    replace: "if (deps.countIds(row.rid) >= Infinity) {",
    vectors: ["04/join_bounded"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: an old signature joins nothing",
    find: '  if (old.kind !== "pass") return old;',
    replace: "",
    vectors: ["07/signed_too_old_to_join"],
  },
  {
    file: "src/gates/known.ts",
    what: "replay: the scope is part of the digest",
    find: "    scope: request.scope ?? null,",
    replace: "    scope: null,",
    vectors: ["04/conflict_other_scope", "04/replay_same_request"],
  },
  {
    file: "src/gates/signed.ts",
    what: "stale signatures",
    find: "  if (Math.abs(off_ms) <= window_s * 1000) return PASS;",
    replace: "  if (Math.abs(off_ms) <= Infinity) return PASS;",
    vectors: ["07/signed_too_old"],
  },
  {
    file: "src/gates/signed.ts",
    what: "signed bytes of another name",
    find: "    if (carriedOut(c, deps)) return replayed();",
    replace: "",
    vectors: ["07/signed_bytes_under_another_name"],
  },
  {
    file: "src/gates/signed.ts",
    what: "algorithm of the key",
    find: "  if (key.alg !== envelope.alg) {",
    replace: '  if (key.alg === "") {',
    vectors: ["07/signed_other_algorithm"],
  },
  {
    file: "src/gates/signed.ts",
    what: "signature holds",
    find: "  if (!signatureHolds(key, bytes, envelope.sig)) {",
    replace: "  if (bytes === null) {",
    vectors: ["07/signed_zeros", "07/signed_changed_payload"],
  },
  {
    file: "src/gates/signed.ts",
    what: "key valid no more",
    find: "  if (when !== null) {",
    replace: '  if (when === "") {',
    vectors: ["07/signed_key_out_of_time"],
  },
  {
    file: "src/gates/signed.ts",
    what: "agent of the payload",
    find: "  if (request.agent !== agent) {",
    replace: '  if (request.agent === "") {',
    vectors: ["07/signed_other_agent"],
  },
  {
    file: "src/gates/signed.ts",
    what: "unsigned where signing is asked",
    find: `  if (envelope === undefined) {
    return unauthenticated(`,
    replace: `  if (envelope === undefined) {
    if (c.value !== undefined) return PASS;
    return unauthenticated(`,
    vectors: ["07/signed_missing"],
  },
  {
    file: "src/gates/signed.ts",
    what: "payload is strict JSON",
    find: `  if (!parsed.ok) {
    return refuse("parse", "malformed", \`In payload`,
    replace: `  if (parsed.ok === null) {
    return refuse("parse", "malformed", \`In payload`,
    vectors: ["07/signed_text_after_signature"],
  },
  {
    file: "src/daemon/key_store.ts",
    what: "keys are of one agent",
    find: " && key.agent === agent ? key",
    replace: " ? key",
    vectors: ["07/signed_key_of_another_agent"],
  },
  {
    file: "src/gates/permit.ts",
    what: "denial",
    find: "  if (rule === null) return PASS;",
    replace: '  if (rule !== "") return PASS;',
    vectors: ["05/denied_sudo"],
  },
  {
    file: "src/gates/permit.ts",
    what: "allow: the agent's own list",
    find: "allowed.includes(name) ? deps",
    replace: 'name !== "" ? deps',
    vectors: ["05/verb_of_nobody"],
  },
  {
    file: "src/gates/permit.ts",
    what: "allow: nothing is trusted yet",
    find: `  if (deps.policy === null) {
    return refuse(
      "base"`,
    replace: `  if (deps.policy === undefined) {
    return refuse(
      "base"`,
    vectors: ["11/never_trusted"],
  },
  {
    file: "src/gates/permit.ts",
    what: "args",
    find: '  if (!checked.ok) return refuse("args", "bad-args", checked.message, checked.hint);',
    replace: `  if (!checked.ok) {
    // deno-lint-ignore no-explicit-any
    c.args = request.args as any;
    c.digest = "0".repeat(64);
    return PASS;
  }`,
    vectors: ["05/args_name_semicolon"],
  },
  {
    file: "src/gates/permit.ts",
    what: "args of built-in verbs",
    find:
      '    return wrong === null ? PASS : refuse("args", "bad-args", wrong.message, wrong.hint);',
    replace: "    return PASS;",
    vectors: ["03/ping_takes_no_arguments"],
  },
  {
    file: "src/gates/permit.ts",
    what: "args: paths of the host",
    find: '  if (wrong !== null) return refuse("args", "bad-args", wrong.message, wrong.hint);',
    replace: "",
    vectors: ["05/file_in_base_missing"],
  },
  {
    file: "src/gates/permit.ts",
    what: "scope of the agent",
    find: "if (CLASSES.indexOf(need) > CLASSES.indexOf(agent)) {",
    replace: "if (CLASSES.indexOf(need) > 9) {",
    vectors: ["05/scope_above_the_agent"],
  },
  {
    file: "src/gates/permit.ts",
    what: "scope of the request",
    find: "if (CLASSES.indexOf(need) > CLASSES.indexOf(own)) {",
    replace: "if (CLASSES.indexOf(need) > 9) {",
    vectors: ["05/scope_narrowed"],
  },
  {
    file: "src/gates/load.ts",
    what: "rate",
    find: "    if (count >= rule.max) {",
    replace: "    if (count >= Infinity) {",
    vectors: ["10/rate"],
  },
  {
    file: "src/gates/load.ts",
    what: "backlog",
    find: "  if (waiting >= deps.limits.waiting) {",
    replace: "  if (waiting >= Infinity) {",
    vectors: ["15/slot_and_backlog"],
  },
  {
    file: "src/gates/load.ts",
    what: "base",
    find: "  if (changed === null) return PASS;",
    replace: '  if (changed !== "") return PASS;',
    vectors: ["11/changed_program"],
  },
  {
    file: "src/gates/load.ts",
    what: "plan",
    find: 'if (verb.approval === "when-planned" && !/[^\\s\\p{C}]/u.test(request.plan ?? "")) {',
    replace: 'if (verb.approval === "when-planned" && request.plan === "nothing") {',
    vectors: ["05/plan_missing"],
  },
  {
    file: "src/gates/load.ts",
    what: "approval",
    find: '  c.needs_approval = verb.approval !== "never";',
    replace: "  c.needs_approval = false;",
    vectors: ["05/approval_given"],
  },
  {
    file: "src/gates/spend.ts",
    what: "spend: nothing to spend",
    find: "  if (limits.spend === null) {",
    replace: "  if (limits.spend === undefined) {",
    vectors: ["05/spend_without_limit"],
  },
  {
    file: "src/gates/spend.ts",
    what: "spend: one request",
    find: "  if (cost > most) {",
    replace: "  if (cost > most + most + most) {",
    vectors: ["05/spend_above_one_request"],
  },
  {
    file: "src/gates/spend.ts",
    what: "spend: the request's own limit",
    find: "  if (own !== null && cost > own) {",
    replace: "  if (own !== null && cost > own + most) {",
    vectors: ["05/spend_above_the_own_limit"],
  },
  {
    file: "src/gates/spend.ts",
    what: "spend: the day",
    find: "  if (taken + amount <= most) return null;",
    replace: "  if (taken + amount >= 0n) return null;",
    vectors: ["05/spend_of_a_day"],
  },
  {
    file: "src/gates/spend.ts",
    what: "spend: a day that is over",
    find: "  if (day.blocked) {",
    replace: "  if (day.spent < 0n) {",
    vectors: ["05/spend_more_than_granted"],
  },
  {
    file: "src/gates/order.ts",
    what: "recheck: kill switch",
    find: '  if (up !== null) return killedRefusal("recheck", up);',
    replace: "",
    vectors: ["12/kill_while_waiting"],
  },
  {
    file: "src/gates/order.ts",
    what: "recheck: base, there and where it is started",
    find: "  if (changed === null) return null;",
    replace: '  if (changed !== "") return null;',
    also: [{
      file: "src/run/verify_order.ts",
      find: "    if (wrong !== null) return no(wrong);",
      replace: '    if (wrong === "") return no(wrong);',
    }],
    vectors: ["11/changed_while_waiting"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: name before object",
    find: `  { name: "object", check: object },
  { name: "name", check: name },
`,
    replace: `  { name: "name", check: name },
  { name: "object", check: object },
`,
    vectors: ["06/object_before_name", "06/directory_before_name"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: replay before fresh",
    find: `  { name: "fresh", check: fresh },
  { name: "replay", check: replay },
`,
    replace: `  { name: "replay", check: replay },
  { name: "fresh", check: fresh },
`,
    vectors: ["06/age_before_replay"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: denial before replay",
    find: `  { name: "replay", check: replay },
  { name: "denial", check: denial },
`,
    replace: `  { name: "denial", check: denial },
  { name: "replay", check: replay },
`,
    vectors: ["06/replay_before_denial"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: allow before denial",
    find: `  { name: "denial", check: denial },
  { name: "allow", check: allow },
`,
    replace: `  { name: "allow", check: allow },
  { name: "denial", check: denial },
`,
    vectors: ["06/denial_before_allow"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: spend before scope",
    find: `  { name: "scope", check: scope },
  { name: "spend", check: spend },
`,
    replace: `  { name: "spend", check: spend },
  { name: "scope", check: scope },
`,
    vectors: ["06/scope_before_spend"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: rate before spend",
    find: `  { name: "spend", check: spend },
  { name: "rate", check: rate },
`,
    replace: `  { name: "rate", check: rate },
  { name: "spend", check: spend },
`,
    vectors: ["10/order_spend_rate_base"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: base before rate",
    find: `  { name: "rate", check: rate },
  { name: "base", check: base },
`,
    replace: `  { name: "base", check: base },
  { name: "rate", check: rate },
`,
    vectors: ["10/order_spend_rate_base"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: scope before args",
    find: `  { name: "args", check: args },
  { name: "scope", check: scope },
`,
    replace: `  { name: "scope", check: scope },
  { name: "args", check: args },
`,
    vectors: ["06/args_before_scope"],
  },
  {
    file: "src/gates/order.ts",
    what: "order: payload before its signature",
    find: `  { name: "auth", check: auth },
`,
    replace: `  { name: "parse", check: payloadParse },
`,
    vectors: ["07/signed_hmac"],
  },
  {
    file: "src/request/strict_json.ts",
    what: "json: bytes that are no UTF-8",
    find: "{ fatal: true, ignoreBOM: true }",
    replace: "{ fatal: false, ignoreBOM: true }",
    vectors: ["04/text_not_utf8"],
  },
  {
    file: "src/request/strict_json.ts",
    what: "json: byte order mark",
    find: "{ fatal: true, ignoreBOM: true }",
    replace: "{ fatal: true, ignoreBOM: false }",
    vectors: ["04/text_bom"],
  },
  {
    file: "src/request/strict_json.ts",
    what: "json: numbers that no double holds",
    find: "if (!Number.isFinite(value)) {",
    replace: "if (Number.isNaN(value)) {",
    vectors: ["04/strict_huge_exponent"],
  },
  {
    file: "src/request/strict_json.ts",
    what: "json: whole numbers that are not exact",
    find: "} else if (Number.isInteger(value) && !Number.isSafeInteger(value)) {",
    replace: "} else if (Number.isNaN(value)) {",
    vectors: ["04/limit_integer"],
  },
  {
    file: "src/request/strict_json.ts",
    what: "json: a NUL in a string",
    find: '    if (value.includes("\\0")) {',
    replace: '    if (value.includes("\\0\\0\\0\\0")) {',
    vectors: ["04/strict_escaped_nul"],
  },
  {
    file: "src/request/strict_json.ts",
    what: "json: half a surrogate pair",
    find: "} else if (!value.isWellFormed()) {",
    replace: '} else if (value === "\\0") {',
    vectors: ["04/strict_lone_surrogate"],
  },
  {
    file: "src/request/scan_json.ts",
    what: "scan: depth",
    find: "if (stack.length >= limits.depth) return",
    replace: "if (stack.length >= 50_000) return",
    vectors: ["04/limit_depth_plus_one"],
  },
  {
    file: "src/request/scan_json.ts",
    what: "scan: a key twice",
    find: 'if (keys.has(name)) return { kind: "duplicate", offset: at };',
    replace: "",
    vectors: ["04/text_duplicate_verb"],
  },
  {
    file: "src/request/scan_json.ts",
    what: "scan: escapes of a key",
    find: "const name: string = JSON.parse(text.slice(at, stop));",
    replace: "const name: string = text.slice(at, stop);",
    vectors: ["04/text_duplicate_verb_escaped"],
  },
  {
    file: "src/request/scan_json.ts",
    what: "scan: number of keys",
    find: 'if (keys.size >= limits.keys) return { kind: "keys", offset: at };',
    replace: "",
    vectors: ["04/limit_keys_plus_one"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: an object",
    find: `  if (!isObject(value)) {
    return wrong("", \`The`,
    replace: `  if (value === "") {
    return wrong("", \`The`,
    vectors: ["04/shape_null"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: known fields",
    find: "    if (fields.has(name)) continue;",
    replace: '    if (name !== "") continue;',
    vectors: ["04/shape_unknown_field"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: a verb",
    find: '  if (!Object.hasOwn(value, "verb")) {',
    replace: '  if (Object.hasOwn(value, "")) {',
    vectors: ["04/shape_no_verb"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: fields of their type",
    find: "if (found === undefined || field.holds(found)) continue;",
    replace: 'if (name !== "") continue;',
    vectors: ["04/shape_args_list"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: a verb that is not empty",
    find: 'typeof value === "string" && value !== "")]',
    replace: 'typeof value === "string")]',
    vectors: ["04/shape_verb_empty"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: args",
    find: "holds: isObject }]",
    replace: "holds: () => true }]",
    vectors: ["04/shape_args_list"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: grammar of keys",
    find: 'starting with a letter or digit", isKey)]',
    replace: 'starting with a letter or digit", () => true)]',
    vectors: ["04/shape_key_upper_case"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: timeout",
    find: '["timeout_s", number("a number of seconds above 0", (value) => value > 0)]',
    replace: '["timeout_s", number("a number of seconds above 0", (value) => value > -9)]',
    vectors: ["04/shape_timeout_zero", "04/shape_timeout_negative"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: max_age",
    find: '["max_age_s", number("a number of seconds above 0", (value) => value > 0)]',
    replace: '["max_age_s", number("a number of seconds above 0", (value) => value > -9)]',
    vectors: ["04/shape_max_age_zero"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: scope",
    find: '.join(", ")}`, isClass)]',
    replace: '.join(", ")}`, () => true)]',
    vectors: ["04/shape_scope_unknown"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: max_spend",
    find: "(value) => value >= 0)]",
    replace: "() => true)]",
    vectors: ["04/shape_max_spend_negative"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: plan",
    find: '["plan", text(`a string of at most ${TEXT_BYTES} bytes`, isText)]',
    replace: '["plan", text(`a string of at most ${TEXT_BYTES} bytes`, () => true)]',
    vectors: ["04/shape_plan_number"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: note",
    find: '["note", text(`a string of at most ${TEXT_BYTES} bytes`, isText)]',
    replace: '["note", text(`a string of at most ${TEXT_BYTES} bytes`, () => true)]',
    vectors: ["04/shape_note_object"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: id of the file name",
    find: 'if (value["id"] !== undefined && value["id"] !== ctx.id) {',
    replace: 'if (value["id"] === "") {',
    vectors: ["04/shape_id_of_another"],
  },
  {
    file: "src/request/parse_request.ts",
    what: "request: what a signed one must have",
    find: "ctx.signed === true ? SIGNED_REQUIRED : []",
    replace: "ctx.signed === true ? [] : []",
    vectors: ["07/signed_without_time", "07/signed_without_id"],
  },
  {
    file: "src/request/envelope.ts",
    what: "envelope: fields",
    find: "  if (surplus !== undefined) {",
    replace: '  if (surplus === "") {',
    vectors: ["07/signed_field_beside"],
  },
  {
    file: "src/request/envelope.ts",
    what: "envelope: payload is a text",
    find: 'if (typeof payload !== "string" || payload === "") {',
    replace: 'if (payload === "") {',
    vectors: ["07/signed_payload_object"],
  },
  {
    file: "src/request/envelope.ts",
    what: "envelope: fields of auth",
    find: "if (unknown !== undefined) return wrong",
    replace: 'if (unknown === "") return wrong',
    vectors: ["07/signed_field_in_auth"],
  },
  {
    file: "src/request/envelope.ts",
    what: "envelope: algorithms",
    find: "if (!isAlgorithm(alg)) return",
    replace: 'if (alg === "") return',
    vectors: ["07/signed_none"],
  },
  {
    file: "src/request/envelope.ts",
    what: "envelope: shape of the signature",
    find: 'if (typeof sig !== "string" || !SIG.test(sig)) {',
    replace: 'if (sig === "") {',
    vectors: ["07/signed_short"],
  },
  {
    file: "src/names.ts",
    what: "names: length of an id",
    find: "const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;",
    replace: "const ID = /^[a-z0-9][a-z0-9_-]{0,127}$/;",
    vectors: ["04/name_too_long"],
  },
  {
    file: "src/names.ts",
    what: "names: first character of an id",
    find: "const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;",
    replace: "const ID = /^[a-z0-9_-]{1,64}$/;",
    vectors: ["04/name_dash_first", "04/name_underscore_first"],
  },
  {
    file: "src/names.ts",
    what: "names: case of an id",
    find: "const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;",
    replace: "const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/i;",
    vectors: ["04/name_upper_case"],
  },
  {
    file: "src/names.ts",
    what: "names: end of an id",
    find: "const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;",
    replace: "const ID = /^[a-z0-9][a-z0-9_-]{0,63}/;",
    vectors: ["04/name_dot_inside", "04/name_space"],
  },
  {
    file: "src/names.ts",
    what: "names: length of a key",
    find: "const KEY = /^[a-z0-9][a-z0-9_-]{0,127}$/;",
    replace: "const KEY = /^[a-z0-9][a-z0-9_-]{0,255}$/;",
    vectors: ["04/shape_key_too_long"],
  },
  {
    file: "src/names.ts",
    what: "names: hostile text is escaped",
    find: "out += unit >= 0x20 && unit < 0x7f && unit !== 0x5c",
    replace: "out += unit !== 0x5c",
    vectors: ["04/name_note_is_printable"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: unknown ones",
    find: "    if (verb.args.has(name)) continue;",
    replace: '    if (name !== "") continue;',
    vectors: ["05/args_unknown"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: missing ones",
    find: "      if (spec.default === undefined) {",
    replace: '      if (spec.default === "") {',
    vectors: ["05/args_missing"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: boolean",
    find: 'if (typeof value === "boolean") return { ok: true, value };',
    replace: "if (value !== undefined) return { ok: true, value: Boolean(value) };",
    vectors: ["05/args_boolean_text"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: integer is a number",
    find: '      if (typeof value !== "number") {',
    replace: '      if (typeof value === "object") {',
    vectors: ["05/args_integer_text"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: integer is whole",
    find: "      if (!Number.isSafeInteger(value)) {",
    replace: "      if (Number.isNaN(value)) {",
    vectors: ["05/args_integer_fraction"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: least integer",
    find: "if (value < spec.min || value > spec.max) {",
    replace: "if (value > spec.max) {",
    vectors: ["05/args_integer_low"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: greatest integer",
    find: "if (value < spec.min || value > spec.max) {",
    replace: "if (value < spec.min) {",
    vectors: ["05/args_integer_high"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: enum",
    find: "      if (spec.values.includes(value)) return { ok: true, value };",
    replace: '      if (value !== "") return { ok: true, value };',
    vectors: ["05/args_enum_other"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: strings only",
    find: `  if (typeof value !== "string") {
    return wrong(\`Wrong type: found \${kindOf(value)}, wanted a text\`, rightValue(spec));
  }
  if (value === "")`,
    replace: `  value = String(value);
  if (typeof value !== "string") {
    return wrong(\`Wrong type: found \${kindOf(value)}, wanted a text\`, rightValue(spec));
  }
  if (value === "")`,
    vectors: ["05/args_name_number", "05/args_name_list"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: length",
    find: "  if (bytes > spec.max_length) {",
    replace: "  if (bytes > 1_000_000) {",
    vectors: ["05/args_name_too_long"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: dash or at sign first",
    find: '    (first === "-" || first === "@") &&',
    replace: '    first === "" &&',
    vectors: ["05/args_text_dash_first", "05/args_name_dash_first"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: grammar of the type",
    find: "  if (!regexOf(spec).test(value)) {",
    replace: '  if (value === "") {',
    vectors: ["05/args_name_semicolon"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: long parts of a path",
    find: "utf8Length(part) > MAX_COMPONENT",
    replace: "utf8Length(part) > 100_000",
    vectors: ["05/file_long_part"],
  },
  {
    file: "src/policy/check_args.ts",
    what: "arguments: files that are there",
    find: '      if (found === "directory" || (found === "file" && i === parts.length)) continue;',
    replace: '      if (found !== "other") continue;',
    vectors: ["05/file_in_base_missing"],
  },
  {
    file: "src/policy/denials.ts",
    what: "denied verbs: bridge.*",
    find: 'plain.startsWith("bridge.")) return',
    replace: 'plain === "bridge") return',
    vectors: ["05/denied_bridge_nothing"],
  },
  {
    file: "src/policy/denials.ts",
    what: "denied verbs: names",
    find: "programIsOneOf(plain, VERB_NAMES) !== null ?",
    replace: 'plain === "" ?',
    vectors: ["05/denied_sudo"],
  },
  {
    file: "src/spool/object_check.ts",
    what: "object: a symlink",
    find: '      return notRegular("a symbolic link");',
    replace: "      return null;",
    vectors: ["08/symlink_to_request"],
  },
  {
    file: "src/spool/object_check.ts",
    what: "object: a directory",
    find: '      return notRegular("a directory");',
    replace: "      return null;",
    vectors: ["09/directory_empty"],
  },
  {
    file: "src/spool/object_check.ts",
    what: "object: pipes, sockets and devices",
    find: '      return notRegular(look.fifo === true ? "a named pipe" : "a socket or device");',
    replace: "      return null;",
    vectors: ["09/fifo", "09/socket"],
  },
  {
    file: "src/spool/object_check.ts",
    what: "object: more than one link",
    find: '      if (look.nlink !== 1) return notRegular("a file with more than one link");',
    replace: "",
    vectors: ["08/hardlink"],
  },
  {
    file: "src/spool/entry_name.ts",
    what: "names: temporary ones stay",
    find: 'return name !== ".json" && TEMPORARY.test(name);',
    replace: 'return name === "";',
    vectors: ["02/temporary_name_is_left"],
  },
  {
    file: "src/spool/entry_name.ts",
    what: "names: .json alone is no temporary one",
    find: 'return name !== ".json" && TEMPORARY',
    replace: "return TEMPORARY",
    vectors: ["04/name_no_stem"],
  },
  {
    file: "src/spool/settle.ts",
    what: "settle: a writer is waited for",
    find: "  closed: 30,\n  still: 250,\n  empty: 1000,\n  latest: 3000,",
    replace: "  closed: 0,\n  still: 0,\n  empty: 0,\n  latest: 0,",
    vectors: ["02/request_written_in_parts"],
  },
  {
    file: "src/spool/scan.ts",
    what: "scan: what no event told of is found",
    find: "        names.push(step.value.name);",
    replace: '        names.push("x");',
    vectors: ["02/waiting_since_before_the_start"],
  },
  {
    file: "src/spool/claim.ts",
    what: "claim: by rename",
    find: `    renameSync(from, path);
  } catch (error) {`,
    replace: `    Deno.copyFileSync(from, path);
    Deno.removeSync(from);
  } catch (error) {`,
    vectors: ["08/hardlink", "08/symlink_to_request"],
  },
  {
    file: "src/spool/publish.ts",
    what: "publish: by rename",
    find: `      renameSync(staged, path);
      return;`,
    replace: `      Deno.writeFileSync(path, Deno.readFileSync(staged));
      removeQuietly(staged);
      return;`,
    vectors: ["08/result_over_a_hard_link", "08/result_over_a_symlink"],
  },
  {
    file: "src/daemon/intake.ts",
    what: "answer: a bound id keeps its result",
    find: '${bound ? ".refused" : ""}',
    replace: "",
    vectors: ["04/conflict_other_arguments"],
  },
  {
    file: "src/daemon/intake.ts",
    what: "answer: time limits are only shortened",
    find: "const limit_s = Math.min(request.timeout_s ?? Infinity, verb.timeout_s);",
    replace: "const limit_s = request.timeout_s ?? verb.timeout_s;",
    vectors: ["13/timeout_not_lengthened"],
  },
  {
    file: "src/daemon/intake.ts",
    what: "answer: time limits are shortened",
    find: "const limit_s = Math.min(request.timeout_s ?? Infinity, verb.timeout_s);",
    replace: "const limit_s = verb.timeout_s;",
    vectors: ["13/timeout_shortened"],
  },
  {
    file: "src/daemon/slots.ts",
    what: "slots: locks",
    find: '      if (this.#locks.has(lock)) return "lock";',
    replace: "",
    vectors: ["15/lock"],
  },
  {
    file: "src/run/run_command.ts",
    what: "run: an environment of its own",
    find: "    clearEnv: true,",
    replace: "    clearEnv: false,",
    vectors: ["05/surroundings"],
  },
  {
    file: "src/run/run_command.ts",
    what: "run: a directory of its own",
    find: "    cwd: command.cwd,",
    replace: '    cwd: ".",',
    vectors: ["05/surroundings"],
  },
];
