/**
 * Hands out what has the greatest rank first: a heap. Nothing is taken out of its middle: a place that
 * is not wanted any more is passed over when its turn comes, and given up when there are too many.
 *
 * @module
 */

/** Where something stands. */
export interface Place<T> {
  readonly value: T;
  readonly rank: number;
}

/** So many more places than are wanted may be kept before they are looked through. */
const SLACK = 64;

export class Newest<T> {
  /** None has a greater rank than the one at `(index - 1) >> 1`. */
  #places: Place<T>[] = [];
  readonly #isWanted: (place: Place<T>) => boolean;

  /** @param isWanted false, from some time on and for ever, for a place that was left */
  constructor(isWanted: (place: Place<T>) => boolean) {
    this.#isWanted = isWanted;
  }

  /** Places that are kept, those that were left included. */
  get size(): number {
    return this.#places.length;
  }

  /**
   * Adds a value.
   *
   * @param wanted how many places are wanted, at most: there are never more than twice as many
   */
  add(value: T, rank: number, wanted: number): Place<T> {
    const place = { value, rank };
    if (this.#places.length > 2 * wanted + SLACK) {
      // From the greatest to the least they are a heap.
      this.#places = this.#places.filter(this.#isWanted).sort((a, b) => b.rank - a.rank);
    }
    this.#places.push(place);
    this.#rise(this.#places.length - 1);
    return place;
  }

  /** Takes out the wanted value of the greatest rank; null when there is none. */
  pop(): T | null {
    for (;;) {
      const [first] = this.#places;
      const last = this.#places.pop();
      if (first === undefined || last === undefined) return null;
      if (this.#places.length > 0) {
        this.#places[0] = last;
        this.#sink();
      }
      if (this.#isWanted(first)) return first.value;
    }
  }

  #rise(index: number): void {
    const places = this.#places;
    let at = index;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const [place, parent] = [places[at], places[above]];
      if (place === undefined || parent === undefined || place.rank <= parent.rank) return;
      places[at] = parent;
      places[above] = place;
      at = above;
    }
  }

  #sink(): void {
    const places = this.#places;
    let at = 0;
    for (;;) {
      const place = places[at];
      let below = 2 * at + 1;
      if ((places[below + 1]?.rank ?? -Infinity) > (places[below]?.rank ?? -Infinity)) below++;
      const child = places[below];
      if (place === undefined || child === undefined || child.rank <= place.rank) return;
      places[at] = child;
      places[below] = place;
      at = below;
    }
  }
}
