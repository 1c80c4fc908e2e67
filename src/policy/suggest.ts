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
 * Edits between two words (insert, delete, replace, swap of neighbours), or `limit + 1` as soon as
 * it is certain that there are more than `limit`.
 */
function distance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    let best = i;
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let cost = Math.min(
        (previous[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (previous[j - 1] ?? 0) + (same ? 0 : 1),
      );
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, (before[j - 2] ?? 0) + 1);
      }
      row.push(cost);
      best = Math.min(best, cost);
    }
    // A swap can reach back one row further, so a hopeless row alone does not end it.
    if (best > limit && Math.min(...previous) > limit) return limit + 1;
    before = previous;
    previous = row;
  }
  return previous[b.length] ?? limit + 1;
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
