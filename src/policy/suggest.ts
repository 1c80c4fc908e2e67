/**
 * Did-you-mean: the one candidate that a mistyped word most likely meant, or none. The work is
 * bounded whatever the word is, because requests reach it: long words get no suggestion, and a
 * comparison ends as soon as the distance is too large.
 *
 * @module
 */

/** Longer words than this are never compared: no name of ours is longer. */
const MAX_WORD = 128;

/** Typing errors forgiven: one for a short word, up to three for a long one. */
function tolerance(length: number): number {
  return Math.min(3, Math.max(1, Math.floor(length / 3)));
}

/** What people mix up without noticing counts as equal: case, and the two word separators. */
function fold(word: string): string {
  return word.toLowerCase().replaceAll("_", "-");
}

/**
 * Edits between two words (insert, delete, replace, swap of neighbours), or something above `limit`
 * when there are more. Only the cells near the diagonal are looked at: what is further from it than
 * `limit` has cost more than `limit` already.
 */
function distance(a: string, b: string, limit: number): number {
  const far = limit + 1;
  if (Math.abs(a.length - b.length) > limit) return far;
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => (j <= limit ? j : far));
  for (let i = 1; i <= a.length; i++) {
    const row: number[] = new Array(b.length + 1).fill(far);
    if (i <= limit) row[0] = i;
    let best = row[0] ?? far;
    for (let j = Math.max(1, i - limit); j <= Math.min(b.length, i + limit); j++) {
      const same = a[i - 1] === b[j - 1];
      let cost = Math.min(
        (previous[j] ?? far) + 1,
        (row[j - 1] ?? far) + 1,
        (previous[j - 1] ?? far) + (same ? 0 : 1),
      );
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, (before[j - 2] ?? far) + 1);
      }
      row[j] = cost;
      best = Math.min(best, cost);
    }
    // A swap reaches back two rows, so it takes two hopeless rows to end it.
    if (best > limit && Math.min(...previous) > limit) return far;
    before = previous;
    previous = row;
  }
  return previous[b.length] ?? far;
}

/**
 * The candidate nearest to `word`, or null when none is near enough.
 *
 * @param word what was found; may be hostile text of any length
 * @param candidates what would have been right; the first of equally near ones wins
 */
export function suggest(word: string, candidates: Iterable<string>): string | null {
  if (word === "" || word.length > MAX_WORD) return null;
  const folded = fold(word);
  let found: string | null = null;
  let limit = tolerance(word.length);
  for (const candidate of candidates) {
    if (candidate.length > MAX_WORD) continue;
    const edits = distance(folded, fold(candidate), limit);
    if (edits > limit) continue;
    // A word that has nothing of the candidate left is no typing error of it.
    if (edits >= Math.max(word.length, candidate.length)) continue;
    found = candidate;
    if (edits === 0) break;
    limit = edits - 1;
  }
  return found;
}

/** `Did you mean "x"? ` with a trailing space, or "" without a candidate: the head of a hint. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const found = suggest(word, candidates);
  return found === null ? "" : `Did you mean "${found}"? `;
}
